"""Wake-ups: one date job for each pool, at the earliest moment at which something happens without an event.

Nothing is stored: every reconciliation arms its pool again from what the API holds, so a restart loses no timer.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from apscheduler.schedulers.asyncio import AsyncIOScheduler

# A wake-up that is farther away than the year 9999 cannot be a date, and need not be one.
_FARTHEST_S = 10 * 365 * 24 * 3600.0
_LOOK_S = 5.0  # how often the clocks are looked at
_SET_S = 1.0  # a clock that has moved so far against the other was set
# However late, a wake-up is not left out: neither because its time is past, nor because the one before is not yet
# counted as over. Nobody would ask for it again.
_JOBS = {"misfire_grace_time": None, "coalesce": True, "max_instances": 1_000}


class Timers:
    """Wake-ups by pool.

    Args:
        now: the clock, seconds since the epoch.
        wake: called with the name of a pool when its time has come.
    """

    def __init__(self, now: Callable[[], float], wake: Callable[[str], None]) -> None:
        self._now, self._wake = now, wake
        self._scheduler = AsyncIOScheduler(timezone=UTC, job_defaults=_JOBS)
        self._armed: dict[str, float] = {}
        self._look: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to wake; needs a running event loop."""
        self._scheduler.start()
        self._follow_clocks(self._apart_s())

    def stop(self) -> None:
        """Wake nobody any more."""
        if self._look is not None:
            self._look.cancel()
        if self._scheduler.running:
            self._scheduler.shutdown(wait=False)

    def arm(self, pool: str, at_s: float) -> None:
        """Wake a pool at a time (inf: not at all), and at no other that was asked for earlier."""
        if self._armed.get(pool, math.inf) == at_s:
            return
        if math.isinf(at_s):
            del self._armed[pool]
        else:
            self._armed[pool] = at_s
        self._schedule(pool, at_s)

    def _schedule(self, pool: str, at_s: float) -> None:
        if math.isinf(at_s) or at_s - self._now() > _FARTHEST_S:
            if self._scheduler.get_job(pool):
                self._scheduler.remove_job(pool)
            return
        # The scheduler's clock is this machine's, and `now` may be another's.
        when = datetime.now(UTC) + timedelta(seconds=max(at_s - self._now(), 0.0))
        self._scheduler.add_job(self._fire, "date", run_date=when, args=[pool], id=pool, replace_existing=True)

    def _apart_s(self) -> float:
        """Return by how much the scheduler's clock is ahead of `now`."""
        return datetime.now(UTC).timestamp() - self._now()

    def _follow_clocks(self, apart_s: float) -> None:
        """Schedule all wake-ups anew when a clock was set, or they would be late by as much; look again soon.

        Where `now` may have been set back, wake all: what they put off for a moment would be put off by as much more.
        The event loop has to call this: its clock is never set.
        """
        moved_s = self._apart_s() - apart_s
        if abs(moved_s) > _SET_S:
            apart_s += moved_s
            for pool, at_s in self._armed.items():
                self._schedule(pool, at_s)
                if moved_s > 0.0:
                    self._wake(pool)
        self._look = asyncio.get_running_loop().call_later(_LOOK_S, self._follow_clocks, apart_s)

    async def _fire(self, pool: str) -> None:
        """Wake a pool; a coroutine, or the scheduler would call it in a thread of its own, beside the event loop."""
        self._armed.pop(pool, None)
        self._wake(pool)
