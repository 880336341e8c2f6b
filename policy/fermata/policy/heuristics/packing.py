"""Packing: the tasks that take the most executors together first, while there is still room for them."""

from fermata.policy.heuristics.base import Heuristic
from fermata.policy.heuristics.kernel import BY_TASK_SLOTS, Rule

PACKING = Heuristic("packing", "the stage whose tasks take the most executors together", Rule(order=BY_TASK_SLOTS))
