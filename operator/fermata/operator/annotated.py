"""What this operator wrote into annotations of Jobs and pods, read back: others can write them, too. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from fermata.operator.resources import MAX_EXECUTORS, MAX_SECONDS
from fermata.operator.times import parse

Annotations = Mapping[str, str]


def time_in(annotations: Annotations, key: str, default_s: float) -> float:
    """Return a time, seconds since the epoch; nonsense is the default."""
    try:
        seconds = parse(annotations.get(key, ""))
    except ValueError:
        return default_s
    return seconds if seconds >= 0.0 else default_s


def seconds_in(annotations: Annotations, key: str) -> float | None:
    """Return a duration, with six decimals; None where there is none, or nonsense."""
    try:
        seconds = round(float(annotations.get(key, "")), 6)
    except ValueError:
        return None
    return seconds if 0.0 <= seconds <= MAX_SECONDS else None


def slots_in(annotations: Annotations, key: str) -> int | None:
    """Return how many executors a task takes; None where there is no such number."""
    text = annotations.get(key, "")
    slots = int(text) if text.isdecimal() and len(text) <= len(str(MAX_EXECUTORS)) else 0
    return slots if 1 <= slots <= MAX_EXECUTORS else None


def text_in(annotations: Annotations, key: str, most: int) -> str:
    """Return a text, cut to the length that a status takes."""
    return annotations.get(key, "")[:most]
