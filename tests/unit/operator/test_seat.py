"""Who decides in a pool: the policy where it can, the fallback wherever it cannot."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from concurrent.futures import Future
from functools import partial
from typing import Any

import numpy as np
import pytest
from tests.episodes import MostChildren, first_state, one_stage_jobs, started, trace_of
from tests.episodes import stage as task
from tests.unit.operator.objects import T0, stage, workflow_fact_of

from fermata.operator import reasons
from fermata.operator.build_state import build_state, dag_of
from fermata.operator.builtin import UnusablePolicyError, load_fallback
from fermata.operator.envelope import envelope_of
from fermata.operator.estimates import Estimates
from fermata.operator.metrics import Metrics
from fermata.operator.model import Loaded
from fermata.operator.resources import ExecutorPoolSpec, PolicySource
from fermata.operator.seat import RETRY_LOAD_S, Decision, Seat, Verdict, limits_of
from fermata.operator.view import view
from fermata.policy import registry
from fermata.policy.action import HOLD, START, Action
from fermata.policy.board import Board
from fermata.policy.dag import Dag
from fermata.policy.errors import ModelError
from fermata.policy.features import FEATURES, SIZE
from fermata.policy.guardrails import IDLE_POOL
from fermata.policy.rows import new_values
from fermata.policy.several_slots import WEIGHTS
from fermata.policy.state import ClusterState

SPEC = ExecutorPoolSpec(executors=2, decision_deadline_seconds=60)  # Numba may compile in the first decision


def _state() -> ClusterState:
    fact = workflow_fact_of("w", stage("a"))
    assert fact.spec is not None
    seen = view(fact, fact.spec, {}, {}, {}, Estimates(), T0)
    return build_state([seen], 2, {}, {}, {}, [], T0)[0]


class _Policy:
    """A learned policy that answers, or fails, as told."""

    name = "learned"

    def __init__(self, answer: Action | Exception | threading.Event) -> None:
        self.answer = answer

    def choose(self, _state: ClusterState) -> Action:
        if isinstance(self.answer, threading.Event):
            self.answer.wait()
            return Action(START, 0, 1)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def _seat(policy: Any) -> tuple[Seat, Metrics]:
    metrics = Metrics()
    seat = Seat("pool", None, metrics, lambda _: None)  # type: ignore[arg-type]
    seat._policy = policy
    seat._approve()
    return seat, metrics


async def _asked(seat: Seat, state: ClusterState, spec: ExecutorPoolSpec = SPEC, *, may_hold: bool = True) -> Decision:
    """Decide in a state whose stages do not depend on each other."""
    stages = len(state.stage_job)
    return await seat.decide(state, spec, limits_of(spec), may_hold=may_hold, dag=lambda: Dag.of_edges(stages, []))


def _decide(
    policy: Any, spec: ExecutorPoolSpec, times: int = 1, *, may_hold: bool = True
) -> tuple[Decision, Seat, Metrics]:
    seat, metrics = _seat(policy)

    async def ask() -> Decision:
        for _ in range(times):
            decision = await _asked(seat, _state(), spec, may_hold=may_hold)
        return decision

    try:
        return asyncio.run(ask()), seat, metrics
    finally:
        if isinstance(getattr(policy, "answer", None), threading.Event):
            policy.answer.set()
        seat.close()


def test_a_policy_that_answers_decides() -> None:
    decision, seat, _ = _decide(_Policy(Action(START, 0, 1)), SPEC)
    assert decision.policy == "learned"
    assert [step.action for step in decision.steps] == [Action(START, 0, 1)]
    assert seat.verdict.ready


@pytest.mark.parametrize(
    "answer",
    [
        ModelError("answered NaN"),
        ZeroDivisionError("no"),
        ValueError("no"),
        Action(START, 99, 1),
        Action(START, 0, 99),
    ],
)
def test_a_policy_that_fails_or_errs_is_replaced_for_this_decision(answer: Any) -> None:
    decision, seat, metrics = _decide(_Policy(answer), SPEC)
    assert decision.policy == "sjf"
    assert [step.action.kind for step in decision.steps] == [START]
    assert (seat.verdict.ready, seat.verdict.reason) == (False, reasons.DECISION_FAILED)
    labels = {"pool": "pool", "reason": reasons.DECISION_FAILED}
    assert metrics.registry.get_sample_value("fermata_fallbacks_total", labels) == 1


def test_a_late_policy_is_replaced_and_not_asked_again_while_it_is_busy() -> None:
    decision, seat, metrics = _decide(_Policy(threading.Event()), ExecutorPoolSpec(executors=2), times=3)
    assert decision.policy == "sjf"
    assert (seat.verdict.ready, seat.verdict.reason) == (False, reasons.DECISION_LATE)
    assert "busy with an earlier decision" in seat.verdict.message
    labels = {"pool": "pool", "reason": reasons.DECISION_LATE}
    assert metrics.registry.get_sample_value("fermata_fallbacks_total", labels) == 3
    asked = metrics.registry.get_sample_value("fermata_decision_seconds_count", {"pool": "pool", "policy": "learned"})
    assert asked == 1, "decisions that it was not asked for would hide how long the others take"


def test_a_policy_that_is_stuck_does_not_keep_the_next_one_from_deciding() -> None:
    stuck = _Policy(threading.Event())
    seat, _ = _seat(stuck)
    spec = SPEC.model_copy(update={"decision_deadline_seconds": 0.01, "policy": PolicySource(name="fifo")})

    async def ask() -> list[str]:
        late = await _asked(seat, _state(), spec)
        assert seat.verdict == (False, reasons.DECISION_LATE, "learned took over 0.01 s", "")
        await seat.seat(spec, T0)
        while seat.policy is stuck:
            await asyncio.sleep(0.001)
            await seat.seat(spec, T0)
        return [late.policy, (await _asked(seat, _state(), spec)).policy]

    try:
        assert asyncio.run(ask()) == ["sjf", "fifo"]
    finally:
        stuck.answer.set()  # type: ignore[union-attr]
        seat.close()


@pytest.mark.parametrize("busy", [False, True])
def test_where_there_is_nothing_to_decide_no_decision_of_the_fallback_is_counted(busy: bool) -> None:
    seat, metrics = _seat(_Policy(Action(START, 0, 1)) if busy else None)
    seat._asked = Future() if busy else None  # an earlier decision that takes long
    empty = build_state([], 2, {}, {}, {}, [], T0)[0]
    for state, count in ((empty, None), (_state(), 1.0), (empty, 1.0)):
        asyncio.run(_asked(seat, state))
        reason = reasons.DECISION_LATE if busy else reasons.POLICY_LOADED
        labels = {"pool": "pool", "reason": reason}
        assert metrics.registry.get_sample_value("fermata_fallbacks_total", labels) == count
    seat.close()


def test_a_policy_that_has_nothing_to_decide_is_not_asked_and_no_decision_of_it_is_counted() -> None:
    seat, metrics = _seat(_Policy(Action(START, 0, 1)))
    empty = build_state([], 2, {}, {}, {}, [], T0)[0]
    labels = {"pool": "pool", "policy": "learned"}
    for state, count in ((empty, 0.0), (_state(), 1.0), (empty, 1.0)):
        asyncio.run(_asked(seat, state))
        assert metrics.registry.get_sample_value("fermata_decision_seconds_count", labels) == count
    seat.close()


class _Taught(_Policy):
    """A policy that says what it was taught."""

    def __init__(self, low: list[float], high: list[float]) -> None:
        super().__init__(Action(START, 0, 1))
        self.metadata = {"envelope": {"low": low, "high": high}}


def test_a_state_that_the_model_was_not_taught_is_left_to_the_fallback() -> None:
    unbounded = [math.inf] * SIZE
    for low, expected in (([-math.inf] * SIZE, "learned"), ([-math.inf, *[1e6] * (SIZE - 1)], "sjf")):
        policy = _Taught(low, unbounded)
        seat, metrics = _seat(policy)
        seat._envelope = envelope_of(policy)
        decision = asyncio.run(_asked(seat, _state()))
        assert decision.policy == expected
        seat.close()
    assert (seat.verdict.ready, seat.verdict.reason) == (False, reasons.OUT_OF_DISTRIBUTION)
    assert f"and {SIZE - 4} more" in seat.verdict.message
    labels = {"pool": "pool", "reason": reasons.OUT_OF_DISTRIBUTION}
    assert metrics.registry.get_sample_value("fermata_fallbacks_total", labels) == 1


class _Scoring(_Taught):
    """The same, with scores of its own for tasks of several executors: of work over the least of what waits."""

    def __init__(self, high: list[float], weight: float) -> None:
        super().__init__([-math.inf] * SIZE, high)
        self._weights = np.zeros(WEIGHTS)
        self._weights[0] = weight

    def scored(self, board: Board) -> Board:
        return board._replace(slot_weights=new_values(self._weights))


def test_where_scores_choose_the_head_an_envelope_is_of_what_they_choose() -> None:
    jobs = trace_of(*((0.0, [task("a", seconds, slots=slots)]) for seconds, slots in ((100, 1), (1, 2), (1000, 1))))
    state = started(first_state(jobs, 4), 0, 1)
    high = [math.inf] * SIZE
    high[FEATURES.index("next completion / unit")] = math.log(10.0)  # the short job is a hundredth of what runs
    shortest, longest = (envelope_of(_Scoring(high, weight)) for weight in (-1.0, 1.0))
    assert shortest.outside(state) == "next completion / unit"
    assert longest.outside(state) == ""


@pytest.mark.parametrize(
    ("low", "high"),
    [([0.0] * (SIZE - 1), [1.0] * SIZE), ([math.nan] * SIZE, [1.0] * SIZE), ([2.0] * SIZE, [1.0] * SIZE), (["a"], [])],
)
def test_an_envelope_that_makes_no_sense_makes_a_model_unusable(low: Any, high: Any) -> None:
    with pytest.raises(ModelError, match="envelope"):
        envelope_of(_Taught(low, high))


def test_a_policy_that_names_no_envelope_is_taken_at_its_word() -> None:
    assert envelope_of(registry.load("sjf")) is None
    assert envelope_of(_Policy(Action(START, 0, 1))) is None


def test_a_policy_that_recovers_decides_again() -> None:
    policy = _Policy(ModelError("no"))
    metrics = Metrics()
    seat = Seat("pool", None, metrics, lambda _: None)  # type: ignore[arg-type]
    seat._policy = policy  # type: ignore[assignment]

    async def ask() -> list[str]:
        first = await _asked(seat, _state())
        policy.answer = Action(START, 0, 1)
        await _asked(seat, build_state([], 2, {}, {}, {}, [], T0)[0])
        assert seat.verdict.reason == reasons.DECISION_FAILED, "there was nothing to decide"
        return [first.policy, (await _asked(seat, _state())).policy]

    assert asyncio.run(ask()) == ["sjf", "learned"]
    assert seat.verdict.ready
    seat.close()


def _disagreements(metrics: Metrics) -> float | None:
    return metrics.registry.get_sample_value("fermata_shadow_disagreements_total", {"pool": "pool"})


@pytest.mark.parametrize(
    ("mode", "may_hold"), [("Shadow", True), ("Shadow", False), ("Enforce", False)], ids=["shadow", "both", "paused"]
)
def test_a_policy_that_is_only_asked_is_recorded_and_counted(mode: Any, may_hold: bool) -> None:
    spec = SPEC.model_copy(update={"mode": mode})
    agreeing, seat, metrics = _decide(_Policy(Action(START, 0, 1)), spec, may_hold=may_hold)
    assert (agreeing.policy, seat.name) == ("sjf", "sjf")
    assert agreeing.shadow is not None
    assert (agreeing.shadow.policy, agreeing.shadow.steps) == ("learned", agreeing.steps)
    assert _disagreements(metrics) is None
    hold = Action(HOLD, 0, until_s=T0 + 9)
    other, _, metrics = _decide(_Policy(hold), spec, may_hold=may_hold)
    assert [step.action.kind for step in other.steps] == [START]
    assert other.shadow is not None
    assert _disagreements(metrics) is None, "nothing runs in the pool, so the guardrails let nobody hold"


def test_in_mode_shadow_the_fallback_decides_in_its_own_order() -> None:
    seat, metrics = _seat(registry.load("fifo"))
    state = first_state(one_stage_jobs((0.0, 30.0), (0.0, 20.0)), 1)
    decision = asyncio.run(_asked(seat, state, SPEC.model_copy(update={"mode": "Shadow"})))
    assert decision.shadow is not None
    assert [step.action for step in decision.shadow.steps] == [Action(START, 0, 1)]
    assert (decision.policy, [step.action for step in decision.steps]) == ("sjf", [Action(START, 1, 1)])
    assert _disagreements(metrics) == 1


def test_a_heuristic_that_may_not_hold_keeps_its_order() -> None:
    policy = registry.load("srwf")
    decision, seat, _ = _decide(policy, SPEC, may_hold=False)
    assert (decision.policy, seat.name) == ("srwf", "srwf")
    holding, seat, _ = _decide(registry.load("sjf-hold:tau=1"), SPEC, may_hold=False)
    assert "without holds" in holding.policy


def test_a_heuristic_that_may_not_leave_the_pool_idle_keeps_its_order() -> None:
    """As in the simulator, and not the fallback's: the shorter of two long jobs goes first."""
    seat, _ = _seat(registry.load("hold-follower:split=10,delay=5"))
    seat._fallback = registry.load("fifo")
    state = first_state(one_stage_jobs((0.0, 30.0), (0.0, 20.0)), 1)
    decision = asyncio.run(_asked(seat, state))
    (step,) = decision.steps
    assert (step.override, step.action) == (IDLE_POOL, Action(START, 1, 1))


