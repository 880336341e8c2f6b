"""The heuristics of the published simulators, as they are written there: what peers' figures were made with.

They answer Decima's protocol. decima-sim's FIFO counts the executors that a job was ever given against the cap rather
than those that it has, and the fair shares count different jobs; both are kept, being what was measured.

Source: https://github.com/hongzimao/decima-sim (`heuristic_agent.py`, `spark_agent.py`);
https://github.com/ArchieGertsman/spark-sched-sim (`schedulers/heuristics/round_robin.py`).
"""

from __future__ import annotations

from fermata.policy._jit import inlined, kernel
from fermata.sim.spark.executors import runnable, wanted
from fermata.sim.spark.protocol import answer, decline, first_runnable, reachable, run_to_question
from fermata.sim.spark.waves import Waves
from fermata.sim.spark.world import (
    ASKING,
    J_ATTACHED,
    J_GRANTED,
    J_INCOMING,
    J_NEXT,
    NONE,
    SOURCE_JOB,
    SparkTables,
    SparkWorld,
)

DECIMA_FAIR, DECIMA_FIFO, SPARK_FAIR, SPARK_FIFO = range(4)
PEERS = {
    "decima-fair": DECIMA_FAIR,
    "decima-fifo": DECIMA_FIFO,
    "spark-fair": SPARK_FAIR,
    "spark-fifo": SPARK_FIFO,
}


@inlined
def _supply(world: SparkWorld, job: int) -> int:
    """Return the executors of a job, with those on their way and those promised by others."""
    return int(world.job[job, J_ATTACHED] + world.job[job, J_INCOMING])


@kernel
def _first_reachable(tables: SparkTables, world: SparkWorld, job: int) -> int:
    """Return the first stage of a job that may be chosen."""
    for stage in range(tables.job_stage_ptr[job], tables.job_stage_ptr[job + 1]):
        if reachable(tables, world, stage):
            return stage
    return NONE


@kernel
def _stage_for(tables: SparkTables, world: SparkWorld, job: int, kind: int) -> int:
    """Return the stage of a job to choose: a runnable one first, then one whose parents have no task left to begin."""
    if kind in (DECIMA_FAIR, DECIMA_FIFO):
        stage = first_runnable(tables, world, job)
        return stage if stage != NONE else _first_reachable(tables, world, job)
    for stage in range(tables.job_stage_ptr[job], tables.job_stage_ptr[job + 1]):
        if runnable(world, stage) and reachable(tables, world, stage):
            return stage
    return _first_reachable(tables, world, job)


@kernel
def _share(tables: SparkTables, world: SparkWorld, kind: int) -> int:
    """Return how many executors a job may have."""
    executors, outside = len(world.executor), len(world.job) - 1
    if kind in (DECIMA_FIFO, SPARK_FIFO):
        return executors
    jobs, job = 0, world.job[outside, J_NEXT]
    while job != outside:
        if kind == SPARK_FAIR:
            jobs += 1
        else:
            for stage in range(tables.job_stage_ptr[job], tables.job_stage_ptr[job + 1]):
                if wanted(world, stage) > 0:
                    jobs += 1
                    break
        job = world.job[job, J_NEXT]
    return -(-executors // max(1, jobs))


@kernel
def choose(tables: SparkTables, world: SparkWorld, kind: int) -> tuple[int, int]:
    """Return the stage that a peer chooses (NONE: idle) and up to how many executors it gives it."""
    asking, source_job, outside = world.counter[ASKING], world.counter[SOURCE_JOB], len(world.job) - 1
    if source_job != NONE and world.job_completion_ms[source_job] == NONE:
        stage = _stage_for(tables, world, source_job, kind)
        if stage != NONE:
            return stage, asking
    share = _share(tables, world, kind)
    job = world.job[outside, J_NEXT]
    while job != outside:
        has = world.job[job, J_GRANTED] if kind == DECIMA_FIFO else _supply(world, job)
        if has < share and job != source_job:
            stage = _stage_for(tables, world, job, kind)
            if stage != NONE:
                limit = min(share - has, asking)
                if kind == DECIMA_FIFO:
                    world.job[job, J_GRANTED] += min(limit, wanted(world, stage))
                return stage, limit
        job = world.job[job, J_NEXT]
    return NONE, asking


@kernel
def _anything_to_choose(tables: SparkTables, world: SparkWorld) -> bool:
    """Tell whether there is a stage to choose, of the source's job or of one that has not got all executors."""
    outside = len(world.job) - 1
    job = world.job[outside, J_NEXT]
    while job != outside:
        open_to_more = job == world.counter[SOURCE_JOB] or _supply(world, job) < len(world.executor)
        if open_to_more and _first_reachable(tables, world, job) != NONE:
            return True
        job = world.job[job, J_NEXT]
    return False


@kernel
def run_peer(tables: SparkTables, waves: Waves, world: SparkWorld, kind: int) -> None:
    """Run an episode to its end under one of the peers' heuristics."""
    while run_to_question(tables, waves, world):
        if tables.asks_idle and not _anything_to_choose(tables, world):
            decline(tables, waves, world)
        while world.counter[ASKING] > 0:
            stage, limit = choose(tables, world, kind)
            answer(tables, waves, world, stage, limit)
