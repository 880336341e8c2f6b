"""Bounds on traces worked by hand, and against every schedule of small random traces."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fermata.policy.theory import bounds

TRACES = st.lists(st.tuples(st.integers(0, 12), st.integers(1, 12)), min_size=1, max_size=5)


def _arrays(trace: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    arrival, size = zip(*sorted(trace), strict=True)
    return np.array(arrival, float), np.array(size, float)


def _best_without_preemption(arrival: np.ndarray, size: np.ndarray, executors: int) -> float:
    """Return the least mean JCT: some order, each job as early as it can, is optimal."""
    best = np.inf
    for order in permutations(range(len(size))):
        free, total, now = [0.0] * executors, 0.0, 0.0
        for job in order:
            place = free.index(min(free))
            # Starts in list order: a later one may not overtake, which loses nothing as all orders are tried.
            now = max(now, free[place], arrival[job])
            free[place] = now + size[job]
            total += free[place] - arrival[job]
        best = min(best, total / len(size))
    return best


def test_figure_1() -> None:
    arrival, size = np.array([0.0, 2.0]), np.array([20.0, 4.0])
    assert bounds.srpt_jct_s(arrival, size, 1).tolist() == [24.0, 4.0]
    assert bounds.srpt_jct_s(arrival, size, 2).tolist() == [20.0, 4.0]
    assert bounds.pooled_srpt_jct_s(arrival, size, 2).tolist() == [12.0, 2.0]
    # The long job runs from 0 to 2 and from 6 to 24: mean busy time (2 x 1 + 18 x 15) / 20 = 13.6, plus 10.
    assert bounds.mean_busy_time_jct_s(arrival, size, 1).tolist() == pytest.approx([23.6, 4.0])
    assert bounds.lower_bound_s(arrival, size, 1) == pytest.approx(14.0)  # pooled SRPT; the hold reaches 15


def test_srpt_prefers_the_remaining_time_and_busy_time_the_size() -> None:
    # At t=6 the first job has 4 s left of 10; a job of 5 s comes.
    arrival, size = np.array([0.0, 6.0]), np.array([10.0, 5.0])
    assert bounds.srpt_jct_s(arrival, size, 1).tolist() == [10.0, 9.0]
    assert bounds.mean_busy_time_jct_s(arrival, size, 1).tolist() == pytest.approx([(6 * 3 + 4 * 13) / 10 + 5, 5.0])


def test_jobs_that_arrive_together_wait_for_each_other() -> None:
    assert bounds.srpt_jct_s(np.zeros(4), np.array([4.0, 1.0, 3.0, 2.0]), 1).tolist() == [10.0, 1.0, 6.0, 3.0]
    assert bounds.srpt_jct_s(np.zeros(4), np.array([4.0, 1.0, 3.0, 2.0]), 2).tolist() == [6.0, 1.0, 4.0, 2.0]


@given(trace=TRACES, executors=st.integers(1, 3))
def test_no_schedule_without_preemption_beats_the_bound(trace: list[tuple[int, int]], executors: int) -> None:
    arrival, size = _arrays(trace)
    best = _best_without_preemption(arrival, size, executors)
    assert bounds.lower_bound_s(arrival, size, executors) <= best + 1e-9
    assert bounds.mean_busy_time_jct_s(arrival, size, executors).mean() <= best + 1e-9
    assert bounds.pooled_srpt_jct_s(arrival, size, executors).mean() <= best + 1e-9


@given(trace=TRACES)
def test_on_one_executor_srpt_is_the_pooled_bound(trace: list[tuple[int, int]]) -> None:
    arrival, size = _arrays(trace)
    assert np.array_equal(bounds.srpt_jct_s(arrival, size, 1), bounds.pooled_srpt_jct_s(arrival, size, 1))


@given(trace=TRACES)
def test_a_job_that_never_waits_meets_the_busy_time_bound(trace: list[tuple[int, int]]) -> None:
    size = np.array([size for _, size in trace], float)
    arrival = np.arange(0.0, 100.0 * len(size), 100.0)
    assert bounds.mean_busy_time_jct_s(arrival, size, 1) == pytest.approx(size)


@pytest.mark.parametrize(
    ("arrival", "size", "executors", "message"),
    [
        ([0.0, 1.0], [1.0], 1, "two arrays"),
        ([1.0, 0.0], [1.0, 1.0], 1, "in order"),
        ([0.0, np.nan], [1.0, 1.0], 1, "finite"),
        ([0.0], [0.0], 1, "positive"),
        ([0.0], [np.inf], 1, "positive"),
        ([0.0], [1.0], 0, "executors must be at least 1, not 0"),
    ],
)
def test_bad_arrays_are_refused(arrival: list[float], size: list[float], executors: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bounds.lower_bound_s(np.array(arrival), np.array(size), executors)
