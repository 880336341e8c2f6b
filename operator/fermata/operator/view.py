"""How far a workflow is, read off its spec, its written status and the Jobs that exist.

Pure and level-based: the same objects give the same view, whatever happened in between. A Job says more than the
status, and the status more than nothing; a stage that was ever seen started is never startable again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace

import numpy as np

from fermata.operator import reasons
from fermata.operator.estimates import Estimates
from fermata.operator.facts import JobFact, WorkflowFact
from fermata.operator.progress import Outcome, Phase, Refusal, StageView, Unseen, WorkflowView
from fermata.operator.resources import StageStatus, WorkflowSpec
from fermata.operator.times import MOST_OFF_S, parse_or_none
from fermata.policy.earlier_runs import Estimate
from fermata.policy.graph import shape_of_job
from fermata.policy.wording import counted


def view(
    fact: WorkflowFact,
    spec: WorkflowSpec,
    jobs: Mapping[str, JobFact],
    refused: Mapping[str, Refusal],
    started: Mapping[str, JobFact],
    estimates: Estimates,
    now_s: float,
    before: WorkflowView | None = None,
) -> WorkflowView:
    """Return where an accepted workflow is.

    Args:
        fact: the workflow; its spec has passed validation.
        spec: that spec.
        jobs: the Jobs that exist, by stage.
        refused: stages whose Job the API server refuses for good, or does not have any more.
        started: the latest that this operator has seen of the Job of each stage that was started.
        estimates: of its pool.
        now_s: the time.
        before: an earlier view, whose shape still holds where neither spec nor estimates have changed, and which says
            what had ended while the workflow went on; without one its status does.
    """
    arrival_s = _arrival_s(fact, jobs)
    known = {status.name: status for status in fact.status.stages}
    guesses = [estimates.of(fact.meta, stage) for stage in spec.stages]
    if before is not None and before.spec is spec and [stage.estimate for stage in before.stages] == guesses:
        path_s = [stage.path_s for stage in before.stages]
        work_s, critical_path_s, width = before.work_s, before.critical_path_s, before.width
    else:
        path_s, work_s, critical_path_s, width = _shape(spec, guesses)
    stages: dict[str, StageView] = {}
    for index in _parents_first(spec):
        stage = spec.stages[index]
        blank = StageView(stage, index, "Pending", guesses[index], path_s[index], stage.tasks)
        begun = _begun(blank, jobs.get(stage.name), known.get(stage.name), started.get(stage.name), now_s)
        # Of a workflow that is being deleted the Jobs go first, and that is no failure.
        if stage.name in refused and (begun is None or (_is_missing(begun) and not fact.meta.deleting)):
            begun = _failed(begun or blank, *refused[stage.name], now_s)
        if begun is not None:
            _bound_ends(stages, begun)
        stages[stage.name] = begun or _waiting(blank, stages, arrival_s)
    stages = {stage.name: stages[stage.name] for stage in spec.stages}
    removed = tuple(job for name, job in jobs.items() if name not in stages)
    missing = {} if fact.meta.deleting else _missing(stages, known, jobs, refused, started)
    ordered = tuple(stages.values())
    seen = WorkflowView(fact, spec, ordered, arrival_s, work_s, critical_path_s, width, "", None, removed, missing)
    return replace(seen, blocked=_blocked(seen, now_s), outcome=_outcome(seen, before, now_s))


def without_edges(spec: WorkflowSpec) -> WorkflowSpec:
    """Return a spec whose stages depend on nothing, each name once: to read off where an unsound one is."""
    stages = {stage.name: stage.model_copy(update={"depends_on": []}) for stage in reversed(spec.stages)}
    return spec.model_copy(update={"stages": list(reversed(stages.values()))})


def _shape(spec: WorkflowSpec, guesses: list[Estimate]) -> tuple[list[float], float, float, float]:
    """Return the path length of each stage, and the workflow's work, critical path and average width."""
    index = {stage.name: i for i, stage in enumerate(spec.stages)}
    parents = [[index[parent] for parent in stage.depends_on] for stage in spec.stages]
    length_s = np.array([guess.seconds for guess in guesses])
    executors = np.array([stage.tasks * stage.slots for stage in spec.stages])
    path_s, work_s, critical_path_s, width = shape_of_job(parents, length_s, executors)
    return path_s.tolist(), work_s, critical_path_s, width


def _parents_first(spec: WorkflowSpec) -> list[int]:
    """Return the indices of the stages of a DAG, parents before children."""
    index = {stage.name: i for i, stage in enumerate(spec.stages)}
    left = [len(stage.depends_on) for stage in spec.stages]
    children: list[list[int]] = [[] for _ in spec.stages]
    for i, stage in enumerate(spec.stages):
        for parent in stage.depends_on:
            children[index[parent]].append(i)
    order = [i for i, count in enumerate(left) if count == 0]
    for i in order:
        for child in children[i]:
            left[child] -= 1
            if left[child] == 0:
                order.append(child)
    return order


