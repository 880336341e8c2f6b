"""Starts that all fail alike: one of them is tried for all, and nobody waits behind what cannot be tried."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.operator.objects import T0, stage, workflow
from tests.unit.operator.test_edits import edit
from tests.unit.operator.world import World

from fermata.operator.connection import ClusterError
from fermata.policy import registry

NAMES = [f"w{number}" for number in range(40)]
HOOK = ClusterError(500, "InternalError", 'failed calling webhook "w.example.com": connection refused')
RIGHT = ClusterError(403, "Forbidden", 'jobs.batch is forbidden: User "fermata" cannot create resource "jobs"')
DENIAL = ClusterError(403, "Forbidden", 'admission webhook "w.example.com" denied the request: not on Sundays')
MUTATION = ClusterError(403, "Invalid", "policy 'p' with binding 'b' denied request: no such key: labels")  # of 1.35


def crowd(refusal: Callable[[str], ClusterError | None]) -> tuple[World, Counter[str]]:
    """Return a pool with forty stages that may be refused, and by workflow how often a Job of it was asked for."""
    world, asked = World(executors=99), Counter[str]()
    create = world.server.create_job

    async def take(job: dict[str, Any]) -> dict[str, Any]:
        name = job["metadata"]["labels"]["fermata.dev/workflow"]
        asked[name] += 1
        await asyncio.sleep(0)  # others ask meanwhile
        if error := refusal(name):
            raise error
        return await create(job)

    world.server.create_job = take  # type: ignore[method-assign]
    for name in NAMES:
        world.feed("workflows", f"uid-{name}", workflow(name, stage("a", estimateSeconds=9)))
    return world, asked


@pytest.mark.parametrize(("error", "at_most"), [(HOOK, 20), (RIGHT, 12)])
def test_of_starts_that_fail_alike_one_is_tried_for_all(error: ClusterError, at_most: int) -> None:
    is_mended = False
    world, asked = crowd(lambda name: None if is_mended or name not in NAMES else error)

    async def main() -> None:
        nonlocal is_mended
        await world.run_until(T0 + 100.0)
        assert asked.keys() >= set(NAMES), "what has not been tried may fare better"
        assert asked.total() <= 1 + len(NAMES) + at_most, "each of them is asked for again and again"
        for name in NAMES:
            (row,) = world.server.objects[f"uid-{name}"]["status"]["stages"]
            assert (row["reason"], row["message"]) == ("StartRetrying", f"not started, tried again: {error}")
        is_mended = True
        await world.run_until(T0 + 131.0)
        assert world.started.keys() == {"short", *NAMES}

    asyncio.run(main())


@pytest.mark.parametrize("denial", [DENIAL, MUTATION])
def test_what_is_denied_to_each_by_itself_is_tried_by_itself(denial: ClusterError) -> None:
    world, asked = crowd(lambda name: denial if name in NAMES else None)
    asyncio.run(world.run_until(T0 + 40.0))
    assert all(asked[name] > 5 for name in NAMES)


@pytest.mark.parametrize("mended", ["the policy", "a stage"])
def test_of_what_is_denied_to_a_workflow_one_stage_is_tried_for_all_until_an_edit(mended: str) -> None:
    world, asked = World(executors=99), Counter[str]()
    allowed: set[str] = {"a"}
    create = world.server.create_job

    async def take(job: dict[str, Any]) -> dict[str, Any]:
        meta = job["metadata"]
        name = meta["labels"]["fermata.dev/stage"]
        asked[name] += 1
        await asyncio.sleep(0)  # others ask meanwhile
        if name not in allowed:
            said = "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: not on Sundays"
            raise ClusterError(422, "Invalid", f'jobs.batch "{meta["name"]}" is forbidden: {said}')
        return await create(job)

    async def main() -> None:
        await world.run_until(T0 + 100.0)
        assert asked.keys() >= set(NAMES), "what has not been tried may fare better"
        assert asked.total() <= 1 + len(NAMES) + 12, "each of them is asked for again and again"
        allowed.update(NAMES if mended == "the policy" else NAMES[:1])
        if mended == "a stage":
            edit(world, "uid-many")
        await world.run_until(T0 + 131.0)
        made = {job["metadata"]["labels"]["fermata.dev/stage"] for job in world.server.jobs}
        assert made == allowed

    world.server.create_job = take  # type: ignore[method-assign]
    world.feed("workflows", "uid-many", workflow("many", *(stage(name, estimateSeconds=9) for name in NAMES)))
    asyncio.run(main())


def test_a_job_that_alone_is_at_fault_keeps_no_others_waiting() -> None:
    outage_ends_s = T0 + 100.0
    world, asked = crowd(lambda name: HOOK if name == "w0" or (name in NAMES and world.now_s < outage_ends_s) else None)

    async def main() -> None:
        await world.run_until(outage_ends_s + 20.0)
        assert world.started.keys() == {"short", *NAMES} - {"w0"}
        before = asked["w0"]
        await world.run_until(outage_ends_s + 60.0)
        assert asked["w0"] > before, "it is given up"

    asyncio.run(main())


def test_nobody_waits_behind_a_stage_that_may_not_start_any_more() -> None:
    is_mended = False
    world, _ = crowd(lambda name: None if is_mended or name not in NAMES else HOOK)

    async def main() -> None:
        nonlocal is_mended
        await world.run_until(T0 + 20.0)
        for name in NAMES[1:]:
            edit(world, f"uid-{name}", suspend=True)
        is_mended = True
        await world.run_until(T0 + 30.0)
        assert world.started.keys() == {"short", "w0"}

    asyncio.run(main())


def test_that_a_trouble_is_over_is_found_in_time_where_nothing_else_happens_in_the_pool() -> None:
    is_mended = False
    world, _ = crowd(lambda name: None if is_mended or name not in NAMES else HOOK)
    world.reconciler._seat._policy = registry.load("fifo")  # which holds nothing: a hold that ends calls the pool

    async def main() -> None:
        nonlocal is_mended
        await world.run_until(T0 + 100.0)
        is_mended = True
        await world.run_until(T0 + 109.0)
        assert world.started.keys() >= set(NAMES)

    asyncio.run(main())


def test_stages_that_share_a_trouble_and_had_to_wait_are_not_all_tried_when_there_are_executors_again() -> None:
    world, asked = crowd(lambda name: HOOK if name in NAMES else None)

    async def main() -> None:
        await world.run_until(T0 + 20.0)
        edit(world, "p", executors=1)
        await world.run_until(T0 + 150.0)
        before = asked.total()
        edit(world, "p", executors=99)
        await world.run_until(T0 + 150.1)
        assert 1 <= asked.total() - before <= 2

    asyncio.run(main())
