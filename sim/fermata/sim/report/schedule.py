"""A schedule as plain arrays: when each job arrived, started and ended, and what its executors did meanwhile.

The one form in which schedules reach a report, whether a simulator, a demonstration or a real cluster made them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fermata.policy.errors import InputError
from fermata.sim.trace import FloatArray, IndexArray, IntArray


class Tasks(NamedTuple):
    """What ran: one row a task, in any order; seconds from the start of the schedule."""

    start_s: FloatArray
    end_s: FloatArray
    job: IndexArray  # index into the schedule's jobs; -1: of a job that is not finished, or not counted
    width: IndexArray  # executors that it took


class Holds(NamedTuple):
    """When stages were deliberately held: one row an unbroken interval, in any order."""

    start_s: FloatArray
    end_s: FloatArray
    job: IndexArray  # as above
    stage: Sequence[str]  # its name within the job; may be empty


NO_TASKS = Tasks(np.empty(0), np.empty(0), np.empty(0, np.int32), np.empty(0, np.int32))
NO_HOLDS = Holds(np.empty(0), np.empty(0), np.empty(0, np.int32), ())


@dataclass(frozen=True)
class Schedule:
    """Finished jobs in order of arrival; arrays are [jobs], in seconds. JCT = wait + held + run.

    Raises:
        InputError: no job, arrays of different lengths, or arrivals out of order.
    """

    executors: int
    job_ids: Sequence[str]  # the same in every schedule of the same arrivals: jobs are paired by it
    arrival_s: FloatArray
    start_s: FloatArray  # of the first task
    completion_s: FloatArray
    held_s: FloatArray
    run_s: FloatArray
    work_s: FloatArray  # executor-seconds that it really needs
    ideal_s: FloatArray | None = None  # the least time that it can take; slowdown is unknown without
    busy_s: float = float("nan")  # executor-seconds in use
    warm: int = 0  # first jobs that means leave out
    tasks: Tasks = NO_TASKS
    holds: Holds = NO_HOLDS

    def __post_init__(self) -> None:
        columns = (self.start_s, self.completion_s, self.held_s, self.run_s, self.work_s)
        if {len(column) for column in columns} != {len(self.arrival_s)} or len(self.job_ids) != len(self.arrival_s):
            raise InputError(f"a schedule of {len(self.job_ids)} jobs needs arrays of that length")
        if not 0 <= self.warm < len(self.arrival_s):
            raise InputError(f"a warm-up of {self.warm} jobs leaves none of {len(self.arrival_s)}")
        if np.any(np.diff(self.arrival_s) < 0.0):
            raise InputError("the jobs of a schedule must be in order of arrival")

    @property
    def jct_s(self) -> FloatArray:
        """Completion minus arrival."""
        return self.completion_s - self.arrival_s

    @property
    def wait_s(self) -> FloatArray:
        """What of the JCT is neither held nor run."""
        return np.maximum(self.jct_s - self.held_s - self.run_s, 0.0)

    @property
    def end_s(self) -> float:
        """When the last job ended."""
        return float(self.completion_s.max())


def only(schedule: Schedule, counted: Sequence[bool] | NDArray[np.bool_]) -> Schedule:
    """Return a schedule in which some jobs are not counted, though what they ran still fills the executors.

    Args:
        schedule: without a warm-up.
        counted: [jobs].

    Raises:
        InputError: none is counted.
    """
    kept = np.asarray(counted, np.bool_)
    if kept.all():
        return schedule
    if not kept.any():
        raise InputError(f"none of {len(kept)} jobs is counted")
    place = np.append(np.where(kept, np.cumsum(kept) - 1, -1), -1).astype(np.int32)  # the last: what is -1 already
    columns = ("arrival_s", "start_s", "completion_s", "held_s", "run_s", "work_s")
    return replace(
        schedule,
        **{name: getattr(schedule, name)[kept] for name in columns},
        job_ids=[job for job, keep in zip(schedule.job_ids, kept.tolist(), strict=True) if keep],
        ideal_s=None if schedule.ideal_s is None else schedule.ideal_s[kept],
        busy_s=math.nan,  # of all jobs, and the makespan of these is another one
        tasks=schedule.tasks._replace(job=place[schedule.tasks.job]),
        holds=schedule.holds._replace(job=place[schedule.holds.job]),
    )


def step_integral(at_s: FloatArray, change: FloatArray, times_s: FloatArray) -> FloatArray:
    """Return the integral, from the beginning to each of `times_s`, of a step function that starts at 0.

    Args:
        at_s: [n] when it changes, in any order.
        change: [n] by how much.
        times_s: [m].

    >>> step_integral(np.array([1.0, 3.0]), np.array([2.0, -2.0]), np.array([0.0, 2.0, 9.0])).tolist()
    [0.0, 2.0, 4.0]
    """
    if not len(at_s):
        return np.zeros(len(times_s))
    order = np.argsort(at_s, kind="stable")
    at_s, level = at_s[order], np.cumsum(change[order])
    area = np.concatenate([[0.0], np.cumsum(level[:-1] * np.diff(at_s))])
    place = np.searchsorted(at_s, times_s, side="right") - 1
    inside = np.maximum(place, 0)
    found: FloatArray = np.where(place < 0, 0.0, area[inside] + level[inside] * (times_s - at_s[inside]))
    return found


def step_means(start_s: FloatArray, end_s: FloatArray, weight: FloatArray, edges_s: FloatArray) -> FloatArray:
    """Return how much weight was there on average between each two edges, where each weight stays for an interval.

    >>> step_means(np.array([0.0, 1.0]), np.array([2.0, 2.0]), np.ones(2), np.array([0.0, 1.0, 3.0])).tolist()
    [1.0, 1.0]
    """
    at_s, change = np.concatenate([start_s, end_s]), np.concatenate([weight, -weight])
    means: FloatArray = np.diff(step_integral(at_s, change, edges_s)) / np.diff(edges_s)
    return means


class Intervals(NamedTuple):
    """Intervals of stages, in seconds."""

    stage: IntArray
    start_s: FloatArray
    end_s: FloatArray


def held_intervals(
    tasks: Tasks, executors: int, ready_s: FloatArray, start_s: FloatArray, slots: IndexArray
) -> Intervals:
    """Return when stages were held: ready, no task of them running, although enough executors were free.

    Args:
        tasks: all that ran.
        executors: size of the pool.
        ready_s: [stages] when all parents had ended, or a task after which none of the stage ran for a while.
        start_s: [stages] when the next task, or the first one, started.
        slots: [stages] executors that one task takes.
    """
    at_s = np.concatenate([tasks.start_s, tasks.end_s])
    order = np.argsort(at_s, kind="stable")
    change = np.concatenate([-tasks.width, tasks.width])[order]
    at_s, last = np.unique(at_s[order], return_index=True)
    after = np.concatenate([last[1:], [len(order)]]) - 1
    free = np.concatenate([[executors], executors + np.cumsum(change)[after]])  # [i] before the i-th change
    found: list[tuple[int, float, float]] = []
    for stage in np.flatnonzero(start_s > ready_s).tolist():
        first, end = np.searchsorted(at_s, [ready_s[stage], start_s[stage]], side="right")
        edges = np.concatenate([[ready_s[stage]], at_s[first:end], [start_s[stage]]])
        enough = np.concatenate([[False], free[first : end + 1] >= slots[stage], [False]])
        for begin, stop in np.flatnonzero(np.diff(enough)).reshape(-1, 2).tolist():
            if edges[stop] > edges[begin]:
                found.append((stage, edges[begin], edges[stop]))
    if not found:
        return Intervals(np.empty(0, np.int64), np.empty(0), np.empty(0))
    stages, starts, ends = zip(*found, strict=True)
    return Intervals(np.array(stages), np.array(starts), np.array(ends))
