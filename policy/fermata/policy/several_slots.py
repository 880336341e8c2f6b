"""What is held where tasks take several executors, as pods with several GPUs do: a rule, as no network was taught such.

There shortest first has a fault that it has nowhere else. A job that needs several executors is passed over while fewer
are free, and each longer one that takes those makes it wait for another whole task; where such jobs keep coming it
starves. So the head is held

- for a job that is a lot shorter and does not fit yet, if the head would take executors that this one needs when
  enough of them free up, as EASY backfilling reserves them;
- on the last free executors for short jobs that are due before the next ones free up, as everywhere.
"""

from __future__ import annotations

import math

from fermata.policy._jit import kernel, part
from fermata.policy.board import Board
from fermata.policy.features import PER_SLOT, waiting_jobs
from fermata.policy.heuristics.kernel import BY_REMAINING_WORK, Rule, is_before, order_key
from fermata.policy.remaining import expected_left_s

SHORTER = 0.3  # of the head's remaining work: what it is held for has less
HALF = 0.5  # the same of jobs that are due
NEEDED, EACH_WAITS = 1.4, 0.8  # log1p of the due jobs for which one waits; and more with log1p of those that wait
NOTHING, TOO_WIDE, DUE = range(3)
WORDS = (
    "",
    "a job that is a lot shorter waits until enough executors are free, and would have to wait for this one, too",
    "more than its wait is worth, shorter jobs are expected before the next executor frees up",
)
_BY_SIZE = Rule(order=BY_REMAINING_WORK, per_slot=PER_SLOT)  # as heads are ordered, with nothing off for what runs
_SEEN = 20  # arrivals, below which nothing is due


@kernel
def several_slots(board: Board) -> bool:
    """Tell whether a task of a job in sight takes several executors."""
    if board.pool[0].slots <= 1:  # so it is nearly always, and there may be thousands of jobs
        return False
    for i in range(board.pool[0].active):  # noqa: SIM110 - kernels have no generators
        if board.jobs[board.active[i]].slots > 1:
            return True
    return False


@part
def _left_s(board: Board, executor: int) -> float:
    """Return how long a busy executor is expected to be, seconds."""
    row = board.executors[executor]
    stage = board.stages[row.stage]
    left_s = row.free_at_s - board.pool[0].now_s
    if math.isnan(stage.serial_fraction):
        left_s = expected_left_s(left_s, stage.estimate_s, board.pool[0].estimate_error)
    return max(left_s, 0.0)


@part
def _too_wide(board: Board, head: int) -> int:
    """Return the shortest job's stage that does not fit, if it is a lot shorter than the head's; else -1."""
    found, least_s = -1, SHORTER * order_key(board, head, _BY_SIZE)
    now_s, free = board.pool[0].now_s, board.pool[0].free
    for i in range(board.pool[0].ready):
        stage = board.ready[i]
        row = board.stages[stage]
        if not free < row.slots <= len(board.executors):  # a pool may have been made too small for a stage
            continue
        if row.pending <= 0 or row.running >= row.max_cap or row.hold_until_s > now_s:
            continue
        size_s = order_key(board, stage, _BY_SIZE)
        # Stages stand in no particular order, so what decides between those of one job must not hang on it.
        if size_s < least_s or (found >= 0 and size_s == least_s and is_before(board, stage, found)):
            found, least_s = stage, size_s
    return found


@part
def _due(board: Board, head: int, within_s: float) -> float:
    """Return how many jobs of a lot less work than the head's come within so many seconds, by recent arrivals."""
    pool = board.pool[0]
    seen = pool.recent_end - pool.recent_begin
    if seen < _SEEN:
        return 0.0
    span_s = pool.now_s - board.recent_arrival_s[pool.recent_begin]
    if not span_s > 0.0:
        return 0.0
    half_s, shorter = HALF * board.jobs[board.stages[head].job].remaining_work_s, 0
    for i in range(pool.recent_begin, pool.recent_end):
        shorter += 1 if board.recent_work_s[i] < half_s else 0
    return within_s * shorter / span_s


@kernel
def enough_after_s(board: Board, executors: int) -> float:
    """Return after how many seconds so many of the busy executors are expected to be free; by bisection."""
    after_s, by_s = -1.0, 0.0
    for i in range(len(board.executors)):
        if board.executors[i].stage >= 0:
            by_s = max(by_s, _left_s(board, i))
    while True:
        middle_s = 0.5 * (after_s + by_s)
        if not after_s < middle_s < by_s:
            return by_s
        ended, last_s, next_s = 0, after_s, by_s
        for i in range(len(board.executors)):
            if board.executors[i].stage < 0:
                continue
            left_s = _left_s(board, i)
            if left_s <= middle_s:
                ended += 1
                last_s = max(last_s, left_s)
            else:
                next_s = min(next_s, left_s)
        if ended >= executors:
            by_s = last_s
        elif next_s == by_s:
            return by_s
        else:
            after_s = middle_s


@part
def _spare(board: Board, by_s: float) -> int:
    """Return how many executors are free by then, if nothing starts before."""
    spare = board.pool[0].free
    for i in range(len(board.executors)):
        spare += 1 if board.executors[i].stage >= 0 and _left_s(board, i) <= by_s else 0
    return spare


@kernel
def held_for(board: Board, head: int) -> int:
    """Return what a head is better held for where tasks take several executors: NOTHING, TOO_WIDE or DUE."""
    pool, row = board.pool[0], board.stages[head]
    if pool.free == len(board.executors):
        return NOTHING
    blocked = _too_wide(board, head)
    if blocked >= 0:
        slots = board.stages[blocked].slots
        begins_s = enough_after_s(board, slots - pool.free)
        if row.slots > _spare(board, begins_s) - slots and row.estimate_s > begins_s > 0.0:
            return TOO_WIDE
    if pool.free > row.slots:
        return NOTHING
    due = _due(board, head, min(enough_after_s(board, 1), row.estimate_s)) + (1.0 if blocked >= 0 else 0.0)
    return DUE if math.log1p(due) > NEEDED + EACH_WAITS * math.log1p(waiting_jobs(board)) else NOTHING
