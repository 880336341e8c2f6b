"""The simulator's memory: what follows from a trace (`Tables`, columns) and an episode under way (`World`, rows).

What policies see is a `Board` that the engine keeps up to date in place: nothing is copied for a decision. Beside it
stand rows that policies do not see.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from fermata.policy.board import Board, Executor, Job, Pool, Stage, most_slots, slot_memory, state_of
from fermata.policy.correction import Correction, new_correction
from fermata.policy.graph import job_shape, path_lengths
from fermata.policy.rows import Indices, Long, Rows, column, first_rows, new_indices, new_rows, new_values, peek
from fermata.policy.state import IDLE, RECENT_ARRIVALS, ClusterState
from fermata.sim.failures import Failures, Stays, draw_failures
from fermata.sim.trace import Trace

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
IndexArray = NDArray[np.int32]


class Tables(NamedTuple):
    """An episode's jobs with what follows from them; read only. See `Trace` and `ClusterState` for shapes and units."""

    job_arrival_s: FloatArray
    job_weight: FloatArray
    job_stage_ptr: IntArray
    job_work_s: FloatArray
    job_critical_path_s: FloatArray
    job_width: FloatArray
    stage_job: IndexArray
    stage_slots: IndexArray
    stage_estimate_s: FloatArray
    stage_serial_fraction: FloatArray
    stage_max_cap: IndexArray
    stage_path_s: FloatArray
    stage_parents: IndexArray  # number of parents
    child_ptr: IntArray  # [stages + 1]
    child: IndexArray  # [edges]
    task_ptr: IntArray
    task_duration_s: FloatArray
    task_pause_s: FloatArray
    stage_order: IndexArray  # the stages of each job, longest path first
    task_fails: NDArray[np.bool_]
    sticky: bool  # a stage keeps its executors, up to its cap, until its tasks run out
    stage_mute: NDArray[np.bool_]  # what its tasks take says nothing of estimates


@dataclass(slots=True)
class Clock:
    """The one row of what the engine counts."""

    wake_s: float = math.inf  # end of the current wait
    held_until_s: float = -math.inf  # last end of any committed hold
    jobs: int = 0  # how many jobs the episode has: rows beyond are spare
    arrived: int = 0
    finished: int = 0
    runs: int = 0  # tasks that run: the size of the heap
    sticky: int = 0
    corrects: int = 0  # jobs get corrected estimates when they arrive
    sequence: Long = 0  # tasks started so far
    events: Long = 0
    decisions: Long = 0


@dataclass(slots=True)
class Run:
    """A running task on the heap, which is ordered by end (ties: start order)."""

    end_s: float = 0.0
    sequence: Long = 0
    executor: int = 0  # its first executor
    task: Long = 0


@dataclass(slots=True)
class JobProgress:
    """What the engine knows of a job and policies do not."""

    start_s: float = math.nan  # first task's start
    completion_s: float = math.nan
    run_s: float = 0.0  # time during which some task ran
    run_since_s: float = 0.0
    held_mark_s: float = -math.inf  # until when its held time has been counted
    first_stage: int = 0
    end_stage: int = 0
    stages_left: int = 0
    position: int = 0  # in the list of active jobs
    failed: int = 0  # a task failed for good: nothing more of it starts
    # Executor-seconds of its finished stages with an estimate, while estimates are corrected (`FinishedJob`).
    given_work_s: float = 0.0
    expected_work_s: float = 0.0
    took_work_s: float = 0.0
    path_at: int = 0  # entry of `World.by_path` of its longest path that is not finished


@dataclass(slots=True)
class StageProgress:
    """What the engine knows of a stage and policies do not."""

    end_task: Long = 0
    first_child: Long = 0
    end_child: Long = 0
    parents_left: int = 0
    given_s: float = 0.0  # the estimate before any correction
    mute: int = 0  # what its tasks take says nothing of estimates


@dataclass(slots=True)
class Task:
    """One task."""

    duration_s: float = 0.0  # of a moldable stage on one executor
    pause_s: float = 0.0  # back-offs between its attempts
    start_s: float = math.nan
    end_s: float = math.nan
    executor: int = IDLE  # the first
    fails: int = 0  # its end fails the job


class World(NamedTuple):
    """An episode under way; every row is written in place. Only the board is shown to policies."""

    board: Board
    clock: Rows[Clock]
    runs: Rows[Run]
    next_executor: Indices  # [executors] the next executor of the same task; IDLE at the end
    job_progress: Rows[JobProgress]
    stage_progress: Rows[StageProgress]
    tasks: Rows[Task]
    children: Indices  # [edges]
    by_path: Indices  # [stages] of each job, longest path first
    correction: Correction  # of estimates; learns nothing unless the clock says `corrects`


