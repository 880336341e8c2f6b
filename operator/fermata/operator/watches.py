"""What keeps the store current: one list and then one watch for each kind, for as long as this operator leads.

kopf's own watches run each event through a task of its object, with copies and comparisons for handlers that this
operator does not have; under load that was nearly half of its CPU time, and again as much memory as the facts. Knows
nothing of what the objects mean.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial

from fermata.operator.cluster import Cluster
from fermata.operator.connection import ClusterError
from fermata.operator.reminder import Reminder
from fermata.operator.store import Kind, Store
from fermata.operator.tasks import forever

# Parents before what they own: a Job is never seen without its Workflow.
KINDS: tuple[Kind, ...] = ("namespaces", "executorpools", "workflows", "pods", "jobs")
_PAUSES_S = (0.05, 0.2, 0.5, 1.0, 2.0, 5.0)
_LIST_AGAIN_S = 1.0
_REMIND_S = 60.0
_PASSING = (0, 401, 403, 429, 500, 502, 503)  # after these the same watch can go on; after all others a list is due

log = logging.getLogger(__name__)


class Watches:
    """Lists and watches of all kinds.

    Args:
        cluster: to ask.
        store: to feed.
        namespace: the only one to look at; None: all.
        clock: monotonic, seconds.
    """

    def __init__(
        self,
        cluster: Cluster,
        store: Store,
        namespace: str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster, self._store, self._namespace = cluster, store, namespace
        self._reminder = Reminder(_REMIND_S, clock)
        self._tasks: list[asyncio.Task[None]] = []
        self._listed: dict[Kind, str] = {}  # versions of lists from which nobody has gone on yet

    async def open(self) -> None:
        """Read everything once, however long that takes, and follow what changes from then on."""
        for kind in KINDS:
            self._listed[kind] = await self._list_at_last(kind)
        self._tasks = [
            asyncio.create_task(forever(f"watch of {kind}", partial(self._follow, kind), _LIST_AGAIN_S))
            for kind in KINDS
        ]

    async def close(self) -> None:
        """Look away."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []

    async def _list_at_last(self, kind: Kind) -> str:
        while True:
            try:
                return await self._list(kind)
            except ClusterError as error:
                if self._reminder.is_due(kind, str(error)):
                    log.warning("cannot list %s, tried again: %s", kind, _told(error))
                await asyncio.sleep(_LIST_AGAIN_S)

    async def _list(self, kind: Kind) -> str:
        """Take in a list page by page, forget what it lacks, and return its version."""
        listed, version = set(), ""
        async for items, at in self._cluster.pages(kind, self._namespace):
            listed |= self._store.put_all(kind, items)
            version = at
        self._store.retain(kind, listed, version)
        return version

    async def _follow(self, kind: Kind) -> None:
        """Follow a kind, for ever: a watch that ends goes on, one that lost the thread lists."""
        failures, version = 0, self._listed.pop(kind, "")
        while True:
            try:
                version = version or await self._list(kind)
                async for change, raw in self._cluster.watch(kind, version, self._namespace):
                    failures = 0
                    meta = raw["metadata"]
                    version = meta["resourceVersion"]
                    if change == "DELETED":
                        self._store.remove(kind, meta.get("uid", ""), meta.get("name", ""), version)
                    elif change != "BOOKMARK":
                        self._store.put(kind, raw)
            except ClusterError as error:
                # Watches are cut and expire now and then; where that goes on, this operator sees nothing any more.
                usual = error.status in (0, 410) and failures < len(_PAUSES_S)
                news = not usual and self._reminder.is_due(kind, str(error))
                level = logging.WARNING if news else logging.DEBUG
                log.log(level, "watch of %s ended, goes on soon: %s", kind, _told(error))
                # An error of the server's own that stays may come from that version: a change that cannot be decoded.
                if error.status not in _PASSING or (error.status == 500 and failures >= len(_PAUSES_S)):
                    version = ""
            await asyncio.sleep(_PAUSES_S[min(failures, len(_PAUSES_S) - 1)])
            failures += 1


def _told(error: ClusterError) -> str:
    """Return an error for the log; of a kind that is not served, which may happen to CRDs alone, with what to do."""
    return f"{error} (are the CRDs, deploy/crds, installed?)" if error.status == 404 else str(error)
