"""Jobs of one stage: any arrival process with any distribution of sizes, at a given load."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from fermata.sim.generate.arrivals import Arrivals, Poisson
from fermata.sim.generate.sizes import Lognormal, Sizes
from fermata.sim.scenarios.base import mean_gap_s
from fermata.sim.trace import Trace
from fermata.sim.trace_builder import one_stage_trace


@dataclass(frozen=True)
class OneStage:
    """Arrivals and sizes are drawn independently; the mean gap follows from the load and the mean size."""

    load: float = 0.7
    arrivals: Arrivals = field(default_factory=Poisson)
    sizes: Sizes = field(default_factory=Lognormal)

    def draw(self, rng: np.random.Generator, jobs: int, executors: int) -> Trace:
        """Draw all arrivals, then all sizes."""
        gap_s = mean_gap_s(self.sizes.mean_s, self.load, executors)
        return one_stage_trace(self.arrivals.draw(rng, jobs, gap_s), self.sizes.draw(rng, jobs))
