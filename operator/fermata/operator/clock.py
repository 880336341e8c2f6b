"""The API server's clock, told from the dates of its answers.

Creation times, and with them arrivals and deadlines, are the server's. An operator whose own clock is a minute behind
would take new work for work of the future, and start it a minute late. One whose clock is set while it runs must not,
until the next answer comes, take all deadlines for passed.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from email.utils import parsedate_to_datetime

_REMIND_S = 60.0  # several API servers may answer in turn, whose clocks differ from each other

log = logging.getLogger(__name__)


def steady() -> Callable[[], float]:
    """Return this machine's clock as it is now, seconds since the epoch; it goes on evenly when that one is set."""
    epoch_s = time.time() - time.monotonic()
    return lambda: epoch_s + time.monotonic()


def is_put_off(until_s: float, now_s: float, most_s: float) -> bool:
    """Tell whether something still waits until a time, for which it waits `most_s` at the most.

    What is farther away than that was put off before the clock was set back, and is due.

    >>> is_put_off(5.0, 4.0, 2.0), is_put_off(5.0, 5.0, 2.0), is_put_off(5.0, -3600.0, 2.0)
    (True, False, False)
    """
    return now_s < until_s <= now_s + most_s


class ServerClock:
    """Seconds since the epoch as the API server has them, or this machine's where nothing speaks against it.

    A `Date` is cut to the second, so one answer bounds the difference of the clocks within a second and the time that
    the request took; all answers together bound it closely. Only a difference that is certain is corrected.

    Args:
        local: this machine's clock, seconds since the epoch; by default `steady`.
    """

    def __init__(self, local: Callable[[], float] | None = None) -> None:
        self.local = local or steady()
        self._low_s, self._high_s = -math.inf, math.inf
        self.offset_s = 0.0
        self._said_s = -math.inf

    def __call__(self) -> float:
        """Return the time."""
        return self.local() + self.offset_s

    def note(self, date: str | None, sent_s: float) -> None:
        """Take in the date of an answer.

        Args:
            date: the header, None where there was none.
            sent_s: when the request was sent, by the local clock.
        """
        if date is None:
            return
        try:
            told_s = parsedate_to_datetime(date).timestamp()
        except ValueError:
            return
        low_s, high_s = told_s - self.local(), told_s + 1.0 - sent_s
        if low_s > self._high_s or high_s < self._low_s:  # one of the clocks was set: begin anew
            self._low_s, self._high_s = low_s, high_s
        else:
            self._low_s, self._high_s = max(low_s, self._low_s), min(high_s, self._high_s)
        before_s = self.offset_s
        if not self._low_s <= self.offset_s <= self._high_s:
            self.offset_s = 0.0 if self._low_s <= 0.0 <= self._high_s else (self._low_s + self._high_s) / 2
        if abs(self.offset_s - before_s) > 1.0 and self.local() >= self._said_s + _REMIND_S:
            self._said_s = self.local()
            log.warning("this machine's clock differs from the API server's by %.1f s, which is allowed for",
                        self.offset_s)  # fmt: skip
