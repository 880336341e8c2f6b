"""The rollout teacher: what each action would have cost, found by trying it.

At sampled decisions of a base episode every action is forced once in each of several shared futures (common random
numbers); then the base policy takes over until the last of a fixed number of further jobs is done, or until what was
done makes no difference any more. The label of an action is the difference of the jobs' summed completion times against
"start the head", in mean JCTs. The rollouts are compiled. Source: rollout policy improvement (Bertsekas); the recipe is
in docs/concepts.md.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fermata.policy._jit import kernel
from fermata.policy.action import WAIT, any_startable
from fermata.policy.board import Board
from fermata.policy.features import SIZE, candidates, features
from fermata.policy.guardrails import IDLE_POOL, NO_LIMITS, Guardrails, bound
from fermata.policy.heuristics.kernel import Rule, choose, choose_eager
from fermata.policy.learned import (
    ACTIONS,
    START_ALTERNATIVE,
    START_HEAD,
    WAIT_FOR_EVENT,
    Network,
    action_of,
    choose_learned,
    expert_for,
    forward,
)
from fermata.policy.rows import column, peek
from fermata.sim.engine import DECIDE, advance, apply
from fermata.sim.world import World
from fermata.training.fork import Fork, splice
from fermata.training.futures import Library, Moment

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


class Base(NamedTuple):
    """The policy that rollouts follow: the rule, or the network where `learned`."""

    learned: bool
    rule: Rule
    order: Rule  # of the candidates
    network: Network


class Plan(NamedTuple):
    """How an episode is sampled and labelled."""

    sample: float  # share of the real choices that are labelled
    doubt: float  # mean JCTs; see `config.Teacher`
    elsewhere: float  # of `sample`, where the behaviour's network says that all but the head costs more than that
    experts: tuple[int, ...]  # indices into EXPERTS: whose decisions are labelled
    explore: float  # share of the decisions of the base episode that are random
    futures: int
    horizon: int  # arrivals a rollout
    unit_s: float  # mean JCT of the scenario
    warm: int  # arrivals before the first sample
    max_label: float  # labels are clipped to +- this


class Future(NamedTuple):
    """A decision, and what comes after it."""

    world: World  # the episode at the decision; left as it is
    library: World  # where the jobs come from, from `first` on
    first: int  # at least 1
    since_s: float  # time since the last arrival, at most the gap before job `first`
    arrivals: int


@kernel
def _base_action(board: Board, base: Base) -> tuple[int, int, int, float]:
    if base.learned:
        return choose_learned(board, base.order, base.network)
    return choose(board, base.rule)


@kernel
def _bounded_action(board: Board, base: Base, limits: Guardrails) -> tuple[int, int, int, float]:
    """Return what the base policy chooses, within the limits."""
    kind, stage, cap, until_s = _base_action(board, base)
    kind, stage, cap, until_s, why = bound(board, kind, stage, cap, until_s, limits)
    if why == IDLE_POOL:
        return choose_eager(board, base.rule)
    return kind, stage, cap, until_s


@kernel
def act(world: World, base: Base, limits: Guardrails) -> None:
    """Let the base policy decide until it waits or nothing is startable."""
    board = world.board
    while any_startable(board):
        kind, stage, cap, until_s = _bounded_action(board, base, limits)
        apply(world, kind, stage, cap, until_s)
        if kind == WAIT:
            return


@kernel
def unfold(fork: Fork, future: Future) -> bool:
    """Make the fork a copy of the decision with that future; tell whether it was large enough."""
    return splice(fork, future.world, future.library, future.first, future.arrivals, future.since_s)


@kernel
def begin(world: World, picked: int, base: Base, limits: Guardrails) -> None:
    """Take the picked action, and let the base policy decide what else begins now."""
    board = world.board
    kind, stage, cap, until_s = action_of(board, candidates(board, base.order), picked)
    apply(world, kind, stage, cap, until_s)
    if kind != WAIT:
        act(world, base, limits)


@kernel
def _until_empty(world: World, base: Base, limits: Guardrails) -> int:
    """Follow the base until a job comes to an empty pool, which is left undecided, or to the end.

    Returns:
        How many jobs have left: all that came before that one, or all.
    """
    board, clock = world.board, world.clock[0]
    came = clock.arrived
    while advance(world) == DECIDE:
        alone = clock.arrived > came and clock.finished == clock.arrived - 1
        # Where all executors are busy an arrival is no decision: it may have come while others were there.
        if alone and board.jobs[clock.arrived - 1].arrival_s == board.pool[0].now_s:
            return clock.finished
        came = clock.arrived
        act(world, base, limits)
    return clock.finished


@kernel
def stayed_s(world: World, jobs: int, now_s: float) -> float:
    """Return the sum of the first jobs' completion times, seconds from `now_s`."""
    total_s = 0.0
    for job in range(jobs):
        total_s += world.job_progress[job].completion_s - now_s
    return total_s


