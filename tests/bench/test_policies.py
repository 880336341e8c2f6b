"""What `make bench` measures: the engine with each kind of policy, and one decision as the operator makes it.

The operator decides in plain Python; FERMATA_NO_JIT=1 measures it so.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture
from tests.episodes import first_state, stage, trace_of
from tests.unit.policy.test_heavy import seen

from fermata.policy.action import START, Action
from fermata.policy.board import board_of, state_of
from fermata.policy.decide import Step, decide
from fermata.policy.guardrails import Guardrails
from fermata.policy.heuristics.sjf import SJF
from fermata.policy.registry import load
from fermata.policy.rows import peek
from fermata.policy.state import RECENT_ARRIVALS, ClusterState
from fermata.policy.transition import take
from fermata.sim import learned_loop
from fermata.sim.scenarios import scenario
from fermata.sim.simulate import simulate

POLICIES = ("fifo", "sjf", "sjf-hold", "default")
WAITING = 50


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
def test_an_episode(benchmark: BenchmarkFixture, policy: str) -> None:
    drawn = scenario("express_k2")
    trace, chosen = drawn.generate(1000), load(policy)
    simulate(trace, drawn.executors, chosen)  # compiles
    episode = benchmark.pedantic(simulate, (trace, drawn.executors, chosen), rounds=5)
    assert episode.job_completion_s.max() > 0.0
    if benchmark.stats:  # none with --benchmark-disable
        least_s = benchmark.stats.stats.min
        benchmark.extra_info["jobs per second"] = round(len(trace.job_ids) / least_s)
        benchmark.extra_info["decisions per second"] = round(episode.decisions / least_s)


@pytest.mark.slow
def test_an_episode_that_asks_the_runtime_at_each_decision(
    benchmark: BenchmarkFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What `default` takes above is to be seen beside this: the same episode, as files of another build are run."""
    monkeypatch.setattr(learned_loop, "_compiled_twin", lambda policy: None)
    test_an_episode(benchmark, "default")


class _EnoughError(Exception):
    """A state worth measuring was found."""


def crowded_state() -> ClusterState:
    """Return a state with many waiting jobs, from an episode in the middle of a rush."""
    found: list[ClusterState] = []

    def look(state: ClusterState, steps: tuple[Step, ...]) -> None:
        if len(state.ready_stages) >= WAITING:
            found.append(copy.deepcopy(state))
            raise _EnoughError

    drawn = scenario("express_k2").with_(load=1.5)
    with pytest.raises(_EnoughError):
        simulate(drawn.generate(1000), drawn.executors, SJF, observer=look)
    return found[0]


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
def test_a_decision(benchmark: BenchmarkFixture, policy: str) -> None:
    state, chosen = crowded_state(), load(policy)
    steps = benchmark(decide, state, chosen, Guardrails(), SJF)
    assert steps


def busy_state(jobs: int, executors: int, widths: Sequence[int]) -> ClusterState:
    """Return a state with jobs of one task each, of any of these widths; all but sixteen executors are busy."""
    rng = np.random.default_rng(1)
    drawn = [stage("a", rng.uniform(10.0, 1000.0), slots=int(rng.choice(widths))) for _ in range(jobs)]
    board = board_of(first_state(trace_of(*((0.0, [each]) for each in drawn)), executors))
    for number, each in enumerate(drawn):
        if peek(board.pool).free >= 16 + each.slots:
            take(board, Action(START, number, 1))
    return seen(state_of(board), [(float(work_s), 1.0) for work_s in rng.uniform(5.0, 3000.0, RECENT_ARRIVALS)])


@pytest.mark.slow
@pytest.mark.parametrize("widths", [(1,), (1, 2, 4, 8)], ids=["of-one", "of-several"])
@pytest.mark.parametrize(("jobs", "executors"), [(50, 40), (2000, 1000)])
def test_a_decision_where_tasks_take_several_executors(
    benchmark: BenchmarkFixture, jobs: int, executors: int, widths: Sequence[int]
) -> None:
    """What the scores of widths take, beside tasks of one executor."""
    state, chosen = busy_state(jobs, executors, widths), load("default")
    steps = benchmark(decide, state, chosen, Guardrails(), SJF)
    assert steps
    benchmark.extra_info["actions"] = len(steps)
