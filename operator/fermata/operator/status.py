"""What is written to `status`: pure functions from views and meters to the JSON of both resources.

A status changes only when something happened, never because time passed, so that it is written rarely: numbers that
grow are settled when they stop growing, and until then the status says since when they grow.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal

from fermata.operator import reasons
from fermata.operator.facts import PoolFact, WorkflowFact
from fermata.operator.holding import Pause
from fermata.operator.ledger import Account
from fermata.operator.progress import WorkflowView
from fermata.operator.resources import MAX_MESSAGE, Condition
from fermata.operator.seat import Verdict
from fermata.operator.split import workflow_split
from fermata.operator.stage_status import stage_held_no_more, stage_status
from fermata.operator.times import render, render_or_none
from fermata.operator.validate import Problem
from fermata.operator.why import Why

_NO_NEWS = ("estimateSeconds", "estimateSource")  # told with the next change; they follow the runs of others
_MOMENT_S = 2.0  # so soon what a workflow needs may be seen that was made together with it, such as its pool
Activity = Literal["Running", "Held", "Waiting", "Suspended"]


def activity_of(view: WorkflowView, *, held: bool) -> Activity:
    """Return what an unfinished workflow does now."""
    running = [stage for stage in view.stages if stage.phase == "Running" and not (view.in_gap or view.is_gone(stage))]
    if any(stage.occupied or stage.reason != reasons.JOB_SUSPENDED for stage in running):
        return "Running"
    # Whatever else keeps it from going on: one that is being deleted may stay for as long as somebody's finalizer does.
    if running or view.blocked == reasons.SUSPENDED or view.fact.meta.deleting:
        return "Suspended"
    return "Held" if held else "Waiting"


def workflow_status(
    view: WorkflowView,
    account: Account,
    held: Mapping[str, Why],
    waiting: Mapping[str, Why],
    policy: str,
    now_s: float,
    problem: Problem | None = None,
    *,
    anew: bool = False,
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
        anew: why stages wait is told as of now. It is where the workflow was edited: it may be for other numbers since.
    """
    fact, outcome = view.fact, view.outcome
    anew = anew or fact.status.observed_generation != fact.meta.generation
    before = {stage.name: stage for stage in fact.status.stages}
    stages = [
        stage_status(view, stage, account, held, waiting, before.get(stage.spec.name), anew=anew)
        for stage in view.stages
    ]
    counts = {
        "total": view.tasks,
        "running": sum(stage["active"] for stage in stages),
        "succeeded": sum(stage["succeeded"] for stage in stages),
        "failed": sum(stage["failed"] for stage in stages),
    }
    status: dict[str, Any] = {
        "observedGeneration": fact.meta.generation,
        "conditions": _conditions(fact, _workflow_conditions(view, held, problem, stages), now_s, anew=anew),
        "policy": _policy(view, policy),
        "arrivalTime": render(view.arrival_s),
        "startTime": render_or_none(view.start_s),
        "completionTime": None,
        "jctSeconds": None,
        "waitSeconds": None,
        "heldSeconds": round(account.held.settled_s, 3),
        "runSeconds": None,
        "heldSince": render_or_none(account.held.since_s),
        "gapSeconds": round(account.gap.settled_s, 3) or None,
        "gapSince": render_or_none(account.gap.since_s),
        "suspendedTime": fact.status.suspended_time or _kept_time(view, problem, now_s),
        "slowdown": None,
        "progress": f"{counts['succeeded']}/{counts['total']}",
        "tasks": counts,
        "stages": stages,
    }
    if outcome is not None:
        parts = workflow_split(view, outcome, account)
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
    if not view.blocked and any(stage.waits for stage in view.stages):
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
        "arrivalTime": render(fact.arrival_s),
    }
    if fact.status.stages:
        status |= {
            "heldSeconds": round(account.held.settled_s, 3),
            "heldSince": None,
            "stages": [stage_held_no_more(stage, account) for stage in fact.status.stages],
        }
    return status


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
    paused: Pause,
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
        paused: whether nothing may be held.
        saved: share of the mean JCT that holding saves, if that is known.
        now_s: for the transition times of conditions.
    """
    ready = ("True", reasons.OPEN, "takes workflows") if problem is None else ("False", problem.reason, problem.message)
    conditions = {
        reasons.READY: ready,
        reasons.POLICY_READY: ("True" if verdict.ready else "False", verdict.reason, verdict.message),
        reasons.HOLDING_PAUSED: ("True" if paused.on else "False", paused.reason, paused.message),
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
    view: WorkflowView, held: Mapping[str, Why], problem: Problem | None, stages: Sequence[Mapping[str, Any]]
) -> dict[str, tuple[str, str, str]]:
    """Return status, reason and message of each condition; `stages` are the rows of the stages."""
    done = view.outcome
    activity = reasons.FINISHED if done else activity_of(view, held=bool(held))
    why = next(iter(held.values())) if activity == "Held" else Why(activity, "")
    amiss = next((row for row in stages if row["reason"] in reasons.AMISS), None)
    if done is not None:
        succeeded = ("True" if done.succeeded else "False", done.reason, done.message)
    elif problem is not None:
        succeeded = ("Unknown", problem.reason, problem.message)
    elif amiss is not None:
        succeeded = ("Unknown", amiss["reason"], f"stage {amiss['name']!r}: {_words(amiss)}")
    else:
        succeeded = ("Unknown", activity, "")
    return {
        reasons.ACCEPTED: ("False", problem.reason, problem.message) if problem else ("True", reasons.VALID, ""),
        reasons.RUNNING: ("True" if activity == "Running" else "False", activity, ""),
        reasons.HELD: ("True" if activity == "Held" else "False", why.reason, why.message),
        reasons.SUCCEEDED: succeeded,
    }


def _words(row: Mapping[str, Any]) -> str:
    """Return what the row of a stage says of its reason."""
    return str(row["message"] or reasons.MEANING.get(row["reason"], ""))


def _conditions(
    fact: WorkflowFact | PoolFact, wanted: Mapping[str, tuple[str, str, str]], now_s: float, *, anew: bool = False
) -> list[dict[str, Any]]:
    """Return all conditions; the transition time is kept for as long as the status stays.

    So is the message of a hold for as long as its reason does, unless it is told `anew`.
    """
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
            if same and not anew and before and before.reason == reason and kind == reasons.HELD
            else message[:MAX_MESSAGE],  # it may quote a Job or an API server, and too long a status is refused whole
        }
    return list(rows.values())


def _kept_time(view: WorkflowView, problem: Problem | None, now_s: float) -> str | None:
    """Return since when something else than its pool's executors keeps, or kept, a workflow from going on.

    As long as it is not accepted, a condition says since when.
    """
    if _suspended(view):
        return render(now_s)
    rejected_s, over = view.fact.rejected_s, problem is None or view.outcome is not None
    return render(rejected_s) if over and rejected_s is not None and now_s > rejected_s + _MOMENT_S else None


def _suspended(view: WorkflowView) -> bool:
    """Tell whether somebody keeps a workflow, or a Job of it, from going on."""
    return view.blocked == reasons.SUSPENDED or any(stage.reason == reasons.JOB_SUSPENDED for stage in view.stages)
