"""Pods let through the gates at which they wait for their turn, one request each; what fails is tried again."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any

from fermata.operator import names
from fermata.operator.cluster import Cluster
from fermata.operator.connection import ClusterError, Json
from fermata.operator.facts import JobFact, meta_of
from fermata.operator.pods import PodFact, pod_fact
from fermata.operator.progress import StageKey, WorkflowView
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
        self._unsure: dict[str, StageKey] = {}  # by uid of pods of which nobody knows whether they were let through

    def requests(
        self, views: Mapping[str, WorkflowView], now_s: float
    ) -> dict[str, Callable[[], Coroutine[Any, Any, None]]]:
        """Return what lets the pods through whose turn it is, by their uid.

        Where nothing of their workflow is to start any more, it is what tells whether they were let through.
        """
        self._learn()
        asked: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {}
        for job, pod in self._store.due_turns(self._pool):
            if is_due(self.failures.get(_key(job)), now_s):
                view = views.get(job.meta.owner_uid)
                ask = self._look if view is not None and view.blocked else self._let_through
                asked[pod.meta.uid] = partial(ask, job, pod)
        return asked

    def _learn(self) -> None:
        """Count as done what was not answered where a watch has told that it was, or that the pod is gone."""
        for uid, key in list(self._unsure.items()):
            pod = self._store.pods.get(uid)
            if pod is None or not pod.gated:
                del self._unsure[uid]
                self._forgive(key)

    def _forgive(self, key: StageKey) -> None:
        """Have a stage say no more that a pod of it was not let through, if of none that is still not known."""
        if key not in self._unsure.values() and self.failures.pop(key, None) is not None:
            self._store.touched[self._pool].add(key[0])

    def take_back(self, views: Mapping[str, WorkflowView], beyond: Callable[[], int]) -> None:
        """Take turns back that were given under other circumstances; only a pod that was let through holds to its own.

        All of them where nothing more is to start, as in what was suspended before its pods were made; and as many as
        are beyond a limit that was lowered since. Not where nobody knows whether a pod was let through: that is asked
        first.

        Args:
            views: of the pool's workflows, by uid.
            beyond: tells how many executors are taken that the pool does not have; asked where there is any turn.
        """
        owed = [job for job in self._store.owed_turns(self._pool) if _key(job) not in self._unsure.values()]
        left = beyond() if owed else 0
        excess: dict[str, int] = {}
        for job in owed:
            uid = job.meta.owner_uid
            view = views.get(uid)
            stage = view.stage(job.stage) if view else None
            if view is None or stage is None:
                continue
            more = excess.setdefault(uid, view.excess)
            tasks = min(job.owed, max(more, math.ceil(left / stage.slots), job.owed if view.blocked else 0))
            if tasks > 0:
                self._store.give_turns(job.meta.uid, -tasks)
                excess[uid], left = more - tasks, left - tasks * stage.slots

    def shut(self, now_s: float) -> set[StageKey]:
        """Return the stages whose pods could not be let through a moment ago: it is not their turn now."""
        return {key for key, failure in self.failures.items() if not is_due(failure, now_s)}

    def why_shut(self, key: StageKey) -> str:
        """Return why pods of a stage could not be let through when that was tried last, or an empty text."""
        failure = self.failures.get(key)
        return f"pods stay at their gates, tried again: {failure.message}" if failure else ""

    async def _let_through(self, job: JobFact, pod: PodFact) -> None:
        if not self._leads():  # this process was frozen, and another one decides whose turn it is
            self._teller.come_back(self._now())
            return
        try:
            self._store.put_own("pods", await open_gate(self._cluster, pod))
            self.failures.pop(_key(job), None)
            self._unsure.pop(pod.meta.uid, None)
        except ClusterError as error:
            self._note_failure(job, pod, error, unsure=error.is_unsure)

    async def _look(self, job: JobFact, pod: PodFact) -> None:
        """Take the turn of a pod back, unless it was let through."""
        try:
            found = await self._cluster.find_pod(pod.meta.namespace, pod.meta.name)
        except ClusterError as error:
            self._note_failure(job, pod, error, unsure=True)
            return
        if found is None or meta_of(found).uid != pod.meta.uid:  # a watch will say so
            return
        self._store.put_own("pods", found)
        if pod_fact(found, self._now()).gated:
            self._store.give_turns(job.meta.uid, -1)
        self._unsure.pop(pod.meta.uid, None)
        self._forgive(_key(job))
        self._teller.come_back(self._now())

    def _note_failure(self, job: JobFact, pod: PodFact, error: ClusterError, *, unsure: bool) -> None:
        key, now_s = _key(job), self._now()
        if job.meta.uid not in self._store.jobs:  # it was deleted meanwhile
            return
        if error.reason in ("Conflict", "NotFound"):  # the pod has changed or is gone, and a watch will say so
            return
        failure = self.failures[key] = Failure.after(self.failures.get(key), str(error), now_s, busy=error.is_trouble)
        if unsure:
            self._unsure[pod.meta.uid] = key
        else:  # others may have its executors until it is tried again
            self._unsure.pop(pod.meta.uid, None)
            self._store.give_turns(job.meta.uid, -1)
            self._teller.come_back(now_s)
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
