"""The simulator's memory: what is fixed for an episode (`Tables`) and what changes (`World`), as flat arrays.

Both are named tuples of numpy arrays, so that the compiled engine and plain Python run the same code over them, and a
`ClusterState` is made of views of them: nothing is copied for a decision.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fermata.policy._jit import jit
from fermata.policy.graph import job_shape, path_lengths
from fermata.policy.state import IDLE, RECENT_ARRIVALS, ClusterState
from fermata.sim.trace import Trace

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
IndexArray = NDArray[np.int32]

# World.clock
NOW, WAKE, HELD_UNTIL = 0, 1, 2
# World.counter
ARRIVED, FREE, READY, ACTIVE, RUNS, SEQUENCE, EVENTS, DECISIONS, FINISHED = range(9)


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
    sticky: bool  # a stage keeps its executors, up to its cap, until its tasks run out


class World(NamedTuple):
    """An episode under way; every array is written in place. The first block is shown to policies as it is."""

    executor_free_at_s: FloatArray
    executor_stage: IndexArray
    executor_job: IndexArray
    job_remaining_work_s: FloatArray
    job_running: IndexArray
    job_held_s: FloatArray
    stage_pending: IndexArray
    stage_running: IndexArray
    stage_cap: IndexArray
    stage_ready_s: FloatArray
    stage_held_s: FloatArray
    stage_hold_until_s: FloatArray
    free_executors: IndexArray
    active_jobs: IndexArray
    ready_stages: IndexArray
    # hidden from policies
    clock: FloatArray  # [3] seconds: now, end of the current wait, last end of any committed hold
    counter: IntArray  # [9] see the names above
    run_time_s: FloatArray  # [executors] a binary heap of running tasks by end (ties: start order) ...
    run_sequence: IntArray
    run_executor: IndexArray  # ... each named by its first executor
    next_executor: IndexArray  # [executors] the next executor of the same task; IDLE at the end
    active_position: IndexArray  # [jobs] where a job stands in active_jobs
    job_stages_left: IndexArray
    job_held_mark_s: FloatArray  # until when a job's held time has been counted
    job_run_since_s: FloatArray  # since when some task of the job runs
    stage_parents_left: IndexArray
    # results
    job_start_s: FloatArray  # first task's start; NaN before
    job_completion_s: FloatArray  # NaN before
    job_run_s: FloatArray  # time during which some task ran
    task_start_s: FloatArray
    task_end_s: FloatArray
    task_executor: IndexArray  # first executor


def tables_of(trace: Trace, executors: int, *, sticky: bool = False) -> Tables:
    """Derive what the engine and the policies need from a trace: work, paths, widths, children.

    Raises:
        ValueError: the trace has a cycle.
    """
    stages = trace.stages
    moldable = ~np.isnan(trace.stage_serial_fraction)
    tasks = np.diff(trace.task_ptr)
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
        stage_max_cap=np.where(moldable, executors, tasks).astype(np.int32),
        stage_path_s=path_s,
        stage_parents=np.diff(trace.parent_ptr).astype(np.int32),
        child_ptr=child_ptr,
        child=child,
        task_ptr=trace.task_ptr,
        task_duration_s=trace.task_duration_s,
        sticky=sticky,
    )


def _children(trace: Trace) -> tuple[IntArray, IndexArray]:
    """Turn the parents of each stage into the children of each stage, in order of child."""
    child_ptr = np.zeros(trace.stages + 1, np.int64)
    child_ptr[1:] = np.cumsum(np.bincount(trace.parent, minlength=trace.stages))
    owner = np.repeat(np.arange(trace.stages, dtype=np.int32), np.diff(trace.parent_ptr))
    return child_ptr, owner[np.argsort(trace.parent, kind="stable")]


def new_world(tables: Tables, executors: int) -> World:
    """Return the world before the first event: every executor free, no job arrived."""
    jobs, stages, tasks = len(tables.job_arrival_s), len(tables.stage_job), len(tables.task_duration_s)
    counter = np.zeros(9, np.int64)
    counter[FREE] = executors
    return World(
        executor_free_at_s=np.full(executors, -math.inf),
        executor_stage=np.full(executors, IDLE, np.int32),
        executor_job=np.full(executors, IDLE, np.int32),
        job_remaining_work_s=tables.job_work_s.copy(),
        job_running=np.zeros(jobs, np.int32),
        job_held_s=np.zeros(jobs),
        stage_pending=np.diff(tables.task_ptr).astype(np.int32),
        stage_running=np.zeros(stages, np.int32),
        stage_cap=np.zeros(stages, np.int32),
        stage_ready_s=np.full(stages, math.inf),
        stage_held_s=np.zeros(stages),
        stage_hold_until_s=np.full(stages, -math.inf),
        free_executors=np.arange(executors, dtype=np.int32)[::-1].copy(),
        active_jobs=np.zeros(jobs, np.int32),
        ready_stages=np.zeros(stages, np.int32),
        clock=np.array([0.0, math.inf, -math.inf]),
        counter=counter,
        run_time_s=np.zeros(executors),
        run_sequence=np.zeros(executors, np.int64),
        run_executor=np.zeros(executors, np.int32),
        next_executor=np.full(executors, IDLE, np.int32),
        active_position=np.zeros(jobs, np.int32),
        job_stages_left=np.diff(tables.job_stage_ptr).astype(np.int32),
        job_held_mark_s=np.full(jobs, -math.inf),
        job_run_since_s=np.zeros(jobs),
        stage_parents_left=tables.stage_parents.copy(),
        job_start_s=np.full(jobs, math.nan),
        job_completion_s=np.full(jobs, math.nan),
        job_run_s=np.zeros(jobs),
        task_start_s=np.full(tasks, math.nan),
        task_end_s=np.full(tasks, math.nan),
        task_executor=np.full(tasks, IDLE, np.int32),
    )


@jit
def view(tables: Tables, world: World) -> ClusterState:
    """Return what a scheduler sees now, as views: jobs that have arrived, in the order of their arrival."""
    jobs = world.counter[ARRIVED]
    stages = tables.job_stage_ptr[jobs]
    recent = max(0, jobs - RECENT_ARRIVALS)
    free = world.counter[FREE]
    return ClusterState(
        world.clock[NOW],
        free,
        world.executor_free_at_s,
        world.executor_stage,
        world.executor_job,
        tables.job_arrival_s[:jobs],
        tables.job_weight[:jobs],
        tables.job_work_s[:jobs],
        world.job_remaining_work_s[:jobs],
        tables.job_critical_path_s[:jobs],
        tables.job_width[:jobs],
        world.job_running[:jobs],
        world.job_held_s[:jobs],
        tables.stage_job[:stages],
        world.stage_pending[:stages],
        world.stage_running[:stages],
        tables.stage_estimate_s[:stages],
        tables.stage_slots[:stages],
        tables.stage_serial_fraction[:stages],
        world.stage_cap[:stages],
        tables.stage_max_cap[:stages],
        world.stage_ready_s[:stages],
        world.stage_held_s[:stages],
        world.stage_hold_until_s[:stages],
        tables.stage_path_s[:stages],
        world.free_executors[:free],
        world.active_jobs[: world.counter[ACTIVE]],
        world.ready_stages[: world.counter[READY]],
        tables.job_arrival_s[recent:jobs],
        tables.job_work_s[recent:jobs],
    )
