"""Shortest job first by what no number of executors can shorten: the longest path that is left."""

from fermata.policy.heuristics.base import Heuristic
from fermata.policy.heuristics.kernel import BY_CRITICAL_PATH, Rule

SJF_CP = Heuristic("sjf-cp", "the job with the shortest critical path left", Rule(order=BY_CRITICAL_PATH))
