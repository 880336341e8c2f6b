"""Several pools and namespaces, whose watches are late: whatever people do, nothing is lost and nothing given twice."""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import example, given, note, settings
from hypothesis import strategies as st
from tests.late.bystander import Bystander
from tests.late.controllers import Controllers
from tests.late.operator import LateOperator
from tests.late.oversight import Oversight
from tests.late.people import People
from tests.late.server import Server
from tests.late.timeline import Timeline
from tests.unit.operator.objects import T0

from fermata.operator import tell
from fermata.operator.reconcile import PoolReconciler
from fermata.operator.store import Store
from fermata.policy.heuristics.base import Heuristic

Raw = dict[str, Any]


class Cluster:
    """A few minutes of a cluster, drawn from one seed.

    Args:
        seed: of everything that happens.
        late: whether watches and controllers are.
        refusals: how probable it is that the API server refuses, or an answer is lost.
    """

    def __init__(self, seed: int, *, late: bool, refusals: float) -> None:
        rng = random.Random(seed)
        self.timeline = Timeline(T0)
        self.server = Server(self.timeline, rng, late=late, refusals=refusals)
        self.controllers = Controllers(self.server, {}, Counter())
        self.operator = LateOperator(self.server, self.timeline)
        self.server.overseer = Oversight(self.server, self.operator)
        self.people = People(self.server, self.controllers, self.operator)
        for _ in range(rng.randint(2, 7)):
            self.timeline.after(40.0 * rng.random(), self.people.submit)
        for _ in range(rng.randint(3, 16)):
            self.timeline.after(60.0 * rng.random(), self.people.do_something)

    async def step(self) -> None:
        """Go on to the next moment."""
        self.timeline.now_s = max(self.next_s, self.timeline.now_s)
        self.timeline.happen()
        self.server.tell(self.operator.store)
        await self.operator.settle()

    async def pass_s(self, seconds: float) -> None:
        """Let so much time pass."""
        end_s = self.timeline.now_s + seconds
        while self.next_s <= end_s:
            await self.step()
        self.timeline.now_s = end_s

    @property
    def next_s(self) -> float:
        return min(self.timeline.next_s, self.server.tells_s, self.operator.next_s)

    @property
    def unfinished(self) -> list[str]:
        workflows = self.server.objects["workflows"].values()
        return [raw["metadata"]["name"] for raw in workflows if not raw.get("status", {}).get("completionTime")]


@contextlib.contextmanager
def _cluster(seed: int, interval_s: float = 0.0, **kwargs: Any) -> Iterator[Cluster]:
    """Give a cluster whose operator writes a status so often, and say what people did there if a test fails."""
    cluster = Cluster(seed, **kwargs)
    try:
        with patch.object(tell, "STATUS_INTERVAL_S", interval_s):
            yield cluster
    finally:
        note("\n".join(cluster.people.log))


async def _to_the_end(cluster: Cluster) -> None:
    await cluster.pass_s(200.0)
    cluster.people.make_room()
    await cluster.pass_s(600.0)
    assert not cluster.unfinished, "there was room for all of them"

    before = cluster.server.writes.total()
    await cluster.pass_s(200.0)
    written = cluster.server.writes.total() - before
    assert written <= 3 * len(cluster.people.pools), "statuses are written although nothing happens"

    cluster.people.tidy_up()
    await cluster.pass_s(60.0)
    for kind in ("workflows", "jobs", "pods"):
        assert not cluster.server.objects[kind], "a controller of the test's own left something"
    _knows_nothing(cluster.operator.store)
    for uid in list(cluster.server.objects["executorpools"]):
        cluster.server.remove("executorpools", uid)
    await cluster.pass_s(60.0)
    assert not cluster.operator.reconcilers, "pools that are gone are forgotten"
    assert cluster.operator.next_s == math.inf


def _knows_nothing(store: Store) -> None:
    """Assert that nothing is kept of workflows that are gone."""
    for index in (store.workflows, store.jobs, store.pods, store.job_pods, store.leaving, store._places):
        assert not index
    for by_pool in (store.pool_workflows, store.workflow_jobs, store.busy_jobs):
        assert not any(by_pool.values())
    assert not store.turns._owed
    assert not store.turns._ended


@pytest.mark.parametrize(
    ("late", "refusals", "interval_s"), [(True, 0.0, 0.0), (False, 0.0, 0.0), (True, 0.05, 0.0), (True, 0.02, 2.0)]
)
@settings(max_examples=30, print_blob=True)
@given(seed=st.integers(0, 2**32 - 1))
def test_whatever_happens_nothing_is_lost_or_given_twice_and_all_ends(
    late: bool, refusals: float, interval_s: float, seed: int
) -> None:
    with _cluster(seed, interval_s, late=late, refusals=refusals) as cluster:
        asyncio.run(_to_the_end(cluster))


@settings(max_examples=25, print_blob=True)
@example(seed=4403646)  # a workflow is deleted whose stage had begun, and its Job went first
@given(seed=st.integers(0, 2**32 - 1))
def test_an_operator_that_is_started_at_any_moment_sees_what_the_other_does_and_has_nothing_to_do(seed: int) -> None:
    with _cluster(seed, late=False, refusals=0.0) as cluster:
        asyncio.run(_with_a_second_one(cluster))


async def _with_a_second_one(cluster: Cluster) -> None:
    for _ in range(40):
        await cluster.pass_s(cluster.server.rng.random() * 6.0)
        if cluster.operator.is_quiet:
            _ask_models(cluster.operator)
            await cluster.pass_s(0.0)
        if cluster.operator.is_quiet and not _trusts_what_it_saw(cluster.operator):
            await _compare(cluster)


def _trusts_what_it_saw(operator: LateOperator) -> bool:
    """Whether it counts pods whose Jobs it saw, of a namespace that its pool takes no more: others trust no labels."""
    return any(
        not reconciler._observer.acceptance.takes(job.meta.namespace)
        for pool, reconciler in operator.reconcilers.items()
        for job, _ in operator.store.pool_leaving(pool)
    )


def _ask_models(operator: LateOperator) -> None:
    """Have the models of an operator asked now: what they answer depends on when that is."""
    for pool, reconciler in operator.reconcilers.items():
        if not isinstance(reconciler._seat.policy, Heuristic):
            operator.wakes_s[pool] = operator.timeline.now_s


async def _compare(cluster: Cluster) -> None:
    """Start a second operator that may not write, and hold its picture against that of the first."""
    first, server = cluster.operator, Bystander(cluster.server)
    second = LateOperator(server, cluster.timeline)
    _tell_what_came(first, second)
    await second.settle()
    assert not server.asked
    assert first.reconcilers.keys() == second.reconcilers.keys()
    for pool, other in second.reconcilers.items():
        assert _picture(other) == _picture(first.reconcilers[pool])
        other.close()


def _tell_what_came(first: LateOperator, second: LateOperator) -> None:
    """Let a second operator know what came before it: of that some is gone, or may be, and a model judges by it."""
    for pool in first.reconcilers.keys() & second._dirty.keys():
        other = second.reconcilers[pool] = PoolReconciler(pool, second._tools)
        for _, uid, arrival in first.reconcilers[pool]._observer.recent._rows:
            other._observer.recent.note(uid, arrival)


def _picture(reconciler: PoolReconciler) -> Raw:
    """What a reconciler knows of its pool's stages, and of its executors."""
    views = reconciler._observer.views
    stages = {
        (uid, stage.spec.name): (stage.phase, stage.occupied, stage.reason)
        for uid, view in views.items()
        for stage in view.stages
    }
    return {"stages": stages, "busy": reconciler._census.busy()}
