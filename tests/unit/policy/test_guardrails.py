"""Bounds on waiting: what passes, what is shortened, what is started instead."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.episodes import first_state, one_stage_jobs, stage, started, trace_of

from fermata.policy.action import HOLD, START, WAIT, Action
from fermata.policy.board import board_of
from fermata.policy.guardrails import (
    AGED,
    CAPPED,
    IDLE_POOL,
    PASSED,
    Guardrails,
    admit,
    divided_cap,
    full_cap,
    most_overdue,
    room_to_hold,
)
from fermata.policy.state import ClusterState

TWO = one_stage_jobs((0.0, 9.0), (0.0, 2.0))
FOREVER = Action(WAIT)


def idle(now_s: float = 0.0, held_s: tuple[float, float] = (0.0, 0.0)) -> ClusterState:
    return first_state(TWO, 3)._replace(now_s=now_s, stage_held_s=np.array(held_s))


def busy(now_s: float = 0.0, held_s: float = 0.0) -> ClusterState:
    """Stage 0 runs, stage 1 waits."""
    return started(idle(now_s, (0.0, held_s)), 0, 1)


def test_a_start_always_passes() -> None:
    assert admit(board_of(idle()), Action(START, 1, 1), Guardrails(0.0, 0.0, False)) == (Action(START, 1, 1), PASSED)


@pytest.mark.parametrize(
    ("state", "action", "limits", "expected"),
    [
        # Nothing bounds a wait while something runs ...
        (busy(), FOREVER, Guardrails(), (FOREVER, PASSED)),
        # ... but an idle pool would wait for ever, ...
        (idle(), FOREVER, Guardrails(), (FOREVER, IDLE_POOL)),
        # ... and must not wait at all where that is forbidden.
        (idle(), Action(WAIT, until_s=5.0), Guardrails(), (Action(WAIT, until_s=5.0), PASSED)),
        (idle(), Action(WAIT, until_s=5.0), Guardrails(hold_when_idle=False), (Action(WAIT, until_s=5.0), IDLE_POOL)),
        (busy(), Action(WAIT, until_s=5.0), Guardrails(hold_when_idle=False), (Action(WAIT, until_s=5.0), PASSED)),
        # Cumulative hold: 4 of 6 s are left.
        (busy(10.0, 2.0), FOREVER, Guardrails(max_hold_s=6.0), (Action(WAIT, until_s=14.0), CAPPED)),
        (busy(10.0, 2.0), Action(WAIT, until_s=14.0), Guardrails(max_hold_s=6.0), (Action(WAIT, until_s=14.0), PASSED)),
        (busy(10.0, 6.0), FOREVER, Guardrails(max_hold_s=6.0), (Action(START, 1, 1), AGED)),
        # Age: ready since 0.
        (busy(10.0), FOREVER, Guardrails(max_wait_s=25.0), (Action(WAIT, until_s=25.0), CAPPED)),
        (busy(25.0), FOREVER, Guardrails(max_wait_s=25.0), (Action(START, 1, 1), AGED)),
        # Ready since 4.
        (
            busy(10.0)._replace(stage_ready_s=np.array([0.0, 4.0])),
            FOREVER,
            Guardrails(max_wait_s=25.0),
            (Action(WAIT, until_s=29.0), CAPPED),
        ),
        # The nearer of the two caps counts.
        (busy(10.0, 2.0), FOREVER, Guardrails(6.0, 11.0), (Action(WAIT, until_s=11.0), CAPPED)),
        # A committed hold is bounded as a wait is.
        (busy(), Action(HOLD, 1, 0, 50.0), Guardrails(max_hold_s=6.0), (Action(HOLD, 1, 0, 6.0), CAPPED)),
    ],
)
def test_what_passes(state: ClusterState, action: Action, limits: Guardrails, expected: tuple[Action, int]) -> None:
    assert admit(board_of(state), action, limits) == expected


def test_a_room_below_the_clock_s_resolution_is_none() -> None:
    """Else the wake-up would be now, and time would stand still."""
    now_s = 1e9
    state = busy(now_s, 6.0 - 1e-9)
    assert now_s + 1e-9 == now_s
    assert admit(board_of(state), FOREVER, Guardrails(max_hold_s=6.0)) == (Action(START, 1, 1), AGED)


def test_room_to_hold() -> None:
    assert room_to_hold(2.0, 10.0, 6.0, math.inf) == 4.0
    assert room_to_hold(2.0, 10.0, 6.0, 11.0) == 1.0
    assert room_to_hold(0.0, 10.0, math.inf, 8.0) == -2.0


def test_the_most_overdue_stage() -> None:
    assert most_overdue(board_of(idle(10.0, (2.0, 3.0))), 6.0, math.inf) == (1, 3.0)
    assert most_overdue(board_of(idle(10.0)), 6.0, math.inf) == (0, 6.0)  # a tie
    last_first = idle(10.0)._replace(ready_stages=np.array([1, 0], np.int32))
    assert most_overdue(board_of(last_first), 6.0, math.inf) == (0, 6.0)  # in whichever order they are listed
    # One that runs, and one that does not fit, are not being held ...
    assert most_overdue(board_of(busy(10.0, 1.0)), 6.0, math.inf) == (1, 5.0)
    several = started(first_state(trace_of((0.0, [stage("a", 1, tasks=9)])), 5), 0, 1)
    assert most_overdue(board_of(several), 0.0, 0.0) == (-1, math.inf)
    nothing = idle()._replace(free=0)
    assert most_overdue(board_of(nothing), 0.0, 0.0) == (-1, math.inf)
    # ... and hide nothing that is listed behind them, ...
    both = trace_of((0.0, [stage("a", 1, tasks=9)]), (0.0, [stage("b", 1)]))
    assert most_overdue(board_of(started(first_state(both, 5), 0, 1)), 6.0, math.inf) == (1, 6.0)
    # ... but one that has begun and rests between two of its tasks is.
    begun = idle(10.0, (7.0, 1.0))._replace(stage_cap=np.array([1, 0], np.int32))
    assert most_overdue(board_of(begun), 6.0, math.inf) == (0, -1.0)


def test_an_overdue_stage_takes_what_is_free() -> None:
    state = first_state(trace_of((0.0, [stage("a", 1, tasks=9)]), (0.0, [stage("b", 1, tasks=2, slots=2)])), 5)
    assert (full_cap(board_of(state), 0), full_cap(board_of(state), 1)) == (5, 2)
    running = started(state, 0, 2)
    assert (full_cap(board_of(running), 0), full_cap(board_of(running), 1)) == (5, 1)
    moldable = first_state(trace_of((0.0, [stage("m", 8)._replace(serial_fraction=0.0)])), 4)
    assert full_cap(board_of(moldable), 0) == 4
    assert full_cap(board_of(moldable._replace(stage_max_cap=np.array([3], np.int32))), 0) == 3


def test_moldable_stages_divide_the_pool() -> None:
    moldable = (0.0, [stage("m", 8)._replace(serial_fraction=0.0)])
    alone, three = first_state(trace_of(moldable), 5), first_state(trace_of(*[moldable] * 3), 5)
    assert divided_cap(board_of(alone), 0) == 5
    assert divided_cap(board_of(three), 0) == 1
    two = first_state(trace_of(moldable, moldable), 5)
    assert [divided_cap(board_of(two), 0), divided_cap(board_of(started(two, 0, 4)), 1)] == [2, 1]
    many = first_state(trace_of(*[moldable] * 3), 2)
    assert divided_cap(board_of(many), 0) == 1  # not less, though the pool has fewer executors than stages
    # One of a fixed width takes what is free.
    assert divided_cap(board_of(first_state(trace_of((0.0, [stage("a", 1, tasks=9)]), moldable), 5)), 0) == 5
