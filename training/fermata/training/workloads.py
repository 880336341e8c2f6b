"""Scenarios drawn at random, so that one network learns the rule behind many clusters rather than one of them.

Only the recipes of `fermata.sim.scenarios` are used, with parameters drawn over ranges; the named benchmark scenarios
themselves are never trained on.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from fermata.sim.generate.arrivals import Arrivals, Bursty, Piecewise, Poisson
from fermata.sim.generate.estimates import Noise
from fermata.sim.generate.one_stage import OneStage
from fermata.sim.generate.sizes import BoundedPareto, Classes, Hyperexponential, Lognormal, Sizes
from fermata.sim.scenarios import Recipe, Scenario
from fermata.sim.scenarios.cron import CronPods
from fermata.sim.scenarios.layered import JobClass, LayeredDags
from fermata.sim.scenarios.normal_longs import NormalLongs
from fermata.sim.scenarios.pairs import Pairs
from fermata.sim.scenarios.pods import LognormalPods
from fermata.sim.scenarios.two_sizes import TwoSizes
from fermata.training.config import Workloads
from fermata.training.own import Part, draw_own


def _log_uniform(rng: np.random.Generator, low: float, high: float) -> float:
    return float(math.exp(rng.uniform(math.log(low), math.log(high))))


def draw(rng: np.random.Generator, ranges: Workloads, jobs: int, part: Part = "teach") -> Scenario:
    """Draw one scenario: executors, load, size ratio, long share, the jobs' shape, and how wrong estimates are.

    Of a trace of one's own, if that is what there is, it is executors, load and the order of its blocks.

    Args:
        rng: where chance comes from.
        ranges: what to draw from.
        jobs: of an episode.
        part: of a trace of one's own.
    """
    own = ranges.own
    scenario = _draw_jobs(rng, ranges, jobs) if own is None else draw_own(rng, own, jobs, part)
    if not _happens(rng, ranges.noise_share):
        return scenario
    return replace(scenario, estimates=_draw_noise(rng))


def _happens(rng: np.random.Generator, share: float) -> bool:
    """Draw whether something happens; what never does takes nothing from the stream."""
    return share > 0.0 and bool(rng.random() < share)


def _draw_noise(rng: np.random.Generator) -> Noise:
    kind = int(rng.integers(0, 5))
    if kind < 2:
        return Noise("lognormal", float(rng.uniform(0.1, 1.2)))
    return Noise("class-means") if kind == 2 else Noise("class-flips", _log_uniform(rng, 0.02, 0.4))


def _draw_executors(rng: np.random.Generator, ranges: Workloads) -> int:
    if ranges.executors_spread == "log-uniform":
        return round(_log_uniform(rng, *ranges.executors))
    return int(rng.integers(ranges.executors[0], ranges.executors[1] + 1))


def _draw_jobs(rng: np.random.Generator, ranges: Workloads, jobs: int) -> Scenario:
    dag = bool(rng.random() < ranges.dag_share)
    executors = _draw_executors(rng, ranges)
    load = float(rng.uniform(*ranges.load))
    ratio = _log_uniform(rng, *ranges.size_ratio)
    long_share = _log_uniform(rng, *ranges.long_share)
    short_s = _log_uniform(rng, 0.5, 60.0)
    if dag:
        return _draw_dag(rng, ranges.wide_share, executors, load, ratio, long_share, short_s, jobs)
    kind = int(rng.integers(0, 3))
    if _happens(rng, ranges.pair_share):
        pairs = Pairs(
            load=float(rng.uniform(0.15, 0.7)),
            long_s=short_s * ratio,
            short_s=short_s,
            mean_follow_s=short_s * ratio * _log_uniform(rng, 0.02, 1.0),
        )
        # Where there are many executors, one is free when the second of a pair comes.
        return Scenario("random-pairs", int(rng.integers(1, 4)), jobs, 0, "SRWF", pairs)
    if _happens(rng, ranges.cron_share):
        return Scenario("random-cron", executors, jobs, 0, "SRWF", _draw_cron(rng, executors, load, short_s))
    if _happens(rng, ranges.any_share):
        return Scenario("random-any", executors, jobs, 0, "SRWF", _draw_any(rng, load, short_s, ratio))
    if kind == 0:
        recipe: Recipe = TwoSizes(load=load, long_share=long_share, short_s=short_s, long_s=short_s * ratio)
    elif kind == 1:
        recipe = NormalLongs(load=load, long_share=long_share, short_s=short_s, long_s=short_s * ratio)
    else:
        recipe = LognormalPods(load=load)
    return Scenario("random", executors, jobs, 0, "SRWF", recipe)


def _draw_any(rng: np.random.Generator, load: float, short_s: float, ratio: float) -> OneStage:
    """Draw jobs of any sizes, which may come in bursts or at rates that change."""
    # `scripts/random_workloads.py` draws such jobs on its own: what judges must not change with what teaches.
    return OneStage(load, _draw_arrivals(rng), _draw_sizes(rng, short_s, ratio))


def _draw_sizes(rng: np.random.Generator, short_s: float, ratio: float) -> Sizes:
    kind = int(rng.integers(0, 4))
    if kind == 0:
        return Lognormal(short_s, float(rng.uniform(0.3, 2.2)))
    if kind == 1:
        return BoundedPareto(float(rng.uniform(0.8, 2.5)), short_s, short_s * _log_uniform(rng, 10.0, 4000.0))
    if kind == 2:
        long_share = _log_uniform(rng, 0.01, 0.5)
        return Hyperexponential((1.0 - long_share, long_share), (short_s, short_s * ratio))
    classes = int(rng.integers(2, 6))
    shares = np.maximum(rng.dirichlet(np.ones(classes)), 0.01)
    sizes_s = np.sort([short_s * _log_uniform(rng, 1.0, ratio) for _ in range(classes)])
    return Classes(tuple((shares / shares.sum()).tolist()), tuple(sizes_s.tolist()))


def _draw_arrivals(rng: np.random.Generator) -> Arrivals:
    kind = int(rng.integers(0, 4))
    if kind < 2:
        return Poisson()
    if kind == 2:
        return Bursty(_log_uniform(rng, 2.0, 50.0), float(rng.uniform(0.02, 0.5)), _log_uniform(rng, 3.0, 200.0))
    rates = (float(rng.uniform(1.0, 2.0)), float(rng.uniform(0.05, 1.0)))
    return Piecewise((0.5, 0.5), rates, _log_uniform(rng, 20.0, 1000.0))


def _draw_cron(rng: np.random.Generator, executors: int, load: float, short_s: float) -> CronPods:
    """Draw batches of short pods on a schedule among long ones."""
    batch, ratio = int(rng.integers(1, 9)), _log_uniform(rng, 5.0, 100.0)
    period_s = batch * short_s / (float(rng.uniform(0.05, 0.5)) * load * executors)  # by the shorts' share of the load
    return CronPods(
        load=load,
        period_s=period_s,
        batch=batch,
        short_s=short_s,
        jitter_s=period_s * float(rng.uniform(0.0, 0.1)),
        spread_s=period_s * float(rng.uniform(0.0, 0.05)),
        long_mean_s=short_s * ratio,
        long_sigma=float(rng.uniform(0.1, 0.8)),
    )


def _draw_dag(
    rng: np.random.Generator,
    wide_share: float,
    executors: int,
    load: float,
    ratio: float,
    long_share: float,
    short_s: float,
    jobs: int,
) -> Scenario:
    """Draw a mix of short and long layered DAGs; some have stages of one task, as pods are."""
    wide = 1 if rng.random() >= wide_share else int(rng.integers(2, 30))
    short = JobClass(
        1.0 - long_share,
        stages=(1, int(rng.integers(1, 4))),
        tasks=(1, int(rng.integers(1, 6)) if wide > 1 else 1),
        median_task_s=short_s,
        stage_sigma=float(rng.uniform(0.1, 0.6)),
        task_sigma=float(rng.uniform(0.0, 0.4)),
    )
    stages = int(rng.integers(2, 9))
    long = JobClass(
        long_share,
        stages=(int(rng.integers(1, stages + 1)), stages),
        tasks=(1, wide),
        median_task_s=short_s * ratio,
        stage_sigma=float(rng.uniform(0.1, 0.6)),
        task_sigma=float(rng.uniform(0.0, 0.4)),
    )
    return Scenario("random-dag", executors, jobs, 0, "SRWF", LayeredDags(load, (short, long)))
