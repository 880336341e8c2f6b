"""An operator of all pools on virtual time, which can be killed, frozen and started anew."""

from __future__ import annotations

import asyncio
import math

from tests.late.server import Server
from tests.late.timeline import Timeline

from fermata.operator.connection import ClusterError
from fermata.operator.events import Events
from fermata.operator.metrics import Metrics
from fermata.operator.reconcile import PoolReconciler
from fermata.operator.recorder import Recorder
from fermata.operator.store import Store
from fermata.operator.tools import Tools
from fermata.operator.watches import KINDS

_ROUNDS = 400  # in one moment, beyond which something calls itself


class LateOperator:
    """What the operator's loops and timers do, without threads and seconds.

    Args:
        server: that it watches and asks.
        timeline: its clock.
    """

    def __init__(self, server: Server, timeline: Timeline) -> None:
        self.server, self.timeline = server, timeline
        self.leads = True
        self.begin()

    def begin(self) -> None:
        """Start as a new process does, with what it reads."""
        self.reconcilers: dict[str, PoolReconciler] = {}
        self.wakes_s: dict[str, float] = {}
        self._dirty: dict[str, None] = {}
        self._metrics = Metrics()
        self.store = Store(self._now, self._wake)
        self._tools = Tools(
            store=self.store,
            cluster=self.server,  # type: ignore[arg-type]
            events=Events(self.server, self._metrics, self._now),  # type: ignore[arg-type]
            metrics=self._metrics,
            recorder=Recorder(None),
            now=self._now,
            wake=self._wake,
            pending=lambda pool: pool in self._dirty,
            leads=lambda: self.leads,
            confirm=self.confirm,
        )
        for kind in KINDS:
            self.server.list_all(self.store, kind)
        for pool in {*self.store.pools, *self.store.pool_workflows}:
            self._wake(pool)

    async def confirm(self) -> None:
        if not self.leads:
            raise ClusterError(0, "LeaseInDoubt", "another one has it")

    def restart(self) -> None:
        """Kill it, and start another one."""
        for each in self.reconcilers.values():
            each.close()
        self.leads = True
        self.begin()

    @property
    def next_s(self) -> float:
        """When a pool is to be looked at again."""
        return min(self.wakes_s.values(), default=math.inf)

    @property
    def is_quiet(self) -> bool:
        """Whether it acts, and has done all there is to do."""
        return self.leads and not self._dirty and self.next_s > self._now()

    async def settle(self) -> None:
        """Bring all pools up to date of which there is something new."""
        for pool in [pool for pool, wake_s in self.wakes_s.items() if wake_s <= self._now()]:
            self.wakes_s[pool] = math.inf
            self._wake(pool)
        for _ in range(_ROUNDS):
            if not self._dirty:
                return
            pool = next(iter(self._dirty))
            del self._dirty[pool]
            if self.leads:
                await self._reconcile(pool)
            else:
                self.wakes_s[pool] = self._now() + 1.0
        raise AssertionError(f"it has no end of what to do: {list(self._dirty)}")

    async def _reconcile(self, pool: str) -> None:
        if pool not in self.reconcilers:
            self.reconcilers[pool] = PoolReconciler(pool, self._tools)
        each = self.reconcilers[pool]
        self.wakes_s[pool] = await each.reconcile()
        if loading := each._seat._loading:  # a policy: to load one takes no time
            await asyncio.wait({loading})
            self._wake(pool)
        if not self.store.knows(pool):
            self.reconcilers.pop(pool).close()
            self.store.forget(pool)
            self._metrics.forget(pool)
            del self.wakes_s[pool]
        await asyncio.sleep(0)

    def _now(self) -> float:
        return self.timeline.now_s

    def _wake(self, pool: str) -> None:
        self._dirty[pool] = None
