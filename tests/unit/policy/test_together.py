"""Jobs that come many at a time: what is counted, and that the shipped model does not hold for them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.episodes import first_state, one_stage_jobs

from fermata.policy.board import Board, board_of
from fermata.policy.registry import load
from fermata.policy.together import CLOSE, CLUMP, come_together
from fermata.sim.generate.arrivals import Arrivals, Periodic, Poisson
from fermata.sim.generate.one_stage import OneStage
from fermata.sim.generate.sizes import Classes
from fermata.sim.scenarios import Scenario
from fermata.sim.simulate import simulate

ALONE = 10  # jobs that came alone, as so many are assumed beside those that were seen


def board_after(jobs: list[tuple[float, float]], executors: int = 2) -> Board:
    """A board that has seen jobs of (arrival, work) arrive."""
    state = first_state(one_stage_jobs((0.0, 1.0)), executors)
    arrival_s, work_s = (np.array(column, np.float64) for column in zip(*jobs, strict=True))
    recent = {"recent_arrival_s": arrival_s, "recent_work_s": work_s, "recent_weight": np.ones(len(jobs))}
    return board_of(state._replace(**recent))


def batches(number: int, jobs: int, work_s: float = 100.0) -> list[tuple[float, float]]:
    return [(1000.0 * batch + 0.1 * job, work_s) for batch in range(number) for job in range(jobs)]


def test_long_jobs_in_batches_come_together_and_those_that_come_one_by_one_do_not() -> None:
    assert come_together(board_after(batches(10, 4)), 100.0)
    assert not come_together(board_after(batches(10, 1)), 100.0)


def test_jobs_of_under_half_the_size_do_not_count() -> None:
    assert not come_together(board_after(sorted(batches(10, 1) + batches(10, 8, 49.0))), 100.0)
    assert come_together(board_after(sorted(batches(10, 1) + batches(10, 8, 51.0))), 100.0)


def test_a_batch_is_large_or_small_beside_the_executors() -> None:
    assert come_together(board_after(batches(20, 4), executors=4), 100.0)
    assert not come_together(board_after(batches(20, 4), executors=16), 100.0)


def test_one_batch_is_little_evidence() -> None:
    assert not come_together(board_after(batches(1, 4), executors=4), 100.0)


@given(
    st.lists(st.tuples(st.floats(0.0, 300.0), st.sampled_from([10.0, 50.0, 100.0, 400.0])), min_size=1, max_size=60),
    st.integers(1, 8),
    st.sampled_from([30.0, 100.0, 250.0]),
    st.sampled_from([1.0, 1e-3, 64.0]),
)
def test_it_is_the_mean_over_pairs_in_any_unit_of_time(
    jobs: list[tuple[float, float]], executors: int, size_s: float, unit_s: float
) -> None:
    rows = sorted((round(arrival_s) * unit_s, work_s * unit_s) for arrival_s, work_s in jobs)
    least_s, within_s = 0.5 * size_s * unit_s, CLOSE * size_s * unit_s
    came_s = [arrival_s for arrival_s, work_s in rows if work_s >= least_s]
    pairs = sum(other >= each - within_s for i, each in enumerate(came_s) for other in came_s[:i])
    expected = pairs > CLUMP * executors * (len(came_s) + ALONE)
    assert come_together(board_after(rows, executors), size_s * unit_s) == expected


def change_pct(executors: int, load_: float, arrivals: Arrivals, long_share: float, long_s: float) -> float:
    """The change of the mean JCT under the shipped model against shortest first, percent, over three episodes."""
    sizes = Classes((1.0 - long_share, long_share), (10.0, long_s))
    recipe = OneStage(load_, arrivals, sizes)
    some = Scenario("some", executors, 1500, 150, "SJF", recipe)
    changes = []
    for seed in range(1000, 1003):
        trace = some.generate(seed)
        ours, base = (
            simulate(trace, executors, load(name)).job_jct_s[some.warm :].mean() for name in ("default", "sjf")
        )
        changes.append(100.0 * (ours / base - 1.0))
    return float(np.mean(changes))


@pytest.mark.parametrize(
    ("executors", "batch", "load_", "long_share", "long_s"),
    [(4, 8, 0.95, 0.4, 50.0), (4, 8, 0.9, 0.4, 200.0), (5, 11, 0.94, 0.41, 182.0), (8, 32, 0.95, 0.4, 50.0)],
)
def test_large_batches_near_saturation_are_not_made_longer(
    executors: int, batch: int, load_: float, long_share: float, long_s: float
) -> None:
    assert change_pct(executors, load_, Periodic(batch, 0.005), long_share, long_s) < 1.0


def test_on_a_lone_executor_a_batch_is_done_shortest_first() -> None:
    assert change_pct(1, 0.9, Periodic(3, 0.1), 0.46, 1733.0) < 0.1


def test_small_batches_are_still_worth_holding_for() -> None:
    assert change_pct(4, 0.9, Periodic(4, 0.005), 0.1, 200.0) < -10.0


@pytest.mark.parametrize("executors", [21, 60])
def test_on_more_executors_than_it_is_for_the_shipped_model_is_shortest_first(executors: int) -> None:
    trace = Scenario("many", executors, 600, 0, "SJF", OneStage(0.9, Poisson(), Classes())).generate(1000)
    ours, base = (simulate(trace, executors, load(name)) for name in ("default", "sjf"))
    np.testing.assert_array_equal(ours.task_start_s, base.task_start_s)
