"""The discrete-event engine: moves a `World` from event to event and applies actions to it.

Two entry points: `advance` runs to the next instant at which there is something to decide, `apply` takes one action.
Everything at one instant (completions in the order in which the tasks started, then arrivals) happens before the
scheduler is asked. The order of events depends on nothing but the trace and the actions, so an episode is determined
by them. Policies are not known here; `simulate` joins the two.
"""

from __future__ import annotations

import math

from fermata.policy._jit import inlined, jit
from fermata.policy.action import START, WAIT
from fermata.policy.state import IDLE, ClusterState
from fermata.policy.transition import begin, executors_per_task, moldable_duration, tasks_to_begin
from fermata.sim.world import (
    ACTIVE,
    ARRIVED,
    DECISIONS,
    EVENTS,
    FINISHED,
    FREE,
    HELD_UNTIL,
    NOW,
    READY,
    RUNS,
    SEQUENCE,
    WAKE,
    Tables,
    World,
    view,
)

# What `advance` says
DECIDE, DONE, STUCK = range(3)


@jit
def _push_run(world: World, end_s: float, executor: int) -> None:
    """Add a running task to the heap."""
    sequence = world.counter[SEQUENCE]
    world.counter[SEQUENCE] = sequence + 1
    at = world.counter[RUNS]
    world.counter[RUNS] = at + 1
    time, order, first = world.run_time_s, world.run_sequence, world.run_executor
    while at > 0:
        above = (at - 1) >> 1
        if time[above] <= end_s:  # an equal end with a lower sequence number stays above
            break
        time[at], order[at], first[at] = time[above], order[above], first[above]
        at = above
    time[at], order[at], first[at] = end_s, sequence, executor


@jit
def _pop_run(world: World) -> int:
    """Remove the task that ends first and return its first executor."""
    time, order, first = world.run_time_s, world.run_sequence, world.run_executor
    popped = first[0]
    last = world.counter[RUNS] - 1
    world.counter[RUNS] = last
    end_s, sequence, executor = time[last], order[last], first[last]
    at = 0
    while True:
        below = 2 * at + 1
        if below >= last:
            break
        right = below + 1
        if right < last and (time[right] < time[below] or (time[right] == time[below] and order[right] < order[below])):
            below = right
        if time[below] > end_s or (time[below] == end_s and order[below] > sequence):
            break
        time[at], order[at], first[at] = time[below], order[below], first[below]
        at = below
    time[at], order[at], first[at] = end_s, sequence, executor
    return int(popped)


@inlined
def _make_ready(world: World, stage: int) -> None:
    world.stage_ready_s[stage] = world.clock[NOW]
    world.ready_stages[world.counter[READY]] = stage
    world.counter[READY] += 1


@jit
def _arrive(tables: Tables, world: World) -> None:
    """Let the next job of the trace arrive."""
    job = world.counter[ARRIVED]
    world.counter[ARRIVED] = job + 1
    at = world.counter[ACTIVE]
    world.active_jobs[at] = job
    world.active_position[job] = at
    world.counter[ACTIVE] = at + 1
    for stage in range(tables.job_stage_ptr[job], tables.job_stage_ptr[job + 1]):
        if tables.stage_parents[stage] == 0:
            _make_ready(world, stage)


@jit
def _finish_stage(tables: Tables, world: World, stage: int) -> None:
    """Make ready the children whose last parent this was; finish the job with its last stage."""
    for edge in range(tables.child_ptr[stage], tables.child_ptr[stage + 1]):
        below = tables.child[edge]
        world.stage_parents_left[below] -= 1
        if world.stage_parents_left[below] == 0:
            _make_ready(world, below)
    job = tables.stage_job[stage]
    world.job_stages_left[job] -= 1
    if world.job_stages_left[job] > 0:
        return
    world.job_completion_s[job] = world.clock[NOW]
    world.counter[FINISHED] += 1
    last = world.counter[ACTIVE] - 1
    world.counter[ACTIVE] = last
    moved, at = world.active_jobs[last], world.active_position[job]
    world.active_jobs[at] = moved
    world.active_position[moved] = at


@inlined
def _task_of(tables: Tables, world: World, stage: int) -> int:
    """Return the index of the next task of a stage: its tasks start in their order."""
    return int(tables.task_ptr[stage + 1] - world.stage_pending[stage])


@inlined
def _run_task(world: World, task: int, executor: int, duration_s: float) -> None:
    """Note a task's times and put its end on the heap."""
    end_s = world.clock[NOW] + duration_s
    world.task_start_s[task] = world.clock[NOW]
    world.task_end_s[task] = end_s
    world.task_executor[task] = executor
    _push_run(world, end_s, executor)


@jit
def _complete(tables: Tables, world: World) -> None:
    """End the task that ends first: its executors go on with their stage (sticky), or become free."""
    executor = _pop_run(world)
    stage = world.executor_stage[executor]
    job = tables.stage_job[stage]
    world.stage_running[stage] -= 1
    left_s = world.job_remaining_work_s[job] - tables.stage_slots[stage] * tables.stage_estimate_s[stage]
    world.job_remaining_work_s[job] = max(left_s, 0.0)  # rounding must not make it negative
    pending = world.stage_pending[stage]
    if tables.sticky and pending > 0 and world.stage_running[stage] < world.stage_cap[stage]:
        _continue(tables, world, stage, job, executor)
        return
    freed = 0
    while executor != IDLE:
        after = world.next_executor[executor]
        world.executor_stage[executor] = IDLE
        world.executor_free_at_s[executor] = -math.inf
        world.next_executor[executor] = IDLE
        world.free_executors[world.counter[FREE]] = executor
        world.counter[FREE] += 1
        freed += 1
        executor = after
    world.job_running[job] -= freed
    if world.job_running[job] == 0:
        world.job_run_s[job] += world.clock[NOW] - world.job_run_since_s[job]
    if pending == 0 and world.stage_running[stage] == 0:
        _finish_stage(tables, world, stage)


