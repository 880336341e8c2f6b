"""When a status is written, again or not at all, and which Events, log lines and gauges say the same."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.operator.objects import T0, stage, workflow
from tests.unit.operator.test_edits import complete, condition, edit, run_on
from tests.unit.operator.world import World

from fermata.operator.connection import ClusterError
from fermata.operator.inflight import AT_ONCE
from fermata.operator.times import render
from fermata.policy.action import Action
from fermata.policy.state import ClusterState

SHORT = "uid-short"


def begun(**pool: Any) -> World:
    """A pool in which the stage of `short` runs and that of `long` is held, and everything has been told."""
    world = World(**pool)
    run_on(world, 5.0)
    assert world.started.keys() == {"short"}
    world.events()
    return world


def written_s(world: World, uid: str) -> list[float]:
    """When the status of a workflow is written from now on, seconds after now, as it will be known then."""
    times_s, write, begun_s = list[float](), world.server.patch_workflow_status, world.now_s

    async def note(namespace: str, name: str, *arguments: Any) -> dict[str, Any]:
        if name == uid.removeprefix("uid-"):
            times_s.append(round(world.now_s - begun_s, 2))
        return await write(namespace, name, *arguments)

    world.server.patch_workflow_status = note  # type: ignore[method-assign]
    return times_s


def events(world: World, name: str, field: str) -> list[str]:
    """A field of the Events about an object; those about others are gone, too."""
    return [event[field] for event in world.events() if event["involvedObject"]["name"] == name]


def _change(world: World) -> None:
    edit(world, SHORT, priority=round(100 * (world.now_s - T0)))


def _reject(world: World) -> None:
    edit(world, SHORT, stages=[stage("a", "a", estimateSeconds=9)])


def _break(world: World) -> None:
    edit(world, SHORT, priority="that of another version")


@pytest.mark.parametrize(
    ("change", "then_s"),
    [(_change, 2.0), (_reject, 0.25), (_break, 0.25), (lambda world: complete(world, "short"), 0.25)],
)
def test_a_status_is_not_written_all_the_time_but_an_end_and_a_rejection_are_told_at_once(
    change: Callable[[World], None], then_s: float
) -> None:
    world = begun()
    times_s = written_s(world, SHORT)
    _change(world)
    run_on(world, 0.25)
    change(world)
    run_on(world, 3.0)
    assert times_s == [0.0, then_s]


def test_that_a_workflow_is_accepted_again_is_told_at_once() -> None:
    world = begun()
    _reject(world)
    run_on(world, 0.25)
    edit(world, SHORT, stages=[stage("a", estimateSeconds=9)])
    run_on(world, 0.01)
    assert condition(world, SHORT, "Accepted") == ("True", "Valid")


def test_that_an_edit_of_a_finished_workflow_was_seen_is_told_at_once() -> None:
    world = begun()
    complete(world, "short")
    run_on(world, 0.25)
    for generation in (2, 3):
        edit(world, SHORT, priority=generation)
        run_on(world, 0.01)
        rows = world.server.objects[SHORT]["status"]["conditions"]
        assert {row["observedGeneration"] for row in rows} == {generation}


def test_a_status_that_was_taken_after_all_is_tried_again_soon_when_it_is_refused_the_next_time() -> None:
    world = begun()
    for _ in range(2):
        world.server.denied_s = []
        _change(world)
        run_on(world, 0.5)
        assert len(world.server.denied_s) == 2, "after a quarter of a second"
        world.server.denied_s = None
        run_on(world, 5.0)


def test_a_status_of_a_pool_that_was_taken_after_all_is_tried_again_soon_when_it_is_refused_the_next_time() -> None:
    world = begun()
    for executors, seconds, times in ((3, 30.0, 7), (4, 2.5, 2)):
        world.server.denied_pool_s = []
        edit(world, "p", executors=executors)
        run_on(world, seconds)
        assert len(world.server.denied_pool_s) == times, "as soon as a status may be written again"
        world.server.denied_pool_s = None
        run_on(world, 32.0)


def test_a_pool_comes_back_for_a_status_that_was_refused_though_it_is_called_in_between() -> None:
    world = begun()
    world.server.denied_pool_s = []
    edit(world, "p", executors=3)
    asyncio.run(world.reconciler.reconcile())
    again_s = world.now_s + 0.25
    world.now_s += 0.1
    assert asyncio.run(world.reconciler.reconcile()) == pytest.approx(again_s, abs=0.001)


@pytest.mark.parametrize(("status", "level"), [(409, logging.INFO), (403, logging.WARNING), (503, logging.WARNING)])
@pytest.mark.parametrize("whose", ["pool", "workflow"])
def test_a_status_that_was_changed_meanwhile_is_nothing_to_worry_about(
    whose: str, status: int, level: int, caplog: pytest.LogCaptureFixture
) -> None:
    world = begun()
    caplog.set_level(logging.INFO)
    if whose == "pool":
        world.server.denied_pool_s, world.server.denied_pool_status = [], status
        edit(world, "p", executors=3)
    else:
        world.server.denied_s, world.server.denied_status = [], status
        _change(world)
    asyncio.run(world.reconciler.reconcile())
    title = "pool pool" if whose == "pool" else "default/short"
    assert [(record.levelno, record.getMessage()) for record in caplog.records] == [
        (level, f"{title}: status not written: {status}: you may not")
    ]


@pytest.mark.parametrize(("status", "told"), [(409, 40), (503, 16)])
def test_only_an_api_server_in_trouble_is_asked_for_no_more_statuses_in_a_round(status: int, told: int) -> None:
    world = begun()
    world.server.denied_s, world.server.denied_status = [], status
    for number in range(40):
        world.feed("workflows", f"uid-{number}", workflow(str(number), stage("a", estimateSeconds=900)))
    asyncio.run(world.reconciler.reconcile())
    assert len(world.server.denied_s) == told
    for _ in range(5):  # something happens
        again_s = asyncio.run(world.reconciler.reconcile())
    if status == 503:
        assert (len(world.server.denied_s), again_s) == (told, world.now_s + 1.0), "nor in the next rounds"
        run_on(world, 1.0)
        assert len(world.server.denied_s) == 2 * told


def test_a_policy_that_denies_statuses_as_too_large_takes_no_stages_from_them() -> None:
    world, said = begun(), "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: not on Sundays"
    write = world.server.patch_workflow_status

    async def deny(*_: Any) -> dict[str, Any]:
        raise ClusterError(413, "RequestEntityTooLarge", f'workflows.fermata.dev "short" is forbidden: {said}')

    world.server.patch_workflow_status = deny  # type: ignore[method-assign]
    complete(world, "short")
    run_on(world, 3.0)
    world.server.patch_workflow_status = write  # type: ignore[method-assign]
    run_on(world, 30.0)
    (row,) = world.server.objects[SHORT]["status"]["stages"]
    assert row["state"] == "Succeeded"
    assert "StagesNotTold" not in {event["reason"] for event in world.events()}


def test_of_a_workflow_that_is_deleted_while_it_is_told_of_nothing_is_said_or_kept(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for error in (ClusterError(404, "NotFound", "it is gone"), ClusterError(403, "Forbidden", "you may not"), None):
        world = begun()
        write = world.server.patch_workflow_status

        async def go_first(*arguments: Any, world: World = world, write: Any = write, error: Any = error) -> Any:
            made = await write(*arguments)
            world.store.remove("workflows", SHORT)
            await world.reconciler._observer.observe(world.now_s)
            if error is not None:
                raise error
            return made

        world.server.patch_workflow_status = go_first  # type: ignore[method-assign]
        _change(world)
        asyncio.run(world.reconciler.reconcile())
        kept = {name for name, value in vars(world.reconciler._teller).items() if SHORT in repr(value)}
        assert kept == set()
        assert [record.message for record in caplog.records if "it is gone" in record.message] == []


def test_each_widening_of_a_stage_is_told() -> None:
    world = begun()
    world.feed("workflows", "uid-wide", workflow("wide", stage("a", tasks=9, estimateSeconds=9), arrival_s=T0 + 1.0))
    run_on(world, 1.0)
    for executors in (3, 4):
        edit(world, "p", executors=executors)
        run_on(world, 1.0)
    told = [event["message"] for event in world.events() if event["reason"] == "StageStarted"]
    assert told == [
        "stage a started by holder: 1 of 9 tasks at once, after 4.5 s of wait and 0.0 s held",
        "stage a may now run 2 tasks at once",
        "stage a may now run 3 tasks at once",
    ]


def test_each_pause_of_a_pool_is_told_and_the_gauge_says_whether_there_is_one() -> None:
    world = begun()

    def told(annotations: dict[str, str]) -> tuple[list[str], float | None]:
        raw = world.server.objects["p"]
        world.feed("executorpools", "p", {**raw, "metadata": {**raw["metadata"], "annotations": annotations}})
        run_on(world, 5.0)
        paused = world.metrics.registry.get_sample_value("fermata_pool_holding_paused", {"pool": "pool"})
        return events(world, "pool", "reason"), paused

    for _ in range(2):
        assert told({"fermata.dev/release": "*"}) == (["HoldingPaused"], 1.0)
        assert told({}) == (["HoldingResumed"], 0.0)


def test_that_a_start_fails_is_a_warning_and_that_executors_are_busy_is_none() -> None:
    world = begun()
    world.server.refusals["refused"] = [403] * 99
    wanted = stage("a", estimateSeconds=9)
    for name, row in (("refused", wanted), ("large", {**wanted, "slots": 2})):
        world.feed("workflows", f"uid-{name}", workflow(name, row, arrival_s=T0 + 5.0))
    run_on(world, 5.0)
    told = {(event["involvedObject"]["name"], event["type"]) for event in world.events()}
    assert {("refused", "Warning"), ("large", "Normal")} <= told
    assert not {("refused", "Normal"), ("large", "Warning")} & told


def test_why_a_workflow_is_not_accepted_is_told_again_when_it_is_another_reason_or_message(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = begun()
    told = []
    for stages in (
        [stage("a", "a")], [stage("a", "a", slots=9)], [stage("a", "b"), stage("b", "a")], [stage("a", slots=9)],
    ):  # fmt: skip
        edit(world, "uid-long", stages=stages)
        run_on(world, 5.0)
        told += events(world, "long", "reason")
    assert told == ["Cycle", "Cycle", "TooManySlots"]
    assert [record.message.split(": ")[:3] for record in caplog.records] == [
        ["default/long", "not accepted", reason] for reason in told
    ]


def test_what_waited_before_an_operator_began_is_told_when_it_waits_for_something_else() -> None:
    world = begun()
    world.feed("workflows", "uid-large", workflow("large", stage("a", slots=2, estimateSeconds=9)))
    run_on(world, 5.0)
    assert events(world, "large", "reason") == ["StageWaiting"]
    world.start_operator()
    world.server.refusals["large"] = [403] * 99
    edit(world, "p", executors=4)
    run_on(world, 3.0)
    assert events(world, "large", "message") == ["stage a not started, tried again: 403: a bad moment"]


def test_a_workflow_that_has_ended_is_told_of_no_more_when_the_operator_begins() -> None:
    world = begun()
    complete(world, "short")
    run_on(world, 5.0)
    assert events(world, "short", "reason") == ["StageSucceeded", "AllStagesSucceeded"]
    world.start_operator()
    run_on(world, 5.0)
    assert events(world, "short", "reason") == []


def test_an_operator_that_ends_waits_for_no_status(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fermata.operator.inflight.PATIENCE_S", 0.0)
    world = begun()

    async def never(*_: Any) -> dict[str, Any]:
        await asyncio.sleep(3600.0)
        return {}

    async def end() -> None:
        await world.reconciler.reconcile()
        assert len(asyncio.all_tasks()) == 3, "this one, and a status of the pool and of a workflow"
        world.reconciler.close()
        await asyncio.sleep(0)
        assert len(asyncio.all_tasks()) == 1

    world.server.patch_workflow_status = world.server.patch_pool_status = never  # type: ignore[method-assign]
    _change(world)
    edit(world, "p", executors=3)
    asyncio.run(end())


def _crowd(world: World) -> list[str]:
    """Submit forty workflows, and return a list of whose statuses are written from now on, as it will be."""
    for number in range(40):
        world.feed("workflows", f"uid-{number}", workflow(str(number), stage("a", estimateSeconds=900)))
    told, write = list[str](), world.server.patch_workflow_status

    async def note(namespace: str, name: str, *arguments: Any) -> dict[str, Any]:
        told.append(name)
        return await write(namespace, name, *arguments)

    world.server.patch_workflow_status = note  # type: ignore[method-assign]
    return told


def test_of_many_workflows_those_that_have_ended_are_told_of_first() -> None:
    world = begun()
    told = _crowd(world)
    complete(world, "short")
    asyncio.run(world.reconciler.reconcile())
    assert told[0] == "short"
    assert len(told) > 40


def test_where_something_happens_while_statuses_are_written_deciding_comes_before_the_rest_of_them() -> None:
    world = begun()
    told = _crowd(world)
    world.busy = True
    asyncio.run(world.reconciler.reconcile())
    assert len(told) == AT_ONCE
    asyncio.run(world.reconciler.reconcile())
    assert len(set(told)) == 2 * AT_ONCE, "and what is told then is what was not"


def test_a_pool_counts_the_workflows_that_it_accepts_and_says_when_its_fallback_has_decided() -> None:
    world = begun()
    _reject(world)

    class Broken:
        name = "broken"

        def choose(self, _state: ClusterState) -> Action:
            raise RuntimeError("a bug")

    world.server.denied_pool_s = []
    world.reconciler._seat._policy = Broken()
    world.feed("workflows", "uid-next", workflow("next", stage("a", estimateSeconds=9), arrival_s=T0 + 6.0))
    run_on(world, 3.0)
    assert "PolicyFallback" in events(world, "pool", "reason"), "its status may say so later, or never"
    world.server.denied_pool_s = None
    run_on(world, 31.0)
    assert world.server.objects["p"]["status"]["workflows"] == 2


def test_what_became_of_stages_of_a_workflow_that_goes_on_is_not_told_again_when_the_operator_begins() -> None:
    world = begun(executors=9)
    stages = [stage(name, estimateSeconds=9) for name in "abc"]
    world.feed("workflows", "uid-w", workflow("w", *stages, arrival_s=T0 + 6.0, onFailure="Finish"))
    run_on(world, 1.0)
    ends = {"a": ("Complete", {"succeeded": 1}), "b": ("Failed", {"failed": 1})}
    for job in world.server.jobs[-3:]:
        raw = world.server.objects[job["metadata"]["uid"]]
        how, status = ends.get(job["metadata"]["labels"]["fermata.dev/stage"], ("", {"active": 1, "ready": 0}))
        done = {"type": how, "status": "True", "lastTransitionTime": render(world.now_s)}
        world.feed("jobs", job["metadata"]["uid"], {**raw, "status": {**status, "conditions": [done] if how else []}})
    run_on(world, 70.0)
    told = {"StageSucceeded", "StageFailed", "NoPodReady"}
    assert told <= set(events(world, "w", "reason"))
    world.start_operator()
    run_on(world, 5.0)
    assert not told & set(events(world, "w", "reason"))
