"""What `fermata report` and `fermata trace export` read of a pool that has a long history."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.episodes import Python
from tests.unit.operator.objects import T0, stage, workflow

from fermata.cli.history import read_history
from fermata.cli.report import _chosen, _page
from fermata.operator.times import render
from fermata.policy import registry
from fermata.policy.action import Action
from fermata.policy.state import ClusterState

PAGES = 4


class _Raw(dict[str, Any]):
    """As the API sends it, but it can be told whether somebody keeps it."""


def _finished(name: str, pool: str, state: str = "Succeeded", arrival_s: float = T0, given_s: int | None = 10) -> _Raw:
    """A workflow of one task that took 2 s, of which its user had expected more, or where nothing was known."""
    times = {"readyTime": arrival_s, "startTime": arrival_s + 1.0, "completionTime": arrival_s + 3.0}
    row = {
        "name": "a",
        "state": state,
        "tasks": 1,
        "runSeconds": 2.0,
        "taskSeconds": 2.0,
        "estimateSeconds": given_s or 60.0,
    }
    row |= {key: render(at_s) for key, at_s in times.items()}
    done = {"type": "Succeeded", "status": str(state == "Succeeded"), "reason": "x", "lastTransitionTime": render(T0)}
    status = {"conditions": [done], "arrivalTime": render(arrival_s), "jctSeconds": 3.0, "stages": [row]}
    return _Raw(workflow(name, stage("a", estimateSeconds=given_s), status=status, poolName=pool))


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


class _Few:
    """Has some workflows, whose stages all ended alike."""

    def __init__(self, state: str, given_s: int | None = 10, **spec: Any) -> None:
        self._state, self._given_s, self._spec = state, given_s, {"executors": 1, **spec}

    async def get(self, _path: str) -> dict[str, Any]:
        return {"kind": "ExecutorPool", "metadata": {"name": "pool"}, "spec": self._spec}

    async def pages(self, _kind: str) -> AsyncIterator[tuple[list[_Raw], str]]:
        times_s = (T0 + 10.0 * number for number in range(4))
        yield [_finished(f"w-{at_s:.0f}", "pool", self._state, at_s, self._given_s) for at_s in times_s], "7"


@pytest.mark.parametrize(
    ("state", "given_s", "missed"), [("Succeeded", 10, True), ("Failed", 10, False), ("Succeeded", None, False)]
)
def test_what_failed_or_was_guessed_says_nothing_of_estimates_in_a_reports_simulation(
    state: str, given_s: int | None, missed: bool
) -> None:
    history, misses = asyncio.run(read_history(_Few(state, given_s), "pool")), []  # type: ignore[arg-type]
    fifo = registry.load("fifo")

    def choose(seen: ClusterState) -> Action:
        misses.append(seen.estimate_misses)
        return fifo.choose(seen)

    _page(history, [fifo, Python(choose)])
    assert (max(misses) > 0.0, history.failed) == (missed, 4 if state == "Failed" else 0)


@pytest.mark.parametrize(("state", "told"), [("Failed", ["Failed: 4 workflows"]), ("Succeeded", [])])
def test_a_report_says_how_many_of_its_workflows_failed(state: str, told: list[str]) -> None:
    history = asyncio.run(read_history(_Few(state), "pool"))  # type: ignore[arg-type]
    caveats = _page(history, [registry.load("fifo")]).caveats
    assert [caveat.partition(",")[0] for caveat in caveats if caveat.startswith("Failed")] == told


def test_a_report_goes_on_with_the_fallback_that_the_operator_goes_on_with() -> None:
    history = asyncio.run(read_history(_Few("Succeeded", fallback="shortest"), "pool"))  # type: ignore[arg-type]
    policies = _chosen(history, None, "fifo")
    assert [policy.name for policy in policies] == ["sjf", "fifo"]
    assert any("spec.fallback 'shortest'" in caveat and "sjf" in caveat for caveat in _page(history, policies).caveats)
