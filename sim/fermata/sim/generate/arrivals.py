"""When jobs arrive: Poisson, in bursts, on a schedule, or at rates that change; each scaled to any mean gap.

An arrival process knows its shape, not the load: a recipe sets the mean gap from the load and the mean work.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from fermata.policy.errors import InputError
from fermata.sim.scenarios.base import MAX_JOBS
from fermata.sim.trace import FloatArray


class Arrivals(Protocol):
    """A point process on [0, inf) with a given long-run mean gap."""

    def draw(self, rng: np.random.Generator, jobs: int, mean_gap_s: float) -> FloatArray:
        """[jobs] arrival times in seconds, not falling."""
        ...


@dataclass(frozen=True)
class Poisson:
    """Independent exponential gaps."""

    def draw(self, rng: np.random.Generator, jobs: int, mean_gap_s: float) -> FloatArray:
        """Draw all gaps at once."""
        return np.cumsum(rng.exponential(mean_gap_s, jobs))


@dataclass(frozen=True)
class Bursty:
    """A Markov-modulated Poisson process with a quiet and a busy state.

    Args:
        burst_factor: how many times faster arrivals come in the busy state, 1 or more.
        burst_share: share of the time in the busy state, between 0 and 1.
        burst_jobs: mean number of arrivals in one busy period.

    Source: the two-state MMPP of Fischer and Meier-Hellstern, "The Markov-modulated Poisson process cookbook" (1993).
    """

    burst_factor: float = 10.0
    burst_share: float = 0.1
    burst_jobs: float = 20.0

    def draw(self, rng: np.random.Generator, jobs: int, mean_gap_s: float) -> FloatArray:
        """Draw state by state until there are enough arrivals; the first state by its share of the time."""
        if not (self.burst_factor >= 1.0 and 0.0 < self.burst_share < 1.0 and self.burst_jobs > 0.0):
            raise InputError("bursts need burst_factor >= 1, 0 < burst_share < 1 and burst_jobs > 0")
        cycle_jobs = self.burst_jobs * (1.0 + (1.0 - self.burst_share) / self.burst_share / self.burst_factor)
        if not 0.01 <= cycle_jobs <= MAX_JOBS:
            raise InputError(f"a burst and the quiet after it must have 0.01 to {MAX_JOBS:,} jobs, not {cycle_jobs:g}")
        quiet_rate = 1.0 / mean_gap_s / (1.0 - self.burst_share + self.burst_share * self.burst_factor)
        rates = (quiet_rate, quiet_rate * self.burst_factor)
        busy_s = self.burst_jobs / rates[1]
        stay_s = (busy_s * (1.0 - self.burst_share) / self.burst_share, busy_s)
        pieces: list[FloatArray] = []
        state, now_s, drawn = int(rng.random() < self.burst_share), 0.0, 0
        while drawn < jobs:
            length_s = float(rng.exponential(stay_s[state]))
            arrivals = np.sort(rng.uniform(now_s, now_s + length_s, int(rng.poisson(rates[state] * length_s))))
            pieces.append(arrivals)
            drawn, now_s, state = drawn + len(arrivals), now_s + length_s, 1 - state
        return np.concatenate(pieces)[:jobs]


@dataclass(frozen=True)
class Periodic:
    """Batches on a schedule, as cron makes them: every period `batch` jobs, give or take a normal jitter each.

    Args:
        batch: jobs a period, at least 1.
        jitter: standard deviation of each job's arrival, as a share of the period.
    """

    batch: int = 4
    jitter: float = 0.01

    def draw(self, rng: np.random.Generator, jobs: int, mean_gap_s: float) -> FloatArray:
        """Draw all jitters at once; the period follows from the mean gap."""
        if self.batch < 1 or self.jitter < 0.0:
            raise InputError("a schedule needs batch >= 1 and jitter >= 0")
        period_s = self.batch * mean_gap_s
        scheduled_s = period_s * (1 + np.arange(jobs) // self.batch)
        return np.sort(np.maximum(0.0, scheduled_s + rng.normal(0.0, self.jitter * period_s, jobs)))


@dataclass(frozen=True)
class Piecewise:
    """Poisson arrivals whose rate follows a repeating pattern, such as day and night.

    Args:
        shares: length of each piece as a share of the cycle, each above 0.
        rates: rate in each piece, relative to the others, each 0 or more and one above 0.
        cycle_jobs: mean number of arrivals in one cycle.
    """

    shares: tuple[float, ...] = (0.5, 0.5)
    rates: tuple[float, ...] = (1.5, 0.5)
    cycle_jobs: float = 500.0

    def draw(self, rng: np.random.Generator, jobs: int, mean_gap_s: float) -> FloatArray:
        """Draw unit-rate arrivals and bend time so that the pattern comes out: exact for any pattern."""
        shares, rates = np.asarray(self.shares, dtype=np.float64), np.asarray(self.rates, dtype=np.float64)
        if shares.shape != rates.shape or not (shares > 0.0).all() or not (rates >= 0.0).all() or not rates.any():
            raise InputError("a pattern needs as many shares (above 0) as rates (0 or more, one above 0)")
        if not self.cycle_jobs > 0.0:
            raise InputError(f"cycle_jobs must be above 0, not {self.cycle_jobs!r}")
        cycle_s = self.cycle_jobs * mean_gap_s
        ends_s = np.concatenate([[0.0], np.cumsum(shares / shares.sum())]) * cycle_s
        # Expected arrivals since the start of the cycle at each end of a piece.
        expected = np.concatenate([[0.0], np.cumsum(shares * rates)])
        expected *= self.cycle_jobs / expected[-1]
        cycles, within = np.divmod(np.cumsum(rng.exponential(1.0, jobs)), self.cycle_jobs)
        return cycles * cycle_s + np.interp(within, expected, ends_s)
