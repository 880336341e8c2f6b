"""What is written to `status.stages`: one row for each stage of a workflow."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from fermata.operator import reasons
from fermata.operator.ledger import Account, Meter
from fermata.operator.names import job_name
from fermata.operator.progress import StageView, WorkflowView
from fermata.operator.resources import MAX_STAGE_MESSAGE, StageStatus
from fermata.operator.split import split
from fermata.operator.times import render_or_none
from fermata.operator.why import Why
from fermata.policy.earlier_runs import Estimate

# Whose messages quote the API server's latest answer.
_ANSWERS = (reasons.START_RETRYING, reasons.JOB_UNSEEN, reasons.CHANGE_RETRYING)


def stage_status(
    view: WorkflowView,
    stage: StageView,
    account: Account,
    held: Mapping[str, Why],
    waiting: Mapping[str, Why],
    before: StageStatus | None,
    *,
    anew: bool = False,
) -> dict[str, Any]:
    """Return the row of a stage.

    Args:
        view: its workflow.
        stage: where it is.
        account: the meters of its workflow.
        held: stages of it that are held, and why.
        waiting: ready stages of it that are not, and why.
        before: what the row says so far.
        anew: its message is told as of now, also where its reason is the same as before.
    """
    name = stage.spec.name
    meter = account.stages.get(name) or Meter(stage.held_s)
    state, why = _stage_state(view, stage, held.get(name), waiting.get(name))
    # The numbers in a sentence change all the time; it is told once for each reason. What the API server says when it
    # does not take a Job, or does not give it back, is no number: today's answer is what has to be mended.
    same = before is not None and before.state == state and before.reason == why.reason
    if same and not anew and before is not None and before.message and why.reason not in _ANSWERS:
        why = Why(before.reason, before.message)
    begun, gated = stage.start_s is not None, stage.job is not None and stage.job.gated
    parts = split(stage.start_s - stage.ready_s, stage.held_s, 0.0) if stage.start_s is not None else None
    run_s = stage.end_s - stage.start_s if stage.start_s is not None and stage.end_s is not None else None
    ready = stage.ready_s if stage.ready_s < math.inf else None
    until_s = account.hold_until_s.get(name, account.over_s.get(name))
    estimate_s, source = _expected(stage, before)
    job = stage.job or account.started.get(name)
    return {
        "name": name,
        "state": state,
        "reason": why.reason,
        "message": why.message[:MAX_STAGE_MESSAGE],
        "readyTime": render_or_none(ready),
        "startTime": render_or_none(stage.start_s),
        "completionTime": render_or_none(stage.end_s),
        "heldSince": render_or_none(meter.since_s) if stage.gated or not begun else None,
        "holdUntil": None if begun else render_or_none(until_s),
        "waitSeconds": parts.wait_ms / 1000 if parts else None,
        "heldSeconds": parts.held_ms / 1000 if parts and not gated else _held_s(stage, meter, before),
        "runSeconds": None if run_s is None else round(run_s, 3),
        "taskSeconds": _task_s(stage, run_s, before),
        "estimateSeconds": estimate_s,
        "estimateSource": source,
        "parallelism": job.parallelism if job else before.parallelism if before else None,
        "jobName": job_name(view.fact.meta.name, view.fact.meta.uid, name) if begun else None,
        "tasks": stage.tasks,
        "active": stage.occupied,
        # Where no Job says so, what was said of it before is all that is known.
        "succeeded": max(stage.succeeded, before.succeeded if before and not stage.job else 0),
        "failed": stage.job.failed if stage.job else before.failed if before else 0,
    }


def stage_held_no_more(stage: StageStatus, account: Account) -> dict[str, Any]:
    """Return the row of a stage of a workflow that is rejected: if it was held, it waits from now on."""
    row = stage.model_dump(by_alias=True)
    if stage.state in ("Waiting", "Held"):
        meter = account.stages.get(stage.name, Meter())
        row |= {"state": "Waiting", "reason": reasons.REJECTED, "message": "", "holdUntil": None}
        row |= {"heldSince": None, "heldSeconds": round(meter.settled_s, 3)}
    return row


def _held_s(stage: StageView, meter: Meter, before: StageStatus | None) -> float:
    """Return for how long a stage was held so far, and between its tasks; its status may know more than a new meter."""
    held_s = round(meter.settled_s, 3)
    if stage.phase in ("Ready", "Running") or before is None:
        return held_s
    return max(before.held_seconds or 0.0, held_s)


def _task_s(stage: StageView, run_s: float | None, before: StageStatus | None) -> float | None:
    """Return what a task of a stage took that has ended: its Job knows, and once that is gone the status does."""
    if run_s is None or stage.job is None:
        return before.task_seconds if before else None
    return round(stage.took_s(run_s), 3)


def _stage_state(view: WorkflowView, stage: StageView, held: Why | None, waiting: Why | None) -> tuple[str, Why]:
    if stage.rests:
        return stage.phase, held or waiting or Why(view.blocked or reasons.WAITING_FOR_TURN, "")
    if view.is_gone(stage):
        return "Waiting", Why(reasons.SUSPENDED, "")
    if stage.phase in ("Running", "Succeeded", "Failed"):
        return stage.phase, Why(stage.reason, stage.message)
    if stage.lost:
        return "Skipped", Why(reasons.NOT_STARTED, "a stage that it depends on has failed")
    if view.outcome is not None:
        return "Skipped", Why(reasons.NOT_STARTED, "the workflow ended before it could start")
    if stage.phase == "Pending":
        return "Pending", Why(reasons.PARENTS_RUNNING, "")
    if view.blocked:
        return "Waiting", Why(view.blocked, "")
    if held is not None:
        return "Held", held
    return "Waiting", waiting or Why(reasons.EXECUTORS_BUSY, "")


def _expected(stage: StageView, before: StageStatus | None) -> tuple[float, str]:
    """Return what a task of a stage is expected to take, and by what; of one that has ended, what it was at its start.

    Since then others have ended, and it has itself: by that, nothing would ever have been expected wrongly.
    """
    now = round(stage.estimate.seconds, 3), _source(stage.estimate)
    told = (before.estimate_seconds, before.estimate_source) if before and before.estimate_seconds is not None else now
    if stage.end_s is None:
        return now
    if stage.job is None or stage.job.estimate_s is None:
        return told
    at_start_s = stage.job.estimate_s
    same = (row for row in (told, now) if abs(row[0] - at_start_s) < 0.001)  # the one was rounded, the other cut
    return next(same, (round(at_start_s, 3), "as known at its start"))


def _source(estimate: Estimate) -> str:
    if estimate.quartiles is None:
        return estimate.source
    low_s, high_s = estimate.quartiles
    return f"{estimate.source}, half of them {low_s:.3g} to {high_s:.3g} s"
