"""Other episodes like a recorded trace: its jobs in blocks, in another order."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from fermata.policy.errors import InputError
from fermata.sim.trace import FloatArray, Trace
from fermata.sim.trace_jobs import job_work_s, select_jobs


@dataclass(frozen=True, eq=False)
class TraceBlocks:
    """Blocks of consecutive jobs that begin anywhere in a trace, each job with the gap before it.

    Within a block all is as it was recorded: bursts, the mix, and what follows what. Which blocks come, and in which
    order, is chance. The trace counts as a circle, so every job is as likely as any other.

    Source: the circular block bootstrap (Politis and Romano, "A circular block-resampling procedure for stationary
    data", 1992).
    """

    trace: Trace = field(metadata={"given": True})
    load: float | None = None  # share of the executors that the work keeps busy; None: as recorded
    block: int = 100  # jobs

    def draw(self, rng: np.random.Generator, jobs: int, executors: int) -> Trace:
        """Draw an episode.

        Raises:
            InputError: a block of no jobs, or a load that is not above 0 or that cannot be had.
        """
        if self.block < 1:
            raise InputError(f"block must be 1 job or more, not {self.block!r}")
        length = min(self.block, self.trace.jobs)
        begins = rng.integers(0, self.trace.jobs, -(-jobs // length))
        chosen = ((begins[:, None] + np.arange(length)) % self.trace.jobs).ravel()[:jobs]
        gaps = gaps_s(self.trace)[chosen]
        if self.load is not None:
            gaps *= _slower(self.trace, self.load, executors)
        drawn = select_jobs(self.trace, chosen)
        ids = [f"{number}-{name}" for number, name in enumerate(drawn.job_ids)]
        return replace(drawn, job_arrival_s=np.cumsum(gaps), job_ids=ids)


def gaps_s(trace: Trace) -> FloatArray:
    """Return the time before each job's arrival [jobs], seconds; before the first, which has none, the mean."""
    gaps = np.diff(trace.job_arrival_s)
    return np.concatenate([[gaps.mean() if len(gaps) else 0.0], gaps])


def offered_load(trace: Trace, executors: int) -> float:
    """Return the share of the executors that the work keeps busy while jobs arrive; inf if they arrive at once."""
    span_s = float(gaps_s(trace).sum())
    return float(job_work_s(trace).sum()) / (executors * span_s) if span_s > 0.0 else float("inf")


def _slower(trace: Trace, load: float, executors: int) -> float:
    """Return by which factor gaps are longer at a load."""
    now = offered_load(trace, executors)
    if not 0.0 < load < float("inf"):
        raise InputError(f"load must be above 0, not {load!r}")
    if not 0.0 < now < float("inf"):
        raise InputError("there is no other load for jobs without work, or that all arrive at once")
    return now / load
