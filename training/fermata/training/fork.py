"""A copy of an episode under way with another future: what the teacher tries its actions on.

`splice` copies the unfinished jobs out of a world and lets jobs of a library episode arrive after them, into memory
that is allocated once. Finished jobs are left out (the recent arrivals, which policies read, are kept), so a copy costs
as much as what is under way. Knows the simulator's memory layout and nothing of policies.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fermata.policy._jit import kernel
from fermata.policy.board import Board, Executor, Job, Pool, Stage, slot_memory
from fermata.policy.correction import copy_correction, new_correction
from fermata.policy.rows import Indices, copy_row, new_indices, new_rows, new_values
from fermata.policy.state import IDLE, RECENT_ARRIVALS
from fermata.sim.trace import Trace
from fermata.sim.world import Clock, JobProgress, Run, StageProgress, Task, World

_WINDOW = 1500  # unfinished jobs that a fork has room for


class Room(NamedTuple):
    """How much a fork can hold."""

    jobs: int
    stages: int
    tasks: int
    edges: int


class Fork(NamedTuple):
    """Memory for one spliced episode, and what it can hold."""

    world: World
    room: Room
    kept: Indices  # [jobs] the index that each job taken over had, ascending


def new_fork(executors: int, room: Room) -> Fork:
    """Allocate a fork of a pool of `executors`."""
    board = Board(
        pool=new_rows(Pool, 1),
        executors=new_rows(Executor, executors),
        jobs=new_rows(Job, room.jobs),
        stages=new_rows(Stage, room.stages),
        recent_arrival_s=new_values(np.zeros(room.jobs + RECENT_ARRIVALS)),
        recent_work_s=new_values(np.zeros(room.jobs + RECENT_ARRIVALS)),
        recent_weight=new_values(np.ones(room.jobs + RECENT_ARRIVALS)),
        short_arrival_s=new_values(np.zeros(RECENT_ARRIVALS)),
        free=new_indices(np.zeros(executors)),
        active=new_indices(np.zeros(room.jobs)),
        ready=new_indices(np.zeros(room.stages)),
        **slot_memory(executors),
    )
    world = World(
        board=board,
        clock=new_rows(Clock, 1),
        runs=new_rows(Run, executors),
        next_executor=new_indices(np.zeros(executors)),
        job_progress=new_rows(JobProgress, room.jobs),
        stage_progress=new_rows(StageProgress, room.stages),
        tasks=new_rows(Task, room.tasks),
        children=new_indices(np.zeros(room.edges)),
        by_path=new_indices(np.zeros(room.stages)),
        correction=new_correction(),
    )
    return Fork(world, room, new_indices(np.zeros(room.jobs)))


def fork_for(episode: Trace, executors: int, horizon: int) -> Fork:
    """Allocate a fork for what may be under way in this episode; a decision that does not fit is not labelled."""
    jobs = _WINDOW + horizon
    spread = 1.3  # what is under way may hold more than its share of large jobs
    room = Room(
        jobs,
        int(spread * jobs * episode.stages / episode.jobs) + 100,
        int(spread * jobs * episode.tasks / episode.jobs) + 1000,
        int(spread * jobs * len(episode.parent) / episode.jobs) + 100,
    )
    return new_fork(executors, room)


@kernel
def _append_job(fork: Fork, at: Room, source: World, job: int) -> Room:
    """Copy a job with its stages, tasks and edges behind what the fork has; return the new ends.

    Returns:
        The ends, or ends of -1 jobs if the fork is too small.
    """
    to, progress = fork.world, source.job_progress[job]
    first, end = progress.first_stage, progress.end_stage
    task0 = source.stage_progress[first - 1].end_task if first > 0 else 0
    task1 = source.stage_progress[end - 1].end_task
    edge0, edge1 = source.stage_progress[first].first_child, source.stage_progress[end - 1].end_child
    after = Room(at.jobs + 1, at.stages + end - first, at.tasks + task1 - task0, at.edges + edge1 - edge0)
    room = fork.room
    if after.jobs > room.jobs or after.stages > room.stages or after.tasks > room.tasks or after.edges > room.edges:
        return Room(-1, -1, -1, -1)
    shift = at.stages - first
    copy_row(to.board.jobs, at.jobs, source.board.jobs, job)
    copy_row(to.job_progress, at.jobs, source.job_progress, job)
    copied = to.job_progress[at.jobs]
    copied.first_stage += shift
    copied.end_stage += shift
    copied.path_at += shift
    for stage in range(first, end):
        copy_row(to.board.stages, stage + shift, source.board.stages, stage)
        to.board.stages[stage + shift].job = at.jobs
        copy_row(to.stage_progress, stage + shift, source.stage_progress, stage)
        row = to.stage_progress[stage + shift]
        row.end_task += at.tasks - task0
        row.first_child += at.edges - edge0
        row.end_child += at.edges - edge0
        to.by_path[stage + shift] = source.by_path[stage] + shift
    for task in range(task0, task1):
        copy_row(to.tasks, at.tasks + task - task0, source.tasks, task)
    for edge in range(edge0, edge1):
        to.children[at.edges + edge - edge0] = source.children[edge] + shift
    return after


@kernel
def _keep_active(fork: Fork, world: World) -> int:
    """List the unfinished jobs in ascending order; return how many there are, -1 if too many."""
    count = world.board.pool[0].active
    if count > fork.room.jobs:
        return -1
    for i in range(count):  # insertion: they are nearly in order
        job, at = world.board.active[i], i
        while at > 0 and fork.kept[at - 1] > job:
            fork.kept[at] = fork.kept[at - 1]
            at -= 1
        fork.kept[at] = job
    return count


@kernel
def _new_job(fork: Fork, count: int, job: int) -> int:
    """Return the index in the fork of a job of the source, IDLE if it was left out."""
    low, high = 0, count
    while low < high:
        middle = (low + high) >> 1
        if fork.kept[middle] < job:
            low = middle + 1
        else:
            high = middle
    return low if low < count and fork.kept[low] == job else IDLE


@kernel
def _new_stage(fork: Fork, world: World, count: int, stage: int) -> int:
    """Return the index in the fork of a stage of an unfinished job."""
    job = world.board.stages[stage].job
    new = _new_job(fork, count, job)
    return stage - world.job_progress[job].first_stage + fork.world.job_progress[new].first_stage


@kernel
def _copy_pool(fork: Fork, world: World, count: int) -> None:
    """Copy executors, running tasks, lists and counts, renumbered."""
    to, board = fork.world, world.board
    copy_row(to.board.pool, 0, board.pool, 0)
    copy_row(to.clock, 0, world.clock, 0)
    pool = to.board.pool[0]
    for i in range(len(board.executors)):
        copy_row(to.board.executors, i, board.executors, i)
        row = to.board.executors[i]
        row.job = _new_job(fork, count, row.job)
        if row.stage != IDLE:
            row.stage = _new_stage(fork, world, count, row.stage)
        to.board.free[i] = board.free[i]
        to.next_executor[i] = world.next_executor[i]
        copy_row(to.runs, i, world.runs, i)
    for i in range(world.clock[0].runs):
        stage = world.board.executors[world.runs[i].executor].stage
        new = _new_stage(fork, world, count, stage)
        to.runs[i].task += to.stage_progress[new].end_task - world.stage_progress[stage].end_task
    for i in range(count):
        to.board.active[i] = i
        to.job_progress[i].position = i
    for i in range(pool.ready):
        to.board.ready[i] = _new_stage(fork, world, count, board.ready[i])
    seen = pool.recent_end - pool.recent_begin
    for i in range(seen):
        to.board.recent_arrival_s[i] = board.recent_arrival_s[pool.recent_begin + i]
        to.board.recent_work_s[i] = board.recent_work_s[pool.recent_begin + i]
        to.board.recent_weight[i] = board.recent_weight[pool.recent_begin + i]
    pool.recent_begin, pool.recent_end = 0, seen


@kernel
def splice(fork: Fork, world: World, library: World, first: int, arrivals: int, since_s: float) -> bool:
    """Make the fork a copy of `world` whose future is `arrivals` jobs of `library` from job `first` on.

    The first of them arrives after the gap that it has in the library, counted from the last arrival in `world`.

    Args:
        fork: written to.
        world: the episode under way.
        library: an episode in which nothing has happened.
        first: at least 1.
        arrivals: first + arrivals is at most the library's jobs.
        since_s: time since that last arrival, at most the gap.

    Returns:
        Whether the fork was large enough.
    """
    count = _keep_active(fork, world)
    if count < 0:
        return False
    at = Room(0, 0, 0, 0)
    for i in range(count):
        at = _append_job(fork, at, world, fork.kept[i])
        if at.jobs < 0:
            return False
    _copy_pool(fork, world, count)
    to = fork.world
    if to.clock[0].corrects:
        copy_correction(to.correction, world.correction)
    clock, seen = to.clock[0], to.board.pool[0].recent_end
    shift_s = to.board.pool[0].now_s - since_s - library.board.jobs[first - 1].arrival_s
    for i in range(arrivals):
        at = _append_job(fork, at, library, first + i)
        if at.jobs < 0:
            return False
        to.board.jobs[count + i].arrival_s += shift_s
        to.board.recent_arrival_s[seen + i] = library.board.recent_arrival_s[first + i] + shift_s
        to.board.recent_work_s[seen + i] = library.board.recent_work_s[first + i]
        to.board.recent_weight[seen + i] = library.board.recent_weight[first + i]
    clock.jobs, clock.arrived, clock.finished = count + arrivals, count, 0
    clock.events, clock.decisions = 0, 0
    return True
