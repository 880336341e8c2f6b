"""What really ran in a pool, read from the API: as a job trace to simulate, and as a schedule to draw.

Joins the operator's reading of statuses with the simulator's forms, which know nothing of each other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fermata.cli.clusters import find, pool_names
from fermata.policy.errors import InputError
from fermata.policy.wording import counted

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fermata.operator.cluster import Cluster
    from fermata.operator.facts import PoolFact, WorkflowFact
    from fermata.operator.past import PastJob, PastStage
    from fermata.sim.report import Holds, Schedule, Tasks
    from fermata.sim.trace import IndexArray, Trace

# A start takes some milliseconds; what was held for less was on its way.
_LEAST_HELD_S = 0.1
# Why a workflow's JCT is not set against a simulated one.
SHARED_CAP = "with a parallelism over stages side by side, which the simulator does not know"
SUSPENDED = "suspended for a while, or not accepted, which is no scheduler's doing"
DEADLINE = "ended by a deadline, which the simulator does not know"


@dataclass(frozen=True)
class History:
    """The finished workflows of a pool in the order of their arrival, and what is left out of them."""

    pool: PoolFact
    jobs: Sequence[PastJob]
    facts: Sequence[WorkflowFact]  # [jobs]
    unfinished: int
    unfit: int  # finished, but with tasks that do not fit into the pool as it is now
    unrun: int  # finished, and nothing of it had run
    untold: int  # finished, but the status does not say what ran, or how long it all took
    apart: Sequence[str]  # [jobs] why its JCT is not set against a simulated one; empty where it is

    @property
    def executors(self) -> int:
        """Size of the pool as it is now."""
        return self.pool.spec.executors if self.pool.spec else 1

    @property
    def begin_s(self) -> float:
        """When the first workflow arrived, seconds since the epoch."""
        return self.jobs[0].arrival_s

    @property
    def capped(self) -> int:
        """How many jobs might have run more tasks at once, but for a parallelism of their own."""
        rows = zip(self.jobs, self.apart, strict=True)
        return sum(why == SHARED_CAP or any(row.max_cap < row.tasks for row in job.stages) for job, why in rows)

    @property
    def failed(self) -> int:
        """How many jobs have a stage that failed, or was stopped."""
        return sum(not job.succeeded for job in self.jobs)

    @property
    def left_out(self) -> dict[str, int]:
        """How many workflows of the pool are not among the jobs at all, by why; none that is 0."""
        found = {
            "not finished": self.unfinished,
            "with tasks that do not fit into the pool any more": self.unfit,
            "of which nothing ever ran": self.unrun,
            "finished with a status that does not say what ran, or how long it took": self.untold,
        }
        return {why: count for why, count in found.items() if count}

    def count(self, reason: str) -> int:
        """Return how many jobs are `apart` for a reason; for "", how many are not."""
        return sum(why == reason for why in self.apart)


async def read_history(cluster: Cluster, pool: str | None) -> History:
    """Read what a pool has finished, as far as the API server still knows it.

    Args:
        cluster: where.
        pool: its name; None for the only one that there is.

    Raises:
        InputError: no such pool, several to choose from, or nothing has finished in it.
        ClusterError: the API server refuses.
    """
    from fermata.operator.cluster import pool_path
    from fermata.operator.facts import pool_fact, workflow_fact
    from fermata.operator.past import past_job

    if pool is None:
        pool, *others = names = await pool_names(cluster)
        if others:
            raise InputError(f"--pool: expected one of {', '.join(names)}")
    fact = pool_fact(await find(cluster, pool_path(pool), f"ExecutorPool {pool!r}"))
    if fact.spec is None:
        raise InputError(f"ExecutorPool {pool!r}: {fact.problem}")
    # Page by page: what the API sends takes more memory than what is kept of it, and few may be of this pool.
    pages = cluster.pages("workflows")
    mine = [row async for raws, _ in pages for raw in raws if (row := workflow_fact(raw, 0.0)).pool == pool]
    finished = [row for row in mine if row.finished]
    # Somebody else may have written that it has ended, and not how long it took.
    told = [(job, row) for row in finished if (job := past_job(row)) is not None and not math.isnan(job.jct_s)]
    fit = [(job, row) for job, row in told if all(stage.slots <= fact.spec.executors for stage in job.stages)]
    if not finished:
        raise InputError(f"no workflow of pool {pool!r} has finished on {cluster.server}")
    if not fit:
        raise InputError(f"{counted(len(finished), 'workflow')} of pool {pool!r} finished, but nothing of it ran, or "
                         "no status says what did and how long, or it does not fit into the pool any more")  # fmt: skip
    fit.sort(key=lambda pair: pair[0])
    jobs, facts = zip(*fit, strict=True)
    unrun = sum(_never_ran(row) for row in finished)
    return History(
        pool=fact,
        jobs=jobs,
        facts=facts,
        unfinished=len(mine) - len(finished),
        unfit=len(told) - len(fit),
        unrun=unrun,
        untold=len(finished) - len(told) - unrun,
        apart=[_apart(*pair) for pair in fit],
    )


def _never_ran(fact: WorkflowFact) -> bool:
    """Tell whether a finished workflow's status says of its stages that none was started."""
    return bool(fact.status.stages) and all(row.start_time is None for row in fact.status.stages)


