"""Experience of a graph policy: the same arrivals, played several times at once with sampled actions.

A unit follows from the configuration, the iteration, its numbers and the network alone, and its rollouts are always
evaluated together, so what it gives does not depend on who does it. What an evaluation costs is hardly more for many
states than for one, so all rollouts of a unit decide at the same time.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from fermata.policy._jit import kernel
from fermata.policy.action import WAIT, Action, any_startable
from fermata.policy.dag import Dag
from fermata.policy.errors import FermataError, InputError
from fermata.policy.features import ORDER, SIZE, FeatureRow, candidates
from fermata.policy.graph_actions import (
    IMPOSSIBLE,
    WAIT_CHOICE,
    BatchScores,
    Choice,
    Choices,
    Space,
    action_of,
    best_choices,
)
from fermata.policy.graph_rows import Seen, pool_of
from fermata.policy.graph_state import GraphState, Menu, graph_states, join
from fermata.policy.heuristics.kernel import Rule, choose
from fermata.policy.heuristics.srwf import SRWF
from fermata.policy.rows import column, listed, peek
from fermata.sim.engine import DECIDE, DONE, advance, apply
from fermata.sim.learned_loop import next_decision
from fermata.sim.metrics import over_base
from fermata.sim.scenarios import Scenario
from fermata.sim.simulate import simulate
from fermata.sim.trace import Trace
from fermata.sim.trace_jobs import job_work_s
from fermata.sim.world import World, new_world, tables_of
from fermata.training.graph.choices import drawn_choices
from fermata.training.graph.config import GraphConfig
from fermata.training.graph.costs import CostToGo, advantages
from fermata.training.graph.network import GraphNetwork, tensors
from fermata.training.graph.objectives import Stays, stays
from fermata.training.graph.scenarios import named
from fermata.training.own import Part
from fermata.training.workloads import draw as draw_scenario

Floats = NDArray[np.float64]
Weights = dict[str, NDArray[np.generic]]
_HELD_OUT = 2**31  # first number of the sequences that no update sees


class Decisions(NamedTuple):
    """Decisions of several rollouts under each other, in the order in which they were made; `d` in all."""

    graph: GraphState  # of d states
    row: NDArray[np.int64]  # [d] chosen stage, as a row of `graph.choice_stage`; WAIT_CHOICE for a wait
    option: NDArray[np.int64]  # [d]
    delay: NDArray[np.int64]  # [d]
    advantage: Floats  # [d] against the other rollouts of the same arrivals, over the mean cost to go
    cost: Floats  # [d] to go: jobs in the system for each executor, faded
    kept: Floats  # [d] what the fading leaves until the rollout's next decision; 0 at its last
    counts: NDArray[np.bool_]  # [d] is to be learned from: made before the last arrival
    following: NDArray[np.int64]  # [d] the rollout's next decision; -1 at its last


@dataclass(frozen=True)
class Unit:
    """Some arrival sequences of one iteration, and the network that plays them."""

    config: GraphConfig
    iteration: int
    numbers: tuple[int, ...]
    weights: Weights


def network_of(config: GraphConfig, weights: Weights) -> GraphNetwork:
    """Return the network of some weights, ready to be asked."""
    torch.set_num_threads(1)
    network = GraphNetwork(config.network)
    network.load_state_dict({name: torch.from_numpy(np.array(array)) for name, array in weights.items()})
    network.eval()
    return network


def weights_of(network: GraphNetwork) -> Weights:
    """Return a network's weights as arrays."""
    return {name: value.detach().cpu().numpy().copy() for name, value in network.state_dict().items()}


@kernel
def _go_on(world: World, order: Rule, kind: int, stage: int, cap: int, until_s: float, x: FeatureRow) -> int:
    """Take an action and go to the next decision; returns what `advance` says, and the pool's features in `x`."""
    apply(world, kind, stage, cap, until_s)
    return int(next_decision(world, order, kind == WAIT, x))


