"""One decision from `ClusterState` to action, features included: the graph network and the shipped model, one thread.

Aims: 99 of 100 decisions under 1 ms at 50 jobs of 400 stages, and under 5 ms at 2,000 stages. CPU time, because the
clock of a shared machine says more of its other users.
"""

from __future__ import annotations

import time

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

pytest.importorskip("torch", reason="needs the [training] extra")

from fermata.policy.decide import Policy
from fermata.policy.graph_state import knowing
from fermata.policy.registry import load
from fermata.training.graph.config import GraphConfig, NetworkConfig
from fermata.training.graph.export import export_onnx, metadata_of, random_state
from fermata.training.graph.network import GraphNetwork

DECISIONS = 300


@pytest.fixture(scope="module")
def graph_policy(tmp_path_factory: pytest.TempPathFactory) -> Policy:
    """A network of the default size; what its weights are does not matter to the time."""
    out = tmp_path_factory.mktemp("graph") / "graph.onnx"
    config = GraphConfig(name="bench", method="ppo", iterations=1, network=NetworkConfig())
    export_onnx(GraphNetwork(config.network), metadata_of(config), out)
    return load(out)


@pytest.mark.slow
@pytest.mark.parametrize("stages", [400, 2000])
@pytest.mark.parametrize("name", ["graph", "default"])
def test_a_decision_among_many_stages(
    benchmark: BenchmarkFixture, request: pytest.FixtureRequest, name: str, stages: int
) -> None:
    state, dag = random_state(stages, np.random.default_rng(1))
    chosen = request.getfixturevalue("graph_policy") if name == "graph" else load(name)
    policy = knowing(chosen, lambda: dag)
    spent_s: list[float] = []

    def decisions() -> None:
        for _ in range(DECISIONS):
            began = time.process_time()
            policy.choose(state)
            spent_s.append(time.process_time() - began)

    policy.choose(state)  # compiles
    benchmark.pedantic(decisions, rounds=3)
    half, most = np.quantile(spent_s, [0.5, 0.99]) * 1000.0
    benchmark.extra_info |= {"CPU ms, median": round(float(half), 3), "CPU ms, 99%": round(float(most), 3)}
