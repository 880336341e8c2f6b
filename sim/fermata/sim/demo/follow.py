"""What the API tells of the workflows, pods and pools of the demonstration, and nothing that it does not tell."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from fermata.sim.kube.client import Informer
from fermata.sim.kube.clock import parse

if TYPE_CHECKING:
    from fermata.sim.kube.client import Client
    from fermata.sim.kube.resources import Obj

WORKFLOWS = "/apis/fermata.dev/v1alpha1/namespaces/default/workflows"
POOLS = "/apis/fermata.dev/v1alpha1/executorpools"
_PODS = "/api/v1/namespaces/default/pods"
_LABEL = "fermata.dev"

Activity = Literal["Waiting", "Held", "Running", "Succeeded", "Failed"]


@dataclass(frozen=True, slots=True)
class WorkflowView:
    """One workflow as its status tells it; times in seconds since the epoch, None where not known yet."""

    name: str
    pool: str
    activity: Activity
    reason: str
    arrival_s: float | None
    start_s: float | None
    completion_s: float | None
    jct_s: float | None
    wait_s: float | None
    held_s: float
    run_s: float | None
    held_since_s: float | None

    @property
    def finished(self) -> bool:
        """Whether its outcome is known."""
        return self.activity in ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class PoolView:
    """One pool as its status tells it."""

    name: str
    busy: int
    policy: str
    policy_ready: bool | None  # None: not said yet
    reason: str


class Span(NamedTuple):
    """A stretch of time of one workflow, in seconds since the epoch."""

    workflow: str
    start_s: float
    end_s: float


class Follower:
    """Follows everything by watches.

    Pods carry whole seconds, as long as a whole short one, so their spans are when each change was seen here.
    """

    def __init__(self, client: Client) -> None:
        self._workflows = Informer(client, WORKFLOWS, workflow_view, self._on_workflow)
        self._pools = Informer(client, POOLS, pool_view, self._on_pool)
        self._pods = Informer(client, _PODS, _pod_view, self._on_pod, {"labelSelector": f"{_LABEL}/pool"})
        self._started_s: dict[str, float] = {}
        self.runs: list[Span] = []
        self.holds: list[Span] = []
        #: Pool -> why its own policy did not decide at some time.
        self.fallbacks: dict[str, str] = {}

    @property
    def informers(self) -> tuple[Informer[WorkflowView], Informer[PoolView], Informer[_PodView]]:
        """What has to run for this to follow anything."""
        return self._workflows, self._pools, self._pods

    @property
    def workflows(self) -> list[WorkflowView]:
        """All workflows, as they are now."""
        return list(self._workflows.cache.values())

    @property
    def pools(self) -> dict[str, PoolView]:
        """All pools by name, as they are now."""
        return {view.name: view for view in self._pools.cache.values()}

    def _on_workflow(self, _: str, before: WorkflowView | None, after: WorkflowView | None) -> None:
        if before is None or after is None or before.held_since_s in (None, after.held_since_s):
            return
        # The status says since when it is held, and after the hold how long all of its holds were.
        lasted_s = after.held_s - before.held_s
        self.holds.append(Span(after.name, before.held_since_s, before.held_since_s + lasted_s))

    def _on_pool(self, _: str, before: PoolView | None, after: PoolView | None) -> None:
        if after is not None and after.policy_ready is False and before is not None and before.policy_ready:
            self.fallbacks[after.name] = after.reason

    def _on_pod(self, key: str, before: _PodView | None, after: _PodView | None) -> None:
        now_s = time.time()
        if after is not None and after.phase == "Running":
            self._started_s.setdefault(key, now_s)
        view = after or before
        gone = after is None or after.phase in ("Succeeded", "Failed")
        if gone and view is not None and (start_s := self._started_s.pop(key, None)) is not None:
            self.runs.append(Span(view.workflow, start_s, now_s))


class _PodView(NamedTuple):
    workflow: str
    phase: str


def workflow_view(raw: Obj) -> WorkflowView:
    """Return what a Workflow's status tells."""
    status = raw.get("status") or {}
    conditions = {row["type"]: row for row in status.get("conditions") or []}
    return WorkflowView(
        name=raw["metadata"]["name"],
        pool=raw["spec"]["poolName"],
        activity=_activity(conditions),
        reason=conditions.get("Succeeded", {}).get("message", ""),
        arrival_s=_time_s(status, "arrivalTime"),
        start_s=_time_s(status, "startTime"),
        completion_s=_time_s(status, "completionTime"),
        jct_s=status.get("jctSeconds"),
        wait_s=status.get("waitSeconds"),
        held_s=status.get("heldSeconds") or 0.0,
        run_s=status.get("runSeconds"),
        held_since_s=_time_s(status, "heldSince"),
    )


def pool_view(raw: Obj) -> PoolView:
    """Return what an ExecutorPool's status tells."""
    status = raw.get("status") or {}
    ready = next((row for row in status.get("conditions") or [] if row["type"] == "PolicyReady"), None)
    return PoolView(
        name=raw["metadata"]["name"],
        busy=status.get("busy") or 0,
        policy=status.get("policy") or "",
        policy_ready=None if ready is None else ready["status"] == "True",
        reason="" if ready is None else f"{ready['reason']}: {ready['message']}",
    )


def _pod_view(raw: Obj) -> _PodView:
    labels = raw["metadata"].get("labels") or {}
    return _PodView(labels.get(f"{_LABEL}/workflow", ""), (raw.get("status") or {}).get("phase", ""))


def _activity(conditions: dict[str, Obj]) -> Activity:
    outcome = conditions.get("Succeeded", {}).get("status")
    if outcome in ("True", "False"):
        return "Succeeded" if outcome == "True" else "Failed"
    if conditions.get("Accepted", {}).get("status") == "False":
        return "Failed"
    for kind in ("Running", "Held"):
        if conditions.get(kind, {}).get("status") == "True":
            return "Running" if kind == "Running" else "Held"
    return "Waiting"


def _time_s(status: Obj, field: str) -> float | None:
    text = status.get(field)
    return parse(text).timestamp() if text else None
