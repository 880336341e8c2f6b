"""Shortest remaining work first with a lookahead hold, and the switch family around it.

The last free executor is held for short jobs to come while the next executor frees too late to serve them; and a long
job may go before short ones when another executor frees soon. The optimal policy of small cases has this structure
(docs/concepts.md); the parameters are in seconds and must be tuned to a workload.
"""

import math

from fermata.policy.heuristics.base import Heuristic
from fermata.policy.heuristics.kernel import BY_REMAINING_WORK, SWITCH, Rule

_HOLD = {
    "split": "split_s",
    "last": "last",
    "tau": "tau_s",
    "tau_per_long": "tau_per_long_s",
    "max_longs": "max_longs",
    "theta": "theta_s",
    "theta_per_short": "theta_per_short_s",
}

SJF_HOLD = Heuristic(
    "sjf-hold",
    "shortest remaining work first; holds the last executor for short jobs while the next completion is far",
    Rule(order=BY_REMAINING_WORK, hold=SWITCH, tau_s=60.0),
    _HOLD,
)
SJF_SWITCH = Heuristic(
    "sjf-switch",
    "shortest remaining work first, never idle; a long job goes first when another executor frees soon",
    Rule(order=BY_REMAINING_WORK, hold=SWITCH, tau_s=math.inf, theta_s=15.0),
    {key: _HOLD[key] for key in ("split", "theta", "theta_per_short")},
)
