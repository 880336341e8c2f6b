"""From costs to an action: what it takes to leave the head."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.episodes import apart, first_state, one_stage_jobs, stage, started, trace_of

from fermata.policy.action import START, WAIT
from fermata.policy.board import board_of
from fermata.policy.features import observe_board
from fermata.policy.learned import (
    CROWD,
    DOUBT,
    IDLE_MARGIN,
    MISS_MARGIN,
    MOST,
    START_HEAD,
    THRONG,
    WAIT_FOR_EVENT,
    cheapest,
    pick_in_use,
    sure_pick,
)
from fermata.policy.registry import load
from fermata.policy.state import ClusterState
from fermata.sim.networks import eager
from fermata.sim.scenarios import scenario
from fermata.sim.simulate import simulate

MARGIN = 0.03


def kind_of(state: ClusterState, wait_cost: float) -> int:
    board = board_of(state)
    choice, _ = observe_board(board)
    return int(cheapest(board, choice, np.array([0.0, 0.0, wait_cost]), MARGIN)[0])


def busy() -> ClusterState:
    """One of two executors is free, and one job waits."""
    return started(first_state(one_stage_jobs((0.0, 4.0), (0.0, 20.0)), 2), 1, 1)


def idle() -> ClusterState:
    return first_state(one_stage_jobs((0.0, 20.0)), 2)


@pytest.mark.parametrize(
    ("state", "needed"),
    [
        (busy(), MARGIN),
        (busy()._replace(estimate_misses=0.2), MARGIN + 0.2 * MISS_MARGIN),
        (idle(), MARGIN + IDLE_MARGIN),
        (idle()._replace(estimate_misses=0.1), MARGIN + IDLE_MARGIN + 0.1 * MISS_MARGIN),
    ],
)
def test_a_wait_must_save_its_margin(state: ClusterState, needed: float) -> None:
    assert kind_of(state, -needed - 0.001) == WAIT
    assert kind_of(state, -needed + 0.001) == START


def test_an_idle_pool_waits_no_longer_than_its_head_takes() -> None:
    assert kind_of(idle()._replace(now_s=19.0), -9.0) == WAIT
    assert kind_of(idle()._replace(now_s=20.0), -9.0) == START


def test_nothing_is_held_in_a_crowd() -> None:
    executors = 2
    for jobs, kind in ((1 + int(CROWD * executors), WAIT), (2 + int(CROWD * executors), START)):
        state = first_state(one_stage_jobs(*[(0.0, 4.0)] * jobs), executors)
        assert kind_of(apart(started(state, 0, 1)), -9.0) == kind


def test_nothing_is_held_where_jobs_like_the_head_come_together() -> None:
    state = started(first_state(one_stage_jobs(*[(0.0, 4.0)] * 5), 2), 0, 1)
    assert (kind_of(state, -9.0), kind_of(apart(state), -9.0)) == (START, WAIT)


def alternative_starts(state: ClusterState) -> bool:
    """Whether it is started where it looks far cheaper than the head."""
    board = board_of(state)
    choice, _ = observe_board(board)
    assert (choice.head, choice.alternative) == (0, 1)
    return bool(cheapest(board, choice, np.array([0.0, -9.0, 0.0]), MARGIN)[1] == choice.alternative)


def test_no_longer_job_goes_first_where_jobs_like_the_head_come_together() -> None:
    state = first_state(one_stage_jobs((0.0, 4.0), *[(0.0, 20.0)] * 4), 2)
    assert (alternative_starts(state), alternative_starts(apart(state))) == (False, True)


@pytest.mark.parametrize("executors", [1, 2])
def test_no_longer_job_goes_first_on_a_lone_executor(executors: int) -> None:
    assert alternative_starts(first_state(one_stage_jobs((0.0, 4.0), (0.0, 20.0)), executors)) == (executors > 1)


@pytest.mark.parametrize(("executors", "most"), [(2, int(2 * THRONG)), (8, MOST)])
def test_in_a_throng_the_shortest_is_started_whatever_looks_cheaper(executors: int, most: int) -> None:
    for waiting, starts in ((most, True), (most + 1, False)):
        state = first_state(one_stage_jobs((0.0, 4.0), *[(0.0, 20.0)] * (waiting - 1)), executors)
        assert alternative_starts(apart(state)) == starts


costs_near = st.lists(st.sampled_from([-0.2, -0.1, -0.03, 0.0, 0.03]), min_size=3, max_size=3)
off_by = st.lists(st.floats(-1.0, 1.0), min_size=3, max_size=3)


@given(costs_near, st.lists(st.sampled_from([0.0, 1e-5, 1e-4, 3e-4]), min_size=3, max_size=3), st.lists(off_by))
def test_a_pick_that_is_sure_stays_whatever_costs_are_off_by(
    near: list[float], more: list[float], tries: list[list[float]]
) -> None:
    costs = np.array(near) + np.array(more)
    for state in (busy(), idle(), started(first_state(one_stage_jobs((0.0, 4.0), (0.0, 20.0), (0.0, 20.0)), 2), 1, 1)):
        board = board_of(state)
        choice, _ = observe_board(board)
        network = eager()._replace(margin=MARGIN, costs=costs.copy())
        picked = sure_pick(board, choice, network)
        within = [np.array(each) * DOUBT * (1.0 + np.abs(costs)) for each in tries]
        picks = {int(pick_in_use(board, choice, costs + off, MARGIN)) for off in within}
        assert picked < 0 or picks <= {picked}


def test_a_pick_is_sure_where_costs_are_apart_and_not_where_they_are_close() -> None:
    board = board_of(busy())
    choice, _ = observe_board(board)
    for wait_cost, expected in ((-1.0, WAIT_FOR_EVENT), (-MARGIN - 1e-5, -1), (-MARGIN + 1e-5, -1), (0.0, START_HEAD)):
        network = eager()._replace(margin=MARGIN, costs=np.array([0.0, 9.0, wait_cost]))
        assert sure_pick(board, choice, network) == expected


@pytest.mark.parametrize(
    ("name", "executors", "load_"), [("norm200", 3, 1.6), ("express_k2", 2, 1.6), ("norm200", 8, 1.2)]
)
def test_a_burst_that_cannot_be_served_is_not_made_longer(name: str, executors: int, load_: float) -> None:
    policy, shortest_first = load("default"), load("sjf")
    overload = scenario(name).with_(executors=executors, load=load_, jobs=400, warm=0)
    changes = []
    for seed in range(1000, 1005):
        trace = overload.generate(seed)
        ours, base = (simulate(trace, overload.executors, each).job_jct_s.mean() for each in (policy, shortest_first))
        changes.append(ours / base - 1.0)
    assert np.mean(changes) < 0.03


def test_a_start_is_of_one_task_more_and_of_a_moldable_stage_with_its_share_of_the_pool() -> None:
    wide, moldable = [stage("a", 4.0, tasks=9)], [stage("m", 4.0)._replace(serial_fraction=0.0)]
    one, two = first_state(trace_of((0.0, wide)), 5), first_state(trace_of((0.0, moldable), (0.0, moldable)), 5)
    for state, cap in ((one, 1), (started(one, 0, 2), 3), (two, 2)):
        board = board_of(state)
        choice, _ = observe_board(board)
        assert cheapest(board, choice, np.zeros(3), MARGIN)[:3] == (START, 0, cap)


def test_a_job_with_many_ready_stages_is_no_crowd() -> None:
    many = [stage(f"s{number}", 4.0) for number in range(10)]
    state = first_state(trace_of((0.0, [stage("a", 20.0)]), (0.0, many)), 2)
    assert state.ready_stages.size > CROWD * 2
    assert kind_of(started(state, 0, 1), -9.0) == WAIT


def test_waiting_for_nothing_is_no_action() -> None:
    board = board_of(idle()._replace(now_s=1000.0))
    choice, _ = observe_board(board)
    assert math.isinf(choice.wake_s)
    assert cheapest(board, choice, np.array([0.0, 0.0, -math.inf]), MARGIN)[0] == START
