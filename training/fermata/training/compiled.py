"""Experts as arrays for the compiled simulator; what only plays needs them, so this must not load torch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fermata.policy.learned import Network, network_of


def side_by_side(experts: Sequence[tuple[np.ndarray, ...]], margin: float, members: Sequence[int]) -> Network:
    """Return experts as one compiled network.

    Args:
        experts: of each the first eight fields of `Network`, without the output of the head, whose cost is 0.
        margin: of the network.
        members: of each expert.
    """
    whole = []
    for *inner, weight3, bias3 in experts:
        none = np.zeros((len(weight3), 1))
        whole.append((*inner, np.hstack([none, weight3]), np.concatenate([[0.0], bias3])))
    units = [(len(each[3]), len(each[5])) for each in whole]
    return network_of(tuple(_stacked(each) for each in zip(*whole, strict=True)), margin, units, members)


def _stacked(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """Return arrays of the same number of dimensions as one, the smaller ones filled up with zeros."""
    shape = tuple(max(sizes) for sizes in zip(*(each.shape for each in arrays), strict=True))
    stacked = np.zeros((len(arrays), *shape))
    for place, each in zip(stacked, arrays, strict=True):
        place[tuple(slice(size) for size in each.shape)] = each
    return stacked
