"""Shortest job first with the papers' pairwise hold, as printed (committed) and corrected (released on arrival)."""

from fermata.policy.heuristics.base import Heuristic
from fermata.policy.heuristics.kernel import BY_JOB_WORK, PAIR_COMMITTED, PAIR_RELEASED, Rule

PAIR_HOLD_COMMITTED = Heuristic(
    "pair-committed",
    "shortest job first; a long job is held once, for the time of the idle-slots paper's Theorem 2, whatever comes",
    Rule(order=BY_JOB_WORK, hold=PAIR_COMMITTED),
    {"split": "split_s"},
)
PAIR_HOLD_RELEASED = Heuristic(
    "pair-released",
    "shortest job first; a job is held for the next arrival where the corrected Theorem 2 says that it pays",
    Rule(order=BY_JOB_WORK, hold=PAIR_RELEASED),
)
