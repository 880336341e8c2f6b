"""Where a model holds, against where it could: distributions of each feature, as SchedInspector's Figure 13 has them.

Source: Zhang et al., "SchedInspector: A Batch Job Scheduling Inspector Using Reinforcement Learning", HPDC 2022,
Figure 13.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fermata.policy.features import FEATURES
from fermata.sim.explain.states import States
from fermata.sim.trace import FloatArray

_POINTS = 200


@dataclass(frozen=True)
class Distribution:
    """One feature's values, sorted."""

    name: str
    every: FloatArray  # [states]
    held: FloatArray  # [states in which it waited]
    distance: float  # greatest difference of the two cumulative shares (Kolmogorov-Smirnov), 0 to 1


def distance(left: FloatArray, right: FloatArray) -> float:
    """Return the greatest difference between the cumulative shares of two sorted samples, neither of them empty.

    >>> distance(np.array([1.0, 2.0, 3.0, 4.0]), np.array([3.0, 4.0]))
    0.5
    """
    at = np.concatenate([left, right])
    shares = [np.searchsorted(each, at, side="right") / len(each) for each in (left, right)]
    return float(np.abs(shares[0] - shares[1]).max())


def distributions(states: States) -> list[Distribution]:
    """Return every feature's distribution, the most telling first; nothing for a model that holds in no state."""
    held = states.held
    if not held.any():
        return []
    found = []
    for column, name in enumerate(FEATURES):
        every, where = (np.sort(rows[:, column].astype(np.float64)) for rows in (states.rows, states.rows[held]))
        found.append(Distribution(name, every, where, distance(every, where)))
    return sorted(found, key=lambda each: -each.distance)


def cumulative(values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return at most 200 points (value, share of the values that are not above it) of a sorted sample."""
    at = np.unique(np.linspace(0, len(values) - 1, _POINTS).round().astype(int))
    # Of equal values the last one: a step goes up where they stand, all at once.
    last = np.searchsorted(values, values[at], side="right")
    return values[at], last / len(values)
