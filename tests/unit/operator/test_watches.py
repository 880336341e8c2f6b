"""Watches go on whatever happens to one of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.unit.operator.objects import T0, stage, workflow

from fermata.operator import watches
from fermata.operator.cluster import ClusterError
from fermata.operator.store import Store
from fermata.operator.watches import Watches


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

    async def pages(self, kind: str, namespace: str | None) -> AsyncIterator[tuple[list[dict[str, Any]], str]]:
        if self.lists:
            raise ClusterError(0, "UnreadableAnswer", "<h1>Log in</h1>")
        async for page in super().pages(kind, namespace):
            yield page

    async def watch(self, kind: str, _version: str, _namespace: str | None) -> AsyncIterator[tuple[str, Any]]:
        raise ClusterError(410, "Expired", "too old resource version")
        yield


def test_why_nothing_is_seen_any_more_is_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(watches, "_PAUSES_S", (0.001, 0.002))
    monkeypatch.setattr(watches, "KINDS", ("workflows",))
    looking = Watches(_Unreadable(), Store(lambda: T0, lambda _: None))  # type: ignore[arg-type]

    async def main() -> None:
        await looking.open()
        async with asyncio.timeout(10):
            while "goes on soon: UnreadableAnswer: <h1>Log in</h1>" not in caplog.text:
                await asyncio.sleep(0.01)
        await looking.close()

    asyncio.run(main())
    assert "Expired" not in caplog.text, "one watch that expires is nothing to tell of"


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
