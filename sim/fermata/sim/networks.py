"""Experts as arrays for the compiled simulator, wherever they come from: a file, or torch, which this must not load."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from fermata.policy.features import SIZE
from fermata.policy.learned import ACTIONS, EXPERTS, Network
from fermata.policy.rows import Values, new_values
from fermata.policy.slot_scores import SHIPPED, shortest_first
from fermata.sim.trace import FloatArray


def side_by_side(
    experts: Sequence[tuple[FloatArray, ...]],
    margin: float,
    members: Sequence[int],
    reach: float = math.inf,
    slot_weights: Values | None = None,
) -> Network:
    """Return experts as one compiled network.

    Args:
        experts: of each a mean and a scale [inputs], and weights [inputs, outputs] and biases [outputs] of three
            layers, without the output of the head, whose cost is 0.
        margin: of the network.
        members: of each expert.
        reach: log executors beyond which leaving the head must save more.
        slot_weights: of the scores where tasks take several executors; those that ship by default.
    """
    mean, scale, weight1, bias1, weight2, bias2, weight3, bias3 = (
        _stacked(each) for each in zip(*map(_packed, experts, members), strict=True)
    )
    units = np.array([(len(each[3]), len(each[5])) for each in experts])
    layers = (mean, scale, weight1, bias1, weight2, bias2, weight3, bias3)
    scratch = (np.empty(each.shape[1]) for each in (mean, bias1, bias2, bias3))
    scores = new_values(SHIPPED) if slot_weights is None else slot_weights
    return Network(*layers, units, np.array(members), margin, reach, scores, *scratch)


def eager() -> Network:
    """Return the network that never leaves the head, whatever it costs, also where tasks take several executors."""
    widths = (SIZE, 1, 1, len(ACTIONS) - 1)
    layers = (each for pair in pairwise(widths) for each in (np.zeros(pair), np.zeros(pair[1])))
    experts = [(np.zeros(SIZE), np.ones(SIZE), *layers)] * len(EXPERTS)
    return side_by_side(experts, math.inf, [1] * len(EXPERTS), slot_weights=new_values(shortest_first()))


def _packed(expert: tuple[FloatArray, ...], members: int) -> tuple[FloatArray, ...]:
    """Return an expert's arrays as `Network` has them, with an output of 0 for the head."""
    mean, scale, weight1, bias1, weight2, bias2, weight3, bias3 = expert
    own = [np.hsplit(rows, members)[k] for k, rows in enumerate(np.vsplit(weight2, members))]
    last = np.hstack([np.zeros((len(weight3), 1)), weight3])
    return (
        mean,
        scale,
        weight1.ravel(),
        bias1,
        np.concatenate(own).ravel(),
        bias2,
        last.ravel(),
        np.concatenate([[0.0], bias3]),
    )


def _stacked(arrays: Sequence[FloatArray]) -> FloatArray:
    """Return lists of numbers as one array, the shorter ones filled up with zeros."""
    stacked = np.zeros((len(arrays), max(map(len, arrays))))
    for place, each in zip(stacked, arrays, strict=True):
        place[: len(each)] = each
    return stacked
