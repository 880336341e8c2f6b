"""The example that explains the whole project: two jobs, one executor, and a reason to leave it idle."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fermata.sim.trace import Trace
from fermata.sim.trace_builder import one_stage_trace


@dataclass(frozen=True)
class FigureOne:
    """A job of 20 s arrives at 0 and one of 4 s at 2 s; on one executor FIFO gives 21.0 s, holding for 2 s 15.0 s.

    Source: the papers' Figure 1.
    """

    long_s: float = 20.0
    short_s: float = 4.0
    gap_s: float = 2.0

    def draw(self, rng: np.random.Generator, jobs: int, executors: int) -> Trace:
        """The two jobs; nothing here is random."""
        return one_stage_trace([0.0, self.gap_s], [self.long_s, self.short_s])
