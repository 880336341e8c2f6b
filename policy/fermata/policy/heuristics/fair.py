"""Fair sharing: one task at a time to the job that holds the fewest executors."""

from fermata.policy.heuristics.base import Heuristic
from fermata.policy.heuristics.kernel import BY_EXECUTORS, ONE_TASK, Rule

FAIR = Heuristic("fair", "the job that holds the fewest executors", Rule(order=BY_EXECUTORS, fill=ONE_TASK))
