"""Batches of short pods on a schedule among long pods at random: the arrivals that a clock could foretell."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fermata.policy.errors import InputError
from fermata.sim.trace import Trace
from fermata.sim.trace_builder import one_stage_trace


@dataclass(frozen=True)
class CronPods:
    """Every `period_s`, give or take a normal jitter, `batch` short pods arrive within `spread_s`.

    Long pods are Poisson with lognormal sizes, at the rate that brings the load to `load`. The episode lasts as long as
    `jobs` jobs take to arrive on average, so their number varies a little from seed to seed.
    """

    load: float
    period_s: float = 300.0
    batch: int = 4
    short_s: float = 30.0
    jitter_s: float = 5.0
    spread_s: float = 1.0
    long_mean_s: float = 1200.0
    long_sigma: float = 0.3

    def draw(self, rng: np.random.Generator, jobs: int, executors: int) -> Trace:
        """Draw jitters and offsets of all batches, then number, arrivals and sizes of the longs."""
        if not (self.period_s > 0.0 and self.long_mean_s > 0.0):
            raise InputError("batches on a schedule need period_s > 0 and long_mean_s > 0")
        short_rate = self.batch / self.period_s
        long_rate = (self.load * executors - short_rate * self.short_s) / self.long_mean_s
        if long_rate < 0.0:
            raise InputError(f"the short pods alone exceed a load of {self.load} on {executors} executors")
        horizon_s = jobs / (short_rate + long_rate)
        batches = int(horizon_s / self.period_s)
        batch_s = self.period_s * np.arange(1, batches + 1) + rng.normal(0.0, self.jitter_s, batches)
        rng.random(batches)  # drawn and not used when the reference episodes were made; it keeps the stream in step
        short_arrival_s = np.repeat(batch_s, self.batch) + self.spread_s * rng.random(batches * self.batch)
        longs = int(rng.poisson(horizon_s * long_rate))
        long_arrival_s = rng.uniform(0.0, horizon_s, longs)
        log_mean = math.log(self.long_mean_s) - self.long_sigma**2 / 2.0
        long_s = rng.lognormal(log_mean, self.long_sigma, longs)
        # A jitter far wider than the period can throw the first batch before the start.
        arrival_s = np.maximum(0.0, np.concatenate([short_arrival_s, long_arrival_s]))
        return one_stage_trace(arrival_s, np.concatenate([np.full(len(short_arrival_s), self.short_s), long_s]))
