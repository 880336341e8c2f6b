"""Whole episodes under scores for tasks of several executors: what a search measures them by.

Workers do this: it must not know torch, which each of them would load.
"""

from __future__ import annotations

import math
from functools import cache
from typing import NamedTuple

import numpy as np

from fermata.policy.board import Board
from fermata.policy.features import ORDER
from fermata.policy.heuristics.srwf import SRWF
from fermata.policy.learned import Network
from fermata.policy.registry import shipped_model
from fermata.policy.rows import column, new_values
from fermata.sim.metrics import over_base
from fermata.sim.network_file import read_network
from fermata.sim.simulate import simulate
from fermata.sim.trace import FloatArray, Trace
from fermata.sim.world import new_world, scored_by, tables_of
from fermata.training.own import Part, draw_own, part_of
from fermata.training.play import play
from fermata.training.slots.config import ScoresConfig

_WARM = 10  # the first jobs, one in so many, are not counted
_STREAMS: dict[Part, int] = {"teach": 3_000_000, "choose": 4_000_000}  # of random numbers, apart from each other
_FEWER_ABOVE = 3.0  # tasks a job, from which on an episode has fewer jobs
_LEAST_JOBS = 200  # of an episode, unless the configuration has fewer
_MOST = 1.0  # of a logarithm: one episode gone wrong is no worse than that
_LEAST = 1e-9  # of a ratio: where only jobs that take no time are counted, one may be 0


class Scores(NamedTuple):
    """Weights of scores."""

    weights: FloatArray

    def scored(self, board: Board) -> Board:
        """Return the same board, on which stages are scored by them."""
        return board._replace(slot_weights=new_values(self.weights))


@cache
def _shipped() -> Network:
    return read_network(shipped_model())


def log_ratios(trace: Trace, executors: int, candidates: FloatArray) -> FloatArray:
    """Return the logarithm of the mean JCT of an episode under the shipped model over that under srwf.

    Args:
        trace: the jobs.
        executors: of the pool.
        candidates: [candidates, WEIGHTS] of the scores that the model goes by.

    Returns:
        [candidates]; below zero is better.
    """
    tables, warm, found = tables_of(trace, executors), trace.jobs // _WARM, np.empty(len(candidates))
    base_s = float(simulate(trace, executors, SRWF).job_jct_s[warm:].mean())
    for i, weights in enumerate(candidates):
        world = scored_by(Scores(weights), new_world(tables, executors, corrects=True))
        play(world, ORDER, _shipped())
        jct_s = column(world.job_progress, "completion_s") - trace.job_arrival_s
        found[i] = math.log(max(over_base(float(jct_s[warm:].mean()), base_s), _LEAST))
    return found


def played(config: ScoresConfig, part: Part, number: int, candidates: FloatArray) -> FloatArray:
    """Return what `log_ratios` says of an episode of a part of the trace, bounded; the same number is the same one.

    Raises:
        InputError: the trace is gone, or is not what it was.
    """
    own = config.workloads.own
    if own is None:
        raise ValueError("the configuration has no trace")
    rng = np.random.default_rng([config.seed, _STREAMS[part], number])
    scenario, taught = draw_own(rng, own, config.search.jobs, part), part_of(own, part)
    jobs = round(config.search.jobs * min(1.0, _FEWER_ABOVE * taught.jobs / taught.tasks))
    trace = scenario.with_(jobs=max(min(_LEAST_JOBS, config.search.jobs), jobs)).generate(int(rng.integers(0, 2**31)))
    return np.clip(log_ratios(trace, scenario.executors, candidates), -_MOST, _MOST)
