"""How time and memory grow with jobs, executors and stages: each step ten times the one before.

Time is per job (per stage), so n log n shows as a third more a step at the start and less later. Memory is the peak of
a process of its own.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from fermata.policy._jit import COMPILED
from fermata.policy.registry import load
from fermata.sim.scenarios import Scenario, scenario
from fermata.sim.scenarios.layered import JobClass, LayeredDags
from fermata.sim.simulate import simulate
from fermata.sim.trace import Trace

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not COMPILED, reason="measures the compiled engine")]

ONE_MILLION_BYTES = 1_000_000


def _measure(benchmark: BenchmarkFixture, trace: Trace, executors: int, policy: str, parts: int, unit: str) -> None:
    chosen = load(policy)
    simulate(scenario("express_k2").with_(jobs=10).generate(1), 2, chosen)  # compiles

    def run() -> float:
        began = time.process_time()
        simulate(trace, executors, chosen)
        return time.process_time() - began

    spent_s: list[float] = []
    benchmark.pedantic(lambda: spent_s.append(run()), rounds=3)
    benchmark.extra_info[f"CPU microseconds a {unit}"] = round(min(spent_s) / parts * 1e6, 3)


@pytest.mark.parametrize("policy", ["sjf", "sjf-hold"])
@pytest.mark.parametrize("jobs", [1_000, 10_000, 100_000, 1_000_000])
def test_jobs(benchmark: BenchmarkFixture, jobs: int, policy: str) -> None:
    _measure(benchmark, scenario("express_k2").with_(jobs=jobs).generate(1), 2, policy, jobs, "job")


@pytest.mark.parametrize("executors", [10, 100, 1_000, 10_000])
def test_executors(benchmark: BenchmarkFixture, executors: int) -> None:
    drawn = Scenario("wide pool", executors, max(20_000, 20 * executors), 0, "SJF", scenario("express_k2").recipe)
    trace = drawn.generate(1)
    _measure(benchmark, trace, executors, "sjf-hold", trace.jobs, "job")


@pytest.mark.parametrize("stages", [1, 10, 100, 1_000])
def test_stages(benchmark: BenchmarkFixture, stages: int) -> None:
    one = JobClass(1.0, (stages, stages), (1, 3), median_task_s=3.0, stage_sigma=0.5, task_sigma=0.3)
    trace = Scenario("deep jobs", 20, max(20, 20_000 // stages), 0, "SRWF", LayeredDags(0.7, (one,))).generate(1)
    _measure(benchmark, trace, 20, "srwf", trace.stages, "stage")


_PEAK = """
import json, resource
from fermata.policy.registry import load
from fermata.sim.scenarios import scenario
from fermata.sim.simulate import simulate
trace = scenario("express_k2").with_(jobs=1_000_000).generate(1)
simulate(trace, 2, load("sjf"))
print(json.dumps(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024))
"""


def test_memory_of_a_million_jobs(benchmark: BenchmarkFixture) -> None:
    def peak() -> int:
        done = subprocess.run([sys.executable, "-c", _PEAK], check=True, capture_output=True, text=True)
        return int(json.loads(done.stdout))

    benchmark.extra_info["peak MB"] = round(benchmark.pedantic(peak, rounds=1) / ONE_MILLION_BYTES)


@pytest.mark.parametrize("jobs", [1_000, 100_000])
def test_start_up(benchmark: BenchmarkFixture, tmp_path: Path, jobs: int) -> None:
    """`fermata simulate`, first with an empty cache and then again; the larger trace is worth compiling for."""
    command = [sys.executable, "-m", "fermata.cli", "simulate", "--scenario", "express_k2", "--set", f"jobs={jobs}"]
    command += ["--seeds", "1", "--policy", "sjf", "--json"]
    environment: dict[str, Any] = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    environment.pop("NUMBA_CACHE_DIR", None)
    # Python's own files are compiled before, as an installer does.
    subprocess.run([*command[:3], "--help"], check=True, capture_output=True, env=environment)

    def cpu_s() -> float:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    spent: list[tuple[float, float]] = []

    def run() -> None:
        began, before_s = time.perf_counter(), cpu_s()
        subprocess.run(command, check=True, capture_output=True, env=environment)
        spent.append((time.perf_counter() - began, cpu_s() - before_s))

    run()
    benchmark.pedantic(run, rounds=3)
    for name, (wall_s, own_s) in (("first", spent[0]), ("second", min(spent[1:]))):
        benchmark.extra_info[f"{name} run, seconds"] = round(wall_s, 2)
        benchmark.extra_info[f"{name} run, CPU-seconds"] = round(own_s, 2)