@pytest.mark.parametrize(
    ("policy", "reason"),
    [({"name": "sjf"}, reasons.POLICY_LOADED), ({"name": "nonsense"}, reasons.POLICY_UNKNOWN)],
)
def test_seating_by_name(policy: dict[str, Any], reason: str) -> None:
    async def seat_it() -> Seat:
        seat = Seat("pool", None, Metrics(), lambda _: None)  # type: ignore[arg-type]
        await seat.seat(ExecutorPoolSpec.model_validate({"executors": 2, "policy": policy}), T0)
        return seat

    assert asyncio.run(seat_it()).verdict.reason == reason


def test_a_policy_is_loaded_once_and_decides_until_the_next_has_passed_its_checks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str | None] = []
    woken: list[str] = []
    fifo, lcfs = (SPEC.model_copy(update={"policy": PolicySource(name=name)}) for name in ("fifo", "lcfs"))

    async def seat_them() -> None:
        goes_on = asyncio.Event()

        async def load(source: PolicySource, _: Any) -> Loaded:
            asked.append(source.name)
            if source.name == "lcfs":
                await goes_on.wait()
            return Loaded(registry.load(source.name or ""), None)

        monkeypatch.setattr("fermata.operator.seat.load_policy", load)
        seat = Seat("pool", None, Metrics(), woken.append)  # type: ignore[arg-type]
        for spec in (fifo, fifo, lcfs, lcfs):
            assert await seat.seat(spec, T0) is None
            assert seat.verdict == (True, reasons.POLICY_LOADED, "fifo passed its checks", "")
            assert (await _asked(seat, _state())).policy == "fifo"
        assert asked == ["fifo", "lcfs"]
        woken.clear()
        goes_on.set()
        async with asyncio.timeout(60):
            while not woken:
                await asyncio.sleep(0)
        await seat.seat(lcfs, T0)
        assert (await _asked(seat, _state())).policy == "lcfs"

    asyncio.run(seat_them())


