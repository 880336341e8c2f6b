"""What really happened to a workflow, as the jobs that a replay or a simulation runs again.

Pure: facts and views in, `PastJob`s out. Durations are those that were measured; of what has not finished the estimate
stands in, and at least what it has taken so far.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from graphlib import TopologicalSorter
from typing import NamedTuple

from fermata.operator.build_state import weight
from fermata.operator.estimates import is_guess, measured_s
from fermata.operator.facts import WorkflowFact
from fermata.operator.lanes import constant, task_duration_s
from fermata.operator.progress import StageView, WorkflowView
from fermata.operator.resources import StageStatus
from fermata.operator.validate import is_dag
from fermata.operator.view import without_edges
from fermata.policy.earlier_runs import LEAST_S


class PastStage(NamedTuple):
    """One stage that ran, or that will."""

    name: str
    parents: tuple[int, ...]  # positions among the stages of its job
    tasks: int
    slots: int
    max_cap: int  # tasks that may run at once
    duration_s: float  # of one task, as it was
    estimate_s: float  # of one task, as it was believed when it started
    given: bool = True  # by its user; else learned from earlier runs, and never corrected
    succeeded: bool = True  # or may yet: of what failed nothing is learned

    @property
    def mute(self) -> bool:
        """Whether what its tasks took says nothing of estimates: it failed, or nobody had known anything."""
        return not self.succeeded or is_guess(self.estimate_s, given=self.given)


class PastJob(NamedTuple):
    """One workflow; jobs sort by their arrival."""

    arrival_s: float
    uid: str
    name: str  # with its namespace
    weight: float
    stages: tuple[PastStage, ...]  # parents may come after their children
    jct_s: float  # as it was; NaN while it is not finished

    @property
    def succeeded(self) -> bool:
        """Whether all that ran of it succeeded, or may yet."""
        return all(stage.succeeded for stage in self.stages)

    @property
    def work_s(self) -> float:
        """Executor-seconds by estimate."""
        return sum(stage.tasks * stage.slots * stage.estimate_s for stage in self.stages)


def past_job(fact: WorkflowFact) -> PastJob | None:
    """Return a finished workflow, or None if nothing of it ever ran."""
    if fact.spec is None:
        return None
    spec = fact.spec if is_dag(fact.spec) else without_edges(fact.spec)
    rows = {row.name: row for row in fact.status.stages if row.run_seconds is not None and row.start_time}
    specs = [stage for stage in spec.stages if stage.name in rows]
    position = {stage.name: index for index, stage in enumerate(specs)}
    stages = []
    for stage in specs:
        row = rows[stage.name]
        tasks = row.tasks or stage.tasks  # the spec may have been edited after the start
        duration_s = max(measured_s(row, tasks), LEAST_S)
        stages.append(
            PastStage(
                name=stage.name,
                parents=tuple(position[name] for name in stage.depends_on if name in position),
                tasks=tasks,
                slots=stage.slots,
                max_cap=_max_cap(tasks, stage.parallelism, spec.parallelism),
                duration_s=duration_s,
                estimate_s=row.estimate_seconds or duration_s,
                given=stage.estimate_seconds is not None,
                succeeded=row.state == "Succeeded",
            )
        )
    if not stages:
        return None
    jct_s = fact.status.jct_seconds if fact.status.jct_seconds is not None else math.nan
    return PastJob(fact.arrival_s, fact.meta.uid, fact.title, weight(spec.priority), tuple(stages), jct_s)


def come_at(job: PastJob, came_s: float) -> PastJob:
    """Return a finished workflow as one that came at that time, and ended when it did.

    Where no status says when it ended, as somebody else wrote that it has, it ended at once.
    """
    end_s = job.arrival_s + (0.0 if math.isnan(job.jct_s) else job.jct_s)
    return job._replace(arrival_s=came_s, jct_s=max(end_s - came_s, 0.0))


def present_job(view: WorkflowView, now_s: float) -> PastJob:
    """Return a workflow that is not finished, as if it will go on by its estimates."""
    kept = [stage for stage in view.stages if not stage.lost]
    position = {stage.spec.name: index for index, stage in enumerate(kept)}
    rows = {row.name: row for row in view.fact.status.stages}
    stages = []
    for stage in kept:
        duration_s = _present_s(stage, rows.get(stage.spec.name), now_s)
        estimate_s = (stage.job.estimate_s if stage.job else None) or stage.estimate.seconds
        stages.append(
            PastStage(
                name=stage.spec.name,
                parents=tuple(position[name] for name in stage.spec.depends_on if name in position),
                tasks=stage.tasks,
                slots=stage.slots,
                max_cap=_max_cap(stage.tasks, stage.spec.parallelism, view.spec.parallelism),
                duration_s=max(duration_s, LEAST_S),
                estimate_s=max(estimate_s, LEAST_S),
                given=stage.spec.estimate_seconds is not None,
                succeeded=stage.phase != "Failed",
            )
        )
    meta = view.fact.meta
    return PastJob(view.arrival_s, meta.uid, view.fact.title, weight(view.spec.priority), tuple(stages), math.nan)


def _present_s(stage: StageView, row: StageStatus | None, now_s: float) -> float:
    """Return what a task of a stage takes: as measured, else as estimated and at least what it has taken so far."""
    if stage.start_s is None:
        return stage.estimate.seconds
    if stage.job is None and stage.end_s is not None:  # gone
        return measured_s(row, stage.tasks) if row else stage.estimate.seconds
    # One whose Job is not seen goes on as it was told.
    lanes = stage.job.lanes if stage.job else constant((row.parallelism if row else None) or 1)
    so_far_s = task_duration_s((stage.end_s or now_s) - stage.start_s, stage.tasks, lanes)
    if stage.job is not None and stage.job.gated:  # others had its executors between its tasks
        so_far_s = stage.job.task_s or 0.0
    return so_far_s if stage.end_s is not None else max(stage.estimate.seconds, so_far_s)


def fitting(jobs: Iterable[PastJob], executors: int) -> list[PastJob]:
    """Return the jobs whose tasks fit into a pool, in the order of their arrival."""
    return sorted(job for job in jobs if all(stage.slots <= executors for stage in job.stages))


def shares_cap(job: PastJob, parallelism: int | None) -> bool:
    """Tell whether a workflow's parallelism may have bound stages together that could run side by side.

    A replay knows caps of single stages alone, and would run more of such a workflow at once than it ever did.
    """
    if parallelism is None:
        return False
    above: dict[int, set[int]] = {}
    for index in TopologicalSorter({i: stage.parents for i, stage in enumerate(job.stages)}).static_order():
        above[index] = {each for parent in job.stages[index].parents for each in (parent, *above[parent])}
    return any(
        sum(other.max_cap for j, other in enumerate(job.stages) if i not in above[j] and j not in above[i])
        > parallelism
        for i in above
    )


def _max_cap(tasks: int, own: int | None, workflow: int | None) -> int:
    return min(tasks, own or tasks, workflow or tasks)
