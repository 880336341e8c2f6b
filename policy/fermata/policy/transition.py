"""How a board changes when an action is taken: the bookkeeping that the simulator and `decide` share.

The kernels write in place, so a caller that must keep its state works on a board of its own (`board_of`). Durations are
not known here: only estimates are written.
"""

from __future__ import annotations

import math

from fermata.policy._jit import inlined, kernel, part
from fermata.policy.action import HOLD, START, Action
from fermata.policy.board import Board


@inlined
def moldable_duration(work_s: float, serial_fraction: float, executors: int) -> float:
    """Return the seconds that `work_s` of one executor takes on `executors` (Amdahl's law)."""
    return work_s * (serial_fraction + (1.0 - serial_fraction) / executors)


@inlined
def tasks_to_begin(board: Board, stage: int, cap: int) -> int:
    """Return how many tasks a START with this cap begins: bounded by the cap, what is pending, and free executors."""
    row = board.stages[stage]
    if not math.isnan(row.serial_fraction):
        return 1
    return int(min(cap - row.running, row.pending, board.pool[0].free // row.slots))


@inlined
def executors_per_task(board: Board, stage: int, cap: int) -> int:
    """Return how many executors each task of this start takes: its slots, or the cap where the stage is moldable."""
    row = board.stages[stage]
    if math.isnan(row.serial_fraction):
        return int(row.slots)
    return int(min(cap, board.pool[0].free))


@inlined
def expected_duration(board: Board, stage: int, width: int) -> float:
    """Return the expected seconds of one task of `stage` on `width` executors."""
    row = board.stages[stage]
    if math.isnan(row.serial_fraction):
        return float(row.estimate_s)
    return float(moldable_duration(row.estimate_s, row.serial_fraction, width))


@part
def drop_ready(board: Board, stage: int) -> None:
    """Take a stage off the ready list: nothing of it is left to start."""
    last = board.pool[0].ready - 1
    for i in range(last + 1):
        if board.ready[i] == stage:
            board.ready[i] = board.ready[last]
            break
    board.pool[0].ready = last


@kernel
def begin(board: Board, stage: int, cap: int) -> int:
    """Take a START and return how many tasks begin, as many as the cap, the stage and the free executors allow.

    They take the last free executors of the list: entries [free after, free before), task by task.
    """
    tasks = tasks_to_begin(board, stage, cap)
    width = executors_per_task(board, stage, cap)
    row, pool = board.stages[stage], board.pool[0]
    taken = tasks * width
    left = pool.free - taken
    expected_s = pool.now_s + expected_duration(board, stage, width)
    for i in range(left, pool.free):
        executor = board.executors[board.free[i]]
        executor.free_at_s = expected_s
        executor.stage = stage
        executor.job = row.job
    pool.free = left
    row.pending -= tasks
    row.running += tasks
    row.cap = max(row.cap, cap)
    job = board.jobs[row.job]
    job.running += taken
    job.running_work_s += tasks * row.slots * row.estimate_s
    job.due_s += taken * expected_s
    if row.pending == 0:
        drop_ready(board, stage)
    return tasks


@kernel
def commit(board: Board, stage: int, until_s: float) -> None:
    """Take a HOLD: `stage` cannot start before `until_s`."""
    board.stages[stage].hold_until_s = until_s


def take(board: Board, action: Action) -> None:
    """Take a legal START or HOLD; a WAIT changes nothing."""
    if action.kind == START:
        begin(board, action.stage, action.cap)
    elif action.kind == HOLD:
        commit(board, action.stage, action.until_s)
