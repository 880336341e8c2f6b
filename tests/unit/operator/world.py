"""A pool under a policy that holds and a clock of the test's own; the API server is a dict, because hours pass here."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable
from typing import Any

from tests.unit.operator.objects import T0, stage, workflow

from fermata.operator.connection import ClusterError
from fermata.operator.events import Events
from fermata.operator.metrics import Metrics
from fermata.operator.reconcile import PoolReconciler
from fermata.operator.recorder import Recorder
from fermata.operator.store import Store
from fermata.operator.times import parse
from fermata.operator.tools import Tools
from fermata.policy.action import HOLD, START, Action
from fermata.policy.state import ClusterState

HOLD_S = 10.0


class Server:
    """Objects by uid; every write makes a new version."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.jobs: list[dict[str, Any]] = []
        self.refusals: dict[str, list[int]] = {}  # HTTP statuses for the next Jobs, by workflow
        self.deleted: list[str] = []
        self.undeletable: list[int] = []  # HTTP statuses for the next deletions
        self.asked_to_delete_s: list[float] = []  # when a workflow was to be deleted, by `clock_s`
        self.patched_s: list[float] = []  # when a Job was to be patched, by `clock_s`
        self.clock_s: Callable[[], float] = lambda: 0.0
        self.forbids = False  # whether it refuses all patches of Jobs
        self.strips = False  # whether admission takes all labels off a Job
        self.disowns = False  # whether it takes the owner off
        self.narrow: int | None = None  # how many tasks at once admission leaves to any Job
        self.room = math.inf  # characters of an object, beyond which none is stored
        self.unread = 0  # how many more times it does not answer what asks for a Job
        self.unread_status = 503  # what is said instead, by whoever stands before it
        self.denied_status = 403  # the same of the statuses of workflows
        self.busy: int | None = None  # how many statuses it has refused because it has too much to do, while it has
        self.denied_s: list[float] | None = None  # when it refused statuses of workflows, by `clock_s`, while it does
        self.denied_pool_s: list[float] | None = None  # the same of the status of the pool
        self.denied_pool_status = 403
        self._version = 100

    def put(self, uid: str, raw: dict[str, Any]) -> dict[str, Any]:
        self._version += 1
        raw["metadata"]["resourceVersion"] = str(self._version)
        self.objects[uid] = raw
        return raw

    async def create_job(self, job: dict[str, Any]) -> dict[str, Any]:
        if refusals := self.refusals.get(job["metadata"]["labels"]["fermata.dev/workflow"]):
            raise ClusterError(refusals.pop(), "", "a bad moment")
        if job["metadata"]["name"] in self.objects:
            raise ClusterError(409, "AlreadyExists", "it exists")
        job["metadata"]["uid"] = job["metadata"]["name"]
        self.jobs.append(job)
        return self.put(job["metadata"]["uid"], self._admitted(job))

    def _admitted(self, job: dict[str, Any]) -> dict[str, Any]:
        meta = job["metadata"] | ({"labels": {}} if self.strips else {})
        meta |= {"ownerReferences": []} if self.disowns else {}
        spec = job["spec"] | ({} if self.narrow is None else {"parallelism": self.narrow})
        return {**job, "metadata": meta, "spec": spec}

    async def patch_workflow_status(self, _ns: str, name: str, version: str, status: dict[str, Any]) -> dict[str, Any]:
        if self.denied_s is not None:
            self.denied_s.append(self.clock_s())
            raise ClusterError(self.denied_status, "", "you may not")
        return self._patch_status(name, version, status)

    async def patch_pool_status(self, name: str, version: str, status: dict[str, Any]) -> dict[str, Any]:
        if self.denied_pool_s is not None:
            self.denied_pool_s.append(self.clock_s())
            raise ClusterError(self.denied_pool_status, "", "you may not")
        return self._patch_status(name, version, status)

    def _patch_status(self, name: str, version: str, status: dict[str, Any]) -> dict[str, Any]:
        if self.busy is not None:
            self.busy += 1
            raise ClusterError(429, "TooManyRequests", "later")
        (raw,) = (raw for raw in self.objects.values() if raw["metadata"]["name"] == name)
        assert raw["metadata"]["resourceVersion"] == version
        merged = {**raw, "status": {**raw.get("status", {}), **status}}
        if len(json.dumps(merged)) > self.room:
            raise ClusterError(500, "", "etcdserver: request is too large")
        return self.put(raw["metadata"]["uid"], merged)

    async def get_job(self, _ns: str, name: str) -> dict[str, Any]:
        if self.unread:
            self.unread -= 1
            raise ClusterError(self.unread_status, "ServiceUnavailable" if self.unread_status == 503 else "", "later")
        if name not in self.objects:
            raise ClusterError(404, "NotFound", "there is none")
        return self.objects[name]

    async def patch_job(self, _ns: str, name: str, patch: dict[str, Any]) -> dict[str, Any]:
        self.patched_s.append(self.clock_s())
        job = self.objects[name]
        changes = patch.get("metadata", {})
        if self.forbids:
            raise ClusterError(403, "Forbidden", "you may not")
        if changes["uid"] != job["metadata"]["uid"]:
            raise ClusterError(422, "Invalid", "metadata.uid: field is immutable")
        meta = {key: job["metadata"].get(key, {}) | changes.get(key, {}) for key in ("labels", "annotations")}
        spec = job["spec"] | patch.get("spec", {})
        meta |= {key: changes[key] for key in changes.keys() & {"ownerReferences"}}
        return self.put(name, self._admitted({**job, "metadata": {**job["metadata"], **meta}, "spec": spec}))

    async def delete_workflow(self, _ns: str, _name: str, uid: str, version: str) -> None:
        self.asked_to_delete_s.append(self.clock_s())
        if self.undeletable:
            raise ClusterError(self.undeletable.pop(), "", "a bad moment")
        if uid in self.deleted:
            raise ClusterError(404, "NotFound", "it is gone")
        if self.objects[uid]["metadata"]["resourceVersion"] != version:
            raise ClusterError(409, "Conflict", "Precondition failed")
        self.deleted.append(uid)

    async def create_event(self, *_: Any) -> None:
        pass


