"""Task durations that depend on what the executor did before, and on how many executors its job has.

Spark's tasks are slow on an executor that has just come to the job (it loads the code), less slow on one that comes
from another stage, and fast in the later waves of a stage; and they get slower as more executors share the machines.
Decima's model draws every task's duration from measured lists, by this situation and by the nearest executor counts
that were measured. The lists are laid out here as flat arrays, with every fallback resolved, so that the engine finds a
duration with three look-ups. Nothing here knows jobs, times or policies.

Source: https://github.com/hongzimao/decima-sim (`spark_env/node.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fermata.policy._jit import inlined
from fermata.policy.errors import InputError

IntArray = NDArray[np.int64]
IndexArray = NDArray[np.int32]

# What the executor did before: nothing in this job (or it idled), another stage of the job, the same stage.
FRESH, FIRST, REST = range(3)
# Executor counts at which durations were measured.
MEASURED = (5, 10, 20, 40, 50, 60, 80, 100)
# Columns of `Waves.grid` and of `Waves.lists`.
_LEVEL, _SPAN, _ABOVE = range(3)
_START, _LENGTH, _EXTRA = range(3)


class Waves(NamedTuple):
    """Measured durations of the stages of an episode; read only."""

    grid: IntArray  # [executors + 1, 3] by executors of the job: measured level below, gap to the next, how far above
    lists: IntArray  # [stages, levels, situations, 3] start and length of a list of durations, ms to add to each
    duration_ms: IndexArray  # [durations] all lists, one after the other
    draws: NDArray[np.uint32]  # [draws] random words, taken in turn; the first follows the last
    sampled: bool  # draw from a list; else take its first duration


def grid_of(executors: int) -> IntArray:
    """Return for 0 to `executors` executors between which measured counts they lie (`Waves.grid`)."""
    grid = np.zeros((executors + 1, 3), np.int64)
    last = len(MEASURED) - 1
    for count in range(executors + 1):
        level = max((i for i, measured in enumerate(MEASURED) if measured <= count), default=0)
        between = level < last and count > MEASURED[level]
        span, above = (MEASURED[level + 1] - MEASURED[level], count - MEASURED[level]) if between else (0, 0)
        grid[count] = level, span, above
    return grid


def lists_of(stages: Sequence[tuple[Mapping[int, Sequence[int]], ...]], warm_up_ms: int) -> tuple[IntArray, IndexArray]:
    """Lay out the durations of different stages (`Waves.lists` and `Waves.duration_ms`).

    Args:
        stages: for each stage the fresh, first and rest lists in ms, each by measured executor count.
        warm_up_ms: what a fresh task takes longer than a first one where no fresh one was measured.

    Raises:
        InputError: a stage without a duration that a situation could fall back to.
    """
    lists = np.zeros((len(stages), len(MEASURED), 3, 3), np.int64)
    flat: list[int] = []
    for row, (fresh, first, rest) in enumerate(stages):
        seen: dict[tuple[int, ...], int] = {}
        for level, count in enumerate(MEASURED):
            # A query with fewer tasks than executors was measured up to a lower count.
            key = count if count in first else max(first)
            choices = {
                FRESH: ((fresh[key], 0), (first[key], warm_up_ms)),
                FIRST: ((first[key], 0), (fresh[key], 0)),
                REST: ((rest[key], 0), (first[key], 0), (fresh[key], 0)),
            }
            for situation, options in choices.items():
                durations, extra_ms = next(((tuple(found), extra) for found, extra in options if found), ((), 0))
                if not durations:
                    raise InputError(f"stage {row} has no measured duration on {key} executors")
                if durations not in seen:
                    seen[durations] = len(flat)
                    flat.extend(durations)
                lists[row, level, situation] = seen[durations], len(durations), extra_ms
    return lists, np.array(flat, np.int32)


@inlined
def below(draws: NDArray[np.uint32], at: int, bound: int) -> tuple[int, int]:
    """Return a number in [0, `bound`) and the position of the next word, drawn as `numpy.random.RandomState` does."""
    if bound <= 1:
        return 0, at
    mask = 1
    while mask < bound - 1:
        mask = 2 * mask + 1
    while True:
        number = int(draws[at]) & mask
        at = at + 1 if at + 1 < len(draws) else 0
        if number < bound:
            return number, at


@inlined
def task_duration_ms(waves: Waves, at: int, stage: int, situation: int, attached: int) -> tuple[int, int]:
    """Return the duration of one task and the position of the next random word.

    Between two measured executor counts the lower one is taken with probability (attached - lower) / gap: the published
    simulators have it this way around, and their results can only be reproduced so.
    """
    level, span = waves.grid[attached, _LEVEL], waves.grid[attached, _SPAN]
    if span > 0:
        point, at = below(waves.draws, at, span)
        if point + 1 > waves.grid[attached, _ABOVE]:
            level += 1
    pick = waves.lists[stage, level, situation, _START]
    if waves.sampled:
        chosen, at = below(waves.draws, at, waves.lists[stage, level, situation, _LENGTH])
        pick += chosen
    return int(waves.duration_ms[pick] + waves.lists[stage, level, situation, _EXTRA]), at
