"""Jobs whose one task takes several executors, as pods with several GPUs do."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np

from fermata.policy.errors import InputError
from fermata.sim.generate.arrivals import Arrivals, Poisson
from fermata.sim.scenarios.base import check_sigma, mean_gap_s
from fermata.sim.trace import Trace
from fermata.sim.trace_builder import one_stage_trace


@dataclass(frozen=True)
class SeveralSlots:
    """With probability `shares[i]` a task takes `slots[i]` executors, for `means_s[i]` on average.

    Durations are lognormal, with spread `sigma` of the logarithm. A task takes at most all executors.

    Shares and means are about those of Microsoft's Philly log, in which jobs of 16 GPUs and more, of which there are
    three in a thousand, count as those of eight; the spread is that of its jobs of one GPU, and wider ones spread more
    there (docs/results.md says where the log is).
    """

    load: float = 0.7
    arrivals: Arrivals = field(default_factory=Poisson)
    slots: tuple[int, ...] = (1, 2, 4, 8)
    shares: tuple[float, ...] = (0.932, 0.022, 0.023, 0.023)
    means_s: tuple[float, ...] = (8300.0, 31000.0, 79000.0, 125000.0)
    sigma: float = 2.0

    def __post_init__(self) -> None:
        check_sigma("sigma", self.sigma)
        if not len(self.slots) == len(self.shares) == len(self.means_s):
            raise InputError("slots, shares and means_s must be as many")
        if not math.isclose(math.fsum(self.shares), 1.0):
            raise InputError(f"shares must add to 1: {self.shares}")
        if min(self.slots) < 1 or min(self.means_s) <= 0.0:
            raise InputError(f"expected slots of at least 1, and means above 0 s: {self.slots}, {self.means_s}")

    def draw(self, rng: np.random.Generator, jobs: int, executors: int) -> Trace:
        """Draw all widths, then all durations, then arrivals that make the load exact for these jobs."""
        drawn = rng.choice(len(self.shares), jobs, p=self.shares)
        slots = np.minimum(self.slots, executors)[drawn].astype(np.int32)
        spread = rng.lognormal(-(self.sigma**2) / 2.0, self.sigma, jobs)
        duration_s = np.asarray(self.means_s)[drawn] * spread
        gap_s = mean_gap_s(float((slots * duration_s).mean()), self.load, executors)
        return replace(one_stage_trace(self.arrivals.draw(rng, jobs, gap_s), duration_s), stage_slots=slots)
