"""The numbers of a report: each run's figures, and its difference to the base job by job."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fermata.policy.errors import InputError
from fermata.sim.metrics import Interval, mean_ci95
from fermata.sim.report.records import Run
from fermata.sim.trace import FloatArray


class Figures(NamedTuple):
    """One run in numbers, all in seconds but the first; wait, held and run are means that add up to the JCT's."""

    jobs: int
    avg_jct_s: float
    p50_jct_s: float
    p95_jct_s: float
    max_jct_s: float
    avg_wait_s: float
    avg_held_s: float
    avg_run_s: float


class Difference(NamedTuple):
    """A run against the base, paired job by job; negative is faster."""

    name: str
    jct_s: FloatArray  # [jobs] seconds, in the order of the base's jobs
    mean_s: Interval
    percent: float  # of the base's mean JCT
    percent_ci95: float  # half width, with the base's mean taken as known


def figures_of(run: Run) -> Figures:
    """Return the figures of a run.

    Raises:
        InputError: it has no jobs.
    """
    if not run.jobs:
        raise InputError(f"no job of {run.name} is finished")
    jct_s = np.array([job.jct_s for job in run.jobs])
    p50, p95 = np.percentile(jct_s, [50.0, 95.0]).tolist()
    wait_s, held_s, run_s = np.array([(job.wait_s, job.held_s, job.run_s) for job in run.jobs]).mean(axis=0).tolist()
    return Figures(len(run.jobs), float(jct_s.mean()), p50, p95, float(jct_s.max()), wait_s, held_s, run_s)


def differences(run: Run, base: Run) -> Difference:
    """Return how a run differs from the base, over the jobs that both have.

    The interval is Student's over jobs. Jobs of one run share a queue, so it says how much they differ among
    themselves, and less than a number of independent runs would about other arrivals.

    Raises:
        InputError: they have no job in common.
    """
    ours = {job.id: job.jct_s for job in run.jobs}
    pairs = np.array([(ours[job.id], job.jct_s) for job in base.jobs if job.id in ours])
    if not len(pairs):
        raise InputError(f"{run.name} and {base.name} have no job in common")
    jct_s = pairs[:, 0] - pairs[:, 1]
    mean_s = mean_ci95(jct_s)
    scale = 100.0 / float(pairs[:, 1].mean())
    return Difference(run.name, jct_s, mean_s, mean_s.mean * scale, mean_s.ci95 * scale)
