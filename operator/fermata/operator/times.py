"""Instants: seconds since the epoch inside, RFC 3339 in the API, and how to see through the API's whole seconds.

Kubernetes cuts its own timestamps to the second, which is as long as a whole short task. What this operator writes has
microseconds, and `refine` combines a cut timestamp with the moment at which the object was seen.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime

# A watch event is later than what it tells; within this much it still says more than a timestamp cut to the second.
_EVENT_DELAY_S = 0.25
# What was not seen as it happened, and was stamped with a second, happened in the middle of that.
_UNSEEN_S = 0.5
# Seen within that second, and perhaps long after it happened: what `refine` returns is at most so far off.
MOST_OFF_S = 1.0
# No time is read that could not be written again, with a little more to it.
_END_S = datetime(9999, 1, 1, tzinfo=UTC).timestamp()


def parse(text: str) -> float:
    """Return the seconds since the epoch of an RFC 3339 time.

    Raises:
        ValueError: it is not one.

    >>> parse("1970-01-01T00:01:00.5Z")
    60.5
    """
    instant = datetime.fromisoformat(text)
    try:
        seconds = (instant.astimezone(UTC) if instant.tzinfo else instant.replace(tzinfo=UTC)).timestamp()
    except OverflowError:
        seconds = math.inf
    if seconds >= _END_S:
        raise ValueError(f"{text!r} is no time between the years 1 and 9998")
    return seconds


def parse_or_none(text: str | None) -> float | None:
    """Return `parse` of a text, or None where there is none, or none that is a time: others can write statuses, too."""
    try:
        return None if not text else parse(text)
    except ValueError:
        return None


def render(seconds: float) -> str:
    """Return seconds since the epoch as RFC 3339 with microseconds.

    >>> render(60.5)
    '1970-01-01T00:01:00.500000Z'
    """
    return datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def render_or_none(seconds: float | None) -> str | None:
    """Return `render` of an instant, or None where there is none."""
    return None if seconds is None else render(seconds)


def refine(stamp_s: float, seen_s: float) -> float:
    """Return the best guess of when something happened that was stamped, perhaps cut to the second, and seen later.

    Args:
        stamp_s: the API's timestamp.
        seen_s: when it was first seen, by a clock that may be wrong.

    >>> refine(100.0, 100.4), refine(100.0, 250.0), refine(100.25, 101.0)
    (100.4, 100.5, 100.25)
    """
    if stamp_s != int(stamp_s):
        return stamp_s
    if stamp_s <= seen_s < stamp_s + 1.0 + _EVENT_DELAY_S:
        return min(seen_s, stamp_s + MOST_OFF_S)
    return stamp_s + _UNSEEN_S
