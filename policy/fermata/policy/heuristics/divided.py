"""Shortest job first, where a stage that can be spread gets its share of the pool, not all that happens to be free.

A moldable stage keeps its executors to the end and uses each worse the more it has; taking all of them is far worse
than taking one. Dividing the pool among the stages that are ready is within a few percent of caps tuned by class.
"""

from fermata.policy.heuristics.base import Heuristic
from fermata.policy.heuristics.kernel import BY_JOB_WORK, DIVIDED, Rule

SJF_DIVIDED = Heuristic(
    "sjf-divided",
    "the job with the least work; a moldable stage gets the pool divided by the number of ready stages",
    Rule(order=BY_JOB_WORK, fill=DIVIDED),
)
