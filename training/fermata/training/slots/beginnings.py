"""Where a search for scores may begin: at those that ship, and at orders that never hold."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fermata.policy.several_slots import UNITS, WEIGHTS
from fermata.policy.slot_features import NAMES, SIZE
from fermata.policy.slot_scores import SHIPPED

FloatArray = NDArray[np.float64]

AS_SHIPPED, SHORTEST = -2, -1  # their numbers; of a generation it is 0 or more
_NEVER_HELD = 10.0  # above what the features of an order can take away


class Beginning(NamedTuple):
    """Weights that a search may begin at."""

    name: str
    weights: FloatArray


def _order(**features: float) -> FloatArray:
    """Return the weights of an order by some features, of what fits, and without a hold."""
    weights = np.zeros(WEIGHTS)
    weights[NAMES.index("one")] = _NEVER_HELD
    for name, weight in features.items():
        weights[NAMES.index(name)] = weight
    weights.setflags(write=False)
    return weights


_WORK, _TIME = "work over the least of what waits", "work over its width, over the least of what waits"

# Many widths make an order by work alone starve the wide ones. Which of these is best there depends on the workload.
BEGINNINGS = {
    AS_SHIPPED: Beginning("the scores that ship", SHIPPED),
    SHORTEST: Beginning("shortest first, without a hold", _order(**{_WORK: -1.0})),
    -3: Beginning("shortest first by time, without a hold", _order(**{_TIME: -1.0})),
    -4: Beginning("longest wait for its length first, without a hold", _order(**{"it waits / task": 5.0})),
    -5: Beginning("widest first, without a hold", _order(**{"width, log": 3.0, _WORK: -1.0})),
}


def with_units(order: FloatArray) -> FloatArray:
    """Return an order with the units of the scores that ship, which lead nowhere yet."""
    weights, units = order.copy(), SHIPPED[SIZE:].reshape(UNITS, SIZE + 1).copy()
    units[:, SIZE] = 0.0
    weights[SIZE:] = units.ravel()
    return weights
