"""A copy of an episode under way with another future: what the teacher tries its actions on.

`splice` copies the jobs that still matter out of a world and lets jobs of a library episode arrive after them, all in
arrays that are allocated once. Plain numpy: copying a window is a hundredth of a rollout, compiling it would take
longer than most runs. Knows the simulator's memory layout and nothing of policies.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fermata.policy.state import IDLE, RECENT_ARRIVALS
from fermata.sim.world import (
    ACTIVE,
    ARRIVED,
    DECISIONS,
    EVENTS,
    FINISHED,
    NOW,
    READY,
    Tables,
    World,
    new_world,
)


class Fork(NamedTuple):
    """Scratch memory for one spliced episode; `tables` and `world` are larger than any episode that fits."""

    tables: Tables
    world: World


class Window(NamedTuple):
    """The jobs, stages, tasks and edges of a world that a fork keeps: half-open ranges."""

    job0: int
    job1: int
    stage0: int
    stage1: int
    task0: int
    task1: int
    edge0: int
    edge1: int


def new_fork(like: Tables, executors: int, jobs: int, stages: int, tasks: int, edges: int) -> Fork:
    """Allocate a fork for at most so many jobs, stages, tasks and edges of a pool of `executors`."""
    sizes = {"job": jobs, "stage": stages, "task": tasks, "child": edges}
    arrays = {}
    for name, array in like._asdict().items():
        if name == "sticky":
            continue
        ends = {"job_stage_ptr": jobs + 1, "child_ptr": stages + 1, "task_ptr": stages + 1}
        arrays[name] = np.zeros(ends.get(name, sizes[name.partition("_")[0]]), array.dtype)
    tables = Tables(**arrays, sticky=like.sticky)
    return Fork(tables, new_world(tables, executors))


def _copy(to: np.ndarray, at: int, source: np.ndarray, begin: int, end: int) -> None:
    to[at : at + end - begin] = source[begin:end]


def _copy_shifted(to: np.ndarray, at: int, source: np.ndarray, begin: int, end: int, shift: int) -> None:
    np.add(source[begin:end], shift, out=to[at : at + end - begin], casting="unsafe")


def window_of(tables: Tables, world: World) -> Window:
    """Return the window from the first unfinished job on, but with enough arrivals for a policy's recent past."""
    arrived = int(world.counter[ARRIVED])
    active = world.active_jobs[: world.counter[ACTIVE]]
    return jobs_window(tables, int(min(max(0, arrived - RECENT_ARRIVALS), active.min(initial=arrived))), arrived)


def jobs_window(tables: Tables, job0: int, job1: int) -> Window:
    """Return the window of the jobs `job0` to `job1`, the last not included."""
    stage0, stage1 = int(tables.job_stage_ptr[job0]), int(tables.job_stage_ptr[job1])
    tasks, edges = tables.task_ptr, tables.child_ptr
    return Window(
        job0,
        job1,
        stage0,
        stage1,
        int(tasks[stage0]),
        int(tasks[stage1]),
        int(edges[stage0]),
        int(edges[stage1]),
    )


