"""Should one job be held for another that may come? Theorems 1 and 2 of the idle-slots paper, corrected.

One executor, free now. The *first* job waits; the *second* arrives later. Without a hold the first starts at once and
the second waits for it; with a hold the second may pass. Where the paper's statements need repair the docstrings say
how. This module knows two jobs and one executor; what to do with queues is the heuristics' business.

Every cost is the mean JCT of the two jobs. Sizes of the second job come as a distribution: `second_s` with
probabilities `share`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from fermata.policy._jit import jit

# --- Theorem 1: the gap is known ---------------------------------------------------------------------------------


@jit
def mean_jct_at_once_s(first_s: float, second_s: float, gap_s: float) -> float:
    """Return the two jobs' mean JCT when the first starts at once.

    Args:
        first_s: length of the job that is there, seconds.
        second_s: length of the job that arrives, seconds.
        gap_s: when it arrives, from now, seconds, not negative.

    Source: the idle-slots paper, Figure 1 (20 s, 4 s, 2 s: 21 s).
    """
    return (first_s + max(first_s - gap_s, 0.0) + second_s) / 2.0


@jit
def mean_jct_held_s(first_s: float, second_s: float, gap_s: float) -> float:
    """Return the two jobs' mean JCT when the first is held until the second has arrived and run.

    Args:
        first_s: length of the job that is there, seconds.
        second_s: length of the job that arrives, seconds.
        gap_s: when it arrives, from now, seconds, not negative.

    Source: the idle-slots paper, Figure 1 (20 s, 4 s, 2 s: 15 s).
    """
    return (gap_s + second_s + first_s + second_s) / 2.0


@jit
def hold_pays(first_s: float, second_s: float, gap_s: float) -> bool:
    """Say whether holding the first job for a second one that comes after a known gap lowers the mean JCT.

    Args:
        first_s: length of the job that is there, seconds.
        second_s: length of the job that arrives, seconds.
        gap_s: when it arrives, from now, seconds, positive.

    Source: Theorem 1 with strict inequality, 0 < x < (l1 - l2) / 2; the paper's <= admits the tie.
    """
    return 0.0 < gap_s < (first_s - second_s) / 2.0


# --- Theorem 2: the gap is exponential ---------------------------------------------------------------------------


@jit
def committed_advantage(rate_per_s: float, first_s: float, mean_second_s: float) -> float:
    """Return A, whose sign says whether a committed hold pays: d1* > 0 exactly when A > 0.

    Args:
        rate_per_s: arrival rate of the second job, 1/s, positive.
        first_s: length of the first job, seconds.
        mean_second_s: mean length of the second, seconds.

    Source: A = lambda (l1 - E l2) - 2 + exp(-lambda l1), from the derivative of the theorem's integral at d = 0.
    """
    return rate_per_s * (first_s - mean_second_s) - 2.0 + math.exp(-rate_per_s * first_s)


@jit
def committed_hold_fixed_s(rate_per_s: float, first_s: float, second_s: float) -> float:
    """Return the best committed hold d1* of the first job when the second's length is known, seconds.

    Args:
        rate_per_s: arrival rate of the second job, 1/s, positive.
        first_s: length of the first job, seconds.
        second_s: length of the second, seconds.

    Source: d1* = ln(exp(lambda l2) + A) / lambda for A > 0, else 0; written so that it does not overflow.
    """
    advantage = committed_advantage(rate_per_s, first_s, second_s)
    if advantage <= 0.0:
        return 0.0
    return second_s + math.log1p(advantage * math.exp(-rate_per_s * second_s)) / rate_per_s


@jit
def committed_hold_two_point_s(
    rate_per_s: float, first_s: float, short_s: float, long_s: float, short_share: float
) -> float:
    """Return the best committed hold d1* when the second job is short or long, seconds.

    Args:
        rate_per_s: arrival rate of the second job, 1/s, positive.
        first_s: length of the first job, seconds.
        short_s: length of a short second job, seconds.
        long_s: length of a long one, seconds, at least `short_s`.
        short_share: probability that it is short, in (0, 1].

    Source: d1* = ln(exp(lambda s) + A/p) / lambda if that is at most L,
        else ln(p exp(lambda s) + (1-p) exp(lambda L) + A) / lambda.
    """
    mean_s = short_share * short_s + (1.0 - short_share) * long_s
    advantage = committed_advantage(rate_per_s, first_s, mean_s)
    if advantage <= 0.0:
        return 0.0
    hold_s = short_s + math.log1p(advantage / short_share * math.exp(-rate_per_s * short_s)) / rate_per_s
    if hold_s <= long_s:
        return hold_s
    # The larger exponential is taken out of the sum, so that it cannot overflow.
    rest = short_share * math.exp(rate_per_s * (short_s - long_s)) + advantage * math.exp(-rate_per_s * long_s)
    return long_s + math.log((1.0 - short_share) + rest) / rate_per_s


def committed_hold_s(rate_per_s: float, first_s: float, second_s: Sequence[float], share: Sequence[float]) -> float:
    """Return the best committed hold d1* for any discrete distribution of the second job's length, seconds.

    Args:
        rate_per_s: arrival rate of the second job, 1/s, positive.
        first_s: length of the first job, seconds.
        second_s: [sizes] possible lengths of the second, seconds.
        share: [sizes] their probabilities, which sum to 1.

    Source: the root of F(d) exp(lambda d) = A + sum of share * exp(lambda l) over l < d, of which the fixed and the
        two-point forms are special cases.
    """
    sizes = sorted((size, part) for size, part in zip(second_s, share, strict=True) if part > 0.0)
    advantage = committed_advantage(rate_per_s, first_s, sum(size * part for size, part in sizes))
    if advantage <= 0.0:
        return 0.0
    hold_s, below, scaled, at_s = 0.0, 0.0, 0.0, 0.0
    for index, (size_s, part) in enumerate(sizes):
        # `scaled` is the sum of share * exp(lambda (l - at)), carried from size to size so that it stays small.
        scaled = scaled * math.exp(rate_per_s * (at_s - size_s)) + part
        below, at_s = below + part, size_s
        hold_s = size_s + math.log((scaled + advantage * math.exp(-rate_per_s * size_s)) / below) / rate_per_s
        if index + 1 == len(sizes) or hold_s <= sizes[index + 1][0]:
            break
    return hold_s


@jit
def released_hold_pays(rate_per_s: float, first_s: float, mean_shorter_s: float) -> bool:
    """Say whether to hold until the next arrival, when an arrival ends the hold and the shorter job then goes first.

    There is no best finite timer: the cost is monotone in it, so the answer is hold for good or not at all.

    Args:
        rate_per_s: arrival rate of the second job, 1/s, positive.
        first_s: length of the first job, seconds.
        mean_shorter_s: E min(l1, l2), seconds.

    Source: hold iff lambda (l1 - E min(l1, l2)) > 2 - exp(-lambda l1). Theorem 2 as printed lets the second go first
        even when it is longer, and keeps the timer running after the second has finished.
    """
    return committed_advantage(rate_per_s, first_s, mean_shorter_s) > 0.0


# --- Their costs, which the closed forms minimise ----------------------------------------------------------------


@jit
def _timer_ran_out_s(hold_s: float, rate_per_s: float, first_s: float, second_s: float) -> float:
    """Return the part of the JCT sum where the second job comes after the timer: probability times expectation."""
    if math.isinf(hold_s):
        return 0.0
    overlap_s = first_s - (1.0 - math.exp(-rate_per_s * first_s)) / rate_per_s
    return math.exp(-rate_per_s * hold_s) * (hold_s + first_s + second_s + overlap_s)


@jit
def _mean_before_s(time_s: float, rate_per_s: float) -> float:
    """Return the integral of x over the exponential density from 0 to `time_s`."""
    if math.isinf(time_s):
        return 1.0 / rate_per_s
    return 1.0 / rate_per_s - (time_s + 1.0 / rate_per_s) * math.exp(-rate_per_s * time_s)


@jit
def committed_mean_jct_s(hold_s: float, rate_per_s: float, first_s: float, second_s: float) -> float:
    """Return the expected mean JCT under a timer that always runs out before the first job starts.

    A second job that comes in time runs at once, even if it is longer, and the first waits for both job and timer.
    For a random length take the expectation over it.

    Args:
        hold_s: the timer d1, seconds, finite.
        rate_per_s: arrival rate of the second job, 1/s, positive.
        first_s: length of the first job, seconds.
        second_s: length of the second, seconds.

    Source: the integral of Theorem 2.
    """
    early_s = max(hold_s - second_s, 0.0)  # a second job that comes before this is done when the timer runs out
    early, in_time = 1.0 - math.exp(-rate_per_s * early_s), 1.0 - math.exp(-rate_per_s * hold_s)
    start_s = hold_s * early + second_s * (in_time - early)
    start_s += _mean_before_s(hold_s, rate_per_s) - _mean_before_s(early_s, rate_per_s)
    passed_s = start_s + in_time * (first_s + second_s)
    return (passed_s + _timer_ran_out_s(hold_s, rate_per_s, first_s, second_s)) / 2.0


@jit
def released_mean_jct_s(hold_s: float, rate_per_s: float, first_s: float, second_s: float) -> float:
    """Return the expected mean JCT under a timer that an arrival ends, the shorter job then going first.

    For a random length take the expectation over it.

    Args:
        hold_s: the timer, seconds; infinity holds until the second job comes.
        rate_per_s: arrival rate of the second job, 1/s, positive.
        first_s: length of the first job, seconds.
        second_s: length of the second, seconds.

    Source: Theorem 2's setting with both corrections.
    """
    in_time = 1.0 if math.isinf(hold_s) else 1.0 - math.exp(-rate_per_s * hold_s)
    passed_s = _mean_before_s(hold_s, rate_per_s) + in_time * (min(first_s, second_s) + first_s + second_s)
    return (passed_s + _timer_ran_out_s(hold_s, rate_per_s, first_s, second_s)) / 2.0
