"""What becomes of a workflow and of its pool when they are edited or deleted while something runs, waits or is held."""

from __future__ import annotations

import asyncio
import json
import math
from typing import Any

import pytest
from tests.unit.operator.objects import DONE, T0, stage, workflow
from tests.unit.operator.world import Holder, World, kind_of

from fermata.operator.connection import ClusterError
from fermata.operator.inflight import AT_ONCE
from fermata.operator.reconcile import PoolReconciler
from fermata.operator.seat import RETRY_LOAD_S
from fermata.operator.times import parse, render
from fermata.policy import registry

SHORT = "uid-short"


def begun(**pool: Any) -> World:
    """A pool of two in which the stage of `short` runs and that of `long` is held."""
    world = World(**pool)
    asyncio.run(world.run_until(T0 + 2.0))
    assert world.started.keys() == {"short"}
    return world


def edit(world: World, uid: str, **spec: Any) -> None:
    raw = world.server.objects[uid]
    meta = {**raw["metadata"], "generation": raw["metadata"]["generation"] + 1}
    world.feed(kind_of(uid), uid, {**raw, "metadata": meta, "spec": {**raw["spec"], **spec}})


def delete_pool(world: World) -> None:
    world.pool = world.server.objects.pop("p")
    world.store.remove("executorpools", "p", "pool")


def run_on(world: World, seconds: float) -> None:
    asyncio.run(world.run_until(world.now_s + seconds))


def complete(world: World, name: str, tasks: int = 1) -> None:
    """Let the Jobs of a workflow succeed now."""
    for job in [job for job in world.server.jobs if job["metadata"]["labels"]["fermata.dev/workflow"] == name]:
        raw = world.server.objects[job["metadata"]["uid"]]
        done = {"type": "Complete", "status": "True", "lastTransitionTime": render(world.now_s)}
        status = {"succeeded": tasks, "conditions": [done]}
        world.feed("jobs", raw["metadata"]["uid"], {**raw, "status": status})


def end(world: World, name: str, stage_name: str, how: str) -> None:
    """Let the Job of a workflow's stage have a condition from now on, as the Job controller writes it."""
    labels = {"fermata.dev/workflow": name, "fermata.dev/stage": stage_name}
    (job,) = [job for job in world.server.jobs if labels.items() <= job["metadata"]["labels"].items()]
    raw = world.server.objects[job["metadata"]["uid"]]
    row = {"type": how, "status": "True", "lastTransitionTime": render(world.now_s), "reason": "Test"}
    status = {"succeeded": int(how == "Complete"), "failed": int(how == "Failed"), "conditions": [row]}
    world.feed("jobs", raw["metadata"]["uid"], {**raw, "status": status})


def status_of(world: World, uid: str) -> dict[str, Any]:
    return dict(world.server.objects[uid]["status"])


def condition(world: World, uid: str, kind: str) -> tuple[str, str]:
    (row,) = [row for row in status_of(world, uid)["conditions"] if row["type"] == kind]
    return row["status"], row["reason"]


@pytest.mark.parametrize("tasks", [1, 4])
def test_tasks_edited_after_the_start_are_neither_run_nor_counted(tasks: int) -> None:
    world = World()
    world.feed("workflows", "uid-w", workflow("w", stage("a", tasks=2), stage("b", "a")))
    run_on(world, 1.0)
    edit(world, "uid-w", stages=[stage("a", tasks=tasks), stage("b", "a", tasks=3)])
    run_on(world, 1.0)
    assert status_of(world, "uid-w")["progress"] == "0/5"  # those of a stage that has not started are as edited
    complete(world, "w", 2)
    run_on(world, 3.0)
    assert status_of(world, "uid-w")["progress"] == "2/5"
    world.store.remove("jobs", world.server.jobs[-1]["metadata"]["uid"])
    rows = {row["name"]: row for row in status_of(world, "uid-w")["stages"]}
    assert (rows["a"]["tasks"], rows["a"]["succeeded"]) == (2, 2)


def test_more_time_to_live_counts_and_so_does_less() -> None:
    world = World()
    for name in ("more", "none", "less", "same"):
        world.feed("workflows", f"uid-{name}", workflow(name, stage("a"), ttlSecondsAfterFinished=8))
        run_on(world, 1.0)
        complete(world, name)
        run_on(world, 1.0)
    assert condition(world, "uid-same", "Succeeded")[0] == "True"
    edit(world, "uid-more", ttlSecondsAfterFinished=30)
    edit(world, "uid-none", ttlSecondsAfterFinished=None)
    edit(world, "uid-less", ttlSecondsAfterFinished=0)
    run_on(world, 1.0)
    assert world.server.deleted == ["uid-less"]
    run_on(world, 15.0)
    assert world.server.deleted == ["uid-less", "uid-same"]
    run_on(world, 20.0)
    assert world.server.deleted == ["uid-less", "uid-same", "uid-more"]


def test_an_edit_of_a_finished_workflow_is_seen_and_changes_nothing_else() -> None:
    world = World()
    world.feed("workflows", "uid-w", workflow("w", stage("a")))
    run_on(world, 1.0)
    complete(world, "w")
    run_on(world, 1.0)
    before = status_of(world, "uid-w")
    assert world.events(), "of its end"
    edit(world, "uid-w", ttlSecondsAfterFinished=3600)
    run_on(world, 0.1)
    seen = {row["type"]: row["observedGeneration"] for row in status_of(world, "uid-w")["conditions"]}
    assert seen == dict.fromkeys(("Accepted", "Running", "Held", "Succeeded"), 2), "or kubectl wait waits for ever"
    unseen = [{**row, "observedGeneration": 1} for row in status_of(world, "uid-w")["conditions"]]
    assert {**status_of(world, "uid-w"), "observedGeneration": 1, "conditions": unseen} == before
    assert not world.events()


@pytest.mark.parametrize("jobs", ["are there", "are gone"])
def test_a_finished_workflow_whose_status_is_taken_back_is_told_by_its_jobs_or_runs_again(jobs: str) -> None:
    world = World()
    world.feed("workflows", "uid-w", workflow("w", stage("a")))
    run_on(world, 1.25)  # to the second, its Job would not say it exactly
    complete(world, "w")
    run_on(world, 1.0)
    before = status_of(world, "uid-w")
    assert condition(world, "uid-w", "Succeeded") == ("True", "AllStagesSucceeded")
    if jobs == "are gone":
        del world.server.objects[world.server.jobs[-1]["metadata"]["uid"]]
    world.feed("workflows", "uid-w", {**world.server.objects["uid-w"], "status": {}})
    run_on(world, 5.0)
    assert condition(world, "uid-w", "Accepted") == ("True", "Valid")
    told = status_of(world, "uid-w")
    if jobs == "are gone":
        assert [row["state"] for row in told["stages"]] == ["Running"]
    else:
        assert (told["stages"], told["jctSeconds"]) == (before["stages"], before["jctSeconds"])


def test_workflows_whose_time_is_over_are_deleted_a_few_at_once() -> None:
    world = World()
    names = [f"w{number}" for number in range(40)]
    for name in names:
        ended = {"completionTime": render(T0), **DONE}
        world.feed("workflows", f"uid-{name}", workflow(name, stage("a"), ttlSecondsAfterFinished=1, status=ended))
    world.now_s = T0 + 5.0
    asyncio.run(world.reconciler.reconcile())
    assert 0 < len(world.server.deleted) < 20, "new work waits until they are gone"
    run_on(world, 1.0)
    assert sorted(world.server.deleted) == sorted(f"uid-{name}" for name in names)


def test_a_finished_workflow_takes_no_more_memory_however_often_somebody_touches_it() -> None:
    world = World()
    ended = {"completionTime": render(T0), **DONE}
    world.feed("workflows", "uid-w", workflow("w", stage("a"), ttlSecondsAfterFinished=60, status=ended))
    world.feed("workflows", "uid-kept", workflow("kept", stage("a"), status=ended))
    for number in range(20):
        world.annotate("uid-w", str(number))
        asyncio.run(world.reconciler.reconcile())
    assert len(world.reconciler._expiry._heap) == 1
    run_on(world, 60.0)
    assert world.server.deleted == ["uid-w"]


@pytest.mark.parametrize("status", [403, 500, 404])  # the last one by a proxy that knows no such page
def test_a_deletion_that_is_refused_is_tried_again_half_a_minute_later(status: int) -> None:
    world = World()
    world.server.undeletable = [status]
    ended = {"completionTime": render(T0), **DONE}
    world.feed("workflows", "uid-w", workflow("w", stage("a"), ttlSecondsAfterFinished=5, status=ended))
    run_on(world, 90.0)
    asked_s = world.server.asked_to_delete_s
    assert asked_s == pytest.approx([T0 + 5.0, T0 + 35.0], abs=0.1)
    assert world.server.deleted == ["uid-w"]


@pytest.mark.parametrize("status", [403, 500])
def test_where_nothing_may_be_deleted_one_workflow_is_tried_for_all(
    status: int, caplog: pytest.LogCaptureFixture
) -> None:
    world = World()
    names = [f"w{number}" for number in range(40)]
    world.server.undeletable = [status] * 99
    for name in names:
        ended = {"completionTime": render(T0), **DONE}
        world.feed("workflows", f"uid-{name}", workflow(name, stage("a"), ttlSecondsAfterFinished=5, status=ended))

    async def main() -> None:
        await world.run_until(T0 + 300.0)
        assert len(world.server.asked_to_delete_s) <= AT_ONCE + 10, "each of them is tried again and again"
        assert sum("not deleted" in record.message for record in caplog.records) == 1
        world.server.undeletable = []
        await world.run_until(T0 + 361.0)
        assert sorted(world.server.deleted) == sorted(f"uid-{name}" for name in names)

    asyncio.run(main())


def test_the_deletion_of_what_is_gone_already_is_not_tried_again() -> None:
    world = World()
    world.server.deleted = ["uid-w"]
    ended = {"completionTime": render(T0), **DONE}
    world.feed("workflows", "uid-w", workflow("w", stage("a"), ttlSecondsAfterFinished=5, status=ended))
    run_on(world, 90.0)
    assert world.server.asked_to_delete_s == pytest.approx([T0 + 5.0], abs=0.1)


CIRCLE = [stage("a", "b", estimateSeconds=9), stage("b", "a", estimateSeconds=9)]


