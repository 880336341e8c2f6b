"""The discrete-event engine: moves a `World` from event to event and applies actions to it.

Two entry points: `advance` runs to the next instant at which there is something to decide, `apply` takes one action.
Everything at one instant (completions in the order in which the tasks started, then arrivals) happens before the
scheduler is asked. The order of events depends on nothing but the trace and the actions, so an episode is determined
by them. Policies are not known here; `simulate` joins the two.
"""

from __future__ import annotations

import math

from fermata.policy._jit import inlined, kernel, part
from fermata.policy.action import START, WAIT
from fermata.policy.correction import pays
from fermata.policy.estimate_error import after_task
from fermata.policy.rows import copy_row
from fermata.policy.state import IDLE, RECENT_ARRIVALS
from fermata.policy.transition import begin, drop_ready, executors_per_task, moldable_duration
from fermata.sim.correcting import correct_job, learn_from, learn_order_of
from fermata.sim.world import World

# What `advance` says
DECIDE, DONE, STUCK = range(3)


@part
def _push_run(world: World, end_s: float, executor: int, task: int) -> None:
    """Add a running task to the heap."""
    clock, runs = world.clock[0], world.runs
    at = clock.runs
    clock.runs = at + 1
    while at > 0:
        above = (at - 1) >> 1
        if runs[above].end_s <= end_s:  # an equal end that was started earlier stays above
            break
        copy_row(runs, at, runs, above)
        at = above
    runs[at].end_s = end_s
    runs[at].sequence = clock.sequence
    runs[at].executor = executor
    runs[at].task = task
    clock.sequence += 1


@part
def _pop_run(world: World) -> int:
    """Remove the task that ends first and return it."""
    clock, runs = world.clock[0], world.runs
    popped = runs[0].task
    last = clock.runs - 1
    clock.runs = last
    end_s, sequence = runs[last].end_s, runs[last].sequence
    at = 0
    while True:
        below = 2 * at + 1
        if below >= last:
            break
        right = below + 1
        if right < last:
            one, two = runs[below], runs[right]
            if two.end_s < one.end_s or (two.end_s == one.end_s and two.sequence < one.sequence):
                below = right
        if runs[below].end_s > end_s or (runs[below].end_s == end_s and runs[below].sequence > sequence):
            break
        copy_row(runs, at, runs, below)
        at = below
    copy_row(runs, at, runs, last)
    return int(popped)


@inlined
def _make_ready(world: World, stage: int) -> None:
    pool = world.board.pool[0]
    world.board.stages[stage].ready_s = pool.now_s
    world.board.ready[pool.ready] = stage
    pool.ready += 1


@part
def _arrive(world: World) -> None:
    """Let the next job of the trace arrive."""
    clock, pool = world.clock[0], world.board.pool[0]
    job = clock.arrived
    clock.arrived = job + 1
    progress = world.job_progress[job]
    world.board.active[pool.active] = job
    progress.position = pool.active
    pool.active += 1
    if clock.corrects and pays(world.correction):
        correct_job(world, job)
    pool.recent_end += 1
    pool.recent_begin = max(0, pool.recent_end - RECENT_ARRIVALS)
    for stage in range(progress.first_stage, progress.end_stage):
        if world.stage_progress[stage].parents_left == 0:
            _make_ready(world, stage)


@part
def _free_children(world: World, stage: int) -> None:
    """Make ready the children whose last parent this was."""
    for edge in range(world.stage_progress[stage].first_child, world.stage_progress[stage].end_child):
        below = world.children[edge]
        world.stage_progress[below].parents_left -= 1
        if world.stage_progress[below].parents_left == 0:
            _make_ready(world, below)


@part
def _finish_stage(world: World, stage: int) -> None:
    """Make ready what waited for this stage alone; finish the job with its last stage."""
    board, job = world.board, world.board.stages[stage].job
    progress = world.job_progress[job]
    if not progress.failed:
        _free_children(world, stage)
        if world.clock[0].corrects and not world.stage_progress[stage].mute:
            learn_from(world, stage)
    progress.stages_left -= 1
    if progress.stages_left > 0:
        _shorten_path(world, job)
        return
    learn_order_of(world, job)
    board.jobs[job].remaining_path_s = 0.0
    progress.completion_s = board.pool[0].now_s
    world.clock[0].finished += 1
    last = board.pool[0].active - 1
    board.pool[0].active = last
    moved = board.active[last]
    board.active[progress.position] = moved
    world.job_progress[moved].position = progress.position


@inlined
def _shorten_path(world: World, job: int) -> None:
    """Set a job's remaining path to that of its first stage, by path, with tasks left."""
    stages, progress = world.board.stages, world.job_progress[job]
    longest = world.by_path[progress.path_at]
    while stages[longest].pending == 0 and stages[longest].running == 0:
        progress.path_at += 1
        longest = world.by_path[progress.path_at]
    world.board.jobs[job].remaining_path_s = stages[longest].path_s


