"""Holds over time, under a clock of the test's own: what bounds them, and what a restart makes of them.

The API server is a dict here, because hours pass in these tests; the end-to-end tests have a real one.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.unit.operator.objects import T0, stage, workflow

from fermata.operator.cluster import ClusterError
from fermata.operator.events import Events
from fermata.operator.metrics import Metrics
from fermata.operator.reconcile import PoolReconciler, Tools
from fermata.operator.recorder import Recorder
from fermata.operator.store import Store
from fermata.operator.times import parse
from fermata.policy.action import HOLD, START, Action
from fermata.policy.state import ClusterState

HOLD_S = 10.0


class _Server:
    """Objects by uid; every write makes a new version."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.jobs: list[dict[str, Any]] = []
        self.refusals: dict[str, list[int]] = {}  # HTTP statuses for the next Jobs, by workflow
        self._version = 100

    def put(self, uid: str, raw: dict[str, Any]) -> dict[str, Any]:
        self._version += 1
        raw["metadata"]["resourceVersion"] = str(self._version)
        self.objects[uid] = raw
        return raw

    async def create_job(self, job: dict[str, Any]) -> dict[str, Any]:
        if refusals := self.refusals.get(job["metadata"]["labels"]["fermata.dev/workflow"]):
            raise ClusterError(refusals.pop(), "", "a bad moment")
        job["metadata"]["uid"] = job["metadata"]["name"]
        self.jobs.append(job)
        return self.put(job["metadata"]["uid"], job)

    async def patch_workflow_status(self, _ns: str, name: str, version: str, status: dict[str, Any]) -> dict[str, Any]:
        return self._patch_status(name, version, status)

    async def patch_pool_status(self, name: str, version: str, status: dict[str, Any]) -> dict[str, Any]:
        return self._patch_status(name, version, status)

    def _patch_status(self, name: str, version: str, status: dict[str, Any]) -> dict[str, Any]:
        (raw,) = (raw for raw in self.objects.values() if raw["metadata"]["name"] == name)
        assert raw["metadata"]["resourceVersion"] == version
        return self.put(raw["metadata"]["uid"], {**raw, "status": {**raw.get("status", {}), **status}})

    async def create_event(self, *_: Any) -> None:
        pass


class _Holder:
    """Starts what is short, and holds what is long for ten seconds, again and again."""

    name = "holder"

    def choose(self, state: ClusterState) -> Action:
        for index in state.ready_stages.tolist():
            if state.stage_estimate_s[index] < 100 and state.stage_running[index] < state.stage_max_cap[index]:
                return Action(START, index, int(state.stage_max_cap[index]))
        rows = [i for i in state.ready_stages.tolist() if not state.stage_hold_until_s[i] > state.now_s]
        return Action(HOLD, rows[0], until_s=state.now_s + HOLD_S)


class _World:
    """A pool of two executors under `_Holder`, with something short running that never ends."""

    def __init__(self, **pool: Any) -> None:
        self.now_s, self.server = T0 + 1.0, _Server()
        meta = {"name": "pool", "uid": "p", "generation": 1}
        spec = {"executors": 2, "policy": {"name": "sjf"}, "decisionDeadlineSeconds": 60, **pool}  # Numba may compile
        self.pool = {"metadata": meta, "spec": spec}
        self.server.put("p", self.pool)
        self.start_operator()
        self.feed("workflows", "uid-short", workflow("short", stage("a", estimateSeconds=9)))
        self.feed("workflows", "uid-long", workflow("long", stage("a", estimateSeconds=900), status={}))

    def start_operator(self) -> None:
        metrics, server = Metrics(), self.server
        self.store = Store(lambda: self.now_s, lambda _: None)
        self.reconciler = PoolReconciler(
            "pool",
            Tools(
                store=self.store,
                cluster=server,  # type: ignore[arg-type]
                events=Events(server, metrics, lambda: self.now_s),  # type: ignore[arg-type]
                metrics=metrics,
                recorder=Recorder(None),
                now=lambda: self.now_s,
                wake=lambda _: None,
                pending=lambda _: False,
            ),
        )
        self.store.put("executorpools", server.objects["p"])
        asyncio.run(self.reconciler.reconcile())  # it loads the pool's policy, and ours takes its place
        self.reconciler._seat._policy = _Holder()
        for uid, raw in list(server.objects.items()):
            self.store.put(_kind(uid), raw)

    def feed(self, kind: Any, uid: str, raw: dict[str, Any]) -> None:
        self.store.put(kind, self.server.put(uid, raw))

    def annotate(self, uid: str, value: str) -> None:
        raw = self.server.objects[uid]
        meta = {**raw["metadata"], "annotations": {"fermata.dev/release": value}}
        self.feed(_kind(uid), uid, {**raw, "metadata": meta})

    async def run_until(self, end_s: float) -> None:
        """Reconcile whenever the operator asks to be woken, until a time."""
        while self.now_s < end_s:
            self.now_s = min(max(await self.reconciler.reconcile(), self.now_s + 0.001), end_s)
        await self.reconciler.reconcile()

    @property
    def started(self) -> dict[str, float]:
        """When each workflow's stage was started, seconds after T0."""
        key, label = "fermata.dev/start-time", "fermata.dev/workflow"
        meta = [job["metadata"] for job in self.server.jobs]
        return {row["labels"][label]: round(parse(row["annotations"][key]) - T0, 2) for row in meta}

    @property
    def long(self) -> dict[str, Any]:
        """The status of the long workflow's stage."""
        rows = self.server.objects["uid-long"]["status"]["stages"]
        return dict(rows[0])


