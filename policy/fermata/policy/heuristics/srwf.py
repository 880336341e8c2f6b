"""Shortest remaining work first: the job with the least work left, running tasks included."""

from fermata.policy.heuristics.base import Heuristic
from fermata.policy.heuristics.kernel import BY_REMAINING_WORK, Rule

SRWF = Heuristic("srwf", "the job with the least work left", Rule(order=BY_REMAINING_WORK))
