"""Poisson arrivals of random layered DAGs in classes: analytics stages, chains of pods, or wide fan-outs."""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fermata.policy.errors import InputError
from fermata.sim.scenarios.base import mean_gap_s
from fermata.sim.trace import IntArray, Trace
from fermata.sim.trace_builder import StageSpec, TraceBuilder

LAYERS_PER_STAGE = 0.6
SECOND_PARENT_SHARE = 0.4
DECIMALS = 6


class JobClass(NamedTuple):
    """Jobs of one kind; both ranges include their ends.

    Args:
        share: probability of this class; the shares of all classes add to 1.
        stages: fewest and most stages, uniform.
        tasks: fewest and most tasks a stage, log-uniform.
        median_task_s: median over stages of the mean task duration.
        stage_sigma: spread between stages, of the logarithm.
        task_sigma: spread between the tasks of a stage, of the logarithm.
    """

    share: float
    stages: tuple[int, int]
    tasks: tuple[int, int]
    median_task_s: float
    stage_sigma: float
    task_sigma: float

    @property
    def mean_work_s(self) -> float:
        """Expected executor-seconds of a job of this class."""
        few, many = self.tasks
        # floor(exp(uniform)) is n with probability log((n + 1) / n) / log((many + 1) / few)
        mean_tasks = sum(n * math.log((n + 1) / n) for n in range(few, many + 1)) / math.log((many + 1) / few)
        mean_task_s = self.median_task_s * math.exp(self.stage_sigma**2 / 2.0)
        return sum(self.stages) / 2.0 * mean_tasks * mean_task_s


@dataclass(frozen=True)
class LayeredDags:
    """Each job: a class, a number of stages, a layer for each stage, and parents in the closest earlier layer.

    The stages' layers are uniform over 0.6 times as many layers (rounded up), sorted. A stage has one parent, or two
    with probability 0.4 where the layer has two. The mean duration of a stage is lognormal and is what the scheduler
    knows; its tasks' durations are lognormal around it. Times are rounded to microseconds.

    `assumed_work_s` is the mean work of a job from which the arrival rate is set. The reference scenarios assume the
    mean of a finite sample, 3 to 8% below the expectation, so their true load is that much higher; with None it is the
    expectation over the classes; a variation with other classes should say None.
    """

    load: float
    classes: tuple[JobClass, ...]
    assumed_work_s: float | None = None

    @property
    def mean_work_s(self) -> float:
        """Expected executor-seconds of a job."""
        return sum(kind.share * kind.mean_work_s for kind in self.classes)

    def draw(self, rng: np.random.Generator, jobs: int, executors: int) -> Trace:
        """Draw all classes, then job by job its DAG, task counts and durations, then all gaps."""
        bounds = np.cumsum([kind.share for kind in self.classes])
        if not math.isclose(bounds[-1], 1.0):
            raise InputError(f"the shares of the job classes must add to 1, not {bounds[-1]}")
        kinds = np.minimum(np.searchsorted(bounds, rng.random(jobs), side="right"), len(bounds) - 1)
        drawn = [_draw_job(rng, self.classes[kind]) for kind in kinds.tolist()]
        work_s = self.mean_work_s if self.assumed_work_s is None else self.assumed_work_s
        arrival_s = np.cumsum(rng.exponential(mean_gap_s(work_s, self.load, executors), jobs))
        builder = TraceBuilder()
        for job, (arrival, stages) in enumerate(zip(arrival_s.tolist(), drawn, strict=True)):
            builder.add_job(f"j{job}", arrival, stages)
        return builder.finish()


def _draw_job(rng: np.random.Generator, kind: JobClass) -> list[StageSpec]:
    """One job's stages; the order of the draws is part of the reference episodes."""
    stages = int(rng.integers(kind.stages[0], kind.stages[1] + 1))
    layers = sorted(rng.integers(0, math.ceil(LAYERS_PER_STAGE * stages), stages).tolist())
    parents = [_draw_parents(rng, layers, stage) for stage in range(stages)]
    log_tasks = rng.uniform(math.log(kind.tasks[0]), math.log(kind.tasks[1] + 1), stages)
    tasks: IntArray = np.floor(np.exp(log_tasks)).astype(np.int64)
    estimate_s = kind.median_task_s * rng.lognormal(0.0, kind.stage_sigma, stages)
    drift = -(kind.task_sigma**2) / 2.0
    return [
        StageSpec(
            name=f"s{stage}",
            depends_on=[f"s{parent}" for parent in parents[stage]],
            durations_s=_rounded(estimate_s[stage] * rng.lognormal(drift, kind.task_sigma, tasks[stage])),
            estimate_s=round(float(estimate_s[stage]), DECIMALS),
        )
        for stage in range(stages)
    ]


def _draw_parents(rng: np.random.Generator, layers: list[int], stage: int) -> list[int]:
    """Draw the parents of a stage; `layers` is sorted, so that each layer is one run of stages."""
    end = bisect_left(layers, layers[stage])
    if end == 0:
        return []
    candidates = np.arange(bisect_left(layers, layers[end - 1]), end)
    wanted = 2 if rng.random() < SECOND_PARENT_SHARE else 1
    chosen: list[int] = rng.choice(candidates, min(wanted, len(candidates)), replace=False).tolist()
    return sorted(chosen)


def _rounded(seconds: NDArray[np.float64]) -> list[float]:
    return [round(value, DECIMALS) for value in seconds.tolist()]
