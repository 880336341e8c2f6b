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

from fermata.policy._jit import inlined, kernel, part, routine
from fermata.policy.action import WAIT, any_startable
from fermata.policy.board import Board
from fermata.policy.features import SIZE, candidates, features
from fermata.policy.guardrails import IDLE_POOL, NO_LIMITS, bound
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
from fermata.policy.several_slots import several_slots
from fermata.sim.engine import DECIDE, advance, apply
from fermata.sim.world import World
from fermata.training.fork import Fork, splice
from fermata.training.futures import Library, Moment

BETWEEN, TO_LABEL, AT_RANDOM = range(3)  # where a base episode stands: between decisions, or at one

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
    experts: int  # a bit for each index into EXPERTS: whose decisions are labelled
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
def _bounded_action(board: Board, base: Base) -> tuple[int, int, int, float]:
    """Return what the base policy chooses, but where it would leave an idle pool waiting for nothing."""
    kind, stage, cap, until_s = _base_action(board, base)
    kind, stage, cap, until_s, why = bound(board, kind, stage, cap, until_s, NO_LIMITS)
    if why == IDLE_POOL:
        return choose_eager(board, base.rule)
    return kind, stage, cap, until_s


@routine
def act(world: World, base: Base) -> None:
    """Let the base policy decide until it waits or nothing is startable."""
    board = world.board
    while any_startable(board):
        kind, stage, cap, until_s = _bounded_action(board, base)
        apply(world, kind, stage, cap, until_s)
        if kind == WAIT:
            return


@routine
def unfold(fork: Fork, future: Future) -> bool:
    """Make the fork a copy of the decision with that future; tell whether it was large enough."""
    return splice(fork, future.world, future.library, future.first, future.arrivals, future.since_s)


@routine
def begin(world: World, picked: int, base: Base) -> None:
    """Take the picked action, and let the base policy decide what else begins now."""
    board = world.board
    kind, stage, cap, until_s = action_of(board, candidates(board, base.order), picked)
    apply(world, kind, stage, cap, until_s)
    if kind != WAIT:
        act(world, base)


@routine
def _until_empty(world: World, base: Base) -> int:
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
        act(world, base)
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


@inlined  # it has one caller, and both together compile sooner
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
            begin(forks[picked].world, picked, base)
            left[picked] = _until_empty(forks[picked].world, base)
    behind = _furthest_behind(left, legal)
    while behind >= 0:
        act(forks[behind].world, base)
        left[behind] = _until_empty(forks[behind].world, base)
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
def _take(world: World, picked: int, base: Base) -> bool:
    """Take the picked action, or what the base policy chooses if it is -1; tell whether it was a wait."""
    board = world.board
    if picked >= 0:
        kind, stage, cap, until_s = action_of(board, candidates(board, base.order), picked)
    else:
        kind, stage, cap, until_s = _bounded_action(board, base)
    apply(world, kind, stage, cap, until_s)
    return kind == WAIT


@part
def _interest(behaviour: Base, plan: Plan, legal: int, x: FloatArray) -> float:
    """Return which part of the share of decisions such as this one is labelled, 0 to 1.

    Most decisions are no question, and noise of labels does no harm there. Where the network would leave the head, or
    nearly, a wrong sign costs time: that is where labels are spent.
    """
    if (plan.experts >> expert_for(x)) & 1 == 0:
        return 0.0
    if not behaviour.learned:
        return 1.0
    network = behaviour.network
    for i in range(len(x)):
        network.inputs[i] = x[i]
    forward(network, network.inputs)
    least = math.inf
    for each in range(1, len(ACTIONS)):
        if (legal >> each) & 1:
            least = min(least, network.costs[each])
    return 1.0 if least < plan.doubt else plan.elsewhere


@part
def _is_sampled(world: World, behaviour: Base, plan: Plan, rng: np.random.Generator, legal: int, x: FloatArray) -> bool:
    """Draw whether to label a decision; one without a choice never is, nor one in which no network is asked."""
    drawn = rng.random()
    if drawn >= plan.sample or legal & (legal - 1) == 0 or world.clock[0].arrived < plan.warm:
        return False
    if several_slots(world.board):
        return False
    return drawn < plan.sample * _interest(behaviour, plan, legal, x)


