"""Whole episodes under a network, compiled: what choosing and polishing networks measure them by."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fermata.policy._jit import kernel
from fermata.policy.action import WAIT, any_startable
from fermata.policy.features import ORDER, candidates, features
from fermata.policy.guardrails import IDLE_POOL, Guardrails, bound
from fermata.policy.heuristics.kernel import Rule, choose_eager
from fermata.policy.heuristics.srwf import SRWF
from fermata.policy.learned import Network, cheapest, forward
from fermata.policy.rows import column
from fermata.sim.engine import DECIDE, advance, apply
from fermata.sim.scenarios import Scenario
from fermata.sim.simulate import simulate
from fermata.sim.world import Tables, World, new_world, tables_of

NO_LIMITS = Guardrails()


class Case(NamedTuple):
    """An episode, and what shortest remaining work first makes of it."""

    tables: Tables
    executors: int
    base_jct_s: float


def case_of(scenario: Scenario, seed: int) -> Case:
    """Draw an episode of a scenario and run it under shortest remaining work first."""
    trace = scenario.generate(seed)
    base_jct_s = float(simulate(trace, scenario.executors, SRWF).job_jct_s.mean())
    return Case(tables_of(trace, scenario.executors), scenario.executors, base_jct_s)


@kernel
def _play(world: World, order: Rule, network: Network, limits: Guardrails) -> None:
    """Run an episode to its end as the policy in use would: the same action, margin and bounds."""
    board = world.board
    while advance(world) == DECIDE:
        while any_startable(board):
            choice = candidates(board, order)
            features(board, choice, network.inputs)
            forward(network, network.inputs)
            kind, stage, cap, until_s = cheapest(board, choice, network.costs, network.margin)
            kind, stage, cap, until_s, why = bound(board, kind, stage, cap, until_s, limits)
            if why == IDLE_POOL:
                kind, stage, cap, until_s = choose_eager(board, order)
            apply(world, kind, stage, cap, until_s)
            if kind == WAIT:
                break


def log_ratio(network: Network, case: Case) -> float:
    """Return the logarithm of the mean JCT under a network over the base's; below zero is better."""
    world = new_world(case.tables, case.executors)
    _play(world, ORDER, network, NO_LIMITS)
    jobs = len(case.tables.job_work_s)
    jct_s = column(world.job_progress, "completion_s", jobs) - column(world.board.jobs, "arrival_s", jobs)
    return math.log(float(np.mean(jct_s)) / case.base_jct_s)
