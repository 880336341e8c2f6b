"""Trace statistics on traces whose figures are plain to see."""

from __future__ import annotations

import numpy as np
import pytest

from fermata.sim.generate import GENERATORS
from fermata.sim.scenarios import SCENARIOS
from fermata.sim.trace_builder import one_stage_trace
from fermata.sim.trace_stats import dispersion, size_classes, trace_stats


def test_a_clockwork_of_short_and_long_jobs() -> None:
    arrivals = np.arange(0.0, 1000.0, 10.0)
    sizes = np.where(np.arange(100) % 10 == 9, 200.0, 10.0)
    stats = trace_stats(one_stage_trace(arrivals, sizes, estimate_s=2 * sizes), executors=4)
    assert (stats.jobs, stats.stages, stats.tasks, stats.edges) == (100, 100, 100, 0)
    assert (stats.span_s, stats.mean_gap_s, stats.gap_cv2, stats.dispersion) == (990.0, 10.0, 0.0, 0.0)
    assert (stats.total_work_s, stats.load) == (2900.0, pytest.approx(29.0 / 10.0 / 4))
    assert (stats.sizes.short_share, stats.sizes.ratio, stats.sizes.distinct) == (0.9, 20.0, True)
    assert stats.estimate_ratio == 2.0
    assert stats.estimate_error == pytest.approx(0.0, abs=1e-12)  # all wrong by the same factor
    assert (stats.width.max, stats.critical_path_s.max) == (1.0, 200.0)


def test_one_job_has_no_rate() -> None:
    stats = trace_stats(one_stage_trace([3.0], [5.0]), executors=2)
    assert (stats.mean_gap_s, stats.load, stats.dispersion) == (0.0, None, 0.0)
    assert stats.sizes.distinct is False


def test_the_longest_times_that_a_trace_may_have() -> None:
    stats = trace_stats(one_stage_trace([0.0, 1e3, 1e15], [5.0, 5.0, 1e15]))
    assert (stats.span_s, stats.mean_gap_s, stats.dispersion) == (1e15, 5e14, 0.0)
    assert stats.gap_cv2 == pytest.approx(1.0)  # gaps of 0 and 2 means


@pytest.mark.parametrize("unit", [0.1, 1.0, 3600.0])
def test_burstiness_is_the_same_in_every_unit_of_time(unit: float) -> None:
    """Of 20 n + 1 jobs the last window ends with the last arrival, but for rounding."""
    for seed in range(20):
        ends = np.array([0.0, 40.0])
        inside = np.sort(np.random.default_rng(seed).uniform(*ends, 39))
        arrivals = np.concatenate([ends[:1], inside, ends[1:]])
        early = 1 + int((inside < 20.0).sum())
        found = trace_stats(one_stage_trace(unit * (7.0 + arrivals), np.ones(41))).dispersion
        assert found == (early - 20.0) ** 2 / 20.0
    clockwork = one_stage_trace(unit * 0.7 * np.arange(201), np.ones(201))
    assert trace_stats(clockwork).dispersion == 0.0


def test_sizes_that_are_alike_or_nothing_are_one_class() -> None:
    assert size_classes(np.full(5, 7.0)).distinct is False
    assert size_classes(np.zeros(3)).distinct is False
    assert size_classes(np.array([10.0, 11.0, 12.0, 13.0])).distinct is False


def test_burstiness_tells_clockwork_poisson_and_bursts_apart() -> None:
    poisson = trace_stats(SCENARIOS["express_k2"].generate(1)).dispersion
    bursty = trace_stats(GENERATORS["bursty"].generate(1)).dispersion
    periodic = trace_stats(GENERATORS["periodic"].generate(1)).dispersion
    assert periodic < 0.1 < 0.6 < poisson < 1.5 < 5.0 < bursty
    assert dispersion(np.array([0.0, 1.0]), 10.0) == 0.0
