"""When what failed is tried again: soon, and less and less often. Knows nothing of what it is."""

from __future__ import annotations

from typing import NamedTuple

from fermata.operator.clock import is_put_off

# One failure is a bad moment, ten are an outage.
RETRY_S = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
# An API server in trouble is asked more often: that ends by itself, unlike a quota or a missing right.
_RETRY_BUSY_S = RETRY_S[:6]
# A wait counts from an answer, which comes a while after the round has begun: so it is longer than any of these.
MOST_S = 2 * RETRY_S[-1]


class Failure(NamedTuple):
    """Why something was not done, until when it is left alone, and how often it has failed so far."""

    message: str
    until_s: float
    times: int

    @classmethod
    def after(cls, before: Failure | None, message: str, now_s: float, *, busy: bool) -> Failure:
        """Return the next one; `busy` is the API server, which is in trouble, rather than against it."""
        times, delays_s = before.times if before else 0, _RETRY_BUSY_S if busy else RETRY_S
        return cls(message, now_s + delays_s[min(times, len(delays_s) - 1)], times + 1)


def is_due(failure: Failure | None, now_s: float) -> bool:
    """Tell whether something may be done now, that failed or did not."""
    return failure is None or not is_put_off(failure.until_s, now_s, MOST_S)