@kernel
def _furthest_behind(left: IntArray, legal: int) -> int:
    """Return the action under which the fewest jobs have left, -1 if it is as many under all."""
    least, most = -1, -1
    for picked in range(len(left)):
        if (legal >> picked) & 1:
            if least < 0 or left[picked] < left[least]:
                least = picked
            if most < 0 or left[picked] > left[most]:
                most = picked
    return least if left[least] < left[most] else -1


@kernel
def try_actions(
    forks: tuple[Fork, ...], future: Future, legal: int, base: Base, totals_s: FloatArray, left: IntArray
) -> bool:
    """Try each legal action in one future: write the sums of completion times; False if a fork is too small.

    Where a job comes to an empty pool, all that was done before is forgotten, but for the order in which the errors of
    estimates were met. So it is enough to follow each action until all of them have emptied the pool before the same
    job: what comes behind costs them the same, and is left out of the sums.

    Args:
        forks: memory for a copy for each action.
        future: what they are tried in.
        legal: a bit for each action.
        base: followed after the action.
        totals_s: [3] written where legal.
        left: [3] written where legal: how many jobs are in the sum.
    """
    now_s = future.world.board.pool[0].now_s
    for picked in range(len(forks)):
        if (legal >> picked) & 1:
            if not unfold(forks[picked], future):
                return False
            begin(forks[picked].world, picked, base, NO_LIMITS)
            left[picked] = _until_empty(forks[picked].world, base, NO_LIMITS)
    behind = _furthest_behind(left, legal)
    while behind >= 0:
        act(forks[behind].world, base, NO_LIMITS)
        left[behind] = _until_empty(forks[behind].world, base, NO_LIMITS)
        behind = _furthest_behind(left, legal)
    for picked in range(len(forks)):
        if (legal >> picked) & 1:
            totals_s[picked] = stayed_s(forks[picked].world, left[picked], now_s)
    return True


@kernel
def look(world: World, order: Rule, x: NDArray[np.float64]) -> int:
    """Write the features of the current decision; return a bit for each legal action, 0 if nothing is startable."""
    board = world.board
    choice = candidates(board, order)
    if choice.head < 0:
        return 0
    features(board, choice, x)
    legal = 1 << START_HEAD
    if choice.alternative >= 0:
        legal |= 1 << START_ALTERNATIVE
    if board.pool[0].free < len(board.executors) or not math.isinf(choice.wake_s):
        legal |= 1 << WAIT_FOR_EVENT
    return legal


@kernel
def _take(world: World, picked: int, base: Base, limits: Guardrails) -> bool:
    """Take the picked action, or what the base policy chooses if it is -1; tell whether it was a wait."""
    board = world.board
    if picked >= 0:
        kind, stage, cap, until_s = action_of(board, candidates(board, base.order), picked)
    else:
        kind, stage, cap, until_s = _bounded_action(board, base, limits)
    apply(world, kind, stage, cap, until_s)
    return kind == WAIT


def arrivals_of(library: World) -> Library:
    """Return the arrivals of an episode in which nothing has happened."""
    jobs = int(peek(library.clock).jobs)
    return Library(*(column(library.board.jobs, name, jobs) for name in ("arrival_s", "work_s")))


