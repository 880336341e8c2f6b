"""What estimates like this one turned out to be worth: estimates corrected by the stages that finished lately.

People give estimates that are off by a factor, and a policy that holds bets on lengths. But how they miss can be seen:
of each finished stage both is known, what it was given and what it took. So what a stage is expected to take is the
mean of what those took that were given about as much, lately. Where short and long stages differ by more than
estimates miss, that tells them apart nearly as well as the truth would.

It is no use where estimates are right, or where the same estimate means a short stage here and a long one there. So
each finished stage is also a test: the correction counts as long as it would have missed by clearly less than the
estimates themselves. Heuristics are given the estimates as they are; which policies are not says `corrects_estimates`.

Stages that are expected rightly one by one may add up to jobs in a wrong order: where what short jobs have many of is
taken for the stages of long ones, and is what it is taken for in a few of them. So each finished job is a test as well,
of the order among recent jobs. To serve the longer of two first costs the difference of their lengths; corrected
estimates must not cost more of that than those that were given.

The memory is a table by the logarithm of the estimate, so a lesson and a look cost the same whatever is remembered.
Pure: the simulator and the operator keep a `Correction` each.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fermata.policy._jit import inlined, kernel, part
from fermata.policy.estimate_error import MEMORY
from fermata.policy.rows import Rows, Values, copy_row, new_rows, new_values

_STEP = math.log(2.0) / 4.0  # of the logarithm of an estimate, from one entry of the table to the next
_ENTRIES, _ZERO = 320, 160  # of the table, and that of one second: from 1e-12 to 1e12 seconds
_REACH = 4  # entries on each side that a look weighs, by a bell curve of half that deviation
_REMEMBERED = 400  # stages over which what was learned fades, as many as a state carries arrivals
_BELIEF = 0.3  # stages that an estimate itself counts for
_LESSONS = 40  # stages before any estimate is corrected
_GAIN = 0.9  # of the estimates' mean error, at most, is what the correction's must be
_LEAST_ERROR = 0.05  # mean error of estimates below which there is nothing to correct
_LEAST_S = 1e-3  # what counts as no time at all
_JOBS = 50  # recent jobs that a finished one is compared with
_DISORDER, _CHANCE = 1.05, 0.03  # times the given estimates' disorder, and a share more, that corrected ones may have
_ALIKE = 1.25  # times as long: what is expected of the same estimate drifts by as much, and that orders nothing
_LARGEST = 1e100  # weight of a lesson above which the table is scaled down


@dataclass(slots=True)
class Lessons:
    """The one row of what is known of all lessons together."""

    seen: int = 0
    given_error: float = 0.0  # mean |ln(duration / estimate)|, fading over `MEMORY` stages
    corrected_error: float = 0.0  # the same of what the correction would have expected
    jobs: int = 0
    # What a wrong order of recent jobs would cost as a share of what the wrong order of all would, fading over `MEMORY`
    # jobs: by the work that was given, and by the correction's.
    given_disorder: float = 0.0
    corrected_disorder: float = 0.0
    weight: float = 1.0  # of a lesson now: growing, so that those of before fade without being touched


@dataclass(slots=True)
class FinishedJob:
    """Executor-seconds of a job's stages."""

    given_s: float = 0.0
    corrected_s: float = 0.0  # as each one was expected just before it finished
    took_s: float = 0.0


class Correction(NamedTuple):
    """What finished stages took, by what they were given."""

    lessons: Rows[Lessons]
    weight: Values  # [_ENTRIES] lessons, fading
    seconds: Values  # [_ENTRIES] likewise, what a task took
    jobs: Rows[FinishedJob]  # [_JOBS] that finished lately, the oldest replaced first


def new_correction() -> Correction:
    """Return a correction that has learned nothing."""
    weight, seconds = new_values(np.zeros(_ENTRIES)), new_values(np.zeros(_ENTRIES))
    return Correction(new_rows(Lessons, 1), weight, seconds, new_rows(FinishedJob, _JOBS))


@inlined
def _entry_of(estimate_s: float) -> int:
    """Return the entry of the table for an estimate above 0."""
    entry = _ZERO + math.floor(math.log(estimate_s) / _STEP + 0.5)
    return int(min(max(entry, _REACH), _ENTRIES - 1 - _REACH))