def test_what_is_wrong_with_a_model_is_told_while_it_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    async def load(*_: Any) -> Any:
        asked.append(1)
        if len(asked) > 1:
            await asyncio.Event().wait()  # it loads for as long as anybody looks
        raise UnusablePolicyError(reasons.MODEL_UNUSABLE, "half a file")

    monkeypatch.setattr("fermata.operator.seat.load_policy", load)
    monkeypatch.setattr("fermata.operator.seat.FIRST_LOAD_S", 0.2)  # over by the second attempt

    async def seat_it() -> None:
        seat = Seat("pool", None, Metrics(), lambda _: None)  # type: ignore[arg-type]
        again_s = await seat.seat(SPEC, T0)
        assert again_s is not None
        await seat.seat(SPEC, again_s)
        await asyncio.sleep(0)
        assert len(asked) == 2
        assert seat.verdict == (False, reasons.MODEL_UNUSABLE, "half a file; sjf decides", "")
        seat.close()

    asyncio.run(seat_it())


def test_a_model_that_takes_long_to_load_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    async def load(*_: Any) -> Any:
        asked.append(1)
        await asyncio.sleep(60)

    monkeypatch.setattr("fermata.operator.seat.load_policy", load)
    monkeypatch.setattr("fermata.operator.seat.FIRST_LOAD_S", 0.2)

    async def seat_it() -> list[float]:
        seat, took_s = Seat("pool", None, Metrics(), lambda _: None), []  # type: ignore[arg-type]
        for now_s in (T0, T0 + 1, T0 + 2):
            begun_s = time.monotonic()
            await seat.seat(SPEC, now_s)
            took_s.append(time.monotonic() - begun_s)
            assert seat.verdict.reason == reasons.POLICY_LOADING
        seat.close()
        return took_s

    first_s, *later_s = asyncio.run(seat_it())
    assert len(asked) == 1
    assert first_s >= 0.2
    assert max(later_s) < 0.1


