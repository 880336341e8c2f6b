"""Does a job weigh too much to be held for what a hold is made for?

The shipped networks were taught jobs that all weigh the same: they hold a long job for short ones however important it
is. What a hold costs counts by the weight of the job that is held, and what it saves by those of the short jobs that
come; beyond HEAVY times their weight, holding costs more than it saves (record 33).
"""

from __future__ import annotations

from fermata.policy._jit import kernel
from fermata.policy.board import Board

HEAVY = 3.0


@kernel
def too_heavy(board: Board, job: int) -> bool:
    """Tell whether a job weighs more than HEAVY times the mean of the recent jobs of under half its remaining work."""
    half_s, shorter, weight = 0.5 * board.jobs[job].remaining_work_s, 0, 0.0
    for i in range(board.pool[0].recent_begin, board.pool[0].recent_end):
        if board.recent_work_s[i] < half_s:
            shorter += 1
            weight += board.recent_weight[i]
    return bool(board.jobs[job].weight * shorter > HEAVY * weight)