def test_what_a_workflow_that_became_a_circle_still_runs_counts_as_busy() -> None:
    world = World(executors=1)
    run_on(world, 1.0)
    edit(world, SHORT, stages=CIRCLE)
    world.feed("workflows", "uid-next", workflow("next", stage("a")))
    run_on(world, 5.0)
    assert "next" not in world.started
    assert condition(world, SHORT, "Accepted") == ("False", "Cycle")
    assert condition(world, SHORT, "Running")[0] == "True"
    complete(world, "short")
    run_on(world, 5.0)
    assert "next" in world.started
    assert condition(world, SHORT, "Running")[0] == "False"
    assert status_of(world, SHORT)["tasks"]["running"] == 0


@pytest.mark.parametrize(
    ("change", "kind", "reason"),
    [({"stages": CIRCLE}, "Accepted", "Cycle"), ({"suspend": True}, "Held", "Suspended")],
)
def test_a_workflow_that_an_edit_keeps_from_starting_says_so_in_a_pool_that_is_never_quiet(
    change: dict[str, Any], kind: str, reason: str
) -> None:
    world = begun()
    world.busy = True
    edit(world, "uid-long", **change)
    run_on(world, 3.0)
    assert condition(world, "uid-long", kind) == ("False", reason)


@pytest.mark.parametrize(("wrong", "reason"), [("a circle", "Cycle"), ("of another version", "InvalidSpec")])
def test_that_a_workflow_is_not_accepted_is_told_once_when_its_status_says_so(wrong: str, reason: str) -> None:
    world = begun()

    def told() -> list[tuple[str, str]]:
        events = [event for event in world.events() if event["involvedObject"]["name"] == "short"]
        return [(event["reason"], event["type"]) for event in events]

    told()
    world.server.denied_s = []
    edit(world, SHORT, stages=CIRCLE if wrong == "a circle" else wrong)
    run_on(world, 3.0)
    assert not told()
    world.server.denied_s = None
    run_on(world, 9.0)
    assert told() == [(reason, "Warning")]
    assert condition(world, SHORT, "Accepted") == ("False", reason)
    edit(world, SHORT, priority=1)
    run_on(world, 9.0)
    assert not told(), "it is not accepted for the same reason"
    edit(world, SHORT, stages=[stage("a", estimateSeconds=9)])
    run_on(world, 9.0)
    assert condition(world, SHORT, "Accepted") == ("True", "Valid")


def test_a_workflow_without_quota_says_so_in_a_pool_that_is_never_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(_job: dict[str, Any]) -> dict[str, Any]:
        raise ClusterError(403, "Forbidden", "is forbidden: exceeded quota: few, requested: count/jobs.batch=1")

    world = begun()
    monkeypatch.setattr(world.server, "create_job", refuse)
    for name in ("first", "second"):  # which comes to a namespace that is known to be full, and is not decided on
        world.feed("workflows", f"uid-{name}", workflow(name, stage("a"), arrival_s=world.now_s))
        run_on(world, 0.1)
        world.busy = True
    assert condition(world, "uid-second", "Succeeded") == ("Unknown", "StartRetrying")


@pytest.mark.parametrize("ended", [True, False])
def test_what_ran_of_a_workflow_stays_run_time_when_an_edit_takes_its_stage_out(ended: bool) -> None:
    world = World(executors=3)
    world.feed("workflows", "uid-w", workflow("w", stage("a"), stage("b", "a"), arrival_s=T0 + 1.0))
    run_on(world, 30.0)
    if ended:
        complete(world, "w")
    edit(world, "uid-w", stages=[stage("b", estimateSeconds=9)])
    run_on(world, 1.0)
    world.server.jobs = world.server.jobs[-1:]  # that of b
    assert world.started == {"w": 31.0}
    run_on(world, 9.0)
    world.start_operator()  # it knows what the API holds, and nothing else
    complete(world, "w")
    run_on(world, 1.0)
    status = status_of(world, "uid-w")
    assert (status["jctSeconds"], status["waitSeconds"]) == (pytest.approx(40.0), 0.0)
    assert status["startTime"] == render(T0 + 1.0)


@pytest.mark.parametrize("restarted", [False, True])
def test_a_workflow_has_not_ended_before_the_last_stage_that_an_edit_takes_out(restarted: bool) -> None:
    world = World(executors=4)
    world.feed("workflows", "uid-w", workflow("w", stage("a"), stage("b"), arrival_s=T0 + 1.0))
    run_on(world, 10.0)
    end(world, "w", "a", "Complete")
    run_on(world, 16.0)
    edit(world, "uid-w", stages=[stage("a")])
    world.server.forbids = True  # that b is stopped
    run_on(world, 3.0)
    assert condition(world, "uid-w", "Succeeded")[0] == "Unknown"
    world.server.forbids, world.server.busy = False, 0
    run_on(world, 1.0)
    end(world, "w", "b", "Suspended")
    if restarted:
        world.now_s += 20.0
        world.start_operator()
    world.server.busy = None
    run_on(world, 1.0)
    status = status_of(world, "uid-w")
    assert condition(world, "uid-w", "Succeeded")[0] == "True"
    assert (status["jctSeconds"], status["runSeconds"]) == (pytest.approx(30.0, abs=0.6), status["jctSeconds"])


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("earlier", [False, True])
@pytest.mark.parametrize("how", ["stage", "onFailure"])
def test_a_workflow_that_an_edit_ends_has_ended_then_and_lives_on_from_then(
    how: str, earlier: bool, restarted: bool
) -> None:
    world = World(executors=4)
    stages = [stage("a", estimateSeconds=9), stage("b", estimateSeconds=900)]
    more = [stage("c", estimateSeconds=9)] if earlier else []  # which an earlier edit stops
    spec = {"onFailure": "Finish", "ttlSecondsAfterFinished": 8}
    world.feed("workflows", "uid-w", workflow("w", *stages, *more, arrival_s=T0 + 1.0, **spec))
    run_on(world, 9.0)
    if earlier:
        edit(world, "uid-w", stages=stages)
        run_on(world, 0.01)
        end(world, "w", "c", "Suspended")
    end(world, "w", "a", "Complete" if how == "stage" else "Failed")
    run_on(world, 31.0)
    assert condition(world, "uid-w", "Succeeded") == ("Unknown", "Held")
    edit(world, "uid-w", **({"stages": stages[:1]} if how == "stage" else {"onFailure": "Stop"}))
    if restarted:
        world.start_operator()
    world.server.busy = 0  # the API server does not take its status at once
    run_on(world, 1.0)
    world.server.busy = None
    run_on(world, 3.0)
    status = status_of(world, "uid-w")
    assert condition(world, "uid-w", "Succeeded")[0] == ("True" if how == "stage" else "False")
    assert parse(status["completionTime"]) - T0 == pytest.approx(41.0, abs=0.1)
    parts = [status[f"{part}Seconds"] for part in ("jct", "run", "held", "wait")]
    assert parts == pytest.approx([40.0, 9.0, 31.0, 0.0], abs=0.1)
    assert world.server.deleted == []
    run_on(world, 6.0)
    assert world.server.deleted == ["uid-w"]


def test_a_stage_that_an_edit_takes_out_is_stopped_and_keeps_its_executors_until_then() -> None:
    world = World(executors=1)
    run_on(world, 1.0)
    edit(world, SHORT, stages=[stage("c", estimateSeconds=9)])
    run_on(world, 1.0)
    first, second = world.server.jobs
    assert [job["metadata"]["labels"]["fermata.dev/stage"] for job in (first, second)] == ["a", "c"]
    stopped = world.server.objects[first["metadata"]["uid"]]
    assert stopped["spec"]["suspend"]
    assert stopped["metadata"]["annotations"]["fermata.dev/stopped"] == "StageRemoved"


def test_a_stage_that_was_taken_out_while_it_ran_and_is_put_back_has_failed_and_says_why() -> None:
    world = World(executors=1)
    run_on(world, 1.0)
    before = world.server.objects[SHORT]["spec"]["stages"]
    edit(world, SHORT, stages=[stage("c", estimateSeconds=9)])
    run_on(world, 1.0)
    edit(world, SHORT, stages=before)
    run_on(world, 1.0)
    row = next(row for row in status_of(world, SHORT)["stages"] if row["name"] == "a")
    assert (row["state"], row["reason"]) == ("Failed", "StageRemoved")
    assert row["message"].startswith("An edit took the stage out"), "it is in the workflow now"
    assert condition(world, SHORT, "Succeeded") == ("False", "StageFailed")


def test_the_executors_of_what_is_stopped_are_given_to_the_next_at_once() -> None:
    world = begun(executors=1)
    world.feed("workflows", "uid-next", workflow("next", stage("a", estimateSeconds=9)))
    edit(world, SHORT, activeDeadlineSeconds=5)
    run_on(world, 60.0)
    assert world.started == {"short": 1.0, "next": 6.0}  # it arrived at 1


@pytest.mark.parametrize("untold", ["status", "stop"])
def test_what_is_stopped_keeps_its_executors_until_its_pods_have_ended_told_or_not(untold: str) -> None:
    world = World(executors=2)
    both = [stage("a", estimateSeconds=9), stage("b", estimateSeconds=9)]
    edit(world, SHORT, stages=both, activeDeadlineSeconds=5)
    run_on(world, 1.0)
    jobs = [job["metadata"]["uid"] for job in world.server.jobs]
    for uid in jobs:
        world.feed("jobs", uid, {**world.server.objects[uid], "status": {"active": 1}})
    world.feed("workflows", "uid-next", workflow("next", stage("a", estimateSeconds=9)))
    patch = world.server.patch_job

    async def refuse(namespace: str, name: str, change: dict[str, Any]) -> dict[str, Any]:
        if name == jobs[1]:
            raise ClusterError(403, "Forbidden", "you may not")
        return await patch(namespace, name, change)

    if untold == "status":
        world.server.busy = 0
    else:
        world.server.patch_job = refuse  # type: ignore[method-assign]
    run_on(world, 10.0)
    assert world.server.objects[jobs[0]]["spec"]["suspend"]
    assert "next" not in world.started
    world.feed("jobs", jobs[0], {**world.server.objects[jobs[0]], "status": {"active": 0}})
    run_on(world, 0.1)
    assert "next" in world.started


