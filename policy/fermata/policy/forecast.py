"""How many short jobs are about to arrive, by how they arrived lately: pods on a schedule come when they are due.

An empirical forecast without a model of arrivals: of all recent moments that lay as long after a short arrival as now
does, with none in between, what followed is averaged. Arrivals at random are expected at their mean rate by that, and
batches on a schedule when they are due, whatever the schedule.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from fermata.policy._jit import kernel
from fermata.policy.rows import Values

# So many moments like this one count as much as the mean rate does: few of them are little evidence.
_DOUBT = 10.0


class Forecast(NamedTuple):
    """What is expected to arrive within a horizon."""

    arrivals: float
    earliness: float  # sum over these arrivals of the share of the horizon that is left when each one comes


@kernel
def forecast(times_s: Values, count: int, now_s: float, horizon_s: float, rate: float) -> Forecast:
    """Return what arrives of a kind within a horizon from now.

    Args:
        times_s: when the recent ones of this kind came, ascending; its first `count` are read.
        count: of them.
        now_s: not before the last of them.
        horizon_s: finite.
        rate: of such arrivals on average, per second.
    """
    since_s = now_s - times_s[count - 1] if count > 0 else math.inf
    # Sums over moments, and over arrivals: `passed_s` before the moment in hand, `met` before the end of its horizon.
    moments, found, early_s = 0.0, 0.0, 0.0
    passed_s, met, met_s = 0.0, 0, 0.0
    for passed in range(1, count):
        before_s = times_s[passed - 1]
        passed_s += before_s
        until_s = before_s + since_s + horizon_s
        if until_s > now_s:
            break
        if times_s[passed] - before_s > since_s:
            while met < count and times_s[met] <= until_s:
                met_s += times_s[met]
                met += 1
            moments += 1.0
            found += met - passed
            early_s += (met - passed) * until_s - (met_s - passed_s)
    expected = rate * horizon_s
    earliness = early_s / horizon_s if horizon_s > 0.0 else 0.0
    weight = moments + _DOUBT
    return Forecast((found + _DOUBT * expected) / weight, (earliness + 0.5 * _DOUBT * expected) / weight)
