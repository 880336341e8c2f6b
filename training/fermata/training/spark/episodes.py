"""The episodes that a search plays, and what a network costs on them: relative to the tuned heuristics.

Seeds of episodes: from JUDGED_SEEDS on to choose a network, from TRAINING_SEEDS on to search; those below are for
evaluation and tuning. Workers play them: it must not know torch, which takes long to load.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from fermata.policy.allocation import allocator
from fermata.policy.heuristics.shares import SRWF_EQUAL_SHARE, SRWF_WORK_SHARE
from fermata.sim.importers.tpch import spark_sequence
from fermata.sim.spark.episode import (
    MOVING_DELAY_MS,
    SparkWorkload,
    mean_jct_s,
    policy_episode,
    workload_of,
)
from fermata.sim.spark.settings import SETTINGS
from fermata.sim.spark.view import run_allocation
from fermata.sim.spark.waves import Waves
from fermata.sim.spark.world import SparkTables, new_spark_world, spark_tables
from fermata.sim.trace import FloatArray
from fermata.sim.world import Tables, new_world, tables_of
from fermata.training.fields import SEEDS
from fermata.training.spark.config import AllocationConfig, Published, Varied

JUDGED_SEEDS, TRAINING_SEEDS = 4_000, 200_000
VARIED = "varied"
_GENERATION = 1_000  # seeds apart
_PUBLISHED, _RUN = 1, 2**40  # the seed of the run that shipped, whose episodes come first, and how far apart runs are
_GAP_MS, _EXECUTORS = 25_000.0, 50  # of load 1, see `Varied`


@dataclass(frozen=True)
class Case:
    """One episode, ready to be played by many networks."""

    kind: str
    tables: SparkTables
    known: Tables
    waves: Waves
    base_jct_s: float  # of the better of the two tuned heuristics

    def jct_s(self, theta: FloatArray, may_wait: bool) -> float:
        """Return the mean JCT under a network."""
        executors = len(self.waves.grid) - 1
        world, shown = new_spark_world(self.tables, self.waves), new_world(self.known, executors)
        to = allocator(theta, may_wait, len(self.known.job_arrival_s), len(self.known.stage_job))
        run_allocation(self.tables, self.waves, world, shown, to)
        return mean_jct_s(self.tables, world)


class Place(NamedTuple):
    """Where a varied episode is played."""

    executors: int
    gap_ms: float
    moving_delay_ms: int


def published_case(folder: str, of: Published, seed: int, *, whole: bool = False) -> Case:
    """Return the episode of a published setting; `whole`: with as many jobs as published."""
    setting = SETTINGS[of.setting]
    jobs = setting.jobs if whole or of.jobs is None else of.jobs
    place = Place(setting.executors, _GAP_MS, MOVING_DELAY_MS)
    return _case(of.setting, workload_of(folder, spark_sequence(seed, jobs, _GAP_MS)), place, seed)


def varied_case(folder: str, of: Varied, seed: int) -> Case:
    """Return an episode of a random pool, load and moving delay."""
    rng = np.random.default_rng(seed)
    executors = round(math.exp(rng.uniform(math.log(of.executors[0]), math.log(of.executors[1]))))
    load = math.exp(rng.uniform(math.log(of.load[0]), math.log(of.load[1])))
    delay_ms = round(1000.0 * rng.uniform(*of.moving_delay_s))
    place = Place(executors, _GAP_MS * _EXECUTORS / executors / load, delay_ms)
    return _case(VARIED, workload_of(folder, spark_sequence(seed, of.jobs, place.gap_ms)), place, seed)


def _case(kind: str, workload: SparkWorkload, place: Place, seed: int) -> Case:
    waves = workload.waves(place.executors, seed=seed)
    played = [
        mean_jct_s(*policy_episode(workload, waves, heuristic, place.moving_delay_ms))
        for heuristic in (SRWF_WORK_SHARE, SRWF_EQUAL_SHARE)
    ]
    tables = spark_tables(workload.trace, place.moving_delay_ms, asks_idle=True)
    return Case(kind, tables, tables_of(workload.trace, place.executors), waves, min(played))


def first_seed(run: int, generation: int) -> int:
    """Return the seed of a generation's first episode; runs with other seeds never meet the same episodes."""
    return TRAINING_SEEDS + _RUN * ((run - _PUBLISHED) % SEEDS) + _GENERATION * generation


def training_cases(config: AllocationConfig, folder: str, generation: int) -> list[Case]:
    """Return the episodes of a generation, which all its candidates play."""
    seed = first_seed(config.seed, generation)
    cases = []
    for of in config.published:
        cases += [published_case(folder, of, seed + i) for i in range(of.episodes)]
        seed += of.episodes
    return cases + [varied_case(folder, config.varied, seed + i) for i in range(config.varied.episodes)]


def judged_cases(config: AllocationConfig, folder: str) -> list[Case]:
    """Return the episodes that choose the network."""
    return [
        published_case(folder, of, JUDGED_SEEDS + i, whole=True) for of in config.published for i in range(of.judged)
    ]


def log_ratios(cases: Sequence[Case], theta: FloatArray, may_wait: bool) -> dict[str, float]:
    """Return by kind of episode the mean logarithm of a network's mean JCT over the tuned heuristics'."""
    found: dict[str, list[float]] = {}
    for case in cases:
        found.setdefault(case.kind, []).append(math.log(case.jct_s(theta, may_wait) / case.base_jct_s))
    return {kind: float(np.mean(each)) for kind, each in found.items()}


def cost_of(ratios: Mapping[str, float]) -> float:
    """Return what a search lowers: the sum of what `log_ratios` returns."""
    return sum(ratios.values())


@lru_cache(maxsize=1)
def _cases(config: AllocationConfig, folder: str, generation: int) -> list[Case]:
    return training_cases(config, folder, generation)


def cost_in(theta: FloatArray, config: AllocationConfig, folder: str, generation: int) -> float:
    """Return what weights cost on the episodes of a generation."""
    return cost_of(log_ratios(_cases(config, folder, generation), theta, config.action_space == "wait"))