@pytest.mark.parametrize("asked", ["create_job", "get_job", "patch_job"])
def test_what_fails_when_its_workflow_has_gone_is_neither_told_nor_tried_again(
    asked: str, caplog: pytest.LogCaptureFixture
) -> None:
    world = World() if asked == "create_job" else begun()
    request = getattr(world.server, asked)

    async def go_first(*args: Any) -> Any:
        if SHORT not in world.server.objects:
            return await request(*args)
        del world.server.objects[SHORT]
        world.store.remove("workflows", SHORT)
        await world.reconciler._observer.observe(world.now_s)
        raise ClusterError(403, "Forbidden", "you may not")

    setattr(world.server, asked, go_first)
    if asked == "get_job":
        unlabel(world)
    elif asked == "patch_job":
        edit(world, SHORT, activeDeadlineSeconds=1)
    run_on(world, 60.0)
    assert SHORT not in world.server.objects
    assert not caplog.records
    assert not list(world.reconciler._applier.retries_s(0.0)), "nobody would ever drop it"


def kept(world: World, uid: str) -> set[str]:
    """Where something of a workflow is kept in what lives as long as its pool does."""
    pool, applier, observer = world.reconciler, world.reconciler._applier, world.reconciler._observer
    parts = (pool._ledger, pool._teller, applier, applier._shared, observer, observer.acceptance)
    fields = [field for part in parts for field in vars(part).items()]
    return {name for name, value in fields if isinstance(value, (dict, set)) and uid in repr(value)}


@pytest.mark.parametrize(
    ("trouble", "where"),
    [
        ("refused", {"refused"}),
        ("not started", {"_failures", "_trouble", "_paused"}),
        ("not answered", {"_unanswered", "starting", "_searches"}),
        ("not widened", {"_narrow"}),
        ("not stopped", {"_stops"}),
        ("not told", {"_refusals"}),
        ("no room", {"_without_stages", "_amiss", "_refusals"}),
        ("not told of its end", {"_ends"}),
        ("no circle", {"problems", "_written_s"}),
        ("held", {"metering", "accounts", "views", "rows"}),
        ("released", {"released"}),
        ("late", {"dues_s"}),
    ],
)
def test_nothing_is_kept_of_a_workflow_that_is_deleted_whatever_its_trouble_was(trouble: str, where: set[str]) -> None:
    world = World(executors=4)
    stages = [stage("a", tasks=2 if trouble == "held" else 9), stage("b", estimateSeconds=900)]
    world.feed("workflows", "uid-w", workflow("w", *stages, arrival_s=T0 + 1.0, onFailure="Finish"))
    if trouble == "not started":
        world.server.refusals["w"] = [403] * 99
    elif trouble == "not answered":
        world.server.refusals["w"], world.server.unread = [0] * 99, 999
    run_on(world, 3.0)
    world.server.forbids = trouble in ("not stopped", "not widened")
    if trouble == "refused":
        (job,) = [job for job in world.server.jobs if job["metadata"]["labels"]["fermata.dev/workflow"] == "w"]
        del world.server.objects[job["metadata"]["uid"]]
        world.store.remove("jobs", job["metadata"]["uid"])
    elif trouble == "not widened":
        edit(world, "p", executors=6)
    elif trouble == "not stopped":
        edit(world, "uid-w", stages=stages[1:])
    elif trouble in ("not told", "no room", "not told of its end"):
        world.server.denied_s = [] if trouble != "no room" else None
        world.server.room = 0 if trouble == "no room" else math.inf
        complete(world, "w", tasks=9)
        edit(world, "uid-w", stages=stages[:1] if trouble == "not told of its end" else stages)
    elif trouble == "no circle":
        edit(world, "uid-w", stages=[stage("a", "a")])
    elif trouble == "released":
        world.annotate("uid-w", "b")
    elif trouble == "late":
        edit(world, "uid-w", activeDeadlineSeconds=99)
    run_on(world, 1.0)
    assert kept(world, "uid-w") >= where
    del world.server.objects["uid-w"]
    world.store.remove("workflows", "uid-w")
    world.server.denied_s, world.server.room = None, math.inf
    run_on(world, 1.0)
    assert kept(world, "uid-w") == set()


def test_what_somebody_suspended_is_stopped_for_good_when_an_edit_takes_it_out_and_before_its_workflow_ends() -> None:
    world = World(executors=4)
    world.feed("workflows", "uid-w", workflow("w", stage("a"), stage("b"), arrival_s=T0 + 1.0))
    run_on(world, 10.0)
    jobs = {(meta := job["metadata"])["labels"]["fermata.dev/stage"]: meta["uid"] for job in world.server.jobs[-2:]}
    raw = world.server.objects[jobs["b"]]
    world.feed("jobs", jobs["b"], {**raw, "spec": {**raw["spec"], "suspend": True}})
    world.server.jobs = [world.server.objects[jobs["a"]]]
    complete(world, "w")
    world.server.forbids = True
    edit(world, "uid-w", stages=[stage("a")])
    run_on(world, 1.0)
    assert condition(world, "uid-w", "Succeeded")[0] == "Unknown", "it would go on when it is resumed"
    world.server.forbids = False
    run_on(world, 5.0)
    assert world.server.objects[jobs["b"]]["metadata"]["annotations"]["fermata.dev/stopped"] == "StageRemoved"
    assert condition(world, "uid-w", "Succeeded")[0] == "True"


@pytest.mark.parametrize("why", ["removed", "deadline"])
def test_a_job_that_must_not_be_stopped_is_asked_for_less_and_less_often(why: str) -> None:
    world = begun()
    world.server.forbids = True
    if why == "removed":
        edit(world, SHORT, stages=[stage("b", estimateSeconds=9)])
    else:
        edit(world, SHORT, activeDeadlineSeconds=1)
    run_on(world, 60.0)
    waits_s = [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0]
    assert [round(at_s - T0 - 2.0, 2) for at_s in world.server.patched_s] == [sum(waits_s[:n]) for n in range(8)]
    (uid, *_) = (job["metadata"]["uid"] for job in world.server.jobs)
    assert not world.server.objects[uid]["spec"].get("suspend")
    world.server.forbids = False
    run_on(world, 31.0)
    assert world.server.objects[uid]["spec"]["suspend"]


@pytest.mark.parametrize("deleted", [False, True])
def test_the_slots_of_what_runs_are_counted_as_it_began_whatever_becomes_of_its_workflow(deleted: bool) -> None:
    world = World(executors=3)
    world.feed("workflows", "uid-w", workflow("w", stage("a", slots=2), arrival_s=T0 - 5))
    run_on(world, 1.0)
    assert world.started.keys() == {"short", "w"}
    complete(world, "short")
    if deleted:
        world.store.remove("workflows", "uid-w")
    else:
        edit(world, "uid-w", stages=[stage("a", slots=1)])
    world.feed("workflows", "uid-next", workflow("next", stage("a", slots=2)))
    run_on(world, 5.0)
    assert world.started.keys() == {"short", "w", "long"}
    assert status_of(world, "p")["busy"] == 3


@pytest.mark.parametrize(
    ("wrong", "executors"),
    [({"executors": 0}, 0), ({"policy": {}}, 2)],  # cannot be read, and makes no sense
)
def test_a_pool_with_an_invalid_spec_says_that_nothing_is_decided_and_decides_again_when_it_is_mended(
    wrong: dict[str, Any], executors: int
) -> None:
    world = begun()

    def told() -> dict[str, tuple[str, str]]:
        return {item["type"]: (item["status"], item["reason"]) for item in status_of(world, "p")["conditions"]}

    edit(world, "p", **wrong)
    run_on(world, 5.0)
    assert (told()["Ready"], told()["PolicyReady"]) == (("False", "InvalidSpec"), ("False", "InvalidSpec"))
    assert status_of(world, "p")["executors"] == executors
    assert "PolicyFallback" not in {event["reason"] for event in world.events()}, "no fallback decides either"
    edit(world, "p", executors=2, policy={"name": "sjf"})
    run_on(world, 5.0)
    assert (told()["Ready"], told()["PolicyReady"]) == (("True", "Open"), ("True", "PolicyLoaded"))


def waiting(world: World) -> float | None:
    return world.metrics.registry.get_sample_value("fermata_pool_stages", {"pool": "pool", "state": "waiting"})


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"namespaceSelector": {"matchLabels": {"team": "bad value!"}}}, "spec.namespaceSelector.matchLabels.team: "),
        ({"policy": {}}, "expected exactly one of name and model"),
    ],
)
def test_workflows_of_a_pool_with_an_invalid_spec_are_told_so_and_their_stages_wait(
    wrong: dict[str, Any], why: str, caplog: pytest.LogCaptureFixture
) -> None:
    world = begun()
    world.feed("workflows", "uid-then", workflow("then", stage("a"), stage("b", "a"), arrival_s=world.now_s))
    world.feed("workflows", "uid-off", workflow("off", stage("a"), suspend=True, arrival_s=world.now_s))
    edit(world, "p", executors=1)
    run_on(world, 3.0)
    assert waiting(world) == 2
    world.events()
    with caplog.at_level("WARNING", logger="fermata.operator"):
        edit(world, "p", **wrong)
        run_on(world, 30.0)
    for uid in (SHORT, "uid-long", "uid-then"):
        assert condition(world, uid, "Accepted") == ("False", "PoolInvalid")
    (row,) = (row for row in status_of(world, "uid-then")["conditions"] if row["type"] == "Accepted")
    assert row["message"].startswith(f"pool 'pool' takes no workflows: {why}")
    assert condition(world, SHORT, "Running")[0] == "True", "what runs goes on"
    assert (waiting(world), status_of(world, "p")["waiting"]) == (2, 2), "of long and then"
    told = [event for event in world.events() if event["involvedObject"]["kind"] == "ExecutorPool"]
    assert [(event["reason"], event["type"]) for event in told] == [("InvalidSpec", "Warning")]
    assert why in told[0]["message"]
    lines = [line for line in caplog.messages if line.startswith("pool pool: takes no workflows: InvalidSpec: ")]
    assert len(lines) == 1
    complete(world, "short")
    run_on(world, 3.0)
    assert condition(world, SHORT, "Succeeded")[0] == "True"
    edit(world, "p", executors=2, policy={"name": "sjf"}, namespaceSelector=None)
    run_on(world, 5.0)
    assert condition(world, "uid-then", "Accepted") == ("True", "Valid")
    assert "then" in world.started


