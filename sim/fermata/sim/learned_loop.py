"""An episode under a learned policy, with one compiled call and one run of the network a decision.

The same steps as `fermata.policy.decide` takes, in the same order, without the copies that a caller in plain Python
needs: tests compare the two. The network is asked one decision at a time, so that an answer never depends on which
other decisions it is asked together with.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fermata.policy._jit import jit
from fermata.policy.action import WAIT
from fermata.policy.features import SIZE, candidates, features
from fermata.policy.guardrails import IDLE_POOL, Guardrails, bound
from fermata.policy.heuristics.kernel import Rule, choose
from fermata.policy.learned import ACTIONS, cheapest
from fermata.policy.onnx_policy import OnnxPolicy
from fermata.sim.engine import DECIDE, advance, apply
from fermata.sim.world import Tables, World, view


@jit
def next_decision(tables: Tables, world: World, order: Rule, waited: bool, x: NDArray[np.float64]) -> int:
    """Go to the next state in which something is startable and write its features; returns what `advance` says."""
    while True:
        if waited:
            outcome = advance(tables, world)
            if outcome != DECIDE:
                return int(outcome)
        state = view(tables, world)
        choice = candidates(state, order)
        if choice.head >= 0:
            features(state, choice, x)
            return DECIDE
        waited = True


@jit
def take_cheapest(
    tables: Tables,
    world: World,
    order: Rule,
    costs: NDArray[np.float64],
    margin: float,
    limits: Guardrails,
    fallback: Rule,
) -> bool:
    """Take the action that these costs make the cheapest, within the limits; tell whether it was a wait."""
    state = view(tables, world)
    kind, stage, cap, until_s = cheapest(state, candidates(state, order), costs, margin)
    kind, stage, cap, until_s, why = bound(state, kind, stage, cap, until_s, limits)
    if why == IDLE_POOL:
        kind, stage, cap, until_s = choose(state, fallback)
    apply(tables, world, state, kind, stage, cap, until_s)
    return kind == WAIT


def run_network(
    tables: Tables, world: World, order: Rule, policy: OnnxPolicy, limits: Guardrails, fallback: Rule
) -> int:
    """Run an episode to its end and return what the last `advance` said."""
    x, row = np.zeros(SIZE), np.zeros((1, SIZE), np.float32)
    costs = np.zeros(len(ACTIONS))
    waited = True
    while True:
        outcome = int(next_decision(tables, world, order, waited, x))
        if outcome != DECIDE:
            return outcome
        row[0] = x
        costs[:] = policy.costs(row)[0]
        waited = bool(take_cheapest(tables, world, order, costs, policy.margin, limits, fallback))
