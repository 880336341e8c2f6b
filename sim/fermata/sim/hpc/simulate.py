"""One run: jobs, an order and rules in; when every job started and what that was worth out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fermata.sim.hpc.inspect import Inspector, no_inspector
from fermata.sim.hpc.jobs import FloatArray, JobLog
from fermata.sim.hpc.kernel import run
from fermata.sim.hpc.orders import Order
from fermata.sim.hpc.rules import Rules
from fermata.sim.hpc.world import DECISIONS, EVENTS, REJECTIONS, config_of, jobs_of, new_world


@dataclass(frozen=True)
class Schedule:
    """What happened: arrays by job, in the order of submission; times in seconds."""

    log: JobLog
    start_s: FloatArray
    runtime_s: FloatArray  # what the job ran for: shorter than the log's where it was killed at its estimate
    events: int
    inspections: int
    rejections: int

    @property
    def wait_s(self) -> FloatArray:
        """Start minus submission."""
        return self.start_s - self.log.submit_s

    @property
    def end_s(self) -> FloatArray:
        """Start plus run time."""
        return self.start_s + self.runtime_s


def simulate(log: JobLog, order: Order, rules: Rules, inspector: Inspector | None = None) -> Schedule:
    """Run the jobs of a log on its machine, idle at first.

    Args:
        log: the jobs; submissions of one instant keep the order of the log.
        order: the order of the queue.
        rules: start semantics, backfilling, reservations.
        inspector: accepts or rejects what is about to be done; default: nobody does.

    Returns:
        The schedule; the same for the same arguments.
    """
    jobs = jobs_of(log, order, rules)
    world = new_world(len(log), int(log.user.max()) + 1, log.machine_cores)
    run(jobs, config_of(log, order, rules), world, inspector or no_inspector())
    counts: NDArray[np.int64] = world.counts
    return Schedule(
        log, world.start, jobs.runtime, int(counts[EVENTS]), int(counts[DECISIONS]), int(counts[REJECTIONS])
    )
