"""First in, first out: the job that arrived first, as wide as it can go."""

from fermata.policy.heuristics.base import Heuristic
from fermata.policy.heuristics.kernel import BY_ARRIVAL, Rule

FIFO = Heuristic("fifo", "the job that arrived first", Rule(order=BY_ARRIVAL))