def test_that_a_pool_takes_no_workflows_is_told_where_its_status_cannot_be_written() -> None:
    world = begun()
    world.events()
    world.server.denied_pool_s, world.server.denied_pool_status = [], 422
    edit(world, "p", policy={})
    run_on(world, 90.0)
    told = [event for event in world.events() if event["involvedObject"]["kind"] == "ExecutorPool"]
    assert [(event["reason"], event["type"]) for event in told] == [("InvalidSpec", "Warning")]


@pytest.mark.parametrize("mended", [True, False])
def test_what_new_crds_fill_in_changes_what_is_said_of_a_pool_that_nobody_edited(mended: bool) -> None:
    world = begun()
    sound = world.server.objects["p"]
    broken = {**sound, "spec": {**sound["spec"], "mode": "Auto"}}
    if mended:
        edit(world, "p", mode="Auto")
        run_on(world, 3.0)
        broken = world.server.objects["p"]
        sound = {**broken, "spec": sound["spec"]}
    world.feed("executorpools", "p", {**(sound if mended else broken)})
    run_on(world, 3.0)
    assert condition(world, "uid-long", "Accepted")[1] == ("Valid" if mended else "PoolInvalid")


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("Complete", [
            ("Normal", "StageSucceeded", "stage a succeeded: 1 task in 2.0 s"),
            ("Normal", "AllStagesSucceeded", "1 stage succeeded; JCT 2.0 s = wait 0.0 + held 0.0 + run 2.0"),
        ]),
        ("Failed", [
            ("Warning", "StageFailed", "stage a failed: JobFailed: Test"),
            ("Warning", "StageFailed", "stage 'a': JobFailed: Test; JCT 2.0 s = wait 0.0 + held 0.0 + run 2.0"),
        ]),
    ],
)  # fmt: skip
def test_the_end_of_a_stage_is_told_before_that_of_its_workflow(how: str, told: list[tuple[str, str, str]]) -> None:
    world = World()
    run_on(world, 0.1)
    begun = [event for event in world.events() if event["involvedObject"]["name"] == "short"]
    assert [(event["reason"], event["message"]) for event in begun] == [
        ("StageStarted", "stage a started by holder: 1 of 1 task at once, after 0.0 s of wait and 0.0 s held")
    ]
    world.now_s = T0 + 3.0
    end(world, "short", "a", how)
    run_on(world, 0.1)
    events = [event for event in world.events() if event["involvedObject"]["name"] == "short"]
    assert [(event["type"], event["reason"], event["message"]) for event in events] == told


def test_what_is_new_of_a_pool_is_told_in_an_event_and_nothing_else() -> None:
    world = begun()

    def told(**spec: Any) -> list[tuple[str, str]]:
        if spec:
            edit(world, "p", **spec)
        if "policy" in spec:
            load(world)
        run_on(world, 5.0)
        events = [event for event in world.events() if event["involvedObject"]["name"] == "pool"]
        return [(event["type"], event["reason"]) for event in events]

    assert told() == [("Normal", "PolicyLoaded")]
    assert told(executors=3) == []
    assert told(policy={"name": "fifo"}) == [("Normal", "PolicyLoaded")]
    assert told(policy={"name": "nonsense"}) == [("Warning", "PolicyFallback")]
    assert told(mode="Off") == []
    assert told(mode="Enforce", policy={"name": "srwf"}) == [("Normal", "PolicyLoaded")]
    assert told(fallback="default") == [("Warning", "FallbackUnknown")]
    world.annotate("p", "*")
    assert told() == [("Normal", "HoldingPaused")]
    world.feed("executorpools", "p", {**world.server.objects["p"], "metadata": world.pool["metadata"]})
    assert told() == [("Normal", "HoldingResumed")]


@pytest.mark.parametrize("how", ["orphaned", "unreadable"])
def test_jobs_without_a_workflow_that_can_be_read_keep_their_executors(how: str) -> None:
    world = World(executors=1)
    run_on(world, 1.0)
    (job,) = world.server.jobs
    if how == "orphaned":
        raw = world.server.objects[job["metadata"]["uid"]]
        world.feed("jobs", job["metadata"]["uid"], {**raw, "metadata": {**raw["metadata"], "ownerReferences": []}})
        world.server.objects.pop(SHORT)
        world.store.remove("workflows", SHORT)
    else:
        edit(world, SHORT, stages="of another version")
    world.feed("workflows", "uid-next", workflow("next", stage("a")))
    run_on(world, 5.0)
    assert "next" not in world.started
    told = "needs 1 executor, 0 of 1 free, 1 under Jobs that no workflow shows"
    assert status_of(world, "uid-next")["stages"][0]["message"].startswith(told)
    assert "no executor is busy" not in status_of(world, "uid-next")["stages"][0]["message"]
    world.store.remove("jobs", job["metadata"]["uid"])
    run_on(world, 5.0)
    assert "next" in world.started


def test_what_is_held_beside_jobs_that_no_workflow_shows_is_not_told_that_nothing_is_busy() -> None:
    world = begun(holdWhenIdle=True)
    edit(world, SHORT, stages="of another version")
    world.server.objects.pop("uid-long")
    world.store.remove("workflows", "uid-long")
    world.feed("workflows", "uid-next", workflow("next", stage("a", estimateSeconds=900)))
    run_on(world, 1.0)
    (row,) = status_of(world, "uid-next")["stages"]
    assert row["state"] == "Held"
    assert row["message"].startswith("held: a stage of about 15 min a task; when the next executor frees is not known;")


def unlabel(world: World) -> str:
    """Take the labels off the Job that runs, which a watch tells as its end, and return its uid."""
    (job,) = world.server.jobs
    uid = str(job["metadata"]["uid"])
    raw = world.server.objects[uid]
    raw = world.server.put(uid, {**raw, "metadata": {**raw["metadata"], "labels": {}}})
    world.store.remove("jobs", uid, uid, raw["metadata"]["resourceVersion"])
    return uid


@pytest.mark.parametrize("restarted", [False, True])
def test_a_job_that_loses_its_labels_gets_them_back_and_its_stage_goes_on(restarted: bool) -> None:
    world = begun(executors=1)
    uid = unlabel(world)
    if restarted:
        world.start_operator()
    world.feed("workflows", "uid-next", workflow("next", stage("a")))
    run_on(world, 3.0)
    assert world.server.objects[uid]["metadata"]["labels"]["fermata.dev/pool"] == "pool"
    assert status_of(world, SHORT)["stages"][0]["state"] == "Running"
    assert (status_of(world, "p")["busy"], world.started.keys()) == (1, {"short"}), "its executor is not free"
    complete(world, "short")
    run_on(world, 1.0)
    assert condition(world, SHORT, "Succeeded")[0] == "True"


def test_a_late_answer_about_a_job_that_was_not_seen_keeps_no_executors_once_its_workflow_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fermata.operator.inflight.PATIENCE_S", 0.0)
    world = begun(executors=1)
    patch, late = world.server.patch_job, asyncio.Event()

    async def patch_late(*arguments: Any) -> Any:
        made = await patch(*arguments)
        await late.wait()
        return made

    async def end_before_the_answer() -> None:
        await world.run_until(world.now_s + 1.0)
        complete(world, "short")  # the watch shows the Job again, and its end
        await world.run_until(world.now_s + 3.0)
        assert condition(world, SHORT, "Succeeded")[0] == "True"
        late.set()
        await asyncio.sleep(0.01)
        await world.run_until(world.now_s + 3.0)

    world.server.patch_job = patch_late  # type: ignore[method-assign]
    unlabel(world)
    asyncio.run(end_before_the_answer())
    assert "long" in world.started
    assert status_of(world, "p")["busy"] == 1, "that of `long`"


@pytest.mark.parametrize("status", [503, 404])  # the second one by a proxy that knows no such page
def test_nothing_is_made_of_a_job_that_is_not_seen_until_the_api_server_says_what_became_of_it(status: int) -> None:
    world = begun()
    uid = unlabel(world)
    world.server.unread, world.server.unread_status = 3, status
    run_on(world, 1.5)
    assert condition(world, SHORT, "Succeeded")[0] == "Unknown"
    assert status_of(world, SHORT)["stages"][0]["state"] == "Running"
    assert [job["metadata"]["uid"] for job in world.server.jobs].count(uid) == 1, "it was started again"
    run_on(world, 3.0)
    assert world.server.unread == 0
    assert world.store.jobs[uid].pool == "pool"


def test_the_executors_of_a_job_that_is_not_seen_are_given_to_nobody_until_it_is_known_to_be_gone() -> None:
    world = begun(executors=1)
    uid = unlabel(world)
    world.server.unread = 3
    world.feed("workflows", "uid-next", workflow("next", stage("a", estimateSeconds=9)))
    run_on(world, 1.5)
    assert world.started.keys() == {"short"}
    world.server.unread = 0
    world.server.objects.pop(uid)
    run_on(world, 3.0)
    assert world.started.keys() == {"short", "next"}


@pytest.mark.parametrize("how", ["stripped at once", "stripped later", "refused"])
def test_a_job_that_cannot_have_its_labels_is_looked_for_less_and_less_often_until_it_ends(how: str) -> None:
    world = begun(executors=1)
    uid = unlabel(world)
    world.server.forbids, world.server.strips = how == "refused", how == "stripped at once"
    world.feed("workflows", "uid-next", workflow("next", stage("a", estimateSeconds=9)))

    async def meddle(end_s: float) -> None:
        while world.now_s < end_s:
            wake_s = await world.reconciler.reconcile()
            if uid in world.store.jobs:  # a controller that does not like labels
                unlabel(world)
                wake_s = world.now_s
            world.now_s = min(max(wake_s, world.now_s + 0.001), end_s)

    asyncio.run(meddle(T0 + 62.0))
    waits_s = [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0]
    assert [round(at_s - T0 - 2.0, 2) for at_s in world.server.patched_s] == [sum(waits_s[:n]) for n in range(8)]
    (row,) = status_of(world, SHORT)["stages"]
    assert (row["state"], row["reason"]) == ("Running", "JobUnseen")
    why = "Forbidden: you may not" if how == "refused" else "somebody takes off the labels that it is given"
    assert row["message"] == f"its Job is not seen: {why}"
    assert world.started.keys() == {"short"}, "its executor is not free"
    done = {"type": "Complete", "status": "True", "lastTransitionTime": render(world.now_s)}
    raw = world.server.objects[uid]
    world.server.objects[uid] = {**raw, "status": {"succeeded": 1, "conditions": [done]}}
    world.store.retain("jobs", (), str(world.server._version + 1))  # a list of what has the label, later than its end
    run_on(world, 31.0)
    assert condition(world, SHORT, "Succeeded") == ("True", "AllStagesSucceeded")
    assert status_of(world, SHORT)["stages"][0]["reason"] == ""
    assert "next" in world.started


