"""The rollout teacher: what each action would have cost, found by trying it.

At sampled decisions of a base episode every action is forced once in each of several shared futures (common random
numbers); then the base policy takes over until the last of a fixed number of further jobs is done. The label of an
action is the difference of the jobs' summed completion times against "start the head", in mean JCTs. The
rollouts are compiled. Source: rollout policy improvement (Bertsekas); the recipe is in docs/concepts.md.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fermata.policy._jit import jit
from fermata.policy.action import WAIT
from fermata.policy.features import SIZE, candidates, features
from fermata.policy.guardrails import IDLE_POOL, Guardrails, bound
from fermata.policy.heuristics.kernel import Rule, choose, eager
from fermata.policy.learned import (
    ACTIONS,
    START_ALTERNATIVE,
    START_HEAD,
    WAIT_FOR_EVENT,
    Network,
    action_of,
    choose_learned,
)
from fermata.policy.state import ClusterState
from fermata.sim.engine import DECIDE, advance, apply
from fermata.sim.world import ARRIVED, NOW, Tables, World, view
from fermata.training.fork import Fork, splice, window_of

NO_LIMITS = Guardrails()  # only an idle pool that would wait for nothing is forbidden

FloatArray = NDArray[np.float64]


class Base(NamedTuple):
    """The policy that rollouts follow: the rule, or the network where `learned`."""

    learned: bool
    rule: Rule
    order: Rule  # of the candidates
    network: Network


class Plan(NamedTuple):
    """How an episode is sampled and labelled."""

    sample: float  # share of the real choices that are labelled
    explore: float  # share of the decisions of the base episode that are random
    futures: int
    horizon: int  # arrivals a rollout
    unit_s: float  # mean JCT of the scenario
    warm: int  # arrivals before the first sample
    max_label: float  # labels are clipped to +- this


@jit
def _base_action(state: ClusterState, base: Base) -> tuple[int, int, int, float]:
    if base.learned:
        return choose_learned(state, base.order, base.network)
    return choose(state, base.rule)


@jit
def _act(tables: Tables, world: World, base: Base, limits: Guardrails) -> None:
    """Let the base policy decide until it waits or nothing is startable."""
    state = view(tables, world)
    while state.free > 0 and len(state.ready_stages) > 0:
        choice = candidates(state, base.order)
        if choice.head < 0:
            return
        kind, stage, cap, until_s = _base_action(state, base)
        kind, stage, cap, until_s, why = bound(state, kind, stage, cap, until_s, limits)
        if why == IDLE_POOL:
            kind, stage, cap, until_s = choose(state, eager(base.rule))
        state = apply(tables, world, state, kind, stage, cap, until_s)
        if kind == WAIT:
            return


@jit
def _rollout(tables: Tables, world: World, picked: int, base: Base, limits: Guardrails) -> float:
    """Take the picked action, follow the base to the end, and return the sum of completion times, seconds from now."""
    now_s = world.clock[NOW]
    open_before = np.isnan(world.job_completion_s[: len(tables.job_arrival_s)])
    state = view(tables, world)
    choice = candidates(state, base.order)
    kind, stage, cap, until_s = action_of(state, choice, picked)
    apply(tables, world, state, kind, stage, cap, until_s)
    if kind != WAIT:
        _act(tables, world, base, limits)
    while advance(tables, world) == DECIDE:
        _act(tables, world, base, limits)
    total_s = 0.0
    for job in range(len(tables.job_arrival_s)):
        if open_before[job]:
            total_s += world.job_completion_s[job] - now_s
    return total_s


@jit
def _look(tables: Tables, world: World, order: Rule, x: NDArray[np.float64]) -> tuple[int, int, bool]:
    """Write the features of the current decision; return its head and alternative (or -1), and if it may wait."""
    state = view(tables, world)
    choice = candidates(state, order)
    if choice.head >= 0:
        features(state, choice, x)
    return choice.head, choice.alternative, state.free < len(state.executor_stage)


@jit
def _take(tables: Tables, world: World, picked: int, base: Base, limits: Guardrails) -> bool:
    """Take the picked action, or what the base policy chooses if it is -1; tell whether it was a wait."""
    state = view(tables, world)
    if picked >= 0:
        kind, stage, cap, until_s = action_of(state, candidates(state, base.order), picked)
    else:
        kind, stage, cap, until_s = _base_action(state, base)
        kind, stage, cap, until_s, why = bound(state, kind, stage, cap, until_s, limits)
        if why == IDLE_POOL:
            kind, stage, cap, until_s = choose(state, eager(base.rule))
    apply(tables, world, state, kind, stage, cap, until_s)
    return kind == WAIT


class Teacher:
    """Labels decisions of one base episode; see the module."""

    def __init__(
        self,
        tables: Tables,
        world: World,
        library: Tables,
        fork: Fork,
        behaviour: Base,
        base: Base,
        plan: Plan,
    ) -> None:
        self.tables, self.world, self.library, self.fork = tables, world, library, fork
        self.behaviour, self.base, self.plan = behaviour, base, plan

    def collect(self, seed: int, states: int) -> tuple[FloatArray, FloatArray]:
        """Run the base episode and label up to `states` of its decisions.

        Returns:
            Features [n, SIZE] and labels [n, 3] in mean JCTs, NaN where an action is illegal.
        """
        rng = np.random.default_rng(seed)
        xs: list[FloatArray] = []
        ys: list[FloatArray] = []
        while len(xs) < states and advance(self.tables, self.world) == DECIDE:
            while len(xs) < states:
                x = np.zeros(SIZE)
                head, alternative, may_wait = _look(self.tables, self.world, self.base.order, x)
                if head < 0:
                    break
                legal = [START_HEAD]
                legal += [START_ALTERNATIVE] if alternative >= 0 else []
                legal += [WAIT_FOR_EVENT] if may_wait else []
                if self._sampled(rng, legal):
                    label = self._label(rng, legal)
                    if label is not None:
                        xs.append(x)
                        ys.append(label)
                picked = int(rng.choice(legal)) if rng.random() < self.plan.explore else -1
                if _take(self.tables, self.world, picked, self.behaviour, NO_LIMITS):
                    break
        return np.array(xs).reshape(-1, SIZE), np.array(ys).reshape(-1, len(ACTIONS))

    def _sampled(self, rng: np.random.Generator, legal: list[int]) -> bool:
        """Draw whether to label a decision; one without a choice never is."""
        warm = self.world.counter[ARRIVED] >= self.plan.warm
        return bool(rng.random() < self.plan.sample and warm and len(legal) > 1)

    def _label(self, rng: np.random.Generator, legal: list[int]) -> FloatArray | None:
        """Return the label of each action, NaN where illegal; None if the fork is too small."""
        plan = self.plan
        window = window_of(self.tables, self.world)
        costs = np.full(len(ACTIONS), math.nan)
        costs[legal] = 0.0
        for first in rng.integers(1, len(self.library.job_arrival_s) - plan.horizon, plan.futures):
            totals = np.zeros(len(ACTIONS))
            for picked in legal:
                cut = splice(self.fork, self.tables, self.world, window, self.library, int(first), plan.horizon)
                if cut is None:
                    return None
                totals[picked] = _rollout(cut, self.fork.world, picked, self.base, NO_LIMITS)
            costs[legal] += (totals[legal] - totals[START_HEAD]) / plan.unit_s / plan.futures
        clipped: FloatArray = np.clip(costs, -plan.max_label, plan.max_label)
        return clipped
