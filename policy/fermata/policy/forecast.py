"""How many short jobs are about to arrive, by how they arrived lately: pods on a schedule come when they are due.

An empirical forecast without a model of arrivals: of all recent moments that lay as long after a short arrival as now
does, with none in between, what followed is averaged. Arrivals at random are expected at their mean rate by that, and
batches on a schedule when they are due, whatever the schedule.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from fermata.policy._jit import kernel
from fermata.policy.board import Board

# So many moments like this one count as much as the mean rate does: few of them are little evidence.
_DOUBT = 10.0


class Forecast(NamedTuple):
    """What is expected to arrive within a horizon."""

    arrivals: float
    earliness: float  # sum over these arrivals of the share of the horizon that is left when each one comes


@kernel
def forecast(board: Board, below_s: float, since_s: float, horizon_s: float, rate: float) -> Forecast:
    """Return what arrives, of jobs of less work than `below_s`, within `horizon_s` from now.

    Args:
        board: its recent arrivals are read.
        below_s: executor-seconds.
        since_s: how long ago the last of them came; inf if none of the recent ones was that short.
        horizon_s: finite.
        rate: of such arrivals on average, per second.
    """
    pool, times_s, sizes_s = board.pool[0], board.recent_arrival_s, board.recent_work_s
    # Sums over moments; over arrivals before the moment in hand (`seen`), and before the end of its horizon (`met`).
    moments, found, early_s = 0.0, 0.0, 0.0
    seen, seen_s, met, met_s, ahead = 0, 0.0, 0, 0.0, pool.recent_begin
    before_s = -math.inf
    for i in range(pool.recent_begin, pool.recent_end):
        if sizes_s[i] >= below_s:
            continue
        until_s = before_s + since_s + horizon_s
        if until_s > pool.now_s:
            break
        if seen > 0 and times_s[i] - before_s > since_s:
            while ahead < pool.recent_end:
                later_s = times_s[ahead]
                if later_s > until_s:
                    break
                if sizes_s[ahead] < below_s:
                    met += 1
                    met_s += later_s
                ahead += 1
            moments += 1.0
            found += met - seen
            early_s += (met - seen) * until_s - (met_s - seen_s)
        before_s = times_s[i]
        seen += 1
        seen_s += before_s
    expected = rate * horizon_s
    earliness = early_s / horizon_s if horizon_s > 0.0 else 0.0
    weight = moments + _DOUBT
    return Forecast((found + _DOUBT * expected) / weight, (earliness + 0.5 * _DOUBT * expected) / weight)
