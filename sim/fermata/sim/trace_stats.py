"""What a trace is like: how much work, how wide, how mixed, how bursty, and so whether holding can pay on it at all.

Holding pays where executors are few, sizes differ much and most jobs are short; these figures say so before anything
is simulated. It describes the jobs as they really are, not as they are estimated.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fermata.sim.metrics import job_shapes
from fermata.sim.trace import FloatArray, Trace
from fermata.sim.trace_jobs import mean_task_s

WINDOW_GAPS = 20.0
# Below this the two halves of the best split differ no more than those of one lognormal cloud of moderate spread.
_DISTINCT_RATIO = 3.0


@dataclass(frozen=True)
class SizeClasses:
    """The split of the jobs' work into short and long that explains most of its variance on a logarithmic scale."""

    short_share: float
    short_mean_s: float
    long_mean_s: float
    ratio: float  # long mean / short mean; 1 where all jobs are alike
    distinct: bool  # whether there is anything to split


@dataclass(frozen=True)
class Spread:
    """Mean, median, 95th percentile and maximum of one quantity."""

    mean: float
    p50: float
    p95: float
    max: float


@dataclass(frozen=True)
class TraceStats:
    """A trace in figures; times in seconds, work in executor-seconds."""

    jobs: int
    stages: int
    tasks: int
    edges: int
    moldable_stages: int
    max_slots: int
    span_s: float  # first to last arrival
    mean_gap_s: float
    gap_cv2: float  # squared coefficient of variation of the gaps: 0 clockwork, 1 Poisson, above bursty
    dispersion: float  # variance / mean of arrivals in windows of 20 mean gaps: 1 Poisson
    total_work_s: float
    job_work_s: Spread
    critical_path_s: Spread
    width: Spread
    task_duration_s: Spread
    sizes: SizeClasses
    estimated_stages: int  # those of which estimate and duration are both above 0: what the next two are of
    estimate_ratio: float  # median of estimate / mean duration; NaN where there is no such stage
    estimate_error: float  # standard deviation of the logarithm of that ratio; likewise
    load: float | None  # mean work of a job over the mean gap and the executors; None without executors

    @property
    def has_windows(self) -> bool:
        """Whether there are the two windows that a dispersion takes."""
        return self.mean_gap_s > 0.0 and self.jobs > 2 * WINDOW_GAPS


def trace_stats(trace: Trace, executors: int | None = None) -> TraceStats:
    """Describe a trace of one job or more; `executors` adds the load on that many."""
    shapes = job_shapes(trace, executors)
    gaps_s = np.diff(trace.job_arrival_s)
    span_s = float(trace.job_arrival_s[-1] - trace.job_arrival_s[0])
    mean_gap_s = span_s / len(gaps_s) if len(gaps_s) else 0.0
    estimate_s, mean_s = _estimates(trace)
    with np.errstate(over="ignore"):  # of a time of next to nothing, it is infinite
        ratios = estimate_s / mean_s
    load = None
    if executors is not None and mean_gap_s > 0.0:
        load = float(shapes.work_s.mean()) / mean_gap_s / executors
    return TraceStats(
        jobs=trace.jobs,
        stages=trace.stages,
        tasks=trace.tasks,
        edges=len(trace.parent),
        moldable_stages=int((~np.isnan(trace.stage_serial_fraction)).sum()),
        max_slots=int(trace.stage_slots.max()),
        span_s=span_s,
        mean_gap_s=mean_gap_s,
        gap_cv2=float((gaps_s / mean_gap_s).var()) if mean_gap_s > 0.0 else 0.0,
        dispersion=dispersion(trace.job_arrival_s, WINDOW_GAPS * mean_gap_s),
        total_work_s=float(shapes.work_s.sum()),
        job_work_s=_spread(shapes.work_s),
        critical_path_s=_spread(shapes.critical_path_s),
        width=_spread(shapes.width),
        task_duration_s=_spread(trace.task_duration_s),
        sizes=size_classes(shapes.work_s),
        estimated_stages=len(ratios),
        estimate_ratio=float(np.median(ratios)) if len(ratios) else math.nan,
        estimate_error=float((np.log(estimate_s) - np.log(mean_s)).std()) if len(ratios) else math.nan,
        load=load,
    )


def dispersion(arrival_s: FloatArray, window_s: float) -> float:
    """Variance over mean of the number of arrivals in whole windows; 1 for Poisson, 0 where it cannot be told."""
    if window_s <= 0.0:
        return 0.0
    # By more than rounding: or it would be chance whether the last window is whole, and where clockwork belongs.
    window = np.floor((arrival_s - arrival_s[0]) / window_s + 1e-9).astype(np.int64)
    if (whole := int(window[-1])) < 2:
        return 0.0
    counts = np.bincount(window)[:whole]
    return float(counts.var() / counts.mean())


def size_classes(work_s: FloatArray) -> SizeClasses:
    """Split sizes in two at the threshold that leaves the least variance of log size within the halves.

    Source: Otsu's threshold, on logarithms because sizes differ by factors.

    >>> split = size_classes(np.array([10.0] * 9 + [200.0]))
    >>> split.short_share, split.ratio, split.distinct
    (0.9, 20.0, True)
    """
    sizes = np.sort(work_s)
    positive = sizes[sizes > 0.0]
    logs = np.log(np.maximum(sizes, positive[0] if len(positive) else 1.0))
    count = np.arange(1, len(sizes))
    below = np.cumsum(logs)[:-1]
    above = logs.sum() - below
    between = (above / (len(sizes) - count) - below / count) ** 2 * count * (len(sizes) - count)
    between[logs[1:] == logs[:-1]] = 0.0
    if len(between) == 0 or between.max() == 0.0:
        mean_s = float(sizes.mean())
        return SizeClasses(1.0, mean_s, mean_s, 1.0, distinct=False)
    split = int(between.argmax()) + 1
    short_mean_s, long_mean_s = float(sizes[:split].mean()), float(sizes[split:].mean())
    ratio = long_mean_s / short_mean_s if short_mean_s > 0.0 else math.inf
    return SizeClasses(split / len(sizes), short_mean_s, long_mean_s, ratio, distinct=ratio >= _DISTINCT_RATIO)


def _spread(values: FloatArray) -> Spread:
    p50, p95 = np.percentile(values, [50.0, 95.0]).tolist()
    return Spread(float(values.mean()), p50, p95, float(values.max()))


def _estimates(trace: Trace) -> tuple[FloatArray, FloatArray]:
    """Return estimate and mean duration of each stage of which both are more than 0."""
    mean_s = mean_task_s(trace)
    known = (mean_s > 0.0) & (trace.stage_estimate_s > 0.0)
    return trace.stage_estimate_s[known], mean_s[known]
