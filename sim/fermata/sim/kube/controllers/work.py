"""What the controllers share: a queue of keys to look at, and Events that say what was done."""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from typing import TYPE_CHECKING

import aiohttp

from fermata.sim.kube.clock import stamp
from fermata.sim.kube.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from fermata.sim.kube.client import Client
    from fermata.sim.kube.resources import Obj

log = logging.getLogger(__name__)

_WORKERS = 8  # keys that are worked on at once


class WorkQueue:
    """Keys to reconcile: each by one worker at a time, again if it changed meanwhile, later if it failed.

    Args:
        reconcile: brings one key to its desired state.
    """

    def __init__(self, reconcile: Callable[[str], Awaitable[None]]) -> None:
        self._reconcile = reconcile
        self._ready: asyncio.Queue[str] = asyncio.Queue()
        self._queued: set[str] = set()
        self._busy: set[str] = set()
        self._again: set[str] = set()
        self._failures: dict[str, int] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def add(self, key: str) -> None:
        """Have a key looked at as soon as may be."""
        if key in self._busy:
            self._again.add(key)
        elif key not in self._queued:
            self._queued.add(key)
            self._ready.put_nowait(key)

    def add_after(self, key: str, delay_s: float) -> None:
        """Have a key looked at after a delay; the earlier of two delays holds."""
        loop = asyncio.get_running_loop()
        at = loop.time() + max(delay_s, 0.0)
        timer = self._timers.get(key)
        if timer is not None and not timer.cancelled() and timer.when() <= at:
            return
        if timer is not None:
            timer.cancel()
        self._timers[key] = loop.call_at(at, self._due, key)

    def _due(self, key: str) -> None:
        self._timers.pop(key, None)
        self.add(key)

    async def run(self) -> None:
        """Work until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(_WORKERS):
                    group.create_task(self._work())
        finally:
            for timer in self._timers.values():
                timer.cancel()
            self._timers.clear()

    async def _work(self) -> None:
        while True:
            key = await self._ready.get()
            self._queued.discard(key)
            self._busy.add(key)
            try:
                await self._reconcile(key)
                self._failures.pop(key, None)
            except (ApiError, aiohttp.ClientError, TimeoutError) as error:
                # Whatever was in the way, the next look starts from what the API then holds.
                failures = self._failures[key] = self._failures.get(key, 0) + 1
                log.info("%s: %s; again later", key, error)
                self.add_after(key, min(0.02 * 2**failures, 10.0))
            except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
                # An object that makes no sense, such as a status written by hand, must not stop the others.
                failures = self._failures[key] = self._failures.get(key, 0) + 1
                log.exception("%s: cannot be looked at; again later", key)
                self.add_after(key, min(2.0**failures, 60.0))
            finally:
                self._busy.discard(key)
            if key in self._again:
                self._again.discard(key)
                self.add(key)


class Recorder:
    """Writes Events, in the background: what is recorded must never hold up or break what is done.

    Args:
        client: where to write.
        component: who speaks.
    """

    def __init__(self, client: Client, component: str) -> None:
        self._client, self._component = client, component
        self._tasks: set[asyncio.Task[None]] = set()
        self._sequence = itertools.count(time.time_ns())

    def record(self, target: Obj, reason: str, message: str, type_: str = "Normal") -> None:
        """Say something about an object.

        Args:
            target: its reference: apiVersion, kind, namespace, name, uid.
            reason: a word in CamelCase.
            message: a sentence for people.
            type_: `Normal` or `Warning`.
        """
        namespace, at = target.get("namespace") or "default", stamp()
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{target['name'][:200]}.{next(self._sequence):x}", "namespace": namespace},
            "involvedObject": target,
            "reason": reason,
            "message": message,
            "type": type_,
            "count": 1,
            "firstTimestamp": at,
            "lastTimestamp": at,
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "reportingInstance": "",
        }
        task = asyncio.create_task(self._write(f"/api/v1/namespaces/{namespace}/events", event))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Drop what is not yet written."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _write(self, path: str, event: Obj) -> None:
        try:
            await self._client.create(path, event)
        except (ApiError, aiohttp.ClientError, TimeoutError) as error:
            log.debug("event not recorded: %s", error)


def reference(obj: Obj) -> Obj:
    """Return how Events refer to an object."""
    meta = obj["metadata"]
    return {
        "apiVersion": obj["apiVersion"],
        "kind": obj["kind"],
        "namespace": meta.get("namespace", ""),
        "name": meta["name"],
        "uid": meta["uid"],
    }
