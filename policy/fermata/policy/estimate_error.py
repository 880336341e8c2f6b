"""How wrong estimates have been lately: two numbers that tell a policy how far to trust what it reads.

Every policy that holds bets on lengths. Where they are wrong the bet is lost, and the state alone does not show it: a
pool whose short jobs are long looks like one with many short jobs. So each finished task is compared with its estimate.
Being off a little always and being off by far now and then are different troubles: hence a mean error and a share of
misses.
"""

from __future__ import annotations

import math

from fermata.policy._jit import inlined

MEMORY = 100  # tasks, over which both fade
_MOST = 5.0  # of |ln(duration / estimate)|: one task that was off by more says no more
_MISS = math.log(3.0)  # from here on a task was another kind of task than was believed
_LEAST_S = 1e-3  # what counts as no time at all


@inlined
def after_task(error: float, misses: float, measured: int, duration_s: float, estimate_s: float) -> tuple[float, float]:
    """Return both numbers after one task more.

    Args:
        error: mean |ln(duration / estimate)| so far.
        misses: share of the tasks that were off by more than a factor of three.
        measured: of how many tasks; the first ones count alike, later ones fade over `MEMORY` tasks.
        duration_s: how long the task took.
        estimate_s: how long it was expected to take.
    """
    off = abs(math.log(max(duration_s, _LEAST_S) / max(estimate_s, _LEAST_S)))
    weight = 1.0 / min(measured + 1, MEMORY)
    miss = 1.0 if off > _MISS else 0.0
    return error + weight * (min(off, _MOST) - error), misses + weight * (miss - misses)


def after_tasks(
    error: float, misses: float, measured: int, tasks: int, duration_s: float, estimate_s: float
) -> tuple[float, float]:
    """Return both numbers after so many tasks more that took the same: what `after_task` makes of one after the other.

    >>> after_tasks(0.0, 0.0, 10, 30, 40.0, 10.0)[1]
    0.75
    """
    off, miss = after_task(0.0, 0.0, 0, duration_s, estimate_s)
    alike = min(tasks, max(MEMORY - measured, 0))
    kept = (measured / (measured + alike) if alike else 1.0) * (1.0 - 1.0 / MEMORY) ** (tasks - alike)
    return off + kept * (error - off), miss + kept * (misses - miss)
