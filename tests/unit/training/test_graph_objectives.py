"""What an episode is paid for by each objective: worked by hand, and what each makes dear."""

from typing import get_args

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the [training] extra")

from fermata.sim.trace import Trace
from fermata.sim.trace_builder import StageSpec, TraceBuilder
from fermata.training.graph.config import read_any
from fermata.training.graph.costs import CostToGo
from fermata.training.graph.network import GraphNetwork
from fermata.training.graph.objectives import Objective, stays
from fermata.training.graph.rollouts import HeldOut, Unit, run_unit, score_held_out, weights_of

LENGTHS_S = np.array([10.0, 10.0, 40.0])


@pytest.fixture
def trace() -> Trace:
    builder = TraceBuilder()
    for number, (length_s, weight) in enumerate(zip(LENGTHS_S.tolist(), (1.0, 4.0, 1.0), strict=True)):
        builder.add_job(f"j{number}", float(number), [StageSpec("a", [length_s])], weight=weight)
    return builder.finish()


def cost(objective: Objective, trace: Trace, jct_s: list[float], executors: int = 2) -> float:
    return stays(objective, trace, executors, trace.job_arrival_s + np.array(jct_s), LENGTHS_S).cost


@pytest.mark.parametrize(
    ("objective", "expected"),
    [
        ("jct", 10.0 + 20.0 + 100.0),
        ("weighted_jct", (10.0 + 4.0 * 20.0 + 100.0) / 2.0),
        ("slowdown", (10.0 / 10.0 + 20.0 / 10.0 + 100.0 / 40.0) / 0.075),
        # A job is late after four times the mean length of 20 s, so the last one is for 20 of its 100 s.
        ("tail", 10.0 + 20.0 + 100.0 + 4.0 * (100.0 - 80.0)),
        # All is done at 102 s, on two executors.
        ("makespan_mix", 10.0 + 20.0 + 100.0 + 2.0 * 102.0),
    ],
)
def test_an_objective_is_the_sum_that_its_name_says(objective: Objective, expected: float, trace: Trace) -> None:
    assert cost(objective, trace, [10.0, 20.0, 100.0]) == pytest.approx(expected)


def test_each_objective_makes_its_own_dear(trace: Trace) -> None:
    """Of two ways to the same mean JCT, each objective but the mean prefers the one that spares what it is about."""
    even, uneven = [40.0, 40.0, 80.0], [10.0, 10.0, 140.0]
    assert cost("jct", trace, even) == cost("jct", trace, uneven)
    for objective in ("tail", "makespan_mix"):
        assert cost(objective, trace, even) < cost(objective, trace, uneven)
    for objective in ("weighted_jct", "slowdown"):
        assert cost(objective, trace, even) > cost(objective, trace, uneven)


@pytest.mark.parametrize("objective", get_args(Objective))
def test_a_decision_is_charged_what_is_still_to_pay(objective: Objective, trace: Trace) -> None:
    paid = stays(objective, trace, 2, trace.job_arrival_s + np.array([10.0, 20.0, 100.0]), LENGTHS_S)
    to_go = CostToGo(*paid, 1e9).at(np.array([-1.0, 15.0, 90.0, 102.0]))
    left = [float((paid.weight * np.maximum(paid.end_s - np.maximum(paid.begin_s, at_s), 0.0)).sum())
            for at_s in (-1.0, 15.0, 90.0, 102.0)]  # fmt: skip
    np.testing.assert_allclose(to_go[1:], left[1:], rtol=1e-5, atol=1e-6)
    assert left[0] == pytest.approx(paid.cost)
    assert np.isfinite(to_go).all()


def test_training_and_selection_follow_the_objective() -> None:
    smoke = read_any("graph-smoke")
    weights = weights_of(GraphNetwork(smoke.network))
    told = {}
    for objective in get_args(Objective):
        config = smoke.model_copy(update={"objective": objective})
        decisions = run_unit(Unit(config, 0, (0,), weights))
        assert np.isfinite(decisions.advantage).all()
        told[objective] = (float(decisions.cost.sum()), score_held_out(HeldOut(config, (0,), weights))[0])
    # The same decisions, at other prices; weights of 1 are the mean JCT itself.
    assert told.pop("weighted_jct") == pytest.approx(told["jct"])
    assert len({round(cost, 6) for cost, _ in told.values()}) == len(told)
    assert told["tail"][0] > told["jct"][0]
    assert told["makespan_mix"][0] > told["jct"][0]
