"""Tasks of several executors: what is read of them, what is started and held by its scores, and that it pays."""

from __future__ import annotations

import hashlib
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.episodes import apart, first_state, random_trace, stage, startable_stages, started, states_of, trace_of
from tests.unit.policy.test_heavy import seen

from fermata.policy.action import START, WAIT
from fermata.policy.board import board_of
from fermata.policy.decide import decide
from fermata.policy.features import ORDER, candidates
from fermata.policy.guardrails import NO_LIMITS
from fermata.policy.heuristics.sjf import SJF
from fermata.policy.learned import cheapest
from fermata.policy.reason import words_for_wait
from fermata.policy.registry import load
from fermata.policy.rows import new_values
from fermata.policy.several_slots import (
    OTHER,
    SHORTER_DUE,
    TOO_WIDE,
    UNITS,
    WEIGHTS,
    WORDS,
    Best,
    best_stage,
    several_slots,
    why_held,
)
from fermata.policy.slot_features import NAMES, SHORTER, SIZE, enough_after_s
from fermata.policy.slot_scores import SCHEMA
from fermata.policy.slot_weights import SLOT_FEATURES, SLOT_WEIGHTS
from fermata.policy.state import ClusterState
from fermata.sim.metrics import paired_percent
from fermata.sim.simulate import simulate
from fermata.sim.trace import Trace

DEFAULT = load("default")
NEXT_TO_NOTHING = 1e-6  # seconds: what is left of a job by rounding is read against a least time, which has a unit


def pool(*jobs: tuple[float, int], executors: int = 4, running: int = 1) -> ClusterState:
    """A state with one job for each (seconds, slots), of which the first ones run."""
    state = first_state(trace_of(*((0.0, [stage("a", seconds, slots=slots)]) for seconds, slots in jobs)), executors)
    for number in range(running):
        state = started(state, number, 1)
    return apart(state)


def read(state: ClusterState, of: int) -> dict[str, float]:
    """What is read of a stage, by name."""
    board = board_of(state)
    why_held(board, of)
    return dict(zip(NAMES, board.seen, strict=True))


def best(state: ClusterState, **weights: float) -> Best:
    """The best stage, by weights of features with spaces written `_`; by the shipped ones if none are given."""
    board = board_of(state)
    if weights:
        given = np.zeros(WEIGHTS)
        for name, weight in weights.items():
            given[NAMES.index(name.replace("_", " "))] = weight
        board = board._replace(slot_weights=new_values(given))
    found = best_stage(board)
    return Best(int(found[0]), float(found[1]))


def test_there_are_as_many_weights_as_are_read() -> None:
    assert (len(SLOT_WEIGHTS), SIZE) == (WEIGHTS, SLOT_FEATURES)
    assert len(set(NAMES)) == SIZE


def test_what_is_read_is_what_the_schema_of_models_scores_stands_for() -> None:
    # Who changes what is read raises the schema, too: a model's own scores were found for what it read.
    names = hashlib.sha256("\n".join(NAMES).encode()).hexdigest()
    assert (SCHEMA, names[:16]) == ("fermata.slot-scores/2", "8dacaf2e5dc53305")


@pytest.mark.parametrize(
    ("running", "head", "blocked", "delays", "shorter"),
    [
        ((10, 2), (100, 1), (10, 4), 1, 1),  # two free ones, and in 10 s the four that the shorter job needs
        ((10, 2), (100, 1), (10, 3), 0, 0),  # then there will be one to spare
        ((10, 2), (100, 2), (10, 3), 1, 1),  # but not two
        ((10, 2), (9, 1), (1, 4), 0, 0),  # it will be done by then
        ((10, 2), (100, 1), (31, 4), 1, 0),  # hardly shorter, by the executors that it takes
        ((101, 2), (100, 1), (10, 4), 0, 0),  # it will be done before there are four
        ((10, 2), (100, 1), (10, 2), 0, 0),  # it fits
    ],
)
def test_a_longer_job_delays_one_that_does_not_fit_if_it_takes_what_that_one_needs(
    running: tuple[float, int], head: tuple[float, int], blocked: tuple[float, int], delays: float, shorter: float
) -> None:
    found = read(pool(running, head, blocked), 1)
    assert found["delays the one that does not fit"] == delays
    assert found["delays a much shorter one that does not fit"] == shorter


def test_shorter_is_by_work_over_a_power_of_the_executors_and_by_weight() -> None:
    blocked_s = SHORTER * 100.0 * 4**0.75 / 4
    name = "delays a much shorter one that does not fit"
    assert read(pool((10, 2), (100, 1), (blocked_s * 0.999, 4)), 1)[name] == 1
    assert read(pool((10, 2), (100, 1), (blocked_s * 1.001, 4)), 1)[name] == 0
    heavy = pool((10, 2), (100, 1), (blocked_s * 1.9, 4))
    assert read(heavy._replace(job_weight=np.array([1.0, 1.0, 2.0])), 1)[name] == 1
    assert read(heavy._replace(job_weight=np.array([1.0, 2.0, 2.0])), 1)[name] == 0


