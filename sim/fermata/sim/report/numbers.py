"""The numbers of a report: each run's figures, its paired differences to the base, and both by class of job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fermata.policy.errors import InputError
from fermata.policy.wording import amount
from fermata.sim.experiment import pooled
from fermata.sim.metrics import change_percent, mean_ci95, summarize
from fermata.sim.report.records import Run
from fermata.sim.report.schedule import Schedule
from fermata.sim.trace import FloatArray, IntArray

RESAMPLES = 10_000
BATCHES = 20  # of one schedule's jobs: consecutive jobs share a queue, batches of many hardly do
_JOBS_FOR_BATCHES = 2 * BATCHES
SAME = 0.01  # of the base's mean JCT: what differs by less on a real cluster differs by chance
_MOST_SIZES = 4
_TAIL_CLASSES = (0.5, 0.9, 0.99, 1.0)  # shares of the jobs, smallest first


class Paired(NamedTuple):
    """A mean difference with two 95% intervals: Student's, as half a width, and the bootstrap's, as its ends."""

    mean: float
    t95: float
    low: float
    high: float


class Difference(NamedTuple):
    """A run against the base, paired job by job; negative is faster."""

    name: str
    jct_s: FloatArray  # [jobs] seconds, unit by unit in the order of the base's jobs
    base_s: float  # the base's mean JCT over these jobs
    faster: float  # share of the jobs that gain more than `SAME` of `base_s`
    slower: float
    seconds: Paired
    percent: Paired  # of the base's mean JCT
    units: int  # how many independent values the intervals are over
    unit: str  # "seed", "batch" or "job"


class ClassRow(NamedTuple):
    """One run's jobs of one class; seconds, and percent against the base."""

    label: str
    run: str
    jobs: int
    avg_jct_s: float
    percent: float
    p95_jct_s: float
    p99_jct_s: float
    max_jct_s: float
    avg_held_s: float


def paired(values: Sequence[float] | FloatArray) -> Paired:
    """Return the mean of independent differences and its intervals; both are as wide as 0 for a single value.

    The bootstrap's are percentiles of the means of 10,000 resamples, drawn the same every time.

    Args:
        values: [units] at least one.

    >>> paired([1.0, 2.0, 3.0]).t95 > 2.4
    True
    """
    column = np.asarray(values, np.float64)
    mean, t95 = mean_ci95(column)
    draws = np.random.default_rng(0).integers(0, len(column), (RESAMPLES, len(column)))
    low, high = np.percentile(column[draws].mean(axis=1), [2.5, 97.5]).tolist()
    return Paired(mean, t95, low, high)


def figures_of(schedule: Schedule) -> dict[str, float]:
    """Return the figures of one schedule: those of `fermata.sim.metrics.summarize`, with the means of held and run.

    What is not known, such as the slowdown where no ideal time is, is NaN.
    """
    unknown = np.full(len(schedule.arrival_s), np.nan)
    counted = slice(schedule.warm, None)
    figures = summarize(
        arrival_s=schedule.arrival_s,
        start_s=schedule.start_s,
        completion_s=schedule.completion_s,
        held_s=schedule.held_s,
        ideal_s=unknown if schedule.ideal_s is None else schedule.ideal_s,
        busy_s=schedule.busy_s,
        executors=schedule.executors,
        warm=schedule.warm,
        wait_s=schedule.wait_s,
    )
    return figures | {
        "max_jct_s": float(schedule.jct_s[counted].max()),
        "avg_held_s": float(schedule.held_s[counted].mean()),
        "avg_run_s": float(schedule.run_s[counted].mean()),
    }


def run_figures(run: Run) -> dict[str, Any]:
    """Return the figures of a run over its schedules, as `fermata.sim.experiment.pooled` does.

    Raises:
        InputError: it has no schedule.
    """
    if not run.schedules:
        raise InputError(f"no job of {run.name} is finished")
    return pooled({number: figures_of(schedule) for number, schedule in enumerate(run.schedules)})


def difference(run: Run, base: Run, unit: str = "seed") -> Difference:
    """Return how a run differs from the base, over the jobs that both have, warm-ups left out.

    With several schedules (`unit`s) the intervals are over their means. Of a single one they are over the means of 20
    batches of consecutive jobs, or over the jobs where these are few; they then say nothing about other arrivals.

    Raises:
        InputError: they have no job in common.
    """
    pairs = [_pairs(ours, theirs) for ours, theirs in zip(run.schedules, base.schedules, strict=True)]
    if not any(len(ours) for ours, _ in pairs):
        raise InputError(f"{run.name} and {base.name} have no job in common")
    change_s = np.concatenate([ours - theirs for ours, theirs in pairs])
    mean_s = float(np.concatenate([theirs for _, theirs in pairs]).mean())
    same_s = SAME * mean_s
    jobs = change_s, mean_s, float(np.mean(change_s < -same_s)), float(np.mean(change_s > same_s))
    if len(pairs) > 1:
        seconds = np.array([(ours - theirs).mean() for ours, theirs in pairs])
        bases_s = [float(theirs.mean()) for _, theirs in pairs]
        percent = np.array([change_percent(base + more, base) for more, base in zip(seconds, bases_s, strict=True)])
        return Difference(run.name, *jobs, paired(seconds), paired(percent), len(pairs), unit)
    batched = len(change_s) >= _JOBS_FOR_BATCHES
    seconds = _batches(change_s) if batched else change_s
    base_s = float(pairs[0][1].mean())
    percent = np.array([change_percent(base_s + more, base_s) for more in seconds.tolist()])
    kind = f"batch of {len(change_s) // BATCHES:,} jobs" if batched else "job"
    return Difference(run.name, *jobs, paired(seconds), paired(percent), len(seconds), kind)