def test_a_policy_that_was_switched_off_does_not_come_back_in_place_of_the_one_that_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def load(*_: Any) -> Any:
        await asyncio.sleep(60)

    monkeypatch.setattr("fermata.operator.seat.load_policy", load)
    monkeypatch.setattr("fermata.operator.seat.FIRST_LOAD_S", 0.0)
    seat, metrics = _seat(registry.load("lcfs"))
    off = SPEC.model_copy(update={"mode": "Off"})

    async def seat_them() -> None:
        await seat.seat(off, T0)
        assert (await _asked(seat, _state(), off)).policy == "sjf"
        labels = {"pool": "pool", "reason": reasons.POLICY_OFF}
        assert metrics.registry.get_sample_value("fermata_fallbacks_total", labels) is None, "it is what was asked for"
        await seat.seat(SPEC, T0)
        assert seat.verdict == (False, reasons.POLICY_LOADING, "still loading; sjf decides", "")
        assert (await _asked(seat, _state())).policy == "sjf"
        seat.close()

    asyncio.run(seat_them())


def test_a_model_that_fails_to_load_in_a_way_nobody_foresaw_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[int] = []

    async def load(*_: Any) -> Any:
        asked.append(1)
        raise ImportError("half of an upgrade")

    monkeypatch.setattr("fermata.operator.seat.load_policy", load)

    async def seat_it() -> tuple[float | None, Seat]:
        seat = Seat("pool", None, Metrics(), lambda _: None)  # type: ignore[arg-type]
        again_s = await seat.seat(SPEC, T0)
        assert again_s is not None
        await seat.seat(SPEC, T0 + 1)
        await seat.seat(SPEC, again_s)
        await seat.seat(SPEC, again_s - 3600)  # the clock was set back, and nobody waits for as long
        return again_s, seat

    again_s, seat = asyncio.run(seat_it())
    assert (again_s, len(asked)) == (T0 + RETRY_LOAD_S, 3)
    assert (seat.verdict.ready, seat.verdict.reason) == (False, reasons.MODEL_UNUSABLE)
    assert "half of an upgrade" in seat.verdict.message
    assert caplog.records[0].exc_info is not None, "where that came from"


