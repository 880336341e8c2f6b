"""The operator as one object: its parts, the order in which they start, and what feeds them.

The one place that knows all parts. kopf calls `start` and `stop`; nothing here knows kopf.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from prometheus_client import ProcessCollector

from fermata.operator.acceptance import Acceptance
from fermata.operator.clock import ServerClock
from fermata.operator.cluster import Cluster
from fermata.operator.connection import ClusterError
from fermata.operator.events import Events
from fermata.operator.lease import Lease, identity, namespaces
from fermata.operator.loops import Loops
from fermata.operator.metrics import Metrics
from fermata.operator.options import Options
from fermata.operator.probes import Probes
from fermata.operator.reconcile import PoolReconciler
from fermata.operator.recorder import Recorder
from fermata.operator.reminder import Reminder
from fermata.operator.store import Store
from fermata.operator.tasks import forever
from fermata.operator.timers import Timers
from fermata.operator.tools import Tools
from fermata.operator.watches import Watches
from fermata.policy.errors import InputError
from fermata.policy.wording import counted

LEASE = "fermata-operator"
_POLL_S = 1.0
_REMIND_S = 15.0

log = logging.getLogger(__name__)


class Operator:
    """An operator that can be started and stopped."""

    def __init__(self, options: Options, now: Callable[[], float] | None = None) -> None:
        self.options = options
        self._now = now = ServerClock(now)
        self._metrics = Metrics()
        ProcessCollector(registry=self._metrics.registry)
        self._lease_name = f"{LEASE}-{options.namespace}" if options.namespace else LEASE
        leader = self._metrics.leader.labels(self._lease_name)
        leader.set_function(lambda: self._synced and self._leads())
        self._recorder = Recorder(options.record)
        self._loops = Loops(self._reconcile, lambda pool: self._metrics.crashes.labels(pool).inc())
        self._store = Store(now, self._loops.wake)
        self._timers = Timers(now, self._loops.wake)
        self._probes = Probes(self._metrics.registry, self._readiness)
        self._pools: dict[str, PoolReconciler] = {}
        self._synced = False
        self._cluster: Cluster | None = None
        self._events: Events | None = None
        self._lease: Lease | None = None
        self._standing_by = False
        self._watches: Watches | None = None
        self._leading: asyncio.Task[None] | None = None

    async def listen(self) -> None:
        """Serve metrics and probes, if that is asked for and not done yet.

        Raises:
            InputError: the address cannot be had.
        """
        host, port = self.options.metrics_host, self.options.metrics_port
        if port is None or self._probes.listening:
            return
        try:
            await self._probes.start(host, port)
        except (OSError, OverflowError) as error:  # a port over 65535, from the environment, is no OSError
            told = f"cannot serve metrics on {host}, port {port}: {error}"
            raise InputError(f"{told}; expected an address of this machine and a free port") from error

    async def connect(self) -> Cluster:
        """Return the connection to the API server, made by the first call; nothing is asked of it yet.

        Raises:
            InputError: there is no usable configuration.
        """
        if self._cluster is None:
            self._cluster = await Cluster.connect(self.options.kubeconfig, self._metrics.observe_request, self._now)
        return self._cluster

    async def start(self) -> None:
        """Come up: serve probes, wait for API server and CRDs, and decide as soon as the Lease is ours."""
        await self.listen()
        cluster = await self.connect()
        await self._wait_for_api(cluster)
        self._lease = lease = self._new_lease(cluster)
        self._events = Events(cluster, self._metrics, self._now)
        self._events.start()
        self._timers.start()
        lead = partial(self._lead, cluster, lease)
        self._leading = asyncio.create_task(forever("leading", lead, _POLL_S), name="lease")

    async def stop(self) -> None:
        """Go down; what matters is in the API already."""
        if self._leading is not None:
            self._leading.cancel()
            await asyncio.gather(self._leading, return_exceptions=True)
        self._timers.stop()
        await self._pause()
        if self._events is not None:
            await self._events.stop()
        if self._lease is not None:
            await self._lease.release()
        if self._cluster is not None:
            await self._cluster.close()
        await self._probes.stop()
        self._recorder.close()

    async def _lead(self, cluster: Cluster, lease: Lease) -> None:
        """Act while the Lease is ours, for ever: when it comes back after it was lost, begin as after a restart."""
        while True:
            await self._pause()
            self._standing_by = True
            await lease.acquire()
            self._standing_by = False
            # Kept from the first moment: to read everything can take longer than a Lease lasts, and two operators that
            # took it from each other meanwhile would never get to decide.
            async with asyncio.TaskGroup() as group:
                beginning = group.create_task(self._begin(cluster))
                await lease.keep()
                beginning.cancel()

    async def _begin(self, cluster: Cluster) -> None:
        """Read everything, and decide from then on."""
        self._store = Store(self._now, self._loops.wake)  # nothing stays that another control plane may have said
        self._watches = Watches(cluster, self._store, self.options.namespace)
        await self._watches.open()
        for pool in {*self._store.pools, *self._store.pool_workflows}:
            self._loops.wake(pool)
        self._synced = True
        self._loops.open()
        ours = [pool for pool in self._store.pools if Acceptance(pool, self._store).serves(self.options.namespace)]
        log.info("deciding for %s on %s", counted(len(ours), "pool"), cluster.server)

    async def _pause(self) -> None:
        """Stop looking and deciding, and forget what was decided: another operator may act meanwhile."""
        self._synced = False
        if self._watches is not None:
            await self._watches.close()
        await self._loops.close()
        for name, pool in self._pools.items():
            pool.close()
            self._metrics.forget(name)
        self._pools.clear()

    def _new_lease(self, cluster: Cluster) -> Lease:
        within = namespaces(self.options.lease_namespace)
        return Lease(cluster, self._lease_name, identity(), within, self.options.lease_s, self._now)

    def _leads(self) -> bool:
        """Tell whether this operator may act now."""
        return self._lease is not None and self._lease.held

    def _readiness(self) -> str:
        """Return what /readyz says; a standby is ready, or a new version would never replace an old one."""
        if self._synced:
            return "ok"
        return "standing by" if self._standing_by else ""

    async def _reconcile(self, pool: str) -> None:
        if self._cluster is None or self._events is None or self._lease is None:
            return
        if not self._leads():  # cut off for long: find out before acting, not after
            self._timers.arm(pool, self._now() + _POLL_S)
            return
        if pool not in self._pools:
            tools = Tools(
                store=self._store,
                cluster=self._cluster,
                events=self._events,
                metrics=self._metrics,
                recorder=self._recorder,
                now=self._now,
                wake=self._loops.wake,
                pending=self._loops.pending,
                leads=self._leads,
                confirm=self._lease.confirm,
                namespace=self.options.namespace,
            )
            self._pools[pool] = PoolReconciler(pool, tools)
        self._timers.arm(pool, await self._pools[pool].reconcile())
        if not self._store.knows(pool):  # nothing is left of it
            self._pools.pop(pool).close()
            self._store.forget(pool)
            self._metrics.forget(pool)
            self._loops.forget(pool)

    async def _wait_for_api(self, cluster: Cluster) -> None:
        """Wait until the API server answers and serves both resources, and say now and then what is missing."""
        reminder = Reminder(_REMIND_S)
        while True:
            missing = await _missing(cluster)
            if not missing:
                return
            if reminder.is_due(cluster.server, missing):
                log.warning("waiting for %s: %s", cluster.server, missing)
            await asyncio.sleep(_POLL_S)


async def _missing(cluster: Cluster) -> str:
    """Return what an operator needs and the API server does not serve yet, or an empty text."""
    try:
        return await cluster.missing_crds()
    except ClusterError as error:
        return f"no answer ({error})"