def test_why_a_job_is_not_seen_is_told_as_it_is_now() -> None:
    world = begun()
    unlabel(world)
    world.server.unread, world.server.forbids = 4, True
    run_on(world, 3.0)
    told = [status_of(world, SHORT)["stages"][0]["message"]]
    run_on(world, 9.0)
    told.append(status_of(world, SHORT)["stages"][0]["message"])
    assert told == ["its Job is not seen: ServiceUnavailable: later", "its Job is not seen: Forbidden: you may not"]


@pytest.mark.parametrize("restarted", [False, True])
def test_a_job_that_is_not_seen_when_an_edit_takes_its_stage_out_is_stopped_all_the_same(restarted: bool) -> None:
    world = begun()
    uid = unlabel(world)
    edit(world, SHORT, stages=[stage("b", estimateSeconds=9)])
    if restarted:
        world.start_operator()
    else:
        world.server.unread = 2
    run_on(world, 0.1)
    complete(world, "short")  # its other stage, that is: of the first one nothing is seen
    world.server.put(uid, {**world.server.objects[uid], "status": {}})
    run_on(world, 5.0)
    assert world.server.objects[uid]["spec"]["suspend"]
    assert world.server.objects[uid]["metadata"]["annotations"]["fermata.dev/stopped"] == "StageRemoved"
    assert condition(world, SHORT, "Succeeded") == ("True", "AllStagesSucceeded")
    assert restarted or parse(status_of(world, SHORT)["completionTime"]) > T0 + 2.1, "it had not ended before"


@pytest.mark.parametrize("restarted", [False, True])
def test_a_job_that_is_stripped_of_its_labels_when_it_is_created_keeps_what_it_was_given(restarted: bool) -> None:
    world = World(executors=3)
    world.server.strips = True
    wide = stage("a", estimateSeconds=9, tasks=9, slots=2, parallelism=1)
    world.feed("workflows", "uid-wide", workflow("wide", wide, arrival_s=T0 + 1.0))
    run_on(world, 2.0)
    if restarted:
        world.start_operator()
        run_on(world, 2.0)
    (row,) = status_of(world, "uid-wide")["stages"]
    assert (row["reason"], row["parallelism"], parse(row["startTime"])) == ("JobUnseen", 1, T0 + 1.0)
    assert status_of(world, "p")["busy"] == 3, "two of it, and one of the short one"


def test_what_an_unanswered_widening_asked_for_counts_once_if_its_job_is_not_seen_either() -> None:
    world = World(executors=9)
    world.server.refusals = {name: [403] * 99 for name in ("short", "long")}
    wide = stage("a", estimateSeconds=1, tasks=6, parallelism=2)
    world.feed("workflows", "uid-wide", workflow("wide", wide))
    run_on(world, 0.2)
    (made,) = world.server.jobs
    widen = world.server.patch_job

    async def lose(*arguments: Any) -> dict[str, Any]:
        world.server.patch_job, world.server.strips = widen, True  # type: ignore[method-assign]
        await widen(*arguments)
        raise ClusterError(0, "ServerDisconnectedError", "")

    world.server.patch_job, world.server.unread = lose, 9  # type: ignore[method-assign]
    edit(world, "uid-wide", stages=[{**wide, "parallelism": 5}])
    run_on(world, 0.1)
    world.store.remove("jobs", made["metadata"]["uid"])  # as a watch tells of labels that were taken off
    for uid, slots in (("uid-fits", 4), ("uid-large", 5)):
        world.feed("workflows", uid, workflow(uid[4:], stage("a", estimateSeconds=1, slots=slots), arrival_s=T0 + 1.0))
    run_on(world, 1.5)
    assert world.server.unread, "the API server does not say yet"
    assert world.started.keys() == {"wide", "fits"}


