"""Pods let through the gates at which they wait for their turn, one request each; what fails is tried again."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from fermata.operator import names
from fermata.operator.cluster import Cluster
from fermata.operator.connection import ClusterError, Json
from fermata.operator.facts import JobFact
from fermata.operator.plan import StageKey
from fermata.operator.pods import PodFact
from fermata.operator.retry import Failure, is_due
from fermata.operator.tell import Teller
from fermata.operator.tools import Tools

log = logging.getLogger(__name__)


class Gates:
    """The gates of one pool's pods."""

    def __init__(self, pool: str, tools: Tools, teller: Teller) -> None:
        self._pool, self._teller = pool, teller
        self._store, self._cluster, self._now, self._leads = tools.store, tools.cluster, tools.now, tools.leads
        self.failures: dict[StageKey, Failure] = {}

    def requests(self, now_s: float) -> dict[str, Callable[[], Coroutine[Any, Any, None]]]:
        """Return what lets the pods through whose turn it is, by their uid."""
        due = self._store.due_turns(self._pool)
        return {
            pod.meta.uid: partial(self._let_through, job, pod)
            for job, pod in due
            if is_due(self.failures.get(_key(job)), now_s)
        }

    async def _let_through(self, job: JobFact, pod: PodFact) -> None:
        if not self._leads():  # this process was frozen, and another one decides whose turn it is
            self._teller.come_back(self._now())
            return
        key, now_s = _key(job), self._now()
        try:
            self._store.put_own("pods", await open_gate(self._cluster, pod))
            self.failures.pop(key, None)
        except ClusterError as error:
            if job.meta.uid not in self._store.jobs:  # it was deleted meanwhile
                return
            failure = self.failures[key] = Failure.after(
                self.failures.get(key), str(error), now_s, busy=error.is_trouble
            )
            self._store.touched[self._pool].add(key[0])
            where, again_s = f"{pod.meta.namespace}/{pod.meta.name}", failure.until_s - now_s
            log.warning("pod %s: not let through its gate, again in %g s: %s", where, again_s, error)


async def open_gate(cluster: Cluster, pod: PodFact) -> Json:
    """Take a pod's gate away, so that a node is looked for; gates of others stay.

    Raises:
        ClusterError: not now; also if it is another pod by now, or has changed.
    """
    meta = pod.meta
    others = [{"name": gate} for gate in pod.gates if gate != names.GATE]
    same = {"uid": meta.uid, "resourceVersion": meta.resource_version}
    return await cluster.patch_pod(meta.namespace, meta.name, {"metadata": same, "spec": {"schedulingGates": others}})


def _key(job: JobFact) -> StageKey:
    return job.meta.owner_uid, job.stage
