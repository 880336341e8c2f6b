"""When workflows come, as policies and replays are told: of a stretch that rates are read off none may be missing."""

from __future__ import annotations

import asyncio
import math

import pytest
from tests.unit.operator.objects import T0, stage, workflow
from tests.unit.operator.test_edits import complete, edit
from tests.unit.operator.world import World

from fermata.operator.arrivals import RecentArrivals
from fermata.operator.build_state import Arrival
from fermata.policy.state import RECENT_ARRIVALS

DAY_S = 86_400.0


def _told(recent: RecentArrivals) -> list[float]:
    return [round(arrival.arrival_s - T0, 3) for arrival in recent.arrivals]


def _came(world: World) -> list[float]:
    """Return when workflows came, for policies."""
    return _told(world.reconciler._observer.recent)


def _replayed(world: World) -> list[float]:
    """Return when workflows came, for replays."""
    finished = world.reconciler._holding._finished.values()
    jobs = sorted([*finished, *world.reconciler._unfinished(world.now_s)])
    return [round(job.arrival_s - T0, 3) for job in jobs]


def _end_later(world: World, *, restarted: bool) -> None:
    """Let the workflow named later end, and perhaps start the operator anew."""
    complete(world, "later")
    asyncio.run(world.run_until(T0 + 7.0))
    if restarted:
        world.start_operator()
        asyncio.run(world.reconciler.reconcile())


def test_of_what_is_deleted_after_its_end_counts_what_came_so_late_that_all_that_came_since_is_known() -> None:
    recent = RecentArrivals(T0)
    for number, (arrival_s, kept_s) in enumerate([(-61, 60), (-59, 60), (-DAY_S, math.inf), (5, 60), (5, 0)]):
        recent.note(f"w{number}", Arrival(T0 + arrival_s, 1.0), kept_s)
    assert _told(recent) == [-DAY_S, -59, 5, 5]


def test_the_latest_are_kept_and_come_when_it_was_first_said() -> None:
    recent = RecentArrivals(T0)
    for number in range(RECENT_ARRIVALS + 2):
        recent.note(f"w{number}", Arrival(T0 + number, 1.0))
    recent.note("w2", Arrival(T0 + 900.0, 3.0, 8.0))
    assert recent.arrivals[0] == Arrival(T0 + 2.0, 3.0, 8.0)
    assert len(recent.arrivals) == RECENT_ARRIVALS


@pytest.mark.parametrize(("ttl_s", "came"), [(3600, [1.0, 1.0]), (None, [0.5 - DAY_S, 1.0, 1.0])])
def test_what_survived_longer_than_its_like_says_nothing_of_rates_to_an_operator_that_begins(
    ttl_s: int | None, came: list[float]
) -> None:
    world = World()
    asyncio.run(world.run_until(T0 + 2.0))
    kept = workflow("kept", stage("a"), arrival_s=T0 - DAY_S, ttlSecondsAfterFinished=ttl_s)
    world.server.put("uid-kept", kept)
    world.start_operator()
    asyncio.run(world.reconciler.reconcile())
    assert _came(world) == came
    assert _replayed(world)[0] == 0.5 - DAY_S


@pytest.mark.parametrize("restarted", [False, True])
def test_a_workflow_that_is_suspended_before_it_begins_comes_when_it_is_resumed(restarted: bool) -> None:
    world = World(executors=3)
    suspended = workflow("later", stage("a"), arrival_s=T0 - DAY_S, suspend=True)
    world.feed("workflows", "uid-later", suspended)
    asyncio.run(world.run_until(T0 + 5.0))
    others = _came(world)
    assert (len(others), others[0]) == (2, 1.0)
    assert _replayed(world) == others
    edit(world, "uid-later", suspend=False)
    asyncio.run(world.run_until(T0 + 6.0))
    _end_later(world, restarted=restarted)
    assert _came(world) == _replayed(world) == [*others, 5.0]


