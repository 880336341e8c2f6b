"""The episodes of a comparison: which there are, in what order, and what is kept of each.

A unit of work draws jobs once and runs all policies on them, so that any number of finished units is a valid, paired
comparison: an interrupt loses only what had not been run.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from fermata.sim.compare.episodes import mean_jct_bound, schedule_of
from fermata.sim.compare.sources import Source, Variation, arrivals_per_s, untold
from fermata.sim.experiment import Figures, Setting, over_processes
from fermata.sim.files import Progress
from fermata.sim.report.holds import HoldSummary, effects_of, summary_of
from fermata.sim.report.schedule import NO_HOLDS, NO_TASKS, Schedule


@dataclass(frozen=True)
class Workload:
    """What policies are compared on.

    Args:
        source: of the jobs.
        settings: one a policy; they differ in nothing else.
        seeds: of the episodes.
        variations: sweep points, each run with the first `sweep_seeds`.
        sweep_seeds: how many seeds a point gets.
        seeded: false where there is but one episode, a trace.
    """

    source: Source
    settings: Sequence[Setting]
    seeds: Sequence[int]
    variations: Sequence[Variation] = ()
    sweep_seeds: int = 0
    seeded: bool = True


class Unit(NamedTuple):
    """Jobs to draw once, and policies to run on them."""

    workload: int
    variation: int | None  # None: the workload itself
    seed: int
    source: Source
    settings: Sequence[Setting]
    base: int  # which of the settings the others are compared with
    detailed: bool  # keep tasks and holds, to draw them


class Sample(NamedTuple):
    """One seed of a workload; lists are by policy."""

    seed: int
    figures: list[Figures]
    schedules: list[Schedule]
    holds: list[HoldSummary]
    bound: tuple[str, float] | None


class Point(NamedTuple):
    """One seed of a sweep's point; lists are by policy."""

    seed: int
    arrivals_per_s: float
    jct_s: list[float]
    held_s: list[float]


def units_of(workloads: Sequence[Workload], base: int) -> list[Unit]:
    """Return all work: seed by seed through all workloads, then the sweeps point by point."""
    most = max(len(each.seeds) for each in workloads)
    units = [
        Unit(number, None, each.seeds[place], each.source, each.settings, base, place == 0)
        for place in range(most)
        for number, each in enumerate(workloads)
        if place < len(each.seeds)
    ]
    for number, each in enumerate(workloads):
        for index, varied in enumerate(each.variations):
            settings = [replace(setting, warm=min(setting.warm, varied.most_warm)) for setting in each.settings]
            units += [
                Unit(number, index, seed, varied.source, settings, base, detailed=False)
                for seed in each.seeds[: each.sweep_seeds]
            ]
    return units


def run_unit(unit: Unit, progress: Progress = untold) -> Sample | Point:
    """Draw the jobs and run every policy on them; tell now and then the share that is done, 0 to 1.

    Raises:
        InputError: no such policy, a task that does not fit, or a warm-up that leaves no job.
        ModelError: a policy's file cannot be used.
        StuckError: a policy waits although nothing will happen any more.
    """
    runs = unit.source.runs(unit.seed, unit.settings, progress)
    if unit.variation is not None:
        rate = arrivals_per_s(runs[0].episode.trace)
        jct_s = [run.figures["avg_jct_s"] for run in runs]
        return Point(unit.seed, rate, jct_s, [run.figures["held_s"] / run.figures["jobs"] for run in runs])
    warm = unit.settings[0].warm
    schedules = [schedule_of(run.episode, warm) for run in runs]
    base = schedules[unit.base]
    holds = [
        HoldSummary() if schedule is base else summary_of(effects_of(schedule, base, str(unit.seed)))
        for schedule in schedules
    ]
    trace, executors = runs[0].episode.trace, runs[0].episode.executors
    return Sample(
        seed=unit.seed,
        figures=[run.figures for run in runs],
        schedules=schedules if unit.detailed else [replace(s, tasks=NO_TASKS, holds=NO_HOLDS) for s in schedules],
        holds=holds,
        bound=mean_jct_bound(trace, executors) if unit.source.known_durations else None,
    )


def run_units(
    units: Sequence[Unit], processes: int, progress: Progress = untold
) -> Generator[tuple[Unit, Sample | Point], None, None]:
    """Yield every unit with its result, in order; the results do not depend on the number of processes.

    Closing the iterator, as an interrupt does, drops the units that are not done.

    Args:
        units: what to run.
        processes: how many at once.
        progress: called now and then with the share of a unit that is done, 0 to 1, if they run in this process.
    """
    alone = min(processes, len(units)) <= 1
    run = partial(run_unit, progress=progress) if alone else run_unit
    with closing(over_processes(run, units, processes)) as results:
        yield from zip(units, results, strict=True)
