"""Compiled: a policy over the whole queue, which scores every job that fits and starts the best, or waits.

Every waiting job is scored by the same small network from its own features, the machine's state and aggregates of the
queue, so the answer does not depend on the order in which jobs are listed, nor on how many there are. Waiting scores
zero: a job is started only if it beats that. Scores are taken anew after every start, and at every event.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fermata.policy._jit import kernel
from fermata.policy.queue_features import BOUND_S, DAY_S, FEATURES, INTERVAL_S
from fermata.sim.hpc.events import advance, recent_submissions, start_job, take
from fermata.sim.hpc.shadow import expected_end, shadow
from fermata.sim.hpc.world import (
    DECISIONS,
    FREE,
    INSTANTS,
    MACHINE,
    NEXT,
    NOW,
    RUNNING,
    WAITING,
    WAKE,
    Config,
    Jobs,
    World,
)

FloatArray = NDArray[np.float64]

LONGEST_IDLE_S = 43_200.0
HIDDEN_UNITS = 16
PARAMETERS = FEATURES + 1 + HIDDEN_UNITS * (FEATURES + 2)


class Scorer(NamedTuple):
    """A network and the room that it works in."""

    theta: FloatArray  # [PARAMETERS]: FEATURES + 1 of the direct path, then the layer's weights by feature, its biases,
    # and its output weights
    machine: FloatArray  # [FEATURES] what all jobs of a decision have in common
    seen: FloatArray  # [FEATURES]
    hidden: FloatArray  # [HIDDEN_UNITS]
    log_estimate: FloatArray  # [jobs]
    idle_since: FloatArray  # [1] s; infinity while something runs


@kernel
def run_scored(jobs: Jobs, config: Config, world: World, scorer: Scorer) -> bool:
    """Run on for at most `INSTANTS` and tell whether every job has started; starts are in `world.start`.

    The queue's order is that of `jobs.rank`.
    """
    for _ in range(INSTANTS):
        if not advance(jobs, config, world):
            return True
        while world.counts[WAITING] > 0 and _start_best(jobs, config, world, scorer):
            pass
        if world.counts[NEXT] == len(jobs.submit) and world.counts[WAITING] == 0:
            return True
    return False


@kernel
def _start_best(jobs: Jobs, config: Config, world: World, scorer: Scorer) -> bool:
    """Start the job with the highest score; returns False if waiting beats it, or nothing fits.

    A machine is never left idle for more than `LONGEST_IDLE_S` while jobs wait, nor when nothing more will come.
    """
    free, best, place_of_best, now = world.counts[FREE], 0.0, -1, world.clock[NOW]
    if world.counts[RUNNING] == 0:
        scorer.idle_since[0] = min(scorer.idle_since[0], now)
        if now >= scorer.idle_since[0] + LONGEST_IDLE_S or world.counts[NEXT] == len(jobs.submit):
            best = -np.inf
    size = world.counts[WAITING]
    smallest = world.counts[MACHINE] + 1
    for place in range(size):
        smallest = min(smallest, jobs.cores[world.queue[place]])
    if smallest > free:
        return False
    world.counts[DECISIONS] += 1
    describe_machine(jobs, world, scorer)
    at, extra, head_place = _head(jobs, world)
    cores_before = 0
    for place in range(size - 1, -1, -1):
        job = world.queue[place]
        if jobs.cores[job] <= free:
            describe_job(jobs, world, scorer, job, size - 1 - place, cores_before)
            late = place < head_place and jobs.cores[job] > extra and world.clock[NOW] + jobs.estimate[job] > at
            scorer.seen[12] = 1.0 if late else 0.0
            value = score(scorer.theta, scorer.seen, scorer.hidden)
            if value > best:
                best, place_of_best = value, place
        cores_before += jobs.cores[job]
    if place_of_best < 0:
        world.clock[WAKE] = min(now + INTERVAL_S, scorer.idle_since[0] + LONGEST_IDLE_S)
        return False
    scorer.idle_since[0] = np.inf
    job = world.queue[place_of_best]
    take(world, place_of_best)
    start_job(jobs, config, world, job)
    return True


@kernel
def _head(jobs: Jobs, world: World) -> tuple[float, int, int]:
    """Return the shadow time of the first job that does not fit, the cores left over then, and its place (-1: none)."""
    for place in range(world.counts[WAITING] - 1, -1, -1):
        job = world.queue[place]
        if jobs.cores[job] > world.counts[FREE]:
            at, extra = shadow(jobs, world, jobs.cores[job])
            return at, extra, place
    return np.inf, 0, -1


@kernel
def describe_machine(jobs: Jobs, world: World, scorer: Scorer) -> None:
    """Write what all jobs of a decision have in common."""
    machine, free, now, seen = world.counts[MACHINE], world.counts[FREE], world.clock[NOW], scorer.machine
    for slot in range(4):
        seen[7 + slot] = free
    for place in range(world.counts[RUNNING] - 1, -1, -1):
        other = world.expected[place]
        left = expected_end(jobs, world, other) - now
        if left > 14_400.0:
            break
        cores = jobs.cores[other]
        seen[10] += cores
        if left <= 3600.0:
            seen[9] += cores
            if left <= 600.0:
                seen[8] += cores
                if left <= 60.0:
                    seen[7] += cores
    work = 0.0
    for place in range(world.counts[WAITING]):
        job = world.queue[place]
        work += jobs.estimate[job] * jobs.cores[job]
    at, _, place = _head(jobs, world)
    seen[13] = np.log1p(at - now) / 12.0 if place >= 0 else 0.0
    seen[14] = jobs.cores[world.queue[place]] / machine if place >= 0 else 0.0
    seen[15] = np.log1p(world.counts[WAITING]) / 6.0
    seen[18] = np.log1p(work / machine) / 12.0
    seen[19] = np.log1p(recent_submissions(jobs, world)) / 4.0
    angle = 2.0 * np.pi * now / DAY_S
    seen[20] = np.sin(angle)
    seen[21] = np.cos(angle)


@kernel
def describe_job(jobs: Jobs, world: World, scorer: Scorer, job: int, before: int, cores_before: int) -> None:
    """Write the features of one job that fits into `scorer.seen`; `before` counts who is before it in the queue."""
    machine, now, seen, common = world.counts[MACHINE], world.clock[NOW], scorer.seen, scorer.machine
    cores, estimate = jobs.cores[job], jobs.estimate[job]
    wait = now - jobs.submit[job]
    after = world.counts[FREE] - cores
    for each in range(13, FEATURES):
        seen[each] = common[each]
    seen[0] = scorer.log_estimate[job] / 12.0
    seen[1] = np.log2(cores) / np.log2(max(machine, 2))
    seen[2] = cores / machine
    seen[3] = np.log1p(wait) / 12.0
    seen[4] = np.log1p(wait / max(estimate, BOUND_S)) / 8.0
    seen[5] = after / machine
    seen[6] = np.log2(after + 1.0) / np.log2(machine + 1.0)
    seen[7] = (common[7] - (cores if estimate > 60.0 else 0)) / machine
    seen[8] = (common[8] - (cores if estimate > 600.0 else 0)) / machine
    seen[9] = (common[9] - (cores if estimate > 3600.0 else 0)) / machine
    seen[10] = (common[10] - (cores if estimate > 14_400.0 else 0)) / machine
    at_end = after
    for place in range(world.counts[RUNNING] - 1, -1, -1):
        other = world.expected[place]
        if expected_end(jobs, world, other) > now + estimate:
            break
        at_end += jobs.cores[other]
    seen[11] = at_end / machine
    seen[12] = 0.0
    seen[16] = np.log1p(before) / 6.0
    seen[17] = min(cores_before / machine, 4.0) / 4.0


@kernel
def score(theta: FloatArray, seen: FloatArray, hidden: FloatArray) -> float:
    """Return a direct linear path plus one hidden layer of rectified units."""
    value = theta[FEATURES]
    biases = FEATURES + 1 + FEATURES * HIDDEN_UNITS
    for unit in range(HIDDEN_UNITS):
        hidden[unit] = theta[biases + unit]
    for each in range(FEATURES):
        told = seen[each]
        value += theta[each] * told
        row = FEATURES + 1 + each * HIDDEN_UNITS
        for unit in range(HIDDEN_UNITS):
            hidden[unit] += theta[row + unit] * told
    for unit in range(HIDDEN_UNITS):
        value += theta[biases + HIDDEN_UNITS + unit] * max(hidden[unit], 0.0)
    return float(value)
