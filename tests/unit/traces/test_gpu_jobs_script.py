"""`scripts/gpu_jobs.py`: pools are as small as their load allows, and what is told are changes of the mean JCT."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.scripts import script

from fermata.policy.registry import load
from fermata.sim.importers import ImportOptions
from fermata.sim.importers.tables import read_table
from fermata.sim.metrics import Interval, resampled_ci95
from fermata.sim.scenarios import Scenario
from fermata.sim.scenarios.blocks import TraceBlocks
from fermata.sim.simulate import simulate
from fermata.sim.trace import Trace
from fermata.sim.trace_builder import one_stage_trace

gpu_jobs = script("gpu_jobs")


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Jobs of two virtual clusters, one of which has too few."""
    monkeypatch.setattr(gpu_jobs, "SEEDS", range(3))
    monkeypatch.setattr(gpu_jobs, "WHOLE", range(2))
    monkeypatch.setattr(gpu_jobs, "JOBS", 100)
    rng = np.random.default_rng(1)
    rows = ["timestamp,duration,num_gpus,cluster"]
    for number, gap_s in enumerate(np.cumsum(rng.exponential(20.0, 420)).tolist()):
        duration_s, gpus = (4000.0, 8) if number % 40 == 0 else (300.0, 1 + number % 2)
        rows.append(f"{gap_s:.0f},{duration_s},{gpus},{'few' if number % 21 == 1 else 'many'}")
    path = tmp_path / "jobs.csv"
    path.write_text("\n".join(rows) + "\n")
    return path


def trace_of_many(table: Path) -> Trace:
    options = ImportOptions(columns=gpu_jobs.COLUMNS, where={"cluster": frozenset({"many"})})
    return read_table(table, options).trace


def test_a_pool_is_the_smallest_in_nodes_that_is_not_too_full(table: Path) -> None:
    assert gpu_jobs.clusters(table) == ["many"]
    trace = read_table(table, ImportOptions(columns=gpu_jobs.COLUMNS)).trace
    for most in (0.2, 0.9):
        executors = gpu_jobs.pool_of(trace, most)
        assert executors % gpu_jobs.NODE == 0
        assert gpu_jobs.offered_load(trace, executors) <= most < gpu_jobs.offered_load(trace, executors - gpu_jobs.NODE)
    assert gpu_jobs.pool_of(trace, math.inf) == 8, "the widest job fits"


def test_backfilling_starts_what_does_not_delay_the_head_of_the_queue() -> None:
    # On three executors the third job fits beside the first and ends with it; the fourth would delay the second.
    jobs = one_stage_trace(np.arange(5.0), np.array([10.0, 5.0, 8.0, 7.0, 9.0]))
    trace = replace(jobs, stage_slots=np.array([2, 3, 1, 1, 1], np.int32))
    assert gpu_jobs.backfilled(trace, 3, "fcfs+easy/skip").tolist() == [10.0, 14.0, 8.0, 19.0, 20.0]
    assert gpu_jobs.backfilled(trace, 3, "saf+easy/skip").tolist() == [10.0, 23.0, 8.0, 14.0, 15.0]
    against = gpu_jobs.against_bases("srwf", trace, 3, gpu_jobs.BACKFILL)
    assert against == pytest.approx([0.0, 100.0 * (70.0 / 71.0 - 1.0)])


def test_what_is_told_are_changes_against_each_base(
    table: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = read_table(table, ImportOptions(columns=gpu_jobs.COLUMNS)).trace
    ours, srwf, fifo = (
        simulate(trace, 16, load(name)).job_jct_s[trace.jobs // 10 :].mean() for name in ("default", "srwf", "fifo")
    )
    assert gpu_jobs.against_bases("default", trace, 16) == [
        pytest.approx(100.0 * (ours / srwf - 1.0)), pytest.approx(100.0 * (ours / fifo - 1.0)),
    ]  # fmt: skip
    found = gpu_jobs.play(table, "fifo", 2.0, gpu_jobs.BASES, "many")
    for part in (found.blocks, found.whole):
        exact, off, *itself = part
        assert itself == [(0.0, 0.0), (0.0, 0.0)], "it is that base"
        assert exact.mean != 0.0
        assert off.mean not in (0.0, exact.mean)
    # As wide as the spread of three episodes of a hundred jobs says of all that there are.
    of_all = Scenario("many", found.executors, 100, 0, "SRWF", TraceBlocks(trace_of_many(table)))
    changes = [gpu_jobs.against_bases("fifo", of_all.generate(seed), found.executors)[0] for seed in range(3)]
    assert found.blocks[0] == pytest.approx(resampled_ci95(changes, 100 / found.jobs))
    # Workers could not import what is no module of theirs.
    monkeypatch.setattr(gpu_jobs, "play_all", lambda play, names, *_: [play(name) for name in names])
    monkeypatch.setattr(sys, "argv", ["gpu_jobs.py", str(table), "--policy", "fifo", "--load", "2", "--jobs", "1"])
    gpu_jobs.main()
    told = capsys.readouterr().out.splitlines()
    assert told[0].startswith(f"{found.jobs} jobs; ")
    assert len(told) == 5
    assert told[3].replace("`many`", "mean").split(" | ")[4:] == told[4].split(" | ")[4:], "of one cluster"
    assert gpu_jobs._mean([Interval(-2.0, 3.0), Interval(4.0, 4.0)]) == (1.0, 2.5)
