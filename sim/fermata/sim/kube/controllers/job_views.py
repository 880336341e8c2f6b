"""What the Job controller keeps of Jobs and pods: small, because there may be many of both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import orjson

from fermata.sim.kube.clock import stamp
from fermata.sim.kube.kinds.job import COMPLETION_INDEX, INDEX_FAILURES, TRACKING_FINALIZER, number_of

if TYPE_CHECKING:
    from fermata.sim.kube.resources import Obj


@dataclass(frozen=True, slots=True)
class PodView:
    """What the controller needs to know of a pod."""

    name: str
    namespace: str
    uid: str
    job: str
    job_uid: str
    phase: str
    index: int | None
    failures: int  # of pods of its index before it
    deleting: bool
    tracked: bool
    ready: bool
    restarts: int  # of its containers
    finished_at: str
    #: The status of one that failed or is deleted, serialised, for the Job's failure policy.
    ending: bytes | None

    @property
    def job_key(self) -> str:
        """The key of the Job that made it."""
        return f"{self.namespace}/{self.job}"

    @property
    def finished(self) -> bool:
        """Whether it has ended by itself."""
        return self.phase in ("Succeeded", "Failed")

    @property
    def active(self) -> bool:
        """Whether it runs or will run."""
        return not self.finished and not self.deleting


@dataclass(frozen=True, slots=True)
class JobView:
    """A Job, serialised: thousands of finished ones must not cost a tree each."""

    uid: str
    data: bytes


def job_view(job: Obj) -> JobView:
    """Return what is kept of a Job."""
    return JobView(job["metadata"]["uid"], orjson.dumps(job))


def pod_view(pod: Obj) -> PodView | None:
    """Return what is kept of a pod; None if no Job made it."""
    meta, status = pod["metadata"], pod.get("status") or {}
    owner = next((item for item in meta.get("ownerReferences") or [] if item.get("controller")), None)
    if owner is None or owner["kind"] != "Job":
        return None
    ends = [
        ((item.get("state") or {}).get("terminated") or {}).get("finishedAt") or ""
        for item in status.get("containerStatuses") or []
    ]
    return PodView(
        name=meta["name"],
        namespace=meta["namespace"],
        uid=meta["uid"],
        job=owner["name"],
        job_uid=owner["uid"],
        phase=status.get("phase") or "Pending",
        index=number_of(meta, COMPLETION_INDEX),
        failures=number_of(meta, INDEX_FAILURES) or 0,
        deleting=bool(meta.get("deletionTimestamp")),
        tracked=TRACKING_FINALIZER in (meta.get("finalizers") or []),
        ready=any(item["type"] == "Ready" and item["status"] == "True" for item in status.get("conditions") or []),
        restarts=sum(int(item.get("restartCount") or 0) for item in status.get("containerStatuses") or []),
        finished_at=max(ends, default="") or (stamp() if status.get("phase") == "Failed" else ""),
        ending=orjson.dumps(status) if status.get("phase") == "Failed" or meta.get("deletionTimestamp") else None,
    )


def job_path(job: Obj) -> str:
    """Return a Job's URL path."""
    return f"/apis/batch/v1/namespaces/{job['metadata']['namespace']}/jobs/{job['metadata']['name']}"


def pod_path(pod: PodView) -> str:
    """Return a pod's URL path."""
    return f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
