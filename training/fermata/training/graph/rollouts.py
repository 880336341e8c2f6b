"""Experience of a graph policy: the same arrivals, played several times at once with sampled actions.

A unit follows from the configuration, the iteration, its number and the network alone, and its rollouts are always
evaluated together, so what it gives does not depend on who does it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from fermata.policy.action import WAIT, any_startable
from fermata.policy.errors import FermataError
from fermata.policy.graph_actions import WAIT_CHOICE, Choice, Scores, Space, action_of, best, draw
from fermata.policy.graph_state import Dag, GraphState, Menu, graph_state, join
from fermata.policy.heuristics.kernel import choose
from fermata.policy.heuristics.srwf import SRWF
from fermata.policy.rows import column, peek
from fermata.sim.engine import DECIDE, DONE, advance, apply
from fermata.sim.scenarios import Scenario
from fermata.sim.scenarios import scenario as named_scenario
from fermata.sim.simulate import simulate
from fermata.sim.trace import Trace
from fermata.sim.world import World, new_world, tables_of, view
from fermata.training.graph.config import GraphConfig
from fermata.training.graph.costs import CostToGo, advantages
from fermata.training.graph.network import GraphNetwork, tensors
from fermata.training.workloads import draw as draw_scenario

Floats = NDArray[np.float64]
Weights = dict[str, NDArray[np.generic]]
_HELD_OUT = 2**31  # first number of the sequences that no update sees
_SLOWDOWN_S = 10.0  # jobs shorter than this count as so long
_DECIDED_TOGETHER = 64  # in held-out episodes


class Decisions(NamedTuple):
    """Decisions of several rollouts under each other, `d` in all."""

    graph: GraphState  # of d states
    row: NDArray[np.int64]  # [d] chosen stage, as a row of `graph.choice_stage`; WAIT_CHOICE for a wait
    option: NDArray[np.int64]  # [d]
    delay: NDArray[np.int64]  # [d]
    advantage: Floats  # [d] against the other rollouts of the same arrivals, over the mean cost to go
    cost: Floats  # [d] to go: jobs in the system for each executor, faded
    kept: Floats  # [d] what the fading leaves until the rollout's next decision; 0 at its last
    counts: NDArray[np.bool_]  # [d] is to be learned from: made before the last arrival


@dataclass(frozen=True)
class Unit:
    """One arrival sequence of one iteration, and the network that plays it."""

    config: GraphConfig
    iteration: int
    number: int
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
    return {name: value.detach().numpy().copy() for name, value in network.state_dict().items()}


def _to_decision(world: World, waited: bool) -> bool:
    """Go to the next state in which something can be started; tell whether there is one."""
    while True:
        if waited:
            outcome = int(advance(world))
            if outcome == DONE:
                return False
            if outcome != DECIDE:
                raise FermataError(f"an episode is stuck at {peek(world.board.pool).now_s:g} s")
        if any_startable(world.board):
            return True
        waited = True


@dataclass
class Player:
    """One episode under way."""

    world: World
    dag: Dag
    graph: GraphState
    menu: Menu

    @classmethod
    def of(cls, world: World, dag: Dag) -> Player | None:
        """Return an episode at its first decision, or None if it has none."""
        return cls(world, dag, *graph_state(world.board, dag, view(world))) if _to_decision(world, True) else None

    def take(self, choice: Choice, space: Space) -> bool:
        """Take a choice and go to the next decision; tell whether there is one."""
        action = action_of(self.menu, choice, space)
        apply(self.world, *action)
        if not _to_decision(self.world, action.kind == WAIT):
            return False
        self.graph, self.menu = graph_state(self.world.board, self.dag, view(self.world))
        return True


def _scores(network: GraphNetwork, graphs: list[GraphState]) -> list[Scores]:
    """Return the scores of several states, evaluated together."""
    with torch.no_grad():
        answer = network(*tensors(join(graphs)))
    stage, option, delay, wait = (each.numpy() for each in answer)
    ends = np.cumsum([len(graph.choice_stage) for graph in graphs]).tolist()
    found, first = [], 0
    for i, end in enumerate(ends):
        found.append(Scores(stage[first:end], option[first:end], delay[first:end], float(wait[i])))
        first = end
    return found


def play(
    network: GraphNetwork,
    players: list[Player],
    choose_from: Callable[[int, Scores], Choice],
    note: Callable[[int, Player, Choice], None] = lambda *_: None,
) -> None:
    """Play episodes to their ends, side by side; `note` is told of every choice before it is taken."""
    space = network.config.space.space
    under_way = list(enumerate(players))
    while under_way:
        answers = _scores(network, [player.graph for _, player in under_way])
        left = []
        for (number, player), scores in zip(under_way, answers, strict=True):
            choice = choose_from(number, scores)
            note(number, player, choice)
            if player.take(choice, space):
                left.append((number, player))
        under_way = left


def _warmed(trace: Trace, executors: int, jobs: int) -> World:
    """Return an episode in which so many jobs have arrived under shortest remaining work first."""
    world = new_world(tables_of(trace, executors), executors)
    while peek(world.clock).arrived < jobs and _to_decision(world, True):
        while any_startable(world.board):
            apply(world, *choose(world.board, SRWF.rule))
    return world


def weights_of_jobs(trace: Trace, world: World, objective: str) -> Floats:
    """Return what a second of each job in the system costs, [jobs]; 1 on average."""
    if objective == "jct":
        return np.ones(trace.jobs)
    if objective == "weighted_jct":
        weight = trace.job_weight
    else:
        weight = 1.0 / np.maximum(column(world.board.jobs, "critical_path_s"), _SLOWDOWN_S)
    mean: Floats = weight / weight.mean()
    return mean


def drawn_scenario(config: GraphConfig, iteration: int, number: int, jobs: int) -> tuple[Scenario, int]:
    """Return the scenario of a sequence and the seed of its arrivals; loads open with the curriculum."""
    random = np.random.default_rng([config.seed, iteration, number])
    ranges = config.workloads
    low, high = ranges.load
    opening = config.rollouts.load_curriculum * config.iterations
    if number < _HELD_OUT and iteration < opening:
        high = low + (high - low) * (iteration + 1) / opening
    if config.scenario is not None:
        chosen = named_scenario(config.scenario).with_(jobs=jobs, load=float(random.uniform(low, high)))
        return chosen, int(random.integers(2**31))
    scenario = draw_scenario(random, ranges.model_copy(update={"load": (low, high)}), jobs)
    return scenario, int(random.integers(2**31))


def _length(config: GraphConfig, iteration: int, number: int) -> int:
    """Return how many jobs a sequence has after its warm-up."""
    rollouts = config.rollouts
    share = iteration / max(config.iterations - 1, 1)
    mean = rollouts.jobs[0] + share * (rollouts.jobs[1] - rollouts.jobs[0])
    drawn = np.random.default_rng([config.seed, iteration, number, 1]).exponential(mean)
    return int(np.clip(round(drawn), 10, rollouts.most_jobs))


def run_unit(unit: Unit) -> Decisions:
    """Play one arrival sequence `repeats` times and return the decisions with what they were worth."""
    config = unit.config
    network = network_of(config, unit.weights)
    jobs = config.rollouts.warm_jobs + _length(config, unit.iteration, unit.number)
    scenario, seed = drawn_scenario(config, unit.iteration, unit.number, jobs)
    trace = scenario.generate(seed)
    begun = _warmed(trace, scenario.executors, min(config.rollouts.warm_jobs, trace.jobs - 1))
    dag = Dag.of_parents(trace.parent_ptr, trace.parent)
    worlds = [copy.deepcopy(begun) for _ in range(config.rollouts.repeats)]
    players = [player for player in (Player.of(world, dag) for world in worlds) if player is not None]
    randoms = [np.random.default_rng([seed, repeat]) for repeat in range(len(players))]
    steps: list[list[tuple[GraphState, Choice, float]]] = [[] for _ in players]
    play(
        network,
        players,
        lambda number, scores: draw(scores, randoms[number]),
        lambda number, player, choice: steps[number].append((player.graph, choice, player.menu.now_s)),
    )
    return _valued(config, trace, scenario.executors, [player.world for player in players], steps)


def _valued(
    config: GraphConfig,
    trace: Trace,
    executors: int,
    worlds: list[World],
    steps: list[list[tuple[GraphState, Choice, float]]],
) -> Decisions:
    """Return the decisions of finished rollouts of one sequence with their costs and advantages."""
    fade_s = config.update.horizon_jobs * float(trace.job_arrival_s[-1]) / trace.jobs
    costs = [
        CostToGo(
            trace.job_arrival_s,
            column(world.job_progress, "completion_s"),
            weights_of_jobs(trace, world, config.objective),
            fade_s,
        )
        for world in worlds
    ]
    times_s = [np.array([time_s for _, _, time_s in rollout]) for rollout in steps]
    unit = fade_s * executors
    told = [cost.at(time_s) for cost, time_s in zip(costs, times_s, strict=True)]
    # A percent is a percent: a crowded sequence must not drown out the others.
    level = max(float(np.concatenate(told).mean()), 1e-9)
    kept = [np.append(np.exp(-np.diff(time_s) / fade_s), 0.0) for time_s in times_s]
    graphs = [graph for rollout in steps for graph, _, _ in rollout]
    choices = [choice for rollout in steps for _, choice, _ in rollout]
    first = np.cumsum([0, *(len(graph.choice_stage) for graph in graphs[:-1])])
    row = np.array([choice.row for choice in choices], np.int64)
    return Decisions(
        graph=join(graphs),
        row=np.where(row == WAIT_CHOICE, WAIT_CHOICE, row + first),
        option=np.array([choice.option for choice in choices], np.int64),
        delay=np.array([choice.delay for choice in choices], np.int64),
        advantage=np.concatenate(advantages(costs, times_s)) / level,
        cost=np.concatenate(told) / unit,
        kept=np.concatenate(kept),
        counts=np.concatenate(times_s) <= trace.job_arrival_s[-1],
    )


class HeldOut(NamedTuple):
    """Some held-out episodes and the network that is looked at."""

    config: GraphConfig
    numbers: tuple[int, ...]
    weights: Weights


def score_held_out(held: HeldOut) -> list[float]:
    """Return the cost of each held-out episode under the likeliest actions, over that of the base policy."""
    config = held.config
    network = network_of(config, held.weights)
    traces: list[tuple[Trace, int]] = []
    for number in held.numbers:
        scenario, seed = drawn_scenario(config, 0, _HELD_OUT + number, config.selection.jobs)
        traces.append((scenario.generate(seed), scenario.executors))
    players = []
    for trace, executors in traces:
        player = Player.of(
            new_world(tables_of(trace, executors), executors), Dag.of_parents(trace.parent_ptr, trace.parent)
        )
        if player is not None:
            players.append(player)
    play(network, players, lambda _, scores: best(scores))
    told = []
    for (trace, executors), player in zip(traces, players, strict=True):
        weight = weights_of_jobs(trace, player.world, config.objective)
        jct_s = column(player.world.job_progress, "completion_s") - trace.job_arrival_s
        base_s = simulate(trace, executors, SRWF).job_jct_s
        told.append(float((weight * jct_s).sum() / (weight * base_s).sum()))
    return told
