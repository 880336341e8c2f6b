"""What is written to `status`: pure functions from views and meters to the JSON of both resources.

A status changes only when something happened, never because time passed, so that it is written rarely: numbers that
grow are settled when they stop growing, and until then the status says since when they grow.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Literal, NamedTuple

from fermata.operator import reasons
from fermata.operator.estimates import Estimate
from fermata.operator.facts import PoolFact, WorkflowFact
from fermata.operator.lanes import task_duration_s
from fermata.operator.ledger import Account, Meter
from fermata.operator.names import job_name
from fermata.operator.progress import Outcome, StageView, WorkflowView
from fermata.operator.resources import MAX_MESSAGE, Condition, StageStatus
from fermata.operator.seat import Verdict
from fermata.operator.times import render
from fermata.operator.validate import Problem
from fermata.operator.why import Why

SLOWDOWN_THRESHOLD_S = 10.0
_ANSWERS = (reasons.START_RETRYING, reasons.JOB_UNSEEN)  # whose messages quote the API server's latest answer
_NO_NEWS = ("estimateSeconds", "estimateSource")  # told with the next change; they follow the runs of others
Activity = Literal["Running", "Held", "Waiting", "Suspended"]
Level = Literal["Normal", "Warning"]


class Split(NamedTuple):
    """A JCT in milliseconds, so that wait + held + run is exactly the whole."""

    jct_ms: int
    wait_ms: int
    held_ms: int
    run_ms: int

    @property
    def seconds(self) -> tuple[float, float, float, float]:
        """JCT, wait, held and run in seconds."""
        return self.jct_ms / 1000, self.wait_ms / 1000, self.held_ms / 1000, self.run_ms / 1000

    @property
    def slowdown(self) -> float:
        """JCT over run time, both at least the threshold, at least 1."""
        jct_s, _, _, run_s = self.seconds
        return max(jct_s / max(run_s, SLOWDOWN_THRESHOLD_S), 1.0)


def split(whole_s: float, held_s: float, run_s: float) -> Split:
    """Return how a stretch of time divides; what was neither run nor held was waited.

    >>> split(10.0, 2.5, 4.0).seconds
    (10.0, 3.5, 2.5, 4.0)
    """
    whole_ms = max(round(whole_s * 1000), 0)
    run_ms = min(round(run_s * 1000), whole_ms)
    held_ms = min(round(held_s * 1000), whole_ms - run_ms)
    return Split(whole_ms, whole_ms - run_ms - held_ms, held_ms, run_ms)


def activity_of(view: WorkflowView, *, held: bool) -> Activity:
    """Return what an unfinished workflow does now."""
    if any(stage.phase == "Running" for stage in view.stages):
        return "Running"
    if view.blocked == reasons.SUSPENDED:
        return "Suspended"
    return "Held" if held else "Waiting"


def workflow_split(view: WorkflowView, outcome: Outcome, held: Meter) -> Split:
    """Return how the JCT of a finished workflow divides."""
    return split(outcome.end_s - view.arrival_s, held.total(outcome.end_s), view.run_s)


def workflow_status(
    view: WorkflowView,
    account: Account,
    held: Mapping[str, Why],
    waiting: Mapping[str, Why],
    policy: str,
    now_s: float,
    problem: Problem | None = None,
) -> dict[str, Any]:
    """Return the status of a workflow.

    Args:
        view: where it is.
        account: its meters.
        held: its stages that are held, and why.
        waiting: its ready stages that are not, and why.
        policy: that decides in its pool.
        now_s: for the transition times of conditions.
        problem: why it is not accepted, or None.
    """
    fact, outcome = view.fact, view.outcome
    before = {stage.name: stage for stage in fact.status.stages}
    stages = [_stage_status(view, stage, account, held, waiting, before.get(stage.spec.name)) for stage in view.stages]
    counts = {
        "total": view.tasks,
        "running": sum(stage["active"] for stage in stages),
        "succeeded": sum(stage["succeeded"] for stage in stages),
        "failed": sum(stage["failed"] for stage in stages),
    }
    status: dict[str, Any] = {
        "observedGeneration": fact.meta.generation,
        "conditions": _conditions(fact, _workflow_conditions(view, held, problem), now_s),
        "policy": _policy(view, policy),
        "arrivalTime": fact.status.arrival_time or render(view.arrival_s),
        "startTime": _rendered(view.start_s),
        "completionTime": None,
        "jctSeconds": None,
        "waitSeconds": None,
        "heldSeconds": round(account.held.settled_s, 3),
        "runSeconds": None,
        "heldSince": _rendered(account.held.since_s),
        "suspendedTime": fact.status.suspended_time or (render(now_s) if _suspended(view) else None),
        "slowdown": None,
        "progress": f"{counts['succeeded']}/{counts['total']}",
        "tasks": counts,
        "stages": stages,
    }
    if outcome is not None:
        parts = workflow_split(view, outcome, account.held)
        jct_s, wait_s, held_s, run_s = parts.seconds
        status |= {
            "completionTime": render(outcome.end_s),
            "jctSeconds": jct_s,
            "waitSeconds": wait_s,
            "heldSeconds": held_s,
            "runSeconds": run_s,
            "heldSince": None,
            "slowdown": round(parts.slowdown, 3),
        }
    return status


def without_stages(status: Mapping[str, Any]) -> dict[str, Any]:
    """Return the status of a workflow beside whose spec there is no room for its stages, and which says so.

    What an operator that is started again needs of them is also in their Jobs.
    """
    conditions = [
        row | {"message": reasons.MEANING[reasons.STAGES_NOT_TOLD]}
        if (row["type"], row["status"]) == (reasons.ACCEPTED, "True")
        else row
        for row in status["conditions"]
    ]
    return {**status, "conditions": conditions, "stages": []}


def _policy(view: WorkflowView, policy: str) -> str:
    """Return which policy made the latest decision about a workflow; `policy` is asked about it if it may start."""
    if not view.blocked and any(stage.phase == "Ready" for stage in view.stages):
        return policy or view.fact.status.policy or ""
    jobs = [stage.job for stage in view.stages if stage.job is not None and stage.job.policy]
    latest = max(jobs, key=lambda job: job.start_s, default=None)
    return latest.policy if latest else view.fact.status.policy or policy


def rejected_status(fact: WorkflowFact, account: Account, problem: Problem, now_s: float) -> dict[str, Any]:
    """Return the status of a workflow whose spec cannot be read; what it did before stays, and nothing is held."""
    conditions = {
        reasons.ACCEPTED: ("False", problem.reason, problem.message),
        reasons.SUCCEEDED: ("Unknown", problem.reason, problem.message),
    }
    running = fact.status.condition(reasons.RUNNING)
    if running is not None and running.status != "True":
        conditions |= dict.fromkeys((reasons.RUNNING, reasons.HELD), ("False", reasons.REJECTED, ""))
    status: dict[str, Any] = {
        "observedGeneration": fact.meta.generation,
        "conditions": _conditions(fact, conditions, now_s),
        "arrivalTime": fact.status.arrival_time or render(fact.arrival_s),
    }
    if fact.status.stages:
        status |= {
            "heldSeconds": round(account.held.settled_s, 3),
            "heldSince": None,
            "stages": [_held_no_more(stage, account) for stage in fact.status.stages],
        }
    return status


def _held_no_more(stage: StageStatus, account: Account) -> dict[str, Any]:
    row = stage.model_dump(by_alias=True)
    if stage.state in ("Waiting", "Held"):
        meter = account.stages.get(stage.name, Meter())
        row |= {"state": "Waiting", "reason": reasons.REJECTED, "message": "", "holdUntil": None}
        row |= {"heldSince": None, "heldSeconds": round(meter.settled_s, 3)}
    return row


def edited_status(fact: WorkflowFact, now_s: float) -> dict[str, Any]:
    """Return the status of a finished workflow that was edited: what became of it stays, and holds for the edit too."""
    conditions = {row.type: (row.status, row.reason, row.message) for row in fact.status.conditions}
    return {"observedGeneration": fact.meta.generation, "conditions": _conditions(fact, conditions, now_s)}


def pool_status(
    fact: PoolFact,
    verdict: Verdict,
    policy: str,
    counts: Mapping[str, int],
    problem: Problem | None,
    paused: tuple[bool, str, str],
    saved: float | None,
    now_s: float,
) -> dict[str, Any]:
    """Return the status of a pool.

    Args:
        fact: the pool.
        verdict: whether its own policy decides.
        policy: that decides.
        counts: busy, waiting, held, workflows.
        problem: why it takes no workflows, or None.
        paused: whether nothing may be held, reason and message.
        saved: share of the mean JCT that holding saves, if that is known.
        now_s: for the transition times of conditions.
    """
    ready = ("True", reasons.OPEN, "takes workflows") if problem is None else ("False", problem.reason, problem.message)
    conditions = {
        reasons.READY: ready,
        reasons.POLICY_READY: ("True" if verdict.ready else "False", verdict.reason, verdict.message),
        reasons.HOLDING_PAUSED: ("True" if paused[0] else "False", *paused[1:]),
    }
    return {
        "observedGeneration": fact.meta.generation,
        "conditions": _conditions(fact, conditions, now_s),
        "policy": policy,
        "mode": fact.spec.mode if fact.spec else "",
        "executors": fact.spec.executors if fact.spec else 0,
        "holdSavingsPercent": None if saved is None else round(100 * saved, 1),
        **counts,
    }


def changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Tell whether a status has to be written: absent and null mean the same, and an estimate alone is no news."""
    return bool(_pruned(before, _NO_NEWS) != _pruned(after, _NO_NEWS))


