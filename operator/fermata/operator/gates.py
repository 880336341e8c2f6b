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
from fermata.operator.facts import JobFact
from fermata.operator.plan import StageKey
from fermata.operator.pods import PodFact
from fermata.operator.progress import WorkflowView
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

    def take_back(self, views: Mapping[str, WorkflowView], beyond: Callable[[], int]) -> None:
        """Take turns back that were given under other circumstances; only a pod that was let through holds to its own.

        All of them where nothing more is to start, as in what was suspended before its pods were made; and as many as
        are beyond a limit that was lowered since. Not where nobody knows whether a pod was let through: that is asked
        again.

        Args:
            views: of the pool's workflows, by uid.
            beyond: tells how many executors are taken that the pool does not have; asked where there is any turn.
        """
        owed = [job for job in self._store.owed_turns(self._pool) if _key(job) not in self.failures]
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
        key, now_s = _key(job), self._now()
        try:
            self._store.put_own("pods", await open_gate(self._cluster, pod))
            self.failures.pop(key, None)
        except ClusterError as error:
            if job.meta.uid not in self._store.jobs:  # it was deleted meanwhile
                return
            if error.reason in ("Conflict", "NotFound"):  # the pod has changed or is gone, and a watch will say so
                return
            failure = self.failures[key] = Failure.after(
                self.failures.get(key), str(error), now_s, busy=error.is_trouble
            )
            if not error.is_unsure:  # others may have its executors until it is tried again
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
