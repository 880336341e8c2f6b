"""Weights: shortest-first orders go by work per unit of weight; arrival orders do not look at it."""

from __future__ import annotations

import numpy as np
import pytest

from fermata.policy.registry import load
from fermata.sim.simulate import simulate
from fermata.sim.trace_builder import StageSpec, TraceBuilder


def completions(policy: str, weights: tuple[float, float]) -> list[float]:
    """Return when two jobs of 4 s and 6 s end that wait for the same executor, the shorter one having come first."""
    builder = TraceBuilder()
    builder.add_job("before", 0.0, [StageSpec("a", [1.0], (), 1, 1.0)])
    for name, seconds, weight in zip(("short", "long"), (4.0, 6.0), weights, strict=True):
        builder.add_job(name, 0.5, [StageSpec("a", [seconds], (), 1, seconds)], weight)
    return list(np.asarray(simulate(builder.finish(), 1, load(policy)).job_completion_s)[1:])


@pytest.mark.parametrize("policy", ["sjf", "srwf", "sjf-cp", "default"])
def test_a_job_of_more_weight_goes_first_where_its_work_per_weight_is_less(policy: str) -> None:
    assert completions(policy, (1.0, 1.0)) == [5.0, 11.0]
    assert completions(policy, (1.0, 1.4)) == [5.0, 11.0]
    assert completions(policy, (1.0, 2.0)) == [11.0, 7.0]
    assert completions(policy, (0.5, 1.0)) == [11.0, 7.0]


def test_first_in_first_out_does_not_look_at_weights() -> None:
    assert completions("fifo", (1.0, 100.0)) == [5.0, 11.0]
