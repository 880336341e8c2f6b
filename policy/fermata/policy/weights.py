"""Weights that stand twice in a model's file: in its graph, and in its metadata for compiled code.

Only text and numbers are known here; which networks there are is not.
"""

from __future__ import annotations

import base64

import numpy as np
from numpy.typing import NDArray

from fermata.policy.errors import ModelError

Floats = NDArray[np.float64] | NDArray[np.float32]


def packed(theta: Floats) -> str:
    """Return weights as metadata has them: base64 of little-endian float32.

    >>> packed(np.array([1.0]))
    'AACAPw=='
    """
    return base64.b64encode(theta.astype("<f4").tobytes()).decode()


def unpacked(text: str) -> NDArray[np.float32]:
    """Return what was packed.

    Raises:
        ValueError, TypeError: it is not what `packed` returns.

    >>> unpacked("AACAPw==").tolist()
    [1.0]
    """
    read_only = np.frombuffer(base64.b64decode(text, validate=True), "<f4")
    return read_only.astype(np.float32)


def expect_finite(what: str, theta: Floats, count: int) -> None:
    """Refuse weights of another number, or infinite ones.

    Raises:
        ModelError: they are; it begins with `what`.
    """
    if len(theta) != count or not np.isfinite(theta).all():
        raise ModelError(f"{what}: expected {count} finite weights, found {len(theta)}")


def expect_same(what: str, ours: Floats, answered: Floats, relative: float, absolute: float) -> None:
    """Refuse a file whose graph does not answer as its weights do, up to these tolerances.

    Raises:
        ModelError: it does not; it begins with `what`.
    """
    if np.shape(answered) != ours.shape or not np.allclose(ours, answered, rtol=relative, atol=absolute):
        raise ModelError(f"{what}: its graph and its weights give different answers")
