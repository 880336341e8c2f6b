"""How fast rigid jobs are simulated, and what one inspection costs from the state to the answer.

The log is drawn from the Lublin-Feitelson model; FERMATA_SHARED adds nothing here.
"""

from __future__ import annotations

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from fermata.sim.hpc import JobLog, Schedule, policy, simulate
from fermata.sim.hpc.inspect import parameters
from fermata.sim.hpc.lublin import generate
from fermata.sim.hpc.models import InspectorModel

SLURM = "multifactor:partition=1000+easy/skip"


@pytest.fixture(scope="module")
def log() -> JobLog:
    return generate(10_000, 1, load=1.0)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["sjf", "sjf+easy", "saf+easy/skip", "sjf/skip", "f1+easy/skip", "wfp3+easy/skip", SLURM]
)
def test_a_whole_log(benchmark: BenchmarkFixture, log: JobLog, name: str) -> None:
    chosen = policy(name)
    simulate(log, chosen.order, chosen.rules)  # compiles
    schedule = benchmark.pedantic(simulate, (log, chosen.order, chosen.rules), rounds=5)
    assert np.isfinite(schedule.start_s).all()
    if benchmark.stats:  # none with --benchmark-disable
        benchmark.extra_info["jobs per second"] = round(len(log) / benchmark.stats.stats.min)


@pytest.mark.slow
@pytest.mark.parametrize("features", [8, 20])
def test_inspections(benchmark: BenchmarkFixture, log: JobLog, features: int) -> None:
    theta = np.zeros(parameters(features))
    theta[-2] = 1.0  # accepts everything
    inspector = InspectorModel("picks", features, 128.0, theta).inspector(log)
    chosen = policy("sjf/strict")

    def run() -> Schedule:
        return simulate(log, chosen.order, chosen.rules, inspector)

    run()
    schedule = benchmark.pedantic(run, rounds=5)
    assert schedule.inspections > 0
    if benchmark.stats:
        per_decision_s = benchmark.stats.stats.min / schedule.inspections
        benchmark.extra_info["microseconds an inspection, simulation included"] = round(per_decision_s * 1e6, 2)
