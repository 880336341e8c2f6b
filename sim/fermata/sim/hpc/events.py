"""Compiled: the passing of time. Submissions join the queue, ends give their cores back, starts take them."""

from __future__ import annotations

import numpy as np

from fermata.policy._jit import kernel
from fermata.policy.queue_features import RECENT_S
from fermata.sim.hpc.priority import drain_usage
from fermata.sim.hpc.world import (
    EVENTS,
    FREE,
    NEXT,
    NOW,
    RUNNING,
    WAITING,
    WAKE,
    Config,
    Jobs,
    World,
)


@kernel
def queue_job(jobs: Jobs, world: World, job: int) -> None:
    """Put a job into the queue, at the place of its rank."""
    size = world.counts[WAITING]
    rank = jobs.rank[job]
    low, high = 0, size
    while low < high:  # the queue is in descending order
        middle = (low + high) // 2
        if jobs.rank[world.queue[middle]] > rank:
            low = middle + 1
        else:
            high = middle
    for place in range(size, low, -1):
        world.queue[place] = world.queue[place - 1]
    world.queue[low] = job
    world.counts[WAITING] = size + 1


@kernel
def take(world: World, place: int) -> None:
    """Take the job at a place out of the queue."""
    world.counts[WAITING] -= 1
    for each in range(place, world.counts[WAITING]):
        world.queue[each] = world.queue[each + 1]


@kernel
def start_job(jobs: Jobs, config: Config, world: World, job: int) -> None:
    """Start a job that is in no list, now."""
    now = world.clock[NOW]
    size = world.counts[RUNNING]
    world.start[job] = now
    end, expected = now + jobs.runtime[job], now + jobs.estimate[job]
    place = size
    # Of equal ends the earlier start comes first, that is, nearer to the end of the list.
    while place > 0 and world.start[world.ending[place - 1]] + jobs.runtime[world.ending[place - 1]] <= end:
        world.ending[place] = world.ending[place - 1]
        place -= 1
    world.ending[place] = job
    place = size
    while place > 0 and world.start[world.expected[place - 1]] + jobs.estimate[world.expected[place - 1]] <= expected:
        world.expected[place] = world.expected[place - 1]
        place -= 1
    world.expected[place] = job
    world.counts[RUNNING] = size + 1
    world.counts[FREE] -= jobs.cores[job]
    drain_usage(config, world)
    world.rate[jobs.user[job]] += jobs.cores[job]


@kernel
def _end_first(jobs: Jobs, config: Config, world: World) -> None:
    """End the running job that is first to end."""
    size = world.counts[RUNNING] - 1
    job = world.ending[size]
    place = size
    while world.expected[place] != job:
        place -= 1
    for later in range(place, size):
        world.expected[later] = world.expected[later + 1]
    world.counts[RUNNING] = size
    world.counts[FREE] += jobs.cores[job]
    world.counts[EVENTS] += 1
    drain_usage(config, world)
    world.rate[jobs.user[job]] -= jobs.cores[job]


@kernel
def _submit_next(jobs: Jobs, world: World) -> None:
    queue_job(jobs, world, world.counts[NEXT])
    world.counts[NEXT] += 1
    world.counts[EVENTS] += 1


@kernel
def next_submission(jobs: Jobs, world: World) -> float:
    """Return when the next job is submitted; infinity after the last (seconds)."""
    return jobs.submit[world.counts[NEXT]] if world.counts[NEXT] < len(jobs.submit) else np.inf


@kernel
def recent_submissions(jobs: Jobs, world: World) -> int:
    """Return how many jobs were submitted in the last `RECENT_S` seconds."""
    recent = world.counts[NEXT]
    while recent > 0 and jobs.submit[recent - 1] > world.clock[NOW] - RECENT_S:
        recent -= 1
    return int(world.counts[NEXT] - recent)


@kernel
def next_end(jobs: Jobs, world: World) -> float:
    """Return when the next job ends; infinity if none runs (seconds)."""
    if world.counts[RUNNING] == 0:
        return np.inf
    job = world.ending[world.counts[RUNNING] - 1]
    return float(world.start[job] + jobs.runtime[job])


@kernel
def advance(jobs: Jobs, config: Config, world: World) -> bool:
    """Move to the next instant at which something happens; False if nothing ever will."""
    submission, end = next_submission(jobs, world), next_end(jobs, world)
    at = min(submission, end)
    if world.clock[WAKE] < at:
        world.clock[NOW] = world.clock[WAKE]
        world.clock[WAKE] = np.inf
        return True
    if at == np.inf:
        return False
    world.clock[WAKE] = np.inf
    world.clock[NOW] = max(world.clock[NOW], at)
    if config.single_event:
        if submission <= end:
            _submit_next(jobs, world)
        else:
            _end_first(jobs, config, world)
        return True
    while next_submission(jobs, world) <= at:
        _submit_next(jobs, world)
    while next_end(jobs, world) <= at:
        _end_first(jobs, config, world)
    return True
