"""Finished workflows with a time to live are deleted when it is over."""

from __future__ import annotations

import heapq
import logging
import math
from functools import partial

from fermata.operator.clock import is_put_off
from fermata.operator.connection import ClusterError
from fermata.operator.facts import WorkflowFact
from fermata.operator.inflight import AT_ONCE, InFlight
from fermata.operator.reminder import Reminder
from fermata.operator.retry import RETRY_S
from fermata.operator.tools import Tools

_AGAIN_S = RETRY_S[-1]
_REMIND_S = 300.0

log = logging.getLogger(__name__)


class Expiry:
    """Deletes the finished workflows of one pool."""

    def __init__(self, pool: str, tools: Tools) -> None:
        self._tools = tools
        self._heap: list[tuple[float, str]] = []  # expiry and uid
        self._known: set[tuple[float, str]] = set()  # what is in the heap
        self._deletions = InFlight(lambda: tools.wake(pool))
        self._shut: dict[str, float] = {}  # namespaces in which nothing is deleted, and until when that is taken for so
        self._reminder = Reminder(_REMIND_S)

    @property
    def next_s(self) -> float:
        """When the next one is due, seconds since the epoch; inf: none."""
        return self._heap[0][0] if self._heap else math.inf

    def note(self, fact: WorkflowFact) -> None:
        """Take in a finished workflow, or whatever has changed of one."""
        if fact.expiry_s < math.inf:
            self._push(fact.expiry_s, fact.meta.uid)

    async def delete_due(self, now_s: float) -> None:
        """Delete those whose time to live is over, a few at once; the rest is for the next rounds.

        Where the API server would refuse each of them, one is tried for all of its namespace: they may be very many.
        """
        due: dict[str, WorkflowFact] = {}
        tried: set[str] = set()
        while len(due) < AT_ONCE and self.next_s <= now_s:
            entry = heapq.heappop(self._heap)
            self._known.remove(entry)
            uid = entry[1]
            fact = self._tools.store.workflows.get(uid)
            # An edit may have given it more time, and been noted with its own time.
            if fact is None or fact.meta.deleting or fact.expiry_s > now_s:
                continue
            namespace = fact.meta.namespace
            if namespace in self._shut and (namespace in tried or is_put_off(self._shut[namespace], now_s, _AGAIN_S)):
                self._push(now_s + _AGAIN_S, uid)
                continue
            due[uid] = fact
            tried.add(namespace)
        await self._deletions.send({uid: partial(self._delete, fact) for uid, fact in due.items()})

    def close(self) -> None:
        """Let go of what is under way."""
        self._deletions.close()

    async def _delete(self, fact: WorkflowFact) -> None:
        meta = fact.meta
        try:
            await self._tools.cluster.delete_workflow(meta.namespace, meta.name, meta.uid, meta.resource_version)
        except ClusterError as error:
            if error.reason == "NotFound":
                return
            again_s = self._tools.now() + _AGAIN_S
            if error.reason == "Conflict":  # somebody gave it more time, say: a watch will tell, and it is noted anew
                self._push(again_s, meta.uid)
                return
            if error.is_of_no_object:
                self._shut[meta.namespace] = again_s
            if self._reminder.is_due((meta.namespace, error.status), ""):
                log.warning("%s: not deleted, tried again: %s", fact.title, error)
            self._push(again_s, meta.uid)
        else:
            self._shut.pop(meta.namespace, None)

    def _push(self, at_s: float, uid: str) -> None:
        if (at_s, uid) not in self._known:
            self._known.add((at_s, uid))
            heapq.heappush(self._heap, (at_s, uid))
