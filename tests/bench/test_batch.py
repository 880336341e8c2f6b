"""The simulator stepped with a learned network in the loop: 64 episodes side by side, features and network included."""

from __future__ import annotations

import itertools
import time

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from fermata.policy._jit import COMPILED
from fermata.policy.heuristics.sjf import SJF
from fermata.policy.onnx_policy import OnnxPolicy
from fermata.policy.registry import load
from fermata.sim.batch import Batch, default_manner
from fermata.sim.scenarios import scenario
from fermata.sim.world import new_world, tables_of

SIZE, STEPS = 64, 1000


@pytest.mark.slow
@pytest.mark.skipif(not COMPILED, reason="measures the compiled engine")
@pytest.mark.parametrize("name", ["express_k2", "dag_tasks"])
def test_a_network_in_the_loop(benchmark: BenchmarkFixture, name: str) -> None:
    policy = load("default")
    assert isinstance(policy, OnnxPolicy)
    drawn = scenario(name)
    traces = [drawn.generate(seed) for seed in range(8)]
    episodes = (new_world(tables_of(trace, drawn.executors), drawn.executors) for trace in itertools.cycle(traces))
    batch = Batch(episodes, SIZE, default_manner(policy.margin, SJF.rule))
    batch.step(policy.costs(batch.features))  # compiles

    def run() -> float:
        began = time.process_time()
        for _ in range(STEPS):
            batch.step(policy.costs(batch.features))
        return time.process_time() - began

    spent_s: list[float] = []
    benchmark.pedantic(lambda: spent_s.append(run()), rounds=3)
    assert np.isfinite(batch.features).all()
    benchmark.extra_info["decisions per CPU-second"] = round(SIZE * STEPS / min(spent_s))
    benchmark.extra_info["peer"] = "352 (spark-sched-sim's Decima agent, as published)"
