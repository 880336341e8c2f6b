"""Shares: shortest remaining work first, where no job gets more executors than it can use well.

A wide job at the head would take the whole pool, although its last executors speed it up little, and those behind it
would wait. So each job has a cap on its executors, from its remaining work or from the number of jobs. The caps and
their parameters were found on TPC-H (docs/results.md); which is better depends on how loaded the pool is.
"""

from fermata.policy.heuristics.base import Heuristic
from fermata.policy.heuristics.kernel import BY_REMAINING_WORK, EQUAL_SHARE, WORK_SHARE, Rule

_PARAMETERS = {"keep": "keep", "spare": "spare"}

SRWF_WORK_SHARE = Heuristic(
    "srwf-work-share",
    "the job with the least work left, up to one executor per 40 s of it; spare executors to the first",
    Rule(order=BY_REMAINING_WORK, fill=WORK_SHARE, grain_s=40.0, spare=1),
    {"grain": "grain_s", **_PARAMETERS},
)
SRWF_EQUAL_SHARE = Heuristic(
    "srwf-equal-share",
    "the job with the least work left, up to an equal share or a fifth of the pool; executors stay within a job",
    Rule(order=BY_REMAINING_WORK, fill=EQUAL_SHARE, share=0.2, keep=1, spare=1),
    {"share": "share", **_PARAMETERS},
)
