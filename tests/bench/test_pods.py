"""What an event of a pod costs the operator, by how many pods its Job has."""

from __future__ import annotations

import time

import pytest
from pytest_benchmark.fixture import BenchmarkFixture
from tests.unit.operator.objects import T0, job

from fermata.operator import names
from fermata.operator.store import Store
from fermata.operator.times import render

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("pods", [100, 1_000, 10_000])
def test_pods_of_one_job_that_wait_for_their_turn(benchmark: BenchmarkFixture, pods: int) -> None:
    def run() -> float:
        store = Store(lambda: T0, lambda _: None)
        stage = job("w", "a", tasks=100_000, parallelism=pods)
        stage["spec"]["template"] = {"spec": {"schedulingGates": [{"name": names.GATE}]}}
        store.put("jobs", stage)
        began = time.process_time()
        for gates in ([{"name": names.GATE}], []):  # they come, and their turn comes
            for index in range(pods):
                meta = {
                    "uid": f"{index}", "name": f"a-{index}", "namespace": "default",
                    "resourceVersion": str(1 + index + (0 if gates else pods)),
                    "ownerReferences": [{"uid": stage["metadata"]["uid"], "controller": True}],
                }  # fmt: skip
                status = {"phase": "Pending"} if gates else {"phase": "Running", "startTime": render(T0)}
                store.put("pods", {"metadata": meta, "spec": {"schedulingGates": gates}, "status": status})
        spent_s = time.process_time() - began
        assert store.jobs[stage["metadata"]["uid"]].let_in == pods
        return spent_s

    spent_s: list[float] = []
    benchmark.pedantic(lambda: spent_s.append(run()), rounds=3)
    benchmark.extra_info["CPU microseconds an event"] = round(min(spent_s) / (2 * pods) * 1e6, 1)