def _apart(job: PastJob, fact: WorkflowFact) -> str:
    from fermata.operator import reasons
    from fermata.operator.past import shares_cap

    if fact.status.suspended_time is not None:
        return SUSPENDED
    if fact.spec is not None and shares_cap(job, fact.spec.parallelism):
        return SHARED_CAP
    outcome = fact.status.condition(reasons.SUCCEEDED)
    # What waited for executors until then, or was stopped at work, is not in what the simulator is given.
    return DEADLINE if outcome is not None and outcome.reason == reasons.DEADLINE_EXCEEDED else ""


def trace_of(history: History) -> Trace:
    """Return the job trace of what ran: measured durations, the estimates of that time, arrivals from 0."""
    from fermata.sim.trace_builder import StageSpec, TraceBuilder

    builder = TraceBuilder()
    for job in history.jobs:
        stages = [
            StageSpec(
                name=stage.name,
                durations_s=[stage.duration_s] * stage.tasks,
                depends_on=[job.stages[parent].name for parent in stage.parents],
                slots=stage.slots,
                estimate_s=stage.estimate_s,
            )
            for stage in job.stages
        ]
        builder.add_job(job.name, job.arrival_s - history.begin_s, stages, job.weight)
    return builder.finish()


def caps_of(history: History) -> IndexArray:
    """Return the most tasks of each stage of `trace_of` that ran at once: [stages], which a trace does not say."""
    return np.array([stage.max_cap for job in history.jobs for stage in job.stages], np.int32)


def mute_of(history: History) -> NDArray[np.bool_]:
    """Return which stages of `trace_of` say nothing of estimates, which a trace does not tell: [stages]."""
    return np.array([stage.mute for job in history.jobs for stage in job.stages], np.bool_)


def schedule_of(history: History, trace: Trace) -> Schedule:
    """Return the schedule that really happened, as the statuses tell it."""
    from fermata.operator.times import parse
    from fermata.sim.metrics import job_shapes
    from fermata.sim.report import Schedule, Tasks

    begin_s, statuses = history.begin_s, [fact.status for fact in history.facts]
    shapes = job_shapes(trace, history.executors)
    spans: list[tuple[float, float, int, int]] = []  # start, end, job and width of stages that ran
    rests: list[_Rest] = []
    for place, (job, status) in enumerate(zip(history.jobs, statuses, strict=True)):
        rows = {row.name: row for row in status.stages}
        for stage in job.stages:
            row = rows[stage.name]
            start_s, run_s = parse(row.start_time or "") - begin_s, row.run_seconds or 0.0
            spans.append((start_s, start_s + run_s, place, _width(stage, run_s)))
            if (row.held_seconds or 0.0) >= _LEAST_HELD_S and row.ready_time:
                rests.append(_Rest(parse(row.ready_time) - begin_s, start_s, place, stage.slots, stage.name))
    starts, ends, places, widths = (np.array(column) for column in zip(*spans, strict=True))
    tasks = Tasks(starts, ends, places.astype(np.int32), widths.astype(np.int32))
    arrival_s = np.array([job.arrival_s for job in history.jobs]) - begin_s
    first_s = np.full(len(history.jobs), np.inf)
    np.minimum.at(first_s, places, starts)
    jct_s = np.array([job.jct_s for job in history.jobs])
    return Schedule(
        executors=history.executors,
        job_ids=list(trace.job_ids),
        arrival_s=arrival_s,
        start_s=first_s,
        completion_s=arrival_s + jct_s,
        held_s=np.array([status.held_seconds or 0.0 for status in statuses]),
        run_s=np.array([status.run_seconds or 0.0 for status in statuses]),
        work_s=shapes.work_s,
        ideal_s=shapes.critical_path_s,
        busy_s=float(shapes.work_s.sum()),
        tasks=tasks,
        holds=_holds(tasks, history.executors, rests),
    )


def _width(stage: PastStage, run_s: float) -> int:
    """Return how many executors a stage had on average: its tasks fill them, whatever caps it had meanwhile."""
    at_once = round(stage.tasks * stage.duration_s / run_s) if run_s > 0.0 else stage.tasks
    return max(min(at_once, stage.tasks), 1) * stage.slots


class _Rest(NamedTuple):
    """A stage that was held between its being ready and its start; seconds from the first arrival."""

    ready_s: float
    start_s: float
    job: int
    slots: int
    stage: str


def _holds(tasks: Tasks, executors: int, rests: Sequence[_Rest]) -> Holds:
    from fermata.sim.report import Holds, held_intervals

    ready_s, start_s = (np.array([rest[i] for rest in rests], dtype=np.float64) for i in (0, 1))
    found = held_intervals(tasks, executors, ready_s, start_s, np.array([rest.slots for rest in rests], dtype=np.int32))
    owners = [rests[i] for i in found.stage.tolist()]
    jobs = np.array([rest.job for rest in owners], dtype=np.int32)
    return Holds(found.start_s, found.end_s, jobs, [rest.stage for rest in owners])
