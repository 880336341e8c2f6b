"""Fair sharing: one task at a time to the job that would then hold the fewest executors, weighted by its work or not.

Weighted fair sharing (a baseline of Decima's) gives a job executors in proportion to its work to the power alpha: 0 is
plain fairness, 1 the same number for each unit of work; below 0 small jobs get more, which is what pays.
"""

from fermata.policy.heuristics.base import Heuristic
from fermata.policy.heuristics.kernel import BY_EXECUTORS, ONE_TASK, Rule

FAIR = Heuristic("fair", "the job that holds the fewest executors", Rule(order=BY_EXECUTORS, fill=ONE_TASK))
WEIGHTED_FAIR = Heuristic(
    "weighted-fair",
    "the job with the fewest executors over its work to the power `alpha`; below 0 small jobs get more",
    Rule(order=BY_EXECUTORS, fill=ONE_TASK, exponent=-1.0),
    {"alpha": "exponent"},
)
