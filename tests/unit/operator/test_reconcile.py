"""Holds over time, under a clock of the test's own: what bounds them, and what a restart makes of them.

The API server is a dict here, because hours pass in these tests; the end-to-end tests have a real one.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import sys
from collections import Counter
from functools import partial
from types import FrameType
from typing import Any

import pytest
from tests.unit.operator.objects import DONE, T0, stage, workflow
from tests.unit.operator.test_edits import edit
from tests.unit.operator.test_slack import Waiter
from tests.unit.operator.world import Holder, Server, World

from fermata.operator.connection import ClusterError
from fermata.operator.inflight import AT_ONCE
from fermata.operator.past import past_job
from fermata.operator.reasons import MEANING
from fermata.operator.times import parse, render
from fermata.policy import registry
from fermata.policy.action import START, Action
from fermata.policy.state import ClusterState


def _begin(**pool: Any) -> World:
    """Return a world in which the short one has started and the long one is held."""
    world = World(**pool)
    asyncio.run(world.run_until(T0 + 2.0))
    assert world.started.keys() == {"short"}
    assert world.long["state"] == "Held"
    assert parse(world.long["holdUntil"]) > world.now_s
    return world


def _waits(world: World, name: str) -> list[tuple[str, str]]:
    """State and reason of the stages of a workflow."""
    return [(row["state"], row["reason"]) for row in world.server.objects[f"uid-{name}"]["status"]["stages"]]


def _outcome(world: World, name: str) -> tuple[str, str, str]:
    """Status, reason and message of the condition of which `kubectl get` shows the reason."""
    rows = world.server.objects[f"uid-{name}"]["status"]["conditions"]
    (row,) = (row for row in rows if row["type"] == "Succeeded")
    return row["status"], row["reason"], row["message"]


def _warnings(world: World) -> list[tuple[str, str]]:
    return [(event["reason"], event["message"]) for event in world.events() if event["type"] == "Warning"]


def test_why_a_stage_is_held_is_true_of_the_pool_after_what_was_started_with_it() -> None:
    told = "held: a stage of about 15 min a task; the next executor frees in about 9.0 s; decided again in 10 s"
    assert _begin().long["message"] == told


def test_a_job_has_no_more_tasks_at_once_than_executors_are_free_whatever_cap_a_policy_gives_it() -> None:
    world = _begin(executors=6)
    world.feed("workflows", "uid-many", workflow("many", stage("a", tasks=9, slots=2), arrival_s=T0 + 2.0))
    asyncio.run(world.reconciler.reconcile())
    (many,) = [job for job in world.server.jobs if job["metadata"]["labels"]["fermata.dev/workflow"] == "many"]
    assert many["spec"]["parallelism"] == 2, "the short one has an executor, too"


def test_why_a_stage_waits_is_true_of_the_pool_after_what_was_started_before_it() -> None:
    world = World(executors=1)
    asyncio.run(world.reconciler.reconcile())
    assert world.started.keys() == {"short"}
    assert world.long["message"] == "needs 1 executor, 0 of 1 free; the next executor frees in about 9.0 s"


def test_holds_committed_to_again_and_again_are_bounded_together() -> None:
    world = _begin(maxHoldSeconds=35)
    asyncio.run(world.run_until(T0 + 200.0))
    assert world.started["long"] == pytest.approx(1.0 + 35.0, abs=0.1)
    assert world.long["heldSeconds"] == pytest.approx(35.0, abs=0.1)
    assert world.metrics.registry.get_sample_value("fermata_holds_total", {"pool": "pool"}) == 1.0


class _HoldsOnce(Holder):
    """Holds what is long for ten seconds, and starts it then."""

    def choose(self, state: ClusterState) -> Action:
        for index in state.ready_stages.tolist():
            if state.stage_hold_until_s[index] > -math.inf and state.stage_hold_until_s[index] <= state.now_s:
                return Action(START, index, 1)
        return super().choose(state)


@pytest.mark.parametrize("restarted", [False, True])
def test_a_stage_that_a_policy_holds_once_is_not_held_again_when_that_is_over(restarted: bool) -> None:
    world = World()
    world.reconciler._seat._policy = _HoldsOnce()
    asyncio.run(world.run_until(T0 + 5.0))
    assert world.long["state"] == "Held"
    world.feed("workflows", "uid-next", workflow("next", stage("a"), arrival_s=T0 + 5.0))
    asyncio.run(world.run_until(T0 + 15.0))
    assert world.long["state"] == "Waiting", "the hold is over, and no executor is free"
    if restarted:
        world.start_operator()
        world.reconciler._seat._policy = _HoldsOnce()
    else:
        world.now_s = T0 + 8.0  # set back: what is over does not begin again
    _end_short(world)
    end_s = world.now_s
    asyncio.run(world.reconciler.reconcile())
    assert world.started["long"] == end_s - T0
    assert world.server.objects["uid-long"]["status"]["heldSeconds"] == 4.0


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


def test_a_release_starts_what_a_policy_keeps_from_executors_that_nobody_else_may_have() -> None:
    world = World(executors=4)
    world.reconciler._seat._policy = registry.load("srwf-work-share:grain=3600,spare=0")
    two = [stage(name, estimateSeconds=9) for name in ("a", "b")]
    world.feed("workflows", "uid-two", workflow("two", *two, arrival_s=T0 + 1.0))
    asyncio.run(world.run_until(T0 + 5.0))
    assert _waits(world, "two") == [("Running", ""), ("Held", "HeldByPolicy")]
    world.annotate("p", "*")
    asyncio.run(world.run_until(T0 + 9.0))
    assert _waits(world, "two") == [("Running", "")] * 2


def test_releasing_another_stage_ends_nothing() -> None:
    world = _begin()
    world.annotate("uid-long", "b")
    asyncio.run(world.run_until(T0 + 60.0))
    assert world.started.keys() == {"short"}


def test_a_stage_that_its_workflows_own_parallelism_keeps_is_not_held() -> None:
    world = _begin(executors=3)
    two = [stage(name, estimateSeconds=900) for name in ("a", "b")]
    world.feed("workflows", "uid-two", workflow("two", *two, parallelism=1, arrival_s=T0 + 2.0))
    asyncio.run(world.run_until(T0 + 5.0))
    world.annotate("uid-two", "a")
    asyncio.run(world.run_until(T0 + 60.0))
    first, second = world.server.objects["uid-two"]["status"]["stages"]
    assert first["state"] == "Running"
    assert (second["state"], second["reason"]) == ("Waiting", "ParallelismReached")
    assert first["heldSeconds"] == second["heldSeconds"] == pytest.approx(3.0)


def test_a_stage_that_its_workflows_own_parallelism_keeps_says_so_whether_executors_are_free_or_not() -> None:
    world = World(executors=2)
    asyncio.run(world.run_until(T0 + 2.0))
    two = [stage(name, estimateSeconds=9) for name in ("a", "b")]
    world.feed("workflows", "uid-two", workflow("two", *two, parallelism=1, arrival_s=T0 + 2.0))
    asyncio.run(world.run_until(T0 + 5.0))
    assert world.server.objects["p"]["status"]["busy"] == 2
    before = _waits(world, "two")
    _end_short(world)
    asyncio.run(world.run_until(T0 + 9.0))
    assert world.server.objects["p"]["status"]["busy"] == 1
    assert before == _waits(world, "two") == [("Running", ""), ("Waiting", "ParallelismReached")]


def test_a_stage_is_not_kept_by_the_parallelism_of_another_workflow_that_was_given_its_executor() -> None:
    world = World(executors=4)
    world.reconciler._seat._policy = registry.load("fifo")
    asyncio.run(world.run_until(T0 + 2.0))
    for name, stages, spec in (("two", "ab", {"parallelism": 1}), ("x", "a", {})):
        some = [stage(each, estimateSeconds=9) for each in stages]
        world.feed("workflows", f"uid-{name}", workflow(name, *some, arrival_s=T0 + 2.0, **spec))
    assert asyncio.run(world.reconciler.reconcile()) <= world.now_s, "b cannot have the last executor: another may"
    assert world.started.keys() == {"short", "long", "two"}
    assert _waits(world, "x") == [("Waiting", "ExecutorsBusy")]
    asyncio.run(world.reconciler.reconcile())
    assert "x" in world.started


def test_a_lower_cap_counts_at_once() -> None:
    world = _begin()
    spec = {**world.pool["spec"], "maxHoldSeconds": 4}
    world.feed("executorpools", "p", {"metadata": {**world.pool["metadata"], "generation": 2}, "spec": spec})
    asyncio.run(world.run_until(T0 + 60.0))
    assert world.started["long"] == pytest.approx(1.0 + 4.0, abs=0.1)


@pytest.mark.parametrize(("age_s", "end_s"), [(7, 8.0), (1, 2.0)])
def test_a_lower_age_cap_shortens_what_was_committed_to_and_says_so(age_s: int, end_s: float) -> None:
    world = _begin()
    world.reconciler._seat._policy = _HoldsOnce()  # another one would hold it anew
    ready_s = parse(world.long["readyTime"]) - T0
    edit(world, "p", maxWaitSeconds=age_s)
    asyncio.run(world.run_until(T0 + 3.5))
    if end_s > 3.5:
        assert parse(world.long["holdUntil"]) == pytest.approx(T0 + end_s, abs=0.01)
    asyncio.run(world.run_until(T0 + 30.0))
    assert (ready_s, world.started["long"]) == (1.0, pytest.approx(end_s, abs=0.01))


def test_where_a_pool_holds_when_idle_a_committed_hold_goes_on_when_nothing_runs_any_more() -> None:
    world = _begin(holdWhenIdle=True)
    world.reconciler._seat._policy = _HoldsOnce()  # another one would hold it anew
    (job,) = world.server.jobs
    done = {"type": "Complete", "status": "True", "lastTransitionTime": "2027-01-15T08:00:02.500000Z"}
    world.feed("jobs", job["metadata"]["uid"], {**job, "status": {"succeeded": 1, "conditions": [done]}})
    asyncio.run(world.run_until(T0 + 10.5))
    assert (world.started.keys(), world.long["state"]) == ({"short"}, "Held")


@pytest.mark.parametrize("mode", ["Shadow", "Off"])
def test_a_committed_hold_ends_where_its_policy_may_not_hold_any_more(mode: str) -> None:
    world = _begin()
    edit(world, "p", mode=mode)
    asyncio.run(world.run_until(T0 + 3.0))
    assert world.started == {"short": 1.0, "long": 2.0}


def test_that_a_stage_is_held_is_told_where_nothing_of_its_workflow_has_changed() -> None:
    world = World()
    world.reconciler._seat._policy = Waiter()
    stages = [stage("a", estimateSeconds=9), stage("b", estimateSeconds=900)]
    world.feed("workflows", "uid-w", workflow("w", *stages, arrival_s=T0))
    asyncio.run(world.run_until(T0 + 6.0))
    assert _waits(world, "w") == [("Running", ""), ("Waiting", "ExecutorsBusy")]
    (uid,) = (job["metadata"]["uid"] for job in world.server.jobs if "short" in job["metadata"]["name"])
    world.store.remove("workflows", "uid-short")  # of what has ended something would be learned
    world.store.remove("jobs", uid)
    asyncio.run(world.run_until(T0 + 7.0))
    assert _waits(world, "w") == [("Running", ""), ("Held", "HeldByPolicy")]


def test_beside_a_stage_that_its_workflows_own_parallelism_keeps_others_are_held() -> None:
    world = World(executors=3)
    world.reconciler._seat._policy = Waiter()
    stages = [stage("a", estimateSeconds=9), stage("b", estimateSeconds=900)]
    world.feed("workflows", "uid-w", workflow("w", *stages, arrival_s=T0, parallelism=1, priority=9))
    asyncio.run(world.run_until(T0 + 6.0))
    assert _waits(world, "w") == [("Running", ""), ("Waiting", "ParallelismReached")]
    assert (world.long["state"], parse(world.long["heldSince"])) == ("Held", T0 + 1.0)


def test_what_is_held_no_more_counts_no_longer_as_held_whether_that_it_was_could_be_told_or_not() -> None:
    world = World()
    asyncio.run(world.reconciler.reconcile())
    world.server.denied_s = []
    world.feed("workflows", "uid-w", workflow("w", stage("a", estimateSeconds=900), arrival_s=T0))
    asyncio.run(world.run_until(T0 + 6.0))
    world.feed("workflows", "uid-next", workflow("next", stage("a", estimateSeconds=9), arrival_s=T0 + 6.0))
    asyncio.run(world.run_until(T0 + 40.0))
    world.server.denied_s = None
    asyncio.run(world.run_until(T0 + 80.0))
    status = world.server.objects["uid-w"]["status"]
    assert _waits(world, "w") == [("Waiting", "ExecutorsBusy")]
    assert (status["heldSeconds"], status.get("heldSince")) == (pytest.approx(5.0, abs=0.1), None)


def test_what_is_held_where_a_quota_is_found_to_be_used_up_is_held_no_more() -> None:
    world = _begin(executors=3)

    async def refuse(_job: dict[str, Any]) -> dict[str, Any]:
        raise ClusterError(403, "Forbidden", "is forbidden: exceeded quota: few, requested: count/jobs.batch=1")

    world.server.create_job = refuse  # type: ignore[method-assign]
    world.now_s += 3.0
    world.feed("workflows", "uid-next", workflow("next", stage("a", estimateSeconds=9), arrival_s=world.now_s))
    asyncio.run(world.reconciler.reconcile())
    assert (world.long["state"], world.long["reason"]) == ("Waiting", "StartRetrying")
    assert world.long.get("heldSince") is None
    pool = world.server.objects["p"]["status"]
    assert (pool["waiting"], pool["held"]) == (2, 0), "each of them once"


def test_a_stage_that_an_edit_takes_out_is_held_no_more_and_its_pool_goes_on() -> None:
    world = _begin()
    edit(world, "uid-long", stages=[stage("b", estimateSeconds=9)])
    asyncio.run(world.run_until(T0 + 4.0))
    assert _waits(world, "long") == [("Running", "")]


def test_a_stage_is_held_only_while_it_would_fit() -> None:
    world = _begin()
    world.feed("workflows", "uid-next", workflow("next", stage("a", estimateSeconds=9), arrival_s=T0 + 2.0))
    asyncio.run(world.run_until(T0 + 20.0))
    assert world.started.keys() == {"short", "next"}
    assert _waits(world, "long") == [("Waiting", "ExecutorsBusy")]
    assert world.long["heldSeconds"] == pytest.approx(1.0)
    assert world.server.objects["uid-long"]["status"]["heldSeconds"] == pytest.approx(1.0)


def test_what_is_held_beside_a_stage_of_its_workflow_that_runs_does_not_hold_the_workflow() -> None:
    world = World(executors=3)
    world.feed("workflows", "uid-w", workflow("w", stage("a", estimateSeconds=9), stage("b", estimateSeconds=900)))
    asyncio.run(world.run_until(T0 + 31.0))
    told = world.server.objects["uid-w"]["status"]
    assert _waits(world, "w") == [("Running", ""), ("Held", "HeldByPolicy")]
    assert parse(told["stages"][1]["heldSince"]) == pytest.approx(T0 + 1.0, abs=0.01)
    assert not told.get("heldSince")
    assert not told["stages"][0].get("heldSince")
    holds = world.metrics.registry.get_sample_value("fermata_holds_total", {"pool": "pool"})
    assert holds == 2.0, "of w and of long; that they are held on is no new one"


def test_a_committed_hold_ends_when_nothing_runs_any_more() -> None:
    world = _begin()
    (job,) = world.server.jobs
    done = {"type": "Complete", "status": "True", "lastTransitionTime": "2027-01-15T08:00:02.500000Z"}
    world.feed("jobs", job["metadata"]["uid"], {**job, "status": {"succeeded": 1, "conditions": [done]}})
    world.now_s = T0 + 3.0
    asyncio.run(world.reconciler.reconcile())
    assert world.started["long"] == 3.0


def test_a_stage_that_is_ready_by_a_clock_ahead_of_ours_starts_when_ours_is_there_and_without_an_event() -> None:
    world = World()
    asyncio.run(world.run_until(T0 + 2.0))
    world.feed("workflows", "uid-next", workflow("next", stage("a", estimateSeconds=9), arrival_s=T0 + 2.75))
    asyncio.run(world.run_until(T0 + 2.5))
    (row,) = world.server.objects["uid-next"]["status"]["stages"]
    assert (row["state"], row["reason"]) == ("Waiting", "ExecutorsBusy"), "no cap of its own keeps it"
    asyncio.run(world.run_until(T0 + 10.0))
    assert world.started["next"] == pytest.approx(2.75, abs=0.01)


def test_what_became_ready_before_the_clock_was_set_back_does_not_wait_until_it_is_that_late_again() -> None:
    world = World(executors=3)
    world.feed("workflows", "uid-w", workflow("w", stage("a", estimateSeconds=9), stage("b", "a", estimateSeconds=9)))
    asyncio.run(world.run_until(T0 + 2.0))
    world.feed("workflows", "uid-next", workflow("next", stage("a", estimateSeconds=9), arrival_s=T0 + 2.0))
    world.now_s -= 3600.0
    (job,) = [job for job in world.server.jobs if job["metadata"]["labels"]["fermata.dev/workflow"] == "w"]
    done = {"type": "Complete", "status": "True", "lastTransitionTime": render(world.now_s + 0.5)}
    uid = job["metadata"]["uid"]
    world.feed("jobs", uid, {**world.server.objects[uid], "status": {"succeeded": 1, "conditions": [done]}})
    asyncio.run(world.run_until(world.now_s + 3.0))
    assert world.started["next"] == world.started["w"] == pytest.approx(-3598.0, abs=0.1)  # of `w` its stage `b`
    (row,) = world.server.objects["uid-next"]["status"]["stages"]
    assert row["readyTime"] == row["startTime"]


def test_what_is_held_when_the_clock_is_set_back_is_held_no_longer_for_that() -> None:
    world = _begin(maxHoldSeconds=35)
    asyncio.run(world.run_until(T0 + 20.0))
    assert parse(world.long["holdUntil"]) - parse(world.long["heldSince"]) == 20.0
    world.now_s -= 3600.0
    asyncio.run(world.run_until(T0 - 3577.0))
    assert (parse(world.long["heldSince"]), parse(world.long["holdUntil"])) == (T0 - 3580.0, T0 - 3560.0)
    asyncio.run(world.run_until(T0 - 3500.0))
    assert world.started["long"] == -3580.0 + 35.0, "how long it was held before is lost"
    assert world.server.objects["uid-long"]["status"]["heldSeconds"] == 35.0


def test_a_busy_api_server_is_not_asked_for_every_status_again_and_again() -> None:
    world = World()
    uids = [f"uid-w{number}" for number in range(100)]
    for uid in uids:
        world.feed("workflows", uid, workflow(uid.removeprefix("uid-"), stage("a", estimateSeconds=900)))
    world.server.busy = 0
    asyncio.run(world.run_until(T0 + 11.0))
    assert 20 < world.server.busy < 400
    world.server.busy = None
    asyncio.run(world.run_until(T0 + 14.0))
    assert all(world.server.objects[uid]["status"] for uid in uids)


@pytest.mark.parametrize("status", [403, 404])  # the second one by a proxy that knows no such page
def test_a_status_that_is_refused_is_written_less_and_less_often_until_it_is_taken(status: int) -> None:
    world = World()
    world.server.denied_s, world.server.denied_status = [], status
    asked_s = world.server.denied_s
    asyncio.run(world.run_until(T0 + 100.0))
    waits_s = [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    both = [second for second in itertools.accumulate(waits_s, initial=T0 + 1.0) for _ in ("short", "long")]
    assert asked_s == pytest.approx(both, abs=0.1)
    world.server.denied_s = None
    asyncio.run(world.run_until(T0 + 125.0))
    assert all(world.server.objects[uid]["status"]["observedGeneration"] for uid in ("uid-short", "uid-long"))


def test_a_status_of_a_pool_that_is_refused_is_written_less_and_less_often_until_it_is_taken() -> None:
    world = World()
    begun_s = world.now_s
    asked_s = world.server.denied_pool_s = []
    asyncio.run(world.run_until(begun_s + 200.0))
    assert len(asked_s) < 20
    assert [round(later - earlier) for earlier, later in itertools.pairwise(asked_s)][-3:] == [30, 30, 30]
    world.server.denied_pool_s = None
    asyncio.run(world.run_until(begun_s + 232.0))
    assert world.server.objects["p"]["status"]["busy"] == 1


@pytest.mark.parametrize("status", [409, 503])
def test_a_status_of_a_pool_that_finds_trouble_is_written_a_little_later_without_an_event(status: int) -> None:
    world = World()
    asked_s = world.server.denied_pool_s = []
    world.server.denied_pool_status = status
    asyncio.run(world.run_until(T0 + 8.5))
    assert asked_s == pytest.approx([T0 + 3.0, T0 + 5.0, T0 + 7.0], abs=0.1), "no less often"
    world.server.denied_pool_s = None
    asyncio.run(world.run_until(T0 + 10.0))
    assert world.server.objects["p"]["status"]["busy"] == 1


def test_a_status_of_a_pool_is_not_written_all_the_time() -> None:
    world, told_s = World(executors=1), []
    write = world.server.patch_pool_status

    async def note(*arguments: Any) -> dict[str, Any]:
        told_s.append(world.now_s - T0)
        return await write(*arguments)

    world.server.patch_pool_status = note  # type: ignore[method-assign]
    for number in range(20):
        world.feed("workflows", f"uid-{number}", workflow(f"{number}", stage("a"), arrival_s=world.now_s))
        asyncio.run(world.run_until(T0 + 1.0 + 0.5 * number))
    asyncio.run(world.run_until(T0 + 13.0))
    assert told_s == pytest.approx([3.0, 5.0, 7.0, 9.0, 11.0], abs=0.1)
    assert world.server.objects["p"]["status"]["waiting"] == 21
    sample = world.metrics.registry.get_sample_value
    assert sample("fermata_workflows_finished_total", {"pool": "pool", "result": "failed"}) == 0.0, "it begins there"


@pytest.mark.parametrize(("executors", "free"), [(3, 2), (1, 0)])  # of them an edit leaves fewer than run
def test_the_gauges_of_a_pool_say_what_its_status_says(executors: int, free: int) -> None:
    world = _begin(executors=3)
    world.feed("workflows", "uid-w", workflow("w", stage("a", slots=3), stage("b", "a"), arrival_s=T0 + 2.0))
    if executors != 3:
        world.feed("workflows", "uid-v", workflow("v", stage("a", estimateSeconds=9), arrival_s=T0 + 2.0))
        asyncio.run(world.run_until(T0 + 3.0))
        edit(world, "p", executors=executors)
    asyncio.run(world.run_until(T0 + 9.0))
    sample, told = world.metrics.registry.get_sample_value, world.server.objects["p"]["status"]
    expected = (1, 1, 1) if executors == 3 else (2, 1, 0)  # where none is free, none is kept free
    assert (told["busy"], told["waiting"], told["held"]) == expected
    gauges = {
        state: sample(f"fermata_pool_{what}", {"pool": "pool", "state": state})
        for what, state in (("executors", "busy"), ("executors", "free"), ("stages", "waiting"), ("stages", "held"))
    }
    assert gauges == {"busy": expected[0], "free": free, "waiting": expected[1], "held": expected[2]}


def test_a_round_that_fails_loses_nothing_of_what_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()

    def fails(*_: object, **__: object) -> None:
        raise RuntimeError("a bug")

    with monkeypatch.context() as patch:
        patch.setattr(world.reconciler._observer, "_take_in", fails)
        with pytest.raises(RuntimeError, match="a bug"):
            asyncio.run(world.reconciler.reconcile())
    asyncio.run(world.run_until(T0 + 1.0))
    assert "short" in world.started


@pytest.mark.parametrize(("status", "last_s"), [(500, [8.0, 8.0]), (429, [8.0, 8.0]), (403, [16.0, 30.0])])
def test_a_start_that_fails_is_tried_again_soon_and_then_less_often(status: int, last_s: list[float]) -> None:
    world = World()
    world.server.refusals["short"] = [status] * 8
    asyncio.run(world.run_until(T0 + 100.0))
    waits_s = [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, *last_s]
    assert world.started["short"] == pytest.approx(1.0 + sum(waits_s), abs=0.1)
    starts = world.metrics.registry.get_sample_value("fermata_stage_start_seconds_count", {"pool": "pool"})
    assert starts == len(world.started), "what failed did not end with a Job"


def test_an_api_server_with_too_much_to_do_is_not_asked_for_more_at_once() -> None:
    world = World()
    world.server.refusals["short"] = [429]
    assert asyncio.run(world.reconciler.reconcile()) == pytest.approx(world.now_s + 0.25, abs=0.001)


@pytest.mark.parametrize(("took_s", "told_s"), [(2.0, 2.0), (-5.0, 0.0)])
def test_what_a_start_takes_is_measured_and_a_widening_is_none(took_s: float, told_s: float) -> None:
    world = World()
    create, widen = world.server.create_job, world.server.patch_job

    async def slowly(request: Any, *arguments: Any) -> Any:
        world.now_s += took_s  # or the clock is set back
        return await request(*arguments)

    world.server.create_job = partial(slowly, create)  # type: ignore[method-assign]
    world.server.patch_job = partial(slowly, widen)  # type: ignore[method-assign]
    raw = workflow("short", stage("a", tasks=9, estimateSeconds=9))
    raw["metadata"]["generation"] = 2
    world.feed("workflows", "uid-short", raw)
    asyncio.run(world.reconciler.reconcile())
    edit(world, "p", executors=3)
    asyncio.run(world.reconciler.reconcile())
    assert (world.started.keys(), len(world.server.patched_s)) == ({"short"}, 1)
    sample = world.metrics.registry.get_sample_value
    told = [sample(f"fermata_stage_start_seconds_{kind}", {"pool": "pool"}) for kind in ("count", "sum")]
    assert told == pytest.approx([1.0, told_s])


def test_a_job_that_the_api_server_never_takes_has_failed_its_stage_and_its_executors_are_the_next_ones_at_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World(executors=1)
    create = world.server.create_job

    async def refuse(job: dict[str, Any]) -> dict[str, Any]:
        if job["metadata"]["labels"]["fermata.dev/workflow"] == "short":
            raise ClusterError(422, "Invalid", "spec: no")
        return await create(job)

    world.server.create_job = refuse  # type: ignore[method-assign]
    back_s = asyncio.run(world.reconciler.reconcile())
    assert [record.getMessage() for record in caplog.records] == ["default/short: stage a: spec: no"]
    assert back_s <= world.now_s, "nothing else says that its executors are free"
    world.feed("workflows", "uid-next", workflow("next", stage("a", estimateSeconds=9), arrival_s=T0 + 1.0))
    asyncio.run(world.run_until(T0 + 5.0))
    assert world.started.keys() == {"next"}
    assert _waits(world, "short") == [("Failed", "JobRejected")]
    assert _outcome(world, "short")[:2] == ("False", "StageFailed")


def test_a_stage_that_could_be_started_at_last_has_not_failed_before_when_it_cannot_be_widened(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    world.server.refusals["wide"] = [403] * 2
    world.feed("workflows", "uid-wide", workflow("wide", stage("a", tasks=2, estimateSeconds=9)))
    asyncio.run(world.run_until(T0 + 5.0))
    world.server.forbids = True
    edit(world, "p", executors=3)
    asyncio.run(world.run_until(T0 + 5.1))
    said = [record.getMessage().partition("stage a: ")[2] for record in caplog.records]
    bad, forbidden = "403: a bad moment", "Forbidden: you may not"
    assert said == [
        f"not started, again in 0.25 s: {bad}", f"not started, again in 0.5 s: {bad}",
        f"not widened, again in 0.25 s: {forbidden}",
    ]  # fmt: skip


def test_until_when_a_stage_is_held_is_told_anew_when_it_is_held_on() -> None:
    world = World()
    asyncio.run(world.run_until(T0 + 15.0))
    assert parse(world.long["holdUntil"]) == pytest.approx(T0 + 21.0, abs=0.1)


def test_a_stage_that_runs_and_cannot_be_widened_is_not_said_not_to_be_started(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    world.feed("workflows", "uid-wide", workflow("wide", stage("a", tasks=2, estimateSeconds=9)))
    asyncio.run(world.run_until(T0 + 2.0))
    assert world.started.keys() == {"short", "wide"}
    world.server.forbids = True
    edit(world, "p", executors=3)
    asyncio.run(world.run_until(T0 + 2.1))
    said = [row.getMessage() for row in caplog.records if "stage a" in row.getMessage()]
    assert said == ["default/wide: stage a: not widened, again in 0.25 s: Forbidden: you may not"]
    message = "stays at 1 task at once instead of 2, tried again: Forbidden: you may not"
    assert _warnings(world) == [("ChangeRetrying", f"stage a: {message}")]
    asyncio.run(world.run_until(T0 + 9.0))
    (row,) = world.server.objects["uid-wide"]["status"]["stages"]
    assert (row["state"], row["reason"], row["message"]) == ("Running", "ChangeRetrying", message)
    assert _outcome(world, "wide") == ("Unknown", "ChangeRetrying", f"stage 'a': {message}")
    sample = world.metrics.registry.get_sample_value
    assert sample("fermata_pool_stages_amiss", {"pool": "pool"}) == 1.0
    pool = world.server.objects["p"]["status"]
    assert (pool["waiting"], pool["held"]) == (0, 1), "that of `long`"
    world.server.forbids = False
    asyncio.run(world.run_until(T0 + 20.0))
    assert _waits(world, "wide") == [("Running", "")]
    assert _outcome(world, "wide") == ("Unknown", "Running", "")
    assert sample("fermata_pool_stages_amiss", {"pool": "pool"}) == 0.0


def test_a_stage_that_cannot_be_stopped_says_so() -> None:
    world = World(executors=4)
    world.feed("workflows", "uid-w", workflow("w", stage("a", estimateSeconds=9), stage("b", estimateSeconds=9)))
    asyncio.run(world.run_until(T0 + 2.0))
    made = next(job for job in world.server.jobs if job["metadata"]["labels"]["fermata.dev/stage"] == "b")
    failed = {"type": "Failed", "status": "True", "lastTransitionTime": render(T0 + 2.0)}
    world.server.forbids = True
    world.feed("jobs", made["metadata"]["uid"], {**made, "status": {"failed": 1, "conditions": [failed]}})
    asyncio.run(world.run_until(T0 + 9.0))
    assert _waits(world, "w") == [("Running", "ChangeRetrying"), ("Failed", "JobFailed")]
    message = "stage 'a': not stopped, tried again: Forbidden: you may not"
    assert _outcome(world, "w") == ("Unknown", "ChangeRetrying", message)
    world.server.forbids = False
    asyncio.run(world.run_until(T0 + 20.0))
    assert _waits(world, "w") == [("Failed", "Stopped"), ("Failed", "JobFailed")]


@pytest.mark.parametrize("status", [403, 500])
def test_a_start_that_fails_again_and_again_keeps_no_executors_from_others(status: int) -> None:
    world = World(executors=1)
    asyncio.run(world.run_until(T0 + 2.0))
    world.server.refusals["first"] = [status] * 99  # by a quota of its namespace, or a webhook there
    for name in ("first", "second"):
        world.feed("workflows", f"uid-{name}", workflow(name, stage("a", estimateSeconds=9), arrival_s=T0 + 2.0))
    asyncio.run(world.run_until(T0 + 9.0))
    assert world.started.keys() == {"short"}
    edit(world, "p", executors=2)
    asyncio.run(world.run_until(T0 + 60.0))
    assert world.started["second"] == pytest.approx(9.0, abs=0.1)


def test_a_job_that_admission_keeps_narrow_keeps_no_executors_from_others_and_is_widened_ever_less_often() -> None:
    world = World(executors=4)
    asyncio.run(world.run_until(T0 + 2.0))
    world.server.narrow = 1
    for name, tasks, arrival_s in (("wide", 9, T0 + 2.0), ("second", 1, T0 + 3.0)):
        wanted = stage("a", tasks=tasks, estimateSeconds=9)
        world.feed("workflows", f"uid-{name}", workflow(name, wanted, arrival_s=arrival_s))
        asyncio.run(world.run_until(arrival_s + 0.5))
    assert world.started.keys() >= {"wide", "second"}
    told = [event["message"] for event in world.events() if "wide" in event["metadata"]["name"]]
    assert told[0].startswith("stage a started by holder: 1 of 9 tasks at once"), "that is what its Job says"
    asyncio.run(world.run_until(T0 + 90.0))
    waits_s = [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0]
    assert len(world.server.patched_s) == len(waits_s) + 1


def test_a_stage_says_so_when_none_of_its_pods_has_been_ready_for_a_minute() -> None:
    world = World()

    def told(ready: int, until_s: float) -> tuple[str, str]:
        (uid,) = (job["metadata"]["uid"] for job in world.server.jobs)
        world.feed("jobs", uid, {**world.server.objects[uid], "status": {"active": 1, "ready": ready}})
        asyncio.run(world.run_until(until_s))
        return _waits(world, "short")[0]

    asyncio.run(world.run_until(T0 + 2.0))
    assert world.started == {"short": 1.0}
    assert told(0, T0 + 60.0) == ("Running", "")
    asyncio.run(world.run_until(T0 + 63.0))  # nothing happens, and what it says is two seconds old at the most
    assert _waits(world, "short") == [("Running", "NoPodReady")]
    assert _warnings(world) == [("NoPodReady", f"stage a: {MEANING['NoPodReady']}")]
    assert _outcome(world, "short") == ("Unknown", "NoPodReady", f"stage 'a': {MEANING['NoPodReady']}")
    assert told(1, T0 + 100.0) == ("Running", "")
    assert told(0, T0 + 159.0) == ("Running", "")
    assert told(0, T0 + 163.0) == ("Running", "NoPodReady")


def test_what_is_decided_is_not_started_by_an_operator_that_leads_no_more() -> None:
    world, others = World(executors=4), ["a", "b", "c"]
    create = world.server.create_job

    async def freeze(job: dict[str, Any]) -> dict[str, Any]:
        world.leads = False  # when it goes on, the time of its lease is over
        return await create(job)

    asyncio.run(world.run_until(T0 + 2.0))
    world.server.create_job = freeze  # type: ignore[method-assign]
    for name in others:
        world.feed("workflows", f"uid-{name}", workflow(name, stage("a", estimateSeconds=9), arrival_s=T0 + 2.0))
    back_s = asyncio.run(world.reconciler.reconcile())
    assert len(world.started.keys() & set(others)) == 1
    assert back_s <= world.now_s, "it may still lead, and then nothing else calls it back"
    world.leads, world.server.create_job = True, create  # type: ignore[method-assign]
    asyncio.run(world.run_until(T0 + 3.0))
    assert world.started.keys() >= set(others)


@pytest.mark.parametrize(
    ("status", "message", "many", "each_s", "later_s"),
    [(500, "a bad moment", 40, 0.5, 60.0), (403, 'admission webhook "x" denied the request: no', 20, 2.0, 250.0)],
)
def test_many_starts_that_fail_keep_nobody_else_waiting_though_some_of_them_are_always_due(
    status: int, message: str, many: int, each_s: float, later_s: float
) -> None:
    world, refused = World(), [f"first-{number}" for number in range(many)]
    create = world.server.create_job

    async def take_long(job: dict[str, Any]) -> dict[str, Any]:
        world.now_s += each_s  # so 16, or 15, of them are refused in the longest time between two tries of one
        if job["metadata"]["labels"]["fermata.dev/workflow"] in refused:
            raise ClusterError(status, "", message)
        return await create(job)

    asyncio.run(world.run_until(T0 + 2.0))
    world.server.create_job = take_long  # type: ignore[method-assign]
    for name in refused:
        world.feed("workflows", f"uid-{name}", workflow(name, stage("a", estimateSeconds=9), arrival_s=T0 + 2.0))
    asyncio.run(world.run_until(T0 + later_s))
    world.feed("workflows", "uid-second", workflow("second", stage("a", estimateSeconds=9), arrival_s=T0 + later_s))
    told, tell = [], world.server.patch_workflow_status

    async def count(*arguments: Any) -> dict[str, Any]:
        told.append(arguments)
        return await tell(*arguments)

    world.server.patch_workflow_status = count  # type: ignore[method-assign]
    asyncio.run(world.run_until(T0 + later_s + 15.0))
    assert world.started["second"] == pytest.approx(later_s + 2 * each_s, abs=2 * each_s)
    assert len(told) < 25, "fewer than were tried: that it lets others go first for a round is told of none"


def test_a_namespace_without_quota_is_asked_for_one_stage_now_and_then_and_starts_what_finds_room(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world, names = World(executors=99), [f"w{number}" for number in range(40)]
    create, refused_s, room = world.server.create_job, list[float](), 3

    async def take(job: dict[str, Any]) -> dict[str, Any]:
        await asyncio.sleep(0)  # others ask meanwhile
        used = len(world.server.jobs)
        if used >= room and job["metadata"]["namespace"] == "default":
            refused_s.append(world.now_s - T0)
            told = f"exceeded quota: few, requested: count/jobs.batch=1, used: count/jobs.batch={used}, limited: {room}"
            raise ClusterError(403, "Forbidden", f'jobs.batch "{job["metadata"]["name"]}" is forbidden: {told}')
        return await create(job)

    async def run() -> None:
        nonlocal room
        await world.run_until(T0 + 100.0)
        assert len(world.started) == room
        assert {row for name in names for row in _waits(world, name)} <= {
            ("Running", ""), ("Waiting", "StartRetrying"),
        }  # fmt: skip
        assert len(refused_s) <= AT_ONCE + 10, "each of the others asks"
        assert len(caplog.records) == 1
        elsewhere = workflow("elsewhere", stage("a", estimateSeconds=9))
        elsewhere["metadata"]["namespace"] = "another"
        world.feed("workflows", "uid-elsewhere", elsewhere)
        room += 3  # one of them for what is elsewhere
        await world.run_until(T0 + 131.0)
        assert len(world.started) == room
        room = 99
        await world.run_until(T0 + 162.0)
        assert world.started.keys() == {"short", "elsewhere", *names}

    world.server.create_job = take  # type: ignore[method-assign]
    for name in names:
        world.feed("workflows", f"uid-{name}", workflow(name, stage("a", estimateSeconds=9)))
    asyncio.run(run())


def test_beside_a_stage_without_quota_what_runs_is_widened_and_other_namespaces_start_what_they_have() -> None:
    world, wide = World(executors=5), stage("a", tasks=9, estimateSeconds=9, parallelism=2)
    create = world.server.create_job

    async def refuse(job: dict[str, Any]) -> dict[str, Any]:
        if job["metadata"]["namespace"] == "default":
            raise ClusterError(403, "Forbidden", "is forbidden: exceeded quota: few, requested: count/jobs.batch=1")
        return await create(job)

    world.feed("workflows", "uid-wide", workflow("wide", wide))
    asyncio.run(world.run_until(T0 + 2.0))
    world.server.create_job = refuse  # type: ignore[method-assign]
    for name, namespace in (("full", "default"), ("elsewhere", "another")):
        raw = workflow(name, stage("a", estimateSeconds=9))
        raw["metadata"]["namespace"] = namespace
        world.feed("workflows", f"uid-{name}", raw)
        asyncio.run(world.run_until(world.now_s + 0.01))
    assert _waits(world, "full") == [("Waiting", "StartRetrying")]
    assert world.started.keys() == {"short", "wide", "elsewhere"}
    edit(world, "uid-wide", stages=[{**wide, "parallelism": 3}])
    asyncio.run(world.run_until(world.now_s + 0.01))
    assert [round(at_s - T0, 2) for at_s in world.server.patched_s] == [2.02]


def test_a_namespace_without_quota_is_asked_less_and_less_often_until_all_start_at_once_and_says_so_each_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world, names = World(executors=99), [f"w{number}" for number in range(8)]
    create, refused_s, used, room = world.server.create_job, list[float](), 3, 0

    async def take(job: dict[str, Any]) -> dict[str, Any]:
        await asyncio.sleep(0)  # others ask meanwhile
        if room <= 0:
            refused_s.append(world.now_s - T0 - 2.0)
            raise ClusterError(403, "Forbidden", f"is forbidden: exceeded quota: few, used: count/jobs.batch={used}")
        return await create(job)

    def told() -> list[str]:
        said = [record.getMessage()[-2:] for record in caplog.records]
        caplog.clear()
        return said

    asyncio.run(world.run_until(T0 + 2.0))
    world.server.create_job = take  # type: ignore[method-assign]
    world.server.refusals["w0"] = []
    for name in names:
        world.feed("workflows", f"uid-{name}", workflow(name, stage("a", estimateSeconds=9), arrival_s=T0 + 2.0))
    asyncio.run(world.run_until(T0 + 10.0))
    assert sorted({round(at_s, 1) for at_s in refused_s}) == pytest.approx([0.0, 0.25, 0.75, 1.75, 3.75, 7.75], abs=0.1)
    assert told() == ["=3"]
    used = 4
    asyncio.run(world.run_until(T0 + 20.0))
    assert told() == ["=4"]
    room = 99
    asyncio.run(world.run_until(T0 + 60.0))
    assert max(world.started[name] for name in names) - min(world.started[name] for name in names) < 0.01
    room = 0
    world.feed("workflows", "uid-late", workflow("late", stage("a", estimateSeconds=9), arrival_s=T0 + 60.0))
    asyncio.run(world.run_until(T0 + 61.0))
    assert told() == ["=4"], "there was room in between"


def test_what_a_quota_keeps_from_starting_says_that_and_not_what_failed_before_and_leaves_its_executors() -> None:
    world = World(executors=2)
    asyncio.run(world.run_until(T0 + 2.0))
    create, failures = world.server.create_job, [ClusterError(500, "", "a bad moment")]

    async def refuse(job: dict[str, Any]) -> dict[str, Any]:
        if job["metadata"]["namespace"] == "default":
            quota = ClusterError(403, "Forbidden", "is forbidden: exceeded quota: few, requested: count/jobs.batch=1")
            raise failures.pop() if failures else quota
        return await create(job)

    world.server.create_job = refuse  # type: ignore[method-assign]
    world.feed("workflows", "uid-full", workflow("full", stage("a", estimateSeconds=9), arrival_s=T0 + 2.0))
    asyncio.run(world.run_until(T0 + 4.5))
    (row,) = world.server.objects["uid-full"]["status"]["stages"]
    assert row["message"].startswith("not started, tried again: Forbidden: exceeded quota: few")
    elsewhere = workflow("elsewhere", stage("a", estimateSeconds=9), arrival_s=T0 + 2.0)
    elsewhere["metadata"]["namespace"] = "another"
    world.server.put("uid-elsewhere", elsewhere)
    world.now_s = T0 + 6.0  # when it is tried again
    world.store.put("workflows", elsewhere)
    assert asyncio.run(world.reconciler.reconcile()) <= world.now_s, "others may have them"
    asyncio.run(world.reconciler.reconcile())
    assert "elsewhere" in world.started


@pytest.mark.parametrize("status", [403, 500])
def test_twice_as_many_starts_that_fail_are_told_in_twice_the_work(status: int) -> None:
    few, many = (_lines_of_a_round(stages, status) for stages in (20, 40))
    assert {name: (few[name], lines) for name, lines in many.items() if lines > 2.2 * few[name] + 20} == {}


def _lines_of_a_round(stages: int, status: int) -> Counter[str]:
    """Return how many lines the operator runs, by function, where none of its stages is started, and tells so."""
    world, lines = World(executors=2 * stages), Counter[str]()

    def count(frame: FrameType, event: str, _: Any) -> Any:
        lines[frame.f_code.co_qualname] += event == "line"
        return count

    def enter(frame: FrameType, *_: Any) -> Any:
        return count if "/fermata/operator/" in frame.f_code.co_filename else None

    for name in (f"w{number}" for number in range(stages)):
        world.server.refusals[name] = [status]
        world.feed("workflows", f"uid-{name}", workflow(name, stage("a", estimateSeconds=9)))
    before = sys.gettrace()
    sys.settrace(enter)
    try:
        asyncio.run(world.reconciler.reconcile())
    finally:
        sys.settrace(before)
    assert not any(world.server.refusals.values())
    assert all(_waits(world, name) == [("Waiting", "StartRetrying")] for name in world.server.refusals)
    return lines


def test_what_was_put_off_for_a_moment_is_not_put_off_for_as_long_as_the_clock_is_set_back() -> None:
    world = World(executors=4)
    world.server.refusals["many"] = [403]
    world.feed("workflows", "uid-many", workflow("many", stage("a", tasks=9), arrival_s=T0 - 7200.0))
    asyncio.run(world.reconciler.reconcile())
    assert "many" not in world.started
    world.now_s -= 3600.0
    asyncio.run(world.run_until(world.now_s + 5.0))
    assert world.started["many"] == pytest.approx(1.0 - 3600.0, abs=0.5)
    world.now_s -= 1800.0
    job = next(job for job in world.server.jobs if job["metadata"]["labels"]["fermata.dev/workflow"] == "many")
    uid = job["metadata"]["uid"]
    world.feed("jobs", uid, {**world.server.objects[uid], "status": {"active": 3, "succeeded": 4}})
    asyncio.run(world.run_until(world.now_s + 5.0))
    assert world.server.objects["uid-many"]["status"]["progress"] == "4/9"


def test_the_status_of_a_pool_is_not_put_off_for_as_long_as_the_clock_is_set_back() -> None:
    world = World()
    asyncio.run(world.run_until(T0 + 9.0))
    assert world.server.objects["p"]["status"]["workflows"] == 2
    world.now_s -= 3600.0
    world.feed("workflows", "uid-next", workflow("next", stage("a", estimateSeconds=9), arrival_s=T0 - 7200.0))
    asyncio.run(world.run_until(world.now_s + 5.0))
    assert world.server.objects["p"]["status"]["workflows"] == 3


def test_a_workflow_that_is_deleted_takes_no_others_retries_with_it() -> None:
    world = World()
    world.server.refusals = {name: [403] * 30 for name in ("short", "other")}
    world.feed("workflows", "uid-other", workflow("other", stage("a", estimateSeconds=9)))
    asyncio.run(world.run_until(T0 + 20.0))
    left = len(world.server.refusals["short"])
    del world.server.objects["uid-other"]
    world.store.remove("workflows", "uid-other")
    asyncio.run(world.run_until(T0 + 21.0))
    assert len(world.server.refusals["short"]) == left, "it is not its time yet"
    assert len(world.server.refusals["other"]) > 20
    asyncio.run(world.run_until(T0 + 60.0))
    assert len(world.server.refusals["short"]) < left


def test_of_a_stage_that_is_being_widened_what_it_does_not_have_yet_is_being_started() -> None:
    world = World()
    raw = workflow("short", stage("a", tasks=9, estimateSeconds=9))
    raw["metadata"]["generation"] = 2
    world.feed("workflows", "uid-short", raw)
    asyncio.run(world.reconciler.reconcile())

    async def lose(*_: Any) -> dict[str, Any]:
        raise ClusterError(0, "ServerDisconnectedError", "")

    world.server.patch_job, world.server.unread = lose, 99  # type: ignore[method-assign]
    edit(world, "p", executors=5)
    asyncio.run(world.reconciler.reconcile())
    world.feed("workflows", "uid-next", workflow("next", stage("a", estimateSeconds=1), arrival_s=T0 + 1.0))
    asyncio.run(world.run_until(T0 + 1.5))
    (row,) = world.server.objects["uid-next"]["status"]["stages"]
    assert row["message"].startswith("needs 1 executor, 0 of 5 free, 3 for what is being started; ")


@pytest.mark.parametrize("made", [True, False])
def test_the_executors_of_a_start_without_an_answer_are_kept_until_it_is_known_what_became_of_it(made: bool) -> None:
    world = World(executors=1)
    create = world.server.create_job

    async def lose(job: dict[str, Any]) -> dict[str, Any]:
        world.server.create_job = create  # type: ignore[method-assign]
        if made:
            await create(job)
        raise ClusterError(0, "ServerDisconnectedError", "")

    world.server.create_job, world.server.unread = lose, 4  # type: ignore[method-assign]
    asyncio.run(world.reconciler.reconcile())
    world.feed("workflows", "uid-next", workflow("next", stage("a", estimateSeconds=1), arrival_s=T0 + 1.0))
    asyncio.run(world.run_until(T0 + 1.5))
    assert world.server.unread, "the API server does not say yet"
    assert "next" not in world.started
    (row,) = world.server.objects["uid-next"]["status"]["stages"]
    assert row["message"].startswith("needs 1 executor, 0 of 1 free, 1 for what is being started; ")
    asyncio.run(world.run_until(T0 + 60.0))
    assert world.started.keys() == ({"short"} if made else {"next"})
    assert world.server.objects["p"]["status"]["busy"] == 1


def _loses_the_first_answer(world: World, *, unread: int) -> list[str]:
    """Let a workflow named two start alone, without an answer the first time; return what will list its starts.

    Args:
        world: to be changed.
        unread: how often the API server does not say afterwards what there is.
    """
    world.server.refusals["short"] = [403] * 99
    created: list[str] = []
    create = world.server.create_job

    async def lose_first(job: dict[str, Any]) -> dict[str, Any]:
        made, labels = await create(job), job["metadata"]["labels"]
        if labels["fermata.dev/workflow"] != "two":
            return made
        created.append(labels["fermata.dev/stage"])
        if len(created) == 1:
            raise ClusterError(0, "ServerDisconnectedError", "")
        return made

    world.server.create_job, world.server.unread = lose_first, unread  # type: ignore[method-assign]
    return created


@pytest.mark.parametrize("shared", [True, False])
def test_what_an_unanswered_start_may_have_begun_counts_towards_its_workflows_own_parallelism(shared: bool) -> None:
    world = World(executors=4)
    created = _loses_the_first_answer(world, unread=4)
    two = [stage("a", estimateSeconds=1), stage("b", estimateSeconds=1)]
    world.feed("workflows", "uid-two", workflow("two", *two, **({"parallelism": 1} if shared else {})))
    asyncio.run(world.run_until(world.now_s + 0.2))
    assert world.server.unread, "the API server does not say yet"
    assert len(created) == (1 if shared else 2)
    asyncio.run(world.run_until(world.now_s + 60.0))
    assert len(created) == (1 if shared else 2), "the first runs, as it turned out"


@pytest.mark.parametrize("shared", [True, False])
def test_beside_a_start_without_an_answer_a_workflow_begins_more_only_if_it_has_no_parallelism_of_its_own(
    shared: bool,
) -> None:
    world = World(executors=4)
    created = _loses_the_first_answer(world, unread=99)
    raw = workflow("two", stage("a", estimateSeconds=1), **({"parallelism": 1} if shared else {}))
    world.feed("workflows", "uid-two", raw)
    asyncio.run(world.run_until(world.now_s + 0.2))
    edit(world, "uid-two", stages=[stage(name, estimateSeconds=1) for name in "ab"])
    asyncio.run(world.run_until(world.now_s + 0.2))
    assert created == (["a"] if shared else ["a", "b"])


@pytest.mark.parametrize("what", ["start", "hold"])
def test_what_becomes_due_while_statuses_are_written_is_done_at_once(what: str) -> None:
    world = World(maxHoldSeconds=4)
    world.server.refusals["short"] = [403] if what == "start" else []
    asyncio.run(world.reconciler.reconcile())
    due_s = world.now_s + (0.25 if what == "start" else 4.0)
    written = world.server.patch_pool_status

    async def slowly(*arguments: Any) -> dict[str, Any]:
        world.now_s = due_s + 0.05
        return await written(*arguments)

    world.server.patch_pool_status = slowly  # type: ignore[method-assign]
    world.now_s = due_s - 0.05
    world.feed("workflows", "uid-w", workflow("w", stage("a", estimateSeconds=900), arrival_s=world.now_s))
    world.reconciler._teller._pool_written_s = -1.0
    assert asyncio.run(world.reconciler.reconcile()) <= world.now_s == due_s + 0.05
    asyncio.run(world.reconciler.reconcile())
    assert ("short" if what == "start" else "long") in world.started


def test_what_the_api_server_does_not_take_waits_in_the_pools_status_too() -> None:
    world = World()
    world.server.refusals["short"] = [403] * 30  # a quota: it stays
    shown = []
    for end_s in (T0 + 5.0, T0 + 40.0, T0 + 60.0):
        asyncio.run(world.run_until(end_s))
        sample = world.metrics.registry.get_sample_value
        metric = sample("fermata_pool_stages", {"pool": "pool", "state": "waiting"})
        shown.append((world.server.objects["p"]["status"]["waiting"], metric))
    assert world.started.keys() == {"long"}
    assert shown == [(1, 1)] * 3


def test_why_a_stage_is_not_started_is_what_the_api_server_said_last() -> None:
    world = World()
    world.server.refusals["short"] = [403] * 30 + [500]  # from the end: a bad moment first, and then a quota
    asyncio.run(world.run_until(T0 + 60.0))
    (row,) = world.server.objects["uid-short"]["status"]["stages"]
    assert row["message"] == "not started, tried again: 403: a bad moment"
    assert _outcome(world, "short") == ("Unknown", "StartRetrying", f"stage 'a': {row['message']}")
    waits = [event["message"] for event in world.events() if event["reason"] == "StageWaiting"]
    assert waits == [f"stage a not started, tried again: {status}: a bad moment" for status in (500, 403)]


def test_an_operator_that_begins_does_not_tell_again_why_stages_wait() -> None:
    world = _begin()
    world.server.refusals["refused"] = [403] * 30
    wanted = stage("a", estimateSeconds=9)
    world.feed("workflows", "uid-refused", workflow("refused", wanted, arrival_s=T0 + 2.0))
    waits = {("long", "StageHeld"), ("refused", "StageWaiting")}
    for before in (set(), waits):
        asyncio.run(world.run_until(world.now_s + 10.0))
        told = {(event["involvedObject"]["name"], event["reason"]) for event in world.events()}
        assert waits & told == waits - before
        world.start_operator()


def test_a_stage_that_could_not_be_started_and_waits_for_executors_since_then_says_so() -> None:
    world = World(executors=1)
    world.server.refusals["short"] = [403]
    asyncio.run(world.reconciler.reconcile())
    world.feed("workflows", "uid-next", workflow("next", stage("a", estimateSeconds=1), arrival_s=T0 + 1.0))
    asyncio.run(world.run_until(T0 + 60.0))
    assert world.started.keys() == {"next"}
    (row,) = world.server.objects["uid-short"]["status"]["stages"]
    assert (row["state"], row["reason"]) == ("Waiting", "ExecutorsBusy")


def test_a_long_history_keeps_nobody_waiting_and_what_happens_meanwhile_counts() -> None:
    world = World()
    for number in range(1000):
        world.feed("workflows", f"uid-w{number}", workflow(f"w{number}", stage("a"), status=DONE))
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            if turns == 2:  # the history is being read
                assert not world.started
                world.feed("workflows", "uid-next", workflow("next", stage("a", estimateSeconds=1)))
            await asyncio.sleep(0)

    async def look() -> None:
        beside = asyncio.create_task(others())
        await world.reconciler._observer.observe(world.now_s)
        beside.cancel()

    asyncio.run(look())
    assert turns >= 5
    assert "uid-next" in world.reconciler._observer.views


def _end_short(world: World) -> None:
    """Let the Job of the short workflow succeed now."""
    (short,) = (job for job in world.server.jobs if job["metadata"]["labels"]["fermata.dev/workflow"] == "short")
    done = {"type": "Complete", "status": "True", "lastTransitionTime": render(world.now_s)}
    world.feed("jobs", short["metadata"]["uid"], {**short, "status": {"succeeded": 1, "conditions": [done]}})


@pytest.mark.parametrize("whose", ["workflow", "pool"])
def test_a_status_that_takes_long_to_be_written_keeps_nobody_waiting_and_is_told_as_it_is_then(
    monkeypatch: pytest.MonkeyPatch, whose: str
) -> None:
    monkeypatch.setattr("fermata.operator.inflight.PATIENCE_S", 0.02)
    world = World(executors=4)
    asyncio.run(world.run_until(T0 + 10.0))
    write, late, sent = getattr(world.server, f"patch_{whose}_status"), asyncio.Event(), []

    async def write_late(*arguments: Any) -> Any:
        if {"short", "pool"}.isdisjoint(arguments[:2]):
            return await write(*arguments)
        sent.append(world.now_s)
        await late.wait()
        return await write(*arguments)

    async def go_on() -> None:
        async with asyncio.timeout(20.0):
            await world.reconciler.reconcile()
            world.feed("workflows", "uid-next", workflow("next", stage("a", estimateSeconds=9), arrival_s=T0 + 10.0))
            await world.run_until(T0 + 20.0)
            assert "next" in world.started
            assert _waits(world, "next") == [("Running", "")]
            assert len(sent) == 1, "the next one waits for its answer"
            late.set()
            await asyncio.sleep(0.01)
            await world.run_until(T0 + 30.0)

    setattr(world.server, f"patch_{whose}_status", write_late)
    _end_short(world)
    asyncio.run(go_on())
    assert world.server.objects["uid-short"]["status"]["completionTime"] == render(T0 + 10.0)
    assert world.server.objects["p"]["status"]["workflows"] == 2
    told = [event["reason"] for event in world.events() if event["involvedObject"]["name"] == "short"]
    assert told.count("AllStagesSucceeded") == 1


def test_a_stage_that_waited_and_is_started_late_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fermata.operator.inflight.PATIENCE_S", 0.02)
    world = World(executors=1)
    asyncio.run(world.run_until(T0 + 2.0))
    world.feed("workflows", "uid-x", workflow("x", stage("a", estimateSeconds=9), arrival_s=T0 + 2.0))
    asyncio.run(world.run_until(T0 + 5.0))
    assert _waits(world, "x") == [("Waiting", "ExecutorsBusy")]
    create, late = world.server.create_job, asyncio.Event()

    async def create_late(job: dict[str, Any]) -> dict[str, Any]:
        await late.wait()
        return await create(job)

    async def go_on() -> None:
        await world.run_until(T0 + 10.0)
        assert _waits(world, "x") == [("Waiting", "Starting")]
        late.set()
        await asyncio.sleep(0.01)
        await world.run_until(T0 + 15.0)

    world.server.create_job = create_late  # type: ignore[method-assign]
    _end_short(world)
    asyncio.run(go_on())
    assert _waits(world, "x") == [("Running", "")]


@pytest.mark.parametrize("written", [True, False])
def test_an_end_is_told_once_whose_status_was_written_without_an_answer(written: bool) -> None:
    world = World(executors=2)
    asyncio.run(world.run_until(T0 + 10.0))
    write = world.server.patch_workflow_status

    async def lose(*arguments: Any) -> dict[str, Any]:
        world.server.patch_workflow_status = write  # type: ignore[method-assign]
        if written:
            await write(*arguments)
        raise ClusterError(0, "ServerDisconnectedError", "")

    world.server.patch_workflow_status = lose  # type: ignore[method-assign]
    _end_short(world)
    for _ in range(3):
        asyncio.run(world.reconciler.reconcile())
        world.store.put("workflows", world.server.objects["uid-short"])  # as the watch tells it
        world.now_s += 1.0
    told = [event["reason"] for event in world.events() if event["involvedObject"]["name"] == "short"]
    assert told.count("AllStagesSucceeded") == 1
    labels = {"pool": "pool", "result": "succeeded"}
    assert world.metrics.registry.get_sample_value("fermata_workflows_finished_total", labels) == 1.0


def test_the_last_workflow_of_a_pool_does_not_count_any_more_once_it_has_ended() -> None:
    world = World(executors=2)
    del world.server.objects["uid-long"]
    world.store.remove("workflows", "uid-long")
    asyncio.run(world.run_until(T0 + 10.0))
    assert world.server.objects["p"]["status"]["workflows"] == 1
    _end_short(world)
    again_s = asyncio.run(world.reconciler.reconcile())
    assert world.server.objects["uid-short"]["status"]["completionTime"]
    assert world.server.objects["p"]["status"]["workflows"] == 0, f"and it comes back at {again_s}"


@pytest.mark.parametrize("executors", [2, 3])
def test_a_pool_that_changes_while_it_is_reconciled_is_told_as_it_is_then(executors: int) -> None:
    world, create = World(), Server.create_job

    async def changes(server: Server, job: dict[str, Any]) -> dict[str, Any]:
        meta = {**world.pool["metadata"], "generation": executors - 1, "annotations": {"by": "somebody"}}
        told = server.objects["p"]["status"]
        spec = world.pool["spec"] | {"executors": executors}
        world.feed("executorpools", "p", {"metadata": meta, "spec": spec, "status": told})
        return await create(server, job)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Server, "create_job", changes)
        world.now_s += 10.0  # since the status was last written
        asyncio.run(world.reconciler.reconcile())  # a status that was made of an earlier version is refused
    assert world.started
    asyncio.run(world.run_until(T0 + 15.0))
    status = world.server.objects["p"]["status"]
    assert (status["observedGeneration"], status["executors"]) == (executors - 1, executors)


def test_one_task_of_one_stage_is_told_in_the_singular() -> None:
    world = World(executors=2)
    asyncio.run(world.run_until(T0 + 10.0))
    _end_short(world)
    asyncio.run(world.reconciler.reconcile())
    told = {event["reason"]: event["message"] for event in world.events() if event["involvedObject"]["name"] == "short"}
    assert told["StageStarted"] == "stage a started by holder: 1 of 1 task at once, after 0.0 s of wait and 0.0 s held"
    assert told["StageSucceeded"] == "stage a succeeded: 1 task in 9.0 s"
    assert told["AllStagesSucceeded"] == "1 stage succeeded; JCT 9.0 s = wait 0.0 + held 0.0 + run 9.0"


def test_what_was_expected_of_a_stage_is_not_what_it_took() -> None:
    world = World(executors=9)
    stages = [stage("a", estimateSeconds=None), stage("b", "a", estimateSeconds=None)]
    for name, expected_s, source in (
        ("etl-1", [60.0, 9.0], "a guess, as nothing has finished in the pool yet"),
        ("etl-2", [9.0, 9.0], "median of 1 earlier run"),
    ):
        world.feed("workflows", f"uid-{name}", workflow(name, *stages, arrival_s=world.now_s))
        for number in (1, 2):
            asyncio.run(world.run_until(world.now_s + 9.0))
            mine = [job for job in world.server.jobs if job["metadata"]["labels"]["fermata.dev/workflow"] == name]
            assert len(mine) == number
            done = {"type": "Complete", "status": "True", "lastTransitionTime": render(world.now_s)}
            raw = world.server.objects[mine[-1]["metadata"]["uid"]]
            world.feed("jobs", raw["metadata"]["uid"], {**raw, "status": {"succeeded": 1, "conditions": [done]}})
        asyncio.run(world.run_until(world.now_s + 3.0))
        rows = world.server.objects[f"uid-{name}"]["status"]["stages"]
        assert [row["estimateSeconds"] for row in rows] == expected_s
        assert rows[0]["estimateSource"] == source
        past = past_job(world.store.workflows[f"uid-{name}"])
        assert past is not None
        assert [(part.duration_s, part.estimate_s) for part in past.stages] == [(9.0, each_s) for each_s in expected_s]
    before = world.reconciler._observer.estimates.trust
    world.start_operator()
    asyncio.run(world.run_until(world.now_s + 1.0))
    assert world.reconciler._observer.estimates.trust == pytest.approx(before)


@pytest.mark.parametrize("restarted", [False, True])
def test_what_came_before_the_first_stage_ended_is_expected_to_take_as_long_as_what_comes_later(
    restarted: bool,
) -> None:
    world = World(executors=1)
    unknown = stage("b", estimateSeconds=None)
    world.feed("workflows", "uid-old", workflow("old", unknown, arrival_s=T0 - 5.0, suspend=True))
    asyncio.run(world.run_until(T0 + 10.0))
    assert world.reconciler._observer.views["uid-old"].stages[0].estimate.seconds == 60.0
    _end_short(world)
    asyncio.run(world.run_until(T0 + 15.0))
    if restarted:
        world.start_operator()
    world.feed("workflows", "uid-new", workflow("new", unknown, arrival_s=world.now_s, suspend=True))
    asyncio.run(world.reconciler.reconcile())
    views = world.reconciler._observer.views
    assert [views[f"uid-{name}"].stages[0].estimate.seconds for name in ("old", "new")] == [9.0, 9.0]


def test_how_far_off_a_stage_was_counts_as_often_as_it_has_tasks_also_after_a_restart() -> None:
    world = World(executors=9)
    _run_one(world, "wide", 90.0, tasks=5)
    for _ in range(2):
        trust = world.reconciler._observer.estimates.trust
        assert trust[1] == pytest.approx(5.0 / 15.0), "a pool begins as if ten tasks had been as expected"
        world.start_operator()
        asyncio.run(world.run_until(world.now_s + 1.0))


def _run_one(world: World, name: str, took_s: float, tasks: int = 1) -> dict[str, Any]:
    """Let a workflow of one stage, of which its user says 9 s, come and end; return its stage's status."""
    stages = [stage("a", estimateSeconds=9, tasks=tasks)]
    world.feed("workflows", f"uid-{name}", workflow(name, *stages, arrival_s=world.now_s))
    asyncio.run(world.run_until(world.now_s + took_s))
    (job,) = (job for job in world.server.jobs if job["metadata"]["labels"]["fermata.dev/workflow"] == name)
    done = {"type": "Complete", "status": "True", "lastTransitionTime": render(world.now_s)}
    raw = world.server.objects[job["metadata"]["uid"]]
    world.feed("jobs", raw["metadata"]["uid"], {**raw, "status": {"succeeded": tasks, "conditions": [done]}})
    asyncio.run(world.run_until(world.now_s + 1.0))
    (row,) = world.server.objects[f"uid-{name}"]["status"]["stages"]
    return dict(row)