class Player:
    """One episode under way.

    Args:
        world: the episode; it is gone on with.
        stage_ptr: [jobs + 1] where each job's stages begin.
        base: where its stages begin in the `Dag` of all episodes.
    """

    def __init__(self, world: World, stage_ptr: NDArray[np.int64], base: int) -> None:
        self.world, self._stage_ptr, self._base = world, stage_ptr.tolist(), base
        self._x = np.zeros(SIZE)

    def begin(self) -> bool:
        """Go to the first decision, which may be one that is open; tell whether there is one."""
        return self._decides(next_decision(self.world, ORDER, False, self._x))

    def take(self, action: Action) -> bool:
        """Take an action and go to the next decision; tell whether there is one."""
        return self._decides(_go_on(self.world, ORDER, *action, self._x))

    def _decides(self, outcome: int) -> bool:
        if outcome not in (DECIDE, DONE):
            raise FermataError(f"an episode is stuck at {peek(self.world.board.pool).now_s:g} s")
        return outcome == DECIDE

    def seen(self, space: Space) -> Seen:
        """Return the board with the rows on it that count."""
        board = self.world.board
        pool = pool_of(board)
        oldest = int(listed(board.active, pool.active).min())
        wake_s = candidates(board, ORDER).wake_s if space.wake_up else math.inf
        return Seen(board, self._stage_ptr[oldest], self._stage_ptr[pool.recent_end], self._base, self._x, wake_s)


class Step(NamedTuple):
    """What was chosen in the states of some episodes at once."""

    graph: GraphState
    menu: Menu
    players: list[int]  # [s]
    choices: Choices


def _scores(network: GraphNetwork, graph: GraphState, menu: Menu) -> BatchScores:
    """Return the scores of several states, evaluated together.

    Raises:
        InputError: they are no numbers, or such that what is impossible looks better.
    """
    with torch.inference_mode():
        stage, option, delay, wait = (each.numpy() for each in network(*tensors(graph)))
    if not (np.abs(stage).max() < -0.5 * IMPOSSIBLE and np.isfinite(wait).all()):  # of NaN neither is true
        raise InputError("the training has diverged: expected a smaller update.learning_rate")
    return BatchScores(stage, option, delay, wait, menu.first)


def play(
    network: GraphNetwork,
    players: list[Player],
    dag: Dag,
    choose_from: Callable[[BatchScores], Choices],
    note: Callable[[Step], None] = lambda _: None,
) -> None:
    """Play episodes to their ends, side by side; `note` is told of all choices before they are taken."""
    space = network.config.space.space
    under_way = [number for number, player in enumerate(players) if player.begin()]
    while under_way:
        graph, menu = graph_states([players[number].seen(space) for number in under_way], dag)
        choices = choose_from(_scores(network, graph, menu))
        note(Step(graph, menu, under_way, choices))
        chosen = [Choice(*parts) for parts in zip(*(part.tolist() for part in choices), strict=True)]
        under_way = [
            number
            for state, (number, choice) in enumerate(zip(under_way, chosen, strict=True))
            if players[number].take(action_of(menu, choice, space, state))
        ]


def _warmed(trace: Trace, executors: int, jobs: int) -> World:
    """Return an episode in which so many jobs have arrived under shortest remaining work first.

    If all the others arrived with the last of them, what to do then is left open: there may be nothing else to decide.
    """
    world = new_world(tables_of(trace, executors), executors)
    while peek(world.clock).arrived < jobs and advance(world) == DECIDE:
        if peek(world.clock).arrived == trace.jobs:
            break
        while any_startable(world.board):
            apply(world, *choose(world.board, SRWF.rule))
    return world


def _paid(config: GraphConfig, trace: Trace, executors: int, world: World) -> Stays:
    """Return what a finished episode is paid for."""
    completion_s = column(world.job_progress, "completion_s")
    return stays(config.objective, trace, executors, completion_s, column(world.board.jobs, "critical_path_s"))


