"""The API server as an operator sees it that may read and not write."""

from __future__ import annotations

from typing import Any

from tests.late.server import Server

from fermata.operator.connection import ClusterError
from fermata.operator.store import Kind, Store

Raw = dict[str, Any]
# What only an operator knows that was there: how long the tasks of stages that still run have taken.
_REMEMBERED = {"estimateSeconds", "estimateSource", "taskSeconds"}


class Bystander:
    """Reads, and notes what was to be written.

    Args:
        server: that is read; its watches tell nothing here.
    """

    def __init__(self, server: Server) -> None:
        self.server = server
        self.asked: list[Any] = []

    def list_all(self, store: Store, kind: Kind) -> None:
        store.put_all(kind, list(self.server.objects[kind].values()))

    async def get_job(self, namespace: str, name: str) -> Raw:
        return await self.server.get_job(namespace, name)

    async def create_job(self, job: Raw) -> Raw:
        return self._refuse("create", job["metadata"]["name"])

    async def patch_job(self, _namespace: str, name: str, patch: Raw) -> Raw:
        return self._refuse("patch", name, patch)

    async def find_pod(self, namespace: str, name: str) -> Raw | None:
        return await self.server.find_pod(namespace, name)

    async def patch_pod(self, _namespace: str, name: str, patch: Raw) -> Raw:
        return self._refuse("let through", name, patch)

    async def delete_workflow(self, _namespace: str, name: str, _uid: str, _version: str) -> None:
        self._refuse("delete", name)

    async def create_event(self, *_: object) -> None:
        pass

    async def patch_workflow_status(self, namespace: str, name: str, _version: str, status: Raw) -> Raw:
        raw = self.server.named("workflows", namespace, name)
        assert raw is not None
        return self._refuse_news(raw, status)

    async def patch_pool_status(self, name: str, _version: str, status: Raw) -> Raw:
        raw = self.server.named("executorpools", "", name)
        assert raw is not None
        return self._refuse_news(raw, status)

    def _refuse_news(self, raw: Raw, status: Raw) -> Raw:
        news = _differences("", raw.get("status", {}), status)
        return self._refuse(*[(raw["metadata"]["name"], *row) for row in news])

    def _refuse(self, *asked: object) -> Raw:
        self.asked += [asked] if asked else []
        raise ClusterError(503, "", "nothing is written here")


def _differences(where: str, before: Any, after: Any) -> list[tuple[str, Any, Any]]:
    """Return where `after` says something else than `before`, but for what only the first operator can know."""
    if isinstance(after, dict):
        known = before if isinstance(before, dict) else {}
        rows = [_differences(f"{where}.{key}", known.get(key), value) for key, value in after.items()]
    elif isinstance(after, list):
        known_rows = before if isinstance(before, list) and len(before) == len(after) else [None] * len(after)
        rows = [_differences(f"{where}[]", old, new) for old, new in zip(known_rows, after, strict=True)]
    else:
        return [] if before == after or where.split(".")[-1] in _REMEMBERED else [(where, before, after)]
    return [each for row in rows for each in row]
