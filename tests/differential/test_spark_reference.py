"""Decima's model of Spark against complete logs and figures of the published simulators."""

from __future__ import annotations

import gzip
import json
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.shared_data import require_shared

from fermata.policy.guardrails import Guardrails
from fermata.sim.importers.tpch import Arrival
from fermata.sim.spark.episode import (
    MOVING_DELAY_MS,
    SparkWorkload,
    draw_workload,
    mean_jct_s,
    peer_episode,
    workload_of,
)
from fermata.sim.spark.experiment import run_tpch, tpch_setting
from fermata.sim.spark.protocol import answer, run_to_question
from fermata.sim.spark.settings import SETTINGS
from fermata.sim.spark.world import (
    ASKING,
    DECISIONS,
    MOVES_ENDED,
    NONE,
    NOW_MS,
    SOURCE_JOB,
    TASKS_ENDED,
    new_spark_world,
    spark_tables,
)

GOLDEN = require_shared("golden", "decima")
TPCH = require_shared("data", "tpch")
# The published runs with deterministic durations take every draw to be the lowest number.
LOWEST = np.zeros(1, np.uint32)
PEER = {
    "dynamic_partition": "decima-fair",
    "spark_fifo": "decima-fifo",
    "fair": "spark-fair",
    "fifo": "spark-fifo",
}


def _runs(file: str, scheme: str) -> list[dict[str, Any]]:
    runs = json.loads((GOLDEN / file).read_text())["res"]
    return [run for run in runs if scheme in (run.get("scheme"), run.get("sched"))]


def _log(file: Path) -> list[Any]:
    with gzip.open(file, "rt") if file.suffix == ".gz" else file.open() as lines:
        return [json.loads(line) for line in lines]


def _logged_workload(configuration: dict[str, Any]) -> SparkWorkload:
    arrivals = []
    for name, arrival_ms in configuration["jobs"]:
        _, size, number = name.split("-")
        arrivals.append(Arrival(float(arrival_ms), size, int(number)))
    return workload_of(TPCH, arrivals, configuration["warmup_delay"])


@pytest.mark.parametrize(
    "name",
    [
        "trace_dynamic_partition_10x5_seed1.jsonl",
        "trace_spark_fifo_10x5_seed1.jsonl",
        "trace_dynamic_partition_50x20_seed1.jsonl.gz",
    ],
)
class TestLogs:
    def test_logged_decisions_reproduce_every_task_and_job(self, name: str) -> None:
        configuration, *lines, end = _log(GOLDEN / name)
        workload = _logged_workload(configuration)
        waves = workload.waves(configuration["exec_cap"], LOWEST)
        tables = spark_tables(workload.trace, configuration["moving_delay"])
        world = new_spark_world(tables, waves)
        decisions: Iterator[list[Any]] = (line for line in lines if line[0] == "D")
        while run_to_question(tables, waves, world):
            _, now_ms, source_job, asking, job, stage, limit = next(decisions)
            said = (world.counter[NOW_MS], world.counter[SOURCE_JOB], world.counter[ASKING])
            assert said == (now_ms, NONE if source_job is None else source_job, asking)
            answer(tables, waves, world, NONE if job is None else int(tables.job_stage_ptr[job]) + stage, limit)
        assert next(decisions, None) is None
        tasks = [line for line in lines if line[0] == "T"]
        for _, end_ms, executor, job, stage, task, start_ms in tasks:
            index = tables.task_ptr[tables.job_stage_ptr[job] + stage] + task
            mine = (world.task_start_ms[index], world.task_end_ms[index], world.task_executor[index])
            assert mine == (start_ms, end_ms, executor), (job, stage, task)
        assert len(tasks) == world.counter[TASKS_ENDED] == workload.trace.tasks
        assert world.job_completion_ms.tolist() == end["completions"]

    def test_the_peers_heuristic_takes_the_logged_decisions(self, name: str) -> None:
        configuration, *lines, end = _log(GOLDEN / name)
        workload = _logged_workload(configuration)
        waves = workload.waves(configuration["exec_cap"], LOWEST)
        tables, world = peer_episode(workload, waves, PEER[configuration["scheme"]], configuration["moving_delay"])
        assert world.job_completion_ms.tolist() == end["completions"]
        assert mean_jct_s(tables, world) * 1000.0 == pytest.approx(end["avg_jct_ms"], rel=1e-12)
        assert world.counter[DECISIONS] == sum(line[0] == "D" for line in lines)


