"""Tasks of several executors: what the shipped model holds for them, by rule, and that it pays."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.episodes import apart, first_state, stage, started, trace_of
from tests.unit.policy.test_heavy import seen

from fermata.policy.action import START, WAIT
from fermata.policy.board import board_of
from fermata.policy.decide import decide
from fermata.policy.features import ORDER, candidates
from fermata.policy.guardrails import NO_LIMITS
from fermata.policy.heuristics.sjf import SJF
from fermata.policy.reason import words_for_wait
from fermata.policy.registry import load
from fermata.policy.several_slots import DUE, NOTHING, SHORTER, TOO_WIDE, WORDS, enough_after_s, held_for, several_slots
from fermata.policy.state import ClusterState
from fermata.sim.metrics import paired_percent
from fermata.sim.simulate import simulate
from fermata.sim.trace import Trace

DEFAULT = load("default")


def pool(*jobs: tuple[float, int], executors: int = 4, running: int = 1) -> ClusterState:
    """A state with one job for each (seconds, slots), of which the first ones run."""
    state = first_state(trace_of(*((0.0, [stage("a", seconds, slots=slots)]) for seconds, slots in jobs)), executors)
    for number in range(running):
        state = started(state, number, 1)
    return apart(state)


def decided(state: ClusterState) -> tuple[int, int]:
    (step, *_) = decide(state, DEFAULT, NO_LIMITS, SJF)
    return step.action.kind, step.action.stage


def why(state: ClusterState, head: int) -> int:
    return int(held_for(board_of(state), head))


@pytest.mark.parametrize(
    ("running", "head", "blocked", "expected"),
    [
        ((10, 2), (100, 1), (10, 4), TOO_WIDE),  # two free ones, and in 10 s the four that the shorter job needs
        ((10, 2), (100, 1), (10, 3), NOTHING),  # then there will be one to spare
        ((10, 2), (100, 2), (10, 3), TOO_WIDE),  # but not two
        ((10, 2), (9, 1), (1, 4), NOTHING),  # it will be done by then
        ((10, 2), (100, 1), (31, 4), NOTHING),  # hardly shorter, by the executors that it takes
        ((101, 2), (100, 1), (10, 4), NOTHING),  # it will be done before there are four
        ((10, 2), (100, 1), (10, 2), NOTHING),  # it fits
    ],
)
def test_a_longer_job_is_held_where_it_takes_what_a_shorter_one_needs(
    running: tuple[float, int], head: tuple[float, int], blocked: tuple[float, int], expected: int
) -> None:
    assert why(pool(running, head, blocked), 1) == expected


def test_shorter_is_by_work_over_a_power_of_the_executors_and_by_weight() -> None:
    least_s = SHORTER * 100.0
    blocked_s = least_s * 4**0.75 / 4
    assert why(pool((10, 2), (100, 1), (blocked_s * 0.999, 4)), 1) == TOO_WIDE
    assert why(pool((10, 2), (100, 1), (blocked_s * 1.001, 4)), 1) == NOTHING
    heavy = pool((10, 2), (100, 1), (blocked_s * 1.9, 4))
    assert why(heavy._replace(job_weight=np.array([1.0, 1.0, 2.0])), 1) == TOO_WIDE
    assert why(heavy._replace(job_weight=np.array([1.0, 2.0, 2.0])), 1) == NOTHING


def test_what_cannot_start_is_no_reason_to_hold() -> None:
    state = pool((10, 2), (100, 1), (10, 4))
    assert why(state._replace(stage_hold_until_s=np.array([-math.inf, -math.inf, 99.0])), 1) == NOTHING
    assert why(state._replace(stage_pending=np.array([0, 1, 0], np.int32)), 1) == NOTHING
    capped = state._replace(stage_running=np.array([1, 0, 1], np.int32), stage_max_cap=np.array([1, 1, 1], np.int32))
    assert why(capped, 1) == NOTHING
    small = state._replace(stage_slots=np.array([2, 1, 5], np.int32))  # as where the pool was made smaller
    assert why(small, 1) == NOTHING


def test_a_task_that_overruns_says_nothing_of_when_there_will_be_enough() -> None:
    late = pool((10, 2), (100, 1), (10, 4))._replace(now_s=11.0)
    assert why(late, 1) == NOTHING
    assert why(late._replace(estimate_error=0.3), 1) == TOO_WIDE  # estimates are rough, so it is still expected to end


def test_where_nothing_runs_everything_fits_and_nothing_is_held() -> None:
    assert why(pool((100, 1), (10, 4), running=0), 0) == NOTHING


@pytest.mark.parametrize(
    ("every", "longs", "free_after", "expected"),
    [(20, 1, 0, DUE), (2000, 1, 0, NOTHING), (20, 25, 0, NOTHING), (20, 1, 1, NOTHING)],
)
def test_the_last_executors_are_kept_for_short_jobs_that_are_due(
    every: float, longs: int, free_after: int, expected: int
) -> None:
    state = pool((1000, 2), *[(1000, 2)] * longs, executors=4 + free_after)
    state = seen(state._replace(now_s=1.0), [(10.0, 1.0)] * 40)
    state = state._replace(recent_arrival_s=state.now_s - every * np.arange(40.0, 0.0, -1.0))
    assert why(state, 1) == expected


def test_few_arrivals_are_not_enough_to_wait_for_more() -> None:
    state = pool((1000, 2), (1000, 2))._replace(now_s=1.0)
    assert [why(seen(state, [(10.0, 1.0)] * many), 1) for many in (19, 20)] == [NOTHING, DUE]
    assert why(seen(state, [(1000.0, 1.0)] * 40), 1) == NOTHING  # not short


def test_of_two_stages_of_one_job_it_is_held_for_the_one_that_comes_first_however_they_are_listed() -> None:
    both = [stage("two", 1.0, slots=2), stage("three", 1.1, slots=3)]
    state = first_state(trace_of((0.0, [stage("a", 10.0, slots=2)]), (0.0, [stage("b", 100.0)]), (0.0, both)), 3)
    state = apart(started(state, 0, 1))
    listed = [state._replace(ready_stages=np.array(order, np.int32)) for order in ([1, 2, 3], [3, 2, 1])]
    assert [why(each, 1) for each in listed] == [TOO_WIDE, TOO_WIDE]  # three have the longer path, and leave none


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 3)), min_size=1, max_size=8))
def test_executors_are_free_when_as_many_tasks_have_ended(tasks: list[tuple[float, int]]) -> None:
    state = pool(*((seconds + 1.0, slots) for seconds, slots in tasks), executors=30, running=len(tasks))
    ends_s = sorted(seconds + 1.0 for seconds, slots in tasks for _ in range(slots))
    board = board_of(state)
    found = [enough_after_s(board, many) for many in range(1, len(ends_s) + 1)]
    assert found == ends_s


def test_the_model_goes_by_the_rule_wherever_a_task_in_sight_takes_several_executors() -> None:
    held = pool((10, 2), (100, 1), (10, 4))
    assert several_slots(board_of(held))
    assert decided(held) == (WAIT, -1)
    steps = decide(held, DEFAULT, NO_LIMITS, SJF)
    assert words_for_wait(DEFAULT, held, steps) == WORDS[TOO_WIDE]
    assert decided(pool((10, 2), (100, 1), (31, 4))) == (START, 1)
    assert not several_slots(board_of(pool((10, 1), (100, 1))))


def test_the_head_is_the_job_with_the_least_work_over_a_power_of_its_executors() -> None:
    state = pool((4.0, 4), (6.0, 2), (11.0, 1), executors=8, running=0)  # 16, 12 and 11 executor-seconds
    assert int(candidates(board_of(state), ORDER).head) == 0
    assert int(candidates(board_of(state), ORDER._replace(per_slot=0.0)).head) == 2


def gpus(seed: int, slots: tuple[int, int, int], executors: int, load_: float = 0.7) -> Trace:
    """Jobs of one task: most are short, some take longer, few take long, on so many executors each."""
    rng = np.random.default_rng(seed)
    shares, seconds = (0.7, 0.25, 0.05), (20.0, 100.0, 1000.0)
    work_s = sum(share * each_s * many for share, each_s, many in zip(shares, seconds, slots, strict=True))
    jobs, now_s = [], 0.0
    for _ in range(1500):
        kind = int(rng.choice(3, p=shares))
        jobs.append((now_s, [stage("a", seconds[kind] * rng.lognormal(0.0, 0.3), slots=slots[kind])]))
        now_s += float(rng.exponential(work_s / executors / load_))
    return trace_of(*jobs)


@pytest.mark.parametrize(
    ("slots", "executors", "at_most"), [((1, 2, 4), 8, -15.0), ((4, 1, 2), 8, -20.0), ((2, 2, 2), 16, 1.0)]
)
def test_holding_pays_where_tasks_are_of_many_widths(
    slots: tuple[int, int, int], executors: int, at_most: float
) -> None:
    ours, base = [], []
    for seed in range(3000, 3004):
        trace = gpus(seed, slots, executors)
        for jct_s, policy in ((ours, DEFAULT), (base, SJF)):
            jct_s.append(float(simulate(trace, executors, policy).job_jct_s[150:].mean()))
    change = paired_percent(np.array(ours), np.array(base))
    assert change.mean < at_most
