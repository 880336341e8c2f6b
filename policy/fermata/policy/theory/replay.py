"""Run a solved lattice policy on real arrival times: what the optimum of the lattice is worth off it.

The chain decides at slot boundaries; here time is continuous, remaining times are rounded up to slots, and the policy
is asked at every arrival, completion and change of the rounded state. So the result is what a real, causal policy
reaches on this trace: an upper bound on the optimum, where the chain's own figure is an estimate of it.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from fermata.policy._jit import jit
from fermata.policy.theory.iteration import Choice, Solution

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_WAIT, _START_SHORT = int(Choice.WAIT), int(Choice.START_SHORT)
# A remaining time this close above a slot boundary, in slots, is on it: sums of arrivals and sizes round.
_ON_BOUNDARY = 1e-6


@jit
def _slots_left(end_s: float, now_s: float, slot_s: float) -> int:
    return max(math.ceil((end_s - now_s) / slot_s - _ON_BOUNDARY), 0)


@jit
def _configuration(end_s: FloatArray, now_s: float, slot_s: float, base: int, table: IntArray) -> int:
    """Return the index of the sorted slots left, by their digits in `base`."""
    slots = np.empty(len(end_s), np.int64)
    for executor in range(len(end_s)):
        slots[executor] = _slots_left(end_s[executor], now_s, slot_s)
    slots.sort()
    code = np.int64(0)
    for digit in slots:
        code = code * base + digit
    return int(table[code])


@jit
def _next_change_s(end_s: FloatArray, now_s: float, slot_s: float, held: bool) -> float:
    """Return when a job ends next or, where an executor is held, when the rounded state changes next."""
    next_s = math.inf
    for executor in range(len(end_s)):
        if end_s[executor] > now_s:
            left = max(_slots_left(end_s[executor], now_s, slot_s) - 1, 0) if held else 0
            next_s = min(next_s, end_s[executor] - left * slot_s)
    return next_s


@jit
def _replay(
    arrival_s: FloatArray,
    size_s: FloatArray,
    is_long: NDArray[np.bool_],
    choices: NDArray[np.int8],
    table: IntArray,
    slot_s: float,
    base: int,
    executors: int,
) -> FloatArray:
    """Return each job's completion, 0 where it was never started."""
    jobs = len(arrival_s)
    completion_s, end_s = np.zeros(jobs), np.zeros(executors)
    shorts, longs = np.empty(jobs, np.int64), np.empty(jobs, np.int64)  # queues: from head to tail
    short_head, short_tail, long_head, long_tail, arrived = 0, 0, 0, 0, 0
    now_s = 0.0
    while arrived < jobs or short_head < short_tail or long_head < long_tail:
        while arrived < jobs and arrival_s[arrived] <= now_s:
            if is_long[arrived]:
                longs[long_tail] = arrived
                long_tail += 1
            else:
                shorts[short_tail] = arrived
                short_tail += 1
            arrived += 1
        free = 0
        while short_head < short_tail or long_head < long_tail:
            free = int(np.argmin(end_s))
            if end_s[free] > now_s:
                break
            here = _configuration(end_s, now_s, slot_s, base, table)
            long_waiting = min(long_tail - long_head, choices.shape[1] - 1)
            short_waiting = min(short_tail - short_head, choices.shape[2] - 1)
            choice = choices[here, long_waiting, short_waiting]
            if choice == _WAIT:
                break
            if choice == _START_SHORT:
                job = shorts[short_head]
                short_head += 1
            else:
                job = longs[long_head]
                long_head += 1
            end_s[free] = now_s + size_s[job]
            completion_s[job] = end_s[free]
        held = end_s[free] <= now_s and (short_head < short_tail or long_head < long_tail)
        next_s = min(arrival_s[arrived] if arrived < jobs else math.inf, _next_change_s(end_s, now_s, slot_s, held))
        if next_s == math.inf:
            break
        now_s = next_s
    return completion_s


def replay_jct_s(solution: Solution, arrival_s: FloatArray, is_long: NDArray[np.bool_]) -> FloatArray:
    """Return each job's JCT when a solved lattice policy schedules a trace of the two classes.

    Args:
        solution: solved on a `lattice_chain`.
        arrival_s: [jobs] ascending, not negative, seconds.
        is_long: [jobs] the class of each job.

    Returns:
        [jobs] seconds.

    Raises:
        ValueError: a chain of exponential durations, which has no remaining times; or a policy that leaves jobs
            waiting while nothing runs and nothing arrives.
    """
    chain = solution.chain
    executors, base = chain.classes.executors, chain.long_slots + 1
    if chain.long_slots == 0:
        raise ValueError("only a policy solved on a lattice of fixed durations can be replayed")
    codes = chain.configurations @ (base ** np.arange(executors - 1, -1, -1))
    table = np.full(base**executors, -1, np.int64)
    table[codes] = np.arange(len(codes))
    size_s = np.where(is_long, chain.classes.long_s, chain.classes.short_s)
    completion_s = _replay(arrival_s, size_s, is_long, solution.choices, table, chain.period_s, base, executors)
    if not np.all(completion_s > 0.0):
        raise ValueError(f"{np.sum(completion_s == 0.0)} jobs were never started")
    return completion_s - arrival_s
