"""How far off estimates were: the mean that fades, and the same number in simulator, state and replay."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fermata.policy.estimate_error import MEMORY, after_task, after_tasks
from fermata.policy.registry import load
from fermata.policy.state import ClusterState
from fermata.sim.generate.estimates import lognormal_noise
from fermata.sim.scenarios import scenario
from fermata.sim.simulate import simulate

SECONDS = st.floats(0.0, 1e9)


def test_the_first_tasks_count_alike() -> None:
    told = 0.0, 0.0
    for measured, (duration_s, estimate_s) in enumerate([(math.e, 1.0), (1.0, math.exp(2.0)), (1.0, 1.0), (1.0, 1.0)]):
        told = after_task(*told, measured, duration_s, estimate_s)
    assert told == pytest.approx((0.75, 0.25))


def test_it_forgets() -> None:
    told = 2.0, 0.5
    for measured in range(MEMORY, 10 * MEMORY):
        told = after_task(*told, measured, 3.0, 3.0)
    assert max(told) < 0.001


@given(SECONDS, SECONDS, st.floats(0.0, 5.0), st.floats(0.0, 1.0), st.integers(0, 10**6))
def test_it_stays_within_bounds(duration_s: float, estimate_s: float, error: float, misses: float, seen: int) -> None:
    after = after_task(error, misses, seen, duration_s, estimate_s)
    assert 0.0 <= after[0] <= 5.0
    assert 0.0 <= after[1] <= 1.0


@given(SECONDS, SECONDS, st.floats(0.0, 5.0), st.floats(0.0, 1.0), st.integers(0, 3 * MEMORY), st.integers(0, 300))
def test_many_tasks_at_once_are_one_after_the_other(
    duration_s: float, estimate_s: float, error: float, misses: float, seen: int, tasks: int
) -> None:
    told = error, misses
    for measured in range(seen, seen + tasks):
        told = after_task(*told, measured, duration_s, estimate_s)
    assert after_tasks(error, misses, seen, tasks, duration_s, estimate_s) == pytest.approx(told, abs=1e-9)


@pytest.mark.parametrize("sigma", [0.0, 0.7])
def test_a_state_of_the_simulator_tells_it(sigma: float) -> None:
    express = scenario("express_k2").with_(jobs=600, warm=0)
    trace = lognormal_noise(express.generate(3), sigma, 3)
    seen: list[tuple[float, float]] = []

    def see(state: ClusterState, _steps: object) -> None:
        seen.append((state.estimate_error, state.estimate_misses))

    simulate(trace, express.executors, load("sjf"), observer=see)
    assert seen[0] == (0.0, 0.0)
    error, misses = np.mean(seen[200:], axis=0)
    assert error == pytest.approx(sigma * math.sqrt(2.0 / math.pi), abs=0.08)  # the mean of |normal(0, sigma)|
    beyond = math.erfc(math.log(3.0) / sigma / math.sqrt(2.0)) if sigma else 0.0
    assert misses == pytest.approx(beyond, abs=0.05)
