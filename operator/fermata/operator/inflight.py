"""Requests that are waited for only a moment: one that is answered late keeps nobody else waiting.

The API server may take long for some of its users and not for others, most often where an admission webhook of theirs
does not answer. Knows nothing of what is asked.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Hashable, Mapping
from functools import partial
from typing import Any

AT_ONCE = 16  # requests in flight that are not late
PATIENCE_S = 1.0

log = logging.getLogger(__name__)


class InFlight:
    """Requests by key, of which there is never more than one.

    Args:
        landed: called when a request that was late has been answered.
    """

    def __init__(self, landed: Callable[[], None]) -> None:
        self._landed = landed
        self._gate = asyncio.Semaphore(AT_ONCE)
        self._tasks: dict[Hashable, asyncio.Task[None]] = {}

    def __contains__(self, key: Hashable) -> bool:
        """Tell whether a request is in flight."""
        return key in self._tasks

    def __len__(self) -> int:
        """Return how many requests are in flight."""
        return len(self._tasks)

    async def send(self, requests: Mapping[Any, Callable[[], Coroutine[Any, Any, None]]]) -> None:
        """Send requests side by side, and return when each has been answered or is late; those in flight are left out.

        Raises:
            Exception: what the first of them raised that was not late, once none is left to be sent: the next call
                would not know of those. Of late ones that is logged.
        """
        new = [(key, request) for key, request in requests.items() if key not in self._tasks]
        ends = await asyncio.gather(*(self._send(key, request) for key, request in new), return_exceptions=True)
        for end in ends:
            if end is not None:
                raise end

    async def _send(self, key: Hashable, request: Callable[[], Coroutine[Any, Any, None]]) -> None:
        async with self._gate:
            task = self._tasks[key] = asyncio.create_task(request())
            await asyncio.wait({task}, timeout=PATIENCE_S)
        if task.done():
            del self._tasks[key]
            task.result()
        else:
            task.add_done_callback(partial(self._land, key))

    def _land(self, key: Hashable, task: asyncio.Task[None]) -> None:
        del self._tasks[key]
        if task.cancelled():
            return
        if task.exception() is not None:
            log.error("a request that was late failed in a way nobody foresaw", exc_info=task.exception())
        self._landed()

    def close(self) -> None:
        """Wait for no answer any more."""
        for task in self._tasks.values():
            task.cancel()
