"""The weights of scores (`several_slots`) in a model's file: those that ship, unless it has some of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fermata.policy.errors import ModelError
from fermata.policy.several_slots import WEIGHTS
from fermata.policy.slot_features import NAMES
from fermata.policy.slot_weights import SLOT_WEIGHTS
from fermata.policy.state import FloatArray
from fermata.policy.weights import expect_finite, unpacked

PART = "several_executors"  # in the metadata of a model
SCHEMA = "fermata.slot-scores/2"  # what `slot_features` writes
SHIPPED: FloatArray = np.array(SLOT_WEIGHTS)
_NEVER_HELD = 10.0  # above what the work of what waits can take away


def shortest_first() -> FloatArray:
    """Return the weights [WEIGHTS] of shortest remaining work first, of what fits, and without a hold."""
    weights = np.zeros(WEIGHTS)
    weights[NAMES.index("work over the least of what waits")] = -1.0
    weights[NAMES.index("one")] = _NEVER_HELD
    return weights


def weights_in(what: str, metadata: Mapping[str, Any]) -> FloatArray:
    """Return the weights [WEIGHTS] that a model brings, or those that ship.

    Args:
        what: its file, for messages.
        metadata: of the model.

    Raises:
        ModelError: its part is for other features, or no such weights.
    """
    part = metadata.get(PART)
    if part is None:
        return SHIPPED
    if not isinstance(part, Mapping) or part.get("schema") != SCHEMA:
        found = part.get("schema") if isinstance(part, Mapping) else part
        raise ModelError(
            f"{what}: its scores for tasks of several executors are of schema {found!r}; "
            f"this version reads {SCHEMA}: train and export them again"
        )
    try:
        weights = unpacked(part.get("theta", "")).astype(np.float64)
    except (TypeError, ValueError) as error:
        raise ModelError(f"{what}: its scores for tasks of several executors cannot be read ({error})") from error
    expect_finite(f"{what}: scores for tasks of several executors", weights, WEIGHTS)
    return weights
