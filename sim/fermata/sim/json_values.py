"""What JSON can say of numbers: it has neither NaN nor infinities."""

from __future__ import annotations

import math
from typing import Any


def only_finite(value: Any) -> Any:
    """Return a value of dicts, lists, tuples and numbers with None for what is no finite number, all the way down.

    >>> only_finite({"a": float("nan"), "b": [1.0, (float("inf"),)]})
    {'a': None, 'b': [1.0, [None]]}
    """
    if isinstance(value, dict):
        return {key: only_finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [only_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
