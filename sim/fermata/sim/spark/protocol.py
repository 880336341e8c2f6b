"""Decima's protocol: executors are promised to stages before they are free, and go there as they become free.

The scheduler is asked about a source: the executors at a stage that runs out of tasks (busy ones included), or those in
a pool. It answers with a stage and a number, again and again until each executor of the source has a destination. A
promise is kept by the next executor that the source lets go. `run_to_question` and `answer` are the two entry points;
policies are not known here.

Source: https://github.com/hongzimao/decima-sim (`spark_env/env.py`).
"""

from __future__ import annotations

from fermata.policy._jit import inlined, kernel
from fermata.sim.spark.executors import (
    enter_pool,
    first_end_ms,
    leave_job,
    leave_pool,
    pop_end,
    run_task,
    run_waves,
    runnable,
    travel,
    wanted,
)
from fermata.sim.spark.promises import FIRST_PROMISE, drop_promise, promise, redeem
from fermata.sim.spark.waves import Waves
from fermata.sim.spark.world import (
    ARRIVED,
    ASKING,
    DECISIONS,
    E_GOING,
    E_JOB,
    E_LAST,
    E_POOL,
    E_STAGE,
    FINISHED,
    J_ATTACHED,
    J_FIRST,
    J_INCOMING,
    J_NEXT,
    J_OPEN,
    J_POOL,
    J_PREVIOUS,
    J_STAGES,
    JOB_IS_DONE,
    MOVES_ENDED,
    NONE,
    NOW_MS,
    P_SOURCE,
    P_TARGET,
    POOL,
    ROUND,
    RUNS,
    S_AT,
    S_CHOSEN,
    S_COMING,
    S_PARENTS,
    S_PENDING,
    S_PROMISED,
    S_TURN,
    S_UNFINISHED,
    SOURCE_JOB,
    TASKS_ENDED,
    TURN,
    TURNS,
    SparkTables,
    SparkWorld,
)

NEVER_MS = 1 << 62


@kernel
def reachable(tables: SparkTables, world: SparkWorld, stage: int) -> bool:
    """Tell whether a stage may be chosen: not chosen in this round, wants executors, and none of its parents does.

    Where nothing is done ahead all its parents must have finished.
    """
    if world.stage[stage, S_CHOSEN] == world.counter[ROUND] or wanted(world, stage) <= 0:
        return False
    if not tables.ahead:
        return bool(world.stage[stage, S_PARENTS] == 0)
    for edge in range(tables.parent_ptr[stage], tables.parent_ptr[stage + 1]):
        if wanted(world, tables.parent[edge]) > 0:
            return False
    return True


@inlined
def pool_source(tables: SparkTables, pool: int) -> int:
    """Return the index of a pool among the sources; a stage's is its own."""
    return len(tables.stage_job) + pool


@inlined
def _source_of(tables: SparkTables, world: SparkWorld, executor: int) -> int:
    """Return the source that an executor belongs to: its stage, or the pool of its job."""
    stage, job = world.executor[executor, E_STAGE], world.executor[executor, E_JOB]
    if stage != NONE:
        return int(stage)
    return pool_source(tables, job if job != NONE else len(world.job) - 1)


@inlined
def _idle(world: SparkWorld, executor: int) -> None:
    """Let an executor idle: in its job if tasks of it are left to begin, else outside of all jobs."""
    job = world.executor[executor, E_JOB]
    outside = len(world.job) - 1
    enter_pool(world, job if job != NONE and world.job[job, J_OPEN] > 0 else outside, executor)


@kernel
def _use_elsewhere(tables: SparkTables, waves: Waves, world: SparkWorld, executor: int) -> None:
    """Find work for an executor whose destination has no task left for it: in its job, then anywhere."""
    job = world.executor[executor, E_JOB]
    if job != NONE:
        stage = first_runnable(tables, world, job)
        if stage != NONE:
            run_task(tables, waves, world, executor, stage)
            return
    outside = len(world.job) - 1
    other = world.job[outside, J_NEXT]
    while other != outside:
        for stage in range(tables.job_stage_ptr[other], tables.job_stage_ptr[other + 1]):
            if reachable(tables, world, stage):
                travel(tables, world, executor, stage)
                return
        other = world.job[other, J_NEXT]
    enter_pool(world, job if job != NONE else outside, executor)


@kernel
def first_runnable(tables: SparkTables, world: SparkWorld, job: int) -> int:
    """Return the stage of a job that became runnable first, among those that want executors and were not chosen."""
    best, turn = NONE, 0
    for stage in range(tables.job_stage_ptr[job], tables.job_stage_ptr[job + 1]):
        if not runnable(world, stage) or wanted(world, stage) <= 0:
            continue
        if world.stage[stage, S_CHOSEN] == world.counter[ROUND]:
            continue
        if best == NONE or world.stage[stage, S_TURN] < turn:
            best, turn = stage, world.stage[stage, S_TURN]
    return best


