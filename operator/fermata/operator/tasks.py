"""Work that must go on whatever happens to it: a task that dies in silence would leave an operator that looks alive."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

log = logging.getLogger(__name__)


async def failure_of(work: Awaitable[None]) -> BaseException | None:
    """Do some work as a task of its own, and return what it raised: whatever that is, it ends there."""
    task: asyncio.Future[None] = asyncio.ensure_future(work)
    try:
        await asyncio.wait({task})
    finally:
        task.cancel()
    return task.exception()


async def forever(name: str, work: Callable[[], Awaitable[None]], pause_s: float) -> None:
    """Do work that should not end, and begin it anew should it do so all the same.

    Args:
        name: for the log.
        work: called at the beginning and after each failure.
        pause_s: before it is called again, in seconds.
    """
    while True:
        error = await failure_of(work())
        log.error("%s failed, and begins anew in %g s", name, pause_s, exc_info=error)
        await asyncio.sleep(pause_s)