@pytest.mark.parametrize("scheme", ["dynamic_partition", "spark_fifo"])
@pytest.mark.parametrize("position", range(5))
def test_setting_a_deterministic_to_the_millisecond(scheme: str, position: int) -> None:
    run = _runs("d_Adet.json", scheme)[position]
    workload = draw_workload(TPCH, SETTINGS["tpch_a"], run["seed"])
    _, world = peer_episode(workload, workload.waves(50, LOWEST), PEER[scheme])
    assert world.job_completion_ms.tolist() == [completion_ms for _, _, completion_ms in run["jobs"]]
    assert world.counter[TASKS_ENDED] == run["events"]["task"]
    assert world.counter[MOVES_ENDED] == run["events"]["exec"]
    assert world.counter[DECISIONS] == run["decisions"]


@pytest.mark.parametrize(
    ("setting", "peer", "published_s"),
    [
        ("tpch_a", "decima-fair", 57.27),
        ("tpch_a", "decima-fifo", 248.84),
        ("tpch_c", "decima-fair", 875.8),
        ("tpch_c", "decima-fifo", 1127.9),
    ],
)
def test_deterministic_means_are_the_published_ones(setting: str, peer: str, published_s: float) -> None:
    means = []
    for seed in range(10_000_000, 10_000_005):
        workload = draw_workload(TPCH, SETTINGS[setting], seed)
        waves = workload.waves(SETTINGS[setting].executors, LOWEST)
        means.append(mean_jct_s(*peer_episode(workload, waves, peer)))
    assert statistics.fmean(means) == pytest.approx(published_s, abs=0.05)


@pytest.mark.parametrize("policy", ["decima-fair", "srwf-equal-share"])
def test_the_same_log_on_any_number_of_processes(policy: str) -> None:
    of = SETTINGS["tpch_c"]
    setting = tpch_setting(of, policy, None, 5, Guardrails())
    alone, shared = (list(run_tpch(str(TPCH), of, [3, 1, 2], setting, processes)) for processes in (1, 2))
    for one, other in zip(alone, shared, strict=True):
        assert one.figures | {"wall_s": 0.0} == other.figures | {"wall_s": 0.0}
        np.testing.assert_array_equal(one.episode.task_end_s, other.episode.task_end_s)
        np.testing.assert_array_equal(one.episode.task_executor, other.episode.task_executor)


@pytest.mark.parametrize(
    ("setting", "file", "scheme"),
    [
        ("tpch_a", "d_A.json", "dynamic_partition"),
        ("tpch_a", "d_A.json", "spark_fifo"),
        ("tpch_c", "d_C.json", "dynamic_partition"),
        ("tpch_c", "d_C.json", "spark_fifo"),
        ("tpch_e1", "s_E1_fair.json", "fair"),
        ("tpch_e1", "s_E1_fifo.json", "fifo"),
        ("tpch_e2", "s_E2_fair.json", "fair"),
        ("tpch_e2", "s_E2_fifo.json", "fifo"),
    ],
)
def test_means_with_drawn_durations(setting: str, file: str, scheme: str) -> None:
    # The published durations come from generators that cannot be replayed, so means are compared: over eight drawings
    # of the durations on the same five sequences of jobs they must agree within 2%.
    runs = _runs(file, scheme)
    means = []
    for run in runs:
        workload = draw_workload(TPCH, SETTINGS[setting], run["seed"])
        for seed in range(8):
            waves = workload.waves(SETTINGS[setting].executors, seed=seed)
            means.append(mean_jct_s(*peer_episode(workload, waves, PEER[scheme], MOVING_DELAY_MS)))
    published_s = statistics.fmean(run["avg_jct_s"] for run in runs)
    assert statistics.fmean(means) == pytest.approx(published_s, rel=0.02)