@inlined
def _go(tables: SparkTables, waves: Waves, world: SparkWorld, executor: int, stage: int) -> None:
    """Let an executor go where it was promised to."""
    if stage == NONE:
        _idle(world, executor)
    elif world.stage[stage, S_PENDING] == 0:
        _use_elsewhere(tables, waves, world, executor)
    elif world.executor[executor, E_JOB] != tables.stage_job[stage]:
        travel(tables, world, executor, stage)
    elif runnable(world, stage):
        run_task(tables, waves, world, executor, stage)
    else:
        enter_pool(world, world.executor[executor, E_JOB], executor)


@kernel
def _keep_promises(tables: SparkTables, waves: Waves, world: SparkWorld, source: int, executor: int) -> None:
    """Send `executor`, or (NONE) those that are in the source's pool now, where the source has promised them to."""
    pool = source - len(tables.stage_job)
    outside = len(world.job) - 1
    left = 1
    source_job = NONE
    if executor == NONE:
        left = world.job[pool, J_POOL]
        source_job = pool if pool != outside else NONE
    elif source < len(tables.stage_job):
        source_job = tables.stage_job[source]
    while left > 0 and world.promised_by[source, FIRST_PROMISE] != NONE:
        stage = redeem(tables, world, source, source_job)
        who = executor if executor != NONE else world.job[pool, J_FIRST]
        left -= 1
        if world.executor[who, E_POOL] != NONE:
            leave_pool(world, who)
        _go(tables, waves, world, who, stage)


@kernel
def answer(tables: SparkTables, waves: Waves, world: SparkWorld, stage: int, limit: int) -> None:
    """Promise up to `limit` executors of the source to a reachable stage, or (NONE) to idle."""
    count = world.counter
    count[DECISIONS] += 1
    turn = count[TURN]
    source = _source_of(tables, world, turn) if turn != NONE else pool_source(tables, count[POOL])
    source_job = NONE
    if turn != NONE:
        source_job = world.executor[turn, E_JOB]
    elif count[POOL] != len(world.job) - 1:
        source_job = count[POOL]
    amount = limit
    if stage != NONE:
        world.stage[stage, S_CHOSEN] = count[ROUND]
        amount = min(wanted(world, stage), limit)
    promise(tables, world, source, source_job, stage, amount)
    count[ASKING] -= amount
    if count[ASKING] == 0:
        count[ROUND] += 1
        _keep_promises(tables, waves, world, source, turn)


@kernel
def decline(tables: SparkTables, waves: Waves, world: SparkWorld) -> None:
    """Promise nothing more of the source: who has no promise idles, and the others are asked about as they get free."""
    turn = world.counter[TURN]
    source = _source_of(tables, world, turn) if turn != NONE else pool_source(tables, world.counter[POOL])
    world.counter[ASKING] = 0
    world.counter[ROUND] += 1
    if world.promised_by[source, FIRST_PROMISE] != NONE:
        _keep_promises(tables, waves, world, source, turn)
    elif turn != NONE:
        _idle(world, turn)


@kernel
def _ask_pool(world: SparkWorld, pool: int) -> None:
    """Make a pool the source; an empty one asks nothing."""
    world.counter[TURN], world.counter[POOL] = NONE, pool
    world.counter[SOURCE_JOB] = pool if pool != len(world.job) - 1 else NONE
    world.counter[ASKING] = world.job[pool, J_POOL]


@inlined
def _let_go(tables: SparkTables, waves: Waves, world: SparkWorld, executor: int, unlocked: bool) -> None:
    """Settle what an executor does whose stage has no task left; `unlocked`: stages of its job became runnable."""
    stage, job = world.executor[executor, E_STAGE], world.executor[executor, E_JOB]
    promised = world.promised_by[stage, FIRST_PROMISE] != NONE
    if promised:
        _keep_promises(tables, waves, world, stage, executor)
    elif unlocked:
        enter_pool(world, job, executor)
    if unlocked:
        _ask_pool(world, job)
    elif not promised:
        world.counter[TURN], world.counter[SOURCE_JOB] = executor, job
        world.counter[ASKING] = world.stage[stage, S_AT]
        if tables.asks_idle:
            world.executor[executor, E_LAST] = NONE


@inlined
def _end_task(tables: SparkTables, waves: Waves, world: SparkWorld, executor: int) -> None:
    """End an executor's task: it goes on with its stage while that has tasks left."""
    world.counter[TASKS_ENDED] += 1
    stage = world.executor[executor, E_STAGE]
    world.stage[stage, S_UNFINISHED] -= 1
    if world.stage[stage, S_PENDING] > 0:
        run_task(tables, waves, world, executor, stage)
        return
    job = tables.stage_job[stage]
    unlocked = False
    if world.stage[stage, S_UNFINISHED] == 0:
        world.job[job, J_STAGES] -= 1
        unlocked = _unlock(tables, world, stage)
    _let_go(tables, waves, world, executor, unlocked)
    if world.stage[stage, S_UNFINISHED] == 0 and world.job[job, J_STAGES] == 0:
        _end_job(tables, world, job, executor)


