"""Events: the story of a workflow for `kubectl describe`, written in the background and never in the way.

The same sentence about the same object is not told again for a while, an object that talks too much is cut short, but
for what fails and how it ends, and what cannot be written is counted and dropped: an Event is a courtesy, a status is
the record. That there are none is said in the log.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from fermata.operator.clock import is_put_off
from fermata.operator.cluster import Cluster
from fermata.operator.connection import ClusterError
from fermata.operator.facts import Meta
from fermata.operator.metrics import Metrics
from fermata.operator.names import API_VERSION, short_hash
from fermata.operator.tasks import forever
from fermata.operator.times import render

REPEAT_AFTER_S = 300.0
BURST = 60  # Events of one object before it is cut short ...
REFILL_S = 5.0  # ... to one in this many seconds
FAILURES = 20  # ... and so many Warnings more
_LAST = 1  # and how it ends
_QUEUE = 2000
_REMEMBERED = 20_000
_WRITERS = 2
_AGAIN_S = 1.0
Level = Literal["Normal", "Warning"]

log = logging.getLogger(__name__)


class Told(NamedTuple):
    """What an object still may say: tokens, and when they were last counted."""

    tokens: float
    at_s: float


class Events:
    """Writes Events through a queue."""

    def __init__(self, cluster: Cluster, metrics: Metrics, now: Callable[[], float]) -> None:
        self._cluster, self._metrics, self._now = cluster, metrics, now
        self._queue: asyncio.Queue[tuple[str, dict[str, Any]]] = asyncio.Queue(_QUEUE)
        self._said: OrderedDict[tuple[str, str, str], float] = OrderedDict()
        self._budget: OrderedDict[str, Told] = OrderedDict()
        self._complained_s = -math.inf
        self._writers: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin to write; needs a running event loop."""
        self._writers = [
            asyncio.create_task(forever("writing of events", self._write, _AGAIN_S)) for _ in range(_WRITERS)
        ]

    async def stop(self, grace_s: float = 2.0) -> None:
        """Write what is left, for a moment, and stop."""
        try:
            async with asyncio.timeout(grace_s):
                await self._queue.join()
        except TimeoutError:
            log.info("%d events were not written", self._queue.qsize())
        for writer in self._writers:
            writer.cancel()
        await asyncio.gather(*self._writers, return_exceptions=True)

    def tell(
        self,
        kind: str,
        meta: Meta,
        reason: str,
        message: str,
        level: Level = "Normal",
        key: str = "",
        *,
        last: bool = False,
    ) -> None:
        """Queue an Event about an object, unless it was told lately.

        Args:
            kind: of the object.
            meta: of the object.
            reason: a documented one.
            message: a sentence.
            level: Normal or Warning.
            key: what makes it the same Event as another one of this reason; the message if empty.
            last: whether it tells how the object ended.
        """
        now_s = self._now()
        kept = 0 if last else _LAST if level == "Warning" else _LAST + FAILURES
        if not self._may_say(meta.uid, reason, key or message, kept, now_s):
            return
        # An Event about a cluster-scoped object has to live somewhere.
        namespace = meta.namespace or "default"
        stamp = render(now_s)
        whole = stamp[:19] + "Z"
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                # Each part of a name between two dots has to end with a letter or a digit.
                "name": f"{meta.name[:200].rstrip('-.')}.{short_hash(f'{meta.uid}/{reason}/{message}/{stamp}', 16)}",
                "namespace": namespace,
            },
            "involvedObject": {
                "apiVersion": API_VERSION,
                "kind": kind,
                "name": meta.name,
                "namespace": meta.namespace,
                "uid": meta.uid,
            },
            "reason": reason,
            "message": message[:1000],
            "type": level,
            "count": 1,
            "firstTimestamp": whole,
            "lastTimestamp": whole,
            "source": {"component": "fermata"},
            "reportingComponent": "fermata.dev/operator",
            "reportingInstance": "fermata",
        }
        try:
            self._queue.put_nowait((namespace, event))
        except asyncio.QueueFull:
            self._metrics.events_dropped.inc()

    def recall(self, uid: str, reason: str, key: str) -> None:
        """Count an Event as told lately: by an operator that acted before this one, as a status says."""
        self._said[uid, reason, key] = self._now()

    def _may_say(self, uid: str, reason: str, key: str, kept: int, now_s: float) -> bool:
        """Tell whether an Event may be told, and count it; `kept` tokens are for what matters more."""
        said_s = self._said.get((uid, reason, key))
        if said_s is not None and is_put_off(said_s + REPEAT_AFTER_S, now_s, REPEAT_AFTER_S):
            return False
        most = BURST + FAILURES + _LAST
        before = self._budget.get(uid, Told(most, now_s))
        tokens = min(before.tokens + max(now_s - before.at_s, 0.0) / REFILL_S, most)  # the clock may be set back
        self._budget[uid] = Told(tokens, now_s)
        if tokens < 1 + kept:
            self._metrics.events_dropped.inc()
            return False
        self._said[uid, reason, key] = now_s
        self._budget[uid] = Told(tokens - 1, now_s)
        for memory in (self._said, self._budget):
            while len(memory) > _REMEMBERED:
                memory.popitem(last=False)
        return True

    async def _write(self) -> None:
        while True:
            namespace, event = await self._queue.get()
            try:
                await self._cluster.create_event(namespace, event)
            except ClusterError as error:
                self._metrics.events_dropped.inc()
                self._complain(error)
            finally:
                self._queue.task_done()

    def _complain(self, error: ClusterError) -> None:
        """Say in the log that Events cannot be written, now and then: without a right to it none ever is."""
        now_s = self._now()
        if not is_put_off(self._complained_s + REPEAT_AFTER_S, now_s, REPEAT_AFTER_S):
            self._complained_s = now_s
            log.warning("an event was not written: %s", error)
