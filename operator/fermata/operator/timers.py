"""Wake-ups: one date job for each pool, at the earliest moment at which something happens without an event.

Nothing is stored: every reconciliation arms its pool again from what the API holds, so a restart loses no timer.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from apscheduler.schedulers.asyncio import AsyncIOScheduler

# A wake-up that is farther away than the year 9999 cannot be a date, and need not be one.
_FARTHEST_S = 10 * 365 * 24 * 3600.0
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

    def start(self) -> None:
        """Begin to wake; needs a running event loop."""
        self._scheduler.start()

    def stop(self) -> None:
        """Wake nobody any more."""
        if self._scheduler.running:
            self._scheduler.shutdown(wait=False)

    def arm(self, pool: str, at_s: float) -> None:
        """Wake a pool at a time (inf: not at all), and at no other that was asked for earlier."""
        if self._armed.get(pool) == at_s:
            return
        self._armed[pool] = at_s
        if math.isinf(at_s) or at_s - self._now() > _FARTHEST_S:
            if self._scheduler.get_job(pool):
                self._scheduler.remove_job(pool)
            return
        # The scheduler's clock is this machine's, and `now` may be another's.
        when = datetime.now(UTC) + timedelta(seconds=max(at_s - self._now(), 0.0))
        self._scheduler.add_job(self._fire, "date", run_date=when, args=[pool], id=pool, replace_existing=True)

    async def _fire(self, pool: str) -> None:
        """Wake a pool; a coroutine, or the scheduler would call it in a thread of its own, beside the event loop."""
        self._armed.pop(pool, None)
        self._wake(pool)
