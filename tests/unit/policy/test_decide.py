"""`decide`: what is asked, in what order, and how a decision ends."""

from __future__ import annotations

import math

import pytest
from tests.episodes import Python, first_state, one_stage_jobs, stage, startable_stages, trace_of

from fermata.policy.action import HOLD, START, WAIT, Action, IllegalActionError
from fermata.policy.decide import Step, decide
from fermata.policy.guardrails import AGED, CAPPED, IDLE_POOL, NO_LIMITS, PASSED, Guardrails
from fermata.policy.registry import load
from fermata.policy.state import ClusterState

THREE = one_stage_jobs((0.0, 9.0), (0.0, 2.0), (0.0, 5.0))


def test_starts_in_order_until_nothing_is_free() -> None:
    steps = decide(first_state(THREE, 2), load("sjf"), NO_LIMITS, load("sjf"))
    assert [step.action for step in steps] == [Action(START, 1, 1), Action(START, 2, 1)]
    assert all(step.override == PASSED and step.proposed == step.action for step in steps)


def test_starts_until_nothing_is_ready() -> None:
    assert len(decide(first_state(THREE, 5), load("sjf"), NO_LIMITS, load("sjf"))) == 3


def test_a_policy_sees_what_its_own_actions_changed() -> None:
    seen: list[tuple[int, list[int]]] = []

    def answer(state: ClusterState) -> Action:
        seen.append((state.free, startable_stages(state)))
        return Action(START, startable_stages(state)[-1], 1)

    decide(first_state(THREE, 2), Python(answer), NO_LIMITS, load("sjf"))
    assert seen == [(2, [0, 1, 2]), (1, [0, 1])]


def test_a_wait_closes_the_decision() -> None:
    def answer(state: ClusterState) -> Action:
        return Action(WAIT) if state.free == 1 else Action(START, 0, 1)

    steps = decide(first_state(THREE, 2), Python(answer), NO_LIMITS, load("sjf"))
    assert [step.action.kind for step in steps] == [START, WAIT]


def test_holding_everything_ends_without_a_wait() -> None:
    def answer(state: ClusterState) -> Action:
        return Action(HOLD, startable_stages(state)[0], until_s=4.0)

    steps = decide(first_state(THREE, 2), Python(answer), NO_LIMITS, load("sjf"))
    assert [(step.action.kind, step.action.stage) for step in steps] == [(HOLD, 0), (HOLD, 1), (HOLD, 2)]


def test_what_is_held_is_not_held_again() -> None:
    """A decision would never end: each of them leaves the others to start."""

    def answer(state: ClusterState) -> Action:
        return Action(HOLD, 0, until_s=state.now_s + 4.0)

    with pytest.raises(IllegalActionError, match="held until a committed time"):
        decide(first_state(THREE, 2), Python(answer), Guardrails(max_wait_s=2.0), load("sjf"))


def test_nothing_startable_is_no_decision() -> None:
    state = first_state(trace_of((0.0, [stage("a", 1, slots=2)])), 2)
    assert (
        decide(state._replace(free=1, free_executors=state.free_executors[:1]), load("sjf"), NO_LIMITS, load("sjf"))
        == ()
    )
    asked = Python(lambda _: pytest.fail("asked for nothing"))
    none_ready = state._replace(ready_stages=state.ready_stages[:0])
    assert decide(none_ready, asked, NO_LIMITS, asked) == ()


def test_the_fallback_is_asked_once_for_each_refused_wait() -> None:
    patient = Python(lambda state: Action(WAIT))
    steps = decide(first_state(THREE, 2), patient, NO_LIMITS, load("sjf"))
    # Once the fallback has started one job, waiting for its end is allowed.
    assert steps == (
        Step(Action(START, 1, 1), Action(WAIT), IDLE_POOL),
        Step(Action(WAIT), Action(WAIT), PASSED),
    )


def test_a_wait_is_shortened_and_an_overdue_stage_started() -> None:
    patient = Python(lambda state: Action(WAIT, until_s=100.0))
    state = first_state(THREE, 2)
    (step,) = decide(state, patient, Guardrails(max_hold_s=3.0), load("sjf"))
    assert step == Step(Action(WAIT, until_s=3.0), Action(WAIT, until_s=100.0), CAPPED)
    steps = decide(state._replace(now_s=6.0), patient, Guardrails(max_wait_s=6.0), load("sjf"))
    assert [step.override for step in steps] == [AGED, AGED]
    assert [step.action.stage for step in steps] == [0, 1]


@pytest.mark.parametrize("fallback_too", [False, True])
def test_an_illegal_answer_raises_whoever_gave_it(fallback_too: bool) -> None:
    wrong = Python(lambda state: Action(START, 0, 99))
    patient = Python(lambda state: Action(WAIT, until_s=math.inf))
    with pytest.raises(IllegalActionError, match="cannot start stage 0 with cap 99"):
        decide(first_state(THREE, 2), patient if fallback_too else wrong, NO_LIMITS, wrong)
