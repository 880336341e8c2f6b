"""Which finished workflows are deleted when their time to live is over, whatever becomes of them and of the others."""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.operator.objects import DONE, T0, stage, workflow
from tests.unit.operator.test_edits import edit, run_on
from tests.unit.operator.world import World

from fermata.operator.connection import ClusterError
from fermata.operator.expiry import Expiry
from fermata.operator.inflight import AT_ONCE
from fermata.operator.times import render


def _end(world: World, name: str, end_s: float = T0, **meta: Any) -> None:
    """Have a workflow that has ended and has five seconds to live."""
    status = {"completionTime": render(end_s), **DONE}
    raw = workflow(name, stage("a"), ttlSecondsAfterFinished=5, status=status)
    world.feed("workflows", f"uid-{name}", {**raw, "metadata": raw["metadata"] | meta})


@pytest.mark.parametrize("longer_s", [60, None])
def test_a_time_to_live_that_is_made_longer_and_then_as_it_was_counts_as_it_was(longer_s: int | None) -> None:
    world = World()
    _end(world, "w")
    run_on(world, 1.0)
    edit(world, "uid-w", ttlSecondsAfterFinished=longer_s)
    run_on(world, 20.0)
    assert not world.server.asked_to_delete_s
    edit(world, "uid-w", ttlSecondsAfterFinished=5)
    run_on(world, 0.1)
    assert world.server.deleted == ["uid-w"]


@pytest.mark.parametrize("longer_s", [60, 5])
def test_what_has_changed_since_a_watch_told_of_it_is_not_deleted_for_what_it_was(
    longer_s: int, caplog: pytest.LogCaptureFixture
) -> None:
    world = World()
    _end(world, "w")
    run_on(world, 1.0)
    raw = world.server.objects["uid-w"]
    spec, meta = {**raw["spec"], "ttlSecondsAfterFinished": longer_s}, {**raw["metadata"], "generation": 2}
    edited = world.server.put("uid-w", {**raw, "metadata": meta, "spec": spec})
    run_on(world, 9.0)
    assert world.server.asked_to_delete_s
    assert not world.server.deleted
    assert not caplog.records, "it happens to anybody"
    world.store.put("workflows", edited)
    run_on(world, T0 + max(longer_s - 1.0, 15.0) - world.now_s)
    assert world.server.deleted == ([] if longer_s == 60 else ["uid-w"])
    run_on(world, 3.0)
    assert world.server.deleted == ["uid-w"]


@pytest.mark.parametrize("gone", [True, False])
def test_what_somebody_deletes_before_its_time_is_over_is_left_to_them(gone: bool) -> None:
    world = World()
    _end(world, "w")
    run_on(world, 1.0)
    if gone:
        world.store.remove("workflows", "uid-w", "w")
    else:  # something of theirs has to happen first
        _end(world, "w", deletionTimestamp=render(T0 + 2.0), finalizers=["theirs"])
    _end(world, "other")
    run_on(world, 30.0)
    assert world.server.deleted == ["uid-other"]
    assert len(world.server.asked_to_delete_s) == 1


def test_some_that_cannot_be_deleted_put_off_no_other_one() -> None:
    world = World()
    world.server.undeletable = [404] * AT_ONCE  # by a proxy that knows no such page
    for number in range(3 * AT_ONCE):
        _end(world, f"w{number}")
    run_on(world, 6.0)
    assert len(world.server.deleted) == 2 * AT_ONCE


def test_namespaces_in_which_nothing_may_be_deleted_put_off_no_other_one_and_are_told_of_each(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World()
    delete, statuses = world.server.delete_workflow, {"locked": 403, "broken": 500}

    async def refuse(namespace: str, name: str, uid: str, version: str) -> None:
        if namespace in statuses:
            raise ClusterError(statuses[namespace], "", "a bad moment")
        await delete(namespace, name, uid, version)

    monkeypatch.setattr(world.server, "delete_workflow", refuse)
    for namespace in (*statuses, "default"):
        for number in range(40):
            _end(world, f"{namespace}-{number}", namespace=namespace)
    run_on(world, 6.0)
    assert len(world.server.deleted) == 40
    statuses["broken"] = 403
    run_on(world, 40.0)
    told = [record.message for record in caplog.records if "not deleted" in record.message]
    assert sorted(message.replace(": not deleted, tried again", "") for message in told) == [
        "broken/broken-0: 403: a bad moment",
        "broken/broken-0: 500: a bad moment",
        "locked/locked-0: 403: a bad moment",
    ]


def test_a_namespace_in_which_nothing_could_be_deleted_is_not_put_off_for_longer_when_the_clock_is_set_back() -> None:
    world = World()
    world.server.undeletable = [403]
    _end(world, "w")
    run_on(world, 6.0)
    world.now_s -= 3600.0
    _end(world, "next", world.now_s)
    run_on(world, 6.0)
    assert world.server.deleted == ["uid-next"]


def test_a_deletion_that_is_refused_late_is_tried_again_without_an_event(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fermata.operator.inflight.PATIENCE_S", 0.0)
    world, woken, late = World(), list[str](), asyncio.Event()
    expiry = Expiry("pool", replace(world.reconciler._tools, wake=woken.append))
    _end(world, "w")
    expiry.note(world.store.workflows["uid-w"])

    async def refuse_late(*_: str) -> None:
        await late.wait()
        raise ClusterError(403, "", "you may not")

    async def go_on() -> None:
        await expiry.delete_due(T0 + 5.0)
        assert (woken, expiry.next_s) == ([], math.inf)
        late.set()
        for _ in range(10):  # turns of the loop, of which the refusal takes a few
            await asyncio.sleep(0)
        assert (woken, expiry.next_s) == (["pool"], world.now_s + 30.0)

    monkeypatch.setattr(world.server, "delete_workflow", refuse_late)
    asyncio.run(go_on())


def test_an_operator_that_ends_waits_for_no_deletion(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fermata.operator.inflight.PATIENCE_S", 0.0)
    world = World()

    async def never(*_: str) -> None:
        await asyncio.sleep(3600.0)

    async def end() -> None:
        await world.run_until(T0 + 6.0)
        assert len(asyncio.all_tasks()) == 2, "this one, and the deletion"
        world.reconciler.close()
        await asyncio.sleep(0)
        assert len(asyncio.all_tasks()) == 1

    monkeypatch.setattr(world.server, "delete_workflow", never)
    _end(world, "w")
    asyncio.run(end())