def moment_of(world: World, order: Rule) -> Moment:
    """Return what is looked at of a decision to find where its future may begin."""
    board, arrived = world.board, int(peek(world.clock).arrived)
    now_s, last = float(peek(board.pool).now_s), peek(board.jobs, arrived - 1)
    head = peek(board.stages, candidates(board, order).head).job
    short_s = 0.5 * float(peek(board.jobs, head).remaining_work_s)
    shorts = np.flatnonzero(column(board.jobs, "work_s", arrived) < short_s)
    came_s = float(peek(board.jobs, int(shorts[-1])).arrival_s) if len(shorts) else -math.inf
    return Moment(float(last.work_s), now_s - float(last.arrival_s), short_s, now_s - came_s)


class Teacher:
    """Labels decisions of one base episode; see the module."""

    def __init__(
        self, world: World, library: World, forks: tuple[Fork, ...], behaviour: Base, base: Base, plan: Plan
    ) -> None:
        self.world, self.library, self.forks = world, library, forks
        self.behaviour, self.base, self.plan = behaviour, base, plan
        self._library = arrivals_of(library)

    def collect(self, seed: int, states: int) -> tuple[FloatArray, FloatArray]:
        """Run the base episode and label up to `states` of its decisions.

        Returns:
            Features [n, SIZE] and labels [n, 3] in mean JCTs, NaN where an action is illegal.
        """
        rng = np.random.default_rng(seed)
        xs: list[FloatArray] = []
        ys: list[FloatArray] = []
        while len(xs) < states and advance(self.world) == DECIDE:
            while len(xs) < states:
                x = np.zeros(SIZE)
                bits = look(self.world, self.base.order, x)
                legal = [each for each in range(len(ACTIONS)) if (bits >> each) & 1]
                if not legal:
                    break
                if self._sampled(rng, legal, x):
                    label = self._label(rng, bits, legal)
                    if label is not None:
                        xs.append(x)
                        ys.append(label)
                picked = int(rng.choice(legal)) if rng.random() < self.plan.explore else -1
                if _take(self.world, picked, self.behaviour, NO_LIMITS):
                    break
        return np.array(xs).reshape(-1, SIZE), np.array(ys).reshape(-1, len(ACTIONS))

    def _sampled(self, rng: np.random.Generator, legal: list[int], x: FloatArray) -> bool:
        """Draw whether to label a decision; one without a choice never is."""
        drawn = rng.random()
        if drawn >= self.plan.sample or len(legal) < 2 or peek(self.world.clock).arrived < self.plan.warm:
            return False
        return bool(drawn < self.plan.sample * self._interest(x, legal))

    def _interest(self, x: FloatArray, legal: list[int]) -> float:
        """Return which part of the share of decisions such as this one is labelled, 0 to 1.

        Most decisions are no question, and noise of labels does no harm there. Where the network would leave the head,
        or nearly, a wrong sign costs time: that is where labels are spent.
        """
        network = self.behaviour.network
        if expert_for(x) not in self.plan.experts:
            return 0.0
        if not self.behaviour.learned:
            return 1.0
        forward(network, x.copy())  # normalises in place
        least = min(network.costs[each] for each in legal if each != START_HEAD)
        return 1.0 if least < self.plan.doubt else self.plan.elsewhere

    def _label(self, rng: np.random.Generator, bits: int, legal: list[int]) -> FloatArray | None:
        """Return the label of each action, NaN where illegal; None if the fork is too small."""
        plan = self.plan
        costs = np.full(len(ACTIONS), math.nan)
        costs[legal] = 0.0
        end = int(peek(self.library.clock).jobs) - plan.horizon
        firsts, since_s = self._library.next_jobs(moment_of(self.world, self.base.order), end)
        for first in rng.choice(firsts, plan.futures):
            totals_s, left = np.zeros(len(ACTIONS)), np.zeros(len(ACTIONS), np.int64)
            future = Future(self.world, self.library, int(first), since_s, plan.horizon)
            if not try_actions(self.forks, future, bits, self.base, totals_s, left):
                return None
            costs[legal] += (totals_s[legal] - totals_s[START_HEAD]) / plan.unit_s / plan.futures
        clipped: FloatArray = np.clip(costs, -plan.max_label, plan.max_label)
        return clipped
