"""How much longer a running task takes, when estimates are known to be wrong.

An estimate that is exact leaves `estimate - elapsed`. Where they are off, a task that has outlived its estimate does
not end at once, and one that is close to it takes a little longer than it says: what is expected is the mean of the
durations that are longer than what has passed, for durations spread lognormally around the estimate as those of recent
tasks were (`fermata.policy.estimate_error`).
"""

from __future__ import annotations

import math

from fermata.policy._jit import kernel

_SQRT2 = math.sqrt(2.0)
# Of a normal variable with mean 0, E|x| is sqrt(2 / pi) standard deviations.
_SPREAD_OF_ERROR = math.sqrt(math.pi / 2.0)
_EXACT = 1e-3  # a spread below this is none
_BEGUN = 1e-9  # share of the estimate below which a task has only just begun
_NOTHING_S = 1e-250  # an estimate that small, over what has passed, might be no number above zero
_FAR = -3.0  # standard deviations beyond which the tail's own slope stands for it


@kernel
def expected_left_s(left_s: float, estimate_s: float, error: float) -> float:
    """Return the seconds that a running task is expected to take yet; at least 0, and at least `left_s`.

    Args:
        left_s: estimate minus what has passed; negative once the estimate is outlived.
        estimate_s: of the whole task: the mean duration.
        error: mean |ln(duration / estimate)| of recent tasks.
    """
    spread = error * _SPREAD_OF_ERROR
    passed_s = estimate_s - left_s
    if spread < _EXACT or estimate_s <= _NOTHING_S or passed_s <= _BEGUN * estimate_s:
        return max(left_s, 0.0)
    beyond = (math.log(estimate_s / passed_s) - 0.5 * spread * spread) / spread
    if beyond < _FAR:
        # The mean excess of a lognormal far out in its tail.
        return passed_s * spread / -beyond
    survive = math.erfc(-beyond / _SQRT2)
    mean_s = estimate_s * math.erfc(-(beyond + spread) / _SQRT2) / survive
    return max(mean_s - passed_s, left_s, 0.0)
