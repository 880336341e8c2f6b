"""The operator's replay against the simulator: the same jobs, the same policy, the same completions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.episodes import MostChildren, Python

from fermata.operator.hindsight import ReplayError, replay
from fermata.operator.past import PastJob, PastStage, fitting
from fermata.policy import registry
from fermata.policy.action import START, WAIT, Action
from fermata.policy.earlier_runs import UNKNOWN_S
from fermata.policy.guardrails import Guardrails
from fermata.policy.state import ClusterState
from fermata.sim.simulate import simulate
from fermata.sim.trace import Trace
from fermata.sim.trace_builder import StageSpec, TraceBuilder

POLICIES = ("fifo", "sjf", "srwf", "fair", "sjf-hold:tau=3,split=4", "sjf-switch", "hold-follower:delay=4", "default")
EXECUTORS = 3


def _trace(jobs: list[PastJob]) -> Trace:
    builder = TraceBuilder()
    for job in jobs:
        stages = [
            StageSpec(
                name=stage.name,
                durations_s=[stage.duration_s] * stage.tasks,
                depends_on=[job.stages[parent].name for parent in stage.parents],
                slots=stage.slots,
                estimate_s=stage.estimate_s,
            )
            for stage in job.stages
        ]
        builder.add_job(job.uid, job.arrival_s, stages, job.weight)
    return builder.finish()


@st.composite
def jobs(draw: st.DrawFn) -> list[PastJob]:
    made, arrival_s = [], 0.0
    for number in range(draw(st.integers(1, 8))):
        # Odd fractions: two things at exactly one instant are ordered in ways that nobody promises.
        arrival_s += draw(st.integers(0, 20)) + (number + 1) / 97
        stages, odd = [], [4 * number + index + 2 for index in range(4)]
        for index in range(draw(st.integers(1, 4))):
            tasks = draw(st.integers(1, 4))
            duration_s = draw(st.integers(1, 30)) + (index + 1) / (89 + number)
            parents = tuple(p for p in range(index) if draw(st.booleans()))
            # Work that is equal but for rounding, as that of two jobs of one estimate, is ordered by the rounding.
            slots, estimate_s = draw(st.integers(1, EXECUTORS)), draw(st.integers(1, 30)) + math.sqrt(odd[index]) / 10
            cap = draw(st.integers(1, tasks))
            stages.append(PastStage(f"s{index}", parents, tasks, slots, cap, duration_s, estimate_s))
        weight = draw(st.sampled_from([1.0, 1.0, 4.0, 0.5]))
        made.append(PastJob(arrival_s, f"j{number}", f"default/j{number}", weight, tuple(stages), math.nan))
    return made


@pytest.mark.parametrize("name", POLICIES)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    jobs=jobs(),
    max_hold_s=st.sampled_from([math.inf, 5.0, 0.0]),
    max_wait_s=st.sampled_from([math.inf, 12.5]),
    sticky=st.booleans(),
)
def test_a_replay_is_the_simulators_episode(
    name: str, jobs: list[PastJob], max_hold_s: float, max_wait_s: float, sticky: bool
) -> None:
    policy, fallback = registry.load(name), registry.load("sjf")
    limits = Guardrails(max_hold_s, max_wait_s, hold_when_idle=False)
    caps = np.array([stage.max_cap for job in jobs for stage in job.stages], np.int32)
    episode = simulate(
        _trace(jobs), EXECUTORS, policy, limits=limits, fallback=fallback, sticky=sticky, caps=caps,
        observer=lambda *_: None,
    )  # fmt: skip
    base = policy.eager() if hasattr(policy, "eager") else fallback
    completion_s = replay(jobs, EXECUTORS, policy, limits, base, sticky=sticky)
    np.testing.assert_allclose(completion_s, episode.job_completion_s, rtol=0, atol=1e-9)


@pytest.mark.parametrize("failing", [False, True])
@pytest.mark.parametrize(("name", "seed"), [("default", 1), ("default", 2), ("srwf", 1)])
def test_a_replay_corrects_estimates_as_the_simulator_does(name: str, seed: int, failing: bool) -> None:
    rng, made, arrival_s = np.random.default_rng(seed), [], 0.0
    for number in range(150):
        arrival_s += rng.exponential(8.0)
        stages = []
        for index in range(int(rng.integers(1, 4))):
            parents = tuple(parent for parent in range(index) if rng.random() < 0.5)
            duration_s = float(rng.choice([3.0, 60.0], p=[0.95, 0.05]) + rng.random())
            tasks, estimate_s = int(rng.integers(1, 4)), duration_s * rng.lognormal(0.5, 0.7)
            succeeded = not failing or rng.random() < 0.8
            stage = PastStage(f"s{index}", parents, tasks, 1, tasks, duration_s, float(estimate_s))
            stages.append(stage if succeeded else stage._replace(duration_s=0.1, succeeded=False))
        made.append(PastJob(arrival_s, f"j{number}", f"default/j{number}", 1.0, tuple(stages), math.nan))
    mute = np.array([not stage.succeeded for job in made for stage in job.stages])
    policy, fallback, limits = registry.load(name), registry.load("sjf"), Guardrails(hold_when_idle=False)
    episode, raw = (
        simulate(
            _trace(made), EXECUTORS, policy, limits=limits, fallback=fallback, sticky=True, mute=mute,
            corrects=corrects, observer=lambda *_: None,
        )
        for corrects in (None, False)
    )  # fmt: skip
    completion_s = replay(made, EXECUTORS, policy, limits, fallback)
    np.testing.assert_allclose(completion_s, episode.job_completion_s, rtol=0, atol=1e-6)
    assert (episode.job_completion_s != raw.job_completion_s).any() == (name == "default")


def test_executors_are_expected_back_after_all_that_their_stage_still_puts_on_them() -> None:
    # At 11 both tasks overrun their 10 s. Three wait for the same executors: one round of 10 s, and one task more.
    wide, other = PastStage("wide", (), 5, 1, 2, 12.0, 10.0), PastStage("other", (), 1, 1, 1, 1.0, 1.0)
    jobs = ((0.0, wide), (11.0, other))
    made = [PastJob(at_s, one.name, "", 1.0, (one,), math.nan) for at_s, one in jobs]
    told: dict[str, list[float]] = {}

    def note(who: str, state: ClusterState) -> None:
        if state.now_s == 11.0:
            told.setdefault(who, sorted(state.executor_free_at_s.tolist()))

    fifo = registry.load("fifo")

    def choose(state: ClusterState) -> Action:
        note("replay", state)
        return fifo.choose(state)

    replay(made, EXECUTORS, Python(choose), Guardrails(), fifo)
    caps = np.array([2, 1], np.int32)
    simulate(_trace(made), EXECUTORS, fifo, sticky=True, caps=caps, observer=lambda state, _: note("simulator", state))
    assert told == {who: [-math.inf, 21.0, 31.0] for who in ("replay", "simulator")}


class _Witness:
    """Starts what is ready, and keeps what was expected of it, and how far estimates were said to be off."""

    name, corrects_estimates = "witness", True

    def __init__(self) -> None:
        self.expected_s: list[float] = []
        self.error: list[float] = []

    def choose(self, state: ClusterState) -> Action:
        stage = int(state.ready_stages[0])
        self.expected_s.append(float(state.stage_estimate_s[stage]))
        self.error.append(state.estimate_error)
        return Action(START, stage, 1)


def _slow_job(number: int, **fields: bool) -> PastJob:
    """A job that comes every 10 s and takes 8 s, of which 4 s were expected."""
    stage = PastStage("a", (), 1, 1, 1, 8.0, 4.0, **fields)
    return PastJob(10.0 * number, f"j{number}", "", 1.0, (stage,), math.nan)


def test_a_replay_knows_what_a_pool_has_learned_before_its_first_job() -> None:
    made = [_slow_job(number) for number in range(61)]
    for known, expected_s, error in ((60, 8.0, math.log(2.0) * 40.0 / 60.0), (39, 4.0, math.log(2.0))):
        witness = _Witness()
        replay(made[60:], 1, witness, Guardrails(), registry.load("fifo"), history=made[60 - known : 60])
        assert witness.expected_s == pytest.approx([expected_s], rel=0.01)
        assert witness.error == pytest.approx([error], rel=0.02), "corrected estimates are nearly right"


@pytest.mark.parametrize("known", [0, 60])
@pytest.mark.parametrize("fields", [{"succeeded": False}, {"given": False}])
def test_a_replay_learns_nothing_of_what_failed_and_corrects_what_users_say_alone(
    known: int, fields: dict[str, bool]
) -> None:
    made, witness = [_slow_job(number, **fields) for number in range(120)], _Witness()
    replay(made[known:], 1, witness, Guardrails(), registry.load("fifo"), history=made[:known])
    assert set(witness.expected_s) == {4.0}
    assert (witness.error[-1] > 0.0) == ("given" in fields)


@pytest.mark.parametrize("known", [0, 1])
@pytest.mark.parametrize("given", [False, True])
def test_a_replay_does_not_hold_a_first_guess_against_estimates(known: int, given: bool) -> None:
    stages = [PastStage("a", (), 1, 1, 1, 8.0, UNKNOWN_S, given=given), PastStage("a", (), 1, 1, 1, 8.0, 8.0)]
    made = [PastJob(10.0 * number, f"j{number}", "", 1.0, (stage,), math.nan) for number, stage in enumerate(stages)]
    witness = _Witness()
    replay(made[known:], 1, witness, Guardrails(), registry.load("fifo"), history=made[:known])
    assert (witness.error[-1] > 0.0) == given


def test_the_example_by_hand() -> None:
    def job(name: str, arrival_s: float, duration_s: float) -> PastJob:
        return PastJob(arrival_s, name, name, 1.0, (PastStage("a", (), 1, 1, 1, duration_s, duration_s),), math.nan)

    pair = [job("long", 0.0, 20.0), job("short", 2.0, 4.0)]
    limits, fifo = Guardrails(), registry.load("fifo")
    assert list(replay(pair, 1, fifo, limits, fifo)) == [20.0, 24.0]
    assert list(replay(pair, 1, registry.load("hold-follower:delay=4"), limits, fifo)) == [26.0, 6.0]


class _Waiter:
    name = "waiter"

    def choose(self, state: ClusterState) -> Action:
        return Action(WAIT, until_s=state.now_s + 1.0)


def test_a_replay_that_leads_nowhere_ends() -> None:
    stage = PastStage("a", (), 1, 1, 1, 5.0, 5.0)
    one = [PastJob(0.0, "j", "j", 1.0, (stage,), math.nan)]
    asked = iter(range(100))
    with pytest.raises(ReplayError, match="too long"):
        replay(one, 1, _Waiter(), Guardrails(), registry.load("fifo"), give_up=lambda: next(asked) > 50)


def test_a_job_that_does_not_fit_is_left_out() -> None:
    wide = PastJob(1.0, "w", "w", 1.0, (PastStage("a", (), 1, 4, 1, 5.0, 5.0),), math.nan)
    small = PastJob(2.0, "s", "s", 1.0, (PastStage("a", (), 1, 2, 1, 5.0, 5.0),), math.nan)
    assert fitting([small, wide], 3) == [small]


def test_a_policy_that_reads_edges_is_replayed_with_them() -> None:
    stages = [PastStage("lonely", (), 1, 1, 1, 5.0, 5.0), PastStage("root", (), 1, 1, 1, 1.0, 1.0)]
    jobs = [
        PastJob(0.0, "a", "a", 1.0, (stages[0],), math.nan),
        PastJob(0.0, "b", "b", 1.0, (stages[1], PastStage("leaf", (0,), 1, 1, 1, 1.0, 1.0)), math.nan),
    ]
    assert list(replay(jobs, 1, MostChildren(), Guardrails(), registry.load("fifo"))) == [6.0, 7.0]
