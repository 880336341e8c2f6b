"""What estimates like this one turned out to be worth: estimates corrected by the stages that finished lately.

People give estimates that are off by a factor, and a policy that holds bets on lengths. But how they miss can be seen:
of each finished stage both is known, what it was given and what it took. So what a stage is expected to take is the
mean of what those took that were given about as much, lately. Where short and long stages differ by more than
estimates miss, that tells them apart nearly as well as the truth would.

It is no use where estimates are right, or where the same estimate means a short stage here and a long one there. So
each finished stage is also a test: the correction counts as long as it would have missed by clearly less than the
estimates themselves. Heuristics are given the estimates as they are; which policies are not says `corrects_estimates`.

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
_LARGEST = 1e100  # weight of a lesson above which the table is scaled down


@dataclass(slots=True)
class Lessons:
    """The one row of what is known of all lessons together."""

    seen: int = 0
    given_error: float = 0.0  # mean |ln(duration / estimate)|, fading over `MEMORY` stages
    corrected_error: float = 0.0  # the same of what the correction would have expected
    weight: float = 1.0  # of a lesson now: growing, so that those of before fade without being touched


class Correction(NamedTuple):
    """What finished stages took, by what they were given."""

    lessons: Rows[Lessons]
    weight: Values  # [_ENTRIES] lessons, fading
    seconds: Values  # [_ENTRIES] likewise, what a task took


def new_correction() -> Correction:
    """Return a correction that has learned nothing."""
    return Correction(new_rows(Lessons, 1), new_values(np.zeros(_ENTRIES)), new_values(np.zeros(_ENTRIES)))


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
    """Tell whether estimates are to be corrected now: enough was learned, and it would have missed by less."""
    row = past.lessons[0]
    enough = row.seen >= _LESSONS and row.given_error > _LEAST_ERROR
    return bool(enough and row.corrected_error < _GAIN * row.given_error)


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
