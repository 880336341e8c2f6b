"""Where the jobs of a comparison come from: a scenario, a trace or TPC-H; and the variations that sweeps are made of.

Each source draws its jobs once a seed and runs every policy on them, so all differences are paired.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple, Protocol

import numpy as np

from fermata.policy.decide import Policy
from fermata.policy.errors import InputError
from fermata.policy.registry import load
from fermata.sim.experiment import Run, Setting, run_trace
from fermata.sim.files import Progress
from fermata.sim.scenarios import Scenario
from fermata.sim.scenarios.blocks import offered_load
from fermata.sim.spark.experiment import run_tpch_seed
from fermata.sim.spark.settings import SparkSetting
from fermata.sim.trace import Trace

LOADS = (0.3, 0.45, 0.6, 0.7, 0.8, 0.9)
RATIOS = (2.0, 5.0, 10.0, 20.0, 50.0, 100.0)
SWEEP_JOBS = 1500
_TRIED_JOBS = 100  # that a load is possible; a recipe that is asked for very few may draw none at all
_SIZES = (("short_s", "long_s"), ("short_median_s", "long_mean_s"), ("short_s", "long_mean_s"))


def untold(share: float) -> None:
    """Tell nobody what is done."""


class Source(Protocol):
    """Draws the same jobs for every policy; frozen, and sent to other processes as it is."""

    @property
    def name(self) -> str:
        """What a report calls it."""
        ...

    @property
    def known_durations(self) -> bool:
        """Whether the trace holds what really happens, so that lower bounds can be computed from it."""
        ...

    def runs(self, seed: int, settings: Sequence[Setting], progress: Progress = untold) -> list[Run]:
        """Simulate the seed's jobs with each setting; tell now and then the share that is done, 0 to 1."""
        ...


class Variation(NamedTuple):
    """One point of a sweep."""

    kind: str  # "load" or "ratio"
    value: float
    source: Source
    most_warm: int  # jobs that its episodes' means may leave out, which are shorter


@cache
def loaded(spec: str) -> Policy:
    """Return a policy, loaded once a process."""
    return load(spec)


@dataclass(frozen=True)
class ScenarioSource:
    """Episodes of a scenario."""

    scenario: Scenario
    known_durations: bool = True

    @property
    def name(self) -> str:
        """The scenario's name."""
        return self.scenario.name

    def runs(self, seed: int, settings: Sequence[Setting], progress: Progress = untold) -> list[Run]:
        """Draw the seed's jobs and run every policy on them; raises what `run_trace` does."""
        return _in_turn(self.scenario.generate(seed), seed, settings, progress)

    def variations(self, executors: int) -> Iterator[Variation]:
        """Yield the scenario at other loads and with other size ratios, as far as its recipe has such parameters.

        Args:
            executors: of the pool that it runs on, of which a load is a share; the scenario's own may be others.
        """
        known = self.scenario.parameters
        jobs = min(self.scenario.jobs, SWEEP_JOBS)
        most_warm = jobs // 10
        small = self.scenario.with_(jobs=jobs, warm=min(self.scenario.warm, most_warm))
        if "load" in known:
            for value in LOADS:
                changed = small.with_(load=value, executors=executors)
                with suppress(InputError):  # too low for what comes by the clock
                    changed.with_(jobs=_TRIED_JOBS).generate(0)
                    yield Variation("load", value, ScenarioSource(changed), most_warm)
        for short, long in _SIZES:
            if short in known and long in known:
                for value in RATIOS:
                    changed = small.with_(**{long: value * known[short]})
                    yield Variation("ratio", value, ScenarioSource(changed), most_warm)
                return


@dataclass(frozen=True)
class TraceSource:
    """One trace, whatever the seed."""

    name: str
    trace: Trace
    executors: int
    known_durations: bool = True

    def runs(self, seed: int, settings: Sequence[Setting], progress: Progress = untold) -> list[Run]:
        """Run every policy on the trace; raises what `run_trace` does."""
        return _in_turn(self.trace, seed, settings, progress)

    def variations(self) -> Iterator[Variation]:
        """Yield the trace at other loads: all times between arrivals longer or shorter by the same factor."""
        load_now = offered_load(self.trace, self.executors)
        if not 0.0 < load_now < math.inf:
            return
        # From the first arrival on: a clock that counts from 1970 would be put off by decades, and lose its digits.
        first_s = self.trace.job_arrival_s[0]
        for value in LOADS:
            arrival_s = first_s + (self.trace.job_arrival_s - first_s) * (load_now / value)
            trace = replace(self.trace, job_arrival_s=arrival_s)
            yield Variation("load", value, replace(self, trace=trace), trace.jobs)


@dataclass(frozen=True)
class TpchSource:
    """A TPC-H setting in the published simulators' model of Spark; durations depend on the executor."""

    folder: str
    setting: SparkSetting
    known_durations: bool = False

    @property
    def name(self) -> str:
        """The setting's name."""
        return self.setting.name

    def runs(self, seed: int, settings: Sequence[Setting], progress: Progress = untold) -> list[Run]:
        """Draw the seed's queries and run every policy on them; raises what `run_tpch_seed` does."""
        return [run_tpch_seed(seed, self.folder, self.setting, each) for each in settings]


def _in_turn(trace: Trace, seed: int, settings: Sequence[Setting], progress: Progress) -> list[Run]:
    def after(done: int) -> Progress:
        return lambda share: progress((done + share) / len(settings))

    return [
        Run(seed, *run_trace(trace, each, policy=loaded(each.policy), progress=after(done)))
        for done, each in enumerate(settings)
    ]


def arrivals_per_s(trace: Trace) -> float:
    """Return the mean rate of arrivals of a trace; NaN if all arrive together."""
    span_s = float(np.ptp(trace.job_arrival_s))
    return (trace.jobs - 1) / span_s if span_s > 0.0 else float("nan")
