"""Virtual time: what is due at each moment."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable

from fermata.operator.times import render


class Timeline:
    """A clock that jumps to what is due next.

    Args:
        now_s: the first moment, seconds since the epoch.
    """

    def __init__(self, now_s: float) -> None:
        self.now_s = now_s
        self._due: list[tuple[float, int, Callable[[], object]]] = []
        self._numbers = itertools.count()  # what is due at one moment happens in the order in which it was asked for

    def after(self, delay_s: float, what: Callable[[], object]) -> None:
        """Have something happen in so many seconds."""
        heapq.heappush(self._due, (self.now_s + delay_s, next(self._numbers), what))

    @property
    def next_s(self) -> float:
        """When something is due next."""
        return self._due[0][0] if self._due else math.inf

    def happen(self) -> None:
        """Do what is due by now."""
        while self.next_s <= self.now_s:
            heapq.heappop(self._due)[2]()

    def stamp(self) -> str:
        """Return the time as an API server stamps it: whole seconds."""
        return render(math.floor(self.now_s))
