"""Where a workflow and its stages are, and what follows from that alone. How that is read off: `view.py`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from fermata.operator import reasons
from fermata.operator.facts import JobFact, WorkflowFact
from fermata.operator.lanes import constant, task_duration_s
from fermata.operator.resources import MAX_EXECUTORS, StageSpec, WorkflowSpec
from fermata.policy.earlier_runs import Estimate

Phase = Literal["Pending", "Ready", "Running", "Succeeded", "Failed"]
StageKey = tuple[str, str]  # workflow uid, stage name


class Refusal(NamedTuple):
    """There will never be a Job of a stage, because the API server refuses it, or not any more: why."""

    reason: str
    message: str


class Unseen(NamedTuple):
    """What a stage takes at the most whose Job is not seen: tasks at once, and executors that each of them takes."""

    tasks: int
    slots: int


class Outcome(NamedTuple):
    """How a workflow ended."""

    succeeded: bool
    reason: str
    message: str
    end_s: float


@dataclass(frozen=True, slots=True)
class StageView:
    """Where one stage is. Times in seconds since the epoch, inf or None where there is none."""

    spec: StageSpec
    index: int
    phase: Phase
    estimate: Estimate
    path_s: float  # longest path from its start to the end of the workflow
    tasks: int  # of a started stage those of its Job, which keeps them: an edit comes too late
    ready_s: float = math.inf
    start_s: float | None = None
    end_s: float | None = None
    held_s: float = 0.0  # of a started stage: until its start
    job: JobFact | None = None
    reason: str = ""
    message: str = ""
    lost: bool = False  # it will never start: a stage that it depends on has failed

    @property
    def slots(self) -> int:
        """Executors that one task takes: of a started stage, as it was when that began."""
        return (self.job.slots if self.job else None) or self.spec.slots

    @property
    def occupied(self) -> int:
        """Tasks that hold executors: never more than fit into the largest pool, whatever others make of a Job."""
        return min(self.job.occupied, MAX_EXECUTORS // self.slots) if self.job and self.phase == "Running" else 0

    @property
    def gated(self) -> bool:
        """Whether its Job has begun and the pods of that wait for their turn, each time anew."""
        return self.phase == "Running" and self.job is not None and self.job.gated

    @property
    def rests(self) -> bool:
        """Whether it has begun and waits for executors all the same: it is the turn of none of its tasks."""
        job = self.job
        return self.gated and job is not None and job.begins_more and not job.occupied and job.succeeded < self.tasks

    @property
    def waits(self) -> bool:
        """Whether it could be given executors and has none."""
        return self.phase == "Ready" or self.rests

    @property
    def succeeded(self) -> int:
        """Tasks that are done."""
        if self.phase == "Succeeded":
            return self.tasks
        return self.job.succeeded if self.job else 0

    @property
    def pending(self) -> int:
        """Tasks that have not been started, and may be."""
        return max(self.to_do - (self.job.absent if self.job else 0), 0)

    @property
    def to_do(self) -> int:
        """Tasks that have not been started, or are to be tried again, at whatever time."""
        if self.phase == "Failed" or self.lost:
            return 0
        unsettled = self.job.unsettled if self.job else 0
        return max(self.tasks - self.succeeded - self.occupied - unsettled, 0)

    def took_s(self, run_s: float) -> float:
        """Return what one of its tasks took, of a stage that ran for so long: of a gated one its pods tell.

        Where they all had ended before this operator began to look, nobody knows, and it is what was expected. It is no
        more than the stage took: that a pod has ended may be heard late, and when is not in what a watch tells then.
        """
        if self.job is not None and self.job.gated:
            took_s = self.job.estimate_s or run_s if self.job.task_s is None else self.job.task_s
            return min(took_s, run_s)
        return task_duration_s(run_s, self.tasks, self.job.lanes if self.job else constant(1))


@dataclass(frozen=True, slots=True)
class WorkflowView:
    """Where a workflow is; `blocked` is why nothing new of it may start, or empty."""

    fact: WorkflowFact
    spec: WorkflowSpec
    stages: tuple[StageView, ...]
    arrival_s: float
    work_s: float
    critical_path_s: float
    width: float
    blocked: str
    outcome: Outcome | None
    removed: tuple[JobFact, ...] = ()  # Jobs of stages that an edit took out
    missing: Mapping[str, Unseen] = field(default_factory=dict)  # stages, also removed ones, whose Job is not seen

    def stage(self, name: str) -> StageView | None:
        """Return one of its stages, or None if it has none of that name."""
        return next((stage for stage in self.stages if stage.spec.name == name), None)

    def has_ended(self, name: str) -> bool:
        """Tell whether a stage has ended, also one that an edit took out: no task of it begins any more."""
        stage = self.stage(name)
        if stage is None:
            return any(job.stage == name and job.ended for job in self.removed)
        return stage.phase in ("Succeeded", "Failed")

    def is_gone(self, stage: StageView) -> bool:
        """Tell whether the Job of a stage that had not ended went first, as the workflow is being deleted."""
        return self.fact.meta.deleting and stage.phase == "Running" and stage.job is None

    @property
    def deadline_s(self) -> float:
        """When activeDeadlineSeconds will have passed; inf if there is none."""
        limit = self.spec.active_deadline_seconds
        return math.inf if limit is None else self.arrival_s + limit

    @property
    def room(self) -> int:
        """How many more of its tasks may run at once."""
        return self.tasks if self.spec.parallelism is None else max(self.spec.parallelism - self._running, 0)

    @property
    def excess(self) -> int:
        """How many more of its tasks run than may at once, for an edit came too late for them."""
        return 0 if self.spec.parallelism is None else max(self._running - self.spec.parallelism, 0)

    @property
    def _running(self) -> int:
        running = sum(stage.occupied for stage in self.stages) + sum(job.occupied for job in self.removed)
        return running + sum(most.tasks for most in self.missing.values())

    @property
    def tasks(self) -> int:
        """Tasks of all its stages."""
        return sum(stage.tasks for stage in self.stages)

    @property
    def run_s(self) -> float:
        """Seconds in which at least one of its tasks held an executor, up to what has ended."""
        total, until = 0.0, -math.inf
        for start_s, end_s in sorted(self._spans):
            if not math.isinf(end_s):
                total += max(end_s - max(start_s, until), 0.0)
                until = max(until, end_s)
        return total

    @property
    def goes_on_until_s(self) -> float:
        """When the last of what was started has ended; inf while anything goes on, or if nothing was."""
        return max((end_s for _, end_s in self._spans), default=math.inf)

    @property
    def in_gap(self) -> bool:
        """Whether it has begun and waits all the same: the tasks of its stages that run wait for their turn."""
        begun = [stage.rests for stage in self.stages if stage.phase == "Running"]
        return bool(begun) and all(begun) and not any(job.occupied for job in self.removed)

    @property
    def start_s(self) -> float | None:
        """When the first of its tasks was started, if one was."""
        return min((start_s for start_s, _ in self._spans), default=None)

    @property
    def has_come(self) -> bool:
        """Whether it has come to be scheduled: not while it is suspended and nothing of it has begun."""
        return self.blocked != reasons.SUSPENDED or self.start_s is not None

    @property
    def _spans(self) -> list[tuple[float, float]]:
        """Start and end of all that was started, also of stages that an edit took out; inf where it goes on."""
        rows = [(stage.start_s, stage.end_s) for stage in self.stages]
        rows += [(job.start_s, job.end_s) for job in self.removed]
        return [(start_s, math.inf if end_s is None else end_s) for start_s, end_s in rows if start_s is not None]

    def stopped(self, reason: str) -> WorkflowView:
        """Return the same view with nothing new allowed to start."""
        return replace(self, blocked=reason)

    def unseen(self, why: Mapping[str, str]) -> WorkflowView:
        """Return the same view that says of stages whose Jobs are not seen why that is."""
        return self._saying(reasons.JOB_UNSEEN, {name: why[name] for name in self.missing if name in why})

    def unchanged(self, why: Mapping[str, str]) -> WorkflowView:
        """Return the same view that says of stages whose Jobs cannot be changed why that is."""
        amiss = {stage.spec.name for stage in self.stages if stage.reason}
        return self._saying(reasons.CHANGE_RETRYING, {name: why[name] for name in why if name not in amiss})

    def _saying(self, reason: str, messages: Mapping[str, str]) -> WorkflowView:
        stages = tuple(
            replace(stage, reason=reason, message=messages[stage.spec.name]) if stage.spec.name in messages else stage
            for stage in self.stages
        )
        return replace(self, stages=stages)

    def going_on(self) -> WorkflowView:
        """Return the same view of a workflow that has not ended, whatever its stages say."""
        return replace(self, outcome=None)
