"""What is legal, and what an illegal action is told."""

from __future__ import annotations

import math
from typing import Any

import pytest
from tests.episodes import first_state, one_stage_jobs, stage, started, trace_of

from fermata.policy.action import (
    HOLD,
    LEGAL,
    START,
    WAIT,
    Action,
    IllegalActionError,
    any_startable,
    check,
    problem_of,
    startable,
)
from fermata.policy.state import ClusterState

# Two executors; j0: three tasks, then a child; j1: a task that needs both; j2: moldable.
TRACE = trace_of(
    (0.0, [stage("a", 4, tasks=3), stage("b", 1, "a")]),
    (0.0, [stage("c", 3, slots=2)]),
    (0.0, [stage("d", 8)._replace(serial_fraction=0.5)]),
)
A, B, C, D = range(4)


def changed(state: ClusterState, field: str, index: int, value: float) -> ClusterState:
    array = getattr(state, field).copy()
    array[index] = value
    return state._replace(**{field: array})


@pytest.fixture
def idle() -> ClusterState:
    return first_state(TRACE, 2)


@pytest.fixture
def busy(idle: ClusterState) -> ClusterState:
    """One task of j0 runs."""
    return started(idle, A, 1)


@pytest.mark.parametrize("action", [Action(START, A, 1), Action(START, A, 3), Action(START, C, 1), Action(START, D, 2)])
def test_starts_of_an_idle_pool(idle: ClusterState, action: Action) -> None:
    check(board_of(idle), action)


@pytest.mark.parametrize(
    ("action", "problem"),
    [
        (Action(7), "no such kind of action"),
        (Action(START, 4, 1), "no such stage"),
        (Action(START, -1, 1), "no such stage"),
        (Action(START, B, 1), "not ready or has no task left"),
        (Action(HOLD, B, until_s=1.0), "not ready or has no task left"),
        (Action(START, A, 0), "the cap is not above what already runs"),
        (Action(START, A, 4), "above the stage's limit"),
        (Action(START, C, 2), "above the stage's limit"),
        (Action(START, D, 3), "above the stage's limit"),
        (Action(WAIT), "nothing runs, so the wait needs a wake-up time"),
        (Action(WAIT, until_s=0.0), "not in the future"),
        (Action(WAIT, until_s=math.nan), "NaN"),
        (Action(HOLD, A, until_s=-1.0), "not in the future"),
        (Action(HOLD, A, until_s=math.nan), "NaN"),
        (Action(HOLD, A), "not in the future"),  # for ever
    ],
)
def test_what_an_idle_pool_refuses(idle: ClusterState, action: Action, problem: str) -> None:
    with pytest.raises(IllegalActionError, match=problem):
        check(board_of(idle), action)


def test_what_changes_once_something_runs(busy: ClusterState) -> None:
    check(board_of(busy), Action(WAIT))
    check(board_of(busy), Action(START, A, 2))
    for action, problem in [
        (Action(START, A, 1), "the cap is not above what already runs"),
        (Action(START, C, 1), "too few executors are free"),
        (Action(HOLD, A, until_s=9.0), "the stage has been started"),
        (Action(HOLD, C, until_s=9.0), "too few executors are free"),
    ]:
        with pytest.raises(IllegalActionError, match=problem):
            check(board_of(busy), action)


def test_a_committed_hold_is_kept(idle: ClusterState) -> None:
    held = changed(idle, "stage_hold_until_s", A, 5.0)
    with pytest.raises(IllegalActionError, match="held until a committed time"):
        check(board_of(held), Action(START, A, 1))
    check(board_of(held._replace(now_s=5.0)), Action(START, A, 1))
    with pytest.raises(IllegalActionError, match="held until a committed time"):
        check(board_of(held), Action(HOLD, A, until_s=6.0))


def test_the_error_tells_the_whole_story(busy: ClusterState) -> None:
    with pytest.raises(IllegalActionError) as error:
        check(board_of(busy), Action(START, A, 1))
    assert str(error.value) == (
        "cannot start stage 0 with cap 1 at 0 s: the cap is not above what already runs, or above the stage's limit "
        "(1 of 2 executors free; stage 0: pending 2, running 1, slots 1, cap 1 of 3, ready since 0 s)"
    )


@pytest.mark.parametrize(
    ("action", "text"),
    [
        (Action(START, 3, 2), "start stage 3 with cap 2"),
        (Action(HOLD, 1, until_s=2.5), "hold stage 1 until 2.5 s"),
        (Action(WAIT), "wait until the next event"),
        (Action(WAIT, until_s=7.0), "wait until 7 s"),
    ],
)
def test_actions_in_words(action: Action, text: str) -> None:
    assert str(action) == text


def test_startable_says_whether_some_cap_is_legal(idle: ClusterState, busy: ClusterState) -> None:
    full = started(busy, D, 1)
    for state in (idle, busy, full, changed(idle, "stage_hold_until_s", C, 2.0)):
        expected: list[Any] = []
        for each in range(4):
            caps = range(1, int(state.stage_max_cap[each]) + 1)
            expected.append(any(problem_of(board_of(state), START, each, cap, math.inf) == LEGAL for cap in caps))
        assert [startable(board_of(state), each) for each in range(4)] == expected
        assert any_startable(board_of(state)) == any(expected)
    assert [startable(board_of(busy), each) for each in range(4)] == [True, False, False, True]


def test_a_stage_at_its_limit_is_not_startable() -> None:
    state = first_state(one_stage_jobs((0.0, 1.0), (0.0, 1.0)), 3)
    state = changed(state, "stage_running", 0, 1)
    assert not startable(board_of(state), 0)
    assert startable(board_of(state), 1)


from fermata.policy.board import board_of
