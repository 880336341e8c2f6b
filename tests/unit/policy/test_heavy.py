"""Jobs of much weight: the shipped model holds none for short jobs of little weight, and goes on holding the others."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.episodes import first_state, one_stage_jobs, started

from fermata.policy.action import START, WAIT
from fermata.policy.board import board_of
from fermata.policy.decide import decide
from fermata.policy.guardrails import NO_LIMITS
from fermata.policy.heavy import HEAVY, too_heavy
from fermata.policy.heuristics.sjf import SJF
from fermata.policy.registry import load
from fermata.policy.state import ClusterState
from fermata.sim.generate.weights import read_weights
from fermata.training.evaluate import Conditions, Score, evaluate


def seen(state: ClusterState, jobs: list[tuple[float, float]]) -> ClusterState:
    """The state as if jobs of (work, weight) had come lately, one every 20 s."""
    work_s, weight = (np.array(column, np.float64) for column in zip(*jobs, strict=True))
    arrival_s = state.now_s - 20.0 * np.arange(len(jobs), 0.0, -1.0)
    return state._replace(recent_arrival_s=arrival_s, recent_work_s=work_s, recent_weight=weight)


@given(
    st.lists(st.tuples(st.sampled_from([10.0, 49.0, 50.0, 400.0]), st.floats(0.1, 16.0)), min_size=1, max_size=30),
    st.floats(0.1, 16.0),
)
def test_a_job_is_weighed_against_the_mean_of_recent_ones_of_under_half_its_work(
    jobs: list[tuple[float, float]], weight: float
) -> None:
    state = first_state(one_stage_jobs((0.0, 100.0)), 2)._replace(job_weight=np.array([weight]))
    weights = [each for work_s, each in jobs if work_s < 50.0]
    limit = HEAVY * np.mean(weights) if weights else np.inf
    if weight != pytest.approx(limit):
        assert too_heavy(board_of(seen(state, jobs)), 0) == (weight > limit)


@pytest.mark.parametrize("unit", [1.0, 2.0**-30, 1024.0])
@pytest.mark.parametrize(("weight", "kind"), [(1.0, WAIT), (2.9, WAIT), (3.1, START)])
def test_the_shipped_model_holds_a_long_job_unless_it_weighs_over_thrice_what_is_short(
    weight: float, kind: int, unit: float
) -> None:
    # One executor has just been given to a long job, and the next long one is alone in the queue.
    state = started(first_state(one_stage_jobs((0.0, 200.0), (0.0, 200.0)), 2), 0, 1)
    state = state._replace(now_s=state.now_s + 1.0, job_weight=np.array([1.0, weight]) * unit)
    state = seen(state, [(10.0, unit) if number % 10 else (200.0, 9.0 * unit) for number in range(400)])
    (step, *_) = decide(state, load("default"), NO_LIMITS, SJF)
    assert step.action.kind == kind


def score(scenario: str, weights: str) -> Score:
    conditions = Conditions(jobs=1500, weights=read_weights(weights))
    return evaluate("default", [scenario], range(3000, 3004), conditions=conditions)[0]


@pytest.mark.parametrize("scenario", ["k8s_poisson", "dag_pods", "express_k2"])
def test_holding_costs_nothing_by_weight_where_what_is_long_weighs_much(scenario: str) -> None:
    assert score(scenario, "long=16").weighted_vs_base_pct < 1.0


def test_holding_saves_most_of_what_it_did_where_weights_are_mixed() -> None:
    assert score("k8s_poisson", "any=4").weighted_vs_base_pct < -10.0
    assert score("k8s_poisson", "long=2").weighted_vs_base_pct < -4.0
