"""Kubernetes quantities: `500m`, `2`, `1Gi`."""

from __future__ import annotations

import math
import re
from typing import Any

from fermata.sim.kube.errors import MistypedError

MOST = 2.0**63
_FORM = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)([numkMGTPE]|[KMGTPE]i)?")
_FACTORS = {
    "n": 1e-9, "u": 1e-6, "m": 1e-3, "": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18,
    "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50, "Ei": 2.0**60,
}  # fmt: skip


def parse_quantity(amount: Any) -> float:
    """Return the number that a quantity stands for, at most MOST, as Kubernetes does.

    Raises:
        ValueError: for anything that is no quantity.

    >>> [parse_quantity(amount) for amount in ("500m", "2", "1Ki", 3, "1e3", "1E")]
    [0.5, 2.0, 1024.0, 3.0, 1000.0, 1e+18]
    """
    if isinstance(amount, (int, float)) and not isinstance(amount, bool) and abs(amount) < math.inf:
        return float(min(amount, MOST))
    form = _FORM.fullmatch(amount.strip()) if isinstance(amount, str) else None
    if form is None:
        raise ValueError(f"{amount!r} is no quantity")
    return min(float(form[1]) * _FACTORS[form[2] or ""], MOST)


def parse_quantities(amounts: dict[str, Any] | None) -> dict[str, float]:
    """Return the numbers that the quantities of a client's object stand for.

    Raises:
        MistypedError: one is no quantity, which is found when an object is read.
    """
    try:
        return {name: parse_quantity(amount) for name, amount in (amounts or {}).items()}
    except ValueError as error:
        raise MistypedError(400, "BadRequest", f"quantities must match the regular expression: {error}") from error
