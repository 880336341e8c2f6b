"""An episode under a learned policy.

The same steps as `fermata.policy.decide` takes, in the same order, without the copies that a caller in plain Python
needs: tests compare the two. What comes of the network's answer is known without asking ONNX Runtime in a throng and
where tasks take several executors, as it would change nothing there, and where the same network in compiled code is
sure of its pick (`learned.sure_pick`). Where one action is hardly cheaper than another, the runtime says which, one
decision at a time, so that an answer never depends on which others it is asked together with.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fermata.policy._jit import COMPILED, kernel, part
from fermata.policy.action import START, WAIT, any_startable
from fermata.policy.features import SIZE, Candidates, FeatureRow, candidates, features
from fermata.policy.guardrails import IDLE_POOL, Guardrails, bound
from fermata.policy.heuristics.kernel import Rule, choose, first_stage
from fermata.policy.learned import (
    ACTIONS,
    Network,
    action_of,
    forward,
    in_throng,
    one_task_cap,
    pick_in_use,
    sure_pick,
)
from fermata.policy.several_slots import several_slots
from fermata.sim.engine import DECIDE, advance, apply
from fermata.sim.networks import eager
from fermata.sim.world import World, scored_by

if TYPE_CHECKING:
    from fermata.policy.onnx_policy import OnnxPolicy

DECISIONS_A_REPORT = 64  # of those that the runtime is asked about
KNOWN_A_REPORT = 100  # of the others, which take some microseconds each
# Beside what `advance` says, a moment for Python: after an action; after a wait, and so an episode begins.
ACTED, WAITED = -1, -2


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
def _take(world: World, manner: Manner, choice: Candidates, picked: int) -> bool:
    """Take a picked action, within the limits; tell whether it was a wait."""
    board = world.board
    kind, stage, cap, until_s = action_of(board, choice, picked)
    kind, stage, cap, until_s, why = bound(board, kind, stage, cap, until_s, manner.limits)
    if why == IDLE_POOL:
        kind, stage, cap, until_s = choose(board, manner.fallback)
    apply(world, kind, stage, cap, until_s)
    return kind == WAIT


@kernel
def take_cheapest(world: World, manner: Manner, costs: NDArray[np.float64]) -> bool:
    """Take the action that these costs make the cheapest, within the limits; tell whether it was a wait."""
    choice = candidates(world.board, manner.order)
    return _take(world, manner, choice, pick_in_use(world.board, choice, costs, manner.margin))


@kernel
def _go_on(
    world: World, manner: Manner, twin: Network, known: bool, costs: NDArray[np.float64], stand: int, x: FeatureRow
) -> int:
    """Take the answer to a decision, and go on to the next one whose answer is not known.

    Args:
        world: the episode.
        manner: how answers are taken.
        twin: the network that is asked, in compiled code.
        known: whether there is one; else `twin` is not looked at.
        costs: the answer [3], read only at a decision.
        stand: where the episode stands: what this returned before, WAITED at first.
        x: the features of the next decision are written here.

    Returns:
        What `advance` says, or ACTED or WAITED after so many decisions whose answers were known.
    """
    board, waited = world.board, stand == WAITED
    if stand == DECIDE:
        waited = take_cheapest(world, manner, costs)
    for _ in range(KNOWN_A_REPORT):
        outcome = _next_startable(world, waited)
        if outcome != DECIDE:
            return int(outcome)
        if several_slots(board):
            waited = take_cheapest(world, manner, costs)
            continue
        if in_throng(board):
            head = first_stage(board, manner.order)
            apply(world, START, head, one_task_cap(board, head), math.inf)
            waited = False
            continue
        choice = candidates(board, manner.order)
        features(board, choice, x)
        if not known:
            return DECIDE
        for i in range(len(x)):
            twin.inputs[i] = np.float32(x[i])  # as the runtime is given it
        forward(twin, twin.inputs)
        picked = sure_pick(board, choice, twin)
        if picked < 0:
            return DECIDE
        waited = _take(world, manner, choice, picked)
    return WAITED if waited else ACTED


def _compiled_twin(policy: OnnxPolicy) -> Network | None:
    """Return the network that a policy runs for compiled code, if there is such code: plain Python takes longer."""
    if not COMPILED or find_spec("onnx") is None:
        return None
    from fermata.sim.network_file import twin_of

    return twin_of(policy)


def run_network(
    world: World, order: Rule, policy: OnnxPolicy, limits: Guardrails, fallback: Rule, report: Callable[[], object]
) -> int:
    """Run an episode to its end and return what the last `advance` said; `report` is called now and then."""
    world = scored_by(policy, world)
    x, row = np.zeros(SIZE), np.zeros((1, SIZE), np.float32)
    costs, manner = np.zeros(len(ACTIONS)), Manner(order, policy.margin, limits, fallback)
    twin = _compiled_twin(policy)
    network, known = twin or eager(), twin is not None
    stand, asked = WAITED, 0
    while True:
        stand = int(_go_on(world, manner, network, known, costs, stand, x))
        if stand not in (DECIDE, ACTED, WAITED):
            return stand
        asked += 1
        if stand != DECIDE or asked % DECISIONS_A_REPORT == 0:
            report()
        if stand == DECIDE:
            row[0] = x
            costs[:] = policy.costs(row)[0]