@kernel
def go_on(
    world: World,
    behaviour: Base,
    plan: Plan,
    rng: np.random.Generator,
    stand: int,
    legal: int,
    picked: int,
    x: FloatArray,
) -> tuple[int, int]:
    """Go on with a base episode to where its caller has something to do.

    Args:
        world: the episode.
        behaviour: decides in it.
        plan: which decisions are labelled, and how many are random.
        rng: drawn from at each decision.
        stand: where the episode stands: what this returned before, BETWEEN at first.
        legal: as returned before.
        picked: AT_RANDOM: the action that was drawn; numpy draws it, as Numba would need memory for that.
        x: [SIZE] the features of the decision are written here.

    Returns:
        TO_LABEL, AT_RANDOM, or BETWEEN at the end of the episode; and a bit for each legal action.
    """
    while stand != BETWEEN or advance(world) == DECIDE:
        while True:
            if stand == BETWEEN:
                legal = look(world, behaviour.order, x)
                if legal == 0:
                    break
                if _is_sampled(world, behaviour, plan, rng, legal, x):
                    return TO_LABEL, legal
            if stand != AT_RANDOM and rng.random() < plan.explore:
                return AT_RANDOM, legal
            waits = _take(world, picked if stand == AT_RANDOM else -1, behaviour)
            stand = BETWEEN
            if waits:
                break
    return BETWEEN, 0


@kernel
def add_costs(costs: FloatArray, totals_s: FloatArray, legal: int, plan: Plan) -> None:
    """Add what one future says of each legal action to the labels [3]: mean JCTs against starting the head."""
    for each in range(len(ACTIONS)):
        if (legal >> each) & 1:
            costs[each] += (totals_s[each] - totals_s[START_HEAD]) / plan.unit_s / plan.futures


@kernel
def try_futures(
    forks: tuple[Fork, ...],
    future: Future,
    firsts: IntArray,
    legal: int,
    base: Base,
    plan: Plan,
    costs: FloatArray,
    totals_s: FloatArray,
    left: IntArray,
) -> bool:
    """Try each legal action in futures that begin at these jobs: write the labels; False if a fork is too small.

    Args:
        forks: memory for a copy for each action.
        future: the decision, and what is the same of all of them.
        firsts: [futures] jobs of the library.
        legal: a bit for each action.
        base: followed after the action.
        plan: what labels are measured in.
        costs: [3] added to where legal: mean JCTs against starting the head.
        totals_s: [3] room.
        left: [3] room.
    """
    for i in range(len(firsts)):
        one = Future(future.world, future.library, firsts[i], future.since_s, future.arrivals)
        if not try_actions(forks, one, legal, base, totals_s, left):
            return False
        add_costs(costs, totals_s, legal, plan)
    return True


def arrivals_of(library: World) -> Library:
    """Return the arrivals of an episode in which nothing has happened."""
    jobs = int(peek(library.clock).jobs)
    return Library(*(column(library.board.jobs, name, jobs) for name in ("arrival_s", "work_s")))


@kernel
def moment_of(world: World, order: Rule) -> Moment:
    """Return what is looked at of a decision to find where its future may begin."""
    board, arrived = world.board, world.clock[0].arrived
    now_s, last = board.pool[0].now_s, board.jobs[arrived - 1]
    short_s = 0.5 * board.jobs[board.stages[candidates(board, order).head].job].remaining_work_s
    job = arrived - 1
    while job >= 0 and board.jobs[job].work_s >= short_s:
        job -= 1
    came_s = board.jobs[job].arrival_s if job >= 0 else -math.inf
    return Moment(last.work_s, now_s - last.arrival_s, short_s, now_s - came_s)


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
        x, stand, legal, picked = np.zeros(SIZE), BETWEEN, 0, -1
        while len(xs) < states:
            stand, legal = go_on(self.world, self.behaviour, self.plan, rng, stand, legal, picked, x)
            if stand == BETWEEN:
                break
            if stand == AT_RANDOM:
                picked = int(rng.choice([each for each in range(len(ACTIONS)) if (legal >> each) & 1]))
                continue
            label = self._label(rng, legal)
            if label is not None:
                xs.append(x.copy())
                ys.append(label)
        return np.array(xs).reshape(-1, SIZE), np.array(ys).reshape(-1, len(ACTIONS))

    def _label(self, rng: np.random.Generator, legal: int) -> FloatArray | None:
        """Return the label of each action, NaN where illegal; None if the fork is too small."""
        plan, room = self.plan, (np.zeros(len(ACTIONS)), np.zeros(len(ACTIONS), np.int64))
        costs = np.array([0.0 if (legal >> each) & 1 else math.nan for each in range(len(ACTIONS))])
        end = int(peek(self.library.clock).jobs) - plan.horizon
        firsts, since_s = self._library.next_jobs(moment_of(self.world, self.base.order), end)
        future = Future(self.world, self.library, 0, since_s, plan.horizon)
        if not try_futures(self.forks, future, rng.choice(firsts, plan.futures), legal, self.base, plan, costs, *room):
            return None
        clipped: FloatArray = np.clip(costs, -plan.max_label, plan.max_label)
        return clipped
