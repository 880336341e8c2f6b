"""Failures: attempts and back-offs by hand, a job that fails for good, and what holds of any episode."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.episodes import one_stage_jobs, random_trace, stage, trace_of

from fermata.policy.errors import InputError
from fermata.policy.registry import HEURISTICS, load
from fermata.sim.failures import Failures, draw_failures
from fermata.sim.simulate import simulate
from fermata.sim.trace_builder import StageSpec, one_stage_trace


def test_no_failure_changes_nothing() -> None:
    trace = random_trace(3, 4)
    work_s, pause_s, fails = draw_failures(trace, Failures(0.0))
    np.testing.assert_array_equal(work_s, trace.task_duration_s)
    assert not pause_s.any()
    assert not fails.any()


def test_attempts_and_pauses_lengthen_a_task() -> None:
    trace = one_stage_jobs(*[(float(i), 8.0) for i in range(4000)])
    failures = Failures(0.25, retries=1000, backoff_s=16.0, max_backoff_s=32.0, seed=5)
    work_s, pause_s, fails = draw_failures(trace, failures)
    stay_s = work_s + pause_s
    assert not fails.any()
    # A failed attempt takes half the duration on average; pauses are 16, 32, 32, ... seconds.
    expected_s = 8.0 + (1 / 3) * 4.0 + 0.25 * 16.0 + (1 / 3 - 0.25) * 32.0
    assert stay_s.mean() == pytest.approx(expected_s, rel=0.08)
    assert (stay_s >= 8.0).all()
    assert (stay_s == 8.0).mean() == pytest.approx(0.75, abs=0.03)


def test_a_stage_fails_with_one_failure_too_many() -> None:
    trace = trace_of(*[(0.0, [stage("a", 4.0)]) for _ in range(3000)])
    for retries in (0, 1, 2):
        fails = draw_failures(trace, Failures(0.5, retries=retries, seed=1)).fails
        assert fails.mean() == pytest.approx(0.5 ** (retries + 1), abs=0.03)


def test_a_failed_job_starts_nothing_more_and_lets_the_rest_go_on() -> None:
    jobs = trace_of(
        (0.0, [stage("a", 4.0, tasks=2), stage("b", 5.0), stage("c", 1.0)._replace(depends_on=["a"])]),
        (1.0, [stage("d", 3.0)]),
    )
    # Some seed fails the first task of `a` and nothing else; what runs beside it ends, `c` never starts.
    for seed in range(200):
        failures = Failures(0.4, retries=0, seed=seed)
        stay_s, _, fails = draw_failures(jobs, failures)
        if fails.tolist() == [True, False, False, False, False]:
            break
    else:
        pytest.fail("no such seed")
    episode = simulate(jobs, 3, load("fifo"), failures=failures)
    assert episode.job_failed.tolist() == [True, False]
    assert stay_s[0] < 4.0
    assert episode.task_end_s.tolist()[:3] == [stay_s[0], 4.0, 5.0]
    assert np.isnan(episode.task_start_s[3])
    assert episode.job_completion_s.tolist() == [5.0, max(1.0, stay_s[0]) + 3.0]
    assert episode.busy_s == pytest.approx(stay_s[0] + 4.0 + 5.0 + 3.0)


def test_more_executors_shorten_attempts_and_no_pauses() -> None:
    trace = trace_of((0.0, [StageSpec("a", [8.0], serial_fraction=0.0)]))
    failures = Failures(0.5, backoff_s=10.0, seed=6)  # fails once, so there is one pause
    alone_s, on_four_s = (
        float(simulate(trace, executors, load("fifo"), failures=failures).job_completion_s[0]) for executors in (1, 4)
    )
    assert 18.0 < alone_s < 26.0
    assert on_four_s == pytest.approx((alone_s - 10.0) / 4 + 10.0)


@pytest.mark.parametrize("policy", [*HEURISTICS, "sjf-hold:tau=2,split=4"])
def test_every_job_ends_whatever_fails(policy: str) -> None:
    for seed in range(12):
        trace = random_trace(seed, 3)
        for sticky in (False, True):
            episode = simulate(trace, 3, load(policy), sticky=sticky, failures=Failures(0.3, retries=1, seed=seed))
            assert np.isfinite(episode.job_completion_s).all()
            ran = np.isfinite(episode.task_start_s)
            whole = ~episode.job_failed[trace.stage_job[np.repeat(np.arange(trace.stages), np.diff(trace.task_ptr))]]
            assert ran[whole].all()
            last_s = np.maximum.reduceat(
                np.where(ran, episode.task_end_s, -1.0), trace.task_ptr[trace.job_stage_ptr[:-1]]
            )
            np.testing.assert_array_equal(episode.job_completion_s, last_s)


@pytest.mark.parametrize("probability", [1.0, -0.1, math.nan])
def test_a_probability_that_is_none(probability: float) -> None:
    with pytest.raises(InputError, match=r"expected a number in \[0, 1\)"):
        Failures(probability)


def test_retries_have_an_end() -> None:
    draw_failures(one_stage_trace([0.0], [1.0]), Failures(0.999999, retries=1000))
    for retries in (-1, 1001, 10**24):
        with pytest.raises(InputError, match=f"^retries: expected 0 to 1,000, got {retries}$"):
            Failures(0.1, retries)