def test_what_is_read_of_a_stage() -> None:
    state = pool((10, 2), (100, 1), (10, 4))._replace(now_s=4.0)
    state = state._replace(recent_arrival_s=np.array([-36.0, -20.0, 0.0]), recent_work_s=np.array([20.0, 100.0, 40.0]))
    found = read(state, 1)
    assert found == pytest.approx(
        {
            "work over the least of what waits": 0.5 * math.log(100 / 40),
            "work over its width, over the least of what waits": 0.5 * math.log(100 / 10),
            "width, log": 0.0,
            "width": 0.25,
            "free executors beside it": 0.25,
            "takes all that are free": 0.0,
            "delays a much shorter one that does not fit": 1.0,
            "delays the one that does not fit": 1.0,
            "its size over that of the one it delays": 0.5 * math.log(100 / (40 / 4**0.75)),
            "time until that one fits / task": math.log1p(6 / 100),
            "width of the one that does not fit": 1.0,
            "many shorter jobs due": 0.0,
            "shorter jobs due before the next completion": 0.0,
            "waiting jobs": math.log1p(2) / 3,
            "waiting work over the pool / task": math.log1p(140 / 4 / 100) / 3,
            "load by recent arrivals": 2 / 3 * 160 / 40 / 4,
            "next completion / task": math.log1p(6 / 100) / 2,
            "its job has an executor": 0.0,
            "it waits / task": math.log1p(4 / 100) / 3,
            "the one that does not fit waits / its task": math.log1p(4 / 10) / 3,
            "error of recent estimates": 0.0,
            "pending tasks": math.log1p(1) / 3,
            "path / longest path left of its job": 1.0,
            "log executors": math.log(4) / 3,
            "shorter jobs due during its task": 0.0,
            "executors beside it that nothing fills": 0.25,
            "jobs like its own come together": 0.0,
            "executors asked for / pool": math.log1p(5 / 4) / 3,
            "those asked for by what does not fit": 4 / 5,
            "work of the one that does not fit, over the least of what waits": 0.0,
            "time of the one that does not fit, over the least of what waits": 0.0,
            "one": 1.0,
        }
    )


def test_that_estimates_missed_and_that_its_job_runs_is_read_too() -> None:
    jobs = (0.0, [stage("a", 10.0), stage("b", 10.0, slots=2)]), (0.0, [stage("a", 10.0, slots=4)])
    state = apart(started(first_state(trace_of(*jobs), 4), 0, 1))._replace(estimate_error=0.3)
    assert [read(state, 1)[name] for name in ("error of recent estimates", "its job has an executor")] == [0.3, 1.0]


def test_what_does_not_fit_is_read_against_the_least_of_what_waits_whether_it_is_delayed_or_not() -> None:
    found = read(pool((200, 2), (10, 1), (30, 4)), 1)  # done by then
    assert found["delays the one that does not fit"] == 0.0
    assert found["work of the one that does not fit, over the least of what waits"] == 0.5 * math.log(120 / 10)
    assert found["time of the one that does not fit, over the least of what waits"] == 0.5 * math.log(30 / 10)
    assert found["those asked for by what does not fit"] == 4 / 5


@pytest.mark.parametrize(
    ("waiting", "unfilled"),
    [
        ([3], 4),  # of seven that are free
        ([3, 3], 1),
        ([3, 3, 1], 0),
        ([3, 2, 2, 2], 0),
        ([3, 2, 1], 1),
        ([3, 4, 1], 0),  # the widest first
        ([3, 9, 1], 3),  # that one does not fit at all
        ([7, 1], 0),
    ],
)
def test_executors_beside_a_stage_are_filled_by_what_waits(waiting: list[int], unfilled: int) -> None:
    state = pool((10, 3), *((100, slots) for slots in waiting), executors=10)
    assert read(state, 1)["executors beside it that nothing fills"] == unfilled / 10


def test_tasks_fill_up_to_the_cap_of_their_stage() -> None:
    state = pool((10, 4), (100, 1), (100, 2), executors=10)
    many = state._replace(stage_pending=np.array([0, 9, 2], np.int32), stage_max_cap=np.array([1, 2, 9], np.int32))
    assert read(many, 1)["executors beside it that nothing fills"] == 0.0  # six are free: one, another, and twice two
    assert read(many, 1)["executors asked for / pool"] == math.log1p(6 / 10) / 3
    assert read(many, 2)["executors beside it that nothing fills"] == 0.0
    none_left = many._replace(stage_max_cap=np.array([1, 1, 9], np.int32))
    assert read(none_left, 1)["executors beside it that nothing fills"] == 0.1


