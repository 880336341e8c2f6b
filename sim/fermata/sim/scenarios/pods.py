"""Poisson arrivals of pods with lognormal run times: many short ones, few of half an hour."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fermata.sim.scenarios.base import check_share, check_sigma, mean_gap_s
from fermata.sim.trace import Trace
from fermata.sim.trace_builder import one_stage_trace


@dataclass(frozen=True)
class LognormalPods:
    """Gaps are exponential; a pod is long with probability `long_share`; both sizes are lognormal.

    The short ones are given by their median, the long ones by their mean; the sigmas are those of the logarithm.
    The sizes come from the generator's own lognormal, which rounds alike on every processor; `numpy.exp` of an array
    does not (its AVX-512 form may differ in the last place).
    """

    load: float
    long_share: float = 0.1
    short_median_s: float = 20.0
    short_sigma: float = 0.6
    long_mean_s: float = 1800.0
    long_sigma: float = 0.5

    def draw(self, rng: np.random.Generator, jobs: int, executors: int) -> Trace:
        """Draw all gaps, then who is long, then a short and a long size for every job."""
        check_share("long_share", self.long_share)
        check_sigma("short_sigma", self.short_sigma)
        short_mean_s = self.short_median_s * math.exp(self.short_sigma**2 / 2.0)
        mean_work_s = (1.0 - self.long_share) * short_mean_s + self.long_share * self.long_mean_s
        arrival_s = np.cumsum(rng.exponential(mean_gap_s(mean_work_s, self.load, executors), jobs))
        short = rng.random(jobs) < 1.0 - self.long_share
        short_s = self.short_median_s * rng.lognormal(0.0, self.short_sigma, jobs)
        long_s = self.long_mean_s * rng.lognormal(-(self.long_sigma**2) / 2.0, self.long_sigma, jobs)
        return one_stage_trace(arrival_s, np.where(short, short_s, long_s))