@pytest.mark.parametrize("restarted", [False, True])
def test_a_workflow_that_is_not_accepted_comes_when_it_is(restarted: bool) -> None:
    world = World(executors=3)
    world.feed("workflows", "uid-later", workflow("later", stage("a", "nobody"), arrival_s=T0 - DAY_S))
    asyncio.run(world.run_until(T0 + 5.0))
    others = _came(world)
    assert _replayed(world) == others == [1.0, 1.0]
    if restarted:
        world.start_operator()
    edit(world, "uid-later", stages=[stage("a")])
    asyncio.run(world.run_until(T0 + 6.0))
    assert _came(world) == _replayed(world) == [*others, 5.0]
    _end_later(world, restarted=restarted)
    assert _came(world) == _replayed(world) == [*others, 5.0]
    told = world.server.objects["uid-later"]["status"]
    assert told["suspendedTime"] == "2027-01-15T08:00:01.000000Z", "its JCT can be compared with no simulated one"
    assert told["jctSeconds"] == DAY_S + 5.5, "a user waits from the creation on"


@pytest.mark.parametrize("restarted", [False, True])
def test_what_arrived_weighs_what_its_priority_says_now_and_after_its_end(restarted: bool) -> None:
    world = World(executors=3)
    world.feed("workflows", "uid-later", workflow("later", stage("a"), arrival_s=T0 + 2.0, priority=10))
    asyncio.run(world.run_until(T0 + 3.0))
    weights = [arrival.weight for arrival in world.reconciler._observer.recent.arrivals]
    assert weights == [1.0, 1.0, 2.0]
    edit(world, "uid-later", priority=-10)
    asyncio.run(world.run_until(T0 + 4.0))
    _end_later(world, restarted=restarted)
    weights = [arrival.weight for arrival in world.reconciler._observer.recent.arrivals]
    assert weights == [1.0, 1.0, 0.5]


@pytest.mark.parametrize("restarted", [False, True])
def test_what_has_ended_came_with_the_work_of_all_its_tasks_on_all_their_executors(restarted: bool) -> None:
    world = World(executors=7)
    later = workflow("later", stage("a", tasks=3, slots=2, estimateSeconds=10), arrival_s=T0 + 2.0)
    world.feed("workflows", "uid-later", later)
    asyncio.run(world.run_until(T0 + 3.0))
    assert world.reconciler._observer.recent.arrivals[-1].work_s == 60.0
    _end_later(world, restarted=restarted)
    assert "jctSeconds" in world.server.objects["uid-later"]["status"], "it has ended"
    assert world.reconciler._observer.recent.arrivals[-1].work_s == 60.0, "its estimate was given"


def test_a_workflow_that_is_seen_a_moment_before_its_pool_came_when_it_was_created() -> None:
    world = World()
    world.store.remove("executorpools", "p", "pool", version="100")
    asyncio.run(world.run_until(T0 + 2.0))
    told = world.server.objects["uid-short"]["status"]["conditions"][0]
    assert (told["type"], told["reason"]) == ("Accepted", "PoolNotFound")
    world.store.put("executorpools", world.server.put("p", world.pool))
    asyncio.run(world.run_until(T0 + 3.0))
    told = world.server.objects["uid-short"]["status"]
    assert (told.get("suspendedTime"), told["startTime"]) == (None, "2027-01-15T08:00:02.000000Z")
    world.start_operator()
    asyncio.run(world.reconciler.reconcile())
    assert _came(world) == [1.0, 1.0]


def test_a_workflow_that_its_deadline_ends_before_it_is_accepted_never_came() -> None:
    world = World()
    never = workflow("never", stage("a", "nobody"), arrival_s=T0, activeDeadlineSeconds=9)
    world.feed("workflows", "uid-never", never)
    asyncio.run(world.run_until(T0 + 12.0))
    assert world.server.objects["uid-never"]["status"]["completionTime"] is not None
    assert _came(world) == [1.0, 1.0]


def test_a_workflow_that_began_before_it_was_suspended_came_when_it_was_created() -> None:
    world = World()
    asyncio.run(world.run_until(T0 + 2.0))
    before = _came(world)
    for uid in ("uid-short", "uid-long"):  # one of them runs, and the other has waited
        edit(world, uid, suspend=True)
    asyncio.run(world.run_until(T0 + 5.0))
    assert _came(world) == before
    world.start_operator()
    asyncio.run(world.reconciler.reconcile())
    assert _came(world) == before[:1]
