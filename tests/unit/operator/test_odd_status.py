"""A status may be written by others, or by another version: whatever a CRD lets through stops no pool."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.operator.objects import DONE, T0, stage, workflow
from tests.unit.operator.world import World

from fermata.operator.times import render

TIMES = st.sampled_from([render(T0 - 50), render(T0), render(T0 + 3), render(T0 + 900), "0000-01-01T00:00:00Z",
                         "9999-12-31T23:59:59-12:00"])  # fmt: skip
SECONDS = st.sampled_from([0.0, -1.0, 0.001, 7.5, 1e300, -1e300])
COUNTS = st.sampled_from([0, 1, 2, -3, 2**31, 2**62])


def rows(name: str) -> st.SearchStrategy[dict[str, Any]]:
    """What may stand in a status about a stage: each field is there or not."""
    times = dict.fromkeys(("readyTime", "startTime", "completionTime", "heldSince", "holdUntil"), TIMES)
    seconds = dict.fromkeys(("waitSeconds", "heldSeconds", "runSeconds", "taskSeconds", "estimateSeconds"), SECONDS)
    counts = dict.fromkeys(("parallelism", "tasks", "active", "succeeded", "failed"), COUNTS)
    states = st.sampled_from(["Pending", "Waiting", "Held", "Running", "Succeeded", "Failed"])
    return st.fixed_dictionaries(
        {"name": st.just(name), "state": states},
        optional={**times, **seconds, **counts, "estimateSource": st.sampled_from(["", "estimateSeconds"])},
    )


STATUSES = st.fixed_dictionaries(
    {"stages": st.tuples(rows("a"), rows("b"), rows("gone")).flatmap(lambda of: st.permutations(of))},
    optional={
        **dict.fromkeys(("arrivalTime", "startTime", "completionTime", "heldSince", "suspendedTime"), TIMES),
        **dict.fromkeys(("jctSeconds", "waitSeconds", "heldSeconds", "runSeconds", "slowdown"), SECONDS),
        "policy": st.sampled_from(["", "sjf", "no such policy"]),
    },
)


@given(STATUSES, st.booleans())
@settings(max_examples=150, deadline=None)
def test_a_status_that_somebody_else_wrote_stops_no_pool(status: dict[str, Any], finished: bool) -> None:
    world = World(executors=4)
    if finished:  # the next run of its family learns from it
        world.feed("workflows", "uid-odd-1234", workflow("odd-1234", stage("a"), stage("b", "a"), status=status | DONE))
        status = {}
    world.feed("workflows", "uid-odd-5678", workflow("odd-5678", stage("a"), stage("b", "a"), status=status))
    asyncio.run(world.run_until(T0 + 5.0))
    assert "short" in world.started
