"""How long a task took on lanes that opened one after another."""

from __future__ import annotations

import heapq
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fermata.operator.lanes import Lanes, constant, lanes_of, task_duration_s, text_of, widened

OPENINGS = st.lists(st.tuples(st.integers(0, 50), st.integers(1, 9)), min_size=0, max_size=12)


def _run_s(tasks: int, duration_s: float, rows: list[Lanes]) -> float:
    """Return when the last of some equal tasks ends, each of which goes to the lane that is free first."""
    free_s = [row.since_s for row in rows for _ in range(row.number)]
    heapq.heapify(free_s)
    end_s = 0.0
    for _ in range(tasks):
        end_s = heapq.heappop(free_s) + duration_s
        heapq.heappush(free_s, end_s)
    return end_s


@given(st.integers(1, 300), st.floats(0.01, 100.0), st.integers(1, 9), OPENINGS)
def test_the_duration_is_that_of_equal_tasks(
    tasks: int, duration_s: float, cap: int, later: list[tuple[int, int]]
) -> None:
    rows = list(constant(cap))
    for since_s, more in sorted(later):
        rows = list(widened(rows, sum(row.number for row in rows) + more, float(since_s)))
    assert task_duration_s(_run_s(tasks, duration_s, rows), tasks, rows) == pytest.approx(duration_s)


@given(st.integers(1, 200), st.floats(0.1, 100.0), st.integers(1, 60))
def test_without_a_widening_it_is_the_run_time_over_the_waves(tasks: int, run_s: float, cap: int) -> None:
    assert task_duration_s(run_s, tasks, constant(cap)) == pytest.approx(run_s / math.ceil(tasks / cap))


def test_a_stage_that_was_widened_as_it_ran() -> None:
    # One task after another for 11.5 s; the other 12.5 of 24 tasks of 1 s side by side, and a moment for each start.
    assert task_duration_s(12.57, 24, widened(constant(1), 13, 11.5)) == pytest.approx(12.57 / 12)
    # Lanes that open when all is over have done nothing.
    assert task_duration_s(10.0, 5, widened(constant(1), 3, 10.0)) == 2.0
    assert task_duration_s(0.0, 5, constant(1)) == 0.0


def test_a_lane_more_is_one_that_opened_then_or_at_the_start_by_a_clock_that_is_behind() -> None:
    assert widened(constant(1), 2, 5.0) == (Lanes(0.0, 1), Lanes(5.0, 1))
    assert widened(constant(1), 2, -0.5) == (Lanes(0.0, 1), Lanes(0.0, 1))


def test_tasks_under_a_parallelism_of_none_went_one_by_one_before_somebody_set_that() -> None:
    assert task_duration_s(10.0, 5, lanes_of("", 0)) == 2.0


@pytest.mark.parametrize("more", [1, 3])
def test_what_is_kept_of_many_widenings_is_bounded_and_nearly_as_good(more: int) -> None:
    rows, duration_s, tasks = constant(1), 7.0, 5000
    caps = range(1 + more, 400, more)
    for cap in caps:
        rows = widened(rows, cap, 0.5 * cap)
    assert len(rows) == 16
    assert len(text_of(rows)) < 200
    whole = [Lanes(0.0, 1), *(Lanes(0.5 * cap, more) for cap in caps)]
    number, opened_s = (
        sum(each) for each in zip(*((row.number, row.number * row.since_s) for row in whole), strict=True)
    )
    assert sum(row.number for row in rows) == number
    assert sum(row.number * row.since_s for row in rows) == pytest.approx(opened_s), "as long in all"
    assert task_duration_s(_run_s(tasks, duration_s, whole), tasks, rows) == pytest.approx(duration_s, rel=0.1)


def test_lanes_outlive_their_operator_and_nonsense_counts_as_never_widened() -> None:
    rows = widened(widened(constant(2), 5, 3.25), 9, 10.0)
    assert lanes_of(text_of(rows), 9) == rows
    assert widened(rows, 9, 20.0) == rows  # no higher
    for text in ("", "x", "2@0 3", "2@0.000 3@nan 4@1", "2@0 -1@1 8@2", "9@-1", text_of(rows[:-1])):
        assert lanes_of(text, 9) == constant(9)
    assert lanes_of(text_of(rows), 20) == constant(20)  # somebody else raised the parallelism
