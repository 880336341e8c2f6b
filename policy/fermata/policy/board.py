"""The state as the kernels read and write it: `ClusterState` turned into rows.

A `Board` says the same as a `ClusterState`, field by field; see there for shapes, units and meaning. The difference
is layout: a kernel that looks at a stage reads one short stretch of memory, and a call passes a few arrays rather than
thirty. The simulator works on one board for a whole episode (rows of jobs that have not arrived are beyond what the
lists name); `decide` makes one of the state that it is given.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fermata.policy.rows import (
    Indices,
    Rows,
    Values,
    column,
    listed,
    new_indices,
    new_rows,
    new_values,
    numbers,
    peek,
    unread_rows,
)
from fermata.policy.slot_weights import SLOT_FEATURES, SLOT_WEIGHTS, WIDTHS
from fermata.policy.state import IDLE, ClusterState, FloatArray, IndexArray

_SLOT_WEIGHTS = new_values(np.array(SLOT_WEIGHTS))  # nobody writes to them


@dataclass(slots=True)
class Pool:
    """The one row of what is not about a single executor, job or stage."""

    now_s: float = 0.0
    free: int = 0  # how many of `Board.free` count
    ready: int = 0  # how many of `Board.ready` count
    active: int = 0  # how many of `Board.active` count
    slots: int = 1  # the most executors that a task of any job takes, of those that are not in sight, too
    recent_begin: int = 0  # entries [recent_begin, recent_end) of the lists of recent arrivals count
    recent_end: int = 0
    estimate_error: float = 0.0
    estimate_misses: float = 0.0
    measured: int = 0  # how many tasks both are of, as far as that is known


@dataclass(slots=True)
class Executor:
    """One executor."""

    free_at_s: float = -math.inf
    stage: int = IDLE
    job: int = IDLE


@dataclass(slots=True)
class Job:
    """One job."""

    arrival_s: float = 0.0
    weight: float = 1.0
    work_s: float = 0.0
    remaining_work_s: float = 0.0
    critical_path_s: float = 0.0
    width: float = 1.0
    held_s: float = 0.0
    narrow: int = 1  # each of its stages runs one task at a time, and none is moldable
    slots: int = 1  # the most executors that a task of it takes
    remaining_path_s: float = 0.0  # the longest path from a stage that has not finished to the end of the job
    running_work_s: float = 0.0  # of the remaining work that of the tasks that run, by estimate
    due_s: float = 0.0  # when they are expected to end, summed over the executors that they hold
    running: int = 0


@dataclass(slots=True)
class Stage:
    """One stage."""

    estimate_s: float = 0.0
    serial_fraction: float = math.nan
    ready_s: float = math.inf
    held_s: float = 0.0
    hold_until_s: float = -math.inf
    path_s: float = 0.0
    job: int = 0
    pending: int = 0
    running: int = 0
    slots: int = 1
    cap: int = 0
    max_cap: int = 0


class Board(NamedTuple):
    """Rows and lists; how many entries of a list count stands in `pool`."""

    pool: Rows[Pool]
    executors: Rows[Executor]
    jobs: Rows[Job]
    stages: Rows[Stage]
    recent_arrival_s: Values
    recent_work_s: Values
    recent_weight: Values
    short_arrival_s: Values  # room to list those of short jobs in: kernels allocate nothing
    free: Indices  # executors
    active: Indices  # jobs
    ready: Indices  # stages
    # Of `fermata.policy.several_slots`:
    first: Indices  # room for the first stage of each width
    many: Indices  # room for how many tasks wait of each width
    seen: Values  # room for what is read of a stage
    left_s: Values  # room for how long each busy executor is expected to be
    slot_weights: Values  # by which stages are scored


_EXECUTOR = ("free_at_s", "stage", "job")
_JOB = ("arrival_s", "weight", "work_s", "remaining_work_s", "critical_path_s", "width", "running", "held_s")
_STAGE = (
    "job",
    "pending",
    "running",
    "estimate_s",
    "slots",
    "serial_fraction",
    "cap",
    "max_cap",
    "ready_s",
    "held_s",
    "hold_until_s",
    "path_s",
)


def board_of(state: ClusterState) -> Board:
    """Return a board that says what `state` says and shares no memory with it."""
    pool = {
        "now_s": state.now_s,
        "free": state.free,
        "ready": len(state.ready_stages),
        "active": len(state.active_jobs),
        "recent_end": len(state.recent_arrival_s),
        "estimate_error": state.estimate_error,
        "estimate_misses": state.estimate_misses,
    }
    slots = most_slots(state.stage_job, state.stage_slots, len(state.job_arrival_s))
    pool["slots"] = slots.max(initial=1)
    jobs = {name: getattr(state, f"job_{name}") for name in _JOB}
    jobs |= {"remaining_path_s": _remaining_path_s(state), "narrow": _narrow(state), "slots": slots}
    jobs |= {"running_work_s": _running_work_s(state), "due_s": _due_s(state)}
    return Board(
        new_rows(Pool, 1, pool),
        unread_rows(Executor, state.executors, {name: getattr(state, f"executor_{name}") for name in _EXECUTOR}),
        unread_rows(Job, len(state.job_arrival_s), jobs),
        unread_rows(Stage, len(state.stage_job), {name: getattr(state, f"stage_{name}") for name in _STAGE}),
        new_values(state.recent_arrival_s),
        new_values(state.recent_work_s),
        new_values(state.recent_weight),
        new_values(np.zeros(len(state.recent_arrival_s))),
        new_indices(state.free_executors),
        new_indices(state.active_jobs),
        new_indices(state.ready_stages),
        **slot_memory(state.executors),
    )


def slot_memory(executors: int) -> dict[str, Any]:
    """Return what a board has for tasks of several executors: its last five fields."""
    return {
        "first": new_indices(np.zeros(WIDTHS)),
        "many": new_indices(np.zeros(WIDTHS)),
        "seen": new_values(np.zeros(SLOT_FEATURES)),
        "left_s": new_values(np.zeros(executors)),
        "slot_weights": _SLOT_WEIGHTS,
    }


def _narrow(state: ClusterState) -> NDArray[np.bool_]:
    """Tell which jobs have only stages that can use no more than one task's executors; a moldable one can."""
    narrow = np.ones(len(state.job_arrival_s), np.bool_)
    narrow[state.stage_job[state.stage_max_cap > 1]] = False
    return narrow


