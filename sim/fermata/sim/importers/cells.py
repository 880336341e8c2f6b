"""What stands in a cell of a table: numbers, times and dates, as people and programs write them."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from typing import NamedTuple

from fermata.sim.trace_builder import MAX_TIME_S

_TIME = re.compile(r"(?:(\d+)(?:-| days?,? ))?(?:(\d+):)?(\d+):(\d+(?:\.\d+)?)")
_MOST_LETTERS = 40  # of what an error repeats


class Moment(NamedTuple):
    """A time: seconds, from 1970 on if it was a date, else from wherever the table counts."""

    seconds: float
    dated: bool


def shown(word: str) -> str:
    """Return a word as an error repeats it."""
    return repr(word if len(word) <= _MOST_LETTERS else word[:_MOST_LETTERS] + "…")


def number_of(word: str, what: str) -> float:
    """Return the number that a word says.

    Args:
        word: of the table.
        what: where it stands.

    Raises:
        ValueError: it is none, or too large.
    """
    try:
        number = float(word)
    except ValueError:
        number = math.nan
    if not abs(number) <= MAX_TIME_S:
        raise ValueError(f"{what} must be a number of at most {MAX_TIME_S:g}, not {shown(word)}")
    return number


def moment_of(word: str, what: str) -> Moment:
    """Return the time that a word says.

    Args:
        word: of the table.
        what: where it stands.

    Raises:
        ValueError: it is none.

    >>> moment_of("86400", "t").seconds, moment_of("1970-01-02 01:00:00+01:00", "t").seconds
    (86400.0, 86400.0)
    """
    try:  # at first, as many a number can be read as a date, too
        return Moment(number_of(word, what), dated=False)
    except ValueError:
        pass
    try:
        date = datetime.fromisoformat(word)
    except ValueError as error:
        told = f"{what} must be a number of seconds, or a date as 2026-11-30 14:05:00, not {shown(word)}"
        raise ValueError(told) from error
    return Moment((date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp(), dated=True)


def seconds_of(word: str, what: str) -> float:
    """Return how long a word says that something takes, seconds.

    Args:
        word: of the table.
        what: where it stands.

    Raises:
        ValueError: it is no time.

    >>> [seconds_of(word, "t") for word in ("90.5", "01:30", "1-00:00:01", "1 day, 0:00:01", "2 days 01:00:00")]
    [90.5, 90.0, 86401.0, 86401.0, 176400.0]
    """
    if match := _TIME.fullmatch(word):
        days, hours, minutes, seconds = (float(part or 0.0) for part in match.groups())
        return ((days * 24.0 + hours) * 60.0 + minutes) * 60.0 + seconds
    try:
        return number_of(word, what)
    except ValueError as error:
        told = f"{what} must be a number of seconds, or a time as 1-02:03:04 or 02:03:04, not {shown(word)}"
        raise ValueError(told) from error