def merge_patch(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return a status as a merge patch: null removes a field, but inside of a list it would be a value."""
    return {key: _pruned(value) if isinstance(value, list) else value for key, value in body.items()}


def _pruned(value: Any, without: Collection[str] = ()) -> Any:
    if isinstance(value, Mapping):
        return {key: _pruned(item, without) for key, item in value.items() if item is not None and key not in without}
    return [_pruned(item, without) for item in value] if isinstance(value, list) else value


def _workflow_conditions(
    view: WorkflowView, held: Mapping[str, Why], problem: Problem | None
) -> dict[str, tuple[str, str, str]]:
    activity = activity_of(view, held=bool(held))
    why = next(iter(held.values()), None)
    done = view.outcome
    if done is not None:
        succeeded = ("True" if done.succeeded else "False", done.reason, done.message)
    elif problem is not None:
        succeeded = ("Unknown", problem.reason, problem.message)
    else:
        succeeded = ("Unknown", activity, "")
    running = done is None and activity == "Running"
    is_held = done is None and activity == "Held"
    return {
        reasons.ACCEPTED: ("False", problem.reason, problem.message) if problem else ("True", reasons.VALID, ""),
        reasons.RUNNING: ("True" if running else "False", reasons.FINISHED if done else activity, ""),
        reasons.HELD: (
            "True" if is_held else "False",
            reasons.FINISHED if done else why.reason if why and is_held else activity,
            why.message if why and is_held else "",
        ),
        reasons.SUCCEEDED: succeeded,
    }


def _conditions(
    fact: WorkflowFact | PoolFact, wanted: Mapping[str, tuple[str, str, str]], now_s: float
) -> list[dict[str, Any]]:
    """Return all conditions; a message is kept for as long as status and reason stay, and so is the transition time."""
    rows: dict[str, dict[str, Any]] = {
        condition.type: condition.model_dump(by_alias=True) for condition in fact.status.conditions
    }
    for kind, (status, reason, message) in wanted.items():
        before: Condition | None = fact.status.condition(kind)
        same = before is not None and before.status == status
        rows[kind] = {
            "type": kind,
            "status": status,
            "observedGeneration": fact.meta.generation,
            "lastTransitionTime": before.last_transition_time if same and before else render(now_s),
            "reason": reason,
            "message": before.message
            if same and before and before.reason == reason and kind == reasons.HELD
            else message[:MAX_MESSAGE],  # it may quote a Job or an API server, and too long a status is refused whole
        }
    return list(rows.values())


def _stage_status(
    view: WorkflowView,
    stage: StageView,
    account: Account,
    held: Mapping[str, Why],
    waiting: Mapping[str, Why],
    before: StageStatus | None,
) -> dict[str, Any]:
    name = stage.spec.name
    meter = account.stages.get(name) or Meter(stage.held_s)
    state, why = _stage_state(view, stage, held.get(name), waiting.get(name))
    # The numbers in a sentence change all the time; it is told once for each reason. What the API server says when it
    # does not take a Job, or does not give it back, is no number: today's answer is what has to be mended.
    same = before is not None and before.state == state and before.reason == why.reason
    if same and before is not None and before.message and why.reason not in _ANSWERS:
        why = Why(before.reason, before.message)
    begun = stage.start_s is not None
    parts = split(stage.start_s - stage.ready_s, stage.held_s, 0.0) if stage.start_s is not None else None
    run_s = stage.end_s - stage.start_s if stage.start_s is not None and stage.end_s is not None else None
    ready = stage.ready_s if stage.ready_s != float("inf") else None
    until_s = account.hold_until_s.get(name)
    estimate_s, source = _expected(stage, before)
    job = stage.job or account.started.get(name)
    return {
        "name": name,
        "state": state,
        "reason": why.reason,
        "message": why.message[:1024],
        "readyTime": _rendered(ready),
        "startTime": _rendered(stage.start_s),
        "completionTime": _rendered(stage.end_s),
        "heldSince": None if begun else _rendered(meter.since_s),
        "holdUntil": None if begun else _rendered(until_s),
        "waitSeconds": parts.wait_ms / 1000 if parts else None,
        "heldSeconds": parts.held_ms / 1000 if parts else round(meter.settled_s, 3),
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


def _suspended(view: WorkflowView) -> bool:
    """Tell whether somebody keeps a workflow, or a Job of it, from going on."""
    return view.blocked == reasons.SUSPENDED or any(stage.reason == reasons.JOB_SUSPENDED for stage in view.stages)


def _task_s(stage: StageView, run_s: float | None, before: StageStatus | None) -> float | None:
    """Return what a task of a stage took that has ended: its Job knows, and once that is gone the status does."""
    if run_s is None or stage.job is None:
        return before.task_seconds if before else None
    return round(task_duration_s(run_s, stage.tasks, stage.job.lanes), 3)


def _stage_state(view: WorkflowView, stage: StageView, held: Why | None, waiting: Why | None) -> tuple[str, Why]:
    if stage.phase in ("Running", "Succeeded", "Failed"):
        return stage.phase, Why(stage.reason, stage.message)
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


def _rendered(at_s: float | None) -> str | None:
    return None if at_s is None else render(at_s)
