"""Executors that a job has freed: whose they were last, and that a policy that keeps them within a job gets them so."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from tests.unit.operator.objects import T0, stage, workflow
from tests.unit.operator.test_edits import complete
from tests.unit.operator.world import World

from fermata.operator.build_state import Keys, build_state
from fermata.operator.freed import Freed
from fermata.policy import registry
from fermata.policy.state import IDLE, ClusterState, free_executor_list


def _told(freed: Freed, executors: int, **held: int) -> list[str]:
    """Return by which jobs the free executors were held last, in the order in which a start would take them."""
    keys = Keys(tuple(held), ())
    empty, _ = build_state([], executors, {}, {}, {}, [], T0)
    busy = sum(held.values())
    stages = np.array([0] * busy + [IDLE] * (executors - busy), np.int32)
    free = free_executor_list(stages)
    running = np.array(list(held.values()), np.int32)
    state: ClusterState = freed.told(empty._replace(free=len(free), free_executors=free, job_running=running), keys)
    jobs = state.executor_job[state.free_executors[::-1]].tolist()
    return ["" if job == IDLE else keys.jobs[job] for job in jobs]


def test_what_was_freed_last_is_taken_first_and_what_has_finished_is_nobodys() -> None:
    freed = Freed()
    assert _told(freed, 6, a=2, b=3) == [""], "what was free before is nobody's"
    assert _told(freed, 6, a=1, b=3) == ["a", ""]
    assert _told(freed, 6, a=1, b=1) == ["b", "b", "a", ""]
    assert _told(freed, 6, a=2, b=1) == ["b", "a", ""], "a start takes the latest"
    assert _told(freed, 6, a=2, b=0) == ["b", "b", "a", ""]
    assert _told(freed, 6, a=2) == ["", "", "a", ""], "of a finished job, also if it freed it before"
    assert _told(freed, 4, a=2) == ["", ""], "of a pool that was made smaller the latest are left"
    assert _told(freed, 6, a=2) == ["", "", "", ""], "and what it gets again is nobody's"


def test_starts_take_from_the_pile_before_what_ended_since_is_put_on_it() -> None:
    freed = Freed()
    _told(freed, 8, a=4, b=1)
    assert _told(freed, 8, a=1, b=1) == ["a", "a", "a", "", "", ""]
    assert _told(freed, 8, a=1, b=1, c=2) == ["a", "", "", ""], "a new one takes as many as it holds"
    assert _told(freed, 8, a=1, b=0, c=3) == ["b", "", "", ""], "b's ended after c had started another"
    assert _told(freed, 8, a=1, b=0) == ["", "", "", "b", "", "", ""], "all that a job held when it finished"


@pytest.mark.parametrize(("held", "left"), [(3, ["", "", ""]), (4, ["", ""]), (6, [])])
def test_what_starts_on_more_than_was_freed_takes_all_of_that(held: int, left: list[str]) -> None:
    freed = Freed()
    _told(freed, 8, a=4, b=1)
    _told(freed, 8, a=1, b=1)
    assert _told(freed, 8, a=1, b=1, c=held) == left


@pytest.mark.parametrize(("policy", "first"), [("srwf-equal-share", "two"), ("srwf-equal-share:keep=0", "next")])
def test_an_executor_stays_with_its_workflow_under_a_policy_that_wants_that(policy: str, first: str) -> None:
    world = World()
    world.reconciler._seat._policy = registry.load(policy)
    asyncio.run(world.run_until(T0 + 2.0))
    assert world.started.keys() == {"short", "long"}
    stages = stage("a", estimateSeconds=2), stage("b", "a", estimateSeconds=100)
    world.feed("workflows", "uid-two", workflow("two", *stages, arrival_s=T0 + 2.0))
    complete(world, "long")
    asyncio.run(world.run_until(T0 + 3.0))
    world.feed("workflows", "uid-next", workflow("next", stage("a", estimateSeconds=50), arrival_s=T0 + 3.0))
    asyncio.run(world.run_until(T0 + 4.0))
    complete(world, "two")
    asyncio.run(world.reconciler.reconcile())
    assert world.server.jobs[-1]["metadata"]["labels"]["fermata.dev/workflow"] == first
