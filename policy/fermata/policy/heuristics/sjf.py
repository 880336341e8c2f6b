"""Shortest job first: the job with the least work in all, whatever is already done of it."""

from fermata.policy.heuristics.base import Heuristic
from fermata.policy.heuristics.kernel import BY_JOB_WORK, Rule

SJF = Heuristic("sjf", "the job with the least work", Rule(order=BY_JOB_WORK))