def test_jobs_like_its_own_come_together_in_batches() -> None:
    state = pool((10, 2), (100, 1), (100, 1))._replace(now_s=2000.0)
    name = "jobs like its own come together"
    for batch, together in ((1, 0.0), (12, 1.0)):
        jobs = [1000.0 * (number // batch) for number in range(48)]
        recent = {"recent_arrival_s": np.array(jobs) - 60_000.0, "recent_work_s": np.full(48, 100.0)}
        assert read(state._replace(**recent, recent_weight=np.ones(48)), 1)[name] == together


def test_what_cannot_start_delays_nobody_and_is_not_delayed() -> None:
    state = pool((10, 2), (100, 1), (10, 4))
    one = "width of the one that does not fit"
    assert read(state, 1)[one] == 1.0
    assert read(state._replace(stage_hold_until_s=np.array([-math.inf, -math.inf, 99.0])), 1)[one] == 0.0
    assert read(state._replace(stage_pending=np.array([0, 1, 0], np.int32)), 1)[one] == 0.0
    capped = state._replace(stage_running=np.array([1, 0, 1], np.int32), stage_max_cap=np.array([1, 1, 1], np.int32))
    assert read(capped, 1)[one] == 0.0
    small = state._replace(stage_slots=np.array([2, 1, 5], np.int32))  # as where the pool was made smaller
    assert read(small, 1)[one] == 0.0


def test_where_it_is_not_known_when_there_will_be_enough_nobody_is_delayed() -> None:
    state = pool((10, 2), (100, 1), (10, 4))
    lost = state._replace(free=1, free_executors=state.free_executors[:1])  # one executor neither runs nor is free
    assert read(lost, 1)["delays the one that does not fit"] == 0.0
    assert best(lost).stage == 1


def test_a_task_that_overruns_says_nothing_of_when_there_will_be_enough() -> None:
    late = pool((10, 2), (100, 1), (10, 4))._replace(now_s=11.0)
    assert read(late, 1)["delays the one that does not fit"] == 0.0
    rough = late._replace(estimate_error=0.3)  # so it is still expected to end
    assert read(rough, 1)["delays the one that does not fit"] == 1.0


@pytest.mark.parametrize(
    ("every", "longs", "beside", "many"), [(20, 1, 0, 1), (2000, 1, 0, 0), (20, 25, 0, 0), (20, 1, 1, 0)]
)
def test_shorter_jobs_are_due_by_recent_arrivals(every: float, longs: int, beside: int, many: float) -> None:
    state = pool((1000, 2), *[(1000, 2)] * longs, executors=4 + beside)
    state = seen(state._replace(now_s=1.0), [(10.0, 1.0)] * 40)
    state = state._replace(recent_arrival_s=state.now_s - every * np.arange(40.0, 0.0, -1.0))
    found = read(state, 1)
    assert found["many shorter jobs due"] == many
    assert found["shorter jobs due before the next completion"] == pytest.approx(math.log1p(999.0 / every))
    assert found["shorter jobs due during its task"] == pytest.approx(math.log1p(1000.0 / every) / 2)


def test_few_arrivals_say_nothing_of_more() -> None:
    state = pool((1000, 2), (1000, 2))._replace(now_s=1.0)
    name = "shorter jobs due before the next completion"
    assert [read(seen(state, [(10.0, 1.0)] * many), 1)[name] > 0.0 for many in (19, 20)] == [False, True]
    assert read(seen(state, [(1000.0, 1.0)] * 40), 1)[name] == 0.0  # not short


def test_of_each_width_the_least_work_may_start_and_of_all_the_best_score() -> None:
    state = pool((60, 1), (10, 2), (20, 2), (50, 1), (5, 4), executors=5)
    assert best(state, one=1.0) == Best(1, 1.0)  # all scores are the same: the earlier job
    assert best(state, width=1.0) == Best(4, 0.8)
    assert best(state, width=-1.0) == Best(3, -0.2)  # the second job of two is not asked about
    heavy = state._replace(job_weight=np.array([1.0, 1.0, 9.0, 1.0, 1.0]))
    assert best(heavy, one=1.0).stage == 2
    assert best(pool((60, 3), (9, 3), executors=5), one=1.0) == Best(-1, -math.inf)  # it does not fit


def test_a_score_is_a_line_and_some_bends() -> None:
    state = pool((10, 2), (100, 1), (10, 4))
    weights = np.random.default_rng(3).standard_normal(WEIGHTS)
    found = best_stage(board_of(state)._replace(slot_weights=new_values(weights)))
    x = np.array(list(read(state, 1).values()))
    units = weights[SIZE:].reshape(UNITS, SIZE + 1)
    score = weights[:SIZE] @ x + units[:, SIZE] @ np.maximum(units[:, :SIZE] @ x, 0.0)
    assert found == pytest.approx((1, score))


def several(seed: int, executors: int) -> list[ClusterState]:
    """States of an episode of random jobs, with something to start and tasks of several executors in sight."""
    states = states_of(random_trace(seed, executors), executors, DEFAULT)
    return [each for each in states if startable_stages(each) and several_slots(board_of(each))]


@given(st.integers(0, 10**6), st.integers(2, 9))
def test_what_is_best_hangs_on_no_order_and_on_no_unit(seed: int, executors: int) -> None:
    rng = np.random.default_rng(seed)
    for state in several(seed, executors)[:20]:
        found = best(state)
        assert found.stage in startable_stages(state)
        mixed = state._replace(
            ready_stages=rng.permutation(state.ready_stages), active_jobs=rng.permutation(state.active_jobs)
        )
        assert best(mixed) == pytest.approx(found, rel=1e-9, abs=1e-9)
        if state.job_remaining_work_s[state.active_jobs].min() < NEXT_TO_NOTHING:
            continue
        times = [name for name in state._fields if name.endswith("_s")]
        slower = state._replace(**{name: getattr(state, name) * 64.0 for name in times})
        assert best(slower) == pytest.approx(found, rel=1e-6, abs=1e-6)


def test_where_nothing_runs_something_starts_whatever_it_scores() -> None:
    idle = pool((100, 1), (10, 4), running=0)
    board = board_of(idle)
    choice = candidates(board._replace(slot_weights=new_values(np.full(WEIGHTS, -1.0))), ORDER)
    assert choice.score < 0.0
    lost = idle._replace(free=3, free_executors=idle.free_executors[:3])  # the fourth neither runs nor is free
    for state in (idle, lost):
        board = board_of(state)._replace(slot_weights=new_values(np.full(WEIGHTS, -1.0)))
        assert cheapest(board, candidates(board, ORDER), np.zeros(3), 0.0)[0] == START


def test_of_two_stages_of_one_job_the_one_that_comes_first_is_delayed_however_they_are_listed() -> None:
    both = [stage("two", 1.0, slots=2), stage("three", 1.1, slots=3)]
    state = first_state(trace_of((0.0, [stage("a", 10.0, slots=2)]), (0.0, [stage("b", 100.0)]), (0.0, both)), 3)
    state = apart(started(state, 0, 1))
    listed = [state._replace(ready_stages=np.array(order, np.int32)) for order in ([1, 2, 3], [3, 2, 1])]
    # Three have the longer path, and leave none.
    assert [read(each, 1)["width of the one that does not fit"] for each in listed] == [1.0, 1.0]


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 3)), min_size=1, max_size=8))
def test_executors_are_free_when_as_many_tasks_have_ended(tasks: list[tuple[float, int]]) -> None:
    state = pool(*((seconds + 1.0, slots) for seconds, slots in tasks), executors=30, running=len(tasks))
    ends_s = sorted(seconds + 1.0 for seconds, slots in tasks for _ in range(slots))
    board = board_of(state)
    found = [enough_after_s(board, many) for many in range(1, len(ends_s) + 1)]
    assert found == ends_s


def test_the_model_goes_by_scores_wherever_a_task_in_sight_takes_several_executors() -> None:
    held = pool((10, 2), (100, 1), (10, 4))
    assert several_slots(board_of(held))
    steps = decide(held, DEFAULT, NO_LIMITS, SJF)
    assert [step.action.kind for step in steps] == [WAIT]
    assert words_for_wait(DEFAULT, held, steps) == WORDS[TOO_WIDE]
    (step, *_) = decide(pool((10, 2), (100, 1), (300, 4)), DEFAULT, NO_LIMITS, SJF)
    assert (step.action.kind, step.action.stage) == (START, 1)
    assert not several_slots(board_of(pool((10, 1), (100, 1))))
    assert candidates(board_of(pool((10, 1), (100, 1))), ORDER).score == math.inf


def test_why_something_is_held_is_told() -> None:
    assert why_held(board_of(pool((10, 2), (100, 1), (10, 4))), 1) == TOO_WIDE
    waits = pool((1000, 2), (1000, 2))._replace(now_s=1.0)
    assert why_held(board_of(waits), 1) == OTHER
    assert why_held(board_of(seen(waits, [(10.0, 1.0)] * 40)), 1) == SHORTER_DUE
    assert len(WORDS) == 3


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