def test_why_a_policy_is_unusable_is_logged_when_it_is_new_and_once_an_hour(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def load(source: PolicySource, _: Any) -> Any:
        raise UnusablePolicyError(reasons.POLICY_UNKNOWN, f"no {source.name}")

    monkeypatch.setattr("fermata.operator.seat.load_policy", load)

    async def seat_them() -> None:
        seat = Seat("pool", None, Metrics(), lambda _: None)  # type: ignore[arg-type]
        now_s = T0
        for name in ("nonsense", "nonsuch"):
            spec = ExecutorPoolSpec.model_validate({"executors": 2, "policy": {"name": name}})
            for _ in range(300):
                await seat.seat(spec, now_s)
                now_s += RETRY_LOAD_S

    asyncio.run(seat_them())
    told = [record.getMessage().partition("unusable: ")[2] for record in caplog.records]
    assert told == ["no nonsense"] * 2 + ["no nonsuch"] * 2
    assert not any(record.exc_info for record in caplog.records)


@pytest.mark.parametrize("fallback", ["nonsense", "default", "sjf:tau=1"])
@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"policy": {"name": "fifo"}}, reasons.FALLBACK_UNKNOWN),
        ({"policy": {"name": "fifo"}, "mode": "Off"}, reasons.POLICY_OFF),
        ({"policy": {"name": "nonsense"}}, reasons.POLICY_UNKNOWN),
    ],
)
def test_a_fallback_that_nobody_knows_is_told_before_it_is_needed(
    fallback: str, spec: dict[str, Any], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    seat = Seat("pool", None, Metrics(), lambda _: None)  # type: ignore[arg-type]

    async def seat_them() -> tuple[Verdict, Verdict]:
        told = []
        for name in (fallback, fallback, "fifo"):
            await seat.seat(ExecutorPoolSpec.model_validate({"executors": 2, "fallback": name, **spec}), T0)
            told.append(seat.verdict.condition)
        return told[0], told[-1]

    wrong, mended = asyncio.run(seat_them())
    assert (wrong.ready, wrong.reason) == (reason == reasons.FALLBACK_UNKNOWN, reason)
    assert "spec.fallback" in wrong.message
    assert wrong.message.endswith("sjf is the fallback")
    assert "spec.fallback" not in mended.message
    assert sum("is the fallback" in record.getMessage() for record in caplog.records) == 1


def test_a_fallback_never_holds() -> None:
    assert load_fallback("sjf").name == "sjf"
    assert "without holds" in load_fallback("sjf-hold:tau=1").name
    for name in ("nonsense", "default", "sjf:tau=1"):
        with pytest.raises(UnusablePolicyError):
            load_fallback(name)


def test_limits_of_a_pool() -> None:
    assert limits_of(SPEC) == (math.inf, math.inf, False)
    assert limits_of(ExecutorPoolSpec(executors=1, max_hold_seconds=0, max_wait_seconds=9)) == (0.0, 9.0, False)
    assert np.isinf(limits_of(SPEC).max_hold_s)


def test_a_policy_that_reads_edges_is_told_them() -> None:
    fact = workflow_fact_of("w", stage("lonely"), stage("root"), stage("leaf", "root"))
    assert fact.spec is not None
    views = [view(fact, fact.spec, {}, {}, {}, Estimates(), T0)]
    state, keys = build_state(views, 1, {}, {}, {}, [], T0)
    seat, _ = _seat(MostChildren())
    edges = partial(dag_of, views, keys)
    try:
        known = asyncio.run(seat.decide(state, SPEC, limits_of(SPEC), may_hold=True, dag=edges))
    finally:
        seat.close()
    assert known.policy == "most-children"
    assert keys.stages[known.steps[0].action.stage] == ("uid-w", "root")
