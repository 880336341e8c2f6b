"""An episode under a learned policy, with one compiled call and one run of the network a decision.

The same steps as `fermata.policy.decide` takes, in the same order, without the copies that a caller in plain Python
needs: tests compare the two. The network is asked one decision at a time, so that an answer never depends on which
other decisions it is asked together with.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fermata.policy._jit import kernel
from fermata.policy.action import WAIT
from fermata.policy.features import SIZE, FeatureRow, candidates, features
from fermata.policy.guardrails import IDLE_POOL, Guardrails, bound
from fermata.policy.heuristics.kernel import Rule, choose
from fermata.policy.learned import ACTIONS, cheapest
from fermata.sim.engine import DECIDE, advance, apply
from fermata.sim.world import World

if TYPE_CHECKING:
    from fermata.policy.onnx_policy import OnnxPolicy

DECISIONS_A_REPORT = 64


@kernel
def next_decision(world: World, order: Rule, waited: bool, x: FeatureRow) -> int:
    """Go to the next state in which something is startable and write its features; returns what `advance` says."""
    while True:
        if waited:
            outcome = advance(world)
            if outcome != DECIDE:
                return int(outcome)
        choice = candidates(world.board, order)
        if choice.head >= 0:
            features(world.board, choice, x)
            return DECIDE
        waited = True


@kernel
def take_cheapest(
    world: World, order: Rule, costs: NDArray[np.float64], margin: float, limits: Guardrails, fallback: Rule
) -> bool:
    """Take the action that these costs make the cheapest, within the limits; tell whether it was a wait."""
    board = world.board
    kind, stage, cap, until_s = cheapest(board, candidates(board, order), costs, margin)
    kind, stage, cap, until_s, why = bound(board, kind, stage, cap, until_s, limits)
    if why == IDLE_POOL:
        kind, stage, cap, until_s = choose(board, fallback)
    apply(world, kind, stage, cap, until_s)
    return kind == WAIT


def run_network(
    world: World, order: Rule, policy: OnnxPolicy, limits: Guardrails, fallback: Rule, report: Callable[[], object]
) -> int:
    """Run an episode to its end and return what the last `advance` said; `report` is called now and then."""
    x, row = np.zeros(SIZE), np.zeros((1, SIZE), np.float32)
    costs = np.zeros(len(ACTIONS))
    waited, asked = True, 0
    while True:
        outcome = int(next_decision(world, order, waited, x))
        if outcome != DECIDE:
            return outcome
        asked += 1
        if asked % DECISIONS_A_REPORT == 0:
            report()
        row[0] = x
        costs[:] = policy.costs(row)[0]
        waited = bool(take_cheapest(world, order, costs, policy.margin, limits, fallback))
