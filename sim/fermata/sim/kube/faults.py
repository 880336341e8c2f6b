"""Faults on demand: answers that are errors, late, or lost, so that clients can be tested against a bad day.

Off unless somebody adds one. Tells by user, method and path whom it hits, so that a controller can be hurt alone.
"""

from __future__ import annotations

import asyncio
import random
import re
from dataclasses import dataclass, field

from fermata.sim.kube.errors import ApiError

_REASONS = {409: "Conflict", 410: "Expired", 429: "TooManyRequests", 500: "InternalError", 503: "ServiceUnavailable"}


class LostError(Exception):
    """The connection is to be cut without an answer."""


@dataclass(slots=True)
class Fault:
    """One kind of trouble.

    Args:
        status: answer with this HTTP status instead of doing anything; 0 answers as usual.
        delay_s: wait so long before that, in seconds.
        lost: cut the connection: `before` nothing is done, or `after` all is done and the client never learns of it.
        methods: HTTP methods that are hit; all if empty. `WATCH` names what a watch sends, which can only be late.
        path: regular expression that is searched for in the URL's path.
        user: regular expression for the name of the user.
        share: probability to be hit, from 0 to 1.
        times: how many requests are hit in all; None for no end.
    """

    status: int = 0
    delay_s: float = 0.0
    lost: str = ""
    methods: frozenset[str] = frozenset()
    path: str = ""
    user: str = ""
    share: float = 1.0
    times: int | None = None
    hits: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        if self.lost not in ("", "before", "after"):
            raise ValueError(f"lost is 'before' or 'after', not {self.lost!r}")

    def hit(self, draw: random.Random, user: str, method: str, path: str) -> bool:
        """Return whether this request is hit, and count it."""
        if self.times is not None and self.hits >= self.times:
            return False
        if (self.methods and method not in self.methods) or not re.search(self.path, path):
            return False
        if not re.search(self.user, user) or draw.random() >= self.share:
            return False
        self.hits += 1
        return True


class Faults:
    """The faults in force."""

    def __init__(self) -> None:
        self._active: list[Fault] = []
        self._draw = random.Random(0)  # noqa: S311 - no secret: who is hit, where a fault hits a share

    def add(self, fault: Fault) -> Fault:
        """Put a fault in force and return it."""
        self._active.append(fault)
        return fault

    def remove(self, fault: Fault) -> None:
        """End a fault."""
        self._active.remove(fault)

    def lag_s(self, user: str, path: str) -> float:
        """Return how late, in seconds, a watch is told what it would be told now."""
        watched = [fault for fault in self._active if "WATCH" in fault.methods]
        return max((fault.delay_s for fault in watched if fault.hit(self._draw, user, "WATCH", path)), default=0.0)

    async def meet(self, user: str, method: str, path: str) -> bool:
        """Let a request meet the first fault that hits it; return whether its answer is to be lost once it is done.

        Raises:
            ApiError: the answer of the fault.
            LostError: the connection is to be cut now.
        """
        for fault in tuple(self._active):
            if not fault.hit(self._draw, user, method, path):
                continue
            if fault.delay_s:
                await asyncio.sleep(fault.delay_s)
            if fault.status:
                raise ApiError(fault.status, _REASONS.get(fault.status, "Unknown"), "injected fault")
            if fault.lost == "before":
                raise LostError
            return fault.lost == "after"
        return False
