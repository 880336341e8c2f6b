"""Figures that were worked out by hand or stand in printed tables."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fermata.policy.errors import InputError
from fermata.sim.metrics import bounded_slowdown, job_shapes, mean_ci95, paired_percent, student_t975, summarize
from fermata.sim.trace_builder import StageSpec, TraceBuilder


def test_the_summary_of_three_jobs_by_hand() -> None:
    figures = summarize(
        arrival_s=np.array([7.0, 17.0, 27.0]),
        start_s=np.array([7.0, 22.0, 47.0]),
        completion_s=np.array([22.0, 47.0, 67.0]),
        held_s=np.array([0.0, 2.0, 1.0]),
        ideal_s=np.array([15.0, 5.0, 20.0]),
        busy_s=60.0,
        executors=2,
    )
    assert figures == {
        "avg_jct_s": pytest.approx(85 / 3),
        "p50_jct_s": 30.0,
        "p95_jct_s": pytest.approx(39.0),
        "p99_jct_s": pytest.approx(39.8),
        "makespan_s": 60.0,
        "avg_wait_s": pytest.approx(25 / 3),
        "avg_bounded_slowdown": 2.0,  # 15/15, 30/max(5, 10), 40/20
        "max_bounded_slowdown": 3.0,
        "utilization": 0.5,
        "held_s": 3.0,
        "jobs": 3,
    }


def test_the_warm_up_drops_the_first_jobs_by_arrival_but_not_their_share_of_the_makespan() -> None:
    figures = summarize(
        arrival_s=np.array([20.0, 0.0, 10.0]),
        start_s=np.array([20.0, 0.0, 10.0]),
        completion_s=np.array([22.0, 100.0, 14.0]),
        held_s=np.array([1.0, 50.0, 2.0]),
        ideal_s=np.ones(3),
        busy_s=10.0,
        executors=1,
        warm=1,
        wait_s=np.array([7.0, 70.0, 5.0]),
    )
    assert (figures["jobs"], figures["avg_jct_s"], figures["held_s"], figures["avg_wait_s"]) == (2, 3.0, 3.0, 6.0)
    assert (figures["makespan_s"], figures["utilization"]) == (100.0, 0.1)


def test_a_warm_up_of_all_jobs_is_refused() -> None:
    one = np.ones(1)
    with pytest.raises(InputError, match="leaves none of 1"):
        summarize(
            arrival_s=one, start_s=one, completion_s=one, held_s=one, ideal_s=one, busy_s=1.0, executors=1, warm=1
        )


def test_bounded_slowdown_is_never_below_one() -> None:
    assert bounded_slowdown(np.array([1.0, 25.0]), np.array([1.0, 1.0])).tolist() == [1.0, 2.5]
    assert bounded_slowdown(np.array([8.0]), np.array([1.0]), threshold_s=2.0).tolist() == [4.0]


@pytest.mark.parametrize(
    ("degrees", "quantile"),
    [(1, 12.7062), (2, 4.3027), (3, 3.1824), (4, 2.7764), (9, 2.2622), (19, 2.0930), (30, 2.0423), (120, 1.9799)],
)
def test_student_s_quantile_is_that_of_the_printed_tables(degrees: int, quantile: float) -> None:
    assert student_t975(degrees) == pytest.approx(quantile, abs=5e-5)


def test_student_s_quantile_approaches_the_normal_one() -> None:
    assert student_t975(20_000) == pytest.approx(1.959964, abs=2e-4)


def test_means_and_paired_percentages() -> None:
    mean, ci95 = mean_ci95([4.0, 6.0])
    assert (mean, ci95) == (5.0, pytest.approx(12.7062 * math.sqrt(2) / math.sqrt(2), abs=1e-3))
    assert mean_ci95([7.0]) == (7.0, 0.0)
    percent, width = paired_percent([90.0, 160.0], [100.0, 200.0])
    assert percent == -15.0
    assert width == pytest.approx(12.7062 * 5.0, abs=1e-3)
    assert paired_percent([0.0, 110.0], [0.0, 100.0]).mean == 5.0  # as long as nothing is neither longer nor shorter
    assert math.isnan(paired_percent([1.0], [0.0]).mean)
    with pytest.raises(InputError, match="no values"):
        mean_ci95([])
    with pytest.raises(InputError, match="cannot be paired"):
        paired_percent([1.0], [1.0, 2.0])


def test_shapes_of_a_diamond_by_real_durations() -> None:
    builder = TraceBuilder()
    builder.add_job(
        "d",
        0.0,
        [
            StageSpec("end", [1.0, 5.0], depends_on=["left", "right"], slots=2, estimate_s=99.0),
            StageSpec("left", [4.0, 4.0], depends_on=["top"]),
            StageSpec("right", [8.0], depends_on=["top"], serial_fraction=0.25),
            StageSpec("top", [0.5]),
        ],
    )
    trace = builder.finish()
    for executors, path_s in ((1, 0.5 + 8.0 + 5.0), (2, 0.5 + 5.0 + 5.0), (None, 0.5 + 4.0 + 5.0)):
        shapes = job_shapes(trace, executors)
        assert shapes.critical_path_s.tolist() == [path_s]
        assert shapes.work_s.tolist() == [12.0 + 8.0 + 8.0 + 0.5]
        assert shapes.width.tolist() == [28.5 / path_s]