def _append_tables(to: Tables, source: Tables, w: Window, jobs: int, stages: int, tasks: int, edges: int) -> None:
    """Write the window's fixed data behind the first so many jobs, stages, tasks and edges."""
    _copy(to.job_arrival_s, jobs, source.job_arrival_s, w.job0, w.job1)
    _copy(to.job_weight, jobs, source.job_weight, w.job0, w.job1)
    _copy(to.job_work_s, jobs, source.job_work_s, w.job0, w.job1)
    _copy(to.job_critical_path_s, jobs, source.job_critical_path_s, w.job0, w.job1)
    _copy(to.job_width, jobs, source.job_width, w.job0, w.job1)
    _copy_shifted(to.job_stage_ptr, jobs, source.job_stage_ptr, w.job0, w.job1 + 1, stages - w.stage0)
    _copy_shifted(to.stage_job, stages, source.stage_job, w.stage0, w.stage1, jobs - w.job0)
    _copy(to.stage_slots, stages, source.stage_slots, w.stage0, w.stage1)
    _copy(to.stage_estimate_s, stages, source.stage_estimate_s, w.stage0, w.stage1)
    _copy(to.stage_serial_fraction, stages, source.stage_serial_fraction, w.stage0, w.stage1)
    _copy(to.stage_max_cap, stages, source.stage_max_cap, w.stage0, w.stage1)
    _copy(to.stage_path_s, stages, source.stage_path_s, w.stage0, w.stage1)
    _copy(to.stage_parents, stages, source.stage_parents, w.stage0, w.stage1)
    _copy_shifted(to.child_ptr, stages, source.child_ptr, w.stage0, w.stage1 + 1, edges - w.edge0)
    _copy_shifted(to.task_ptr, stages, source.task_ptr, w.stage0, w.stage1 + 1, tasks - w.task0)
    _copy_shifted(to.child, edges, source.child, w.edge0, w.edge1, stages - w.stage0)
    _copy(to.task_duration_s, tasks, source.task_duration_s, w.task0, w.task1)


def _copy_world(to: World, source: World, w: Window) -> None:
    """Write the window's progress to the front of a world; executors keep their numbers."""
    jobs, stages = w.job1 - w.job0, w.stage1 - w.stage0
    _copy(to.job_remaining_work_s, 0, source.job_remaining_work_s, w.job0, w.job1)
    _copy(to.job_running, 0, source.job_running, w.job0, w.job1)
    _copy(to.job_held_s, 0, source.job_held_s, w.job0, w.job1)
    _copy(to.job_stages_left, 0, source.job_stages_left, w.job0, w.job1)
    _copy(to.job_held_mark_s, 0, source.job_held_mark_s, w.job0, w.job1)
    _copy(to.job_run_since_s, 0, source.job_run_since_s, w.job0, w.job1)
    _copy(to.job_start_s, 0, source.job_start_s, w.job0, w.job1)
    _copy(to.job_completion_s, 0, source.job_completion_s, w.job0, w.job1)
    _copy(to.job_run_s, 0, source.job_run_s, w.job0, w.job1)
    _copy(to.active_position, 0, source.active_position, w.job0, w.job1)
    _copy(to.stage_pending, 0, source.stage_pending, w.stage0, w.stage1)
    _copy(to.stage_running, 0, source.stage_running, w.stage0, w.stage1)
    _copy(to.stage_cap, 0, source.stage_cap, w.stage0, w.stage1)
    _copy(to.stage_ready_s, 0, source.stage_ready_s, w.stage0, w.stage1)
    _copy(to.stage_held_s, 0, source.stage_held_s, w.stage0, w.stage1)
    _copy(to.stage_hold_until_s, 0, source.stage_hold_until_s, w.stage0, w.stage1)
    _copy(to.stage_parents_left, 0, source.stage_parents_left, w.stage0, w.stage1)
    _copy_shifted(to.active_jobs, 0, source.active_jobs, 0, source.counter[ACTIVE], -w.job0)
    _copy_shifted(to.ready_stages, 0, source.ready_stages, 0, source.counter[READY], -w.stage0)
    to.executor_stage[:] = np.where(source.executor_stage >= 0, source.executor_stage - w.stage0, IDLE)
    to.executor_job[:] = np.where(source.executor_job >= w.job0, source.executor_job - w.job0, IDLE)
    to.executor_free_at_s[:] = source.executor_free_at_s
    to.free_executors[:] = source.free_executors
    to.next_executor[:] = source.next_executor
    to.run_time_s[:] = source.run_time_s
    to.run_sequence[:] = source.run_sequence
    to.run_executor[:] = source.run_executor
    to.clock[:] = source.clock
    to.counter[:] = source.counter
    to.counter[ARRIVED] = jobs
    to.counter[FINISHED] = jobs - source.counter[ACTIVE]
    to.counter[EVENTS], to.counter[DECISIONS] = 0, 0
    _reset_future(to, jobs, stages)


