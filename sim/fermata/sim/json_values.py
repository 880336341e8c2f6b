"""What JSON can say of numbers: it has no NaN."""

from __future__ import annotations

import math
from typing import Any


def without_nan(value: Any) -> Any:
    """Return a value of dicts, lists, tuples and numbers with None for NaN, all the way down.

    >>> without_nan({"a": float("nan"), "b": [1.0, (float("nan"),)]})
    {'a': None, 'b': [1.0, [None]]}
    """
    if isinstance(value, dict):
        return {key: without_nan(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(item) for item in value]
    return None if isinstance(value, float) and math.isnan(value) else value