@kernel
def corrected_s(past: Correction, estimate_s: float) -> float:
    """Return the seconds that a task is expected to take by what tasks took that were given about as much.

    Args:
        past: what was learned.
        estimate_s: what it is given, above 0.

    Source: kernel regression (Nadaraya and Watson) of the duration on the logarithm of the estimate.
    """
    entry = _entry_of(estimate_s)
    belief = _BELIEF * past.lessons[0].weight
    weight, total = belief, belief * estimate_s
    for off in range(-_REACH, _REACH + 1):
        near = math.exp(-0.5 * (2.0 * off / _REACH) ** 2)
        weight += near * past.weight[entry + off]
        total += near * past.seconds[entry + off]
    return float(total / weight)


@inlined
def pays(past: Correction) -> bool:
    """Tell whether estimates are to be corrected now: enough was learned, and corrected they would have been better."""
    row = past.lessons[0]
    enough = row.seen >= _LESSONS and row.given_error > _LEAST_ERROR
    in_order = row.corrected_disorder <= _DISORDER * row.given_disorder + _CHANCE
    return bool(enough and in_order and row.corrected_error < _GAIN * row.given_error)


@kernel
def learn(past: Correction, estimate_s: float, duration_s: float) -> None:
    """Take one finished stage.

    Args:
        past: written to.
        estimate_s: what a task of it was given, not corrected; what is not above 0 says nothing and is left out.
        duration_s: what a task of it took, in the mean.
    """
    if not estimate_s > 0.0:
        return
    row = past.lessons[0]
    took_s = max(duration_s, _LEAST_S)
    share = 1.0 / min(row.seen + 1, MEMORY)
    row.given_error += share * (_off(took_s, estimate_s) - row.given_error)
    row.corrected_error += share * (_off(took_s, corrected_s(past, estimate_s)) - row.corrected_error)
    row.seen += 1
    row.weight *= _REMEMBERED / (_REMEMBERED - 1.0)
    if row.weight > _LARGEST:
        _scale_down(past)
    entry = _entry_of(estimate_s)
    past.weight[entry] += row.weight
    past.seconds[entry] += row.weight * took_s


@kernel
def learn_order(past: Correction, given_s: float, expected_s: float, took_s: float) -> None:
    """Take one finished job, in executor-seconds of those of its stages that were given estimates.

    Args:
        past: written to.
        given_s: as they were given.
        expected_s: as the correction expected each of them when it finished; see `corrected_s`.
        took_s: as they took.

    Source: what a wrong pair costs is the exchange argument for shortest first (Smith, 1956).
    """
    row = past.lessons[0]
    total_s, given_wrong_s, corrected_wrong_s = 0.0, 0.0, 0.0
    for i in range(min(row.jobs, _JOBS)):
        other = past.jobs[i]
        longer_s = took_s - other.took_s
        total_s += abs(longer_s)
        given_wrong_s += _wrong_s(given_s, other.given_s, longer_s)
        corrected_wrong_s += _wrong_s(expected_s, other.corrected_s, longer_s)
    oldest = past.jobs[row.jobs % _JOBS]
    oldest.given_s, oldest.corrected_s, oldest.took_s = given_s, expected_s, took_s
    row.jobs += 1
    if total_s > 0.0:
        share = 1.0 / min(row.jobs - 1, MEMORY)  # the first one had nothing to be compared with
        row.given_disorder += share * (given_wrong_s / total_s - row.given_disorder)
        row.corrected_disorder += share * (corrected_wrong_s / total_s - row.corrected_disorder)


@inlined
def _wrong_s(one_s: float, other_s: float, longer_s: float) -> float:
    """Return what it costs to order two jobs by what is expected, if one took so much longer than the other."""
    if max(one_s, other_s) < _ALIKE * min(one_s, other_s):
        return 0.5 * abs(longer_s)
    return abs(longer_s) if (one_s > other_s) != (longer_s > 0.0) else 0.0


@inlined
def _off(took_s: float, expected_s: float) -> float:
    return abs(math.log(took_s / max(expected_s, _LEAST_S)))


@part
def _scale_down(past: Correction) -> None:
    """Let a lesson of now count 1 again, and those of before in proportion."""
    scale = 1.0 / past.lessons[0].weight
    for entry in range(_ENTRIES):
        past.weight[entry] *= scale
        past.seconds[entry] *= scale
    past.lessons[0].weight = 1.0


@part
def copy_correction(to: Correction, past: Correction) -> None:
    """Make one correction know what another does."""
    copy_row(to.lessons, 0, past.lessons, 0)
    for entry in range(_ENTRIES):
        to.weight[entry] = past.weight[entry]
        to.seconds[entry] = past.seconds[entry]
    for i in range(_JOBS):
        copy_row(to.jobs, i, past.jobs, i)
