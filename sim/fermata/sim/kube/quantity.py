"""Kubernetes quantities: `500m`, `2`, `1Gi`."""

from __future__ import annotations

_FACTORS = {
    "n": 1e-9, "u": 1e-6, "m": 1e-3, "": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18,
    "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50, "Ei": 2.0**60,
}  # fmt: skip


def parse_quantity(text: str | int | float) -> float:
    """Return the number that a quantity stands for.

    Raises:
        ValueError: for anything that is no quantity.

    >>> [parse_quantity(text) for text in ("500m", "2", "1Ki", 3, "1e3")]
    [0.5, 2.0, 1024.0, 3.0, 1000.0]
    """
    if isinstance(text, (int, float)):
        return float(text)
    number = text.rstrip("KMGTPEinumk") if not text.endswith(tuple("0123456789.")) else text
    suffix = text[len(number) :]
    if suffix not in _FACTORS:
        raise ValueError(f"{text!r} is no quantity")
    return float(number) * _FACTORS[suffix]
