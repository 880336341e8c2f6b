"""An API server on virtual time: its watches tell late and sometimes twice, and it refuses, or its answers are lost."""

from __future__ import annotations

import copy
import itertools
import json
import random
from collections import Counter, deque
from collections.abc import Callable, Iterator
from typing import Any, Literal, Protocol

from tests.late.timeline import Timeline

from fermata.operator.connection import ClusterError
from fermata.operator.store import Kind, Store
from fermata.operator.watches import KINDS

Raw = dict[str, Any]
Change = Literal["ADDED", "MODIFIED", "DELETED"]


class Overseer(Protocol):
    """Who holds what the operator asks for against what it should."""

    def starts(self, job: Raw) -> None:
        """Look at a Job that is about to be made."""

    def patches(self, job: Raw, spec: Raw) -> None:
        """Look at a Job whose spec is about to change."""

    def lets_through(self, pod: Raw) -> None:
        """Look at a pod that is about to pass its gate."""

    def tells(self, workflow: Raw) -> None:
        """Look at a workflow whose status was written."""


class Server:
    """Objects by kind and uid, and what watches have not told of them yet.

    Args:
        timeline: its clock.
        rng: what is late, doubled and refused.
        late: whether watches are late.
        refusals: how probable it is that a request of the operator's is refused, or its answer lost.
    """

    def __init__(self, timeline: Timeline, rng: random.Random, *, late: bool, refusals: float) -> None:
        self.timeline, self.rng, self.late, self.refusals = timeline, rng, late, refusals
        self.objects: dict[Kind, dict[str, Raw]] = {kind: {} for kind in KINDS}
        self.heard: list[Callable[[Kind, Change, Raw], None]] = []  # controllers
        self.overseer: Overseer | None = None
        self.writes = Counter[str]()  # statuses that the operator has written, by kind
        self._told: dict[Kind, deque[tuple[float, Change, Raw]]] = {kind: deque() for kind in KINDS}
        self._versions, self._uids = itertools.count(100), itertools.count()

    def put(self, kind: Kind, raw: Raw) -> Raw:
        """Store an object, new or not, and return what is stored; an object without uid gets one."""
        raw = copy.deepcopy(raw)
        meta = raw["metadata"]
        meta.setdefault("uid", f"{kind}-{next(self._uids)}")
        change: Change = "MODIFIED" if meta["uid"] in self.objects[kind] else "ADDED"
        meta.setdefault("creationTimestamp", self.timeline.stamp())
        self._tell(kind, change, raw)
        self.objects[kind][meta["uid"]] = raw
        for each in self.heard:
            each(kind, change, raw)
        return copy.deepcopy(raw)

    def change(self, kind: Kind, uid: str, **parts: Raw) -> Raw:
        """Merge into parts of an object, such as its `spec`; None takes a field away."""
        raw = {**self.objects[kind][uid]}
        before = raw.get("spec")
        for part, fields in parts.items():
            merged = {**raw.get(part, {}), **fields}
            raw[part] = {key: value for key, value in merged.items() if value is not None}
        if before is not None and raw["spec"] != before:
            raw["metadata"] = {**raw["metadata"], "generation": raw["metadata"].get("generation", 1) + 1}
        return self.put(kind, raw)

    def remove(self, kind: Kind, uid: str) -> None:
        """Take an object away; what it owns stays."""
        raw = copy.deepcopy(self.objects[kind].pop(uid))
        self._tell(kind, "DELETED", raw)
        for each in self.heard:
            each(kind, "DELETED", raw)

    def named(self, kind: Kind, namespace: str, name: str) -> Raw | None:
        """Return the object of a name, if there is one."""
        return next((raw for raw in self.objects[kind].values() if _is(raw, namespace, name)), None)

    def owned(self, kind: Kind, owner: str) -> list[Raw]:
        """Return the objects that the one of a uid owns."""
        return [raw for raw in self.objects[kind].values() if owner_of(raw) == owner]

    # Watches

    @property
    def tells_s(self) -> float:
        """When the next change is told of."""
        return min((told[0][0] for told in self._told.values() if told), default=float("inf"))

    def tell(self, store: Store) -> None:
        """Tell an operator of the changes whose time has come."""
        for kind, told in self._told.items():
            while told and told[0][0] <= self.timeline.now_s:
                _, change, raw = told.popleft()
                meta = raw["metadata"]
                for _ in range(1 + (self.rng.random() < 0.05)):
                    if change == "DELETED":
                        store.remove(kind, meta["uid"], meta["name"], meta["resourceVersion"])
                    else:
                        store.put(kind, copy.deepcopy(raw))

    def has_told(self, kind: Kind, uid: str) -> bool:
        """Whether watches have told that an object is there."""
        return not any(change == "ADDED" and raw["metadata"]["uid"] == uid for _, change, raw in self._told[kind])

    def list_all(self, store: Store, kind: Kind) -> None:
        """Have an operator read all objects of a kind; what watches have not told of them is not told any more."""
        self._told[kind].clear()
        listed = store.put_all(kind, copy.deepcopy(list(self.objects[kind].values())))
        store.retain(kind, listed, str(next(self._versions)))

    def _tell(self, kind: Kind, change: Change, raw: Raw) -> None:
        raw["metadata"]["resourceVersion"] = str(next(self._versions))
        told, at_s = self._told[kind], self.timeline.now_s
        if self.late and self.rng.random() < 0.3:
            at_s += self.rng.random() * self.rng.choice([0.1, 1.5])
        told.append((max(at_s, told[-1][0] if told else 0.0), change, copy.deepcopy(raw)))

    # Requests of the operator's

    async def create_job(self, job: Raw) -> Raw:
        lost = self._may_refuse()
        if self.named("jobs", job["metadata"]["namespace"], job["metadata"]["name"]):
            raise ClusterError(409, "AlreadyExists", "it exists")
        if self.overseer:
            self.overseer.starts(job)
        return self._answer(self.put("jobs", {**job, "status": {}}), lost)

    async def get_job(self, namespace: str, name: str) -> Raw:
        return copy.deepcopy(self._found("jobs", namespace, name))

    async def patch_job(self, namespace: str, name: str, patch: Raw) -> Raw:
        lost, job = self._may_refuse(), self._found("jobs", namespace, name)
        meta, spec = patch.get("metadata", {}), patch.get("spec", {})
        if meta["uid"] != job["metadata"]["uid"]:
            raise ClusterError(422, "Invalid", "metadata.uid: field is immutable")
        if self.overseer:
            self.overseer.patches(job, spec)
        merged = {key: {**job["metadata"].get(key, {}), **meta.get(key, {})} for key in ("labels", "annotations")}
        return self._answer(self.change("jobs", meta["uid"], metadata=merged, spec=spec), lost)

    async def find_pod(self, namespace: str, name: str) -> Raw | None:
        return copy.deepcopy(self.named("pods", namespace, name))

    async def patch_pod(self, namespace: str, name: str, patch: Raw) -> Raw:
        lost, pod, same = self._may_refuse(), self._found("pods", namespace, name), patch["metadata"]
        if {key: pod["metadata"][key] for key in same} != same:
            raise ClusterError(409, "Conflict", "the object has been modified")
        if self.overseer and not pod["metadata"].get("deletionTimestamp"):
            self.overseer.lets_through(pod)
        return self._answer(self.change("pods", same["uid"], spec=patch["spec"]), lost)

    async def patch_workflow_status(self, namespace: str, name: str, version: str, status: Raw) -> Raw:
        made = self._patch_status("workflows", namespace, name, version, status)
        if self.overseer:
            self.overseer.tells(made)
        return made

    async def patch_pool_status(self, name: str, version: str, status: Raw) -> Raw:
        return self._patch_status("executorpools", "", name, version, status)

    async def delete_workflow(self, namespace: str, name: str, uid: str, version: str) -> None:
        found = self._found("workflows", namespace, name)["metadata"]
        if (found["uid"], found["resourceVersion"]) != (uid, version):
            raise ClusterError(409, "Conflict", "Precondition failed")
        self.remove("workflows", uid)

    async def create_event(self, *_: object) -> None:
        pass

    def _patch_status(self, kind: Kind, namespace: str, name: str, version: str, status: Raw) -> Raw:
        lost, raw = self._may_refuse(), self._found(kind, namespace, name)
        if raw["metadata"]["resourceVersion"] != version:
            raise ClusterError(409, "Conflict", "the object has been modified")
        self.writes[kind] += 1
        made = self.change(kind, raw["metadata"]["uid"], status=json.loads(json.dumps(status)))
        return self._answer(made, lost)

    def _found(self, kind: Kind, namespace: str, name: str) -> Raw:
        raw = self.named(kind, namespace, name)
        if raw is None:
            raise ClusterError(404, "NotFound", "there is none")
        return raw

    def _may_refuse(self) -> bool:
        """Refuse a request now and then; return whether its answer is to be lost."""
        if self.rng.random() >= self.refusals:
            return False
        status = self.rng.choice([0, 403, 500])
        if status:
            raise ClusterError(status, "Forbidden" if status == 403 else "", "a bad moment")
        return True

    def _answer(self, made: Raw, lost: bool) -> Raw:
        if lost:
            raise ClusterError(0, "", "the connection was reset")
        return made


def owner_of(raw: Raw) -> str:
    """Return the uid of an object's owner."""
    owners: list[Raw] = raw["metadata"].get("ownerReferences") or [{"uid": ""}]
    return str(owners[0]["uid"])


def _is(raw: Raw, namespace: str, name: str) -> bool:
    return bool(raw["metadata"]["name"] == name and raw["metadata"].get("namespace", "") == namespace)


def conditions(raw: Raw) -> Iterator[str]:
    """Yield the types of an object's conditions that are true."""
    return (row["type"] for row in raw.get("status", {}).get("conditions", []) if row["status"] == "True")
