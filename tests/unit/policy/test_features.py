"""What a learned policy reads: scale-free, independent of the order of lists, and bounded."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.episodes import (
    any_legal_action,
    first_state,
    one_stage_jobs,
    random_trace,
    stage,
    started,
    states_of,
    trace_of,
)

from fermata.policy.action import any_startable
from fermata.policy.board import board_of
from fermata.policy.decide import decide
from fermata.policy.features import FEATURES, SIZE, Candidates, observe_board
from fermata.policy.graph import job_shape
from fermata.policy.guardrails import Guardrails
from fermata.policy.registry import load
from fermata.policy.rows import column, peek
from fermata.policy.state import ClusterState
from fermata.sim.engine import DECIDE, advance, apply
from fermata.sim.failures import Failures
from fermata.sim.generate.estimates import lognormal_noise
from fermata.sim.scenarios import JobClass, LayeredDags, Scenario, scenario
from fermata.sim.simulate import simulate
from fermata.sim.world import new_world, tables_of, view

TIMES = [name for name in ClusterState._fields if name.endswith("_s")]


def observe(state: ClusterState) -> tuple[Candidates, np.ndarray]:
    return observe_board(board_of(state))


def in_other_units(state: ClusterState, factor: float) -> ClusterState:
    return state._replace(**{name: getattr(state, name) * factor for name in TIMES})


def some_states() -> list[ClusterState]:
    states = [state for seed in range(12) for state in states_of(random_trace(seed, 4), 4, any_legal_action(seed))]
    assert len(states) > 200
    return states


def test_there_is_a_name_for_each_feature() -> None:
    assert len(set(FEATURES)) == SIZE == len(FEATURES)


@pytest.mark.parametrize("factor", [1000.0, 1e-3])
def test_the_unit_of_time_does_not_matter(factor: float) -> None:
    for state in some_states():
        # A job without any work, but for rounding, has no scale to be free of.
        if (state.job_remaining_work_s[state.active_jobs] < 1e-6).any():
            continue
        choice, row = observe(state)
        other, scaled = observe(in_other_units(state, factor))
        assert (other.head, other.alternative) == (choice.head, choice.alternative)
        np.testing.assert_allclose(scaled, row, rtol=2e-5, atol=2e-6)


def test_the_order_of_lists_does_not_matter() -> None:
    rng = np.random.default_rng(0)
    for state in some_states():
        choice, row = observe(state)
        shuffled = state._replace(
            ready_stages=rng.permutation(state.ready_stages),
            active_jobs=rng.permutation(state.active_jobs),
            free_executors=rng.permutation(state.free_executors),
        )
        other, again = observe(shuffled)
        assert other == choice
        np.testing.assert_allclose(again, row, rtol=1e-6)


def test_of_stages_with_equal_paths_the_earlier_one_is_the_alternative() -> None:
    long = [stage("a", 50.0), stage("b", 50.0, "a"), stage("c", 100.0, slots=2)]
    state = first_state(trace_of((0.0, long), (0.0, [stage("d", 10.0)])), 3)
    for ready in state.ready_stages, state.ready_stages[::-1]:
        choice, _ = observe(state._replace(ready_stages=ready))
        assert (choice.head, choice.alternative) == (3, 0)


def test_every_feature_is_finite_and_moderate() -> None:
    for state in some_states():
        choice, row = observe(state)
        assert row.dtype == np.float32
        assert choice.head >= 0
        assert np.isfinite(row).all(), [FEATURES[i] for i in np.flatnonzero(~np.isfinite(row))]
        assert np.abs(row).max() < 20.0


def test_nothing_startable_is_all_zeros() -> None:
    state = started(first_state(one_stage_jobs((0.0, 1.0)), 1), 0, 1)
    assert not any_startable(board_of(state))
    choice, row = observe(state)
    assert (choice.head, choice.alternative) == (-1, -1)
    assert not row.any()


def feature(row: np.ndarray, name: str) -> float:
    return float(row[FEATURES.index(name)])


def test_features_worked_by_hand() -> None:
    # Two executors. j2 (20 s) runs; j0 (4 s) is the head and j1 (10 s) the alternative.
    state = first_state(one_stage_jobs((0.0, 4.0), (0.0, 10.0), (0.0, 20.0)), 2)
    state = started(state, 2, 1)
    choice, row = observe(state)
    assert (choice.head, choice.alternative) == (0, 1)
    assert choice.wake_s == pytest.approx(0.2 * 20.0)
    assert feature(row, "log executors") == pytest.approx(np.log(2))
    assert feature(row, "free share") == 0.5
    assert feature(row, "next completion / unit") == pytest.approx(np.log1p(20.0 / 4.0))
    assert feature(row, "second completion / unit") == pytest.approx(np.log1p(1e4))  # there is none
    assert feature(row, "waiting jobs up to 2 units") == pytest.approx(np.log1p(1))
    assert feature(row, "waiting jobs of 2 to 5 units") == pytest.approx(np.log1p(1))
    assert feature(row, "waiting work of 2 to 5 units") == pytest.approx(np.log1p(2.5))
    assert feature(row, "alternative exists") == 1.0
    assert feature(row, "alternative / unit") == pytest.approx(np.log1p(2.5))
    assert feature(row, "next completion / alternative") == pytest.approx(np.log1p(2.0))
    assert feature(row, "share of arrivals up to 2 units") == pytest.approx(1.0 / 3.0)
    assert feature(row, "share of arriving work over 2 units") == pytest.approx(30.0 / 34.0)
    assert feature(row, "active jobs per executor") == pytest.approx(np.log1p(1.5))
    assert feature(row, "head's task / unit") == 1.0
    assert feature(row, "stages left of the head's job are one task") == 1.0


def test_what_is_due_is_of_jobs_under_half_the_head_alone() -> None:
    # Long ones lie between the short ones, of which one came every ten seconds, the last seven seconds ago.
    arrivals = sorted([(10.0 * k, 1.0) for k in range(20)] + [(10.0 * k + 3.0, 4.0) for k in range(20)])
    recent_s, recent_work_s = np.array(arrivals).T
    jobs = one_stage_jobs((0.0, 4.0), (0.0, 20.0))
    recent = {"recent_arrival_s": recent_s, "recent_work_s": recent_work_s, "recent_weight": np.ones(len(arrivals))}
    state = started(first_state(jobs, 2), 1, 1)._replace(**recent)
    _, row = observe(state._replace(now_s=197.0, executor_free_at_s=np.full(2, 202.0)))
    # Nineteen moments like this one have a horizon of five seconds behind them, in which one came.
    rate = 39.0 / 197.0 * 20.0 / 40.0
    due = (19.0 + 10.0 * rate * 5.0) / 29.0
    assert feature(row, "arrivals of under half a unit due before the next completion") == pytest.approx(np.log1p(due))


def test_features_of_a_dag_s_head() -> None:
    state = first_state(trace_of((0.0, [stage("a", 2, tasks=3), stage("b", 4, "a")])), 4)
    _, row = observe(state)
    assert feature(row, "head's task / unit") == pytest.approx(2.0 / 10.0)
    assert feature(row, "head's path / unit") == pytest.approx(6.0 / 10.0)
    assert feature(row, "head's pending tasks") == pytest.approx(np.log1p(3))
    assert feature(row, "stages left of the head's job are one task") == 0.0
    width = job_shape(np.array([0, 2]), np.array([6.0, 4.0]), np.array([6.0, 4.0]))[2][0]
    assert feature(row, "head's job's average width") == pytest.approx(np.log1p(width))


@pytest.mark.parametrize(("other_s", "head"), [(31.0, 0), (25.0, 2)])
def test_a_job_that_runs_comes_first_among_jobs_of_about_the_same_work(other_s: float, head: int) -> None:
    # Of its 32 s it runs 16: with another of 31 s it would take turns.
    state = first_state(trace_of((0.0, [stage("a", 16.0), stage("b", 16.0)]), (0.0, [stage("a", other_s)])), 2)
    choice, _ = observe(started(state, 1, 1))
    assert choice.head == head


@pytest.mark.parametrize(("now_s", "head"), [(0.0, 2), (10.0, 1)])
def test_what_has_passed_of_running_tasks_is_not_left(now_s: float, head: int) -> None:
    # One of two stages of 16 s runs; 32 s are left, or 22 s when 10 have passed, of which 85% count.
    state = first_state(trace_of((0.0, [stage("a", 16.0), stage("b", 16.0)]), (0.0, [stage("a", 20.0)])), 3)
    state = state._replace(ready_stages=np.array([0, 1, 2], np.int32))
    choice, _ = observe(started(state, 0, 1)._replace(now_s=now_s))
    assert choice.head == head


@pytest.mark.parametrize(("now_s", "head"), [(0.0, 2), (10.0, 0)])
def test_what_has_passed_is_not_left_of_wide_stages_either(now_s: float, head: int) -> None:
    # Of its 32 s it runs 16, and none of them count less than they are: it is no more than its work, then 22 s.
    wide = [stage("a", [8.0, 8.0]), stage("b", 16.0)]
    state = first_state(trace_of((0.0, wide), (0.0, [stage("a", 31.0)])), 2)
    choice, _ = observe(started(state, 1, 1)._replace(now_s=now_s))
    assert choice.head == head


@pytest.mark.parametrize("first", [[16.0], [8.0, 8.0]])
def test_a_task_that_outlives_its_estimate_has_done_no_more_of_the_work(first: list[float]) -> None:
    # What runs was meant to take 16 s and takes 60 by now: 16 s of its job are left to start, not none.
    state = first_state(trace_of((0.0, [stage("a", first), stage("b", 16.0)]), (0.0, [stage("a", 12.0)])), 2)
    choice, _ = observe(started(state, 1, 1)._replace(now_s=60.0))
    assert choice.head == 2


def test_an_executor_that_is_due_after_several_tasks_adds_none_to_the_work() -> None:
    # As a cluster's state has it: the Job puts the other two tasks on the executor that it holds.
    state = first_state(trace_of((0.0, [stage("a", [8.0, 8.0, 8.0])]), (0.0, [stage("a", 25.0)])), 2)
    state = started(state, 0, 1)
    queued = state._replace(executor_free_at_s=np.where(state.executor_stage == 0, 24.0, state.executor_free_at_s))
    assert observe(queued)[0].head == observe(state)[0].head == 0


def test_what_follows_a_job_like_the_head() -> None:
    # Longs of 20 s at 0, 100, 200 and 300 s; the first two are followed by shorts of 4 s after 2 and 6 s.
    arrivals = ((0.0, 20.0), (2.0, 4.0), (100.0, 20.0), (106.0, 4.0), (200.0, 20.0), (300.0, 20.0))
    state = next(each for each in states_of(one_stage_jobs(*arrivals), 1, load("fifo")) if each.now_s == 300.0)
    _, row = observe(state._replace(now_s=305.0))
    assert feature(row, "time since the last arrival / unit") == pytest.approx(np.log1p(5.0 / 20.0))
    assert feature(row, "last arrival / unit") == pytest.approx(np.log1p(1.0))
    assert feature(row, "arrivals like the head that one of under half a unit follows, share") == pytest.approx(2 / 3)
    after = feature(row, "time until the next arrival after one like the head / unit")
    assert after == pytest.approx(np.log1p((2.0 + 6.0 + 100.0) / 3.0 / 20.0))


def test_what_never_came_is_followed_by_anything() -> None:
    state = first_state(one_stage_jobs((0.0, 4.0), (0.0, 20.0)), 2)
    _, row = observe(started(state, 0, 1)._replace(now_s=9.0, recent_work_s=np.array([4.0, 4.0])))
    assert feature(row, "arrivals like the head that one of under half a unit follows, share") == 1.0


def test_an_idle_pool_may_wait_for_as_long_as_its_head_takes() -> None:
    state = first_state(one_stage_jobs((0.0, 20.0)), 2)
    for now_s, wake_s in ((0.0, 2.0), (19.0, 21.0), (20.0, np.inf), (50.0, np.inf)):
        assert observe(state._replace(now_s=now_s))[0].wake_s == pytest.approx(wake_s)


def test_a_wait_for_a_task_that_overruns_lasts_until_the_next_event() -> None:
    state = started(first_state(one_stage_jobs((0.0, 20.0), (0.0, 4.0)), 2), 0, 1)
    assert observe(state._replace(now_s=19.0))[0].wake_s == pytest.approx(19.2)  # a fifth of the second that is left
    assert observe(state._replace(now_s=19.9))[0].wake_s == pytest.approx(19.98)  # or 2% of the head
    assert observe(state._replace(now_s=20.0))[0].wake_s == np.inf
    assert observe(state._replace(now_s=35.0))[0].wake_s == np.inf


def test_a_wake_up_is_always_after_now() -> None:
    # So late that the head's 2% vanish in the clock's resolution.
    state = started(first_state(one_stage_jobs((0.0, 20.0), (0.0, 1e-6)), 2), 0, 1)
    late = state._replace(
        now_s=1e12, executor_free_at_s=np.array([np.nextafter(1e12, np.inf)] * 2), stage_ready_s=np.full(2, 1e12)
    )
    assert observe(late)[0].wake_s == np.inf


def test_a_wait_that_goes_on_is_not_reconsidered_without_end_however_soon_what_runs_is_expected_to_end() -> None:
    state = started(first_state(one_stage_jobs((0.0, 20.0), (0.0, 1e-12)), 2), 0, 1)
    soon = state._replace(now_s=50.0, executor_free_at_s=np.array([50.0 + 1e-12] * 2))
    assert observe(soon)[0].wake_s == pytest.approx(50.05)


# Stages side by side, so that corrected estimates change which path is the longest.
SIDE_BY_SIDE = Scenario("side-by-side", 4, 99, 0, "SRWF", LayeredDags(0.7, (JobClass(1.0, (2, 8), (1, 1), 9, 1, 0.2),)))


@pytest.mark.parametrize(
    ("some", "slots", "sticky", "sigma"),
    [
        (scenario("dag_pods").with_(jobs=40), 1, False, 0.0),
        (scenario("dag_wide").with_(jobs=40), 1, False, 0.0),
        (scenario("dag_wide").with_(jobs=40), 3, False, 0.0),
        (scenario("dag_wide").with_(jobs=40), 1, True, 0.0),
        (SIDE_BY_SIDE, 1, False, 0.7),
    ],
)
def test_a_board_knows_what_is_left_of_jobs_as_the_simulator_does(
    some: Scenario, slots: int, sticky: bool, sigma: float
) -> None:
    trace = lognormal_noise(some.generate(1), sigma, 1)
    trace = replace(trace, stage_slots=np.random.default_rng(1).integers(1, slots + 1, trace.stages, np.int32))
    world, seen = new_world(tables_of(trace, 4), 4, corrects=sigma > 0.0), 0
    peek(world.clock).sticky = sticky
    while advance(world) == DECIDE:
        for step in decide(view(world), load("srwf"), Guardrails(), load("sjf")):
            apply(world, *step.action)
        runs = column(world.board.jobs, "running") > 0
        board = board_of(view(world))
        for name in ("running_work_s", "due_s", "remaining_path_s"):
            told = column(board.jobs, name)
            known = column(world.board.jobs, name, len(told))
            np.testing.assert_allclose(told, known, rtol=1e-9, atol=1e-6)
        seen += int(runs.sum())
    assert seen > 40
    corrected = column(world.board.stages, "estimate_s") != trace.stage_estimate_s
    assert (corrected.sum() > 40) == (sigma > 0.0)


@pytest.mark.parametrize("failures", [None, Failures(0.2, 1)])
@pytest.mark.parametrize("capped", [False, True])
def test_a_board_tells_jobs_of_wide_stages_as_the_simulator_does(capped: bool, failures: Failures | None) -> None:
    told: set[int] = set()
    for seed in range(4):
        trace = random_trace(seed, 4)
        caps = np.random.default_rng(seed).choice([1, 1, 2], trace.stages).astype(np.int32) if capped else None
        tables = tables_of(trace, 4, sticky=seed % 2 > 0, caps=caps, failures=failures)
        world = new_world(tables, 4)
        while advance(world) == DECIDE:
            for step in decide(view(world), any_legal_action(seed), Guardrails(), load("sjf")):
                apply(world, *step.action)
            narrow = column(board_of(view(world)).jobs, "narrow")
            np.testing.assert_array_equal(narrow, column(world.board.jobs, "narrow", len(narrow)))
            told |= set(narrow.tolist())
    assert told == {0, 1}


def test_a_stage_that_runs_one_task_at_a_time_counts_as_it_does_in_a_cluster() -> None:
    # At 12 one executor is free. `a` has a task that runs and another one, and there are 10 s of `b`: 30 s, of which
    # 15% do not count, because no stage of the job can use more than one executor. That is less than the 27 s of `c`.
    jobs = trace_of((0.0, [stage("a", 10, tasks=3), stage("b", 10)]), (0.0, [stage("d", 12)]), (11.0, [stage("c", 27)]))
    caps = np.array([1, 1, 1, 1], np.int32)
    for observer in (None, lambda state, steps: None):
        episode = simulate(jobs, 2, load("default"), sticky=True, caps=caps, observer=observer)
        assert episode.task_start_s.tolist() == [0.0, 10.0, 20.0, 12.0, 0.0, 22.0]


def test_arrivals_next_to_no_time_apart_leave_every_feature_a_number() -> None:
    for state in states_of(one_stage_jobs((0.0, 20.0), (5e-324, 3.0)), 2, load("srwf")):
        assert np.isfinite(observe(state)[1]).all()
