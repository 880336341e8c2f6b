"""The simulator against queueing theory: mean waits that are known exactly, within their confidence intervals.

Each case is one long episode cut into batches; the first batches are left out, and the interval is Student's over the
batches. It is at 99.9%, so that twenty cases with fixed seeds do not fail by chance when a seed has to change.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from fermata.policy.registry import load
from fermata.policy.theory.queueing import mg1_wait_s, mmk_wait_s, sjf_waits_s
from fermata.sim.simulate import Episode, simulate
from fermata.sim.trace_builder import one_stage_trace

JOBS, BATCHES, WARM_BATCHES = 400_000, 40, 4
T_9995 = 3.59  # Student's t, 35 degrees of freedom

Draw = Callable[[np.random.Generator], NDArray[np.float64]]


def episode_of(seed: int, rate_per_s: float, draw: Draw, executors: int, policy: str) -> Episode:
    rng = np.random.default_rng(seed)
    arrival_s = np.cumsum(rng.exponential(1.0 / rate_per_s, JOBS))
    return simulate(one_stage_trace(arrival_s, draw(rng)), executors, load(policy))


def assert_mean(values: NDArray[np.float64], expected: float) -> None:
    """The batch means agree with `expected`, and are precise enough for that to say something."""
    batches = np.array([batch.mean() for batch in np.array_split(values, BATCHES)[WARM_BATCHES:]])
    error = T_9995 * batches.std(ddof=1) / math.sqrt(len(batches))
    assert error < 0.13 * expected
    assert batches.mean() == pytest.approx(expected, abs=error)


def exponential(mean_s: float) -> Draw:
    return lambda rng: rng.exponential(mean_s, JOBS)


@pytest.mark.parametrize(("executors", "load_"), [(1, 0.5), (1, 0.8), (2, 0.7), (4, 0.8), (10, 0.8)])
def test_waits_in_m_m_k(executors: int, load_: float) -> None:
    rate_per_s = load_ * executors / 10.0
    episode = episode_of(executors, rate_per_s, exponential(10.0), executors, "fifo")
    assert_mean(episode.job_wait_s, mmk_wait_s(rate_per_s, 10.0, executors))


def two_sizes(rng: np.random.Generator) -> NDArray[np.float64]:
    return np.where(rng.random(JOBS) < 0.9, 10.0, 100.0)


def lognormal(rng: np.random.Generator) -> NDArray[np.float64]:
    return rng.lognormal(0.0, 0.8, JOBS)


@pytest.mark.parametrize(
    ("draw", "mean_s", "second_moment_s2"),
    [
        (lambda rng: np.full(JOBS, 10.0), 10.0, 100.0),
        (two_sizes, 19.0, 1090.0),
        (lognormal, math.exp(0.32), math.exp(1.28)),
    ],
    ids=["deterministic", "two sizes", "lognormal"],
)
@pytest.mark.parametrize("load_", [0.5, 0.7])
def test_waits_in_m_g_1(draw: Draw, mean_s: float, second_moment_s2: float, load_: float) -> None:
    episode = episode_of(7, load_ / mean_s, draw, 1, "fifo")
    assert_mean(episode.job_wait_s, mg1_wait_s(load_ / mean_s, mean_s, second_moment_s2))


@pytest.mark.parametrize("load_", [0.6, 0.8])
def test_waits_of_each_size_under_shortest_job_first(load_: float) -> None:
    sizes, shares = [10.0, 20.0, 100.0], [0.6, 0.3, 0.1]
    rate_per_s = load_ / sum(size * share for size, share in zip(sizes, shares, strict=True))
    episode = episode_of(3, rate_per_s, lambda rng: rng.choice(sizes, JOBS, p=shares), 1, "sjf")
    for size, expected_s in zip(sizes, sjf_waits_s(rate_per_s, sizes, shares), strict=True):
        assert_mean(episode.job_wait_s[episode.trace.task_duration_s == size], expected_s)


def test_order_does_not_change_the_mean_wait_where_durations_are_unknown() -> None:
    """With estimates that say nothing, SJF is first in, first out, and M/M/k's wait is what it was."""
    rng = np.random.default_rng(11)
    arrival_s = np.cumsum(rng.exponential(10.0 / 0.7 / 2.0, JOBS))
    trace = one_stage_trace(arrival_s, rng.exponential(10.0, JOBS), estimate_s=np.full(JOBS, 10.0))
    assert_mean(simulate(trace, 2, load("sjf")).job_wait_s, mmk_wait_s(0.14, 10.0, 2))


def test_time_is_shared_by_little_s_law() -> None:
    """The mean number of jobs in the system is the arrival rate times the mean JCT, sampled at times of its own."""
    episode = episode_of(5, 0.15, exponential(10.0), 2, "sjf")
    arrival_s, completion_s = episode.trace.job_arrival_s, episode.job_completion_s
    at_s = np.random.default_rng(1).uniform(arrival_s[JOBS // 10], arrival_s[-1], 200_000)
    inside = np.searchsorted(arrival_s, at_s, "right") - np.searchsorted(np.sort(completion_s), at_s, "right")
    rate_per_s = JOBS / arrival_s[-1]
    assert inside.mean() == pytest.approx(rate_per_s * episode.job_jct_s.mean(), rel=0.02)
