"""A Lease of coordination.k8s.io/v1: of all operators that are started one acts, and another takes over when it goes.

Clocks of different machines are never compared: a Lease is old when *this* process has not seen it change for as long
as its holder promised to renew it in. What the holder may still do is measured by its own monotonic clock, from before
the request that renewed it, so that it stops before another may begin.

Source: client-go's `tools/leaderelection`, whose records this reads and writes.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import secrets
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any

from fermata.operator.access import own_namespace
from fermata.operator.cluster import Cluster
from fermata.operator.connection import ClusterError, Json
from fermata.operator.facts import is_later
from fermata.operator.reminder import Reminder
from fermata.operator.times import render

# Parts of the duration: how long a holder tries to renew before it stops to act, and the time between two attempts.
_RENEW_WITHIN = 2 / 3
_EVERY = 2 / 15
_REMIND_S = 60.0
# Outside of a cluster: where the operator is deployed, so as not to act beside it; where it is not, any will do.
_NAMESPACES = ("fermata", "default")

_GONE_BACK = "it was deleted, or the control plane was begun anew or restored from a backup"
_CHANGED = "the lease changed meanwhile"

log = logging.getLogger(__name__)


def identity() -> str:
    """Return who this process is: its pod, whose containers never run beside each other, or a name of its own."""
    return os.environ.get("POD_NAME") or f"{socket.gethostname()}_{os.getpid()}_{secrets.token_hex(4)}"


def namespaces(wanted: str | None) -> tuple[str, ...]:
    """Return where to look for the Lease: the first of these that exists.

    Args:
        wanted: the one that the user named.
    """
    if wanted:
        return (wanted,)
    own = own_namespace()
    return (own,) if own else _NAMESPACES


def _has_gone_back(before: Json, lease: Json) -> bool:
    """Tell whether a Lease is another one than it was, or an earlier state of it."""
    was, now = before["metadata"], lease["metadata"]
    return bool(was["uid"] != now["uid"] or is_later(str(was["resourceVersion"]), str(now["resourceVersion"])))


def _holder_of(lease: Json) -> str:
    """Return who has a Lease, or an empty text."""
    return str((lease.get("spec") or {}).get("holderIdentity") or "")


class Lease:
    """One Lease, as one candidate sees it.

    Args:
        cluster: where it is kept.
        name: of the Lease; candidates for the same work name the same one.
        holder: who this candidate is.
        within: namespaces, each once; the Lease is in the first that exists.
        duration_s: how long others wait for a holder that does not renew it, in seconds, >= 1.
        now: the clock of what is written, seconds since the epoch.
        clock: monotonic, seconds.
    """

    def __init__(
        self,
        cluster: Cluster,
        name: str,
        holder: str,
        within: Sequence[str],
        duration_s: float,
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster, self._name, self._holder = cluster, name, holder
        self._within, self._duration_s = list(within), duration_s
        self._now, self._clock = now, clock
        self._known: Json | None = None  # as the API server last had it, as far as it was told
        self._sure = False  # that it is this candidate's, and that nobody has written it since
        self._lost = ""  # why, if it was since it was acquired
        self._renewed_s = -math.inf
        self._other: tuple[Any, ...] = ()  # another holder's last record, and where that is ...
        self._other_until_s = 0.0  # ... and until when that one may act
        self._confirmed_s = -math.inf  # when it was last read as it was written
        self._reading = asyncio.Lock()
        self._reminder, self._said = Reminder(_REMIND_S, clock), ""

    @property
    def held(self) -> bool:
        """Whether this candidate may act: nobody else can have the Lease now."""
        return self._clock() < self._renewed_s + self._duration_s

    @property
    def _is_late(self) -> bool:
        """Whether the time is over in which it had to be renewed, for this candidate to stop before another begins."""
        return self._clock() >= self._renewed_s + self._duration_s * _RENEW_WITHIN

    async def acquire(self) -> None:
        """Wait until the Lease is this candidate's."""
        while True:
            try:
                async with asyncio.timeout(self._duration_s * _RENEW_WITHIN):
                    trouble, level = await self._attempt(), logging.INFO
            except (ClusterError, TimeoutError) as error:
                trouble, level = f"the lease cannot be had: {str(error) or 'no answer'}", logging.WARNING
            if not trouble:
                self._lost = ""
                log.info("lease %s is ours (%s)", self._name, self._holder)
                return
            # That another one has it is how things are to be, and said once.
            news, self._said = trouble != self._said, trouble
            if self._reminder.is_due(self._name, trouble) and (news or level > logging.INFO):
                log.log(level, "lease %s: %s", self._name, trouble)
            await asyncio.sleep(self._duration_s * _EVERY)

    async def keep(self) -> None:
        """Renew the Lease for as long as that works; return when this candidate must act no more.

        Nor must it act on what it knows of a control plane that is not that any more.
        """
        while True:
            await asyncio.sleep(self._duration_s * _EVERY)
            left_s = self._renewed_s + self._duration_s * _RENEW_WITHIN - self._clock()
            try:
                # One attempt is always safe: it fails if anybody else has had the Lease since.
                async with asyncio.timeout(max(left_s, self._duration_s * _EVERY)):
                    trouble = self._lost or await self._yielded() or await self._attempt()
            except (ClusterError, TimeoutError) as error:
                trouble = str(error) or "no answer"
            if not trouble:
                continue
            if self._lost or self._is_late:
                log.warning("lease %s is lost: %s", self._name, self._lose(trouble))
                return

    async def confirm(self) -> None:
        """Read the Lease: if it has not gone back, all that was read before is of the control plane that there is.

        One that went back to an earlier state has an earlier Lease. It is not renewed for that: a renewal that is cut
        off by whoever waited for it is one that is in doubt.

        Raises:
            ClusterError: it cannot be read or is another's, or was not renewed in time; where the state went back, this
                candidate must act no more.
        """
        asked_s = self._clock()
        async with self._reading:
            if asked_s <= self._confirmed_s:  # by one who asked later, while this one had to wait
                return
            begun_s, before = self._clock(), self._known
            if self._lost or before is None:
                raise ClusterError(0, "LeaseInDoubt", self._lost or _CHANGED)
            found = await self._cluster.get(self._path(before))
            if _has_gone_back(before, found):
                self._lose(_GONE_BACK)
            # A later one may be of a renewal that is not answered yet, or never will be.
            if self._lost or not self.held or _holder_of(found) != self._holder:
                raise ClusterError(0, "LeaseInDoubt", self._lost or _CHANGED)
            self._confirmed_s = begun_s

    async def release(self) -> None:
        """Give the Lease back, so that another need not wait; does nothing where it is not held."""
        if not self.held or self._known is None:
            return
        self._renewed_s = -math.inf
        try:
            async with asyncio.timeout(2.0):
                lease = self._known if self._sure else await self._cluster.get(self._path(self._known))
                if _holder_of(lease) != self._holder:
                    return
                spec = {**lease["spec"], "holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": self._stamp()}
                await self._cluster.replace(self._path(lease), {**lease, "spec": spec})
        except (ClusterError, TimeoutError) as error:
            log.info("lease %s was not given back, and ends by itself: %s", self._name, error)

    async def _attempt(self) -> str:
        """Try once to get or renew the Lease; return what was in the way, or nothing.

        Raises:
            ClusterError: the API server does not answer, or does not let us.
        """
        begun_s = self._clock()
        before, sure, self._sure = self._known, self._sure, False
        found, is_new = (before, False) if before and sure else await self._find_or_make()
        self._known = found
        if before and _has_gone_back(before, found):
            return self._lose(_GONE_BACK)
        if not is_new:
            spec = found.get("spec") or {}
            if trouble := self._taken(found["metadata"]["namespace"], spec):
                return self._lose(trouble)
            if self._renewed_s > -math.inf and _holder_of(found) != self._holder:  # another one has given it back
                return self._lose(_CHANGED)
            begun_s = self._clock()  # what was asked before may have taken most of the time for which it is held
            try:
                found = await self._cluster.replace(self._path(found), {**found, "spec": self._spec(spec)})
            except ClusterError as error:
                if error.status not in (404, 409):
                    raise
                if not sure:
                    return f"{_CHANGED}: {error}"
                return await self._attempt()  # at once: it may have become another's, or be gone
        self._known, self._sure, self._renewed_s, self._other = found, True, begun_s, ()
        return ""

    async def _yielded(self) -> str:
        """Give way to an operator that was deployed, since this one began, where it would have been looked for first.

        Both would act for ever: each has a Lease. Returns why, or nothing; raises as `_attempt`.
        """
        if self._known is None:
            return ""
        for namespace in self._within[: self._within.index(self._known["metadata"]["namespace"])]:
            try:
                await self._cluster.get(f"{_leases(namespace)}/{self._name}")
            except ClusterError as error:
                if error.status != 404:
                    raise
                continue
            await self.release()
            self._known, self._sure = None, False  # what is next is another Lease
            return self._lose(f"an operator has its lease in namespace {namespace}, which was not there before")
        return ""

    def _lose(self, trouble: str) -> str:
        """Act no more from now on, and return why."""
        self._lost, self._renewed_s, self._sure = trouble, -math.inf, False
        return trouble

    async def _find_or_make(self) -> tuple[Json, bool]:
        """Return the Lease, and whether this candidate has just made it; in the first namespace that there is."""
        for namespace in self._within:
            try:
                return await self._cluster.get(f"{_leases(namespace)}/{self._name}"), False
            except ClusterError as error:
                if error.status != 404:
                    raise
            if self._other and self._other[0] == namespace and self._clock() < self._other_until_s:
                raise ClusterError(404, "NotFound", f"it was deleted, and {self._other[1]} may act yet")
            meta = {"name": self._name, "namespace": namespace}
            body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": self._spec({})}
            try:
                return await self._cluster.create(_leases(namespace), body), True
            except ClusterError as error:
                if error.reason == "AlreadyExists":
                    return await self._cluster.get(f"{_leases(namespace)}/{self._name}"), False
                if error.status != 404 or namespace == self._within[-1]:
                    raise
        raise RuntimeError("a lease needs a namespace")

    def _taken(self, namespace: str, spec: Json) -> str:
        """Return who else has the Lease, or nothing where it is free, ours or too old."""
        holder = spec.get("holderIdentity") or ""
        if holder in ("", self._holder):
            return ""
        record = (namespace, holder, spec.get("renewTime"), spec.get("leaseTransitions"))
        if record != self._other:
            promised_s = float(spec.get("leaseDurationSeconds") or self._duration_s)
            self._other, self._other_until_s = record, self._clock() + promised_s
        if self._clock() >= self._other_until_s:
            return ""
        return f"{holder} holds the lease; standing by"

    def _spec(self, before: Json) -> Json:
        again = before.get("holderIdentity") == self._holder
        transitions = int(before.get("leaseTransitions") or 0)
        return {
            **before,
            "holderIdentity": self._holder,
            # Whole seconds, and never fewer than this holder may act for: others count them.
            "leaseDurationSeconds": math.ceil(self._duration_s),
            "acquireTime": before.get("acquireTime") or self._stamp() if again else self._stamp(),
            "renewTime": self._stamp(),
            "leaseTransitions": transitions if again or not before else transitions + 1,
        }

    def _stamp(self) -> str:
        return render(self._now())

    def _path(self, lease: Json) -> str:
        return f"{_leases(lease['metadata']['namespace'])}/{self._name}"


def _leases(namespace: str) -> str:
    return f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
