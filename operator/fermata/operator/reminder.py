"""When the log says again what stays in the way: at once where it is new, and now and then afterwards.

What lasts is tried again for hours, in a pool of many for many at once, and a log in which each attempt is a line has
nothing else in it. Knows nothing of what is said.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable

_REMEMBERED = 1000  # things of which something was said lately


class Reminder:
    """Remembers what was said of each thing, and when.

    Args:
        every_s: after how many seconds the same is said again.
        clock: monotonic, seconds.
    """

    def __init__(self, every_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._every_s, self._clock = every_s, clock
        self._said: dict[Hashable, tuple[str, float]] = {}  # oldest first

    def is_due(self, about: Hashable, trouble: str) -> bool:
        """Tell whether something is to be said, and count it as said if it is.

        >>> reminder = Reminder(60.0, clock=lambda: 0.0)
        >>> reminder.is_due("jobs", "you may not"), reminder.is_due("jobs", "you may not")
        (True, False)
        """
        said, at_s = self._said.get(about, (None, 0.0))
        if trouble == said and self._clock() < at_s + self._every_s:
            return False
        self._said.pop(about, None)
        self._said[about] = trouble, self._clock()
        if len(self._said) > _REMEMBERED:
            del self._said[next(iter(self._said))]
        return True
