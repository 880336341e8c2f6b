"""Waits that queueing theory knows exactly: what a simulator has to reproduce before its other figures count.

Formulas only. All of them are for the steady state, jobs of one stage and Poisson arrivals; the wait ends when the
job starts.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise


def _check_load(load: float) -> None:
    if not 0.0 <= load < 1.0:
        raise ValueError(f"load {load:g} has no steady state; expected 0 <= load < 1")


def erlang_c(executors: int, offered: float) -> float:
    """Return the probability that a job has to wait in M/M/k.

    Args:
        executors: k, at least 1.
        offered: arrival rate times mean duration, in [0, k).

    Raises:
        ValueError: offered work that k executors cannot do.

    Source: Erlang's delay formula, by the recursion of Erlang's loss formula.

    >>> round(erlang_c(2, 1.0), 6)
    0.333333
    """
    load = offered / executors
    _check_load(load)
    blocked = 1.0
    for servers in range(1, executors + 1):
        blocked = offered * blocked / (servers + offered * blocked)
    return blocked / (1.0 - load * (1.0 - blocked))


def mmk_wait_s(rate_per_s: float, mean_s: float, executors: int) -> float:
    """Return the mean wait in M/M/k under any order that does not look at durations, seconds.

    Args:
        rate_per_s: arrival rate, 1/s.
        mean_s: mean duration, seconds.
        executors: k, at least 1.

    Raises:
        ValueError: load of 1 or more.

    Source: C(k, a) / (k/mean - rate).
    """
    wait_probability = erlang_c(executors, rate_per_s * mean_s)
    return wait_probability / (executors / mean_s - rate_per_s)


def mg1_wait_s(rate_per_s: float, mean_s: float, second_moment_s2: float) -> float:
    """Return the mean wait in M/G/1, first come first served, seconds.

    Args:
        rate_per_s: arrival rate, 1/s.
        mean_s: mean duration, seconds.
        second_moment_s2: mean squared duration, seconds squared.

    Raises:
        ValueError: load of 1 or more.

    Source: Pollaczek-Khinchine, rate E[S^2] / (2 (1 - load)).
    """
    load = rate_per_s * mean_s
    _check_load(load)
    return rate_per_s * second_moment_s2 / (2.0 * (1.0 - load))


def priority_waits_s(
    rate_per_s: Sequence[float], mean_s: Sequence[float], second_moment_s2: Sequence[float]
) -> list[float]:
    """Return each class's mean wait in M/G/1 with priorities and without preemption, seconds.

    Args:
        rate_per_s: [classes] arrival rates, 1/s, the most urgent class first.
        mean_s: [classes] mean durations, seconds.
        second_moment_s2: [classes] mean squared durations, seconds squared.

    Raises:
        ValueError: load of 1 or more.

    Source: Cobham (1954), W0 / ((1 - sigma_(i-1)) (1 - sigma_i)).
    """
    residual_s = sum(rate * square for rate, square in zip(rate_per_s, second_moment_s2, strict=True)) / 2.0
    waits_s, above = [], 0.0
    for rate, mean in zip(rate_per_s, mean_s, strict=True):
        upto = above + rate * mean
        _check_load(upto)
        waits_s.append(residual_s / ((1.0 - above) * (1.0 - upto)))
        above = upto
    return waits_s


def mmk_priority_waits_s(rate_per_s: Sequence[float], mean_s: float, executors: int) -> list[float]:
    """Return each class's mean wait in M/M/k with priorities, one mean duration and no preemption, seconds.

    Args:
        rate_per_s: [classes] arrival rates, 1/s, the most urgent class first.
        mean_s: mean duration of every class, seconds.
        executors: k, at least 1.

    Raises:
        ValueError: load of 1 or more.

    Source: Cobham (1954), several channels.
    """
    residual_s = erlang_c(executors, sum(rate_per_s) * mean_s) * mean_s / executors
    waits_s, above = [], 0.0
    for rate in rate_per_s:
        upto = above + rate * mean_s / executors
        waits_s.append(residual_s / ((1.0 - above) * (1.0 - upto)))
        above = upto
    return waits_s


def sjf_waits_s(rate_per_s: float, size_s: Sequence[float], share: Sequence[float]) -> list[float]:
    """Return the mean wait of each size in M/G/1 under SJF without preemption, seconds.

    Args:
        rate_per_s: arrival rate of all jobs, 1/s.
        size_s: [sizes] durations, ascending, seconds.
        share: [sizes] their probabilities, which sum to 1.

    Raises:
        ValueError: load of 1 or more, or sizes out of order.

    Source: Cobham's formula with one class a size (Phipps 1956).

    >>> [round(wait, 3) for wait in sjf_waits_s(0.02, [10.0, 50.0], [0.75, 0.25])]
    [8.235, 13.725]
    """
    if any(later < earlier for earlier, later in pairwise(size_s)):
        raise ValueError(f"sizes must ascend, not {list(size_s)}")
    rates = [rate_per_s * part for part in share]
    return priority_waits_s(rates, size_s, [size * size for size in size_s])
