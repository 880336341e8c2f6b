"""One loop for each pool: woken by events and timers, never two at once, never taken down by its own errors.

Knows nothing of what a reconciliation does. A burst of events costs one reconciliation; one that fails is logged with
its traceback, counted, and tried again later, while all other pools go on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from fermata.operator.tasks import failure_of

COALESCE_S = 0.005  # events of one moment come together
_RETRY_S = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0)

log = logging.getLogger(__name__)


class Loops:
    """Runs `reconcile(pool)` whenever `wake(pool)` was called.

    Args:
        reconcile: brings one pool up to date.
        failed: called with the name of a pool whose reconciliation raised.
    """

    def __init__(self, reconcile: Callable[[str], Awaitable[None]], failed: Callable[[str], None]) -> None:
        self._reconcile, self._failed = reconcile, failed
        self._signals: dict[str, asyncio.Event] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._over: set[str] = set()
        self._open = False

    def open(self) -> None:
        """Begin: pools woken before now are reconciled at once."""
        self._open = True
        for pool in self._signals:
            self._run_loop(pool)

    def wake(self, pool: str) -> None:
        """Ask for a reconciliation of a pool."""
        self._signals.setdefault(pool, asyncio.Event()).set()
        if self._open:
            self._run_loop(pool)

    def pending(self, pool: str) -> bool:
        """Tell whether a pool was woken after its reconciliation began."""
        return pool in self._signals and self._signals[pool].is_set()

    def forget(self, pool: str) -> None:
        """End a pool's loop with the reconciliation that is under way, unless the pool was woken meanwhile."""
        self._over.add(pool)

    async def close(self) -> None:
        """Stop all loops, in the middle of what they do, and know of no pool any more: it may be gone meanwhile."""
        self._open = False
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        self._signals.clear()
        self._tasks.clear()
        self._over.clear()

    def _run_loop(self, pool: str) -> None:
        if pool not in self._tasks or self._tasks[pool].done():
            self._tasks[pool] = asyncio.create_task(self._loop(pool), name=f"pool-{pool}")

    async def _loop(self, pool: str) -> None:
        signal, failures = self._signals[pool], 0
        while True:
            await signal.wait()
            await asyncio.sleep(COALESCE_S)
            signal.clear()
            if await self._succeeds(pool):
                failures = 0
                if self._is_over(pool):
                    return
                continue
            await asyncio.sleep(_RETRY_S[min(failures, len(_RETRY_S) - 1)])
            failures += 1
            signal.set()

    def _is_over(self, pool: str) -> bool:
        """Drop a pool that is to be forgotten: anybody may make up names of pools."""
        if pool not in self._over:
            return False
        self._over.remove(pool)
        if self._signals[pool].is_set():
            return False
        del self._signals[pool], self._tasks[pool]
        return True

    async def _succeeds(self, pool: str) -> bool:
        error = await failure_of(self._reconcile(pool))
        if error is None:
            return True
        log.error("pool %s: reconciliation failed, tried again soon", pool, exc_info=error)
        self._failed(pool)
        return False
