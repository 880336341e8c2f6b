"""What executors do: run tasks, idle in a pool, travel to another job; and when each of that ends.

The moves of one executor, each leaving the world consistent. Which executor goes where is decided elsewhere.

Source: https://github.com/hongzimao/decima-sim (`spark_env/`), whose every rule that has an effect on times is kept.
"""

from __future__ import annotations

from fermata.policy._jit import inlined, kernel
from fermata.sim.spark.waves import FIRST, FRESH, REST, Waves, task_duration_ms
from fermata.sim.spark.world import (
    E_GOING,
    E_JOB,
    E_LAST,
    E_NEXT,
    E_POOL,
    E_PREVIOUS,
    E_STAGE,
    E_TASK,
    J_ATTACHED,
    J_FIRST,
    J_INCOMING,
    J_LAST,
    J_OPEN,
    J_POOL,
    NONE,
    NOW_MS,
    RUNS,
    S_AT,
    S_COMING,
    S_PARENTS,
    S_PENDING,
    S_PROMISED,
    S_UNFINISHED,
    SEQUENCE,
    SEQUENCE_BITS,
    TASKS_ENDED,
    WORD,
    IndexArray,
    IntArray,
    SparkTables,
    SparkWorld,
)


@inlined
def next_key(world: SparkWorld, end_ms: int) -> int:
    """Return the key of an end: ends at one time come in the order in which what ends has begun."""
    sequence = world.counter[SEQUENCE]
    world.counter[SEQUENCE] = sequence + 1
    return int(end_ms << SEQUENCE_BITS | sequence)


@inlined
def first_end_ms(world: SparkWorld) -> int:
    """Return when the first task or journey ends; there must be one."""
    return int(world.end_key[0] >> SEQUENCE_BITS)


@kernel
def push_end(world: SparkWorld, end_ms: int, executor: int) -> None:
    """Add the end of an executor's task or journey to the heap."""
    new = next_key(world, end_ms)
    at = world.counter[RUNS]
    world.counter[RUNS] = at + 1
    key, who = world.end_key, world.end_executor
    while at > 0:
        above = (at - 1) >> 1
        if key[above] < new:
            break
        key[at], who[at] = key[above], who[above]
        at = above
    key[at], who[at] = new, executor


@inlined
def replace_first(key: IntArray, who: IndexArray, size: int, new: int, executor: int) -> None:
    """Put a new end in the place of the heap's first."""
    at = 0
    while True:
        below = 2 * at + 1
        if below >= size:
            break
        if below + 1 < size and key[below + 1] < key[below]:
            below += 1
        if key[below] > new:
            break
        key[at], who[at] = key[below], who[below]
        at = below
    key[at], who[at] = new, executor


@kernel
def pop_end(world: SparkWorld) -> int:
    """Remove the first end from the heap and return its executor."""
    key, who = world.end_key, world.end_executor
    first = who[0]
    last = world.counter[RUNS] - 1
    world.counter[RUNS] = last
    replace_first(key, who, last, key[last], who[last])
    return int(first)


@inlined
def wanted(world: SparkWorld, stage: int) -> int:
    """Return for how many more executors a stage has tasks, those promised or on their way counted; may be negative."""
    return int(world.stage[stage, S_PENDING] - world.stage[stage, S_PROMISED] - world.stage[stage, S_COMING])


@inlined
def runnable(world: SparkWorld, stage: int) -> bool:
    """Tell whether all parents have finished and a task is left to begin."""
    return bool(world.stage[stage, S_PARENTS] == 0 and world.stage[stage, S_PENDING] > 0)


@kernel
def leave_stage(world: SparkWorld, executor: int) -> None:
    """Take an executor from its stage: its next task is a fresh one."""
    if world.executor[executor, E_STAGE] != NONE:
        world.stage[world.executor[executor, E_STAGE], S_AT] -= 1
        world.executor[executor, E_STAGE] = NONE
    world.executor[executor, E_LAST] = NONE


@kernel
def leave_job(world: SparkWorld, executor: int) -> None:
    """Take an executor from its job, if it has one."""
    if world.executor[executor, E_JOB] != NONE:
        world.job[world.executor[executor, E_JOB], J_ATTACHED] -= 1
        world.executor[executor, E_JOB] = NONE
    leave_stage(world, executor)


