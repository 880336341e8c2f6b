"""What a model was taught: the range of each feature, from its metadata, and whether a state lies outside of it.

A network answers anything, and with confidence; far from what it has seen its answer means nothing. A model without an
`envelope` in its metadata is taken at its word.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fermata.policy.board import Board, board_of
from fermata.policy.decide import Policy
from fermata.policy.errors import ModelError
from fermata.policy.features import FEATURES, SIZE, observe_board
from fermata.policy.state import ClusterState

KEY = "envelope"
_NAMED = 3  # features that a message names


def _as_it_is(board: Board) -> Board:
    return board


class Envelope(NamedTuple):
    """The least and the greatest value that each feature may have."""

    low: NDArray[np.float64]  # [features]
    high: NDArray[np.float64]  # [features]
    scored: Callable[[Board], Board] = _as_it_is  # puts a model's own scores on a board: what is its head there

    def outside(self, state: ClusterState) -> str:
        """Return which features of a state lie outside, for people; empty if none does, or nothing can be started."""
        choice, row = observe_board(self.scored(board_of(state)))
        if choice.head < 0:
            return ""
        names = [FEATURES[i] for i in np.flatnonzero(~((row >= self.low) & (row <= self.high)))]
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        return ", ".join(names[:_NAMED]) + more


def envelope_of(policy: Policy) -> Envelope | None:
    """Return the envelope of a model, or None of a policy that names none.

    Raises:
        ModelError: its metadata has one that cannot be used.
    """
    metadata = getattr(policy, "metadata", None)
    raw = metadata.get(KEY) if isinstance(metadata, Mapping) else None
    if raw is None:
        return None
    low, high = (_bounds(raw, side, policy.name) for side in ("low", "high"))
    if not (low <= high).all():
        raise ModelError(f"policy {policy.name!r}: its envelope has a low above its high")
    return Envelope(low, high, getattr(policy, "scored", _as_it_is))


def _bounds(raw: Any, side: str, name: str) -> NDArray[np.float64]:
    values = raw.get(side) if isinstance(raw, Mapping) else None
    rows = values if isinstance(values, list) else []
    if len(rows) != SIZE or not all(isinstance(value, int | float) and not math.isnan(value) for value in rows):
        raise ModelError(f"policy {name!r}: expected {KEY}.{side} in its metadata to be {SIZE} numbers")
    return np.array(rows, dtype=np.float64)