@pytest.mark.parametrize(
    ("mode", "wants", "corrected"),
    [("Enforce", True, True), ("Enforce", False, False), ("Shadow", True, False)],
)
def test_users_estimates_are_corrected_if_the_policy_that_acts_wants_it(
    monkeypatch: pytest.MonkeyPatch, mode: str, wants: bool, corrected: bool
) -> None:
    monkeypatch.setattr(Holder, "corrects_estimates", wants, raising=False)
    world = World(executors=9, mode=mode)
    world.feed("workflows", "uid-early", workflow("early", stage("b", estimateSeconds=9), suspend=True))
    for number in range(45):
        row = _run_one(world, f"w{number}-x", 27.0)
    expected_s, source = (27.0, "estimateSeconds 9, corrected by what such stages took") if corrected else (
        9.0, "estimateSeconds",
    )  # fmt: skip
    assert row["estimateSeconds"] == pytest.approx(expected_s, rel=0.05)
    assert row["estimateSource"] == source
    sources = {
        sample.labels["source"]: sample.value
        for family in world.metrics.registry.collect()
        for sample in family.samples
        if sample.name == "fermata_estimate_ratio_count"
    }
    assert sources == ({"given": 40.0, "corrected": 5.0} if corrected else {"given": 45.0})
    early = world.reconciler._observer.views["uid-early"].stages[0]
    assert early.estimate.seconds == pytest.approx(expected_s, rel=0.05), "it waits with those that came later"
    # Another policy is loaded at a moment when nothing else happens.
    monkeypatch.setattr(Holder, "corrects_estimates", not wants)
    asyncio.run(world.reconciler.reconcile())
    early = world.reconciler._observer.views["uid-early"].stages[0]
    assert (early.estimate.source == "estimateSeconds") == (mode == "Shadow" or wants)
    monkeypatch.setattr(Holder, "corrects_estimates", wants)
    # A restarted operator has learned the same from the statuses.
    world.start_operator()
    row = _run_one(world, "again", 27.0)
    assert row["estimateSeconds"] == pytest.approx(expected_s, rel=0.05)


