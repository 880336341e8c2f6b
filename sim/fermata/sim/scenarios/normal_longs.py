"""Poisson arrivals of short jobs of one size and long jobs of normal size: the papers' second synthetic set."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fermata.sim.scenarios.base import check_share, mean_gap_s
from fermata.sim.trace import Trace
from fermata.sim.trace_builder import one_stage_trace


@dataclass(frozen=True)
class NormalLongs:
    """Gaps are exponential; a job is long with probability `long_share`, its size normal with mean `long_s`.

    The standard deviation is a sixth of the mean; sizes below 1 s become 1 s. The load neglects that cut.
    """

    load: float
    long_share: float
    short_s: float = 10.0
    long_s: float = 50.0

    def draw(self, rng: np.random.Generator, jobs: int, executors: int) -> Trace:
        """Draw all gaps, then who is long, then a normal size for every job, of which the longs use theirs."""
        check_share("long_share", self.long_share)
        mean_work_s = (1.0 - self.long_share) * self.short_s + self.long_share * self.long_s
        arrival_s = np.cumsum(rng.exponential(mean_gap_s(mean_work_s, self.load, executors), jobs))
        short = rng.random(jobs) < 1.0 - self.long_share
        long_s = np.maximum(1.0, rng.normal(self.long_s, self.long_s / 6.0, jobs))
        return one_stage_trace(arrival_s, np.where(short, self.short_s, long_s))
