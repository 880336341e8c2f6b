"""What executors are promised to: for each source a list of stages (NONE is to idle), the oldest promise first.

Source: https://github.com/hongzimao/decima-sim (`spark_env/env.py`).
"""

from __future__ import annotations

from fermata.policy._jit import inlined, kernel
from fermata.sim.spark.world import (
    J_INCOMING,
    NONE,
    P_AMOUNT,
    P_NEXT,
    P_SOURCE,
    P_TARGET,
    S_PROMISED,
    SPARE,
    SparkTables,
    SparkWorld,
)

FIRST_PROMISE, LAST_PROMISE = 0, 1


@kernel
def promise(tables: SparkTables, world: SparkWorld, source: int, source_job: int, stage: int, amount: int) -> None:
    """Promise executors of a source to a stage, or (NONE) to idle."""
    if stage != NONE:
        world.stage[stage, S_PROMISED] += amount
        job = tables.stage_job[stage]
        if job != source_job:
            world.job[job, J_INCOMING] += amount
    ends = world.promised_by[source]
    entry = ends[FIRST_PROMISE]
    while entry != NONE:
        if world.promise[entry, P_TARGET] == stage:
            world.promise[entry, P_AMOUNT] += amount
            return
        entry = world.promise[entry, P_NEXT]
    entry = world.counter[SPARE]
    world.counter[SPARE] = world.promise[entry, P_NEXT]
    world.promise[entry, P_TARGET], world.promise[entry, P_AMOUNT] = stage, amount
    world.promise[entry, P_NEXT], world.promise[entry, P_SOURCE] = NONE, source
    if ends[FIRST_PROMISE] == NONE:
        ends[FIRST_PROMISE] = entry
    else:
        world.promise[ends[LAST_PROMISE], P_NEXT] = entry
    ends[LAST_PROMISE] = entry


@kernel
def drop_promise(world: SparkWorld, entry: int) -> None:
    """Take an entry out of its source's list."""
    ends = world.promised_by[world.promise[entry, P_SOURCE]]
    before, at = NONE, ends[FIRST_PROMISE]
    while at != entry:
        before, at = at, world.promise[at, P_NEXT]
    after = world.promise[entry, P_NEXT]
    if before == NONE:
        ends[FIRST_PROMISE] = after
    else:
        world.promise[before, P_NEXT] = after
    if after == NONE:
        ends[LAST_PROMISE] = before
    world.promise[entry, P_NEXT], world.promise[entry, P_SOURCE] = world.counter[SPARE], NONE
    world.counter[SPARE] = entry


@inlined
def redeem(tables: SparkTables, world: SparkWorld, source: int, source_job: int) -> int:
    """Take one executor off the source's oldest promise and return its stage."""
    entry = world.promised_by[source, FIRST_PROMISE]
    stage = world.promise[entry, P_TARGET]
    world.promise[entry, P_AMOUNT] -= 1
    if stage != NONE:
        world.stage[stage, S_PROMISED] -= 1
        job = tables.stage_job[stage]
        if job != source_job:
            world.job[job, J_INCOMING] -= 1
    if world.promise[entry, P_AMOUNT] == 0:
        drop_promise(world, entry)
    return int(stage)
