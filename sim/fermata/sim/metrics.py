"""The figures by which schedules are compared, computed in one place so that all reports mean the same by a name.

It takes arrays by job and knows nothing of policies, engines or clusters: the same figures describe an episode of the
simulator and a day of a real pool.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fermata.policy.errors import InputError
from fermata.policy.graph import job_shape, path_lengths
from fermata.sim.trace import FloatArray, Trace
from fermata.sim.trace_jobs import stage_work_s

SLOWDOWN_THRESHOLD_S = 10.0


class Interval(NamedTuple):
    """A mean and the half width of its 95% confidence interval; 0 for a single value, whose spread is unknown."""

    mean: float
    ci95: float


class JobShapes(NamedTuple):
    """What jobs are like by their real durations; all arrays are [jobs]."""

    work_s: FloatArray  # executor-seconds; moldable stages count their work on one executor
    critical_path_s: FloatArray  # no job takes less, however many executors it has to itself
    width: FloatArray  # work / critical path


def job_shapes(trace: Trace, executors: int | None = None) -> JobShapes:
    """Work, critical path and average width of each job by what really happens, not by estimates.

    Args:
        trace: the jobs.
        executors: on how many a moldable stage can be spread; None for any number.
    """
    longest_s = np.maximum.reduceat(trace.task_duration_s, trace.task_ptr[:-1]) if trace.stages else np.empty(0)
    serial = trace.stage_serial_fraction
    spread = np.where(np.isnan(serial), 1.0, serial + (0.0 if executors is None else (1.0 - serial) / executors))
    path_s, reached = path_lengths(trace.parent_ptr, trace.parent, longest_s * spread)
    if reached != trace.stages:
        raise InputError("the stages of some job form a cycle")
    return JobShapes(*job_shape(trace.job_stage_ptr, stage_work_s(trace), path_s))


def summarize(
    *,
    arrival_s: FloatArray,
    start_s: FloatArray,
    completion_s: FloatArray,
    held_s: FloatArray,
    ideal_s: FloatArray,
    busy_s: float,
    executors: int,
    warm: int = 0,
    wait_s: FloatArray | None = None,
) -> dict[str, float]:
    """The figures of one episode, as `fermata simulate --json` prints them.

    Means, percentiles and the held time are over the jobs after the first `warm` by arrival; makespan and utilisation
    are of the whole episode, which the executors cannot divide.

    Args:
        arrival_s: [jobs] seconds.
        start_s: [jobs] when the first task of each job started.
        completion_s: [jobs] when its last task ended.
        held_s: [jobs] time for which it was deliberately kept waiting.
        ideal_s: [jobs] its critical path by real durations: with enough executors it takes no more.
        busy_s: executor-seconds in use over the whole episode.
        executors: how many there are.
        warm: number of first jobs to leave out, at least one less than there are jobs.
        wait_s: [jobs] the time that counts as wait; arrival to start if not given.

    Raises:
        InputError: `warm` leaves no job.
    """
    jobs = len(arrival_s)
    if not 0 <= warm < jobs:
        raise InputError(f"a warm-up of {warm} jobs leaves none of {jobs}")
    counted = np.argsort(arrival_s, kind="stable")[warm:]
    jct_s = (completion_s - arrival_s)[counted]
    waited_s = (start_s - arrival_s if wait_s is None else wait_s)[counted]
    slowdown = bounded_slowdown(jct_s, ideal_s[counted])
    makespan_s = float(completion_s.max() - arrival_s.min())
    p50, p95, p99 = np.percentile(jct_s, [50.0, 95.0, 99.0]).tolist()
    return {
        "avg_jct_s": float(jct_s.mean()),
        "p50_jct_s": p50,
        "p95_jct_s": p95,
        "p99_jct_s": p99,
        "makespan_s": makespan_s,
        "avg_wait_s": float(waited_s.mean()),
        "avg_bounded_slowdown": float(slowdown.mean()),
        "max_bounded_slowdown": float(slowdown.max()),
        "utilization": busy_s / (executors * makespan_s) if makespan_s > 0.0 else 0.0,
        "held_s": float(held_s[counted].sum()),
        "jobs": len(counted),
    }


def bounded_slowdown(jct_s: FloatArray, ideal_s: FloatArray, threshold_s: float = SLOWDOWN_THRESHOLD_S) -> FloatArray:
    """How many times longer than its ideal each job took, where jobs below the threshold count as that long.

    Source: Feitelson et al., "Theory and practice in parallel job scheduling": max(1, JCT / max(run, threshold)).

    >>> bounded_slowdown(np.array([5.0, 40.0]), np.array([1.0, 20.0])).tolist()
    [1.0, 2.0]
    """
    slowdown: FloatArray = np.maximum(1.0, jct_s / np.maximum(ideal_s, threshold_s))
    return slowdown


def mean_ci95(values: npt.ArrayLike) -> Interval:
    """The mean of independent values, one a seed, and Student's 95% interval around it.

    Raises:
        InputError: there are no values.

    >>> mean, ci95 = mean_ci95([1.0, 2.0, 3.0])
    >>> round(mean, 3), round(ci95, 3)
    (2.0, 2.484)
    """
    numbers = np.asarray(values, dtype=np.float64)
    if numbers.size == 0:
        raise InputError("no values to take a mean of")
    if numbers.size == 1:
        return Interval(float(numbers[0]), 0.0)
    error = float(numbers.std(ddof=1)) / math.sqrt(numbers.size)
    return Interval(float(numbers.mean()), student_t975(numbers.size - 1) * error)


def resampled_ci95(values: npt.ArrayLike, size: float = 1.0) -> Interval:
    """The mean of a figure over resamples of the same data, and how far from it the data let 95% of them be.

    Unlike that of `mean_ci95` the interval does not get ever narrower with more resamples, nor with larger ones: what
    is known is the data. What is left to chance by having only so many of them is in it, too.
    Source: Efron's bootstrap, the standard error with Student's quantile; of m out of n for resamples of another size.

    Args:
        values: one a resample.
        size: of a resample, over that of the data.

    Raises:
        InputError: there are no values.

    >>> mean, ci95 = resampled_ci95([1.0, 2.0, 3.0])
    >>> round(mean, 3), round(ci95, 3)
    (2.0, 4.968)
    """
    mean, ci95 = mean_ci95(values)
    return Interval(mean, ci95 * math.sqrt(1.0 + np.size(values) * size))


def decimals(mean_s: float) -> int:
    """Return with how many decimals seconds are told: two, and more where the mean is below one.

    >>> decimals(61.0), decimals(0.0092)
    (2, 5)
    """
    return 2 if not 0.0 < mean_s < 1.0 else 2 - math.floor(math.log10(mean_s))


def over_base(value: float, base: float) -> float:
    """Return a figure over that of the base: 1 where that is 0, as where no job takes any time, which tells nothing.

    >>> over_base(12.0, 10.0), over_base(0.0, 0.0), over_base(3.0, 0.0)
    (1.2, 1.0, 1.0)
    """
    return value / base if base > 0.0 else 1.0


def change_percent(mean: float, base: float) -> float:
    """Return by how many percent a mean lies above that of the base: NaN where the base's is 0 and the other is not.

    >>> change_percent(12.0, 10.0), change_percent(0.0, 0.0), change_percent(1.0, 0.0)
    (20.0, 0.0, nan)
    """
    if base == 0.0:
        return 0.0 if mean == 0.0 else float("nan")
    return 100.0 * (mean - base) / base


def paired_percent(
    values: npt.ArrayLike, base: npt.ArrayLike, interval: Callable[[Sequence[float]], Interval] = mean_ci95
) -> Interval:
    """By how many percent `values` lie above `base`, seed by seed; negative is below, NaN as in `change_percent`.

    Args:
        values: [seeds] a policy's figure.
        base: [seeds] the base policy's figure on the same seeds.
        interval: makes an interval of the percentages [seeds].

    Raises:
        InputError: the lengths differ.

    >>> paired_percent([90.0, 180.0], [100.0, 200.0])
    Interval(mean=-10.0, ci95=0.0)
    """
    ours, theirs = np.asarray(values, dtype=np.float64), np.asarray(base, dtype=np.float64)
    if ours.shape != theirs.shape:
        raise InputError(f"{ours.size} values cannot be paired with {theirs.size}")
    return interval([change_percent(*pair) for pair in zip(ours.tolist(), theirs.tolist(), strict=True)])


@lru_cache
def student_t975(degrees: int) -> float:
    """The 97.5% quantile of Student's t distribution with 1 or more degrees of freedom.

    Source: Abramowitz and Stegun 26.7.3-4, the exact finite series for whole degrees, solved by bisection.

    >>> round(student_t975(19), 4)
    2.093
    """
    low, high = 0.0, math.pi / 2.0
    for _ in range(60):
        middle = (low + high) / 2.0
        low, high = (middle, high) if _central_t(middle, degrees) < 0.95 else (low, middle)
    return math.tan(low) * math.sqrt(degrees)


def _central_t(angle: float, degrees: int) -> float:
    """Probability that |t| < sqrt(degrees) * tan(angle)."""
    cosine2, odd = math.cos(angle) ** 2, degrees % 2
    term = math.cos(angle) if odd else 1.0
    series = 0.0
    for power in range(2 if odd else 1, degrees + odd, 2):
        # The first term is 1 (even) or cos (odd); each next one gains cos^2 and the next ratio of whole numbers.
        series += term
        term *= cosine2 * power / (power + 1)
    series *= math.sin(angle)
    return 2.0 / math.pi * (angle + series) if odd else series
