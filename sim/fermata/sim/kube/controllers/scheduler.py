"""The scheduler: binds pods to nodes that have room, in the order of priority, then of arrival.

A node has room while the pods on it, and what they request, stay within its allocatable. An executor slot is a node's
room for one pod. Knows nothing of Jobs or workflows.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

import aiohttp

from fermata.sim.kube.client import Informer
from fermata.sim.kube.clock import stamp
from fermata.sim.kube.controllers.work import Recorder, reference
from fermata.sim.kube.errors import ApiError
from fermata.sim.kube.patch import STRATEGIC_PATCH
from fermata.sim.kube.pod_requests import PodSpec
from fermata.sim.kube.quantity import parse_quantity

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fermata.sim.kube.client import Client
    from fermata.sim.kube.resources import Obj

log = logging.getLogger(__name__)

_NAME = "default-scheduler"
_RETRY_S = 1.0


@dataclass(frozen=True, slots=True)
class _Pod:
    ref: tuple[str, str, str]
    node: str
    done: bool
    gated: bool
    told: bool
    priority: int
    requests: tuple[tuple[str, float], ...]
    node_selector: tuple[tuple[str, str], ...]

    @property
    def shape(self) -> _Shape:
        """What decides whether a node has room; pods of one shape are served strictly in order."""
        return self.requests, self.node_selector


@dataclass(frozen=True, slots=True)
class _Node:
    room: dict[str, float]
    labels: Mapping[str, str]
    open: bool


_Shape = tuple[tuple[tuple[str, float], ...], tuple[tuple[str, str], ...]]


class Scheduler:
    """Binds pods.

    Args:
        client: the API server to work for.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._pods = Informer(client, "/api/v1/pods", _pod_view, self._on_pod)
        self._nodes = Informer(client, "/api/v1/nodes", _node_view, self._on_node)
        self._recorder = Recorder(client, _NAME)
        self._used: dict[str, dict[str, float]] = {}
        #: Pods bound by us whose binding the informer has not shown yet: key -> (node, requests).
        self._assumed: dict[str, tuple[str, tuple[tuple[str, float], ...]]] = {}
        #: Waiting pods by what they ask for, each in the order in which they are served: (-priority, arrival, key).
        self._queues: dict[_Shape, list[tuple[int, int, str]]] = {}
        self._waiting: set[str] = set()
        #: Pods that came since the last round; those still waiting after it are told so.
        self._fresh: list[str] = []
        self._arrivals = itertools.count()
        self._wake = asyncio.Event()

    async def run(self) -> None:
        """Schedule until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pods.run())
                group.create_task(self._nodes.run())
                await self._nodes.synced.wait()
                await self._pods.synced.wait()
                while True:
                    await self._wake.wait()
                    self._wake.clear()
                    self._schedule(group)
        finally:
            await self._recorder.close()

    # Following ----------------------------------------------------------------------------------------------------

    def _on_pod(self, key: str, before: _Pod | None, after: _Pod | None) -> None:
        if before is not None and before.node and not before.done:
            self._charge(before.node, before.requests, -1)
        if after is None or after.node:
            self._unassume(key)
        if after is not None and after.node and not after.done:
            self._charge(after.node, after.requests, 1)
        if after is None or after.node or after.done or after.gated:
            self._waiting.discard(key)
        elif key not in self._waiting and key not in self._assumed:
            self._enqueue(key, after)
        self._wake.set()

    def _on_node(self, key: str, before: _Node | None, after: _Node | None) -> None:
        del key, before, after
        self._wake.set()

    def _enqueue(self, key: str, pod: _Pod) -> None:
        self._waiting.add(key)
        self._fresh.append(key)
        heapq.heappush(self._queues.setdefault(pod.shape, []), (-pod.priority, next(self._arrivals), key))
        self._wake.set()

    def _charge(self, node: str, requests: tuple[tuple[str, float], ...], sign: int) -> None:
        used = self._used.setdefault(node, {})
        for name, amount in requests:
            used[name] = used.get(name, 0.0) + sign * amount

    def _unassume(self, key: str) -> None:
        assumed = self._assumed.pop(key, None)
        if assumed is not None:
            self._charge(*assumed, -1)

    # Placing ------------------------------------------------------------------------------------------------------

    def _schedule(self, group: asyncio.TaskGroup) -> None:
        """Place as many waiting pods as there is room for; a pod that does not fit does not hold up others."""
        tried = dict(self._queues)
        while tried:
            shape = min(tried, key=lambda shape: tried[shape][0])
            key = tried[shape][0][2]
            pod = self._pods.cache.get(key)
            node = None
            if pod is not None and key in self._waiting:
                node = self._place(pod)
                if node is None:
                    del tried[shape]
                    continue
            heapq.heappop(tried[shape])
            if not tried[shape]:
                del tried[shape], self._queues[shape]
            if pod is not None and node is not None:
                self._waiting.discard(key)
                self._assumed[key] = (node, pod.requests)
                self._charge(node, pod.requests, 1)
                group.create_task(self._bind(key, pod, node))
        fresh, self._fresh = self._fresh, []
        for key in fresh:
            pod = self._pods.cache.get(key)
            if pod is not None and key in self._waiting and not pod.told:
                group.create_task(self._tell_unschedulable(key, pod))

    def _place(self, pod: _Pod) -> str | None:
        """Return the node with the most room for pods among those that fit."""
        best, best_room = None, -1.0
        for key, node in self._nodes.cache.items():
            name = key.partition("/")[2]
            used = self._used.get(name, {})
            if not node.open or any(node.labels.get(label) != value for label, value in pod.node_selector):
                continue
            if all(used.get(kind, 0.0) + amount <= node.room.get(kind, 0.0) + 1e-9 for kind, amount in pod.requests):
                room = node.room.get("pods", 0.0) - used.get("pods", 0.0)
                if room > best_room:
                    best, best_room = name, room
        return best

    async def _bind(self, key: str, pod: _Pod, node: str) -> None:
        namespace, name, uid = pod.ref
        path = f"/api/v1/namespaces/{namespace}/pods/{name}"
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "namespace": namespace, "uid": uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        try:
            await self._client.create(f"{path}/binding", binding)
        except (ApiError, aiohttp.ClientError, TimeoutError) as error:
            log.info("pod %s not bound: %s", key, error)
            self._unassume(key)
            await asyncio.sleep(_RETRY_S)
            current = self._pods.cache.get(key)
            if current is not None and not (current.node or current.done or current.gated):
                self._enqueue(key, current)
            return
        self._recorder.record(_reference(pod), "Scheduled", f"Successfully assigned {key} to {node}")

    async def _tell_unschedulable(self, key: str, pod: _Pod) -> None:
        namespace, name, uid = pod.ref
        message = f"0/{len(self._nodes.cache)} nodes are available: too little room for {dict(pod.requests)}."
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": message,
            "lastTransitionTime": stamp(),
        }
        patch = {"metadata": {"uid": uid}, "status": {"conditions": [condition]}}
        try:
            path = f"/api/v1/namespaces/{namespace}/pods/{name}/status"
            self._pods.note(await self._client.patch(path, patch, STRATEGIC_PATCH))
        except (ApiError, aiohttp.ClientError, TimeoutError) as error:
            log.debug("pod %s: %s", key, error)
            return
        self._recorder.record(_reference(pod), "FailedScheduling", message, "Warning")


def _reference(pod: _Pod) -> Obj:
    namespace, name, uid = pod.ref
    meta = {"namespace": namespace, "name": name, "uid": uid}
    return reference({"apiVersion": "v1", "kind": "Pod", "metadata": meta})


def _pod_view(pod: Obj) -> _Pod | None:
    meta, spec, status = pod["metadata"], pod["spec"], pod.get("status") or {}
    if not spec.get("nodeName") and spec.get("schedulerName", _NAME) != _NAME:
        return None
    requests = {"pods": 1.0, **PodSpec.model_validate(spec).requests}
    conditions = status.get("conditions") or []
    return _Pod(
        ref=(meta["namespace"], meta["name"], meta["uid"]),
        node=spec.get("nodeName") or "",
        done=status.get("phase") in ("Succeeded", "Failed"),
        gated=bool(spec.get("schedulingGates")) or bool(meta.get("deletionTimestamp")),
        told=any(item.get("type") == "PodScheduled" and item.get("reason") == "Unschedulable" for item in conditions),
        priority=int(spec.get("priority") or 0),
        requests=tuple(sorted(requests.items())),
        node_selector=tuple(sorted((spec.get("nodeSelector") or {}).items())),
    )


def _node_view(node: Obj) -> _Node:
    status, spec = node.get("status") or {}, node.get("spec") or {}
    room = status.get("allocatable") or status.get("capacity") or {}
    ready = any(item.get("type") == "Ready" and item.get("status") == "True" for item in status.get("conditions") or [])
    return _Node(
        room={name: parse_quantity(amount) for name, amount in room.items()},
        labels=node["metadata"].get("labels") or {},
        open=ready and not spec.get("unschedulable"),
    )
