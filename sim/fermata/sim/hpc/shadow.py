"""Compiled: when the first job that does not fit is expected to fit, and what is left over then.

Estimates say when cores will be free. A job that runs longer than its estimate is expected to end a second from now,
again and again, so that a wrong estimate moves the shadow time rather than leaving it in the past.
"""

from __future__ import annotations

from fermata.policy._jit import kernel
from fermata.sim.hpc.world import FREE, MACHINE, NOW, RUNNING, Config, Jobs, World

OVERDUE_S = 1.0


@kernel
def cores_needed(jobs: Jobs, config: Config, world: World, job: int) -> int:
    """Return how many cores must be free for a job to start: its own and, if it is long, the reservation."""
    if jobs.estimate[job] > config.reserve_over:
        return int(min(jobs.cores[job] + config.reserve_cores, world.counts[MACHINE]))
    return int(jobs.cores[job])


@kernel
def expected_end(jobs: Jobs, world: World, job: int) -> float:
    """Return when a running job is expected to end (seconds)."""
    return float(max(world.start[job] + jobs.estimate[job], world.clock[NOW] + OVERDUE_S))


@kernel
def shadow(jobs: Jobs, world: World, needed: int) -> tuple[float, int]:
    """Return when `needed` cores are expected to be free, and how many more will be (seconds, cores)."""
    free = world.counts[FREE]
    at = world.clock[NOW]
    for place in range(world.counts[RUNNING] - 1, -1, -1):
        job = world.expected[place]
        end = expected_end(jobs, world, job)
        if free >= needed and end > at:
            break
        free += jobs.cores[job]
        at = end
    return at, free - needed


@kernel
def published_shadow(jobs: Jobs, world: World, needed: int) -> float:
    """Return the time before which the published rule lets jobs end: taken once and never renewed (seconds)."""
    free = world.counts[FREE]
    at = world.clock[NOW]
    for place in range(world.counts[RUNNING] - 1, -1, -1):
        job = world.expected[place]
        free += jobs.cores[job]
        at = world.start[job] + jobs.estimate[job]
        if free >= needed:
            break
    return float(at)