@kernel
def _unlock(tables: SparkTables, world: SparkWorld, stage: int) -> bool:
    """Make runnable the children whose last parent this was; tell whether there are any."""
    unlocked = False
    for edge in range(tables.child_ptr[stage], tables.child_ptr[stage + 1]):
        below = world.stage[tables.child[edge]]
        below[S_PARENTS] -= 1
        if below[S_PARENTS] == 0:
            world.counter[TURNS] += 1
            below[S_TURN] = world.counter[TURNS]
            unlocked = True
    return unlocked


@kernel
def _end_job(tables: SparkTables, world: SparkWorld, job: int, executor: int) -> None:
    """End a job: its executors belong to none, and who travels to it or was promised to it goes elsewhere."""
    world.job_completion_ms[job] = world.counter[NOW_MS]
    world.counter[FINISHED] += 1
    row = world.job[job]
    if world.executor[executor, E_JOB] == job and world.executor[executor, E_POOL] == NONE:
        leave_job(world, executor)
    while row[J_POOL] > 0:
        who = row[J_FIRST]
        leave_pool(world, who)
        enter_pool(world, len(world.job) - 1, who)
    world.job[row[J_PREVIOUS], J_NEXT] = row[J_NEXT]
    world.job[row[J_NEXT], J_PREVIOUS] = row[J_PREVIOUS]
    if row[J_INCOMING] == 0:
        return
    for entry in range(len(world.promise)):
        stage = world.promise[entry, P_TARGET]
        if world.promise[entry, P_SOURCE] != NONE and stage != NONE and tables.stage_job[stage] == job:
            world.stage[stage, S_PROMISED] = 0
            drop_promise(world, entry)
    for who in range(len(world.executor)):
        stage = world.executor[who, E_GOING]
        if stage >= 0 and tables.stage_job[stage] == job:
            world.executor[who, E_GOING] = JOB_IS_DONE


@kernel
def _arrive(tables: SparkTables, world: SparkWorld) -> None:
    """Let the next job arrive: executors without a job are asked about."""
    job, outside = world.counter[ARRIVED], len(world.job) - 1
    world.counter[ARRIVED] = job + 1
    last = world.job[outside, J_PREVIOUS]
    world.job[job, J_PREVIOUS], world.job[job, J_NEXT] = last, outside
    world.job[last, J_NEXT] = world.job[outside, J_PREVIOUS] = job
    for stage in range(tables.job_stage_ptr[job], tables.job_stage_ptr[job + 1]):
        if world.stage[stage, S_PARENTS] == 0:
            world.counter[TURNS] += 1
            world.stage[stage, S_TURN] = world.counter[TURNS]
    if world.job[outside, J_POOL] > 0:
        _ask_pool(world, outside)


@inlined
def _end_travel(tables: SparkTables, waves: Waves, world: SparkWorld, executor: int) -> None:
    """Let an executor arrive at the stage that it was sent to."""
    world.counter[MOVES_ENDED] += 1
    stage = world.executor[executor, E_GOING]
    world.executor[executor, E_GOING] = NONE
    if stage != JOB_IS_DONE:
        job = tables.stage_job[stage]
        world.stage[stage, S_COMING] -= 1
        world.job[job, J_INCOMING] -= 1
        world.job[job, J_ATTACHED] += 1
        world.executor[executor, E_JOB] = job
        if world.stage[stage, S_PENDING] > 0:
            if runnable(world, stage):
                run_task(tables, waves, world, executor, stage)
            else:
                enter_pool(world, job, executor)
            return
    _use_elsewhere(tables, waves, world, executor)


@kernel
def run_to_question(tables: SparkTables, waves: Waves, world: SparkWorld) -> bool:
    """Run to the next event that leaves executors to decide about; False at the end of the episode."""
    count = world.counter
    jobs = len(tables.job_arrival_ms)
    while count[ASKING] == 0:
        arrival_ms = tables.job_arrival_ms[count[ARRIVED]] if count[ARRIVED] < jobs else NEVER_MS
        run_waves(tables, waves, world, arrival_ms)
        if arrival_ms < NEVER_MS and (count[RUNS] == 0 or arrival_ms <= first_end_ms(world)):
            count[NOW_MS] = arrival_ms
            _arrive(tables, world)
            continue
        if count[RUNS] == 0:
            return False
        count[NOW_MS] = first_end_ms(world)
        executor = pop_end(world)
        if world.executor[executor, E_GOING] == NONE:
            _end_task(tables, waves, world, executor)
        else:
            _end_travel(tables, waves, world, executor)
    return True
