"""Watches go on whatever happens to one of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.operator.objects import T0, stage, template, workflow

from fermata.operator import watches
from fermata.operator.cluster import Cluster
from fermata.operator.connection import ClusterError
from fermata.operator.crds import manifests
from fermata.operator.names import LABEL_POOL
from fermata.operator.store import Store
from fermata.operator.watches import Watches
from fermata.sim.kube import ControlPlane, Options
from fermata.sim.kube.client import Client


class _Server:
    """Holds two workflows, of which a list shows the second only later, and whose watch breaks in the middle."""

    def __init__(self) -> None:
        self.lists = 0

    async def pages(self, kind: str, _namespace: str | None) -> AsyncIterator[tuple[list[dict[str, Any]], str]]:
        if kind == "workflows":
            self.lists += 1
            yield [workflow(name, stage("a")) for name in ("first", "second")[: self.lists]], "7"
        else:
            yield [], "7"

    async def watch(self, kind: str, _version: str, _namespace: str | None) -> AsyncIterator[tuple[str, Any]]:
        if kind == "workflows" and self.lists == 1:
            yield "ADDED", {"no": "metadata"}
        await asyncio.Event().wait()


class _Stuck(_Server):
    """The same, but no watch gets past its version."""

    async def watch(self, kind: str, _version: str, _namespace: str | None) -> AsyncIterator[tuple[str, Any]]:
        if kind == "workflows" and self.lists == 1:
            raise ClusterError(500, "InternalError", "unable to decode an event from the watch stream")
            yield
        await asyncio.Event().wait()


class _Unreadable(_Server):
    """The same, but no watch is answered, and from the second list on no list."""

    def __init__(self, error: ClusterError) -> None:
        super().__init__()
        self.error = error

    async def pages(self, kind: str, namespace: str | None) -> AsyncIterator[tuple[list[dict[str, Any]], str]]:
        if self.lists:
            raise self.error
        async for page in super().pages(kind, namespace):
            yield page

    async def watch(self, kind: str, _version: str, _namespace: str | None) -> AsyncIterator[tuple[str, Any]]:
        raise ClusterError(410, "Expired", "too old resource version")
        yield


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ClusterError(0, "UnreadableAnswer", "<h1>Log in</h1>"), "UnreadableAnswer: <h1>Log in</h1>"),
        (ClusterError(404, "", "404 page not found"), "404 page not found (are the CRDs, deploy/crds, installed?)"),
    ],
)
def test_why_nothing_is_seen_any_more_is_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: ClusterError, words: str
) -> None:
    monkeypatch.setattr(watches, "_PAUSES_S", (0.001, 0.002))
    monkeypatch.setattr(watches, "KINDS", ("workflows",))
    looking = Watches(_Unreadable(error), Store(lambda: T0, lambda _: None))  # type: ignore[arg-type]

    async def main() -> None:
        await looking.open()
        async with asyncio.timeout(10):
            while not ("goes on soon: " in caplog.text and words in caplog.text):
                await asyncio.sleep(0.01)
        await looking.close()

    asyncio.run(main())
    assert "Expired" not in caplog.text, "one watch that expires is nothing to tell of"


class _Forbidding(_Server):
    """The same, but neither lists nor watches are allowed, the lists from the beginning or not."""

    def __init__(self, *, lists: bool) -> None:
        super().__init__()
        self.asked, self._may_list = 0, lists

    async def pages(self, kind: str, namespace: str | None) -> AsyncIterator[tuple[list[dict[str, Any]], str]]:
        self.asked += 1
        if not self._may_list:
            raise ClusterError(403, "Forbidden", "you may not list")
        async for page in super().pages(kind, namespace):
            yield page

    async def watch(self, kind: str, _version: str, _namespace: str | None) -> AsyncIterator[tuple[str, Any]]:
        self.asked += 1
        raise ClusterError(403, "Forbidden", "you may not watch")
        yield


@pytest.mark.parametrize("lists", [True, False])
def test_that_nothing_may_be_seen_is_told_once_a_minute_and_not_at_each_attempt(
    lists: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(watches, "_PAUSES_S", (0.001,))
    monkeypatch.setattr(watches, "_LIST_AGAIN_S", 0.001)
    monkeypatch.setattr(watches, "KINDS", ("workflows",))
    server, now_s = _Forbidding(lists=lists), 0.0
    looking = Watches(server, Store(lambda: T0, lambda _: None), clock=lambda: now_s)  # type: ignore[arg-type]

    def told() -> int:
        return sum("you may not" in record.message for record in caplog.records)

    async def attempts(more: int) -> None:
        most = server.asked + more
        async with asyncio.timeout(10):
            while server.asked < most:
                await asyncio.sleep(0.001)

    async def main() -> None:
        nonlocal now_s
        opening = asyncio.create_task(looking.open())
        await attempts(20)
        assert told() == 1
        now_s = 61.0
        await attempts(20)
        assert told() == 2
        opening.cancel()
        await looking.close()

    asyncio.run(main())


def test_a_watch_that_gets_no_further_begins_anew_with_a_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watches, "_PAUSES_S", (0.001, 0.002))
    store, server = Store(lambda: T0, lambda _: None), _Stuck()

    async def main() -> None:
        looking = Watches(server, store)  # type: ignore[arg-type]
        await looking.open()
        async with asyncio.timeout(10):
            while len(store.workflows) < 2:
                await asyncio.sleep(0.01)
        await looking.close()

    asyncio.run(main())


def test_a_watch_that_meets_what_it_cannot_read_begins_anew_with_a_list(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(watches, "_LIST_AGAIN_S", 0.01)
    store, server = Store(lambda: T0, lambda _: None), _Server()

    async def main() -> None:
        looking = Watches(server, store)  # type: ignore[arg-type]
        await looking.open()
        assert {fact.meta.name for fact in store.workflows.values()} == {"first"}
        async with asyncio.timeout(10):
            while len(store.workflows) < 2:
                await asyncio.sleep(0.01)
        await looking.close()

    asyncio.run(main())
    assert "watch of workflows failed, and begins anew" in caplog.text
    assert "KeyError" in caplog.text


class _Listener(Store):
    """Keeps what it is told of pods."""

    def __init__(self) -> None:
        super().__init__(lambda: T0, lambda _: None)
        self.told: list[str] = []

    def put(self, kind: Any, raw: Any) -> None:
        if kind == "pods":
            self.told.append(raw["metadata"]["name"])
        super().put(kind, raw)


def test_of_pods_that_have_ended_nothing_is_read(tmp_path: Path) -> None:
    """A Job keeps them for as long as it is kept itself, and so each restart would read all that ever ran."""
    store, pods = _Listener(), "/api/v1/namespaces/default/pods"

    async def main() -> None:
        plane = ControlPlane(Options(controllers=False), folder=tmp_path, manifests=manifests())
        async with plane, Client(plane.url) as client:

            async def create(name: str) -> None:
                await client.create(pods, {"metadata": {"name": name, "labels": {LABEL_POOL: "p"}}, **template()})

            async def end(name: str) -> None:
                await client.patch(f"{pods}/{name}/status", {"status": {"phase": "Succeeded"}})

            async def until(names: set[str]) -> None:
                async with asyncio.timeout(30):
                    while {fact.meta.name for fact in store.pods.values()} != names:
                        await asyncio.sleep(0.01)

            await create("old")
            await end("old")
            await create("first")
            cluster = await Cluster.connect(str(plane.kubeconfig))
            looking = Watches(cluster, store)
            await looking.open()
            await until({"first"})
            await end("first")
            await until(set())
            await client.patch(f"{pods}/first", {"metadata": {"annotations": {"counted": "yes"}}})
            await create("last")
            await until({"last"})
            await looking.close()
            await cluster.close()

    asyncio.run(main())
    assert store.told == ["first", "last"]
