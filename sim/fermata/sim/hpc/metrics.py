"""What a schedule was worth: slowdowns, waits, utilisation and the queue, from start times alone."""

from __future__ import annotations

import numpy as np

from fermata.sim.hpc.jobs import FloatArray
from fermata.sim.hpc.simulate import Schedule
from fermata.sim.metrics import bounded_slowdown

LONG_S = 3600.0
WIDE_SHARE = 1 / 8

# Figures by their keys in JSON, with what tables call them.
FIGURES = {
    "bsld": "bounded slowdown, mean",
    "wait_s": "wait, mean (s)",
    "mbsld": "bounded slowdown, max",
    "slowdown": "slowdown, mean",
    "utilization": "utilisation",
    "utilization_no_tail": "utilisation until the last submission",
    "queue_length": "jobs waiting, mean",
    "queue_load": "work waiting, mean (machine-hours)",
    "max_wait_s": "wait, longest (s)",
    "wait_short_narrow_s": "wait, short narrow jobs (s)",
    "wait_short_wide_s": "wait, short wide jobs (s)",
    "wait_long_narrow_s": "wait, long narrow jobs (s)",
    "wait_long_wide_s": "wait, long wide jobs (s)",
    "rejections": "rejections",
}


def bounded_slowdowns(wait_s: FloatArray, runtime_s: FloatArray) -> FloatArray:
    """Return max(1, (wait + run time) / max(run time, 10 s)) of every job."""
    return bounded_slowdown(wait_s + runtime_s, runtime_s)


def figures(schedule: Schedule) -> dict[str, float]:
    """Return all of `FIGURES` of a schedule; what there is nothing of is NaN, as the mean of no job.

    The slowdown of a job that ran for less than a second is taken as if it had run for one. Utilisation with the tail
    counts from the first submission to the last end, as the queue's averages do; without, to the last submission, so
    of jobs that are all submitted at one instant there is none.
    Classes are split at one hour and at an eighth of the machine. Jobs of a warm-up are in no mean and no maximum; what
    they do between the first submission and the last end of the others is work of the machine, and its queue.
    """
    log, counted = schedule.log, slice(schedule.warm, None)
    wait, run, cores = schedule.wait_s[counted], schedule.runtime_s[counted], log.cores[counted]
    bounded = bounded_slowdowns(wait, run)
    first, last = float(log.submit_s[schedule.warm]), float(log.submit_s[-1])
    end = float(schedule.end_s[counted].max())
    span, run_or_second = max(end - first, 1e-9), np.maximum(run, 1.0)
    work = log.cores * _within(first, end, schedule.start_s, schedule.end_s, schedule.runtime_s)
    queued = _within(first, end, log.submit_s, schedule.start_s, schedule.wait_s)
    started = np.maximum(schedule.start_s, first)
    until_last = np.clip(np.minimum(schedule.end_s, last) - started, 0.0, None) * log.cores
    long, wide = run > LONG_S, cores > WIDE_SHARE * log.machine_cores
    return {
        "bsld": float(bounded.mean()),
        "wait_s": float(wait.mean()),
        "mbsld": float(bounded.max()),
        "slowdown": float(((wait + run_or_second) / run_or_second).mean()),
        "utilization": float(work.sum() / (span * log.machine_cores)),
        "utilization_no_tail": _share(float(until_last.sum()), (last - first) * log.machine_cores),
        "queue_length": float(queued.sum() / span),
        "queue_load": float((queued * (schedule.runtime_s * log.cores)).sum() / span / log.machine_cores / 3600.0),
        "max_wait_s": float(wait.max()),
        "wait_short_narrow_s": _mean(wait[~long & ~wide]),
        "wait_short_wide_s": _mean(wait[~long & wide]),
        "wait_long_narrow_s": _mean(wait[long & ~wide]),
        "wait_long_wide_s": _mean(wait[long & wide]),
        "rejections": float(schedule.rejections),
    }


def _within(first: float, last: float, begin_s: FloatArray, end_s: FloatArray, length_s: FloatArray) -> FloatArray:
    """Return how much of spans lies between two times, `[spans]`; all of the length, to the bit, of those inside."""
    outside = np.maximum(first - begin_s, 0.0) + np.maximum(end_s - last, 0.0)
    inside: FloatArray = np.maximum(length_s - outside, 0.0)
    return inside


def _share(used: float, offered: float) -> float:
    return used / offered if offered > 0.0 else float("nan")


def _mean(values: FloatArray) -> float:
    return float(values.mean()) if len(values) else float("nan")
