"""What `fermata report` and `fermata trace export` read of a pool that has a long history."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator
from typing import Any

from tests.unit.operator.objects import T0, stage, workflow

from fermata.cli.history import read_history
from fermata.operator.times import render

PAGES = 4


class _Raw(dict[str, Any]):
    """As the API sends it, but it can be told whether somebody keeps it."""


def _finished(name: str, pool: str) -> _Raw:
    times = {"readyTime": render(T0), "startTime": render(T0 + 1.0), "completionTime": render(T0 + 3.0)}
    row = {"name": "a", "state": "Succeeded", "tasks": 1, "runSeconds": 2.0, "taskSeconds": 2.0, **times}
    done = {"type": "Succeeded", "status": "True", "reason": "AllStagesSucceeded", "lastTransitionTime": render(T0)}
    status = {"conditions": [done], "arrivalTime": render(T0), "jctSeconds": 3.0, "stages": [row]}
    return _Raw(workflow(name, stage("a"), status=status, poolName=pool))


class _Server:
    """Has as many workflows in another pool as in this one, and counts what is kept of them as they were sent."""

    def __init__(self) -> None:
        self.kept: list[int] = []

    async def get(self, _path: str) -> dict[str, Any]:
        return {"kind": "ExecutorPool", "metadata": {"name": "pool"}, "spec": {"executors": 1}}

    async def pages(self, _kind: str) -> AsyncIterator[tuple[list[_Raw], str]]:
        sent: list[weakref.ref[_Raw]] = []
        for page in range(PAGES):
            raws = [_finished(f"{pool}-{page}", pool) for pool in ("pool", "another")]
            sent += map(weakref.ref, raws)
            yield raws, "7"
            del raws
            self.kept.append(sum(raw() is not None for raw in sent))


def test_a_history_is_read_page_by_page_and_what_is_of_other_pools_is_let_go() -> None:
    server = _Server()
    history = asyncio.run(read_history(server, "pool"))  # type: ignore[arg-type]
    assert [fact.meta.name for fact in history.facts] == [f"pool-{page}" for page in range(PAGES)]
    assert max(server.kept) <= 2, "more than the latest page"