@pytest.mark.parametrize(
    "status",
    [
        {"arrivalTime": "0000-01-01T00:00:00Z"},
        {"heldSince": "9999-12-31T23:59:59-12:00"},
        {"stages": [{"name": "a", "state": "Held", "heldSince": "0000-01-01T00:00:00Z"}]},
        {"stages": [{"name": "a", "state": "Succeeded", "runSeconds": 1.0, "completionTime": "0000-01-01T00:00:00Z"}]}
        | DONE,
    ],
)
def test_a_time_in_a_status_that_is_none_stops_no_pool(status: dict[str, Any]) -> None:
    world = World()
    world.feed("workflows", "uid-odd", workflow("odd", stage("a"), status=status))
    asyncio.run(world.run_until(T0 + 5.0))
    assert "short" in world.started


def test_every_reason_of_a_condition_is_documented() -> None:
    world = World()
    asyncio.run(world.run_until(T0 + 5.0))
    (short,) = world.server.jobs
    done = {"type": "Complete", "status": "True", "lastTransitionTime": render(T0 + 5.0)}
    world.feed("jobs", short["metadata"]["uid"], {**short, "status": {"succeeded": 1, "conditions": [done]}})
    asyncio.run(world.run_until(T0 + 9.0))
    rows = [row for uid in ("p", "uid-short", "uid-long") for row in world.server.objects[uid]["status"]["conditions"]]
    assert {"Ready", "Succeeded"} <= {row["type"] for row in rows}
    assert {row["reason"] for row in rows} <= MEANING.keys()
