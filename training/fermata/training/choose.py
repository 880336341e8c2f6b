"""Which of several networks is kept: the one that schedules random scenarios best, of which none was trained on.

The loss does not tell. A network with the lowest one may wait too long in a corner of the states, and a pool that waits
too long never leaves that corner; only an episode shows it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fermata.policy.features import ORDER
from fermata.policy.heuristics.srwf import SRWF
from fermata.policy.learned import Network
from fermata.policy.rows import column
from fermata.sim.engine import DECIDE, advance
from fermata.sim.simulate import simulate
from fermata.sim.trace import Trace
from fermata.sim.world import new_world, tables_of
from fermata.training.config import TrainConfig
from fermata.training.teacher import NO_LIMITS, Base, act
from fermata.training.workloads import draw

# Far from the numbers of rounds, so that no unit of labels draws the same scenarios.
_STREAM = 1_000_000


class Case(NamedTuple):
    """A held-out episode and what shortest remaining work first makes of it."""

    trace: Trace
    executors: int
    base_jct_s: float


class Verdict(NamedTuple):
    """How a network does on the held-out episodes, against the base; below zero is better."""

    mean_log_ratio: float
    worst_pct: float


def held_out_cases(config: TrainConfig) -> list[Case]:
    """Draw the episodes; they follow from the configuration."""
    rng = np.random.default_rng([config.seed, _STREAM])
    cases = []
    for _ in range(config.fit.cases):
        scenario = draw(rng, config.workloads, config.fit.case_jobs)
        trace = scenario.generate(int(rng.integers(0, 2**31)))
        base = simulate(trace, scenario.executors, SRWF)
        cases.append(Case(trace, scenario.executors, float(base.job_jct_s.mean())))
    return cases


def judge(network: Network, cases: list[Case]) -> Verdict:
    """Run a network on the held-out episodes."""
    base = Base(True, SRWF.rule, ORDER, network)
    ratios = []
    for case in cases:
        world = new_world(tables_of(case.trace, case.executors), case.executors)
        while advance(world) == DECIDE:
            act(world, base, NO_LIMITS)
        jct_s = column(world.job_progress, "completion_s") - case.trace.job_arrival_s
        ratios.append(float(jct_s.mean()) / case.base_jct_s)
    return Verdict(float(np.mean([math.log(ratio) for ratio in ratios])), 100.0 * (max(ratios) - 1.0))
