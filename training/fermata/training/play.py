"""Whole episodes under a network, compiled: what choosing and polishing networks measure them by."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fermata.policy._jit import kernel, part
from fermata.policy.action import WAIT, any_startable
from fermata.policy.features import ORDER, SIZE, Candidates, candidates, features
from fermata.policy.guardrails import IDLE_POOL, NO_LIMITS, bound
from fermata.policy.heuristics.kernel import Rule, choose_eager
from fermata.policy.heuristics.srwf import SRWF
from fermata.policy.learned import Network, cheapest, forward
from fermata.policy.rows import column
from fermata.sim.engine import DECIDE, advance, apply
from fermata.sim.metrics import over_base
from fermata.sim.scenarios import Scenario
from fermata.sim.simulate import simulate
from fermata.sim.world import Tables, World, new_world, scored_by, tables_of
from fermata.training.own import kind_of

FloatArray = NDArray[np.float64]


class Case(NamedTuple):
    """An episode, and what shortest remaining work first makes of it."""

    tables: Tables
    executors: int
    base_jct_s: float
    kind: int  # index into EXPERTS: what its jobs are


def case_of(scenario: Scenario, seed: int) -> Case:
    """Draw an episode of a scenario and run it under shortest remaining work first."""
    trace = scenario.generate(seed)
    base_jct_s = float(simulate(trace, scenario.executors, SRWF).job_jct_s.mean())
    return Case(tables_of(trace, scenario.executors), scenario.executors, base_jct_s, kind_of(trace))


@part
def take_cheapest(world: World, choice: Candidates, order: Rule, network: Network) -> bool:
    """Take what the policy in use would, given the features in `network.inputs`; tell whether it was a wait."""
    board = world.board
    if choice.score == math.inf:  # else costs are not asked about
        forward(network, network.inputs)
    kind, stage, cap, until_s = cheapest(board, choice, network.costs, network.margin)
    kind, stage, cap, until_s, why = bound(board, kind, stage, cap, until_s, NO_LIMITS)
    if why == IDLE_POOL:
        kind, stage, cap, until_s = choose_eager(board, order)
    apply(world, kind, stage, cap, until_s)
    return kind == WAIT


@kernel
def decide_all(world: World, order: Rule, network: Network) -> None:
    """Decide, as the policy in use would, until it waits or nothing is startable."""
    board = world.board
    while any_startable(board):
        choice = candidates(board, order)
        if choice.score == math.inf:
            features(board, choice, network.inputs)
        if take_cheapest(world, choice, order, network):
            return


@kernel
def play(world: World, order: Rule, network: Network) -> None:
    """Run an episode to its end as the policy in use would: the same action, margin and bounds."""
    while advance(world) == DECIDE:
        decide_all(world, order, network)


def _world_of(network: Network, case: Case) -> World:
    """Return an episode before its first event, as a network sees it."""
    return scored_by(network, new_world(case.tables, case.executors))


def log_ratio(network: Network, case: Case) -> float:
    """Return the logarithm of the mean JCT under a network over the base's; below zero is better."""
    world = _world_of(network, case)
    play(world, ORDER, network)
    jobs = len(case.tables.job_work_s)
    jct_s = column(world.job_progress, "completion_s", jobs) - column(world.board.jobs, "arrival_s", jobs)
    return math.log(over_base(float(np.mean(jct_s)), case.base_jct_s))


@kernel
def _watch(world: World, order: Rule, network: Network, rows: FloatArray, every: int) -> int:
    """Play as `play` does until `rows` are full of each `every`th decision's features; return how many are."""
    board, seen, kept = world.board, 0, 0
    while kept < len(rows) and advance(world) == DECIDE:
        while any_startable(board):
            choice = candidates(board, order)
            features(board, choice, network.inputs)
            seen += 1
            if seen % every == 0 and kept < len(rows):
                for i in range(SIZE):
                    rows[kept, i] = network.inputs[i]
                kept += 1
            if take_cheapest(world, choice, order, network):
                break
    return kept


def seen_states(network: Network, case: Case, most: int) -> FloatArray:
    """Return the features of up to so many decisions, [n, SIZE], spread over an episode."""
    rows = np.zeros((most, SIZE))
    every = max(1, len(case.tables.task_duration_s) // most)
    return rows[: _watch(_world_of(network, case), ORDER, network, rows, every)]
