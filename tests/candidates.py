"""Candidates for one Lease on one virtual time: processes that can be frozen, killed and cut off, each with its loop.

A frozen process does nothing, and what it has asked for happens all the same, as on a machine that is paused.
"""

from __future__ import annotations

import asyncio
import math
import random
from asyncio import events
from collections.abc import Callable
from typing import Any

from tests.late.timeline import Timeline

from fermata.operator.connection import ClusterError
from fermata.operator.lease import Lease

DURATION_S = 15.0
Raw = dict[str, Any]


class LeaseServer:
    """An API server with one Lease, and all that was ever written of it."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self.raw: Raw | None = None
        self.written: list[tuple[float, Raw]] = []
        self.changed_s = -math.inf  # when the Lease was last deleted, or put back to what it was
        self.restarts = 0  # with each of them all requests on their way are lost
        self._made = 0

    def delete(self) -> None:
        """Have no Lease."""
        self.raw, self.changed_s = None, self._timeline.now_s

    def restore(self, raw: Raw) -> None:
        """Have a Lease as it was written before, as from a backup; what is written next has a later version."""
        self.raw, self.changed_s = raw, self._timeline.now_s
        self.restarts += 1

    def holders_since(self, since_s: float) -> set[str]:
        """Return who was written to have it after a time, or an empty name where it was given back."""
        return {raw["spec"]["holderIdentity"] for at_s, raw in self.written if at_s > since_s}

    def serve(self, verb: str, body: Raw) -> Raw:
        """Answer a request."""
        if verb == "create":
            if self.raw is not None:
                raise ClusterError(409, "AlreadyExists", "it exists")
            self._made += 1
            return self._write(body, f"uid-{self._made}")
        if self.raw is None:
            raise ClusterError(404, "NotFound", "there is none")
        if verb == "get":
            return self.raw
        now = self.raw["metadata"]
        if any(now[key] != body["metadata"][key] for key in ("uid", "resourceVersion")):
            raise ClusterError(409, "Conflict", "it was changed")
        return self._write(body, now["uid"])

    def _write(self, body: Raw, uid: str) -> Raw:
        version = str(len(self.written) + 1)
        self.raw = {**body, "metadata": {**body["metadata"], "uid": uid, "resourceVersion": version}}
        self.written.append((self._timeline.now_s, self.raw))
        return self.raw


class _Loop(asyncio.SelectorEventLoop):
    """A loop on virtual time, run by hand: it never waits."""

    def __init__(self, timeline: Timeline) -> None:
        super().__init__()
        self._timeline = timeline
        self._selector.select = lambda _timeout=None: []  # type: ignore[attr-defined]

    def time(self) -> float:
        return self._timeline.now_s

    @property
    def next_s(self) -> float:
        """When it has something to do."""
        if self._ready:  # type: ignore[attr-defined]
            return self.time()
        timers = self._scheduled  # type: ignore[attr-defined]
        return float(timers[0].when()) if timers else math.inf  # to wake for one that was cancelled does no harm

    def run_due(self) -> None:
        """Do once what is due, and what has become so by that."""
        events._set_running_loop(self)
        try:
            self._run_once()  # type: ignore[attr-defined]
        finally:
            events._set_running_loop(None)


class Candidate:
    """A process that acts while the Lease is its own, as an operator does.

    Args:
        name: who it is.
        server: has the Lease.
        timeline: the time.
        draw: of what becomes of its requests.
        trouble: share of them that are slow, and of those that are not answered as they should be.
        confirmed: called with this and when it had asked, whenever it has the Lease confirmed.
    """

    def __init__(
        self,
        name: str,
        server: LeaseServer,
        timeline: Timeline,
        draw: random.Random,
        trouble: Callable[[], float],
        confirmed: Callable[[Candidate, float], None],
    ) -> None:
        self.name, self._server, self._timeline = name, server, timeline
        self._draw, self._trouble, self._confirmed = draw, trouble, confirmed
        self._loop = _Loop(timeline)
        self.frozen_until_s = self.cut_until_s = -math.inf
        self.since_s = math.inf  # when it began to act, as far as it knows
        self.heard = 0  # the version of the Lease in the latest answer that it got
        self.killed = self.stopping = False
        cluster: Any = self
        self.lease = Lease(cluster, "test", name, ("default",), DURATION_S, self._loop.time, self._loop.time)
        self._work = self._loop.create_task(self._run())

    @property
    def acts(self) -> bool:
        """Whether it acts now."""
        awake = self._timeline.now_s >= self.frozen_until_s and not (self.killed or self.stopping)
        return awake and self.since_s < math.inf and self.lease.held

    @property
    def crashed(self) -> bool:
        """Whether it ended in a way nobody foresaw."""
        return self._work.done() and not self._work.cancelled()

    @property
    def next_s(self) -> float:
        """When it has something to do."""
        return math.inf if self.killed or self._loop.is_closed() else max(self._loop.next_s, self.frozen_until_s)

    def run_due(self) -> None:
        """Do what is due, unless it is frozen or killed."""
        if self.next_s <= self._timeline.now_s:
            self._loop.run_due()

    def stop(self) -> None:
        """End it in order: it gives the Lease back."""
        self.stopping = True
        self._stopped = self._loop.create_task(self._stop())

    def close(self) -> None:
        """Let go of its loop."""
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        while self._loop.next_s <= self._timeline.now_s:
            self._loop.run_due()
        self._loop.close()

    async def _run(self) -> None:
        while True:
            await self.lease.acquire()
            self.since_s = self._loop.time()
            confirming = asyncio.create_task(self._confirm_now_and_then())
            await self.lease.keep()
            confirming.cancel()
            self.since_s = math.inf

    async def _confirm_now_and_then(self) -> None:
        while True:
            await asyncio.sleep(self._draw.uniform(0.1, 6.0))
            asked_s = self._loop.time()
            try:
                await self.lease.confirm()
            except ClusterError:
                continue
            self._confirmed(self, asked_s)

    async def _stop(self) -> None:
        self._work.cancel()
        await asyncio.gather(self._work, return_exceptions=True)
        await self.lease.release()

    async def get(self, _path: str) -> Raw:
        """Ask as `Cluster` does."""
        return await self._ask("get", {})

    async def create(self, _path: str, body: Raw) -> Raw:
        """Ask as `Cluster` does."""
        return await self._ask("create", body)

    async def replace(self, _path: str, body: Raw) -> Raw:
        """Ask as `Cluster` does."""
        return await self._ask("replace", body)

    async def _ask(self, verb: str, body: Raw) -> Raw:
        answer: asyncio.Future[Raw] = self._loop.create_future()
        there_s, back_s, restarts = self._way_s(), self._way_s(), self._server.restarts
        lost = self._draw.choice(["", "before", "after"]) if self._draw.random() < self._trouble() else ""

        def arrive() -> None:
            done, error = Raw(), None
            cut = self._timeline.now_s < self.cut_until_s or restarts < self._server.restarts
            if lost != "before" and not cut:
                try:
                    done = self._server.serve(verb, body)
                except ClusterError as problem:
                    error = problem
            if lost or cut:
                error = ClusterError(0, "ServerDisconnectedError", "Server disconnected")
            self._timeline.after(back_s, lambda: self._loop.call_soon(come_back, done, error))

        def come_back(done: Raw, error: ClusterError | None) -> None:
            if answer.done():  # nobody waits for it any more
                return
            if error is not None:
                answer.set_exception(error)
            else:
                self.heard = int(done["metadata"]["resourceVersion"])
                answer.set_result(done)

        self._timeline.after(there_s, arrive)
        return await answer

    def _way_s(self) -> float:
        slow = self._draw.random() < self._trouble()
        return self._draw.choice([0.5, 3.0, 8.0, 20.0]) * self._draw.random() if slow else 0.01