@pytest.mark.parametrize("answer", ["late", "lost"])
def test_a_stage_that_ends_before_its_widening_is_answered_keeps_neither_its_workflow_nor_executors(
    monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    monkeypatch.setattr("fermata.operator.inflight.PATIENCE_S", 0.01)
    world = World(executors=5)
    world.server.refusals["short"] = [403] * 99
    wide = stage("a", estimateSeconds=1, tasks=6, parallelism=2)
    world.feed("workflows", "uid-wide", workflow("wide", wide))
    run_on(world, 0.2)
    widen = world.server.patch_job

    async def unanswered(*arguments: Any) -> Any:
        made = await widen(*arguments)
        if answer == "late":
            await asyncio.sleep(3600.0)
            return made
        world.server.unread = 99
        raise ClusterError(0, "ServerDisconnectedError", "")

    async def widen_and_end() -> None:
        edit(world, "uid-wide", stages=[{**wide, "parallelism": 5}])
        await world.run_until(world.now_s + 1.0)
        assert world.reconciler._applier.starting, "the API server does not say yet"
        complete(world, "wide", 6)
        world.feed("workflows", "uid-next", workflow("next", stage("a", estimateSeconds=1, slots=5)))
        await world.run_until(world.now_s + 20.0)
        world.reconciler.close()

    world.server.patch_job = unanswered  # type: ignore[method-assign]
    end_s = world.now_s + 1.0
    asyncio.run(widen_and_end())
    told = status_of(world, "uid-wide")
    assert condition(world, "uid-wide", "Succeeded")[0] == "True"
    assert parse(told["completionTime"]) == pytest.approx(end_s, abs=0.01)
    assert "next" in world.started, "its executors are free"


def test_a_job_that_is_not_seen_since_it_was_widened_keeps_what_it_was_given() -> None:
    world = World(executors=4)
    world.reconciler._seat._policy = registry.load("sjf")
    world.feed("workflows", "uid-wide", workflow("wide", stage("a", estimateSeconds=9, tasks=9), arrival_s=T0 + 1.0))
    run_on(world, 2.0)
    (uid,) = [job["metadata"]["uid"] for job in world.server.jobs if "wide" in job["metadata"]["name"]]
    before = world.server.objects[uid]["spec"]["parallelism"]
    world.server.strips = True
    complete(world, "short")
    run_on(world, 0.1)
    after = world.server.objects[uid]["spec"]["parallelism"]
    assert before < after
    raw = world.server.objects[uid]
    world.store.remove("jobs", uid, uid, raw["metadata"]["resourceVersion"])
    world.server.busy = 0  # no status is written
    asyncio.run(world.reconciler.reconcile())
    (known,) = [known for known in world.reconciler._observer.views.values() if known.missing]
    assert known.missing == {"a": (after, 1)}


def test_a_job_that_is_not_seen_keeps_its_executors_when_an_edit_takes_its_stage_out() -> None:
    world = begun(executors=1)
    unlabel(world)
    world.server.forbids = True
    edit(world, SHORT, stages=[stage("b", estimateSeconds=9)])
    run_on(world, 5.0)
    assert status_of(world, "p")["busy"] == 1
    assert _begun_of(world, "short") == ["a"]


def test_a_job_that_is_not_seen_counts_towards_the_parallelism_of_its_workflow() -> None:
    world = World(executors=9)
    world.server.strips = True
    stages = [stage("a", estimateSeconds=9), stage("b", estimateSeconds=9, tasks=2)]
    world.feed("workflows", "uid-w", workflow("w", *stages, parallelism=2, arrival_s=T0 + 1.0))
    run_on(world, 60.0)
    of_w = [job for job in world.server.jobs if job["metadata"]["labels"]["fermata.dev/workflow"] == "w"]
    assert sum(job["spec"]["parallelism"] for job in of_w) <= 2


def test_a_stage_that_an_edit_takes_out_counts_towards_the_parallelism_of_its_workflow_until_it_is_stopped() -> None:
    world = World(executors=9)
    world.feed("workflows", "uid-w", workflow("w", stage("a"), parallelism=1, arrival_s=T0 + 1.0))
    run_on(world, 1.0)
    world.server.forbids = True
    edit(world, "uid-w", stages=[stage("b")])
    run_on(world, 20.0)
    assert _begun_of(world, "w") == ["a"]
    world.server.forbids = False
    run_on(world, 31.0)
    assert _begun_of(world, "w") == ["a", "b"]


def _begun_of(world: World, name: str) -> list[str]:
    """The stages of a workflow that were started."""
    labels = [job["metadata"]["labels"] for job in world.server.jobs]
    return [row["fermata.dev/stage"] for row in labels if row["fermata.dev/workflow"] == name]


@pytest.mark.parametrize("killed", [False, True])
def test_a_stage_whose_job_is_stripped_of_its_labels_when_it_is_created_has_started(killed: bool) -> None:
    world = World(executors=1)
    world.server.strips = True
    run_on(world, 10.0)
    if killed:  # before the status was written
        raw = world.server.objects[SHORT]
        world.server.put(SHORT, {**raw, "status": {}})
        world.start_operator()
        run_on(world, 10.0)
    assert status_of(world, SHORT)["stages"][0]["reason"] == "JobUnseen"
    assert (status_of(world, "p")["busy"], len(world.server.jobs)) == (1, 1)
    world.feed("workflows", "uid-next", workflow("next", stage("a")))
    run_on(world, 1.0)
    told = "needs 1 executor, 0 of 1 free, 1 under Jobs that are not seen; "
    assert status_of(world, "uid-next")["stages"][0]["message"].startswith(told)
    world.server.strips = False
    run_on(world, 31.0)
    (job,) = world.server.jobs
    assert world.server.objects[job["metadata"]["uid"]]["metadata"]["labels"]["fermata.dev/pool"] == "pool"
    assert (status_of(world, SHORT)["stages"][0]["reason"], status_of(world, "p")["busy"]) == ("", 1)


def test_a_job_that_is_stripped_of_its_labels_when_it_is_created_is_looked_for_at_once() -> None:
    world = World(executors=1)
    world.reconciler._seat._policy = registry.load("fifo")
    run_on(world, 20.0)
    (first,) = world.started
    world.server.strips = True
    complete(world, first)
    assert asyncio.run(world.reconciler.reconcile()) <= world.now_s, "all statuses are written, and nothing else is due"
    assert len(world.started) == 2


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("gives_back", [True, False])
def test_a_job_that_is_stripped_of_its_owner_when_it_is_created_is_given_it_back(
    killed: bool, gives_back: bool, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(executors=1)
    world.server.disowns = True
    asyncio.run(world.reconciler.reconcile())
    (job,) = world.server.jobs
    uid = job["metadata"]["uid"]
    if killed:  # before the status was written
        raw = world.server.objects[SHORT]
        world.server.put(SHORT, {**raw, "status": {}})
        world.start_operator()
        asyncio.run(world.reconciler.reconcile())
    world.server.disowns = not gives_back
    world.feed("workflows", "uid-next", workflow("next", stage("a")))
    run_on(world, 31.0)
    assert (len(world.server.jobs), status_of(world, "p")["busy"]) == (1, 1)
    (row,) = status_of(world, SHORT)["stages"]
    if gives_back:
        (owner,) = world.server.objects[uid]["metadata"]["ownerReferences"]
        assert (owner["uid"], owner["controller"], owner["blockOwnerDeletion"]) == (SHORT, True, True)
        assert (row["state"], row["reason"]) == ("Running", "")
        assert "had lost its labels or its owner, and has them again" in caplog.text
    else:
        assert (row["state"], row["reason"]) == ("Running", "JobUnseen")
        assert row["message"] == "its Job is not seen: somebody takes off the owner that it is given"
        assert "has them again" not in caplog.text
    complete(world, "short")
    run_on(world, 31.0)
    assert condition(world, SHORT, "Succeeded") == ("True", "AllStagesSucceeded")
    assert "next" in world.started


def test_a_job_that_somebody_else_makes_under_the_name_of_a_stages_job_is_not_stopped() -> None:
    world = begun()
    (job,) = world.server.jobs
    uid = job["metadata"]["uid"]
    raw = world.server.objects[uid]
    world.server.put(uid, {**raw, "metadata": {**raw["metadata"], "uid": "another", "ownerReferences": []}})
    edit(world, SHORT, stages=[stage("b")])  # nobody has seen it yet
    run_on(world, 1.0)
    assert world.server.patched_s
    assert not world.server.objects[uid]["spec"].get("suspend")


@pytest.mark.parametrize(
    ("how", "reason", "message"),
    [
        ("deleted", "JobDeleted", "the Job of stage 'a' was deleted before it finished"),
        ("disowned", "JobNameTaken", "belongs to this workflow no more: somebody has changed its owner and its labels"),
        ("taken", "JobNameTaken", "belongs to this workflow no more: somebody has changed its owner"),
    ],
)
def test_a_job_that_is_gone_or_not_its_workflows_any_more_has_failed_its_stage(
    how: str, reason: str, message: str
) -> None:
    world = begun()
    uid = unlabel(world)
    raw = world.server.objects.pop(uid)
    if how != "deleted":
        owners = [{"uid": "another", "controller": True}] if how == "taken" else []
        raw = world.server.put(uid, {**raw, "metadata": {**raw["metadata"], "ownerReferences": owners}})
    run_on(world, 1.0)
    assert condition(world, SHORT, "Succeeded") == ("False", "StageFailed")
    (row,) = status_of(world, SHORT)["stages"]
    assert row["reason"] == reason
    assert row["message"].endswith(message)
    assert not world.server.patched_s, "it is no more this operator's to change"
    assert raw["metadata"]["labels"] == {}, "it is nothing to write on"


@pytest.mark.parametrize(
    "text", ["nan", "inf", "-7", "1e-320", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"]
)
@pytest.mark.parametrize("key", ["ready-time", "start-time", "held-seconds", "estimate-seconds"])
def test_nonsense_in_the_annotations_of_a_job_harms_nobody(key: str, text: str) -> None:
    world = begun()
    (job,) = world.server.jobs
    raw = world.server.objects[job["metadata"]["uid"]]
    notes = raw["metadata"]["annotations"] | {f"fermata.dev/{key}": text}
    meta = {**raw["metadata"], "annotations": notes, "creationTimestamp": render(T0 + 1.0)}
    world.feed("jobs", job["metadata"]["uid"], {**raw, "metadata": meta})
    run_on(world, 3.0)
    complete(world, "short")
    run_on(world, 3.0)
    assert condition(world, SHORT, "Succeeded") == ("True", "AllStagesSucceeded")
    (row,) = status_of(world, SHORT)["stages"]
    assert row["runSeconds"] == pytest.approx(4.0, abs=0.1)
    assert 0.0 <= row["heldSeconds"] + row["waitSeconds"] <= 1.0
    assert math.isfinite(sum(world.reconciler._observer.estimates.trust))


def test_a_job_that_is_being_deleted_takes_no_executors_from_others() -> None:
    world = World(executors=1)
    run_on(world, 1.0)
    (job,) = world.server.jobs
    raw = world.server.objects[job["metadata"]["uid"]]
    meta = {**raw["metadata"], "deletionTimestamp": render(world.now_s), "finalizers": ["example.com/slow"]}
    world.feed("jobs", job["metadata"]["uid"], {**raw, "metadata": meta})
    world.feed("workflows", "uid-w", workflow("w", stage("a", estimateSeconds=9), arrival_s=T0 + 1.5))
    run_on(world, 5.0)
    assert world.started.keys() == {"short", "w"}


def test_the_deadline_of_a_running_workflow_holds_without_its_pool() -> None:
    world = World()
    world.feed("workflows", "uid-w", workflow("w", stage("a"), activeDeadlineSeconds=4))
    run_on(world, 0.5)
    assert "w" in world.started
    delete_pool(world)
    run_on(world, 10.0)
    assert condition(world, "uid-w", "Accepted") == ("False", "PoolNotFound")
    assert condition(world, "uid-w", "Succeeded") == ("False", "DeadlineExceeded")
    (job,) = [job for job in world.server.jobs if job["metadata"]["labels"]["fermata.dev/workflow"] == "w"]
    assert world.server.objects[job["metadata"]["uid"]]["spec"]["suspend"]


def test_the_deadline_of_a_workflow_whose_pool_never_was_holds() -> None:
    world = World()
    delete_pool(world)
    world.feed("workflows", "uid-w", workflow("w", stage("a"), activeDeadlineSeconds=3))
    run_on(world, 1.0)
    assert condition(world, "uid-w", "Succeeded") == ("Unknown", "PoolNotFound")
    run_on(world, 10.0)
    assert condition(world, "uid-w", "Succeeded") == ("False", "DeadlineExceeded")


def test_what_is_held_and_given_a_parent_is_held_no_more_and_later_begins_anew() -> None:
    world = begun()
    assert world.long["state"] == "Held"
    stages = world.server.objects["uid-long"]["spec"]["stages"]
    edit(world, "uid-long", stages=[{**stages[0], "dependsOn": ["first"]}, stage("first", estimateSeconds=9)])
    run_on(world, 3.0)
    rows = {row["name"]: row for row in status_of(world, "uid-long")["stages"]}
    assert rows["a"]["state"] == "Pending"
    assert rows["a"].get("heldSince") is None
    assert rows["a"].get("holdUntil") is None
    edit(world, "uid-long", stages=stages)
    run_on(world, 3.0)
    assert parse(world.long["heldSince"]) > T0 + 4.0


def test_nothing_is_held_while_its_pool_is_gone() -> None:
    world = begun()
    assert condition(world, "uid-long", "Held")[0] == "True"
    delete_pool(world)
    run_on(world, 60.0)
    assert condition(world, "uid-long", "Held")[0] == "False"
    assert condition(world, "uid-long", "Accepted") == ("False", "PoolNotFound")
    held_s = status_of(world, "uid-long")["heldSeconds"]
    assert held_s == pytest.approx(1.0, abs=0.1)
    assert "heldSince" not in status_of(world, "uid-long") or status_of(world, "uid-long")["heldSince"] is None
    world.feed("executorpools", "p", {**world.pool, "metadata": {**world.pool["metadata"], "uid": "p2"}})
    run_on(world, 5.0)
    assert condition(world, "uid-long", "Accepted")[0] == "True"


@pytest.mark.parametrize("ended", [True, False])
@pytest.mark.parametrize("how", ["pool", "stage"])
def test_a_stage_that_has_started_needs_no_room_in_its_pool_any_more(how: str, ended: bool) -> None:
    world = World(executors=4)
    wide, then = stage("a", slots=3), stage("b", "a")
    world.feed("workflows", "uid-w", workflow("w", wide, then))
    run_on(world, 2.0)
    assert "w" in world.started
    if ended:
        complete(world, "w")
    if how == "pool":
        edit(world, "p", executors=2)
    else:
        edit(world, "uid-w", stages=[{**wide, "slots": 9}, then])
    world.feed("workflows", "uid-next", workflow("next", stage("a", slots=3)))
    run_on(world, 3.0)
    world.start_operator()  # it knows what the API holds, and nothing else
    run_on(world, 3.0)
    assert condition(world, "uid-w", "Accepted") == ("True", "Valid")
    assert condition(world, "uid-next", "Accepted")[1] == ("TooManySlots" if how == "pool" else "Valid")
    for _ in range(2):
        complete(world, "short")
        complete(world, "w")
        run_on(world, 3.0)
    assert condition(world, "uid-w", "Succeeded")[0] == "True"


@pytest.mark.parametrize("restarted", [True, False])
def test_nothing_is_held_of_a_workflow_that_cannot_be_read(restarted: bool) -> None:
    world = begun()
    edit(world, "uid-long", priority="that of another version")
    run_on(world, 58.0)
    assert condition(world, "uid-long", "Accepted") == ("False", "InvalidSpec")
    assert condition(world, "uid-long", "Held") == condition(world, "uid-long", "Running") == ("False", "Rejected")
    status = status_of(world, "uid-long")
    assert (status["heldSeconds"], status["heldSince"]) == (pytest.approx(1.0), None)
    assert (world.long["state"], world.long["heldSeconds"]) == ("Waiting", pytest.approx(1.0))
    assert not {"heldSince", "holdUntil"} & world.long.keys()
    if restarted:
        world.start_operator()
    edit(world, "uid-long", priority=0)
    run_on(world, 20.0)
    assert parse(world.long["heldSince"]) == pytest.approx(T0 + 60.0, abs=0.1)
    world.annotate("uid-long", "*")
    run_on(world, 3.0)
    assert world.long["waitSeconds"] == pytest.approx(58.0)
    assert world.long["heldSeconds"] == pytest.approx(1.0 + 20.0)


def load(world: World) -> None:
    """Let the policy that the pool asks for be loaded, which takes no time."""

    async def loaded() -> None:
        await world.reconciler.reconcile()
        if loading := world.reconciler._seat._loading:  # a seat that was empty has waited for it
            await asyncio.wait({loading})
            await world.reconciler.reconcile()

    asyncio.run(loaded())


def test_the_policy_of_a_workflow_is_the_one_that_decided_last() -> None:
    world = begun()
    uids = (SHORT, "uid-long")
    assert [status_of(world, uid)["policy"] for uid in uids] == ["holder", "holder"]
    edit(world, "p", policy={"name": "fifo"})
    load(world)
    run_on(world, 20.0)  # what was committed to ends first
    assert "long" in world.started
    assert [status_of(world, uid)["policy"] for uid in uids] == ["holder", "fifo"]
    complete(world, "long")
    run_on(world, 3.0)
    assert condition(world, "uid-long", "Succeeded")[0] == "True"
    assert [status_of(world, uid)["policy"] for uid in uids] == ["holder", "fifo"]


@pytest.mark.parametrize(("wanted", "decides"), [("fifo", "fifo"), ("nonsense", "sjf")])
def test_a_workflow_that_waits_names_the_policy_of_its_pool_as_soon_as_another_one_decides(
    wanted: str, decides: str
) -> None:
    world = World(executors=1)
    run_on(world, 5.0)
    assert (world.long["state"], status_of(world, "uid-long")["policy"]) == ("Waiting", "holder")
    edit(world, "p", policy={"name": wanted})
    load(world)
    run_on(world, 5.0)
    assert status_of(world, "uid-long")["policy"] == status_of(world, "p")["policy"] == decides
    assert status_of(world, SHORT)["policy"] == "holder", "which it was started by"


def test_a_pool_comes_back_without_an_event_for_a_policy_that_could_not_be_loaded() -> None:
    world = begun()
    edit(world, "p", policy={"name": "nonsense"})
    load(world)
    failed_s = world.now_s
    run_on(world, 12.0)
    assert world.started.keys() == {"short", "long"}, "nothing else is due"
    assert asyncio.run(world.reconciler.reconcile()) == pytest.approx(failed_s + RETRY_LOAD_S)


def test_no_event_says_that_a_stage_of_a_suspended_workflow_waits_for_its_parallelism() -> None:
    world = World(executors=4)
    world.feed("workflows", "uid-w", workflow("w", stage("a", estimateSeconds=9), parallelism=1, arrival_s=T0))
    run_on(world, 3.0)
    edit(world, "uid-w", suspend=True, stages=[stage("a", estimateSeconds=9), stage("b", estimateSeconds=9)])
    run_on(world, 5.0)
    assert [(row["state"], row["reason"]) for row in status_of(world, "uid-w")["stages"]][1] == ("Waiting", "Suspended")
    assert "StageWaiting" not in {row["reason"] for row in world.events() if row["involvedObject"]["name"] == "w"}


def paused(**pool: Any) -> World:
    """A pool whose policy may not hold, by its status, with an operator that was just started."""
    world = World(**pool)
    told = {
        "type": "HoldingPaused", "status": "True", "reason": "HoldingCosts", "message": "",
        "observedGeneration": 1, "lastTransitionTime": render(T0),
    }  # fmt: skip
    world.server.objects["p"]["status"] = {"conditions": [told]}
    world.start_operator()
    world.reconciler._seat._policy = registry.load("sjf")  # the pool's own: another one would end the pause
    run_on(world, 3.0)
    assert condition(world, "p", "HoldingPaused") == ("True", "HoldingCosts")
    return world


def test_a_pause_ends_before_another_policy_decides_for_the_first_time() -> None:
    world = paused(executors=3)
    world.now_s += 3.0  # statuses of pools are not written all the time
    world.reconciler._seat._policy = Holder()
    world.feed("workflows", "uid-next", workflow("next", stage("a", estimateSeconds=900), arrival_s=world.now_s))
    asyncio.run(world.reconciler.reconcile())
    assert condition(world, "p", "HoldingPaused") == ("False", "HoldingAllowed")
    assert "next" not in world.started, "the substitute decided"


def test_a_pause_that_begins_when_the_policy_has_decided_is_told_with_the_next_decision() -> None:
    world = begun()
    tell = world.server.patch_workflow_status

    async def pause(*arguments: Any) -> dict[str, Any]:
        world.reconciler._holding._paused = True  # a replay ends, which wakes the pool
        return await tell(*arguments)

    world.server.patch_workflow_status = pause  # type: ignore[method-assign]
    told = []
    for name in ("first", "second"):
        world.now_s += 3.0  # statuses of pools are not written all the time
        world.feed("workflows", f"uid-{name}", workflow(name, stage("a"), arrival_s=world.now_s))
        asyncio.run(world.reconciler.reconcile())
        told.append((condition(world, "p", "HoldingPaused")[0], status_of(world, "p")["policy"]))
    assert told == [("False", "holder"), ("True", "sjf")]


@pytest.mark.parametrize("seen_gone", [True, False])
def test_a_pool_that_is_made_again_is_not_paused_for_what_its_predecessor_cost(seen_gone: bool) -> None:
    world = paused()
    delete_pool(world)
    if seen_gone:
        run_on(world, 1.0)
    meta = {"name": "pool", "uid": "again", "generation": 1}
    world.feed("executorpools", "again", {"metadata": meta, "spec": world.pool["spec"]})
    asyncio.run(world.reconciler.reconcile())
    assert condition(world, "again", "HoldingPaused") == ("False", "HoldingAllowed")


@pytest.mark.parametrize("first", ["pods", "jobs"])
def test_a_workflow_whose_namespace_is_being_deleted_has_not_failed_and_starts_nothing(first: str) -> None:
    world = begun(executors=2)
    meta = {"name": "default", "uid": "n", "resourceVersion": "1", "deletionTimestamp": render(world.now_s)}
    world.store.touched.clear()
    world.store.put("namespaces", {"metadata": meta})
    assert world.store.touched == {"pool": {SHORT, "uid-long"}}
    (job,) = world.server.jobs
    uid = job["metadata"]["uid"]
    if first == "pods":
        failed = {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "x"}
        world.feed("jobs", uid, {**world.server.objects[uid], "status": {"failed": 1, "conditions": [failed]}})
        run_on(world, 2.0)
    world.server.objects.pop(uid)
    world.store.remove("jobs", uid)
    run_on(world, 30.0)
    assert condition(world, SHORT, "Succeeded")[0] == "Unknown"
    assert condition(world, "uid-long", "Succeeded") == ("Unknown", "Suspended")
    assert world.started.keys() == {"short"}


@pytest.mark.parametrize("propagation", ["Foreground", "Background"])
def test_a_deleted_workflow_that_a_finalizer_holds_up_is_suspended_and_nothing_of_it_runs_for_ever(
    propagation: str,
) -> None:
    world = World()
    stages = stage("a", estimateSeconds=9), stage("b", "a")
    world.feed("workflows", "uid-w", workflow("w", *stages, arrival_s=world.now_s, activeDeadlineSeconds=20))
    run_on(world, 3.0)
    raw = world.server.objects["uid-w"]
    meta = {**raw["metadata"], "deletionTimestamp": render(world.now_s), "finalizers": ["example.com/slow"]}
    world.feed("workflows", "uid-w", {**raw, "metadata": meta})
    run_on(world, 3.0)
    assert condition(world, "uid-w", "Running") == ("True", "Running"), "what runs goes on"
    begun = [status_of(world, "uid-w")["stages"][0][key] for key in ("startTime", "jobName")]
    if propagation == "Foreground":
        (job,) = [job for job in world.server.jobs if job["metadata"]["labels"]["fermata.dev/workflow"] == "w"]
        world.server.objects.pop(job["metadata"]["uid"])
        world.store.remove("jobs", job["metadata"]["uid"])
    else:
        complete(world, "w")
    for restarted in (False, True):
        if restarted:
            world.start_operator()
        for _ in range(2):  # before the deadline, and after it
            run_on(world, 12.0)
            assert condition(world, "uid-w", "Running") == ("False", "Suspended")
            assert condition(world, "uid-w", "Succeeded") == ("Unknown", "Suspended")
            rows = status_of(world, "uid-w")["stages"]
            states = ["Waiting", "Pending"] if propagation == "Foreground" else ["Succeeded", "Waiting"]
            assert [row["state"] for row in rows] == states
            assert [rows[0][key] for key in ("startTime", "jobName")] == begun, "that it began is not forgotten"
    assert sum(job["metadata"]["labels"]["fermata.dev/workflow"] == "w" for job in world.server.jobs) == 1


@pytest.mark.parametrize("seen_gone", [True, False])
def test_a_workflow_in_a_namespace_that_is_made_again_starts_although_it_is_seen_before_that(seen_gone: bool) -> None:
    world = begun(executors=2)
    gone = {"name": "default", "uid": "n", "resourceVersion": "1", "deletionTimestamp": render(world.now_s)}
    world.store.put("namespaces", {"metadata": gone})
    world.feed("workflows", "uid-next", workflow("next", stage("a", estimateSeconds=9), arrival_s=world.now_s))
    run_on(world, 1.0)
    assert "next" not in world.started
    if seen_gone:
        world.store.remove("namespaces", "n", "default")
    again = {"name": "default", "uid": "again", "resourceVersion": "9", "creationTimestamp": render(world.now_s)}
    world.store.put("namespaces", {"metadata": again})
    run_on(world, 1.0)
    assert "next" in world.started


def test_a_pool_that_is_gone_has_no_gauges() -> None:
    world = begun()
    registry = world.metrics.registry
    assert registry.get_sample_value("fermata_pool_policy_ready", {"pool": "pool"}) is not None
    delete_pool(world)
    run_on(world, 1.0)
    gauges = [sample for family in registry.collect() if family.type == "gauge" for sample in family.samples]
    assert [sample for sample in gauges if sample.labels.get("pool") == "pool"] == []


def test_a_pool_that_is_switched_off_is_nothing_to_be_alerted_about() -> None:
    world = begun()
    registry = world.metrics.registry
    for mode, ready in (("Off", None), ("Enforce", 1.0)):
        edit(world, "p", mode=mode)
        run_on(world, 1.0)
        assert registry.get_sample_value("fermata_pool_policy_ready", {"pool": "pool"}) == ready


@pytest.mark.parametrize("operator", ["NotIn", "DoesNotExist"])
def test_a_namespace_of_which_nothing_is_known_yet_is_not_taken_for_one_without_labels(operator: str) -> None:
    values = {"values": ["prod"]} if operator == "NotIn" else {}
    world = World(namespaceSelector={"matchExpressions": [{"key": "env", "operator": operator, **values}]})
    run_on(world, 1.0)
    assert world.started == {}
    assert condition(world, SHORT, "Accepted") == ("False", "NamespaceNotAllowed")
    name = world.server.objects[SHORT]["metadata"]["namespace"]
    for labels, started in (({"env": "prod"}, set()), ({}, {"short"})):
        world.feed("namespaces", "n", {"metadata": {"name": name, "uid": "n", "labels": labels}})
        run_on(world, 1.0)
        assert world.started.keys() == started


def test_an_operator_of_one_namespace_says_nothing_of_a_pool_that_does_not_take_it() -> None:
    world = World("default", namespaceSelector={"matchLabels": {"team": "a"}})
    for labels in ({"team": "b"}, {"team": "a"}, {}):
        ours, before = labels == {"team": "a"}, world.server.objects["p"]
        world.feed("namespaces", "n", {"metadata": {"name": "default", "uid": "n", "labels": labels}})
        run_on(world, 3.0)
        assert (world.server.objects["p"] != before) == ours
        gauge = world.metrics.registry.get_sample_value("fermata_pool_executors", {"pool": "pool", "state": "busy"})
        assert (gauge is not None) == ours
        assert ("ExecutorPool" in {event["involvedObject"]["kind"] for event in world.events()}) == ours
        assert condition(world, SHORT, "Accepted")[1] == ("Valid" if ours else "NamespaceNotAllowed")


def test_an_operator_of_one_namespace_tells_of_a_selector_that_no_namespace_could_meet() -> None:
    world = World("default", namespaceSelector={"matchLabels": {"no key": "a"}})
    world.feed("namespaces", "n", {"metadata": {"name": "default", "uid": "n", "labels": {}}})
    run_on(world, 3.0)
    assert condition(world, "p", "Ready") == ("False", "InvalidSpec")
    assert world.started == {}


def test_a_pod_without_a_job_takes_executors_of_no_pool_that_does_not_take_its_namespace() -> None:
    world = World(executors=3, namespaceSelector={"matchLabels": {"env": "prod"}})
    for name, labels in (("default", {"env": "prod"}), ("another", {})):
        world.feed("namespaces", name, {"metadata": {"name": name, "uid": name, "labels": labels}})
        labels = {"fermata.dev/pool": "pool", "fermata.dev/stage": "a"}
        meta = {"name": f"pod-{name}", "uid": f"pod-{name}", "namespace": name, "deletionTimestamp": render(T0)}
        meta |= {"labels": labels, "annotations": {"fermata.dev/slots": "2"}}
        meta["ownerReferences"] = [{"uid": f"gone-{name}", "controller": True}]
        world.store.put("pods", {"metadata": meta, "status": {"phase": "Running"}})
    run_on(world, 3.0)
    assert world.server.objects["p"]["status"]["busy"] == 3, "the short one, and the pod of a namespace that is taken"


def cramped() -> World:
    """A pool with a workflow `w` of ten stages, beside whose spec there is no room for all of them in its status."""
    world = World(executors=20)
    stages = [stage("a"), *(stage(f"b{number}", "a") for number in range(9))]
    world.feed("workflows", "uid-w", workflow("w", *stages))
    world.server.room = len(json.dumps(world.server.objects["uid-w"])) + 3000
    run_on(world, 3.0)
    return world


def test_a_workflow_beside_whose_spec_its_stages_find_no_room_is_told_without_them() -> None:
    world = cramped()
    assert status_of(world, "uid-w")["stages"] == []
    told = [(event["reason"], event["type"]) for event in world.events() if event["involvedObject"]["name"] == "w"]
    assert told.count(("StagesNotTold", "Warning")) == 1
    says = {row["type"]: (row["status"], row["message"][:21]) for row in status_of(world, "uid-w")["conditions"]}
    assert says["Accepted"] == ("True", "etcd has no room for ")
    assert says["Succeeded"] == ("Unknown", "")
    world.start_operator()
    for _ in range(2):
        complete(world, "w")
        run_on(world, 3.0)
    assert condition(world, "uid-w", "Succeeded") == ("True", "AllStagesSucceeded")
    status = status_of(world, "uid-w")
    assert (status["stages"], status["progress"]) == ([], "10/10")
    assert status["runSeconds"] == pytest.approx(status["jctSeconds"], abs=0.01)


def test_the_stages_of_a_workflow_are_told_again_when_an_edit_makes_room() -> None:
    world = cramped()
    edit(world, "uid-w", stages=world.server.objects["uid-w"]["spec"]["stages"][:3])
    run_on(world, 3.0)
    assert len(status_of(world, "uid-w")["stages"]) == 3
    assert [row["message"] for row in status_of(world, "uid-w")["conditions"] if row["type"] == "Accepted"] == [""]


def test_a_workflow_that_an_edit_makes_unreadable_is_told_so_where_its_stages_find_no_room() -> None:
    world = begun()
    edit(world, SHORT, priority="x" * 3000)
    world.server.room = len(json.dumps(world.server.objects[SHORT])) + 100
    run_on(world, 3.0)
    assert condition(world, SHORT, "Accepted") == ("False", "InvalidSpec")
    assert status_of(world, SHORT)["stages"] == []


@pytest.mark.parametrize("busy", [True, False])
def test_a_workflow_that_came_while_the_policy_was_asked_is_told_of_once_it_was_asked_about_it(busy: bool) -> None:
    world = World(executors=1)
    create = world.server.create_job

    async def create_slowly(job: dict[str, Any]) -> dict[str, Any]:
        if "uid-next" not in world.server.objects:
            world.feed("workflows", "uid-next", workflow("next", stage("a", estimateSeconds=5)))
            world.busy = busy  # as it is where that event wakes the pool
        return await create(job)

    world.server.create_job = create_slowly  # type: ignore[method-assign]
    asyncio.run(world.reconciler.reconcile())
    assert bool(status_of(world, "uid-next")) is not busy, "else nobody would come back for it"
    world.busy = False
    asyncio.run(world.reconciler.reconcile())
    assert status_of(world, "uid-next")["stages"][0]["state"] == "Waiting"


@pytest.mark.parametrize("edited", [True, False])
def test_what_is_held_is_told_anew_by_an_operator_whose_predecessor_saw_no_edit_of_the_pool(edited: bool) -> None:
    world = begun(maxHoldSeconds=600)
    before = world.long["message"]
    assert "at most 10 min more" in before
    if edited:
        edit(world, "p", maxHoldSeconds=60)
    loaded, world.reconciler = world.reconciler._seat, PoolReconciler("pool", world.reconciler._tools)
    world.reconciler._seat = loaded  # or it would be another policy that decides first
    run_on(world, 10.0)
    assert world.long["state"] == "Held"
    if edited:
        assert world.long["message"].endswith("; at most 59 s more; decided again in 9.0 s")
        assert condition(world, "uid-long", "Held") == ("True", "HeldByPolicy")
    else:
        assert world.long["message"] == before, "its numbers are those of the moment when its reason began"


def test_what_was_decided_by_an_earlier_spec_of_a_pool_is_not_told_as_that_of_the_latest() -> None:
    world = World(executors=1)
    create = world.server.create_job

    async def create_slowly(job: dict[str, Any]) -> dict[str, Any]:
        edit(world, "p", mode="Off")
        return await create(job)

    world.server.create_job = create_slowly  # type: ignore[method-assign]
    before, world.now_s = status_of(world, "p"), world.now_s + 5.0  # it may be written again
    asyncio.run(world.reconciler.reconcile())
    assert status_of(world, "p") == before
    run_on(world, 3.0)
    assert condition(world, "p", "PolicyReady") == ("False", "PolicyOff")
    assert status_of(world, "p")["observedGeneration"] == 2


def test_what_will_not_start_says_so_while_the_rest_runs_until_an_edit_takes_out_what_failed() -> None:
    world = World(executors=4)
    stages = stage("a"), stage("b", estimateSeconds=20), stage("c", "a"), stage("d", "c", "b")
    world.feed("workflows", "uid-w", workflow("w", *stages, arrival_s=T0 + 1.0, onFailure="Finish"))
    run_on(world, 3.0)
    end(world, "w", "a", "Failed")
    run_on(world, 3.0)
    why = ("Skipped", "NotStarted", "a stage that it depends on has failed")
    rows = {row["name"]: row for row in status_of(world, "uid-w")["stages"]}
    assert [row["state"] for row in rows.values()] == ["Failed", "Running", "Skipped", "Skipped"]
    assert all((rows[name]["state"], rows[name]["reason"], rows[name]["message"]) == why for name in ("c", "d"))
    edit(world, "uid-w", stages=[stages[1], stage("c"), stages[3]])
    run_on(world, 3.0)
    assert [row["state"] for row in status_of(world, "uid-w")["stages"]] == ["Running", "Running", "Pending"]


def test_a_job_that_a_restored_backup_lacks_has_failed_nothing() -> None:
    world = begun()
    uid = unlabel(world)
    del world.server.objects[uid]
    world.went_back = True
    run_on(world, 9.0)
    (row,) = status_of(world, SHORT)["stages"]
    message = "its Job is not seen: LeaseInDoubt: it was restored from a backup"
    assert (row["state"], row["reason"], row["message"]) == ("Running", "JobUnseen", message)
    world.went_back = False
    run_on(world, 9.0)
    assert status_of(world, SHORT)["stages"][0]["reason"] == "JobDeleted"


def test_nothing_is_stopped_in_a_restored_backup() -> None:
    world = begun()
    world.went_back = True
    edit(world, SHORT, stages=[stage("b")])
    run_on(world, 9.0)
    assert not world.server.patched_s
    world.went_back = False
    run_on(world, 9.0)
    assert len(world.server.patched_s) == 1