def _kind(uid: str) -> Any:
    return "executorpools" if uid == "p" else "workflows" if uid.startswith("uid-") else "jobs"


def _begin(**pool: Any) -> _World:
    """Return a world in which the short one has started and the long one is held."""
    world = _World(**pool)
    asyncio.run(world.run_until(T0 + 2.0))
    assert world.started.keys() == {"short"}
    assert world.long["state"] == "Held"
    assert parse(world.long["holdUntil"]) > world.now_s
    return world


def test_holds_committed_to_again_and_again_are_bounded_together() -> None:
    world = _begin(maxHoldSeconds=35)
    asyncio.run(world.run_until(T0 + 200.0))
    assert world.started["long"] == pytest.approx(1.0 + 35.0, abs=0.1)
    assert world.long["heldSeconds"] == pytest.approx(35.0, abs=0.1)


def test_without_a_cap_they_go_on() -> None:
    world = _begin()
    asyncio.run(world.run_until(T0 + 5000.0))
    assert world.started.keys() == {"short"}


def test_the_age_cap_bounds_them_too() -> None:
    world = _begin(maxWaitSeconds=25)
    asyncio.run(world.run_until(T0 + 200.0))
    arrival_s = parse(world.server.objects["uid-long"]["status"]["arrivalTime"])
    assert world.started["long"] == pytest.approx(arrival_s + 25.0 - T0, abs=0.1)


def test_a_restart_gives_no_new_allowance() -> None:
    world = _begin(maxHoldSeconds=35)
    asyncio.run(world.run_until(T0 + 20.0))
    world.now_s += 5.0
    world.start_operator()
    asyncio.run(world.run_until(T0 + 200.0))
    assert world.started["long"] == pytest.approx(1.0 + 35.0, abs=0.1)


@pytest.mark.parametrize("uid", ["uid-long", "p"])
def test_a_release_ends_a_committed_hold_at_once(uid: str) -> None:
    world = _begin()
    world.annotate(uid, "*")
    asyncio.run(world.reconciler.reconcile())
    assert world.started["long"] == 2.0


def test_releasing_another_stage_ends_nothing() -> None:
    world = _begin()
    world.annotate("uid-long", "b")
    asyncio.run(world.run_until(T0 + 60.0))
    assert world.started.keys() == {"short"}


def test_a_lower_cap_counts_at_once() -> None:
    world = _begin()
    spec = {**world.pool["spec"], "maxHoldSeconds": 4}
    world.feed("executorpools", "p", {"metadata": {**world.pool["metadata"], "generation": 2}, "spec": spec})
    asyncio.run(world.run_until(T0 + 60.0))
    assert world.started["long"] == pytest.approx(1.0 + 4.0, abs=0.1)


def test_a_committed_hold_ends_when_nothing_runs_any_more() -> None:
    world = _begin()
    (job,) = world.server.jobs
    done = {"type": "Complete", "status": "True", "lastTransitionTime": "2027-01-15T08:00:02.500000Z"}
    world.feed("jobs", job["metadata"]["uid"], {**job, "status": {"succeeded": 1, "conditions": [done]}})
    world.now_s = T0 + 3.0
    asyncio.run(world.reconciler.reconcile())
    assert world.started["long"] == 3.0


def test_a_stage_that_is_ready_by_a_clock_ahead_of_ours_starts_when_ours_is_there_and_without_an_event() -> None:
    world = _World()
    asyncio.run(world.run_until(T0 + 2.0))
    world.feed("workflows", "uid-next", workflow("next", stage("a", estimateSeconds=9), arrival_s=T0 + 2.75))
    asyncio.run(world.run_until(T0 + 10.0))
    assert world.started["next"] == pytest.approx(2.75, abs=0.01)


@pytest.mark.parametrize(("status", "last_s"), [(500, [8.0, 8.0]), (403, [16.0, 30.0])])
def test_a_start_that_fails_is_tried_again_soon_and_then_less_often(status: int, last_s: list[float]) -> None:
    world = _World()
    world.server.refusals["short"] = [status] * 8
    asyncio.run(world.run_until(T0 + 100.0))
    waits_s = [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, *last_s]
    assert world.started["short"] == pytest.approx(1.0 + sum(waits_s), abs=0.1)
