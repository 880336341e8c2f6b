"""An episode under a learned policy, with one run of the network a decision.

The same steps as `fermata.policy.decide` takes, in the same order, without the copies that a caller in plain Python
needs: tests compare the two. The network is asked one decision at a time, so that an answer never depends on which
other decisions it is asked together with; in a throng, where its answer would change nothing, it is not asked.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fermata.policy._jit import kernel, part
from fermata.policy.action import START, WAIT, any_startable
from fermata.policy.features import SIZE, FeatureRow, candidates, features
from fermata.policy.guardrails import IDLE_POOL, Guardrails, bound
from fermata.policy.heuristics.kernel import Rule, choose, first_stage
from fermata.policy.learned import ACTIONS, cheapest, in_throng, one_task_cap
from fermata.sim.engine import DECIDE, advance, apply
from fermata.sim.world import World

if TYPE_CHECKING:
    from fermata.policy.onnx_policy import OnnxPolicy

DECISIONS_A_REPORT = 64
HEADS_A_REPORT = 1_000  # in a throng, where each takes a moment
# Beside what `advance` says: nothing to ask yet, a moment for Python; nothing has happened.
IN_THRONG, BEGUN = -1, -2


class Manner(NamedTuple):
    """How the answers of a network are taken; see `fermata.policy.learned`."""

    order: Rule  # of the candidates
    margin: float
    limits: Guardrails
    fallback: Rule  # where the limits forbid to wait at all


@part
def _next_startable(world: World, waited: bool) -> int:
    """Go to the next state in which something is startable; returns what `advance` says."""
    while True:
        if waited:
            outcome = advance(world)
            if outcome != DECIDE:
                return int(outcome)
        if any_startable(world.board):
            return DECIDE
        waited = True


@kernel
def next_decision(world: World, order: Rule, waited: bool, x: FeatureRow) -> int:
    """Go to the next state in which something is startable and write its features; returns what `advance` says."""
    outcome = _next_startable(world, waited)
    if outcome == DECIDE:
        features(world.board, candidates(world.board, order), x)
    return int(outcome)


@part
def _next_question(world: World, order: Rule, waited: bool, x: FeatureRow) -> int:
    """Go to the next decision in which a network has a say, and write its features.

    Returns what `advance` says, or IN_THRONG after so many heads that were started on the way.
    """
    for _ in range(HEADS_A_REPORT):
        outcome = _next_startable(world, waited)
        if outcome != DECIDE:
            return int(outcome)
        if not in_throng(world.board):
            features(world.board, candidates(world.board, order), x)
            return DECIDE
        head = first_stage(world.board, order)
        apply(world, START, head, one_task_cap(world.board, head), math.inf)
        waited = False
    return IN_THRONG


@kernel
def take_cheapest(world: World, manner: Manner, costs: NDArray[np.float64]) -> bool:
    """Take the action that these costs make the cheapest, within the limits; tell whether it was a wait."""
    board = world.board
    kind, stage, cap, until_s = cheapest(board, candidates(board, manner.order), costs, manner.margin)
    kind, stage, cap, until_s, why = bound(board, kind, stage, cap, until_s, manner.limits)
    if why == IDLE_POOL:
        kind, stage, cap, until_s = choose(board, manner.fallback)
    apply(world, kind, stage, cap, until_s)
    return kind == WAIT


@kernel
def _go_on(world: World, manner: Manner, costs: NDArray[np.float64], stand: int, x: FeatureRow) -> int:
    """Take the answer to a decision, and go to the next one: one way into compiled code for both.

    Args:
        world: the episode.
        manner: how the answer is taken.
        costs: the answer [3], read only at a decision.
        stand: where the episode stands: what this returned before, BEGUN at first.
        x: the features of the next decision are written here.

    Returns:
        What `advance` says, or IN_THRONG, as `_next_question`.
    """
    waited = stand == BEGUN
    if stand == DECIDE:
        waited = take_cheapest(world, manner, costs)
    return int(_next_question(world, manner.order, waited, x))


def run_network(
    world: World, order: Rule, policy: OnnxPolicy, limits: Guardrails, fallback: Rule, report: Callable[[], object]
) -> int:
    """Run an episode to its end and return what the last `advance` said; `report` is called now and then."""
    x, row = np.zeros(SIZE), np.zeros((1, SIZE), np.float32)
    costs, manner = np.zeros(len(ACTIONS)), Manner(order, policy.margin, limits, fallback)
    stand, asked = BEGUN, 0
    while True:
        stand = int(_go_on(world, manner, costs, stand, x))
        if stand not in (DECIDE, IN_THRONG):
            return stand
        asked += 1
        if stand == IN_THRONG or asked % DECISIONS_A_REPORT == 0:
            report()
        if stand == DECIDE:
            row[0] = x
            costs[:] = policy.costs(row)[0]