def _reset_future(to: World, jobs: int, stages: int) -> None:
    """Make everything behind the window look as before its arrival."""
    to.job_running[jobs:] = 0
    to.job_held_s[jobs:] = 0.0
    to.job_held_mark_s[jobs:] = -math.inf
    to.job_start_s[jobs:] = math.nan
    to.job_completion_s[jobs:] = math.nan
    to.job_run_s[jobs:] = 0.0
    to.stage_running[stages:] = 0
    to.stage_cap[stages:] = 0
    to.stage_ready_s[stages:] = math.inf
    to.stage_held_s[stages:] = 0.0
    to.stage_hold_until_s[stages:] = -math.inf


def _expect(to: World, tables: Tables, jobs: slice, stages: slice) -> None:
    """Set what jobs have left before their arrival."""
    to.job_remaining_work_s[jobs] = tables.job_work_s[jobs]
    to.job_stages_left[jobs] = np.diff(tables.job_stage_ptr[jobs.start : jobs.stop + 1])
    to.stage_pending[stages] = np.diff(tables.task_ptr[stages.start : stages.stop + 1])
    to.stage_parents_left[stages] = tables.stage_parents[stages]


def _cut(tables: Tables, jobs: int, stages: int, tasks: int, edges: int) -> Tables:
    """Return the first so many jobs, stages, tasks and edges of scratch tables."""
    return Tables(
        tables.job_arrival_s[:jobs],
        tables.job_weight[:jobs],
        tables.job_stage_ptr[: jobs + 1],
        tables.job_work_s[:jobs],
        tables.job_critical_path_s[:jobs],
        tables.job_width[:jobs],
        tables.stage_job[:stages],
        tables.stage_slots[:stages],
        tables.stage_estimate_s[:stages],
        tables.stage_serial_fraction[:stages],
        tables.stage_max_cap[:stages],
        tables.stage_path_s[:stages],
        tables.stage_parents[:stages],
        tables.child_ptr[: stages + 1],
        tables.child[:edges],
        tables.task_ptr[: stages + 1],
        tables.task_duration_s[:tasks],
        tables.sticky,
    )


def splice(
    fork: Fork, tables: Tables, world: World, w: Window, library: Tables, first: int, arrivals: int
) -> Tables | None:
    """Make the fork's world a copy of `world` whose future is `arrivals` jobs of `library` from job `first` on.

    The first of them arrives after the gap that it has in the library, counted from now.

    Returns:
        The fork's tables, cut to size; None if the fork is too small.
    """
    future = jobs_window(library, first, first + arrivals)
    jobs, stages = w.job1 - w.job0, w.stage1 - w.stage0
    tasks, edges = w.task1 - w.task0, w.edge1 - w.edge0
    all_jobs, all_stages = jobs + arrivals, stages + future.stage1 - future.stage0
    all_tasks, all_edges = tasks + future.task1 - future.task0, edges + future.edge1 - future.edge0
    to = fork.tables
    if (
        all_jobs > len(to.job_arrival_s)
        or all_stages > len(to.stage_job)
        or all_tasks > len(to.task_duration_s)
        or all_edges > len(to.child)
    ):
        return None
    _append_tables(to, tables, w, 0, 0, 0, 0)
    _append_tables(to, library, future, jobs, stages, tasks, edges)
    shift_s = world.clock[NOW] - (library.job_arrival_s[first - 1] if first > 0 else 0.0)
    to.job_arrival_s[jobs:all_jobs] += shift_s
    _copy_world(fork.world, world, w)
    _expect(fork.world, to, slice(jobs, all_jobs), slice(stages, all_stages))
    return _cut(to, all_jobs, all_stages, all_tasks, all_edges)
