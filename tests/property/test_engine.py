"""Whatever arrives and whatever is answered: the engine keeps its accounts, and the same seed gives the same log."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import fields, is_dataclass

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.episodes import any_legal_action, assert_consistent, log_of, random_trace

from fermata.policy.action import LEGAL, problem_of
from fermata.policy.board import board_of, state_of
from fermata.policy.decide import Policy, Step, decide
from fermata.policy.guardrails import Guardrails
from fermata.policy.registry import HEURISTICS, load
from fermata.policy.rows import column
from fermata.policy.state import ClusterState
from fermata.policy.transition import take
from fermata.sim.engine import DECIDE, DONE, advance, apply
from fermata.sim.simulate import simulate
from fermata.sim.trace import Trace
from fermata.sim.trace_builder import StageSpec, TraceBuilder
from fermata.sim.world import World, new_world, tables_of, view

EXECUTORS = st.integers(1, 5)
# Few distinct values, so that events fall together; and a zero, which is a duration like any other.
times = st.sampled_from([0.0, 0.5, 1.0, 2.0, 5.0]) | st.floats(0.0, 20.0)
calm = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def episodes(draw: st.DrawFn) -> tuple[Trace, int]:
    """A trace and a number of executors on which it can run."""
    executors = draw(EXECUTORS)
    builder = TraceBuilder()
    for job in range(draw(st.integers(1, 6))):
        stages: list[StageSpec] = []
        for number in range(draw(st.integers(1, 4))):
            moldable = draw(st.integers(0, 5)) == 0
            stages.append(
                StageSpec(
                    name=f"s{number}",
                    durations_s=draw(st.lists(times, min_size=1, max_size=1 if moldable else 4)),
                    depends_on=draw(st.lists(st.sampled_from([each.name for each in stages]), unique=True))
                    if stages
                    else [],
                    slots=1 if moldable else draw(st.sampled_from([1, 1, executors])),
                    estimate_s=draw(st.none() | times),
                    serial_fraction=draw(st.floats(0.0, 1.0)) if moldable else None,
                )
            )
        builder.add_job(f"j{job}", draw(times), stages)
    return builder.finish(), executors


policies = st.one_of(
    st.sampled_from(sorted(HEURISTICS)).map(load),
    st.sampled_from(["sjf-hold:split=3,tau=1", "sjf-hold:tau=2,last=2", "hold-follower:delay=3"]).map(load),
    st.integers(0, 10**6).map(any_legal_action),
)
guardrails = st.builds(
    Guardrails,
    max_hold_s=st.sampled_from([np.inf, 4.0, 0.0]),
    max_wait_s=st.sampled_from([np.inf, 6.0]),
    hold_when_idle=st.booleans(),
)


@calm
@given(episodes(), policies, guardrails, st.booleans())
def test_every_episode_is_consistent(
    drawn: tuple[Trace, int], policy: Policy, limits: Guardrails, sticky: bool
) -> None:
    assert_consistent(simulate(*drawn, policy, limits=limits, sticky=sticky))


@calm
@given(episodes(), policies, guardrails, st.booleans())
def test_the_same_policy_gives_the_same_log(
    drawn: tuple[Trace, int], policy: Policy, limits: Guardrails, sticky: bool
) -> None:
    first, second = (log_of(simulate(*drawn, policy, limits=limits, sticky=sticky)) for _ in range(2))
    np.testing.assert_equal(first, second)


@calm
@given(episodes(), st.sampled_from(sorted(HEURISTICS)), guardrails, st.booleans())
def test_the_compiled_loop_answers_as_decide_does(
    drawn: tuple[Trace, int], name: str, limits: Guardrails, sticky: bool
) -> None:
    compiled = simulate(*drawn, load(name), limits=limits, sticky=sticky)
    asked = simulate(*drawn, load(name), limits=limits, sticky=sticky, observer=lambda state, steps: None)
    np.testing.assert_equal(log_of(compiled), log_of(asked))


@calm
@given(episodes(), policies, guardrails)
def test_no_stage_is_held_longer_than_its_cap(drawn: tuple[Trace, int], policy: Policy, limits: Guardrails) -> None:
    """A committed hold is the exception: it is bounded when it is made, by nothing but the policy."""
    if policy.name.startswith("any legal action"):
        return
    episode = simulate(*drawn, policy, limits=limits)
    assert (episode.stage_held_s <= limits.max_hold_s + 1e-9).all()


@calm
@given(episodes(), policies, st.booleans())
def test_a_state_keeps_its_accounts(drawn: tuple[Trace, int], policy: Policy, sticky: bool) -> None:
    def observe(state: ClusterState, _steps: tuple[Step, ...]) -> None:
        left = state.stage_pending + state.stage_running
        assert sorted(state.active_jobs.tolist()) == np.unique(state.stage_job[left > 0]).tolist()
        ready = (state.stage_ready_s <= state.now_s) & (state.stage_pending > 0)
        assert sorted(state.ready_stages.tolist()) == np.flatnonzero(ready).tolist()
        busy = state.executor_stage >= 0
        assert sorted(state.free_executors.tolist()) == np.flatnonzero(~busy).tolist()
        jobs = len(state.job_arrival_s)
        np.testing.assert_array_equal(state.job_running, np.bincount(state.executor_job[busy], minlength=jobs))
        work_s = np.bincount(state.stage_job, left * state.stage_slots * state.stage_estimate_s, jobs)
        np.testing.assert_allclose(state.job_remaining_work_s, work_s, rtol=1e-9, atol=1e-9)

    simulate(*drawn, policy, sticky=sticky, observer=observe)


@calm
@given(episodes(), policies)
def test_decide_leaves_its_state_as_it_was_and_every_step_is_legal(drawn: tuple[Trace, int], policy: Policy) -> None:
    def observe(state: ClusterState, steps: tuple[Step, ...]) -> None:
        before = [np.copy(field) for field in state]
        again = decide(state, policy, Guardrails(), load("sjf"))
        assert again == steps
        for name, field, kept in zip(state._fields, state, before, strict=True):
            np.testing.assert_array_equal(field, kept, err_msg=name)
        mine = board_of(state)
        for step in steps:
            assert problem_of(mine, *step.action) == LEGAL
            take(mine, step.action)

    simulate(*drawn, policy, observer=observe)


def _said(world: World) -> dict[str, list[float]]:
    """Everything that a world says, by column."""
    said: dict[str, list[float]] = {}
    parts = {**world.board._asdict(), **world.correction._asdict(), **world._asdict()}
    del parts["board"], parts["correction"]
    for part, rows in parts.items():
        if isinstance(rows, np.ndarray):
            names = rows.dtype.names
        else:
            names = tuple(each.name for each in fields(rows[0])) if len(rows) and is_dataclass(rows[0]) else None
        for name in names or ():
            said[f"{part}.{name}"] = column(rows, name).tolist()
        if names is None:
            said[part] = list(rows)
    return said


@calm
@given(episodes(), policies, st.integers(0, 12), st.booleans())
def test_a_copied_world_goes_on_as_the_one_it_was_copied_from(
    drawn: tuple[Trace, int], policy: Policy, decisions: int, corrects: bool
) -> None:
    trace, executors = drawn
    tables = tables_of(trace, executors)
    world = new_world(tables, executors, corrects=corrects)

    def go_on(world: World, most: int | None) -> int:
        while most is None or most > 0:
            outcome = int(advance(world))
            if outcome != DECIDE:
                return outcome
            for step in decide(view(world), policy, Guardrails(), load("sjf")):
                apply(world, *step.action)
            most = None if most is None else most - 1
        return DECIDE

    go_on(world, decisions)
    copy, before = deepcopy(world), _said(world)
    assert go_on(copy, None) == DONE
    np.testing.assert_equal(_said(world), before)
    assert go_on(world, None) == DONE
    np.testing.assert_equal(_said(world), _said(copy))


@pytest.mark.parametrize("executors", [1, 3, 7])
def test_many_jobs_of_every_kind(executors: int) -> None:
    for seed in range(8):
        trace = random_trace(seed, executors)
        for policy in (any_legal_action(seed), load("sjf-hold:tau=1,split=6"), load("srwf")):
            assert_consistent(simulate(trace, executors, policy, sticky=seed % 2 == 0))


def test_a_board_shares_nothing_with_its_state_and_says_the_same() -> None:
    trace = random_trace(1, 3)
    world = new_world(tables_of(trace, 3), 3)
    advance(world)
    state = view(world)
    board = board_of(state)
    again = state_of(board)
    for name, value in state._asdict().items():
        np.testing.assert_array_equal(value, getattr(again, name), err_msg=name)
        if isinstance(value, np.ndarray):
            assert not np.shares_memory(value, getattr(again, name)), name