def drawn_scenario(config: GraphConfig, iteration: int, number: int, jobs: int) -> tuple[Scenario, int]:
    """Return the scenario of a sequence and the seed of its arrivals; loads open with the curriculum."""
    random = np.random.default_rng([config.seed, iteration, number])
    ranges = config.workloads
    low, high = ranges.load
    opening = config.rollouts.load_curriculum * config.iterations
    if number < _HELD_OUT and iteration < opening:
        high = low + (high - low) * (iteration + 1) / opening
    part: Part = "teach" if number < _HELD_OUT else "choose"
    if config.scenario is not None:
        chosen = named(config.scenario).with_(jobs=jobs, load=float(random.uniform(low, high)))
        return chosen, int(random.integers(2**31))
    scenario = draw_scenario(random, ranges.model_copy(update={"load": (low, high)}), jobs, part)
    return scenario, int(random.integers(2**31))


def _length(config: GraphConfig, iteration: int, number: int) -> int:
    """Return how many jobs a sequence has after its warm-up."""
    mean = config.between(config.rollouts.jobs, iteration)
    drawn = np.random.default_rng([config.seed, iteration, number, 1]).exponential(mean)
    return int(np.clip(round(drawn), 10, config.rollouts.most_jobs))


class Arrivals(NamedTuple):
    """One arrival sequence."""

    trace: Trace
    executors: int
    fade_s: float  # time constant with which costs fade


def _arrivals(unit: Unit, number: int) -> Arrivals:
    """Draw a sequence."""
    config = unit.config
    jobs = config.rollouts.warm_jobs + _length(config, unit.iteration, number)
    scenario, seed = drawn_scenario(config, unit.iteration, number, jobs)
    trace = scenario.generate(seed)
    return Arrivals(trace, scenario.executors, config.update.horizon_jobs * _gap_s(trace, scenario.executors))


def _gap_s(trace: Trace, executors: int) -> float:
    """Return the mean time between arrivals, above 0.

    Of jobs that all come at once it is such that they would just keep the executors busy.
    """
    span_s = float(trace.job_arrival_s[-1]) or float(job_work_s(trace).sum()) / executors
    return span_s / trace.jobs or 1.0


def run_unit(unit: Unit) -> Decisions:
    """Play each arrival sequence `repeats` times and return the decisions with what they were worth."""
    config = unit.config
    network = network_of(config, unit.weights)
    sequences = [_arrivals(unit, number) for number in unit.numbers]
    dag, bases = Dag.stacked([Dag.of_parents(each.trace.parent_ptr, each.trace.parent) for each in sequences])
    players = []
    for (trace, executors, _), base in zip(sequences, bases, strict=True):
        begun = _warmed(trace, executors, min(config.rollouts.warm_jobs, trace.jobs - 1))
        worlds = [copy.deepcopy(begun) for _ in range(config.rollouts.repeats)]
        players += [Player(world, trace.job_stage_ptr, base) for world in worlds]
    random = np.random.default_rng([config.seed, unit.iteration, unit.numbers[0], 2])
    steps: list[Step] = []
    play(network, players, dag, lambda scores: drawn_choices(scores, random), steps.append)
    return _valued(config, sequences, players, steps)


class _Values(NamedTuple):
    """What the decisions of the rollouts of one sequence were worth, by rollout."""

    advantage: list[Floats]
    cost: list[Floats]
    kept: list[Floats]
    counts: list[NDArray[np.bool_]]


