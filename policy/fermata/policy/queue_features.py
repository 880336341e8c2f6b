"""What a policy over the whole queue reads of every waiting task, from the state of a cluster.

A task of several slots is a rigid job: it takes that many executors at once for as long as its estimate says. The
simulator of rigid jobs (`fermata.sim.hpc.scoring`) writes the same numbers from its own memory, for speed; a
differential test runs both.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fermata.policy.state import ClusterState, FloatArray, IndexArray

SCHEMA = "fermata.queue/1"
# Logarithms are natural, of one more than the value, and divided by what keeps them about 0 to 1.
FEATURE_NAMES = (
    "log_estimate",  # of one task, s
    "log_cores",  # its slots, against those of the pool
    "cores",  # share of the pool
    "log_wait",  # since it is ready, s
    "log_slowdown",  # that wait over the estimate
    "free_after",  # share of the pool that would stay free if it started now
    "log_free_after",
    "free_in_1min",  # share that would be free then, nothing else being started
    "free_in_10min",
    "free_in_1h",
    "free_in_4h",
    "free_at_end",  # just before this task's own end
    "delays_head",  # 1 if it would delay the first task of the queue that does not fit; smallest area is first
    "log_head_starts_in",  # until that one fits, s
    "head_cores",
    "log_waiting",  # tasks in the queue
    "log_waiting_before",  # of smaller area
    "cores_before",  # their slots, at most four times the pool
    "log_work_waiting",  # s of the whole pool
    "log_recent",  # arrivals in the last hour
    "day_sine",  # of the clock's time of day
    "day_cosine",
)
FEATURES = len(FEATURE_NAMES)
HORIZONS_S = (60.0, 600.0, 3600.0, 14_400.0)
RECENT_S = 3600.0
DAY_S = 86_400.0
BOUND_S = 10.0
OVERDUE_S = 1.0  # what outlives its estimate is expected to end in a second, again and again
INTERVAL_S = 600.0  # while something is held, it is looked at again after this long at the latest


class Choices(NamedTuple):
    """Stages of which a task may be started now, smallest area first, and a row of features for each."""

    stages: IndexArray  # [choices]
    rows: NDArray[np.float32]  # [choices, FEATURES]


def choices_of(state: ClusterState) -> Choices:
    """Return what can be chosen in a state; every pending task of a ready stage counts as waiting."""
    queue, pool = _queue(state), state.executors
    slots, estimate = state.stage_slots[queue].astype(np.float64), state.stage_estimate_s[queue]
    pending = state.stage_pending[queue].astype(np.float64)
    # What its own parallelism keeps waits for no executor: it is not the head that others may delay.
    may_grow = state.stage_running[queue] < state.stage_max_cap[queue]
    chosen = np.flatnonzero(may_grow & (slots <= state.free) & ~(state.stage_hold_until_s[queue] > state.now_s))
    ends_s = np.sort(np.maximum(state.executor_free_at_s[state.executor_stage >= 0], state.now_s + OVERDUE_S))
    wait = np.maximum(state.now_s - state.stage_ready_s[queue], 0.0)
    after = state.free - slots
    rows = np.zeros((len(queue), FEATURES))
    rows[:, 0] = np.log1p(estimate) / 12.0
    rows[:, 1] = np.log2(slots) / math.log2(max(pool, 2))
    rows[:, 2] = slots / pool
    rows[:, 3] = np.log1p(wait) / 12.0
    rows[:, 4] = np.log1p(wait / np.maximum(estimate, BOUND_S)) / 8.0
    rows[:, 5] = after / pool
    rows[:, 6] = np.log2(np.maximum(after, 0.0) + 1.0) / math.log2(pool + 1.0)
    for number, horizon in enumerate(HORIZONS_S):
        free_then = state.free + np.searchsorted(ends_s - state.now_s, horizon, side="right")
        rows[:, 7 + number] = (free_then - np.where(estimate > horizon, slots, 0.0)) / pool
    # Ends are compared, not what is left until them: (now + estimate) - now is the estimate only but for rounding, and
    # two tasks that begin together and are as long end together.
    own_end_s = state.now_s + estimate
    rows[:, 11] = (after + np.searchsorted(ends_s, own_end_s, side="right")) / pool
    blocked = np.flatnonzero(may_grow & (slots > state.free))
    if len(blocked):
        _describe_head(rows, int(blocked[0]), slots, own_end_s, ends_s, state)
    rows[:, 15] = math.log1p(pending.sum()) / 6.0
    rows[:, 16] = np.log1p(np.cumsum(pending) - pending) / 6.0
    rows[:, 17] = np.minimum((np.cumsum(pending * slots) - pending * slots) / pool, 4.0) / 4.0
    rows[:, 18] = math.log1p(float((pending * slots * estimate).sum()) / pool) / 12.0
    rows[:, 19] = math.log1p(float((state.recent_arrival_s > state.now_s - RECENT_S).sum())) / 4.0
    rows[:, 20] = math.sin(2.0 * math.pi * state.now_s / DAY_S)
    rows[:, 21] = math.cos(2.0 * math.pi * state.now_s / DAY_S)
    return Choices(queue[chosen], rows[chosen].astype(np.float32))


def _queue(state: ClusterState) -> IndexArray:
    """Return ready stages with pending tasks, smallest area of a task first; ties go to the earlier stage."""
    ready = np.sort(state.ready_stages)
    ready = ready[(state.stage_pending[ready] > 0) & (state.stage_ready_s[ready] <= state.now_s)]
    area = state.stage_slots[ready] * state.stage_estimate_s[ready]
    return np.asarray(ready[np.argsort(area, kind="stable")])


def _describe_head(
    rows: FloatArray, head: int, slots: FloatArray, own_end_s: FloatArray, ends_s: FloatArray, state: ClusterState
) -> None:
    """Write what concerns the first task that does not fit: when it will, and who would delay it."""
    if slots[head] > state.free + len(ends_s):
        return
    starts_s = ends_s[int(slots[head]) - state.free - 1]
    extra = state.free + np.searchsorted(ends_s, starts_s, side="right") - slots[head]
    rows[:, 12] = (np.arange(len(rows)) > head) & (slots > extra) & (own_end_s > starts_s)
    rows[:, 13] = math.log1p(starts_s - state.now_s) / 12.0
    rows[:, 14] = slots[head] / state.executors
