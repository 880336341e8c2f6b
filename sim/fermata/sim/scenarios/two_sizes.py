"""Poisson arrivals of jobs that are either short or long: the papers' synthetic set, and express lanes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fermata.sim.scenarios.base import check_share, mean_gap_s
from fermata.sim.trace import Trace
from fermata.sim.trace_builder import one_stage_trace


@dataclass(frozen=True)
class TwoSizes:
    """Gaps are exponential, then each job is long with probability `long_share`.

    The load counts work on one executor. With a `serial_fraction` s the jobs are moldable: p executors take
    size * (s + (1 - s) / p) and are kept until the job ends.
    """

    load: float
    long_share: float
    short_s: float = 10.0
    long_s: float = 50.0
    serial_fraction: float | None = None

    def draw(self, rng: np.random.Generator, jobs: int, executors: int) -> Trace:
        """Draw all gaps, then all sizes."""
        check_share("long_share", self.long_share)
        mean_work_s = (1.0 - self.long_share) * self.short_s + self.long_share * self.long_s
        arrival_s = np.cumsum(rng.exponential(mean_gap_s(mean_work_s, self.load, executors), jobs))
        size_s = np.where(rng.random(jobs) < 1.0 - self.long_share, self.short_s, self.long_s)
        return one_stage_trace(arrival_s, size_s, serial_fraction=self.serial_fraction)