def _batches(change_s: FloatArray) -> FloatArray:
    """Return what each batch of consecutive jobs says of the mean change; their mean is that of the jobs.

    Batches may differ by one job: each counts by as much as its jobs' sum departs from that of so many average ones.
    """
    mean_s = change_s.mean()
    apart_s = np.array([(part - mean_s).sum() for part in np.array_split(change_s, BATCHES)])
    values_s: FloatArray = mean_s + apart_s * BATCHES / len(change_s)
    return values_s


def _pairs(ours: Schedule, theirs: Schedule) -> tuple[FloatArray, FloatArray]:
    """Return the JCTs of the jobs that two schedules have in common, in the order of the second's."""
    counted = theirs.job_ids[theirs.warm :]
    if ours.warm == theirs.warm and list(ours.job_ids[ours.warm :]) == list(counted):
        return ours.jct_s[ours.warm :], theirs.jct_s[theirs.warm :]
    place = {job: index for index, job in enumerate(ours.job_ids)}
    both = [(place[job], index) for index, job in enumerate(counted, theirs.warm) if job in place]
    rows = np.array(both, np.int64).reshape(-1, 2)
    return ours.jct_s[rows[:, 0]], theirs.jct_s[rows[:, 1]]


def plural(found: Difference) -> str:
    """Return the word for what the intervals of a difference are over."""
    first, _, rest = found.unit.partition(" ")
    word = first if found.units == 1 else f"{first}es" if first == "batch" else f"{first}s"
    return f"{word} {rest}".strip()


def class_bounds(work_s: FloatArray) -> list[tuple[str, float]]:
    """Return classes of jobs by work, smallest first: name and largest work, executor-seconds.

    Up to four different sizes are classes of their own; otherwise the smallest half, then up to 90%, 99% and all, or
    as near as equal sizes allow.

    >>> class_bounds(np.array([10.0, 200.0, 10.0]))
    [('10 s', 10.0), ('200 s', 200.0)]
    >>> [name for name, _ in class_bounds(np.arange(1.0, 201.0))]
    ['smallest 50%, to 100 s', 'next 40%, to 180 s', 'next 9%, to 198 s', 'largest 1%, to 200 s']
    """
    sizes = np.unique(np.round(work_s, 6))
    if len(sizes) <= _MOST_SIZES:
        # With as many digits as it takes to tell them apart.
        digits = next(digits for digits in range(6, 18) if len({amount(size, digits) for size in sizes}) == len(sizes))
        return [(f"{amount(size, digits)} s", float(size)) for size in sizes]
    found: list[tuple[str, float]] = []
    below = 0.0
    for most in np.unique(np.quantile(work_s, _TAIL_CLASSES, method="inverted_cdf")):
        share = float(np.mean(work_s <= most))
        words = "largest" if share == 1.0 else "next" if found else "smallest"
        found.append((f"{words} {100.0 * (share - below):.3g}%, to {amount(most, 4)} s", float(most)))
        below = share
    return found


def class_rows(runs: Sequence[Run], base: Run) -> list[ClassRow]:
    """Return means and tails of every run by class of job, class by class."""
    bounds = class_bounds(np.concatenate([each.work_s[each.warm :] for each in base.schedules]))
    rows: list[ClassRow] = []
    means: dict[str, float] = {}
    below = -np.inf
    for number, (label, limit) in enumerate(bounds, 1):
        most = limit if number < len(bounds) else np.inf
        for run in (base, *(run for run in runs if run is not base)):
            found = [_of_class(schedule, below, most) for schedule in run.schedules]
            jct_s, held_s = (np.concatenate(columns) for columns in zip(*found, strict=True))
            if not len(jct_s):
                continue
            means[run.name] = float(jct_s.mean())
            percent = change_percent(means[run.name], means.get(base.name, np.nan))
            p95, p99 = np.percentile(jct_s, [95.0, 99.0]).tolist()
            tail = (p95, p99, float(jct_s.max()), float(held_s.mean()))
            rows.append(ClassRow(label, run.name, len(jct_s), means[run.name], percent, *tail))
        below = most
    return rows


def _of_class(schedule: Schedule, below: float, most: float) -> tuple[FloatArray, FloatArray]:
    work_s = np.round(schedule.work_s[schedule.warm :], 6)
    chosen: IntArray = np.flatnonzero((work_s > round(below, 6)) & (work_s <= round(most, 6)))
    return schedule.jct_s[schedule.warm :][chosen], schedule.held_s[schedule.warm :][chosen]


def above_bound_percent(run: Run, bound_s: FloatArray) -> float:
    """Return by how many percent the mean JCT over all jobs lies above what it cannot go below.

    Args:
        run: the run.
        bound_s: [schedules] seconds.
    """
    means = [float(schedule.jct_s.mean()) for schedule in run.schedules]
    return float(np.mean([change_percent(*each) for each in zip(means, bound_s.tolist(), strict=True)]))
