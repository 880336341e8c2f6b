"""An operator on virtual time: its Job controller and kubelet lose no time, and hours of a pool take seconds."""

from __future__ import annotations

import asyncio
import heapq
import math
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from unittest.mock import patch

from tests.unit.operator.world import Server

from fermata.operator import names, tell
from fermata.operator.connection import ClusterError
from fermata.operator.events import Events
from fermata.operator.metrics import Metrics
from fermata.operator.reconcile import PoolReconciler
from fermata.operator.recorder import Recorder
from fermata.operator.store import Store
from fermata.operator.times import render
from fermata.operator.tools import Tools

Raw = dict[str, Any]


class VirtualCluster(Server):
    """One pool. Pods are made, pass their gates, run and end at the very times at which they should.

    Args:
        begin_s: the first time, seconds since the epoch.
        duration_s: of a task, by workflow and stage.
        slow: the operator has seen, and decided on, the end of each pod before the Job controller says so of its Job.
        pool: its spec.
    """

    def __init__(self, begin_s: float, duration_s: dict[tuple[str, str], float], *, slow: bool, **pool: Any) -> None:
        super().__init__()
        self.now_s, self.duration_s, self.slow = begin_s, duration_s, slow
        self.clock_s = lambda: self.now_s
        self.pods: dict[str, Raw] = {}
        self.running: list[tuple[float, str]] = []  # heap: end, pod
        self.completion_s: dict[str, float] = {}  # of each workflow's latest Job
        self.most = 0  # executors that were taken at once
        self.idle_s = 0.0  # for how long nothing had an executor although a pod was at its gate
        self.ready: int | None = None  # pods of each Job that get ready; None: all
        self.fails: dict[str, int] = {}  # by workflow: how many of its pods fail before others do their work
        self.backoff_s = 0.0  # after a pod has failed, its Job makes none for so long
        self._unsaid: Counter[str] = Counter()  # by uid of Jobs: pods that have ended, of which they do not say so yet
        self._refill_s: dict[str, float] = {}  # by uid of Jobs that make no pods now: until when
        self.leads = True
        self.shut_for = "Forbidden"
        self.quota: dict[str, int] = {}  # by workflow: how many pods of it may be at once
        self.shut_s: dict[str, float] = {}  # by workflow: until when nobody may let a pod of it through
        self._news = True
        self._pool = self.put("p", {"metadata": {"name": "pool", "uid": "p", "generation": 1}, "spec": pool})
        self.start_operator()

    def start_operator(self) -> None:
        """Start the operator, anew if there was one: it lists what there is."""
        metrics, self._pool = Metrics(), self.objects["p"]
        self.store = Store(self.clock_s, lambda _: self._hear())
        self.reconciler = PoolReconciler(
            "pool",
            Tools(
                store=self.store,
                cluster=self,  # type: ignore[arg-type]
                events=Events(self, metrics, self.clock_s),  # type: ignore[arg-type]
                metrics=metrics,
                recorder=Recorder(None),
                now=self.clock_s,
                wake=lambda _: None,
                pending=lambda _: False,
                leads=lambda: self.leads,
                confirm=self.confirm,
                namespace=None,
            ),
        )
        self.store.put("executorpools", self._pool)
        for raw in self.objects.values():
            if raw.get("kind") == "Workflow":
                self.store.put("workflows", raw)
        for pod in self.pods.values():
            self.store.put("pods", pod)
        for raw in self.objects.values():
            if raw.get("kind") == "Job":
                self.store.put("jobs", raw)

    async def confirm(self) -> None:
        if not self.leads:
            raise ClusterError(0, "LeaseInDoubt", "another one has it")

    def _stamp(self) -> str:
        """Return the time as an API server stamps it: whole seconds."""
        return render(math.floor(self.now_s))

    def _hear(self) -> None:
        self._news = True

    async def run(
        self,
        arrivals: list[tuple[float, Raw]],
        restart_s: float = math.inf,
        until_s: float = math.inf,
        edits: Sequence[tuple[float, Callable[[], None]]] = (),
    ) -> dict[str, float]:
        """Submit workflows at their times and return when each of them ended.

        Args:
            arrivals: times, in their order, and workflows.
            restart_s: when the operator is killed and started anew.
            until_s: when to leave off, whatever has not ended.
            edits: what people do besides, and when.
        """
        left = [*edits, *((at_s, partial(self._submit, raw)) for at_s, raw in arrivals)]
        left += [(restart_s, self.restart)] if restart_s < math.inf else []
        left.sort(key=lambda each: each[0], reverse=True)
        wake_s = math.inf
        while (left or self.unfinished()) and self.now_s < until_s:
            next_s = self.running[0][0] if self.running else math.inf
            next_s = min(next_s, left[-1][0] if left else math.inf, wake_s, until_s, *self._refill_s.values())
            assert next_s < math.inf, "nothing will ever happen again"
            self.idle_s += max(next_s - self.now_s, 0.0) if self._wastes else 0.0
            self.now_s = max(next_s, self.now_s)
            await self._end_due()
            while left and left[-1][0] <= self.now_s:
                left.pop()[1]()
            wake_s = await self._settle()
        self.reconciler.close()
        return self.completion_s

    def unfinished(self) -> list[str]:
        """Return the workflows of which no status says that they have ended."""
        told = ((raw["metadata"]["name"], raw) for raw in self.objects.values() if raw.get("kind") == "Workflow")
        return [name for name, raw in told if not raw.get("status", {}).get("completionTime")]

    def _submit(self, raw: Raw) -> None:
        self.store.put("workflows", self.put(raw["metadata"]["uid"], raw))

    def restart(self) -> None:
        """Kill the operator and start another one."""
        self.reconciler.close()
        self.start_operator()

    def edit(self, uid: str, **spec: Any) -> None:
        """Change fields of the spec of the pool, or of a workflow if there is one of that uid."""
        raw = self.objects.get(uid)
        if raw is not None:
            meta = {**raw["metadata"], "generation": raw["metadata"]["generation"] + 1}
            raw = self.put(uid, {**raw, "metadata": meta, "spec": raw["spec"] | spec})
            self.store.put("executorpools" if uid == "p" else "workflows", raw)

    def delete(self, uid: str) -> None:
        """Delete a workflow, and with it its Jobs and pods, which end at once."""
        if self.objects.pop(uid, None) is None:
            return
        self.store.remove("workflows", uid)
        for job in [raw for raw in self.objects.values() if raw.get("kind") == "Job" and _owner(raw) == uid]:
            del self.objects[job["metadata"]["uid"]]
            self.store.remove("jobs", job["metadata"]["uid"])
            self._end_pods(job["metadata"]["uid"])

    @property
    def _wastes(self) -> bool:
        """Whether nothing has an executor although a pod is at its gate; a Job without gates keeps its executors."""
        keeps = any(not self.objects[uid]["spec"]["template"]["spec"].get("schedulingGates") for uid in self._refill_s)
        return bool(self.pods) and not self.running and not keeps

    async def _settle(self) -> float:
        """Reconcile until nothing is new, and return when to come back.

        Statuses are written at once: where one is put off the operator comes back for it and asks the policy again, at
        a time that no simulator knows of. What "wait until then" comes to may then differ, either way.
        """
        self._news = True
        with patch.object(tell, "STATUS_INTERVAL_S", 0.0):
            while self._news:
                self._news = False
                wake_s = await self.reconciler.reconcile()
                if loading := self.reconciler._seat._loading:  # another policy: to load one takes no time
                    await asyncio.wait({loading})
                    self._news = True
        return wake_s

    async def create_job(self, job: Raw) -> Raw:
        job["status"] = {"active": 0, "succeeded": 0, "failed": 0, "made": 0}
        return self._fill(await super().create_job(job))

    async def patch_job(self, ns: str, name: str, patch: Raw) -> Raw:
        return self._fill(await super().patch_job(ns, name, patch))

    async def find_pod(self, _ns: str, name: str) -> Raw | None:
        return self.pods.get(name)

    async def patch_pod(self, _ns: str, name: str, patch: Raw) -> Raw:
        pod = self.pods[name]
        if self.now_s < self.shut_s.get(pod["metadata"]["labels"][names.LABEL_WORKFLOW], -math.inf):
            code = {"NotFound": 404, "Conflict": 409}.get(self.shut_for, 403)
            raise ClusterError(code, self.shut_for, "you may not")
        assert patch["metadata"]["resourceVersion"] == pod["metadata"]["resourceVersion"]
        self.pods[name] = {**pod, "spec": pod["spec"] | patch["spec"]}
        return self._show(name)

    def _fill(self, job: Raw) -> Raw:
        """Make pods until as many of a Job have not ended as its parallelism says, or all its tasks have theirs."""
        uid, spec, status = job["metadata"]["uid"], job["spec"], job["status"]
        if spec.get("suspend"):
            self._end_pods(uid)
            return self.put(uid, {**job, "status": status | {"active": 0, "ready": 0}})
        unsaid = self._unsaid[uid]
        wanted = min(spec["parallelism"], spec["completions"] - status["succeeded"] - unsaid)
        present, made = sum(_owner(pod) == uid for pod in self.pods.values()), status["made"]
        if uid in self._refill_s:
            wanted = present
        wanted = min(wanted, self.quota.get(spec["template"]["metadata"]["labels"][names.LABEL_WORKFLOW], wanted))
        missing = wanted - present
        for index in range(made, made + missing):
            name, template = f"{uid}-{index}", spec["template"]
            meta = {"uid": name, "name": name, "namespace": "default", "labels": template["metadata"]["labels"]}
            meta["annotations"] = {**template["metadata"]["annotations"], names.ANNOTATION_INDEX: str(index)}
            meta["ownerReferences"] = [{"uid": uid, "controller": True}]
            self.pods[name] = {"metadata": meta, "spec": template["spec"], "status": {"phase": "Pending"}}
            self._show(name)
        status = {
            **status,
            "active": wanted + unsaid,
            "ready": wanted if self.ready is None else self.ready,
            "made": made + max(missing, 0),
        }
        return self.put(uid, {**job, "status": status})

    def _end_pods(self, job: str) -> None:
        """End all pods of a Job that is to have none, and count none of them."""
        self._refill_s.pop(job, None)
        for name in [name for name, pod in self.pods.items() if _owner(pod) == job]:
            del self.pods[name]
            self.store.remove("pods", name)
        self.running = [(end_s, name) for end_s, name in self.running if name in self.pods]
        heapq.heapify(self.running)

    def _show(self, name: str) -> Raw:
        """Run a pod that no gate keeps, and tell of it."""
        self._version += 1
        pod = self.pods[name] = {**self.pods[name]}
        pod["metadata"] = {**pod["metadata"], "resourceVersion": str(self._version)}
        if not pod["spec"].get("schedulingGates"):
            labels = pod["metadata"]["labels"]
            took_s = self.duration_s[labels[names.LABEL_WORKFLOW], labels[names.LABEL_STAGE]]
            heapq.heappush(self.running, (self.now_s + took_s, name))
            pod["status"] = {"phase": "Running", "startTime": self._stamp()}
            taken = [
                int(self.pods[each]["metadata"]["annotations"][names.ANNOTATION_SLOTS]) for _, each in self.running
            ]
            self.most = max(self.most, sum(taken))
        self.store.put("pods", pod)
        return pod

    async def _end_due(self) -> None:
        """End the pods whose time has come, and then say so of their Jobs."""
        for uid in [uid for uid, until_s in self._refill_s.items() if until_s <= self.now_s]:
            del self._refill_s[uid]
            self.store.put("jobs", self._fill(self.objects[uid]))
        due: Counter[str] = Counter()
        failed: Counter[str] = Counter()
        while self.running and self.running[0][0] <= self.now_s:
            name = heapq.heappop(self.running)[1]
            self.store.remove("pods", name)
            pod = self.pods.pop(name)
            owner = pod["metadata"]["labels"][names.LABEL_WORKFLOW]
            fails = self.fails.get(owner, 0) > 0
            self.fails[owner] = self.fails.get(owner, 0) - fails
            (failed if fails else due)[_owner(pod)] += 1
        if (due or failed) and self.slow:
            self._unsaid = due + failed
            await self._settle()
            self._unsaid = Counter()
        for uid, tasks in failed.items():
            self._fail(uid, tasks)
        for uid, tasks in due.items():
            self._succeed(uid, tasks)

    def _fail(self, uid: str, tasks: int) -> None:
        """Note that some tasks of a Job have failed, which are tried again."""
        job = self.objects[uid]
        self._refill_s[uid] = self.now_s + self.backoff_s
        self.store.put(
            "jobs", self._fill({**job, "status": job["status"] | {"failed": job["status"]["failed"] + tasks}})
        )

    def _succeed(self, uid: str, tasks: int) -> None:
        """Note that some more tasks of a Job have succeeded."""
        job = self.objects[uid]
        status = {**job["status"], "succeeded": job["status"]["succeeded"] + tasks}
        if status["succeeded"] == job["spec"]["completions"]:
            done = {"type": "Complete", "status": "True", "lastTransitionTime": self._stamp()}
            status |= {"conditions": [done], "active": 0}
            self.completion_s[job["metadata"]["labels"][names.LABEL_WORKFLOW]] = self.now_s
            self.put(uid, {**job, "status": status})
        else:
            self._fill({**job, "status": status})
        self.store.put("jobs", self.objects[uid])


def _owner(pod: Raw) -> str:
    return str(pod["metadata"]["ownerReferences"][0]["uid"])
