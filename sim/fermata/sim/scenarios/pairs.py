"""Long jobs that are each followed by a short one: where knowing that it comes is worth most."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fermata.sim.scenarios.base import mean_gap_s
from fermata.sim.trace import Trace
from fermata.sim.trace_builder import one_stage_trace


@dataclass(frozen=True)
class Pairs:
    """Long jobs arrive as a Poisson process, half of all jobs; a short one follows each after an exponential time."""

    load: float
    long_s: float = 20.0
    short_s: float = 4.0
    mean_follow_s: float = 2.0

    def draw(self, rng: np.random.Generator, jobs: int, executors: int) -> Trace:
        """Draw all gaps between longs, then all times until a follower."""
        pairs = max(1, jobs // 2)
        pair_gap_s = mean_gap_s(self.long_s + self.short_s, self.load, executors)
        long_arrival_s = np.cumsum(rng.exponential(pair_gap_s, pairs))
        short_arrival_s = long_arrival_s + rng.exponential(self.mean_follow_s, pairs)
        arrival_s = np.concatenate([long_arrival_s, short_arrival_s])
        return one_stage_trace(arrival_s, np.repeat([self.long_s, self.short_s], pairs))
