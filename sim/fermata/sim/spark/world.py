"""The memory of a Spark episode under Decima's protocol, as a few integer tables with named columns.

Few arrays, because each is an argument of every compiled function; integers of milliseconds, because Decima counts time
so and two tasks that end together must do so exactly.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fermata.sim.spark.waves import Waves
from fermata.sim.trace import Trace

IntArray = NDArray[np.int64]
IndexArray = NDArray[np.int32]

NONE = -1
# The end of a task or journey is one number, its time over its sequence number, so that the heap compares once. That
# leaves 28 bits for the number of events and 35 for the time: more than a year.
SEQUENCE_BITS = 28
JOB_IS_DONE = -2  # E_GOING: where it travels to has finished

# Columns of SparkWorld.executor: the job it is attached to; the stage it works on or last worked on; the stage of its
# last task, unless it idled or moved since; the stage that it travels to; its pool and its neighbours there; its task.
E_JOB, E_STAGE, E_LAST, E_GOING, E_POOL, E_NEXT, E_PREVIOUS, E_TASK = range(8)
# Columns of SparkWorld.stage: tasks not begun; tasks not ended; unfinished parents; executors on their way; executors
# promised; executors at it; the round in which it was last chosen; its turn among the runnable ones, 0 before.
S_PENDING, S_UNFINISHED, S_PARENTS, S_COMING, S_PROMISED, S_AT, S_CHOSEN, S_TURN = range(8)
# Columns of SparkWorld.job: executors attached; on their way or promised by other jobs; stages not finished; stages
# with tasks not begun; executors ever given by FIFO; neighbours in the list of active jobs; first and last executor of
# its pool and their number. The last row is no job: its pool holds executors that belong to none, its list is all jobs.
J_ATTACHED, J_INCOMING, J_STAGES, J_OPEN, J_GRANTED, J_NEXT, J_PREVIOUS, J_FIRST, J_LAST, J_POOL = range(10)
# Columns of SparkWorld.promise: the stage promised to (or NONE: to idle), how many executors, the source's next
# promise, the source.
P_TARGET, P_AMOUNT, P_NEXT, P_SOURCE = range(4)
# Entries of SparkWorld.counter. ASKING: executors of the source that still need a decision; TURN: the one executor that
# the source lets go now, or NONE if it is the pool POOL; SOURCE_JOB as policies see it.
(
    NOW_MS,
    ARRIVED,
    FINISHED,
    RUNS,
    SEQUENCE,
    ASKING,
    TURN,
    POOL,
    SOURCE_JOB,
    ROUND,
    TURNS,
    WORD,
    SPARE,
    TASKS_ENDED,
    MOVES_ENDED,
    DECISIONS,
) = range(16)


class SparkTables(NamedTuple):
    """What is fixed for an episode."""

    job_arrival_ms: IntArray  # [jobs] not falling
    job_stage_ptr: IntArray  # [jobs + 1]
    stage_job: IndexArray  # [stages]
    child_ptr: IntArray  # [stages + 1]
    child: IndexArray  # [edges]
    parent_ptr: IntArray  # [stages + 1]
    parent: IndexArray  # [edges]
    task_ptr: IntArray  # [stages + 1]
    moving_delay_ms: int  # travel time of an executor to another job
    asks_idle: bool  # as in spark-sched-sim: who waits for a decision idles, and is not asked about where none is left
    ahead: bool  # a stage may be chosen while its parents still run


class SparkWorld(NamedTuple):
    """What changes; every array is written in place. See the names of the columns above."""

    counter: IntArray
    executor: IndexArray  # [executors, 8]
    stage: IndexArray  # [stages, 8]
    job: IndexArray  # [jobs + 1, 10]
    promise: IndexArray  # [executors + 1, 4]
    promised_by: IndexArray  # [stages + jobs + 1, 2] first and last promise of a source: a stage, a pool
    end_key: IntArray  # [executors] binary heap of running tasks and travelling executors, see `end_key` ...
    end_executor: IndexArray  # ... and whose end that is
    job_completion_ms: IntArray  # [jobs] NONE before
    task_start_ms: IntArray  # [tasks]
    task_end_ms: IntArray
    task_executor: IndexArray


def spark_tables(trace: Trace, moving_delay_ms: int, *, asks_idle: bool = False, ahead: bool = True) -> SparkTables:
    """Return the tables of a trace whose tasks each take one executor; arrivals are rounded to milliseconds."""
    child_ptr = np.zeros(trace.stages + 1, np.int64)
    child_ptr[1:] = np.cumsum(np.bincount(trace.parent, minlength=trace.stages))
    owner = np.repeat(np.arange(trace.stages, dtype=np.int32), np.diff(trace.parent_ptr))
    return SparkTables(
        job_arrival_ms=np.rint(trace.job_arrival_s * 1000.0).astype(np.int64),
        job_stage_ptr=trace.job_stage_ptr,
        stage_job=trace.stage_job,
        child_ptr=child_ptr,
        child=owner[np.argsort(trace.parent, kind="stable")],
        parent_ptr=trace.parent_ptr,
        parent=trace.parent,
        task_ptr=trace.task_ptr,
        moving_delay_ms=moving_delay_ms,
        asks_idle=asks_idle,
        ahead=ahead,
    )


def new_spark_world(tables: SparkTables, waves: Waves) -> SparkWorld:
    """Return the world before the first event: every executor idle and attached to no job, no job arrived."""
    executors = len(waves.grid) - 1
    jobs, stages, tasks = len(tables.job_arrival_ms), len(tables.stage_job), int(tables.task_ptr[-1])
    world = SparkWorld(
        counter=np.zeros(16, np.int64),
        executor=np.full((executors, 8), NONE, np.int32),
        stage=np.zeros((stages, 8), np.int32),
        job=np.zeros((jobs + 1, 10), np.int32),
        promise=np.full((executors + 1, 4), NONE, np.int32),
        promised_by=np.full((stages + jobs + 1, 2), NONE, np.int32),
        end_key=np.zeros(executors, np.int64),
        end_executor=np.zeros(executors, np.int32),
        job_completion_ms=np.full(jobs, NONE, np.int64),
        task_start_ms=np.full(tasks, NONE, np.int64),
        task_end_ms=np.full(tasks, NONE, np.int64),
        task_executor=np.full(tasks, NONE, np.int32),
    )
    world.stage[:, S_PENDING] = world.stage[:, S_UNFINISHED] = np.diff(tables.task_ptr)
    world.stage[:, S_PARENTS] = np.diff(tables.parent_ptr)
    world.job[:jobs, J_STAGES] = world.job[:jobs, J_OPEN] = np.diff(tables.job_stage_ptr)
    world.job[:, [J_FIRST, J_LAST]] = NONE
    world.job[jobs, [J_NEXT, J_PREVIOUS]] = jobs
    world.executor[:, E_POOL] = jobs
    world.executor[:, E_NEXT] = np.append(np.arange(1, executors), NONE)
    world.executor[:, E_PREVIOUS] = np.arange(-1, executors - 1)
    world.job[jobs, [J_FIRST, J_LAST, J_POOL]] = 0, executors - 1, executors
    world.promise[:, P_NEXT] = np.append(np.arange(1, executors + 1), NONE)
    world.counter[[TURN, SOURCE_JOB]] = NONE
    world.counter[ROUND] = 1
    return world
