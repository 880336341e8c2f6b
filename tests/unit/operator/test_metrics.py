"""What is counted, and under which labels."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.operator.objects import stage, workflow
from tests.unit.operator.test_edits import complete, run_on
from tests.unit.operator.world import Holder, World

from fermata.operator.metrics import POLICIES, Metrics
from fermata.operator.reconcile import PoolReconciler


@pytest.mark.parametrize(
    ("status", "code", "failed"),
    [(200, "200", 0), (201, "201", 0), (299, "299", 0), (300, "300", 1), (409, "409", 1), (0, "none", 1)],
)
def test_a_request_that_is_not_answered_well_is_an_error(status: int, code: str, failed: int) -> None:
    metrics = Metrics()
    metrics.observe_request("PATCH", "/apis", status)
    assert metrics.registry.get_sample_value("fermata_api_requests_total", {"verb": "PATCH", "code": code}) == 1
    errors = metrics.registry.get_sample_value("fermata_api_errors_total", {"verb": "PATCH", "code": code})
    assert (errors or 0) == failed


def test_finished_workflows_count_by_how_they_ended() -> None:
    world = World()
    for name in ("good", "bad"):
        world.feed("workflows", f"uid-{name}", workflow(name, stage("a")))
        run_on(world, 1.0)
        job = world.server.jobs[-1]["metadata"]["uid"]
        end = {"type": "Complete" if name == "good" else "Failed", "status": "True"}
        world.feed("jobs", job, {**world.server.objects[job], "status": {"conditions": [end]}})
        run_on(world, 1.0)
    sample = world.metrics.registry.get_sample_value
    for result in ("succeeded", "failed"):
        assert sample("fermata_workflows_finished_total", {"pool": "pool", "result": result}) == 1


@pytest.mark.parametrize("mode", ["Enforce", "Shadow"])
def test_a_pool_that_gets_new_policies_again_and_again_has_series_of_the_latest(mode: str) -> None:
    world, shown = World(mode=mode, executors=100), []
    for number in range(3 * POLICIES):
        policy = Holder()
        policy.name = f"model-{number}"
        world.reconciler._seat._policy = policy
        world.feed("workflows", f"uid-{number}", workflow(f"{number}", stage("a")))
        run_on(world, 5.0)
        samples = [sample for metric in world.metrics.registry.collect() for sample in metric.samples]
        shown.append({sample.labels["policy"] for sample in samples if "policy" in sample.labels})
        assert policy.name in shown[-1]
    assert max(map(len, shown)) == POLICIES


def _labels(world: World, label: str) -> set[str]:
    samples = [sample for metric in world.metrics.registry.collect() for sample in metric.samples]
    return {sample.labels[label] for sample in samples if label in sample.labels}


def test_who_may_write_annotations_makes_up_no_policies() -> None:
    world = World(executors=100)
    for number in range(3):
        world.feed("workflows", f"uid-{number}", workflow(f"{number}", stage("a")))
        run_on(world, 1.0)
        for job in world.server.jobs:
            job["metadata"]["annotations"]["fermata.dev/policy"] = f"made-up-{number}"
        complete(world, str(number))
        run_on(world, 3.0)
    assert _labels(world, "policy") == {"sjf", "holder", "other"}
    sample = world.metrics.registry.get_sample_value
    for name in ("fermata_workflow_completion_seconds_count", "fermata_workflow_slowdown_count"):
        assert sample(name, {"pool": "pool", "policy": "other"}) == 3


def test_who_may_create_workflows_makes_up_no_pools() -> None:
    world = World()
    reconciler = PoolReconciler("made-up", world.reconciler._tools)
    world.feed("workflows", "uid-w", workflow("w", stage("a"), poolName="made-up", activeDeadlineSeconds=1))
    world.now_s += 5.0
    asyncio.run(reconciler.reconcile())
    assert world.server.objects["uid-w"]["status"]["completionTime"]
    assert _labels(world, "pool") == {"pool"}