def most_slots(stage_job: IndexArray, stage_slots: IndexArray, jobs: int) -> IndexArray:
    """Return the most executors [jobs] that a task of each job takes, by the stages' jobs and slots [stages]."""
    most = np.ones(jobs, np.int32)
    np.maximum.at(most, stage_job, stage_slots)
    return most


def _running_work_s(state: ClusterState) -> FloatArray:
    """Return the work of each job's running tasks by estimate, executor-seconds."""
    work_s = state.stage_running * state.stage_slots * state.stage_estimate_s
    return np.bincount(state.stage_job, work_s, len(state.job_arrival_s)).astype(np.float64)


def _due_s(state: ClusterState) -> FloatArray:
    """Return for each job when its running tasks are expected to end, summed over executors."""
    busy = state.executor_stage != IDLE
    job = state.stage_job[state.executor_stage[busy]]
    return np.bincount(job, state.executor_free_at_s[busy], len(state.job_arrival_s)).astype(np.float64)


def _remaining_path_s(state: ClusterState) -> FloatArray:
    """Return the longest path of each job's unfinished stages; a stage is unfinished while tasks are pending or run."""
    longest_s = np.zeros(len(state.job_arrival_s))
    left = (state.stage_pending > 0) | (state.stage_running > 0)
    np.maximum.at(longest_s, state.stage_job[left], state.stage_path_s[left])
    return longest_s


def state_of(board: Board, jobs: int | None = None, stages: int | None = None) -> ClusterState:
    """Return what a board says as a `ClusterState` of its first so many jobs and stages.

    Compiled, its arrays are views of the board's rows: they change with it.
    """
    pool = peek(board.pool)
    begin, end = int(pool.recent_begin), int(pool.recent_end)
    return ClusterState(
        now_s=float(pool.now_s),
        free=int(pool.free),
        **{f"executor_{name}": column(board.executors, name) for name in _EXECUTOR},
        **{f"job_{name}": column(board.jobs, name, jobs) for name in _JOB},
        **{f"stage_{name}": column(board.stages, name, stages) for name in _STAGE},
        free_executors=listed(board.free, int(pool.free)),
        active_jobs=listed(board.active, int(pool.active)),
        ready_stages=listed(board.ready, int(pool.ready)),
        recent_arrival_s=numbers(board.recent_arrival_s, begin, end),
        recent_work_s=numbers(board.recent_work_s, begin, end),
        recent_weight=numbers(board.recent_weight, begin, end),
        estimate_error=float(pool.estimate_error),
        estimate_misses=float(pool.estimate_misses),
    )
