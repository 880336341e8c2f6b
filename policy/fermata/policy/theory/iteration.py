"""Relative value iteration over a two-class chain: the least mean JCT a family of policies can reach, and how.

The gain of the chain is the mean number of jobs in the system; by Little's law that is the mean JCT times the arrival
rate. MacQueen's bounds enclose the gain at every step, so the answer comes with its own error. This module knows only
the tables of a `Chain`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from fermata.policy._jit import jit
from fermata.policy.theory.chain import Chain

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


class Family(IntEnum):
    """Which policies are allowed."""

    SJF = 0  # a free executor takes a short job, else a long one: nothing to choose
    WORK_CONSERVING = 1  # a free executor takes some job
    IDLING = 2  # a free executor may stay idle


class Choice(IntEnum):
    """What a solved policy does in a state."""

    WAIT = 0
    START_SHORT = 1
    START_LONG = 2


_SJF, _WORK_CONSERVING, _IDLING = int(Family.SJF), int(Family.WORK_CONSERVING), int(Family.IDLING)
_WAIT, _START_SHORT, _START_LONG = int(Choice.WAIT), int(Choice.START_SHORT), int(Choice.START_LONG)
# Waiting has to be better by more than rounding: a tie goes to work.
_TIE = 1e-9


@dataclass(frozen=True)
class Solution:
    """A solved policy.

    Attributes:
        chain: the tables it was solved on.
        family: the policies it is best among.
        mean_jct_s: middle of the bounds, seconds.
        error_s: half the distance between the bounds, seconds.
        sweeps: value iterations it took.
        values: [configurations, longs waiting, shorts waiting] relative values, in jobs x periods.
        choices: the same shape; a `Choice`.
    """

    chain: Chain
    family: Family
    mean_jct_s: float
    error_s: float
    sweeps: int
    values: FloatArray
    choices: NDArray[np.int8]


@jit
def _expect(
    values: FloatArray,
    first: int,
    last: int,
    edge_to: IntArray,
    edge_longs: IntArray,
    edge_shorts: IntArray,
    edge_probability: FloatArray,
    out: FloatArray,
) -> None:
    """Add to `out` [longs, shorts] the expected value after one period, over the edges `first` to `last`."""
    longs, shorts = out.shape
    for edge in range(first, last):
        probability, more = edge_probability[edge], min(edge_shorts[edge], shorts - 1)
        for long in range(longs):
            row = values[edge_to[edge], min(long + edge_longs[edge], longs - 1), more:]
            into = out[long]
            for short in range(len(row)):  # from 0 over a slice, so that the compiler can vectorise it
                into[short] += probability * row[short]
            for short in range(len(row), shorts):
                into[short] += probability * row[-1]


@jit
def _sweep(
    values: FloatArray,
    gain: float,
    family: int,
    busy: IntArray,
    start_short: IntArray,
    start_long: IntArray,
    edge_ptr: IntArray,
    edge_to: IntArray,
    edge_longs: IntArray,
    edge_shorts: IntArray,
    edge_probability: FloatArray,
    new: FloatArray,
    choices: NDArray[np.int8],
) -> tuple[float, float]:
    """Apply the optimality operator once, less `gain`; return the least and the largest increase of any value.

    Configurations with more running come first, so the state that a start leads to has its new value already.
    """
    configurations, longs, shorts = values.shape
    least, largest = math.inf, -math.inf
    wait = np.empty((longs, shorts))
    for here in range(configurations):
        for long in range(longs):
            for short in range(shorts):
                wait[long, short] = busy[here] + long + short - gain
        _expect(values, edge_ptr[here], edge_ptr[here + 1], edge_to, edge_longs, edge_shorts, edge_probability, wait)
        with_short, with_long = start_short[here], start_long[here]
        for long in range(longs):
            for short in range(shorts):
                best, choice = wait[long, short], _WAIT
                if with_short >= 0 and long + short > 0:
                    start, action = math.inf, _WAIT
                    if short > 0:
                        start, action = new[with_short, long, short - 1], _START_SHORT
                    if long > 0 and (family != _SJF or short == 0) and new[with_long, long - 1, short] < start:
                        start, action = new[with_long, long - 1, short], _START_LONG
                    if family != _IDLING or start <= best + _TIE:
                        best, choice = start, action
                new[here, long, short] = best
                choices[here, long, short] = choice
                change = best - values[here, long, short]
                least, largest = min(least, change), max(largest, change)
    return least, largest


def solve(
    chain: Chain,
    family: Family,
    *,
    tolerance: float = 1e-4,
    start: Solution | None = None,
    max_sweeps: int = 200_000,
    progress: Callable[[int, float, float], None] | None = None,
) -> Solution:
    """Return the best policy of a family and its mean JCT.

    Args:
        chain: the tables.
        family: the policies to choose among.
        tolerance: relative half-width of the bounds on the gain at which to stop.
        start: a solution on a chain of the same shape to begin from; saves most of the sweeps.
        max_sweeps: give up after so many.
        progress: called now and then with the sweep, the mean JCT so far and its error, both in seconds.

    Raises:
        ArithmeticError: the bounds did not close within `max_sweeps`.

    Source: relative value iteration with MacQueen's bounds (Puterman 1994, section 8.5).
    """
    values = np.zeros(chain.shape) if start is None else start.values.copy()
    new, choices = np.empty(chain.shape), np.zeros(chain.shape, np.int8)
    tables = (chain.busy, chain.start_short, chain.start_long, chain.edge_ptr, chain.edge_to)
    arrivals = (chain.edge_longs, chain.edge_shorts, chain.edge_probability)
    gain, rate_per_s = 0.0, chain.classes.rate_per_s
    for sweep in range(1, max_sweeps + 1):
        least, largest = _sweep(values, gain, int(family), *tables, *arrivals, new, choices)
        values, new = new, values
        middle, half = gain + (least + largest) / 2.0, (largest - least) / 2.0
        done = half <= tolerance * middle
        if progress is not None and (done or sweep % 50 == 0):
            progress(sweep, middle / rate_per_s, half / rate_per_s)
        if done:
            return Solution(chain, family, middle / rate_per_s, half / rate_per_s, sweep, values, choices)
        # Whatever is subtracted cancels in the bounds; the current estimate keeps the values from growing.
        gain = middle
    raise ArithmeticError(f"value iteration did not reach a relative error of {tolerance:g} in {max_sweeps} sweeps")
