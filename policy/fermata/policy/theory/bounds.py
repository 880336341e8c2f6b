"""What no schedule can beat, so that a report can show how much is left to gain.

All of these see every arrival and every duration in advance or let jobs be preempted, which no policy here may. Jobs
are arrays; where they come from is not known here. Two of the three are proofs about the *sum over all jobs of the
trace*; a mean that leaves warm-up jobs out is then a bound in practice only.

- `pooled_srpt`: one executor k times as fast, preemptive. A bound for any jobs given by their work, DAG jobs too.
- `mean_busy_time`: the sharper bound for one-stage jobs without preemption.
- `srpt`: k executors, preemptive. Not a bound (SRPT is optimal on one executor only), but an optimistic reference that
  is close to what preemption can give.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fermata.policy._jit import jit

FloatArray = NDArray[np.float64]


@jit
def _serve_first(
    arrival_s: FloatArray, size_s: FloatArray, executors: int, speed: float, by_remaining: bool
) -> tuple[FloatArray, FloatArray]:
    """Run the first `executors` jobs of a sorted line at `speed`, and return completions and mean busy times.

    The line is kept in order of remaining time or of size. What runs is its head, and running only makes remaining
    times smaller, so the order never has to be repaired. Inserting costs one shift: quick while queues are short.
    """
    jobs = len(arrival_s)
    completion_s, busy_moment = np.zeros(jobs), np.zeros(jobs)
    left_s, key, line = size_s / speed, np.empty(jobs), np.empty(jobs, np.int64)
    waiting, arrived, now_s = 0, 0, 0.0
    while arrived < jobs or waiting > 0:
        running = min(waiting, executors)
        step_s = arrival_s[arrived] - now_s if arrived < jobs else np.inf
        first = -1  # the place in line that ends before the next arrival
        for place in range(running):
            if left_s[line[place]] <= step_s:
                step_s, first = left_s[line[place]], place
        for place in range(running):
            job = line[place]
            busy_moment[job] += step_s * (now_s + step_s / 2.0)
            left_s[job] -= step_s
            if by_remaining:
                key[place] = left_s[job]
        now_s += step_s
        if first >= 0:
            completion_s[line[first]] = now_s
            waiting -= 1
            for place in range(first, waiting):
                key[place], line[place] = key[place + 1], line[place + 1]
            continue
        now_s = arrival_s[arrived]  # not the sum, which rounds
        new_key = left_s[arrived] if by_remaining else size_s[arrived]
        place = waiting
        while place > 0 and key[place - 1] > new_key:
            key[place], line[place] = key[place - 1], line[place - 1]
            place -= 1
        key[place], line[place] = new_key, arrived
        waiting += 1
        arrived += 1
    return completion_s, busy_moment / (size_s / speed)


def _checked(arrival_s: FloatArray, size_s: FloatArray, executors: int) -> None:
    if arrival_s.shape != size_s.shape or arrival_s.ndim != 1:
        raise ValueError(f"arrivals {arrival_s.shape} and sizes {size_s.shape} must be two arrays [jobs]")
    if executors < 1:
        raise ValueError(f"executors must be at least 1, not {executors}")
    if np.any(np.diff(arrival_s) < 0.0) or not np.all(np.isfinite(arrival_s)):
        raise ValueError("arrivals must be finite and in order")
    if not np.all((size_s > 0.0) & np.isfinite(size_s)):
        raise ValueError("sizes must be finite and positive")


def srpt_jct_s(arrival_s: FloatArray, size_s: FloatArray, executors: int) -> FloatArray:
    """Return each job's JCT under preemptive SRPT on k executors: an optimistic reference, not a proof.

    Args:
        arrival_s: [jobs] ascending, seconds.
        size_s: [jobs] durations on one executor, seconds, positive.
        executors: k, at least 1.

    Returns:
        [jobs] seconds.

    Raises:
        ValueError: arrays that do not fit each other, arrivals out of order, sizes that are not positive.

    Source: Schrage (1968) for its optimality on one executor.
    """
    _checked(arrival_s, size_s, executors)
    return _serve_first(arrival_s, size_s, executors, 1.0, True)[0] - arrival_s


def pooled_srpt_jct_s(arrival_s: FloatArray, work_s: FloatArray, executors: int) -> FloatArray:
    """Return each job's JCT under preemptive SRPT on one executor that is k times as fast.

    Its sum over all jobs is a lower bound for every schedule on k executors, whatever the jobs' structure: whatever k
    executors do in an interval, the pooled one can do in the same interval.

    Args:
        arrival_s: [jobs] ascending, seconds.
        work_s: [jobs] executor-seconds of all tasks, positive.
        executors: k, at least 1.

    Returns:
        [jobs] seconds.

    Raises:
        ValueError: arrays that do not fit each other, arrivals out of order, work that is not positive.

    Source: Schrage (1968) on the relaxed instance.
    """
    _checked(arrival_s, work_s, executors)
    return _serve_first(arrival_s, work_s, 1, float(executors), True)[0] - arrival_s


def mean_busy_time_jct_s(arrival_s: FloatArray, size_s: FloatArray, executors: int) -> FloatArray:
    """Return for each one-stage job its term of the mean-busy-time bound on JCT without preemption.

    A job that runs without preemption ends half its duration after its mean busy time. The sum of mean busy times is
    least on one executor k times as fast that always serves the shortest job by its *whole* size, preemptively. Only
    the sum over all jobs is a bound; one job's term may exceed its JCT in some schedule.

    Args:
        arrival_s: [jobs] ascending, seconds.
        size_s: [jobs] durations on one executor, seconds, positive.
        executors: k, at least 1.

    Returns:
        [jobs] seconds.

    Raises:
        ValueError: arrays that do not fit each other, arrivals out of order, sizes that are not positive.

    Source: Goemans' relaxation in completion and mean busy times (Goemans, Queyranne, Schulz, Skutella and Wang 2002;
        for identical machines Schulz and Skutella 2002), all weights 1.
    """
    _checked(arrival_s, size_s, executors)
    return _serve_first(arrival_s, size_s, 1, float(executors), False)[1] + size_s / 2.0 - arrival_s


def lower_bound_s(arrival_s: FloatArray, size_s: FloatArray, executors: int) -> float:
    """Return the best proven lower bound on the mean JCT of one-stage jobs without preemption, seconds.

    Args:
        arrival_s: [jobs] ascending, seconds.
        size_s: [jobs] durations on one executor, seconds, positive.
        executors: k, at least 1.

    Raises:
        ValueError: as the bounds that it takes the largest of.

    Source: the larger of `mean_busy_time_jct_s`, `pooled_srpt_jct_s` and the mean size.
    """
    return max(
        float(mean_busy_time_jct_s(arrival_s, size_s, executors).mean()),
        float(pooled_srpt_jct_s(arrival_s, size_s, executors).mean()),
        float(size_s.mean()),
    )
