"""Last come, first served: the job that arrived last, as wide as it can go."""

from fermata.policy.heuristics.base import Heuristic
from fermata.policy.heuristics.kernel import BY_LAST_ARRIVAL, Rule

LCFS = Heuristic("lcfs", "the job that arrived last", Rule(order=BY_LAST_ARRIVAL))
