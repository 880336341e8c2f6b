"""How a state changes when an action is taken: the bookkeeping that the simulator and `decide` share.

The kernels write into the arrays of the state that they are given and return a state with the new counts, so a caller
that must keep its state passes a copy (`owned`). Durations are not known here: only estimates are written.
"""

from __future__ import annotations

import math

import numpy as np

from fermata.policy._jit import inlined, jit
from fermata.policy.action import HOLD, START, Action
from fermata.policy.state import IDLE, ClusterState

# What `begin` and `hold` write to; the rest of a state is only read.
_WRITTEN = (
    "executor_free_at_s",
    "executor_stage",
    "executor_job",
    "job_running",
    "stage_pending",
    "stage_running",
    "stage_cap",
    "stage_hold_until_s",
    "free_executors",
    "ready_stages",
)


def owned(state: ClusterState) -> ClusterState:
    """Return a state whose written-to arrays are copies, so that taking actions leaves `state` as it was."""
    return state._replace(**{name: getattr(state, name).copy() for name in _WRITTEN})


@inlined
def moldable_duration(work_s: float, serial_fraction: float, executors: int) -> float:
    """Return the seconds that `work_s` of one executor takes on `executors` (Amdahl's law)."""
    return work_s * (serial_fraction + (1.0 - serial_fraction) / executors)


@inlined
def tasks_to_begin(state: ClusterState, stage: int, cap: int) -> int:
    """Return how many tasks a START with this cap begins: bounded by the cap, what is pending, and free executors."""
    if not math.isnan(state.stage_serial_fraction[stage]):
        return 1
    tasks = min(cap - state.stage_running[stage], state.stage_pending[stage])
    return int(min(tasks, state.free // state.stage_slots[stage]))


@inlined
def executors_per_task(state: ClusterState, stage: int, cap: int) -> int:
    """Return how many executors each task of this start takes: its slots, or the cap where the stage is moldable."""
    if math.isnan(state.stage_serial_fraction[stage]):
        return int(state.stage_slots[stage])
    return int(min(cap, state.free))


@inlined
def expected_duration(state: ClusterState, stage: int, width: int) -> float:
    """Return the expected seconds of one task of `stage` on `width` executors."""
    serial = state.stage_serial_fraction[stage]
    if math.isnan(serial):
        return float(state.stage_estimate_s[stage])
    return moldable_duration(state.stage_estimate_s[stage], serial, width)


@jit
def begin(state: ClusterState, stage: int, cap: int) -> ClusterState:
    """Take a START: give the last free executors of the list to as many tasks as the cap, the stage and they allow."""
    tasks = tasks_to_begin(state, stage, cap)
    width = executors_per_task(state, stage, cap)
    job = state.stage_job[stage]
    taken = tasks * width
    left = state.free - taken
    expected_s = state.now_s + expected_duration(state, stage, width)
    for i in range(left, state.free):
        executor = state.free_executors[i]
        state.executor_free_at_s[executor] = expected_s
        state.executor_stage[executor] = stage
        state.executor_job[executor] = job
    state.stage_pending[stage] -= tasks
    state.stage_running[stage] += tasks
    state.stage_cap[stage] = max(state.stage_cap[stage], cap)
    state.job_running[job] += taken
    ready = len(state.ready_stages)
    if state.stage_pending[stage] == 0:
        for i in range(ready):
            if state.ready_stages[i] == stage:
                ready -= 1
                state.ready_stages[i] = state.ready_stages[ready]
                break
    return with_counts(state, left, ready)


@jit
def with_counts(state: ClusterState, free: int, ready: int) -> ClusterState:
    """Return the state with its first `free` free executors and its first `ready` ready stages."""
    return ClusterState(
        state.now_s,
        free,
        state.executor_free_at_s,
        state.executor_stage,
        state.executor_job,
        state.job_arrival_s,
        state.job_weight,
        state.job_work_s,
        state.job_remaining_work_s,
        state.job_critical_path_s,
        state.job_width,
        state.job_running,
        state.job_held_s,
        state.stage_job,
        state.stage_pending,
        state.stage_running,
        state.stage_estimate_s,
        state.stage_slots,
        state.stage_serial_fraction,
        state.stage_cap,
        state.stage_max_cap,
        state.stage_ready_s,
        state.stage_held_s,
        state.stage_hold_until_s,
        state.stage_path_s,
        state.free_executors[:free],
        state.active_jobs,
        state.ready_stages[:ready],
        state.recent_arrival_s,
        state.recent_work_s,
    )


def take(state: ClusterState, action: Action) -> ClusterState:
    """Take a legal START or HOLD in an owned state; a WAIT changes nothing."""
    if action.kind == START:
        return begin(state, action.stage, action.cap)
    if action.kind == HOLD:
        state.stage_hold_until_s[action.stage] = action.until_s
    return state


def free_executor_list(executor_stage: np.ndarray) -> np.ndarray:
    """Return the indices of the free executors, highest first, so that `begin` takes the lowest first."""
    return np.flatnonzero(executor_stage == IDLE)[::-1].astype(np.int32)
