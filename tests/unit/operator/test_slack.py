"""A workflow with a deadline is held no longer than that leaves time for, and no other policy's limit is touched."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.unit.operator.objects import T0, job_fact_of, stage, workflow, workflow_fact_of
from tests.unit.operator.test_edits import edit
from tests.unit.operator.world import Holder, World
from tests.virtual_cluster import VirtualCluster

from fermata.operator.estimates import Estimates
from fermata.operator.explain import explain
from fermata.operator.facts import pool_fact, workflow_fact
from fermata.operator.ledger import Account
from fermata.operator.slack import slack_s, told_slack_s
from fermata.operator.stage_status import stage_status
from fermata.operator.times import parse, render
from fermata.operator.view import view
from fermata.policy.action import START, WAIT, Action
from fermata.policy.state import ClusterState

LONG_S, EXECUTORS = 900.0, 2
NEEDED_S = LONG_S + LONG_S / EXECUTORS  # its path, and its work on the whole pool


class Waiter(Holder):
    """Starts what is short, and waits for the next event for ever."""

    name = "waiter"

    def choose(self, state: ClusterState) -> Action:
        action = super().choose(state)
        return action if action.kind == START else Action(WAIT)


def start_s(world: World) -> float | None:
    """When the long workflow started, seconds after it was created."""
    asyncio.run(world.run_until(T0 + 3000.0))
    arrival_s = parse(world.server.objects["uid-long"]["status"]["arrivalTime"]) - T0
    return world.started["long"] - arrival_s if "long" in world.started else None


def with_deadline(seconds: float, policy: Holder, *stages: dict[str, Any], **pool: Any) -> World:
    world = World(**pool)
    world.reconciler._seat._policy = policy
    changed = {"stages": list(stages)} if stages else {}
    edit(world, "uid-long", activeDeadlineSeconds=int(seconds), **changed)
    return world


@pytest.mark.parametrize("policy", [Holder(), Waiter()])
def test_a_workflow_is_held_until_its_deadline_leaves_the_time_that_it_takes(policy: Holder) -> None:
    assert start_s(with_deadline(NEEDED_S + 150.0, policy)) == pytest.approx(150.0, abs=0.01)


def test_for_how_much_longer_it_may_be_held_is_told() -> None:
    world = with_deadline(NEEDED_S + 60.0, Waiter())
    asyncio.run(world.reconciler.reconcile())
    assert "; at most 60 s more; decided again in 60 s" in world.long["message"]


@pytest.mark.parametrize("policy", [Holder(), Waiter()])
def test_one_that_cannot_be_in_time_is_not_held_at_all(policy: Holder) -> None:
    world = with_deadline(LONG_S, policy)
    asyncio.run(world.reconciler.reconcile())
    assert world.started.keys() == {"short", "long"}


def test_what_comes_after_the_held_stage_takes_its_time_too() -> None:
    stages = (
        stage("a", estimateSeconds=200),
        stage("b", "a", estimateSeconds=300),
        stage("c", "b", tasks=4, estimateSeconds=10),
    )
    path_s, work_s = 510.0, 540.0
    world = with_deadline(path_s + work_s / EXECUTORS + 70.0, Holder(), *stages)
    assert start_s(world) == pytest.approx(70.0, abs=0.01)


def test_until_when_a_deadline_lets_it_be_held_is_explained() -> None:
    stages = stage("a", estimateSeconds=200), stage("b", "a", tasks=4, slots=2, estimateSeconds=10)
    world = with_deadline(210.0 + 280.0 / EXECUTORS + 70.0, Waiter(), *stages)
    asyncio.run(world.run_until(T0 + 20.0))
    raw, pool = world.server.objects["uid-long"], pool_fact(world.server.objects["p"])
    left_s = parse(raw["status"]["arrivalTime"]) + 70.0 - (T0 + 20.0)
    limit = "(activeDeadlineSeconds 420 of the workflow, less what is left of it)"
    lines = explain(workflow_fact(raw, T0), pool, "a", T0 + 20.0)
    assert [line.strip() for line in lines if "at the latest" in line] == [
        f"starts in {left_s:.0f} s at the latest {limit}"
    ]
    raw["spec"]["stages"][0]["dependsOn"] = ["b", "nobody"]  # by an edit that nobody has looked at yet
    assert any("at the latest" in line for line in explain(workflow_fact(raw, T0), pool, "a", T0 + 20.0))
    raw["spec"]["stages"][0]["name"] = "other"
    assert not any("at the latest" in line for line in explain(workflow_fact(raw, T0), pool, "a", T0 + 20.0))


def test_what_is_explained_of_a_deadline_is_what_holds_go_by() -> None:
    stages = (
        stage("done", estimateSeconds=900),
        stage("running", tasks=5, slots=2, estimateSeconds=30),
        stage("held", "done", tasks=3, estimateSeconds=40),
        stage("behind", "held", "running", tasks=2, estimateSeconds=50),
        stage("failed", estimateSeconds=70),
        stage("lost", "failed", estimateSeconds=80),
    )
    fact = workflow_fact_of("w", *stages, activeDeadlineSeconds=1000, onFailure="Finish")
    assert fact.spec is not None
    jobs = {
        "done": job_fact_of("w", "done", succeeded=1, outcome="Complete"),
        "running": job_fact_of("w", "running", tasks=5, parallelism=2, succeeded=2, active=2),
        "failed": job_fact_of("w", "failed", outcome="Failed"),
    }
    seen = view(fact, fact.spec, jobs, {}, {}, Estimates(), T0 + 100.0)
    rows = [stage_status(seen, each, Account(), {}, {}, None) for each in seen.stages]
    told = workflow_fact(
        workflow("w", *stages, activeDeadlineSeconds=1000, status={"arrivalTime": render(T0), "stages": rows}), T0
    )
    (held_s,) = slack_s(seen, 4, T0 + 100.0).values()
    assert held_s == 900.0 - (3 * 2 * 30 + 3 * 40 + 2 * 50) / 4 - 90.0
    assert told_slack_s(told, "held", 4, T0 + 100.0) == held_s


@pytest.mark.parametrize(("limits", "expected_s"), [({"maxHoldSeconds": 35}, 35.0), ({"maxWaitSeconds": 25}, 25.0)])
def test_what_the_pool_allows_counts_where_it_is_less(limits: dict[str, int], expected_s: float) -> None:
    assert start_s(with_deadline(NEEDED_S + 150.0, Holder(), **limits)) == pytest.approx(expected_s, abs=0.01)


def test_a_deadline_that_an_edit_sets_shortens_the_hold_that_goes_on() -> None:
    world = World()
    asyncio.run(world.run_until(T0 + 2.0))
    assert world.started.keys() == {"short"}
    edit(world, "uid-long", activeDeadlineSeconds=int(NEEDED_S + 4))
    assert start_s(world) == pytest.approx(4.0, abs=0.01)


@pytest.mark.parametrize("uid", ["p", "uid-long"])
def test_what_an_edit_leaves_of_a_hold_is_told_of_what_is_held_already(uid: str) -> None:
    world = World()
    world.reconciler._seat._policy = Waiter()
    asyncio.run(world.run_until(T0 + 3.0))
    assert "at most" not in world.long["message"]
    edit(world, uid, **({"maxHoldSeconds": 62} if uid == "p" else {"activeDeadlineSeconds": int(NEEDED_S + 62)}))
    asyncio.run(world.run_until(T0 + 3.0))
    told = world.long["message"]
    assert "; at most 60 s more; decided again in 60 s" in told
    (held,) = [row for row in world.server.objects["uid-long"]["status"]["conditions"] if row["type"] == "Held"]
    assert (held["status"], held["message"]) == ("True", told)
    asyncio.run(world.run_until(T0 + 40.0))
    world.annotate("uid-long", "other-stage")
    asyncio.run(world.run_until(T0 + 41.0))
    assert world.long["message"] == told, "no number of a sentence is told again because time has passed"


def test_without_a_deadline_nothing_changes() -> None:
    world = World()
    world.feed("workflows", "uid-soon", workflow("soon", stage("a", estimateSeconds=900), activeDeadlineSeconds=1351))
    assert start_s(world) is None
    assert world.started.keys() == {"short", "soon"}


def test_a_workflow_that_would_have_failed_for_being_held_ends_in_time() -> None:
    # One executor is taken for 70 s, and the rule keeps the other free for what is short until just before its end.
    pool = {"executors": EXECUTORS, "policy": {"name": "sjf-hold:split=30,tau=1"}, "decisionDeadlineSeconds": 60}
    took_s = {("other", "a"): 70.0, ("held", "a"): 40.0, ("hurried", "a"): 40.0}

    def run_s(name: str, **spec: Any) -> float:
        arrivals = [
            (T0, workflow("other", stage("a", estimateSeconds=70), arrival_s=T0)),
            (T0 + 1.0, workflow(name, stage("a", estimateSeconds=40), arrival_s=T0 + 1.0, **spec)),
        ]
        cluster = VirtualCluster(T0, took_s, slow=False, **pool)
        return asyncio.run(cluster.run(arrivals, float("inf")))[name] - T0

    assert run_s("held") == pytest.approx(69.0 + 40.0, abs=0.1)
    in_time_s = 1.0 + 90.0 - (40.0 + 40.0 / EXECUTORS)
    assert run_s("hurried", activeDeadlineSeconds=90) == pytest.approx(in_time_s + 40.0, abs=0.1)
