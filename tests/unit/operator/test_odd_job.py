"""Who may edit Jobs in a namespace may write what they like into those of stages: whatever that is stops no pool."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.unit.operator.objects import T0, stage, workflow
from tests.unit.operator.world import World

from fermata.operator.times import render

TIMES = ["", "soon", render(T0 - 50), render(T0 + 900), "0001-01-01T00:00:00+14:00", "0001-01-01T00:00:00Z",
         "9999-12-31T23:59:59Z", "9999-12-31T23:59:59.999999Z"]  # fmt: skip
SECONDS = ["", "-1", "nan", "inf", "1e300", "0", "1e-300", "315360000", "9" * 500]
NUMBERS = ["", "0", "-1", "٣", "1.5", "100000", "9" * 500]
ANNOTATIONS = {
    **dict.fromkeys(("ready-time", "start-time"), TIMES),
    **dict.fromkeys(("held-seconds", "estimate-seconds"), SECONDS),
    "slots": NUMBERS,
    "lanes": ["1@0", "1@-1", "1@nan", "1@1e308", "0@0 1@1e308", "9@0", "1@9@9", "x", "9" * 500 + "@0"],
    "stopped": ["", "Stopped", "no such reason", "x" * 5000],
    "policy": ["", "no such policy", "x" * 5000],
}
COUNTS = [0, 1, 2, 100_000, 2**31 - 1]


def changes() -> st.SearchStrategy[tuple[dict[str, str], dict[str, Any], dict[str, Any]]]:
    """What may stand in the annotations, the spec and the status of a Job: each field is there or not."""
    annotations = {f"fermata.dev/{key}": st.sampled_from(values) for key, values in ANNOTATIONS.items()}
    spec = {**dict.fromkeys(("parallelism", "completions"), st.sampled_from(COUNTS)), "suspend": st.booleans()}
    counts = dict.fromkeys(("active", "ready", "succeeded", "failed", "terminating"), st.sampled_from(COUNTS))
    kinds = st.sampled_from(["Complete", "Failed", "FailureTarget", "Suspended"])
    row = st.fixed_dictionaries({"type": kinds, "status": st.just("True"), "lastTransitionTime": st.just(render(T0))})
    return st.tuples(
        st.fixed_dictionaries({}, optional=annotations),
        st.fixed_dictionaries({}, optional=spec),
        st.fixed_dictionaries({}, optional={**counts, "conditions": st.lists(row, max_size=2)}),
    )


@given(changes(), st.booleans())
@example(({"fermata.dev/ready-time": "9999-12-31T23:59:59.999999Z"}, {}, {}), False)  # a float rounds it to 10000
@settings(max_examples=40, deadline=None)
def test_a_job_that_somebody_else_changed_stops_no_pool(
    changed: tuple[dict[str, str], dict[str, Any], dict[str, Any]], restarted: bool
) -> None:
    world = World(executors=4)
    world.feed("workflows", "uid-odd", workflow("odd", stage("a", tasks=2), stage("b", "a")))
    asyncio.run(world.run_until(T0 + 2.0))
    (uid,) = (job["metadata"]["uid"] for job in world.server.jobs if job["metadata"]["name"].startswith("odd"))
    raw, (annotations, spec, status) = world.server.objects[uid], changed
    meta = {**raw["metadata"], "annotations": raw["metadata"]["annotations"] | annotations}
    world.feed("jobs", uid, {**raw, "metadata": meta, "spec": raw["spec"] | spec, "status": status})
    if restarted:
        world.start_operator()
    asyncio.run(world.run_until(T0 + 5.0))