def tables_of(
    trace: Trace,
    executors: int,
    *,
    sticky: bool = False,
    failures: Failures | None = None,
    caps: IndexArray | None = None,
    mute: NDArray[np.bool_] | None = None,
) -> Tables:
    """Derive what the engine and the policies need from a trace: work, paths, widths, children.

    Args:
        trace: the jobs.
        executors: size of the pool.
        sticky: see `Tables`.
        failures: of tasks; none by default.
        caps: [stages] the most tasks that run at once, at least 1, of stages that are not moldable; all by default.
        mute: [stages] whether what its tasks take says nothing of estimates; none by default.

    Raises:
        ValueError: the trace has a cycle.
    """
    stages = trace.stages
    moldable = ~np.isnan(trace.stage_serial_fraction)
    tasks = np.diff(trace.task_ptr)
    most = tasks if caps is None else np.minimum(tasks, caps)
    # A moldable stage's path is what it takes on the whole pool: nothing can make it shorter.
    best_s = trace.stage_estimate_s * (
        trace.stage_serial_fraction + (1.0 - trace.stage_serial_fraction) / max(executors, 1)
    )
    length_s = np.where(moldable, best_s, trace.stage_estimate_s)
    path_s, reached = path_lengths(trace.parent_ptr, trace.parent, length_s)
    if reached != stages:
        raise ValueError("the trace has a cycle of stages")
    work = tasks * trace.stage_slots * trace.stage_estimate_s
    job_work_s, critical_s, width = job_shape(trace.job_stage_ptr, work, path_s)
    child_ptr, child = _children(trace)
    if failures is None:
        stays = Stays(trace.task_duration_s, np.zeros(trace.tasks), np.zeros(trace.tasks, np.bool_))
    else:
        stays = draw_failures(trace, failures)
    return Tables(
        job_arrival_s=trace.job_arrival_s,
        job_weight=trace.job_weight,
        job_stage_ptr=trace.job_stage_ptr,
        job_work_s=job_work_s,
        job_critical_path_s=critical_s,
        job_width=width,
        stage_job=trace.stage_job,
        stage_slots=trace.stage_slots,
        stage_estimate_s=trace.stage_estimate_s,
        stage_serial_fraction=trace.stage_serial_fraction,
        stage_max_cap=np.where(moldable, executors, most).astype(np.int32),
        stage_path_s=path_s,
        stage_parents=np.diff(trace.parent_ptr).astype(np.int32),
        child_ptr=child_ptr,
        child=child,
        task_ptr=trace.task_ptr,
        task_duration_s=stays.work_s,
        task_pause_s=stays.pause_s,
        task_fails=stays.fails,
        # A key of three: job, then longest path, then index.
        stage_order=np.lexsort((-path_s, trace.stage_job)).astype(np.int32),
        sticky=sticky,
        stage_mute=np.zeros(stages, np.bool_) if mute is None else mute,
    )


def _children(trace: Trace) -> tuple[IntArray, IndexArray]:
    """Turn the parents of each stage into the children of each stage, in order of child."""
    child_ptr = np.zeros(trace.stages + 1, np.int64)
    child_ptr[1:] = np.cumsum(np.bincount(trace.parent, minlength=trace.stages))
    owner = np.repeat(np.arange(trace.stages, dtype=np.int32), np.diff(trace.parent_ptr))
    return child_ptr, owner[np.argsort(trace.parent, kind="stable")]


class _Scoring(Protocol):
    """A policy or a network with scores for tasks of several executors."""

    def scored(self, board: Board) -> Board:
        """Return the same board with its weights."""
        ...


def scored_by(policy: _Scoring, world: World) -> World:
    """Return the same world, on whose board stages are scored by a policy's weights."""
    return world._replace(board=policy.scored(world.board))