@inlined
def _run_task(world: World, task: int, executor: int, duration_s: float) -> None:
    """Note a task's times, pauses between its attempts included, and put its end on the heap."""
    row, now_s = world.tasks[task], world.board.pool[0].now_s
    end_s = now_s + (duration_s + row.pause_s)
    row.start_s = now_s
    row.end_s = end_s
    row.executor = executor
    _push_run(world, end_s, executor, task)


@part
def _complete(world: World) -> None:
    """End the task that ends first: its executors go on with their stage (sticky), or become free."""
    board = world.board
    task = world.tasks[_pop_run(world)]
    executor = task.executor
    stage = board.executors[executor].stage
    row, now_s = board.stages[stage], board.pool[0].now_s
    job = board.jobs[row.job]
    row.running -= 1
    work_s = row.slots * row.estimate_s
    # Rounding must not make it negative.
    job.remaining_work_s = max(job.remaining_work_s - work_s, 0.0)
    if task.fails:
        _fail_job(world, stage)
    elif not world.stage_progress[stage].mute:
        expected_s = board.executors[executor].free_at_s - task.start_s
        if world.clock[0].sticky and math.isnan(row.serial_fraction):
            expected_s = row.estimate_s  # its executors may be expected to go on after it
        _measure(world, now_s - task.start_s, expected_s)
    if world.clock[0].sticky and row.pending > 0 and row.running < row.cap:
        _continue(world, stage, executor)
        return
    freed, due_s = 0, board.executors[executor].free_at_s
    while executor != IDLE:
        after = world.next_executor[executor]
        world.next_executor[executor] = IDLE
        board.executors[executor].stage = IDLE
        board.executors[executor].free_at_s = -math.inf
        board.free[board.pool[0].free + freed] = executor
        freed += 1
        executor = after
    board.pool[0].free += freed
    job.running -= freed
    job.running_work_s -= work_s
    job.due_s -= freed * due_s
    if job.running == 0:
        job.running_work_s, job.due_s = 0.0, 0.0  # without what rounding left
        progress = world.job_progress[row.job]
        progress.run_s += now_s - progress.run_since_s
    if row.pending == 0 and row.running == 0:
        _finish_stage(world, stage)


@inlined
def _measure(world: World, duration_s: float, expected_s: float) -> None:
    """Note how far a task's duration was from what was expected of it."""
    pool = world.board.pool[0]
    error, misses = after_task(pool.estimate_error, pool.estimate_misses, pool.measured, duration_s, expected_s)
    pool.estimate_error, pool.estimate_misses = error, misses
    pool.measured += 1


@part
def _fail_job(world: World, failed: int) -> None:
    """Let nothing more start of the job of a stage, one task of which has just ended and failed for good."""
    board, job = world.board, world.board.stages[failed].job
    progress = world.job_progress[job]
    if progress.failed:
        return
    progress.failed = 1
    left, work_s = 0, 0.0
    for stage in range(progress.first_stage, progress.end_stage):
        row = board.stages[stage]
        if row.pending > 0 and not math.isinf(row.ready_s):
            drop_ready(board, stage)
        row.pending = 0
        work_s += row.running * row.slots * row.estimate_s
        # What runs is waited for; the stage itself is finished by its last task, which may be this one.
        if row.running > 0 or stage == failed:
            left += 1
    progress.stages_left = left
    board.jobs[job].remaining_work_s = work_s


@part
def _expect(world: World, stage: int, executor: int, free_at_s: float) -> None:
    """Set when the executors of a task, of which this is the first, are expected to be given back."""
    executors, job = world.board.executors, world.board.jobs[world.board.stages[stage].job]
    while executor != IDLE:
        job.due_s += free_at_s - executors[executor].free_at_s
        executors[executor].free_at_s = free_at_s
        executor = world.next_executor[executor]


@part
def _expect_lanes(world: World) -> None:
    """Expect sticky executors back only after the tasks that their stage will still put on them, as in a cluster.

    Tasks of one estimate end in the order in which they began, so those that wait go round. One that overruns its
    estimate is expected to end now.
    """
    board = world.board
    now_s = board.pool[0].now_s
    for i in range(world.clock[0].runs):
        begun = world.tasks[world.runs[i].task]
        stage = board.executors[begun.executor].stage
        row = board.stages[stage]
        if row.pending == 0 and math.isnan(row.serial_fraction):
            _expect(world, stage, begun.executor, begun.start_s + row.estimate_s)
    for i in range(board.pool[0].ready):
        stage = board.ready[i]
        row = board.stages[stage]
        task, lane = world.stage_progress[stage].end_task - row.pending, row.running
        while lane > 0:
            task -= 1
            begun = world.tasks[task]
            if begun.end_s <= now_s:  # it has ended; those that run are among the latest
                continue
            lane -= 1
            waves = row.pending // row.running + (1 if lane < row.pending % row.running else 0)
            end_s = begun.start_s + row.estimate_s
            if waves > 0:
                end_s = max(end_s, now_s) + waves * row.estimate_s
            _expect(world, stage, begun.executor, end_s)