@kernel
def enter_pool(world: SparkWorld, pool: int, executor: int) -> None:
    """Let an executor idle at the end of a pool: a job's, or (the last one) that of executors without a job."""
    of_executor, of_job = world.executor, world.job
    if pool == len(world.job) - 1:
        leave_job(world, executor)
    else:
        leave_stage(world, executor)
    last = of_job[pool, J_LAST]
    of_executor[executor, E_POOL] = pool
    of_executor[executor, E_NEXT], of_executor[executor, E_PREVIOUS] = NONE, last
    if last == NONE:
        of_job[pool, J_FIRST] = executor
    else:
        of_executor[last, E_NEXT] = executor
    of_job[pool, J_LAST] = executor
    of_job[pool, J_POOL] += 1


@kernel
def leave_pool(world: SparkWorld, executor: int) -> None:
    """Take an executor out of its pool."""
    of_executor, of_job = world.executor, world.job
    pool = of_executor[executor, E_POOL]
    before, after = of_executor[executor, E_PREVIOUS], of_executor[executor, E_NEXT]
    if before == NONE:
        of_job[pool, J_FIRST] = after
    else:
        of_executor[before, E_NEXT] = after
    if after == NONE:
        of_job[pool, J_LAST] = before
    else:
        of_executor[after, E_PREVIOUS] = before
    of_job[pool, J_POOL] -= 1
    of_executor[executor, E_POOL] = NONE


@kernel
def run_task(tables: SparkTables, waves: Waves, world: SparkWorld, executor: int, stage: int) -> None:
    """Begin the next task of a runnable stage on an executor that is attached to its job."""
    of_executor, of_stage = world.executor, world.stage
    job = of_executor[executor, E_JOB]
    last = of_executor[executor, E_LAST]
    situation = FRESH if last == NONE else REST if last == stage else FIRST
    duration_ms, word = task_duration_ms(waves, world.counter[WORD], stage, situation, world.job[job, J_ATTACHED])
    world.counter[WORD] = word
    if of_executor[executor, E_STAGE] != stage:
        if of_executor[executor, E_STAGE] != NONE:
            of_stage[of_executor[executor, E_STAGE], S_AT] -= 1
        of_executor[executor, E_STAGE] = stage
        of_stage[stage, S_AT] += 1
    of_executor[executor, E_LAST] = stage
    task = tables.task_ptr[stage + 1] - of_stage[stage, S_PENDING]
    of_stage[stage, S_PENDING] -= 1
    if of_stage[stage, S_PENDING] == 0:
        world.job[job, J_OPEN] -= 1
    now_ms = world.counter[NOW_MS]
    world.task_start_ms[task] = now_ms
    world.task_end_ms[task] = now_ms + duration_ms
    world.task_executor[task] = executor
    of_executor[executor, E_TASK] = task
    push_end(world, now_ms + duration_ms, executor)


@kernel
def run_waves(tables: SparkTables, waves: Waves, world: SparkWorld, until_ms: int) -> None:
    """Let executors go from task to task of their stages, before `until_ms` and until one needs more than that.

    Nearly all events are of this kind, so this loop is what the engine's speed hangs on: it works on the arrays
    themselves and calls nothing.
    """
    counter, of_executor, of_stage = world.counter, world.executor, world.stage
    key, who, runs = world.end_key, world.end_executor, world.counter[RUNS]
    word, ended = counter[WORD], 0
    while runs > 0:
        now_ms = first_end_ms(world)
        executor = who[0]
        stage = of_executor[executor, E_STAGE]
        if now_ms >= until_ms or of_executor[executor, E_GOING] != NONE or of_stage[stage, S_PENDING] == 0:
            break
        job = of_executor[executor, E_JOB]
        duration_ms, word = task_duration_ms(waves, word, stage, REST, world.job[job, J_ATTACHED])
        task = tables.task_ptr[stage + 1] - of_stage[stage, S_PENDING]
        of_stage[stage, S_UNFINISHED] -= 1
        of_stage[stage, S_PENDING] -= 1
        if of_stage[stage, S_PENDING] == 0:
            world.job[job, J_OPEN] -= 1
        world.task_start_ms[task] = now_ms
        world.task_end_ms[task] = now_ms + duration_ms
        world.task_executor[task] = executor
        of_executor[executor, E_TASK] = task
        replace_first(key, who, runs, next_key(world, now_ms + duration_ms), executor)
        counter[NOW_MS] = now_ms
        ended += 1
    counter[WORD] = word
    counter[TASKS_ENDED] += ended


@kernel
def travel(tables: SparkTables, world: SparkWorld, executor: int, stage: int) -> None:
    """Send an executor to a stage of another job, which it belongs to from now on."""
    leave_job(world, executor)
    world.executor[executor, E_GOING] = stage
    world.stage[stage, S_COMING] += 1
    world.job[tables.stage_job[stage], J_INCOMING] += 1
    push_end(world, world.counter[NOW_MS] + tables.moving_delay_ms, executor)