def _goes_on(status: StageStatus) -> bool:
    """Tell whether a stage was written down as begun and not as ended; it waits again where its Job went first."""
    return status.state == "Running" or (status.state == "Waiting" and status.start_time is not None)


def _begun(
    blank: StageView,
    job: JobFact | None,
    status: StageStatus | None,
    started: JobFact | None,
    now_s: float,
) -> StageView | None:
    """Return the view of a stage that has been started, or None of one that has not."""
    if job is None:
        if status is not None and (status.state == "Succeeded" or status.state == "Failed"):
            return _as_written(blank, status.state, status)
        if started is not None:
            return replace(_as_started(blank, started), phase="Running")
        if status is None or not _goes_on(status):
            return None
        seen = _as_written(blank, "Running", status)
        return seen if status.state == "Running" else replace(seen, reason="", message="")  # it said why it waited
    blank = replace(_as_started(blank, job), job=job)
    written_end_s = parse_or_none(status.completion_time) if status else None
    end_s = written_end_s if written_end_s is not None else job.end_s
    if job.outcome == "Complete":
        return replace(blank, phase="Succeeded", end_s=max(end_s or now_s, job.start_s))
    if job.outcome == "Failed":
        message = f"{job.reason}: {job.message}" if job.message else job.reason
        end_s = max(end_s or now_s, job.start_s)
        return replace(blank, phase="Failed", reason=reasons.JOB_FAILED, message=message, end_s=end_s)
    if job.stopped:
        message = reasons.MEANING.get(job.stopped, "stopped by the operator")
        end_s = max(end_s or now_s, job.start_s)
        return replace(blank, phase="Failed", reason=job.stopped, message=message, end_s=end_s)
    return replace(blank, phase="Running", reason=job.amiss(now_s))


def _arrival_s(fact: WorkflowFact, jobs: Mapping[str, JobFact]) -> float:
    """Return when a workflow arrived: by the time that a stage of it was ready.

    A Job says that as whoever started it saw it; of an arrival that was not seen as it came the second alone is known.
    """
    ready_s = min((job.ready_s for job in jobs.values()), default=math.inf)
    return ready_s if fact.meta.created_s <= ready_s < fact.arrival_s <= ready_s + MOST_OFF_S else fact.arrival_s


def _bound_ends(done: dict[str, StageView], begun: StageView) -> None:
    """Let the parents of a stage that has begun have ended when it was ready.

    Its Job says that as whoever started it saw it; of an end that was not seen as it came the second alone is known.
    """
    for name in begun.spec.depends_on:
        parent, ready_s = done[name], begun.ready_s
        if parent.end_s is not None and ready_s < parent.end_s <= ready_s + MOST_OFF_S:
            done[name] = replace(parent, end_s=max(ready_s, parent.start_s or ready_s))


def _is_missing(stage: StageView) -> bool:
    return stage.phase == "Running" and stage.job is None


def _missing(
    stages: Mapping[str, StageView],
    known: Mapping[str, StageStatus],
    jobs: Mapping[str, JobFact],
    refused: Mapping[str, Refusal],
    started: Mapping[str, JobFact],
) -> dict[str, Unseen]:
    """Return what the stages may take whose Jobs are not seen, also of those that an edit took out."""
    begun = {*started, *(name for name, status in known.items() if status.state == "Running")}
    taken_out = sorted(begun.difference(stages, jobs, refused))
    names = [*(name for name, stage in stages.items() if _is_missing(stage)), *taken_out]
    return {name: _unseen(stages.get(name), known.get(name), started.get(name)) for name in names}


def _failed(blank: StageView, reason: str, message: str, now_s: float) -> StageView:
    return replace(blank, phase="Failed", reason=reason, message=message, end_s=now_s)


def _unseen(stage: StageView | None, status: StageStatus | None, job: JobFact | None) -> Unseen:
    """Return what a stage takes at the most by the latest that is known: of its Job, or by its status and its spec."""
    slots = stage.spec.slots if stage else 1
    if job is not None:
        return Unseen(job.occupied, job.slots or slots)
    tasks = stage.tasks if stage else status.tasks if status else 0
    return Unseen(min((status.parallelism if status else None) or tasks, tasks), slots)


def _as_started(blank: StageView, job: JobFact) -> StageView:
    """Return the view of a stage as its Job says that it was started."""
    return replace(blank, tasks=job.completions, ready_s=job.ready_s, start_s=job.start_s, held_s=job.held_s)


