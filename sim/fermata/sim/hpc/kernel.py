"""Compiled: one run of a scheduler of rigid jobs, from the first submission to the last start."""

from __future__ import annotations

from fermata.policy._jit import kernel
from fermata.sim.hpc.backfill import (
    backfill_conservative,
    backfill_easy,
    backfill_published,
    start_all_that_fits,
)
from fermata.sim.hpc.events import advance, queue_job, start_job, take
from fermata.sim.hpc.inspect import NOTHING, PICKS, STARTS, Inspector, rejected
from fermata.sim.hpc.orders import STATIC
from fermata.sim.hpc.priority import sort_queue
from fermata.sim.hpc.rules import Backfill, Start
from fermata.sim.hpc.shadow import cores_needed, published_shadow
from fermata.sim.hpc.world import (
    FREE,
    INSTANTS,
    NEXT,
    NOBODY,
    PAIRS,
    PICKED,
    SHADOW,
    WAITING,
    Config,
    Jobs,
    World,
)

COMMIT, SKIP = int(Start.COMMIT), int(Start.SKIP)
NO_BACKFILL, EASY = int(Backfill.NONE), int(Backfill.EASY)
CONSERVATIVE, PUBLISHED = int(Backfill.CONSERVATIVE), int(Backfill.PUBLISHED)


@kernel
def run(jobs: Jobs, config: Config, world: World, inspector: Inspector) -> bool:
    """Run on for at most `INSTANTS` or `PAIRS`; tell whether every job has started: starts are in `world.start`."""
    pairs = 0
    for _ in range(INSTANTS):
        if not advance(jobs, config, world):
            return True
        schedule(jobs, config, world, inspector)
        if world.counts[NEXT] == len(jobs.submit) and world.counts[WAITING] == 0 and world.counts[PICKED] == NOBODY:
            return True
        if config.backfill == CONSERVATIVE:
            pairs += world.counts[WAITING] ** 2
            if pairs > PAIRS:
                return False
    return False


@kernel
def schedule(jobs: Jobs, config: Config, world: World, inspector: Inspector) -> None:
    """Do everything that is decided at one instant."""
    if config.order != STATIC:
        sort_queue(jobs, config, world)
    if config.start == SKIP and config.backfill == NO_BACKFILL and inspector.scope != PICKS:
        start_all_that_fits(jobs, config, world, inspector)
        return
    place = world.counts[WAITING] - 1
    while True:
        head = world.counts[PICKED]
        if head == NOBODY:
            if place < 0:
                return
            head = world.queue[place]
            if _asked(jobs, config, world, inspector, head) and rejected(jobs, config, world, inspector, head):
                if inspector.scope == PICKS:
                    return
                place -= 1
                continue
            take(world, place)
            place -= 1
        if cores_needed(jobs, config, world, head) > world.counts[FREE]:
            _blocked(jobs, config, world, inspector, head)
            return
        world.counts[PICKED] = NOBODY
        start_job(jobs, config, world, head)


@kernel
def _asked(jobs: Jobs, config: Config, world: World, inspector: Inspector, head: int) -> bool:
    """Return whether the inspector is asked about the head: not where it only waits, uncommitted, for cores."""
    if inspector.scope == STARTS and config.start != COMMIT:
        return bool(cores_needed(jobs, config, world, head) <= world.counts[FREE])
    return inspector.scope != NOTHING


@kernel
def _blocked(jobs: Jobs, config: Config, world: World, inspector: Inspector, head: int) -> None:
    """Let others overtake a head that does not fit; it stays picked, or goes back to the queue."""
    if config.backfill == PUBLISHED:
        if world.counts[PICKED] == NOBODY:
            world.clock[SHADOW] = published_shadow(jobs, world, cores_needed(jobs, config, world, head))
        backfill_published(jobs, config, world, inspector)
    elif config.backfill == EASY:
        backfill_easy(jobs, config, world, inspector, head)
    elif config.backfill == CONSERVATIVE:
        backfill_conservative(jobs, config, world, inspector, head)
    elif config.start == SKIP:
        start_all_that_fits(jobs, config, world, inspector)
    if config.start == COMMIT:
        world.counts[PICKED] = head
    else:
        queue_job(jobs, world, head)