def new_world(tables: Tables, executors: int, *, corrects: bool = False) -> World:
    """Return the world before the first event: every executor free, no job arrived.

    Args:
        tables: the jobs.
        executors: size of the pool.
        corrects: estimates are corrected by what finished stages took (`fermata.policy.correction`).
    """
    clock = {"jobs": len(tables.job_arrival_s), "sticky": int(tables.sticky), "corrects": int(corrects)}
    return World(
        board=_new_board(tables, executors),
        clock=new_rows(Clock, 1, clock),
        runs=new_rows(Run, executors),
        next_executor=new_indices(np.full(executors, IDLE)),
        job_progress=new_rows(
            JobProgress,
            len(tables.job_arrival_s),
            {
                "first_stage": tables.job_stage_ptr[:-1],
                "end_stage": tables.job_stage_ptr[1:],
                "stages_left": np.diff(tables.job_stage_ptr),
                "path_at": tables.job_stage_ptr[:-1],
            },
        ),
        stage_progress=new_rows(
            StageProgress,
            len(tables.stage_job),
            {
                "end_task": tables.task_ptr[1:],
                "first_child": tables.child_ptr[:-1],
                "end_child": tables.child_ptr[1:],
                "parents_left": tables.stage_parents,
                "given_s": tables.stage_estimate_s,
                "mute": tables.stage_mute,
            },
        ),
        tasks=new_rows(
            Task,
            len(tables.task_duration_s),
            {"duration_s": tables.task_duration_s, "pause_s": tables.task_pause_s, "fails": tables.task_fails},
        ),
        children=new_indices(tables.child),
        by_path=new_indices(tables.stage_order),
        correction=new_correction(),
    )


def _new_board(tables: Tables, executors: int) -> Board:
    jobs, stages = len(tables.job_arrival_s), len(tables.stage_job)
    narrow = np.ones(jobs, np.bool_)
    narrow[tables.stage_job[tables.stage_max_cap > 1]] = False
    slots = most_slots(tables.stage_job, tables.stage_slots, jobs)
    return Board(
        pool=new_rows(Pool, 1, {"free": executors, "slots": slots.max(initial=1)}),
        executors=new_rows(Executor, executors),
        jobs=new_rows(
            Job,
            jobs,
            {
                "arrival_s": tables.job_arrival_s,
                "weight": tables.job_weight,
                "work_s": tables.job_work_s,
                "remaining_work_s": tables.job_work_s,
                "critical_path_s": tables.job_critical_path_s,
                "remaining_path_s": tables.job_critical_path_s,
                "width": tables.job_width,
                "narrow": narrow,
                "slots": slots,
            },
        ),
        stages=new_rows(
            Stage,
            stages,
            {
                "estimate_s": tables.stage_estimate_s,
                "serial_fraction": tables.stage_serial_fraction,
                "path_s": tables.stage_path_s,
                "job": tables.stage_job,
                "pending": np.diff(tables.task_ptr),
                "slots": tables.stage_slots,
                "max_cap": tables.stage_max_cap,
            },
        ),
        recent_arrival_s=new_values(tables.job_arrival_s),
        recent_work_s=new_values(tables.job_work_s),
        recent_weight=new_values(tables.job_weight),
        short_arrival_s=new_values(np.zeros(RECENT_ARRIVALS)),
        free=new_indices(np.arange(executors)[::-1]),
        active=new_indices(np.zeros(jobs)),
        ready=new_indices(np.zeros(stages)),
        **slot_memory(executors),
    )


def view(world: World) -> ClusterState:
    """Return what a scheduler sees now: jobs that have arrived, in the order of their arrival.

    Compiled, its arrays are views that change with the world.
    """
    return state_of(world.board, *_arrived(world))


def board_view(world: World) -> Board:
    """Return the same as a board, whose rows are the world's."""
    board, (jobs, stages) = world.board, _arrived(world)
    return board._replace(jobs=first_rows(board.jobs, jobs), stages=first_rows(board.stages, stages))


def _arrived(world: World) -> tuple[int, int]:
    """Return how many jobs have arrived, and how many stages they have."""
    jobs = int(peek(world.clock).arrived)
    return jobs, int(peek(world.job_progress, jobs - 1).end_stage) if jobs else 0


def results(world: World) -> dict[str, NDArray[Any]]:
    """Return the columns that an episode is told by, copied: see `fermata.sim.simulate.Episode`."""
    progress, stages, tasks = world.job_progress, world.board.stages, world.tasks
    return {
        **{f"job_{name}": column(progress, name).copy() for name in ("start_s", "completion_s", "run_s", "failed")},
        "job_held_s": column(world.board.jobs, "held_s").copy(),
        **{f"stage_{name}": column(stages, name).copy() for name in ("ready_s", "held_s", "cap")},
        **{f"task_{name}": column(tasks, name).copy() for name in ("start_s", "end_s", "executor")},
    }
