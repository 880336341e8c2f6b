"""Compiled: an inspector that accepts or rejects what a scheduler is about to do, its features and its network.

A rejected job goes back to the queue; the scheduler is asked again at the next event, or after `interval` seconds.
Source: Zhang, Dai and Xie, "SchedInspector: A Batch Job Scheduling Inspector Using Reinforcement Learning", HPDC 2022.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fermata.policy._jit import kernel
from fermata.sim.hpc.events import next_submission, recent_submissions
from fermata.sim.hpc.shadow import cores_needed, expected_end, shadow
from fermata.sim.hpc.world import (
    DECISIONS,
    FREE,
    MACHINE,
    NOW,
    RECORDED,
    RUNNING,
    WAITING,
    WAKE,
    Config,
    Jobs,
    World,
)

FloatArray = NDArray[np.float64]

# What is inspected: nothing; every pick of the scheduler, whose rejection ends the scheduling point (SchedInspector);
# or every start, backfilled ones too, whose rejection passes over this job only.
NOTHING, PICKS, STARTS = 0, 1, 2
# How it is decided
ARGMAX, SAMPLE, REJECT_IF_BLOCKED = 0, 1, 2

MAX_INTERVAL_S = 600.0  # MAX_INTERVAL of the paper
MAX_REJECTIONS = 72  # MAX_REJECTION_TIMES of the paper
MOST_REJECTIONS = 1_000_000_000  # the largest limit that a model or an option may state
WAIT_SCALE_S = 43_200.0
HIDDEN = (32, 16, 8)
BOUND_S = 10.0
PUBLISHED_FEATURES = 8
FEATURES = 21
UNITS = sum(HIDDEN) + 2


class Inspector(NamedTuple):
    """An inspector as numbers and arrays."""

    scope: int
    mode: int
    features: int  # how many of the features the network reads, from the first
    interval: float  # s
    max_rejections: int
    longest: float  # s; estimates are divided by it
    queue_scale: float  # jobs; queue sums are divided by it
    theta: FloatArray  # weights and biases of 32-16-8-2, layer by layer, weights row by row
    seen: FloatArray  # [capacity, features] what was seen; capacity 0 records nothing
    acted: NDArray[np.int8]  # [capacity] 1 for a rejection
    log_chance: FloatArray  # [capacity] of the action taken
    now_seen: FloatArray  # [FEATURES] room for what is seen now
    units: FloatArray  # [UNITS] room for the units of all layers


def parameters(features: int) -> int:
    """Return the number of weights and biases of a network that reads this many features."""
    widths = (features, *HIDDEN, 2)
    return sum((before + 1) * after for before, after in pairwise(widths))


def no_inspector() -> Inspector:
    """Return the inspector that inspects nothing."""
    return rule_inspector(NOTHING, ARGMAX)


def rule_inspector(scope: int, mode: int, max_rejections: int = MAX_REJECTIONS) -> Inspector:
    """Return an inspector without a network."""
    none = np.zeros((0, 0))
    empty = np.zeros(0)
    return Inspector(
        scope,
        mode,
        0,
        MAX_INTERVAL_S,
        max_rejections,
        1.0,
        1.0,
        empty,
        none,
        np.zeros(0, dtype=np.int8),
        empty,
        np.zeros(FEATURES),
        np.zeros(UNITS),
    )


@kernel
def describe(jobs: Jobs, config: Config, world: World, inspector: Inspector, job: int, seen: FloatArray) -> None:
    """Write the features of the inspected job into `seen`, `[FEATURES]`; each is about 0 to 1.

    The first eight are SchedInspector's: wait, estimate, cores, free cores, whether it fits, how often it was
    rejected, what one rejection adds to the bounded slowdowns in the queue, and how many jobs could be backfilled
    around it. The others say, on logarithmic scales, what a hold depends on: lengths against the machine's future, and
    how many jobs came in the last hour, which says what may come while it lasts.
    """
    machine, free, now = world.counts[MACHINE], world.counts[FREE], world.clock[NOW]
    needed, estimate = cores_needed(jobs, config, world, job), jobs.estimate[job]
    fits = needed <= free
    at, extra = shadow(jobs, world, needed)
    delay, overtaking = 0.0, 0
    shorter, shorter_work, smaller_now, shorter_cores = 0, 0.0, 0, 0
    for place in range(world.counts[WAITING]):
        other = world.queue[place]
        delay += inspector.interval / max(jobs.estimate[other], BOUND_S)
        fits_now = jobs.cores[other] <= free
        if not fits and fits_now and (now + jobs.estimate[other] <= at or jobs.cores[other] <= extra):
            overtaking += 1
        if jobs.estimate[other] < estimate:
            shorter += 1
            shorter_work += jobs.estimate[other] * jobs.cores[other]
            shorter_cores += jobs.cores[other]
            if fits_now:
                smaller_now += 1
    seen[0] = min((now - jobs.submit[job]) / WAIT_SCALE_S, 1.0)
    seen[1] = min(estimate / inspector.longest, 1.0)
    seen[2] = jobs.cores[job] / machine
    seen[3] = free / machine
    seen[4] = 1.0 if fits else 0.0
    seen[5] = world.rejected[job] / inspector.max_rejections
    seen[6] = min(delay / (inspector.interval / BOUND_S * inspector.queue_scale), 1.0)
    seen[7] = min(overtaking / inspector.queue_scale, 1.0)
    if inspector.features <= PUBLISHED_FEATURES:
        return
    longer_cores, left_work, soonest = 0, 0.0, 0.0
    for place in range(world.counts[RUNNING]):
        other = world.expected[place]
        left = expected_end(jobs, world, other) - now
        left_work += left * jobs.cores[other]
        soonest = left  # the list is in descending order
        if left > estimate:
            longer_cores += jobs.cores[other]
    after = (free - jobs.cores[job]) / machine
    seen[8] = np.log1p(estimate) / 12.0
    seen[9] = np.log2(jobs.cores[job]) / np.log2(max(machine, 2))
    seen[10] = after
    seen[11] = np.log1p(world.counts[WAITING]) / 6.0
    seen[12] = np.log1p(shorter) / 6.0
    seen[13] = np.log1p(shorter_work / machine) / 12.0
    seen[14] = np.log1p(smaller_now) / 6.0
    seen[15] = min(shorter_cores / machine, 4.0) / 4.0
    seen[16] = longer_cores / machine
    seen[17] = np.log1p(left_work / machine) / 12.0
    seen[18] = np.log1p(soonest) / 12.0
    seen[19] = np.log1p(now - jobs.submit[job]) / 12.0
    seen[20] = np.log1p(recent_submissions(jobs, world)) / 4.0


@kernel
def logits(theta: FloatArray, seen: FloatArray, features: int, units: FloatArray) -> tuple[float, float]:
    """Return the network's outputs for accept and reject; ReLU layers of 32, 16 and 8 units.

    Args:
        theta: `[parameters(features)]`.
        seen: `[features]` or longer.
        features: how many of them the network reads.
        units: `[UNITS]` room to work in.
    """
    place, first, many = 0, 0, features  # of the layer's weights, of its units, and of its inputs
    for width in (32, 16, 8, 2):
        before = first - many  # where its inputs are among the units
        for unit in range(width):
            value = theta[place + width * many + unit]
            for each in range(many):
                told = seen[each] if place == 0 else units[before + each]
                value += theta[place + unit * many + each] * told
            units[first + unit] = value if width == 2 or value > 0.0 else 0.0
        place += width * (many + 1)
        first += width
        many = width
    return units[UNITS - 2], units[UNITS - 1]


@kernel
def _rejects(jobs: Jobs, config: Config, world: World, inspector: Inspector, job: int) -> bool:
    """Return what the inspector says of a job, recorded if there is room."""
    if inspector.mode == REJECT_IF_BLOCKED:
        return bool(cores_needed(jobs, config, world, job) > world.counts[FREE])
    seen = inspector.now_seen
    describe(jobs, config, world, inspector, job, seen)
    accept, reject = logits(inspector.theta, seen, inspector.features, inspector.units)
    chance = 1.0 / (1.0 + np.exp(min(accept - reject, 700.0)))
    if inspector.mode == ARGMAX:
        return bool(reject > accept)
    action = np.random.random() < chance
    place = world.counts[RECORDED]
    if place < len(inspector.acted):
        for each in range(inspector.features):
            inspector.seen[place, each] = seen[each]
        inspector.acted[place] = action
        inspector.log_chance[place] = np.log(max(chance if action else 1.0 - chance, 1e-300))
        world.counts[RECORDED] = place + 1
    return bool(action)


@kernel
def rejected(jobs: Jobs, config: Config, world: World, inspector: Inspector, job: int) -> bool:
    """Ask the inspector about a job; a rejection is counted and wakes the scheduler in time.

    Where starts are inspected, a job is asked about at every event, so rejections within one interval count as one.
    The next one that counts comes less than two intervals later, so 72 of them hold a job that fits for less than 24
    hours; where picks are inspected they are 12 hours at most. A job that was just rejected, at this instant, stays so.
    A job that was rejected too often is not inspected, nor is one when nothing runs and nothing more will come.
    """
    if world.counts[RUNNING] == 0 and next_submission(jobs, world) == np.inf:
        return False
    if inspector.scope == STARTS and world.rejected_at[job] == world.clock[NOW]:
        world.clock[WAKE] = world.clock[NOW] + inspector.interval  # a job that takes no time has ended since
        return True
    if world.rejected[job] >= inspector.max_rejections:
        return False
    world.counts[DECISIONS] += 1
    if not _rejects(jobs, config, world, inspector, job):
        return False
    if inspector.scope == PICKS or world.clock[NOW] >= world.counted_at[job] + inspector.interval:
        world.rejected[job] += 1
        world.counted_at[job] = world.clock[NOW]
    world.rejected_at[job] = world.clock[NOW]
    world.rejections[job] += 1
    world.clock[WAKE] = world.clock[NOW] + inspector.interval
    return True


@kernel
def passed_over(jobs: Jobs, config: Config, world: World, inspector: Inspector, job: int) -> bool:
    """Return whether an inspector of starts keeps a job from starting now."""
    return inspector.scope == STARTS and rejected(jobs, config, world, inspector, job)


@kernel
def seed_sampling(seed: int) -> None:
    """Seed the draws of inspectors that sample; numpy's legacy generator, compiled or not."""
    np.random.seed(seed)
