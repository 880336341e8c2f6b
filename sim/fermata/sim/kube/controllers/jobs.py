"""The Job controller: makes pods until enough have succeeded, and says in the Job's status how far it is.

Every finished pod is counted exactly once: it keeps a finalizer until the status holds it, so a pod that is deleted
behind the controller's back, or a controller that stops between two writes, loses nothing.

Follows completions, parallelism, both completion modes, backoffLimit, backoffLimitPerIndex, maxFailedIndexes,
activeDeadlineSeconds, suspend, ttlSecondsAfterFinished, podFailurePolicy and successPolicy.

Source: `k8s.io/kubernetes/pkg/controller/job/job_controller.go`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import orjson

from fermata.sim.kube.client import Informer
from fermata.sim.kube.clock import age_s, stamp
from fermata.sim.kube.controllers.job_look import JobLook
from fermata.sim.kube.controllers.job_views import JobView, PodView, job_path, job_view, pod_path, pod_view
from fermata.sim.kube.controllers.work import Recorder, WorkQueue, reference
from fermata.sim.kube.errors import ApiError
from fermata.sim.kube.kinds.job import TRACKING_FINALIZER
from fermata.sim.kube.metadata import is_gone

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fermata.sim.kube.client import Client
    from fermata.sim.kube.resources import Obj


_PARALLEL_WRITES = 32


class JobController:
    """Runs Jobs.

    Args:
        client: the API server to work for.
        backoff_s: the pause before a failed pod's replacement; doubles with each failure.
    """

    def __init__(self, client: Client, *, backoff_s: float = 10.0) -> None:
        self.client, self.backoff_s = client, backoff_s
        self.jobs = Informer(client, "/apis/batch/v1/jobs", job_view, self._on_job)
        self.pods = Informer(client, "/api/v1/pods", pod_view, self._on_pod)
        #: The pods of each Job by the Job's key; they may belong to an earlier Job of that name.
        self._pods_of: dict[str, dict[str, PodView]] = {}
        self.queue = WorkQueue(self._reconcile)
        self.recorder = Recorder(client, "job-controller")
        self._writes = asyncio.Semaphore(_PARALLEL_WRITES)

    async def run(self) -> None:
        """Run Jobs until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.jobs.run())
                group.create_task(self.pods.run())
                await self.jobs.synced.wait()
                await self.pods.synced.wait()
                group.create_task(self.queue.run())
        finally:
            await self.recorder.close()

    def _on_job(self, key: str, before: JobView | None, after: JobView | None) -> None:
        del before, after
        self.queue.add(key)

    def _on_pod(self, key: str, before: PodView | None, after: PodView | None) -> None:
        if before is not None:
            pods = self._pods_of[before.job_key]
            del pods[key]
            if not pods:
                del self._pods_of[before.job_key]
            self.queue.add(before.job_key)
        if after is not None:
            self._pods_of.setdefault(after.job_key, {})[key] = after
            self.queue.add(after.job_key)

    # One look at one Job ------------------------------------------------------------------------------------------

    async def _reconcile(self, key: str) -> None:
        view = self.jobs.cache.get(key)
        uid = None if view is None else view.uid
        found = list(self._pods_of.get(key, {}).values())
        # Pods of an earlier Job of this name are let go: it counts no longer.
        await self.release(pod for pod in found if pod.tracked and pod.job_uid != uid)
        if view is None:
            return
        pods = [pod for pod in found if pod.job_uid == uid]
        job: Obj = orjson.loads(view.data)
        if finished_at := _finished_at(job):
            await self.release(pod for pod in pods if pod.tracked)
            if not job["metadata"].get("deletionTimestamp"):
                await self._expire(key, job, finished_at)
            return
        await JobLook(self, key, job, pods).take()

    async def _expire(self, key: str, job: Obj, finished_at: str) -> None:
        ttl_s = job["spec"].get("ttlSecondsAfterFinished")
        if ttl_s is None:
            return
        left_s = ttl_s - (age_s(finished_at) or 0.0)
        if left_s > 0:
            self.queue.add_after(key, left_s)
            return
        preconditions = {"uid": job["metadata"]["uid"]}
        await _unless_gone(
            self.client.delete(job_path(job), propagationPolicy="Foreground", preconditions=preconditions)
        )

    # Writes -------------------------------------------------------------------------------------------------------

    async def release(self, pods: Iterable[PodView]) -> None:
        """Take our finalizer off pods that are counted or of no concern."""
        await self.write_all(self._release_one(pod) for pod in pods)

    async def _release_one(self, pod: PodView) -> None:
        path = pod_path(pod)
        try:
            current = await self.client.get(path)
            finalizers = current["metadata"].get("finalizers") or []
            if TRACKING_FINALIZER not in finalizers or current["metadata"]["uid"] != pod.uid:
                return
            kept = [item for item in finalizers if item != TRACKING_FINALIZER]
            meta = {
                "uid": pod.uid,
                "resourceVersion": current["metadata"]["resourceVersion"],
                "finalizers": kept or None,
            }
            answer = await self.client.patch(path, {"metadata": meta})
        except ApiError as error:
            if error.code != 404:
                raise
            return
        self.pods.note(answer, deleted=is_gone(answer["metadata"]))

    async def stop(self, job: Obj, pods: Iterable[PodView], *, counted: bool) -> None:
        """Delete pods of a Job; those that shall not count as failed are let go first."""
        stopping = list(pods)
        if not counted:
            await self.release(pod for pod in stopping if pod.tracked)
        await self.write_all(self._stop_one(job, pod) for pod in stopping)

    async def _stop_one(self, job: Obj, pod: PodView) -> None:
        if await _unless_gone(self.client.delete(pod_path(pod), preconditions={"uid": pod.uid})):
            self.recorder.record(reference(job), "SuccessfulDelete", f"Deleted pod: {pod.name}")

    async def write_all(self, steps: Iterable[Any]) -> None:
        """Carry out writes, a bounded number at once; raises what the first failed one raised."""

        async def limited(step: Any) -> None:
            async with self._writes:
                await step

        tasks = [asyncio.create_task(limited(step)) for step in steps]
        if tasks:
            await asyncio.wait(tasks)
            # All are asked, or asyncio would complain of the others.
            errors = [error for task in tasks if (error := task.exception()) is not None]
            if errors:
                raise errors[0]


async def _unless_gone(write: Any) -> bool:
    """Wait for a write to an object, and tell whether that was still there."""
    try:
        await write
    except ApiError as error:
        if error.code not in (404, 409):
            raise
        return False
    return True


def _finished_at(job: Obj) -> str:
    for condition in (job.get("status") or {}).get("conditions") or []:
        if condition["type"] in ("Complete", "Failed") and condition["status"] == "True":
            return str(condition.get("lastTransitionTime") or stamp())
    return ""