@part
def _continue(world: World, stage: int, executor: int) -> None:
    """Start the stage's next task on the executors that the last one leaves."""
    board, row = world.board, world.board.stages[stage]
    task = world.stage_progress[stage].end_task - row.pending
    row.pending -= 1
    row.running += 1
    _expect(world, stage, executor, board.pool[0].now_s + row.estimate_s)
    if row.pending == 0:
        drop_ready(board, stage)
    _run_task(world, task, executor, world.tasks[task].duration_s)


@part
def _count_held(world: World, until_s: float) -> None:
    """Add the time from now until `until_s` to all that could have started and did not: it was held on purpose."""
    board = world.board
    span_s = until_s - board.pool[0].now_s
    for i in range(board.pool[0].ready):
        row = board.stages[board.ready[i]]
        if row.running > 0 or row.slots > board.pool[0].free:
            continue
        row.held_s += span_s
        job, progress = board.jobs[row.job], world.job_progress[row.job]
        if job.running == 0 and progress.held_mark_s < until_s:
            job.held_s += span_s
            progress.held_mark_s = until_s


@inlined
def next_event_s(world: World) -> float:
    """Return the time of the next completion, arrival or wake-up; inf if there is none."""
    board, clock = world.board, world.clock[0]
    time_s, now_s = clock.wake_s, board.pool[0].now_s
    if clock.held_until_s > now_s:
        for i in range(board.pool[0].ready):
            hold_s = board.stages[board.ready[i]].hold_until_s
            if hold_s > now_s:
                time_s = min(time_s, hold_s)
    if clock.runs > 0:
        time_s = min(time_s, world.runs[0].end_s)
    if clock.arrived < clock.jobs:
        time_s = min(time_s, board.jobs[clock.arrived].arrival_s)
    return float(time_s)


@kernel
def advance(world: World) -> int:
    """Run to the next instant at which executors are free and stages ready; DONE at the end of the episode.

    STUCK: jobs are left, but nothing runs, nothing arrives and no wake-up is set.
    """
    pool, clock, jobs = world.board.pool[0], world.clock[0], world.board.jobs
    while True:
        time_s = next_event_s(world)
        if math.isinf(time_s):
            return DONE if clock.finished == clock.jobs else STUCK
        if pool.free > 0 and pool.ready > 0:
            _count_held(world, time_s)
        pool.now_s = time_s
        clock.wake_s = math.inf  # a wait ends with the next event, whatever it is
        before = clock.events
        while clock.runs > 0 and world.runs[0].end_s <= time_s:
            clock.events += 1
            _complete(world)
        while clock.arrived < clock.jobs and jobs[clock.arrived].arrival_s <= time_s:
            clock.events += 1
            _arrive(world)
        if clock.events == before:
            clock.events += 1  # the end of a wait or of a hold
        if pool.free > 0 and pool.ready > 0:
            if clock.sticky:
                _expect_lanes(world)
            return DECIDE


@kernel
def apply(world: World, kind: int, stage: int, cap: int, until_s: float) -> None:
    """Take one legal action."""
    clock, board = world.clock[0], world.board
    clock.decisions += 1
    if kind == WAIT:
        clock.wake_s = until_s
    elif kind == START:
        _start(world, stage, cap)
    else:
        board.stages[stage].hold_until_s = until_s
        clock.held_until_s = max(clock.held_until_s, until_s)


@part
def _start(world: World, stage: int, cap: int) -> None:
    """Start tasks of a stage: note its job's first start, and put the tasks' ends on the heap."""
    board, row = world.board, world.board.stages[stage]
    progress, now_s = world.job_progress[row.job], board.pool[0].now_s
    if board.jobs[row.job].running == 0:
        progress.run_since_s = now_s
        if math.isnan(progress.start_s):
            progress.start_s = now_s
    width = executors_per_task(board, stage, cap)
    first_task = world.stage_progress[stage].end_task - row.pending
    tasks = begin(board, stage, cap)
    for i in range(tasks):
        at = board.pool[0].free + i * width
        for j in range(at, at + width - 1):
            world.next_executor[board.free[j]] = board.free[j + 1]
        world.next_executor[board.free[at + width - 1]] = IDLE
        duration_s = world.tasks[first_task + i].duration_s
        if not math.isnan(row.serial_fraction):
            duration_s = moldable_duration(duration_s, row.serial_fraction, width)
            row.cap = width  # what it took, where the cap asked for more than was free
        _run_task(world, first_task + i, board.free[at], duration_s)