@jit
def _continue(tables: Tables, world: World, stage: int, job: int, executor: int) -> None:
    """Start the stage's next task on the executors that the last one leaves."""
    task = _task_of(tables, world, stage)
    world.stage_pending[stage] -= 1
    world.stage_running[stage] += 1
    expected_s = world.clock[NOW] + tables.stage_estimate_s[stage]
    other = executor
    while other != IDLE:
        world.executor_free_at_s[other] = expected_s
        other = world.next_executor[other]
    if world.stage_pending[stage] == 0:
        _drop_ready(world, stage)
    _run_task(world, task, executor, tables.task_duration_s[task])


@jit
def _drop_ready(world: World, stage: int) -> None:
    last = world.counter[READY] - 1
    for i in range(last + 1):
        if world.ready_stages[i] == stage:
            world.ready_stages[i] = world.ready_stages[last]
            break
    world.counter[READY] = last


@jit
def _count_held(tables: Tables, world: World, until_s: float) -> None:
    """Add the time from now until `until_s` to all that could have started and did not: it was held on purpose."""
    span_s = until_s - world.clock[NOW]
    free = world.counter[FREE]
    for i in range(world.counter[READY]):
        stage = world.ready_stages[i]
        if world.stage_cap[stage] > 0 or tables.stage_slots[stage] > free:
            continue
        world.stage_held_s[stage] += span_s
        job = tables.stage_job[stage]
        if world.job_running[job] == 0 and world.job_held_mark_s[job] < until_s:
            world.job_held_s[job] += span_s
            world.job_held_mark_s[job] = until_s


@inlined
def next_event_s(tables: Tables, world: World) -> float:
    """Return the time of the next completion, arrival or wake-up; inf if there is none."""
    time_s = world.clock[WAKE]
    if world.clock[HELD_UNTIL] > world.clock[NOW]:
        for i in range(world.counter[READY]):
            hold_s = world.stage_hold_until_s[world.ready_stages[i]]
            if hold_s > world.clock[NOW]:
                time_s = min(time_s, hold_s)
    if world.counter[RUNS] > 0:
        time_s = min(time_s, world.run_time_s[0])
    arrived = world.counter[ARRIVED]
    if arrived < len(tables.job_arrival_s):
        time_s = min(time_s, tables.job_arrival_s[arrived])
    return float(time_s)


@jit
def advance(tables: Tables, world: World) -> int:
    """Run to the next instant at which executors are free and stages ready; DONE at the end of the episode.

    STUCK: jobs are left, but nothing runs, nothing arrives and no wake-up is set.
    """
    jobs = len(tables.job_arrival_s)
    clock, count = world.clock, world.counter
    while True:
        time_s = next_event_s(tables, world)
        if math.isinf(time_s):
            return DONE if count[FINISHED] == jobs else STUCK
        if count[FREE] > 0 and count[READY] > 0:
            _count_held(tables, world, time_s)
        clock[NOW] = time_s
        clock[WAKE] = math.inf  # a wait ends with the next event, whatever it is
        before = count[EVENTS]
        while count[RUNS] > 0 and world.run_time_s[0] <= time_s:
            count[EVENTS] += 1
            _complete(tables, world)
        while count[ARRIVED] < jobs and tables.job_arrival_s[count[ARRIVED]] <= time_s:
            count[EVENTS] += 1
            _arrive(tables, world)
        if count[EVENTS] == before:
            count[EVENTS] += 1  # the end of a wait or of a hold
        if count[FREE] > 0 and count[READY] > 0:
            return DECIDE


@jit
def apply(
    tables: Tables, world: World, state: ClusterState, kind: int, stage: int, cap: int, until_s: float
) -> ClusterState:
    """Take one legal action; `state` is the current `view`, and the view after it is returned."""
    world.counter[DECISIONS] += 1
    if kind == WAIT:
        world.clock[WAKE] = until_s
        return state
    if kind != START:
        world.stage_hold_until_s[stage] = until_s
        world.clock[HELD_UNTIL] = max(world.clock[HELD_UNTIL], until_s)
        return state
    job = tables.stage_job[stage]
    if world.job_running[job] == 0:
        world.job_run_since_s[job] = world.clock[NOW]
        if math.isnan(world.job_start_s[job]):
            world.job_start_s[job] = world.clock[NOW]
    width = executors_per_task(state, stage, cap)
    tasks = tasks_to_begin(state, stage, cap)
    first_task = _task_of(tables, world, stage)
    after = begin(state, stage, cap)
    world.counter[FREE] = after.free
    world.counter[READY] = len(after.ready_stages)
    serial = tables.stage_serial_fraction[stage]
    for i in range(tasks):
        at = after.free + i * width
        for j in range(at, at + width - 1):
            world.next_executor[world.free_executors[j]] = world.free_executors[j + 1]
        world.next_executor[world.free_executors[at + width - 1]] = IDLE
        duration_s = tables.task_duration_s[first_task + i]
        if not math.isnan(serial):
            duration_s = moldable_duration(duration_s, serial, width)
            world.stage_cap[stage] = width  # what it took, where the cap asked for more than was free
        _run_task(world, first_task + i, world.free_executors[at], duration_s)
    return after


@jit
def apply_now(tables: Tables, world: World, kind: int, stage: int, cap: int, until_s: float) -> None:
    """Take one legal action in the current state."""
    apply(tables, world, view(tables, world), kind, stage, cap, until_s)
