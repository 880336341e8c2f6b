"""Compiled: orders whose keys change while jobs wait, and the usage that Slurm's fair-share factor decays."""

from __future__ import annotations

import numpy as np

from fermata.policy._jit import kernel
from fermata.sim.hpc.orders import MULTIFACTOR, UNICEP, WFP3
from fermata.sim.hpc.world import MACHINE, NOW, USAGE_AT, WAITING, Config, Jobs, World

# Places in Config.weights of the multifactor order
_AGE, _FAIRSHARE, _SIZE, _PARTITION, _MAX_AGE, _HALF_LIFE, _FAVOR_SMALL, _DAMPENING = range(8)


@kernel
def drain_usage(config: Config, world: World) -> None:
    """Bring every user's usage up to now: it decays by half in a half-life, and running cores add to it."""
    if config.order != MULTIFACTOR:
        return
    passed = world.clock[NOW] - world.clock[USAGE_AT]
    world.clock[USAGE_AT] = world.clock[NOW]
    if passed <= 0.0:
        return
    decay_rate = np.log(2.0) / config.weights[_HALF_LIFE]
    left = np.exp(-decay_rate * passed)
    for user in range(len(world.usage)):
        world.usage[user] = world.usage[user] * left + world.rate[user] * (1.0 - left) / decay_rate


@kernel
def _multifactor(jobs: Jobs, config: Config, world: World, job: int, all_usage: float) -> float:
    weights = config.weights
    age = min((world.clock[NOW] - jobs.submit[job]) / weights[_MAX_AGE], 1.0)
    share = world.usage[jobs.user[job]] / all_usage if all_usage > 0.0 else 0.0
    fair = 2.0 ** (-share * len(world.usage) / weights[_DAMPENING])
    size = jobs.cores[job] / world.counts[MACHINE]
    if weights[_FAVOR_SMALL] > 0.0:
        size = 1.0 - size
    return float(
        weights[_AGE] * age
        + weights[_FAIRSHARE] * fair
        + weights[_SIZE] * size
        + weights[_PARTITION] * jobs.partition[job]
    )


@kernel
def sort_queue(jobs: Jobs, config: Config, world: World) -> None:
    """Sort the queue by the keys that a dynamic order has now; ties go to the earlier submission."""
    now = world.clock[NOW]
    drain_usage(config, world)
    all_usage = 0.0
    if config.order == MULTIFACTOR:
        for user in range(len(world.usage)):
            all_usage += world.usage[user]
    for place in range(world.counts[WAITING]):
        job = world.queue[place]
        wait, estimate = now - jobs.submit[job], max(jobs.estimate[job], 1.0)
        if config.order == WFP3:
            key = -((wait / estimate) ** 3) * jobs.cores[job]
        elif config.order == UNICEP:
            # A job on one core has log2(cores) = 0; the tiny terms keep it finite and first.
            key = -(wait + 1e-15) / (np.log2(jobs.cores[job] + 1e-15) * estimate)
        else:
            key = -_multifactor(jobs, config, world, job, all_usage)
        world.key[job] = key
        at = place
        while at > 0 and (
            world.key[world.queue[at - 1]] < key
            or (world.key[world.queue[at - 1]] == key and world.queue[at - 1] < job)
        ):
            world.queue[at] = world.queue[at - 1]
            at -= 1
        world.queue[at] = job