def _values(config: GraphConfig, sequence: Arrivals, worlds: list[World], times_s: list[Floats]) -> _Values:
    trace, executors, fade_s = sequence
    costs = [CostToGo(*_paid(config, trace, executors, world), fade_s) for world in worlds]
    told = [cost.at(time_s) for cost, time_s in zip(costs, times_s, strict=True)]
    # A percent is a percent: a crowded sequence must not drown out the others.
    level = max(float(np.concatenate(told).mean()), 1e-9)
    return _Values(
        advantage=[each / level for each in advantages(costs, times_s)],
        cost=[each / (fade_s * executors) for each in told],
        kept=[np.append(np.exp(-np.diff(time_s) / fade_s), 0.0) for time_s in times_s],
        counts=[time_s <= trace.job_arrival_s[-1] for time_s in times_s],
    )


def _valued(config: GraphConfig, sequences: list[Arrivals], players: list[Player], steps: list[Step]) -> Decisions:
    """Return the decisions of finished rollouts with their costs and advantages."""
    player = np.concatenate([step.players for step in steps])
    now_s = np.concatenate([step.menu.now_s for step in steps])
    at = [np.flatnonzero(player == number) for number in range(len(players))]
    repeats = config.rollouts.repeats
    values = [
        _values(
            config,
            sequence,
            [each.world for each in players[first : first + repeats]],
            [now_s[rows] for rows in at[first : first + repeats]],
        )
        for first, sequence in zip(range(0, len(players), repeats), sequences, strict=True)
    ]
    order = np.concatenate(at)
    columns = {}
    for name in _Values._fields:
        by_rollout = np.concatenate([each for value in values for each in getattr(value, name)])
        columns[name] = np.empty_like(by_rollout)
        columns[name][order] = by_rollout
    following = np.full(len(player), -1)
    for rows in at:
        following[rows[:-1]] = rows[1:]
    return Decisions(
        graph=join([step.graph for step in steps]),
        row=_rows(steps),
        option=np.concatenate([step.choices.option for step in steps]),
        delay=np.concatenate([step.choices.delay for step in steps]),
        following=following,
        **columns,
    )


def _rows(steps: list[Step]) -> NDArray[np.int64]:
    """Return the chosen rows among the choices of all steps."""
    first = np.cumsum([0, *(len(step.menu.stages) for step in steps[:-1])]).tolist()
    rows = [step.choices.row for step in steps]
    return np.concatenate(
        [np.where(row == WAIT_CHOICE, WAIT_CHOICE, row + at) for row, at in zip(rows, first, strict=True)]
    )


def play_best(network: GraphNetwork, episodes: Sequence[tuple[Trace, int]]) -> list[World]:
    """Play episodes of so many executors each with the likeliest actions, side by side, and return how they ended."""
    dag, bases = Dag.stacked([Dag.of_parents(trace.parent_ptr, trace.parent) for trace, _ in episodes])
    players = [
        Player(new_world(tables_of(trace, executors), executors), trace.job_stage_ptr, base)
        for (trace, executors), base in zip(episodes, bases, strict=True)
    ]
    play(network, players, dag, best_choices)
    return [player.world for player in players]


class HeldOut(NamedTuple):
    """Some held-out episodes and the network that is looked at."""

    config: GraphConfig
    numbers: tuple[int, ...]
    weights: Weights


def score_held_out(held: HeldOut) -> list[float]:
    """Return the cost of each held-out episode under the likeliest actions, over that of the base policy."""
    config = held.config
    episodes: list[tuple[Trace, int]] = []
    for number in held.numbers:
        scenario, seed = drawn_scenario(config, 0, _HELD_OUT + number, config.selection.jobs)
        episodes.append((scenario.generate(seed), scenario.executors))
    told = []
    worlds = play_best(network_of(config, held.weights), episodes)
    for (trace, executors), world in zip(episodes, worlds, strict=True):
        paid = _paid(config, trace, executors, world)
        base = simulate(trace, executors, SRWF)
        critical_path_s = column(world.board.jobs, "critical_path_s")
        due = stays(config.objective, trace, executors, base.job_completion_s, critical_path_s)
        told.append(over_base(paid.cost, due.cost))
    return told
