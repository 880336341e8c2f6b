"""Compiled: who may overtake the first job that does not fit."""

from __future__ import annotations

from fermata.policy._jit import kernel
from fermata.sim.hpc.events import start_job, take
from fermata.sim.hpc.inspect import Inspector, passed_over
from fermata.sim.hpc.shadow import OVERDUE_S, cores_needed, expected_end, shadow
from fermata.sim.hpc.world import (
    FREE,
    NOBODY,
    NOW,
    RUNNING,
    SHADOW,
    WAITING,
    Config,
    Jobs,
    World,
)


@kernel
def backfill_easy(jobs: Jobs, config: Config, world: World, inspector: Inspector, head: int) -> None:
    """Start whatever of the queue does not delay the head, in the order of the queue; the head is not in the queue."""
    at, extra = shadow(jobs, world, cores_needed(jobs, config, world, head))
    now = world.clock[NOW]
    for place in range(world.counts[WAITING] - 1, -1, -1):
        job = world.queue[place]
        in_time = now + jobs.estimate[job] <= at
        fits = cores_needed(jobs, config, world, job) <= world.counts[FREE]
        if fits and (in_time or jobs.cores[job] <= extra) and not passed_over(jobs, config, world, inspector, job):
            take(world, place)
            start_job(jobs, config, world, job)
            if not in_time:
                extra -= jobs.cores[job]


@kernel
def backfill_published(jobs: Jobs, config: Config, world: World, inspector: Inspector) -> None:
    """Start, first come first served, what ends before the shadow time of when the head was picked."""
    now = world.clock[NOW]
    last = NOBODY
    while True:
        found = NOBODY
        for place in range(world.counts[WAITING]):
            job = world.queue[place]
            if (
                job > last
                and cores_needed(jobs, config, world, job) <= world.counts[FREE]
                and now + jobs.estimate[job] < world.clock[SHADOW]
                and (found == NOBODY or job < world.queue[found])
            ):
                found = place
        if found == NOBODY:
            return
        last = world.queue[found]
        if passed_over(jobs, config, world, inspector, last):
            continue
        take(world, found)
        start_job(jobs, config, world, last)


@kernel
def start_all_that_fits(jobs: Jobs, config: Config, world: World, inspector: Inspector) -> None:
    """Start whatever of the queue fits, in the order of the queue."""
    for place in range(world.counts[WAITING] - 1, -1, -1):
        job = world.queue[place]
        fits = cores_needed(jobs, config, world, job) <= world.counts[FREE]
        if fits and not passed_over(jobs, config, world, inspector, job):
            take(world, place)
            start_job(jobs, config, world, job)


@kernel
def backfill_conservative(jobs: Jobs, config: Config, world: World, inspector: Inspector, head: int) -> None:
    """Plan the whole queue anew, the head first, and start what the plan starts now."""
    steps = _profile_of_running(jobs, world)
    steps = _reserve(jobs, config, world, head, steps)[1]
    for place in range(world.counts[WAITING] - 1, -1, -1):
        job = world.queue[place]
        now_too, steps = _reserve(jobs, config, world, job, steps)
        if now_too and not passed_over(jobs, config, world, inspector, job):
            take(world, place)
            start_job(jobs, config, world, job)


@kernel
def _profile_of_running(jobs: Jobs, world: World) -> int:
    """Write the cores that running jobs will give back; returns the number of steps of the profile."""
    now = world.clock[NOW]
    world.profile_at[0], world.profile_free[0] = now, world.counts[FREE]
    steps = 1
    for place in range(world.counts[RUNNING] - 1, -1, -1):
        job = world.expected[place]
        at = expected_end(jobs, world, job)
        if at > world.profile_at[steps - 1]:
            world.profile_at[steps] = at
            world.profile_free[steps] = world.profile_free[steps - 1]
            steps += 1
        world.profile_free[steps - 1] += jobs.cores[job]
    return steps


@kernel
def _reserve(jobs: Jobs, config: Config, world: World, job: int, steps: int) -> tuple[bool, int]:
    """Reserve the earliest time at which a job fits; returns whether that is now, and the steps of the profile."""
    needed, length = cores_needed(jobs, config, world, job), max(jobs.estimate[job], OVERDUE_S)
    first = 0
    while True:
        end = world.profile_at[first] + length
        last = first
        while last < steps and world.profile_at[last] < end and world.profile_free[last] >= needed:
            last += 1
        if last == steps or world.profile_at[last] >= end:
            break
        first = last + 1
    if last == steps or world.profile_at[last] > end:  # a new step where the job ends
        for place in range(steps, last, -1):
            world.profile_at[place] = world.profile_at[place - 1]
            world.profile_free[place] = world.profile_free[place - 1]
        world.profile_at[last] = end
        world.profile_free[last] = world.profile_free[last - 1]
        steps += 1
    for place in range(first, last):
        world.profile_free[place] -= jobs.cores[job]
    return first == 0 and needed <= world.counts[FREE], steps