class Holder:
    """Starts what is short, and holds what is long for ten seconds, again and again."""

    name = "holder"

    def choose(self, state: ClusterState) -> Action:
        for index in state.ready_stages.tolist():
            if state.stage_estimate_s[index] < 100 and state.stage_running[index] < state.stage_max_cap[index]:
                return Action(START, index, int(state.stage_max_cap[index]))
        rows = [i for i in state.ready_stages.tolist() if not state.stage_hold_until_s[i] > state.now_s]
        return Action(HOLD, rows[0], until_s=state.now_s + HOLD_S)


class World:
    """A pool of two executors under `Holder`, with something short running that never ends.

    Args:
        served: the namespace that the operator is for; None: all of them.
        pool: what its spec says otherwise.
    """

    def __init__(self, served: str | None = None, **pool: Any) -> None:
        self.now_s, self.server = T0 + 1.0, Server()
        self.server.clock_s = lambda: self.now_s
        self.leads = True
        self.went_back = False  # whether the control plane was restored from a backup, and only the Lease says so
        self.served = served
        self.busy = False  # whether something always happens in the pool while it is reconciled
        meta = {"name": "pool", "uid": "p", "generation": 1}
        spec = {"executors": 2, "policy": {"name": "sjf"}, "decisionDeadlineSeconds": 60, **pool}  # Numba may compile
        self.pool = {"metadata": meta, "spec": spec}
        self.server.put("p", self.pool)
        self.start_operator()
        self.feed("workflows", "uid-short", workflow("short", stage("a", estimateSeconds=9)))
        self.feed("workflows", "uid-long", workflow("long", stage("a", estimateSeconds=900), status={}))

    def start_operator(self) -> None:
        metrics, server = Metrics(), self.server
        self.metrics = metrics
        self.store = Store(lambda: self.now_s, lambda _: None)
        self.reconciler = PoolReconciler(
            "pool",
            Tools(
                store=self.store,
                cluster=server,  # type: ignore[arg-type]
                events=Events(server, metrics, lambda: self.now_s),  # type: ignore[arg-type]
                metrics=metrics,
                recorder=Recorder(None),
                now=lambda: self.now_s,
                wake=lambda _: None,
                pending=lambda _: self.busy,
                leads=lambda: self.leads,
                confirm=self.confirm,
                namespace=self.served,
            ),
        )
        self.store.put("executorpools", server.objects["p"])
        asyncio.run(self.reconciler.reconcile())  # it loads the pool's policy, and ours takes its place
        self.reconciler._seat._policy = Holder()
        for uid, raw in list(server.objects.items()):
            self.store.put(kind_of(uid), raw)

    async def confirm(self) -> None:
        if self.went_back:
            raise ClusterError(0, "LeaseInDoubt", "it was restored from a backup")

    def feed(self, kind: Any, uid: str, raw: dict[str, Any]) -> None:
        self.store.put(kind, self.server.put(uid, raw))

    def annotate(self, uid: str, value: str) -> None:
        raw = self.server.objects[uid]
        meta = {**raw["metadata"], "annotations": {"fermata.dev/release": value}}
        self.feed(kind_of(uid), uid, {**raw, "metadata": meta})

    def events(self) -> list[dict[str, Any]]:
        """Return the Events that are to be written: nobody writes them here."""
        queue = self.reconciler._tools.events._queue
        return [queue.get_nowait()[1] for _ in range(queue.qsize())]

    async def run_until(self, end_s: float) -> None:
        """Reconcile whenever the operator asks to be woken, until a time."""
        while self.now_s < end_s:
            self.now_s = min(max(await self.reconciler.reconcile(), self.now_s + 0.001), end_s)
        await self.reconciler.reconcile()

    @property
    def started(self) -> dict[str, float]:
        """When each workflow's stage was started, seconds after T0."""
        key, label = "fermata.dev/start-time", "fermata.dev/workflow"
        meta = [job["metadata"] for job in self.server.jobs]
        return {row["labels"][label]: round(parse(row["annotations"][key]) - T0, 2) for row in meta}

    @property
    def long(self) -> dict[str, Any]:
        """The status of the long workflow's stage."""
        rows = self.server.objects["uid-long"]["status"]["stages"]
        return dict(rows[0])


def kind_of(uid: str) -> Any:
    return "executorpools" if uid == "p" else "workflows" if uid.startswith("uid-") else "jobs"
