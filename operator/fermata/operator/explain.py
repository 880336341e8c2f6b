"""The story of a workflow in words and numbers, told from what the operator wrote into the API.

Pure: the objects as the API sends them go in, lines of text come out. `fermata explain` only fetches and prints.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from fermata.operator import reasons
from fermata.operator.facts import PoolFact, WorkflowFact
from fermata.operator.resources import StageStatus
from fermata.operator.slack import told_slack_s
from fermata.operator.split import Split
from fermata.operator.times import parse_or_none
from fermata.operator.why import seconds
from fermata.policy.wording import counted

# Why a stage waits that has begun and gives its executors back after each task.
_BETWEEN = (reasons.HELD_BY_POLICY, reasons.EXECUTORS_BUSY, reasons.PARALLELISM_REACHED, reasons.WAITING_FOR_TURN)


def explain(workflow: WorkflowFact, pool: PoolFact | str, stage: str | None, now_s: float) -> list[str]:
    """Return the story of a workflow, or of one of its stages.

    Args:
        workflow: with its status.
        pool: that it names, or why that cannot be shown.
        stage: one of its stages, or None for all.
        now_s: the time.
    """
    lines = [_headline(workflow, now_s), *_pool_lines(workflow, pool)]
    accepted = workflow.status.condition(reasons.ACCEPTED)
    if accepted is not None and accepted.status == "True" and accepted.message:
        lines.append(f"  {accepted.message}")
    seen = None if isinstance(pool, str) else pool
    for row in workflow.status.stages:
        if stage is None or row.name == stage:
            lines += ["", *_stage_lines(row, workflow, seen, now_s)]
    return lines


def _headline(workflow: WorkflowFact, now_s: float) -> str:
    status = workflow.status
    accepted, done = status.condition(reasons.ACCEPTED), status.condition(reasons.SUCCEEDED)
    if done is not None and done.status != "Unknown":
        verb = "succeeded" if done.status == "True" else f"failed ({done.reason}: {done.message})"
        parts = (status.jct_seconds, status.wait_seconds, status.held_seconds, status.run_seconds)
        if any(each is None for each in parts):  # somebody else has written that
            return f"Workflow {workflow.title}: {verb}; its status does not say how long it took."
        told = Split(*(round(1000 * (each or 0.0)) for each in parts)).told
        return f"Workflow {workflow.title}: {verb}. {told}; slowdown {status.slowdown or 1:.2f}."
    if accepted is None:
        return f"Workflow {workflow.title}: the operator has not seen it yet; is it running?"
    if accepted.status == "False":
        return f"Workflow {workflow.title}: not accepted: {accepted.reason}: {accepted.message}"
    held_s = (status.held_seconds or 0.0) + _since(status.held_since, now_s)
    running = status.condition(reasons.RUNNING)
    activity = running.reason if running else reasons.WAITING
    return (
        f"Workflow {workflow.title}: {activity.lower()}, {status.progress} tasks done, "
        f"{seconds(now_s - workflow.arrival_s)} after its arrival, of which held {seconds(held_s)}."
    )


def _pool_lines(workflow: WorkflowFact, pool: PoolFact | str) -> list[str]:
    if isinstance(pool, str):
        return [f"Pool {workflow.pool}: {pool}."]
    status = pool.status
    ready = status.condition(reasons.READY)
    if ready is None:
        return [f"Pool {pool.meta.name}: the operator has not seen it yet."]
    if ready.status == "False":
        return [f"Pool {pool.meta.name}: takes no workflows: {ready.reason}: {ready.message}."]
    text = (
        f"Pool {pool.meta.name}: {status.busy} of {status.executors} executors busy, "
        f"{counted(status.waiting, 'stage')} waiting, {status.held} held; "
        f"policy {status.policy or 'not known yet'}, mode {status.mode}."
    )
    lines = [text]
    decides = status.condition(reasons.POLICY_READY)
    if decides is not None and decides.status == "False":
        lines.append(f"  Its own policy does not decide: {decides.reason}: {decides.message}.")
    paused = status.condition(reasons.HOLDING_PAUSED)
    if paused is not None and paused.status == "True":
        lines.append(f"  Nothing is held in it: {reasons.MEANING.get(paused.reason, paused.reason)}")
    if paused is not None and paused.message:
        lines.append(f"  There {paused.message}.")
    return lines


def _stage_lines(row: StageStatus, workflow: WorkflowFact, pool: PoolFact | None, now_s: float) -> list[str]:
    head = f"Stage {row.name}: {row.state.lower()}"
    lines = [
        f"{head} ({row.succeeded} of {counted(row.tasks, 'task')} done, {row.active} running, {row.failed} failed)"
    ]
    if row.estimate_seconds is not None:
        source = f" ({row.estimate_source})" if row.estimate_source else ""
        lines.append(f"  a task is expected to take {seconds(row.estimate_seconds)}{source}")
    ready_s = parse_or_none(row.ready_time)
    if ready_s is not None:
        lines.append(f"  ready {seconds(max(ready_s - workflow.arrival_s, 0.0))} after the workflow's arrival")
    lines += _waiting_lines(row, workflow, pool, now_s)
    if row.start_time:
        waited = f"after {row.wait_seconds or 0:.1f} s of wait and {row.held_seconds or 0:.1f} s held"
        at_once = counted(row.parallelism or 1, "task")
        lines.append(f"  started {waited}, at most {at_once} at once, as Job {row.job_name}")
    if row.run_seconds is not None:
        lines.append(f"  ran {row.run_seconds:.1f} s")
    if not _waits(row) and (row.reason or row.message):
        lines.append(f"  {row.reason}: {row.message or reasons.MEANING.get(row.reason, '')}")
    return lines


def _waits(row: StageStatus) -> bool:
    """Tell whether a stage could be given executors and has none: before it began, or between its tasks."""
    return row.state in ("Held", "Waiting") or (row.state == "Running" and not row.active and row.reason in _BETWEEN)


def _waiting_lines(row: StageStatus, workflow: WorkflowFact, pool: PoolFact | None, now_s: float) -> list[str]:
    """Return why a ready stage does not run, and what would have happened otherwise."""
    if not _waits(row):
        return []
    # The status keeps the message that it began with, or that an edit left: its numbers are not of now, as below.
    told = f", as last told: {row.message}" if row.message else f": {reasons.MEANING.get(row.reason, '')}"
    lines = [f"  {row.reason}{told}"]
    if row.name in workflow.released:
        lines.append("  released: it is not held any more")
    if row.state == "Held" or row.held_since is not None:
        held_s = (row.held_seconds or 0.0) + _since(row.held_since, now_s)
        lines.append(f"  held for {seconds(held_s)} so far")
        until_s = parse_or_none(row.hold_until)
        if until_s is not None and until_s > now_s:
            lines.append(f"  committed to for {seconds(until_s - now_s)} more")
        if pool is not None:
            length = seconds(_length_s(row, workflow, pool))
            lines.append(
                f"  alternative: started now it would be done in about {length}, and its executors busy until then"
            )
        limits_s = _limits(row, workflow, pool, held_s, now_s)
        if limits_s:
            left_s, limit = min(limits_s)
            lines.append(f"  starts in {seconds(max(left_s, 0.0))} at the latest ({limit})")
        lines.append(f"  to start it: fermata release {workflow.meta.name} {row.name} -n {workflow.meta.namespace}")
    return lines


def _limits(
    row: StageStatus, workflow: WorkflowFact, pool: PoolFact | None, held_s: float, now_s: float
) -> list[tuple[float, str]]:
    """Return the seconds that each limit leaves to a held stage, and which limit that is."""
    if pool is None or pool.spec is None:
        return []
    max_hold_s, max_wait_s = pool.spec.max_hold_seconds, pool.spec.max_wait_seconds
    limits = [] if max_hold_s is None else [(max_hold_s - held_s, f"maxHoldSeconds {max_hold_s}")]
    if max_wait_s is not None and row.ready_time:
        limits.append((max_wait_s - _since(row.ready_time, now_s), f"maxWaitSeconds {max_wait_s}"))
    slack_s = told_slack_s(workflow, row.name, pool.spec.executors, now_s)
    if workflow.spec and slack_s < math.inf:
        deadline_s = workflow.spec.active_deadline_seconds
        limits.append((slack_s, f"activeDeadlineSeconds {deadline_s} of the workflow, less what is left of it"))
    return limits


def _length_s(row: StageStatus, workflow: WorkflowFact, pool: PoolFact) -> float:
    """Return how long a stage would take on the executors that are free now, as wide as its workflow may be."""
    spec = next((stage for stage in workflow.spec.stages if stage.name == row.name), None) if workflow.spec else None
    slots, tasks = (spec.slots, spec.tasks) if spec else (1, row.tasks)
    tasks = max(tasks - row.succeeded, 1)
    free = max(pool.status.executors - pool.status.busy, 0)
    own = workflow.spec.parallelism if workflow.spec else None
    room = tasks if own is None else own - sum(other.active for other in workflow.status.stages)
    at_once = max(min(free // slots, tasks, (spec.parallelism if spec else None) or tasks, room), 1)
    return (row.estimate_seconds or 0.0) * -(-tasks // at_once)


def _since(start: str | None, now_s: float) -> float:
    start_s = parse_or_none(start)
    return 0.0 if start_s is None else max(now_s - start_s, 0.0)


def stage_names(raw: Mapping[str, Any]) -> list[str]:
    """Return the names of a raw workflow's stages."""
    stages = (raw.get("spec") or {}).get("stages") or []
    return [str(stage.get("name")) for stage in stages if isinstance(stage, Mapping)]