def _as_written(blank: StageView, phase: Phase, status: StageStatus) -> StageView:
    """Return the view of a stage of whose Job nothing is known: the status is all that is left of it.

    Somebody else may have written it; a stage that has started was ready by then.
    """
    start_s = parse_or_none(status.start_time)
    return replace(
        blank,
        phase=phase,
        tasks=status.tasks or blank.tasks,
        reason=status.reason,
        message=status.message,
        ready_s=parse_or_none(status.ready_time) or start_s or math.inf,
        start_s=start_s,
        end_s=parse_or_none(status.completion_time),
        held_s=status.held_seconds or 0.0,
    )


def _waiting(blank: StageView, done: Mapping[str, StageView], arrival_s: float) -> StageView:
    parents = [done[name] for name in blank.spec.depends_on]
    if any(parent.phase == "Failed" or parent.lost for parent in parents):
        return replace(blank, lost=True)
    if any(parent.phase != "Succeeded" for parent in parents):
        return blank
    return replace(blank, phase="Ready", ready_s=max([arrival_s, *(parent.end_s or 0.0 for parent in parents)]))


def _outcome(seen: WorkflowView, before: WorkflowView | None, now_s: float) -> Outcome | None:
    """Return how a workflow ended, or None of one that goes on; `before` is an earlier view of it."""
    if seen.missing or any(job.goes_on for job in seen.removed):
        return None
    ends_s = _ends_s(seen)
    last_s = max((_went_on_s(seen, before, ends_s.keys(), now_s), *ends_s.values())) if ends_s else now_s
    outcome = _end(seen, last_s, now_s)
    if seen.fact.meta.deleting and outcome is not None and not outcome.succeeded:
        return None  # its Jobs may fail because their pods were deleted before them
    return outcome


def _ends_s(seen: WorkflowView) -> dict[str, float]:
    """Return when the stages ended that have, also of those that an edit took out."""
    rows = [(stage.spec.name, stage.end_s) for stage in seen.stages] + [(job.stage, job.end_s) for job in seen.removed]
    return {name: end_s for name, end_s in rows if end_s is not None}


def _went_on_s(seen: WorkflowView, before: WorkflowView | None, ended: Set[str], now_s: float) -> float:
    """Return until when a workflow is known to have gone on, -inf if that is not known.

    Until now, if it still went on after all stages, its own or taken out, that have `ended`: an edit ends it then.
    """
    if before is not None and before.outcome is not None:
        return before.outcome.end_s
    told = seen.fact.status.stages
    known: Set[str] = {status.name for status in told if status.completion_time is not None}
    if before is not None:  # statuses are told a little later
        known = _ends_s(before).keys()
    elif len(known) < len(told):  # something went on without what had been taken out by then
        known |= ended - {stage.spec.name for stage in seen.stages} - {status.name for status in told}
    return now_s if ended <= known else -math.inf


def _end(seen: WorkflowView, last_s: float, now_s: float) -> Outcome | None:
    """Return the end of a workflow of which nothing is unknown, or None; `last_s` is when it was last seen going on."""
    stages = seen.stages
    if all(stage.phase == "Succeeded" for stage in stages):
        return Outcome(True, reasons.ALL_STAGES_SUCCEEDED, f"{counted(len(stages), 'stage')} succeeded", last_s)
    if any(stage.phase == "Running" for stage in stages):
        return None
    failed = [stage for stage in stages if stage.phase == "Failed"]
    over = bool(failed) and not (seen.spec.on_failure == "Finish" and any(stage.phase == "Ready" for stage in stages))
    # What was over by then did not end by the deadline, however late that is seen or can be told.
    in_time = last_s < seen.deadline_s and all(stage.reason != reasons.DEADLINE_EXCEEDED for stage in failed)
    if now_s >= seen.deadline_s and not (over and in_time):
        return Outcome(False, reasons.DEADLINE_EXCEEDED, "activeDeadlineSeconds have passed", max(now_s, last_s))
    return Outcome(False, reasons.STAGE_FAILED, _failure(failed), last_s) if over else None


def _failure(failed: Sequence[StageView]) -> str:
    """Return which stage failed first, and how; stages that were stopped for it are no failures of their own."""
    own = [stage for stage in failed if stage.reason not in (reasons.STOPPED, reasons.DEADLINE_EXCEEDED)] or failed
    first = min(own, key=lambda stage: (stage.end_s if stage.end_s is not None else math.inf, stage.index))
    more = f" (and {len(own) - 1} more failed)" if len(own) > 1 else ""
    return f"stage {first.spec.name!r}: {first.reason}: {first.message}{more}"


def _blocked(seen: WorkflowView, now_s: float) -> str:
    """Return why nothing new of a workflow may start, or an empty text."""
    if now_s >= seen.deadline_s:
        return reasons.DEADLINE_EXCEEDED
    if seen.spec.on_failure == "Stop" and any(stage.phase == "Failed" for stage in seen.stages):
        return reasons.STAGE_FAILED
    return reasons.SUSPENDED if seen.spec.suspend or seen.fact.meta.deleting else ""
