"""The papers' pairwise hold on a queue: a long job waits for the next arrival as if the two were alone.

Theorem 2 knows one executor, one job that is there and one to come. Here the first is the head of the queue, and the
rate and the sizes of the second are those of the recent arrivals, in two classes. It is kept to be compared with: it
does not see the queue, so it holds too much where that is long.
"""

from __future__ import annotations

import math

from fermata.policy._jit import part
from fermata.policy.board import Board
from fermata.policy.theory.pair import committed_hold_two_point_s, released_hold_pays


@part
def _arrival_rate(board: Board) -> float:
    """Return the recent arrivals per second; 0 before the second one."""
    begin, end = board.pool[0].recent_begin, board.pool[0].recent_end
    if end - begin < 2:
        return 0.0
    span_s = board.pool[0].now_s - board.recent_arrival_s[begin]
    return (end - begin - 1) / span_s if span_s > 0.0 else 0.0


@part
def committed_hold_of(board: Board, stage: int, split_s: float) -> float:
    """Return for how many seconds a stage of a long job is to be held, once and whatever comes; 0: not at all.

    Args:
        board: the state.
        stage: its job is long if its work is at least the split.
        split_s: work from which a job is long.
    """
    first_s = board.jobs[board.stages[stage].job].work_s
    rate = _arrival_rate(board)
    if first_s < split_s or rate <= 0.0:
        return 0.0
    shorts, short_s, long_s, seen = 0, 0.0, 0.0, 0
    for i in range(board.pool[0].recent_begin, board.pool[0].recent_end):
        seen += 1
        if board.recent_work_s[i] < split_s:
            shorts += 1
            short_s += board.recent_work_s[i]
        else:
            long_s += board.recent_work_s[i]
    if shorts == 0:
        return 0.0
    mean_long_s = long_s / (seen - shorts) if seen > shorts else first_s
    return committed_hold_two_point_s(rate, first_s, short_s / shorts, mean_long_s, shorts / seen)


@part
def released_hold_until(board: Board, stage: int) -> float:
    """Return until when a stage is to be held for the next arrival, which releases it; -inf: not at all.

    The time is far enough to meet the arrival nearly always, and finite: an idle pool must not wait for nothing.
    """
    row = board.stages[stage]
    first_s = board.jobs[row.job].work_s
    begin, end = board.pool[0].recent_begin, board.pool[0].recent_end
    rate = _arrival_rate(board)
    if rate <= 0.0 or board.recent_arrival_s[end - 1] > row.ready_s:
        return -math.inf
    shorter_s = 0.0
    for i in range(begin, end):
        shorter_s += min(first_s, board.recent_work_s[i])
    if not released_hold_pays(rate, first_s, shorter_s / (end - begin)):
        return -math.inf
    return float(row.ready_s + 8.0 / rate)
