"""The operator on virtual time against the simulator: the same workflows end at the same times."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.operator.objects import T0, stage, workflow
from tests.virtual_cluster import VirtualCluster

from fermata.operator.build_state import weight
from fermata.policy import registry
from fermata.policy.guardrails import Guardrails
from fermata.sim.generate.weights import read_weights
from fermata.sim.scenarios import scenario
from fermata.sim.simulate import simulate
from fermata.sim.trace import Trace
from fermata.sim.trace_builder import StageSpec, TraceBuilder

EXECUTORS = 3
EAGER = ("fifo", "sjf", "srwf", "fair")
HOLDING = ("sjf-hold:tau=3,split=4", "default")
# Of each job, for its stages and its arrival. Two things at exactly one instant are ordered in ways that nobody
# promises, so no few of these add up to others. Both sides add them up without an error; else two stages that had been
# held for as long as any may be would have been so in one order here and in another there.
ODD_S = ((1 + np.random.default_rng(1).choice(2**14, (7, 4), replace=False)) / 2**20).tolist()
Raw = dict[str, Any]
Stream = list[tuple[float, list[StageSpec], int]]  # arrival, stages, priority
BY_ORDER = ("fifo", "fair")  # they ask for the order of jobs, which in a cluster is by priority first


@st.composite
def streams(draw: st.DrawFn) -> Stream:
    """Draw a stream of jobs: arrivals, stages of equal tasks that take what was expected of them, and priorities.

    By the weights of these no two jobs' whole seconds are the same: between equals priority decides in a cluster.
    """
    made, arrival_s = [], 0.0
    for number in range(draw(st.integers(1, 7))):
        arrival_s += draw(st.integers(0, 20)) + ODD_S[number][-1]
        stages: list[StageSpec] = []
        for index in range(draw(st.integers(1, 3))):
            tasks, seconds = draw(st.integers(1, 5)), draw(st.integers(1, 30))
            above = [f"s{parent}" for parent in range(index) if draw(st.booleans())]
            took_s = seconds + ODD_S[number][index]
            slots = draw(st.integers(1, 2))
            stages.append(StageSpec(f"s{index}", [took_s] * tasks, above, slots=slots, estimate_s=float(seconds)))
        made.append((arrival_s, stages, draw(st.sampled_from([0, 0, 0, 15, -7]))))
    return made


def _without_priorities(stream: Stream) -> Stream:
    return [(arrival_s, stages, 0) for arrival_s, stages, _ in stream]


def _trace(stream: Stream) -> Trace:
    builder = TraceBuilder()
    for number, (arrival_s, stages, priority) in enumerate(stream):
        builder.add_job(f"j{number}", arrival_s, stages, weight(priority))
    return builder.finish()


def _workflow(number: int, arrival_s: float, stages: list[StageSpec], priority: int) -> Raw:
    rows = [
        stage(
            each.name,
            *each.depends_on,
            tasks=len(each.durations_s),
            slots=each.slots,
            estimateSeconds=int(each.estimate_s or 0),
        )
        for each in stages
    ]
    return {**workflow(f"j{number}", *rows, arrival_s=T0 + math.floor(arrival_s), priority=priority), "status": {}}


def _cluster(stream: Stream, name: str, *, slow: bool = False, **pool: Any) -> VirtualCluster:
    took_s = {(f"j{n}", each.name): each.durations_s[0] for n, (_, stages, _) in enumerate(stream) for each in stages}
    pool = {"executors": EXECUTORS, "policy": {"name": name}, "decisionDeadlineSeconds": 60} | pool
    return VirtualCluster(T0, took_s, slow=slow, **pool)


def _arrivals(stream: Stream) -> list[tuple[float, Raw]]:
    return [(T0 + job[0], _workflow(n, *job)) for n, job in enumerate(stream)]


def _operator_ends_s(
    stream: Stream, name: str, *, slow: bool = False, restart_s: float = math.inf, **pool: Any
) -> list[float]:
    cluster = _cluster(stream, name, slow=slow, **pool)
    ended_s = asyncio.run(cluster.run(_arrivals(stream), T0 + restart_s))
    assert cluster.most <= pool.get("executors", EXECUTORS)
    return [ended_s[f"j{n}"] - T0 for n in range(len(stream))]


def _simulator_ends_s(
    stream: Stream, name: str, *, sticky: bool, max_hold_s: float = math.inf, executors: int = EXECUTORS
) -> list[float]:
    limits, sjf = Guardrails(max_hold_s, hold_when_idle=False), registry.load("sjf")
    policy = registry.load(name)
    episode = simulate(
        _trace(stream), executors, policy, limits=limits, fallback=sjf, sticky=sticky, corrects=False,
        observer=lambda *_: None,
    )  # fmt: skip
    return list(episode.job_completion_s.tolist())


@pytest.mark.parametrize("name", EAGER)
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(stream=streams())
def test_where_stages_keep_their_executors_workflows_end_when_sticky_ones_do(name: str, stream: Stream) -> None:
    stream = _without_priorities(stream) if name in BY_ORDER else stream
    ended_s = _operator_ends_s(stream, name)
    assert ended_s == pytest.approx(_simulator_ends_s(stream, name, sticky=True), abs=0.01)


@pytest.mark.parametrize("name", [*EAGER, *HOLDING])
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(stream=streams(), max_hold_s=st.sampled_from([None, 4, 0]))
def test_where_tasks_give_executors_back_workflows_end_when_the_simulators_do(
    name: str, stream: Stream, max_hold_s: int | None
) -> None:
    # Of stages that may not be held any longer the first is started instead: those that are held since one moment are
    # due at one moment, and which of them is the first is a matter of priority, too, in a cluster.
    stream = _without_priorities(stream) if name in BY_ORDER or max_hold_s is not None else stream
    limit_s = math.inf if max_hold_s is None else float(max_hold_s)
    expected_s = _simulator_ends_s(stream, name, sticky=False, max_hold_s=limit_s)
    limits = {} if max_hold_s is None else {"maxHoldSeconds": max_hold_s}
    assert _operator_ends_s(stream, name, giveBack="Task", **limits) == pytest.approx(expected_s, abs=0.01)


@pytest.mark.parametrize(
    ("name", "weights"),
    [("norm200", None), ("express_k2", None), ("k8s_poisson", None), ("k8s_cron", None), ("k8s_poisson", "any=5")],
)
def test_the_shipped_model_holds_in_a_cluster_what_it_holds_in_its_scenarios(name: str, weights: str | None) -> None:
    drawn = scenario(name).with_(jobs=200)
    trace, unit_s = drawn.generate(1000), 30.0  # a Workflow's estimate is whole seconds
    trace = trace if weights is None else read_weights(weights)(trace, 1000)
    stream: Stream = []
    for j in range(trace.jobs):
        took_s = trace.task_duration_s[j] * unit_s + (j + 1) / 1e5  # no two things at one instant
        row = StageSpec("s0", [took_s], estimate_s=max(1.0, round(trace.stage_estimate_s[j] * unit_s)))
        priority = round(10 * math.log2(trace.job_weight[j]))
        stream.append((trace.job_arrival_s[j] * unit_s + (j + 1) / 1e6, [row], priority))
    expected_s = _simulator_ends_s(stream, "default", sticky=False, executors=drawn.executors)
    assert expected_s != _simulator_ends_s(stream, "srwf", sticky=False, executors=drawn.executors), "it holds"
    assert _operator_ends_s(stream, "default", executors=drawn.executors) == pytest.approx(expected_s, abs=0.01)


@pytest.mark.parametrize("name", EAGER)
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(stream=streams(), restart_s=st.floats(0.0, 100.0))
def test_a_new_operator_goes_on_with_tasks_where_the_old_one_was(name: str, stream: Stream, restart_s: float) -> None:
    stream = _without_priorities(stream) if name in BY_ORDER else stream
    expected_s = _simulator_ends_s(stream, name, sticky=False)
    assert _operator_ends_s(stream, name, giveBack="Task", restart_s=restart_s) == pytest.approx(expected_s, abs=0.01)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(stream=streams(), name=st.sampled_from(EAGER), restart_s=st.floats(0.0, 100.0))
def test_a_slow_job_controller_and_a_new_operator_lose_no_task_and_give_no_executor_twice(
    name: str, stream: Stream, restart_s: float
) -> None:
    ended_s = _operator_ends_s(stream, name, giveBack="Task", slow=True, restart_s=restart_s)
    work_s = sum(sum(each.durations_s) * each.slots for _, stages, _ in stream for each in stages)
    # A time since the epoch is known to a quarter of a microsecond.
    assert max(ended_s) <= stream[-1][0] + work_s + 1e-4, "with an executor at work at any time it ends by then"


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    stream=streams(), name=st.sampled_from([*EAGER, HOLDING[0]]), fails=st.lists(st.integers(0, 4), min_size=7),
    backoff_s=st.integers(1, 40), restart_s=st.floats(0.0, 100.0), slow=st.booleans(),
)  # fmt: skip
def test_while_tasks_fail_and_are_tried_again_later_what_is_at_its_gate_runs(
    name: str, stream: Stream, fails: list[int], backoff_s: int, restart_s: float, slow: bool
) -> None:
    cluster = _cluster(stream, name, slow=slow, giveBack="Task")
    cluster.fails, cluster.backoff_s = {f"j{n}": fails[n] for n in range(len(stream))}, backoff_s + 1 / 89
    asyncio.run(cluster.run(_arrivals(stream), T0 + restart_s))
    assert cluster.most <= EXECUTORS
    assert cluster.idle_s == 0.0
