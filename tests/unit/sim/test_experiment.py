"""Figures of episodes, one seed or many, on one process or several."""

from __future__ import annotations

import numpy as np
import pytest
from tests.episodes import one_stage_jobs, stage, trace_of

from fermata.policy.errors import InputError
from fermata.policy.guardrails import Guardrails
from fermata.policy.registry import load
from fermata.sim.experiment import TOTALS, Setting, figures_of, pooled, run_seeds, run_trace
from fermata.sim.metrics import mean_ci95
from fermata.sim.scenarios import scenario
from fermata.sim.simulate import simulate
from fermata.sim.trace_builder import StageSpec

SMALL = scenario("express_k2").with_(jobs=60, warm=10)


def test_a_job_of_more_tasks_than_executors_is_set_against_its_critical_path() -> None:
    # As the vocabulary says: ten tasks of 10 s on one executor, alone from the first to the last.
    figures = figures_of(simulate(trace_of((0.0, [StageSpec("a", [10.0] * 10)])), 1, load("fifo")))
    assert (figures["avg_jct_s"], figures["avg_bounded_slowdown"]) == (100.0, 10.0)


def test_figures_of_two_jobs_worked_by_hand() -> None:
    episode = simulate(one_stage_jobs((0.0, 20.0), (2.0, 4.0)), 1, load("hold-follower:delay=4"))
    figures = figures_of(episode)
    assert figures == {
        "avg_jct_s": 15.0,
        "p50_jct_s": 15.0,
        "p95_jct_s": pytest.approx(24.9),
        "p99_jct_s": pytest.approx(25.78),
        "makespan_s": 26.0,
        "avg_wait_s": 2.0,
        "avg_bounded_slowdown": pytest.approx((1.3 + 1.0) / 2.0),
        "max_bounded_slowdown": pytest.approx(1.3),
        "utilization": pytest.approx(24.0 / 26.0),
        "held_s": 2.0,
        "jobs": 2,
        "decisions": 3,
        "events": 4,
    }


def test_the_wait_is_what_is_neither_run_nor_held() -> None:
    # Both jobs hold the one executor in turn: j0's second stage waits for j1 in between.
    jobs = trace_of((0.0, [stage("a", 4), stage("b", 6, "a")]), (1.0, [stage("c", 2)]))
    episode = simulate(jobs, 1, load("sjf"))
    assert episode.task_start_s.tolist() == [0.0, 6.0, 4.0]
    assert episode.job_wait_s.tolist() == [2.0, 3.0]
    assert figures_of(episode)["avg_wait_s"] == 2.5


def test_the_warm_up_is_left_out_of_means_but_not_of_the_makespan() -> None:
    jobs = one_stage_jobs((0.0, 20.0), (2.0, 4.0))
    figures, episode = run_trace(jobs, Setting("fifo", 1, warm=1))
    assert (figures["avg_jct_s"], figures["jobs"]) == (22.0, 1)
    assert figures["makespan_s"] == 24.0
    assert episode.job_jct_s.tolist() == [20.0, 22.0]
    with pytest.raises(InputError, match="a warm-up of 2 jobs leaves none of 2"):
        run_trace(jobs, Setting("fifo", 1, warm=2))


def test_utilisation_counts_every_executor_of_a_task() -> None:
    jobs = trace_of((0.0, [stage("a", 4, slots=2)]), (4.0, [StageSpec("m", [12.0], serial_fraction=0.0)]))
    figures, _ = run_trace(jobs, Setting("fifo", 4))
    assert figures["makespan_s"] == 7.0  # 4 s on two executors, then 12 / 4
    assert figures["utilization"] == pytest.approx((8.0 + 12.0) / 28.0)


def test_settings_reach_the_engine() -> None:
    jobs = one_stage_jobs((0.0, 100.0), (1.0, 100.0), (5.0, 2.0))
    held, _ = run_trace(jobs, Setting("sjf-hold:split=10,tau=50", 2))
    capped, _ = run_trace(jobs, Setting("sjf-hold:split=10,tau=50", 2, limits=Guardrails(max_hold_s=6.0)))
    assert (held["held_s"], capped["held_s"]) == (47.0, 6.0)
    wide = trace_of((0.0, [stage("a", 2, tasks=4)]), (1.0, [stage("b", 1)]))
    assert run_trace(wide, Setting("sjf", 2))[1].job_completion_s.tolist() == [5.0, 3.0]
    assert run_trace(wide, Setting("sjf", 2, sticky=True))[1].job_completion_s.tolist() == [4.0, 5.0]


def test_a_seed_gives_the_same_figures_on_any_number_of_processes() -> None:
    setting = Setting("sjf-hold:tau=60", SMALL.executors, SMALL.warm)
    alone = list(run_seeds(SMALL, [7, 3, 5], setting))
    shared = list(run_seeds(SMALL, [7, 3, 5], setting, processes=2))
    for one, other in zip(alone, shared, strict=True):
        assert one.seed == other.seed
        assert one.figures | {"wall_s": 0.0} == other.figures | {"wall_s": 0.0}
        np.testing.assert_array_equal(one.episode.task_end_s, other.episode.task_end_s)


def test_closing_drops_what_has_not_begun() -> None:
    runs = run_seeds(SMALL, range(10_000_000), Setting("sjf", 2))
    assert next(runs).seed == 0
    runs.close()  # type: ignore[attr-defined]
    assert list(runs) == []


def test_figures_over_seeds() -> None:
    by_seed = {run.seed: run.figures for run in run_seeds(SMALL, range(4), Setting("sjf", 2, 10))}
    over = pooled(by_seed)
    assert [row["seed"] for row in over["per_seed"]] == [0, 1, 2, 3]
    for name in by_seed[0]:
        column = [figures[name] for figures in by_seed.values()]
        assert [row[name] for row in over["per_seed"]] == column
        if name in TOTALS:
            assert over[name] == sum(column)
            assert name not in over["ci95"]
        else:
            assert (over[name], over["ci95"][name]) == mean_ci95(column)
    single = pooled({0: by_seed[0]})
    assert single["avg_jct_s"] == by_seed[0]["avg_jct_s"]
    assert set(single["ci95"].values()) == {None}
