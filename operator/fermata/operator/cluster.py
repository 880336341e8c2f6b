"""The few requests that the operator makes: the paths of the resources, and what is sent there. Decides nothing."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping
from functools import cached_property
from typing import Any
from urllib.parse import quote

from fermata.operator.connection import ClusterError, Connection, Json
from fermata.operator.names import API_VERSION, LABEL_POOL, POOLS, WORKFLOWS
from fermata.operator.reminder import Reminder
from fermata.policy.errors import InputError

# Read whole, at several times its size in memory: 100 workflows of 500 stages are 75 MB, with who wrote which field.
_PAGE = 100
_OURS = {"labelSelector": LABEL_POOL}
_STRICT = {"fieldValidation": "Strict"}
# A pod that has succeeded holds nothing, and there can be very many: a Job keeps them for as long as it is kept itself.
# One that has failed holds nothing, either, but to the watch one that leaves its selection has just gone: what a task
# takes only those tell that succeeded.
_NOT_SUCCEEDED = {"fieldSelector": "status.phase!=Succeeded"}
_LISTS: dict[str, tuple[str, dict[str, str]]] = {
    "executorpools": (f"/apis/{API_VERSION}/{POOLS}", {}),
    "workflows": (f"/apis/{API_VERSION}/{WORKFLOWS}", {}),
    "namespaces": ("/api/v1/namespaces", {}),
    "pods": ("/api/v1/pods", _OURS | _NOT_SUCCEEDED),
    "jobs": ("/apis/batch/v1/jobs", _OURS),
}
_REMIND_S = 3600.0  # a field of a status that the CRDs lack is a line of the log so often

log = logging.getLogger(__name__)


class Cluster(Connection):
    """An API server with what the operator reads and writes there."""

    async def missing_crds(self) -> str:
        """Say which of our CRDs the API server does not serve; an empty text: it serves both.

        Raises:
            ClusterError: it does not answer.
        """
        try:
            served = await self.get(f"/apis/{API_VERSION}")
        except ClusterError as error:
            if error.status != 404:
                raise
            return f"the CRDs of {API_VERSION} (deploy/crds) are not installed"
        absent = sorted({WORKFLOWS, POOLS} - {resource.get("name") for resource in served.get("resources") or []})
        return f"the CRDs of {', '.join(absent)} (deploy/crds) are not installed" if absent else ""

    async def list_all(self, kind: str) -> list[Json]:
        """Return all objects of a kind."""
        return [item async for items, _ in self.pages(kind) for item in items]

    async def pages(self, kind: str, namespace: str | None = None) -> AsyncIterator[tuple[list[Json], str]]:
        """Yield the objects of a kind page by page, each with the version of the list."""
        path, query = _collection(kind, namespace)
        query["limit"] = str(_PAGE)
        while True:
            page = await self.get(path, query)
            meta = page.get("metadata") or {}
            yield page.get("items") or [], str(meta.get("resourceVersion", ""))
            if not meta.get("continue"):
                return
            query["continue"] = meta["continue"]

    def watch(self, kind: str, version: str, namespace: str | None = None) -> AsyncIterator[tuple[str, Json]]:
        """Return the changes of a kind after a version, as `changes` yields them."""
        path, query = _collection(kind, namespace)
        return self.changes(path, version, query)

    async def create_job(self, job: Mapping[str, Any]) -> Json:
        """Create a Job; of a field that Jobs do not have it is refused, as by kubectl, and not stored without it."""
        return await self.create(_jobs(job["metadata"]["namespace"]), job, _STRICT)

    async def get_job(self, namespace: str, name: str) -> Json:
        """Read a Job."""
        return await self.get(f"{_jobs(namespace)}/{quote(name)}")

    async def patch_job(self, namespace: str, name: str, patch: Mapping[str, Any]) -> Json:
        """Merge a patch into a Job."""
        return await self.patch(f"{_jobs(namespace)}/{quote(name)}", patch)

    async def find_pod(self, namespace: str, name: str) -> Json | None:
        """Read a pod, if there is one of that name; as a list, which is all that the operator may have of pods."""
        query = {"fieldSelector": f"metadata.name={name}"}
        found = await self.get(f"/api/v1/namespaces/{quote(namespace)}/pods", query)
        return next(iter(found.get("items") or []), None)

    async def patch_pod(self, namespace: str, name: str, patch: Mapping[str, Any]) -> Json:
        """Merge a patch into a pod."""
        return await self.patch(f"/api/v1/namespaces/{quote(namespace)}/pods/{quote(name)}", patch)

    async def patch_workflow_status(self, namespace: str, name: str, version: str, status: Mapping[str, Any]) -> Json:
        """Merge a status into a Workflow, only if it still has that resourceVersion.

        A uid would not do: an API server ignores all other metadata in what is written to a status.
        """
        return await self._patch_status(WORKFLOWS, workflow_path(namespace, name), version, status)

    async def patch_pool_status(self, name: str, version: str, status: Mapping[str, Any]) -> Json:
        """Merge a status into an ExecutorPool, only if it still has that resourceVersion."""
        return await self._patch_status(POOLS, pool_path(name), version, status)

    async def _patch_status(self, plural: str, path: str, version: str, status: Mapping[str, Any]) -> Json:
        made = await self.patch(f"{path}/status", {"metadata": {"resourceVersion": version}, "status": status})
        self._mind_dropped(plural, status, made)
        return made

    @cached_property
    def _reminder(self) -> Reminder:
        return Reminder(_REMIND_S)

    def _mind_dropped(self, plural: str, status: Mapping[str, Any], made: Json) -> None:
        """Say in the log which fields of a status the API server drops in silence, for CRDs that do not have them."""
        dropped = _dropped(status, made.get("status") or {})
        news = [field for field in dropped if self._reminder.is_due((plural, field), "")]
        if news:
            why = "the CRDs (deploy/crds) are not those of this operator"
            log.warning("the API server drops %s of %s: %s", ", ".join(news), plural, why)

    async def annotate(self, path: str, version: str, annotations: Mapping[str, str | None]) -> Json:
        """Set annotations of the object at a path (None removes one), only if it still has that resourceVersion."""
        return await self.patch(path, {"metadata": {"resourceVersion": version, "annotations": annotations}})

    async def delete_workflow(self, namespace: str, name: str, uid: str, version: str) -> None:
        """Delete a Workflow and, in the background, what it owns, only if it still has that uid and resourceVersion."""
        options = {"propagationPolicy": "Background", "preconditions": {"uid": uid, "resourceVersion": version}}
        await self.delete(workflow_path(namespace, name), options)

    async def create_event(self, namespace: str, event: Mapping[str, Any]) -> None:
        """Create an Event."""
        await self.create(f"/api/v1/namespaces/{quote(namespace)}/events", event)

    async def get_config_map(self, namespace: str, name: str) -> Json:
        """Read a ConfigMap."""
        return await self.get(f"/api/v1/namespaces/{quote(namespace)}/configmaps/{quote(name)}")


def workflow_path(namespace: str, name: str) -> str:
    """Return the path of a Workflow.

    Raises:
        InputError: a name that none can have, and that would lead elsewhere.
    """
    return f"/apis/{API_VERSION}/namespaces/{_part(namespace)}/{WORKFLOWS}/{_part(name)}"


def pool_path(name: str) -> str:
    """Return the path of an ExecutorPool.

    Raises:
        InputError: a name that none can have, and that would lead elsewhere.
    """
    return f"/apis/{API_VERSION}/{POOLS}/{_part(name)}"


def _part(name: str) -> str:
    if name in ("", ".", ".."):
        raise InputError(f"expected a name, got {name!r}")
    return quote(name, safe="")


def _collection(kind: str, namespace: str | None) -> tuple[str, dict[str, str]]:
    """Return the path and the selecting query of a kind."""
    path, selection = _LISTS[kind]
    if namespace and kind not in ("executorpools", "namespaces"):
        head, _, plural = path.rpartition("/")
        path = f"{head}/namespaces/{quote(namespace)}/{plural}"
    return path, dict(selection)


def _dropped(sent: Mapping[str, Any], kept: Mapping[str, Any]) -> list[str]:
    """Return the fields of a status, and of its stages, that were sent and are not in what is kept of it."""
    dropped = _lacking(sent, kept, "status.")
    for row, known in zip(sent.get("stages") or [], kept.get("stages") or [], strict=False):
        dropped |= _lacking(row, known, "status.stages[].")
    return sorted(dropped)


def _lacking(sent: Mapping[str, Any], kept: Mapping[str, Any], where: str) -> set[str]:
    return {where + key for key, value in sent.items() if value is not None and key not in kept}


def _jobs(namespace: str) -> str:
    return f"/apis/batch/v1/namespaces/{quote(namespace)}/jobs"
