"""Hold a long job for its follower: for a bounded time after it became ready, until a short job arrives.

The corrected form of the paper's pairwise hold: released on arrival, and the shorter job goes first.
"""

from fermata.policy.heuristics.base import Heuristic
from fermata.policy.heuristics.kernel import BY_JOB_WORK, FOLLOWER, Rule

HOLD_FOLLOWER = Heuristic(
    "hold-follower",
    "shortest job first; a long job waits until a short one has followed it, at most `delay` seconds",
    Rule(order=BY_JOB_WORK, hold=FOLLOWER, follower_s=4.0),
    {"delay": "follower_s", "split": "split_s"},
)
