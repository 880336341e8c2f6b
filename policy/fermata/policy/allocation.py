"""Allocation: which stage gets the free executors, how many its job may have, or whether they are better kept.

Where executors belong to jobs and take time to move (Spark), a wide job at the head of the queue would take them all,
and one that frees may be worth more to its own job in a moment than to another's now. A small network looks at every
ready stage by itself, and at waiting, and gives each a score and a cap on the executors of its job; the best score is
taken. So the answer does not depend on how many stages there are, nor on their order. Nothing here allocates.

Inputs are ratios, bounded or logarithms, but for three durations in seconds: what it costs to move an executor is not
part of a state, and it is seconds wherever it has been measured.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fermata.policy._jit import kernel, part
from fermata.policy.action import START, WAIT, startable
from fermata.policy.board import Board
from fermata.policy.guardrails import full_cap
from fermata.policy.rows import Indices, new_indices

FloatArray = NDArray[np.float64]

SCHEMA = "fermata.allocation/1"
FEATURES = (
    # of the row
    "wait",  # 1: the row stands for waiting; it has no stage, and the job is the source's
    "source",  # 1: the free executors come from this job
    # of the pool
    "any_source",  # 1: they come from a job at all
    "executors",  # log, / 4
    "free",  # share of the pool
    "log_active_jobs",  # / 2
    "active_jobs",  # an executor, at most 3
    "backlog",  # log of remaining work an executor over the mean gap between arrivals, / 3
    "load",  # by recent arrivals, at most 3
    "since_arrival",  # mean gaps since the last arrival, / 3
    "alone",  # 1: one job is active
    # of the job
    "work_to_mean",  # log of remaining work over that of the mean active job, / 3
    "work_to_recent",  # ... over the work of the mean recent job, / 3
    "log_work_s",  # ... in seconds, / 3
    "shorter_jobs",  # share of the active jobs with less work left
    "work_before",  # log1p of their work, over the pool and the job's path
    "held",  # executors of the job, as a share of the pool
    "log_held",  # log1p of them, / 2
    "work_to_pool_path",  # log of remaining work over (pool times path), / 3
    "work_to_held_path",  # log of remaining work over (its executors times path), / 3
    "log_path_s",  # longest remaining path, / 3
    "locked",  # share of the remaining work in stages that are not ready
    "ready_stages",  # log1p
    "next_end",  # log1p of the seconds until one of its executors ends its task, / 3; 1 if none is at work
    "age",  # log1p of the time since arrival over the path, / 3
    # of the stage
    "path_share",  # its path over the job's
    "log_tasks",  # tasks to start, / 3
    "work_share",  # their work over the job's
    "log_task_s",  # / 3
    "stage_held",  # tasks that run, over the pool
    "waves",  # log1p of tasks to start over executors of the job
)
SIZE = len(FEATURES)
# What Decima's agent reads, or can add up from what it reads: executors, their source, free ones, work and tasks left.
DECIMA_FEATURES = (
    "source",
    "any_source",
    "executors",
    "free",
    "log_active_jobs",
    "active_jobs",
    "alone",
    "work_to_mean",
    "log_work_s",
    "shorter_jobs",
    "held",
    "log_held",
    "ready_stages",
    "log_tasks",
    "work_share",
    "log_task_s",
    "stage_held",
    "waves",
)

HIDDEN = 16
ANSWERS = 2  # score; logarithm of the cap
# Sections of a network's weights: a linear path and its constants, a layer of rectified units and what they give, and
# what a stage's score loses where its job has as many executors as it may have.
LINEAR = (SIZE + 1) * ANSWERS
LAYER = LINEAR + (SIZE + 1) * HIDDEN
FULL = LAYER + HIDDEN * ANSWERS
PARAMETERS = FULL + 1

_RECENT = 50  # arrivals
_MOST_LOG_CAP = 12.0


class Allocator(NamedTuple):
    """A network and the memory that it works in; built by `allocator`."""

    theta: FloatArray  # [PARAMETERS] the sections above; the first two by input, the constants last
    may_wait: bool
    rows: FloatArray  # [ready stages + 1, SIZE]
    answers: FloatArray  # [ready stages + 1, ANSWERS]
    stages: Indices  # [ready stages + 1] -1: waiting
    hidden: FloatArray  # [HIDDEN]
    job_ready: FloatArray  # [jobs] ready stages
    job_open_s: FloatArray  # [jobs] work of the ready stages
    job_end_s: FloatArray  # [jobs] when its next task is expected to end


class _Moment(NamedTuple):
    """What all rows of a decision have in common."""

    source: int  # the job that the free executors come from, or -1
    total_s: float  # remaining work
    recent_s: float  # mean work of recent arrivals
    gap_s: float  # mean gap between them
    since_s: float  # since the last one


def allocator(theta: FloatArray, may_wait: bool, jobs: int, stages: int) -> Allocator:
    """Return a network with room for a board of so many jobs and stages."""
    return Allocator(
        theta,
        may_wait,
        np.zeros((stages + 1, SIZE)),
        np.zeros((stages + 1, ANSWERS)),
        new_indices(np.zeros(stages + 1)),
        np.zeros(HIDDEN),
        np.zeros(jobs),
        np.zeros(jobs),
        np.zeros(jobs),
    )


@part
def _log(value: float) -> float:
    """Return a logarithm that a vanishing number cannot make infinite."""
    return math.log(max(value, 1e-3))


@part
def _survey(board: Board, to: Allocator) -> _Moment:
    """Gather what is said of jobs by lists of something else, and what all rows share."""
    pool = board.pool[0]
    total_s = 0.0
    for i in range(pool.active):
        job = board.active[i]
        to.job_ready[job] = to.job_open_s[job] = 0.0
        to.job_end_s[job] = math.inf
        total_s += board.jobs[job].remaining_work_s
    for i in range(pool.ready):
        stage = board.stages[board.ready[i]]
        to.job_ready[stage.job] += 1.0
        to.job_open_s[stage.job] += (stage.pending + stage.running) * stage.estimate_s
    for i in range(len(board.executors)):
        row = board.executors[i]
        if row.stage >= 0:
            to.job_end_s[row.job] = min(to.job_end_s[row.job], row.free_at_s)
    end = pool.recent_end
    begin = max(pool.recent_begin, end - _RECENT)
    source = board.executors[board.free[pool.free - 1]].job if pool.free > 0 else -1
    if end == begin:
        return _Moment(source, total_s, 0.0, 1.0, 0.0)
    work_s = 0.0
    for i in range(begin, end):
        work_s += board.recent_work_s[i]
    gap_s = (pool.now_s - board.recent_arrival_s[begin]) / (end - begin)
    since_s = pool.now_s - board.recent_arrival_s[end - 1]
    return _Moment(source, total_s, work_s / (end - begin), max(gap_s, 1e-3), since_s)


@part
def _describe_pool(board: Board, moment: _Moment, x: FloatArray) -> None:
    """Write the features of the pool."""
    pool, executors = board.pool[0], len(board.executors)
    active = max(1, pool.active)
    x[2] = 1.0 if moment.source >= 0 else 0.0
    x[3] = math.log(executors) / 4.0
    x[4] = pool.free / executors
    x[5] = math.log(active) / 2.0
    x[6] = min(active / executors, 3.0)
    x[7] = _log(moment.total_s / executors / moment.gap_s) / 3.0
    x[8] = min(moment.recent_s / moment.gap_s / executors, 3.0)
    x[9] = min(moment.since_s / moment.gap_s, 5.0) / 3.0
    x[10] = 1.0 if active == 1 else 0.0


@part
def _describe_job(board: Board, to: Allocator, moment: _Moment, index: int, x: FloatArray) -> None:
    """Write the features of a job."""
    pool, job, executors = board.pool[0], board.jobs[index], len(board.executors)
    work_s, path_s, held = max(job.remaining_work_s, 1e-3), max(job.remaining_path_s, 1e-3), max(job.running, 0)
    shorter, before_s = 0, 0.0
    for i in range(pool.active):
        other_s = board.jobs[board.active[i]].remaining_work_s
        if other_s < job.remaining_work_s:
            shorter += 1
            before_s += other_s
    x[1] = 1.0 if index == moment.source else 0.0
    x[11] = _log(work_s * pool.active / max(moment.total_s, 1e-3)) / 3.0
    x[12] = _log(work_s / max(moment.recent_s, 1e-3)) / 3.0
    x[13] = _log(work_s) / 3.0
    x[14] = shorter / max(1, pool.active)
    x[15] = math.log1p(before_s / executors / path_s)
    x[16] = held / executors
    x[17] = math.log1p(held) / 2.0
    x[18] = _log(work_s / executors / path_s) / 3.0
    x[19] = _log(work_s / max(held, 1) / path_s) / 3.0
    x[20] = _log(path_s) / 3.0
    x[21] = min(max(1.0 - to.job_open_s[index] / work_s, 0.0), 1.0)
    x[22] = math.log1p(to.job_ready[index])
    end_s = to.job_end_s[index] - pool.now_s
    x[23] = math.log1p(max(end_s, 0.0)) / 3.0 if end_s < math.inf else 1.0
    x[24] = math.log1p(max(pool.now_s - job.arrival_s, 0.0) / path_s) / 3.0


@part
def _describe_stage(board: Board, index: int, x: FloatArray) -> None:
    """Write the features of a stage with tasks to start."""
    stage = board.stages[index]
    job = board.jobs[stage.job]
    x[25] = stage.path_s / max(job.remaining_path_s, 1e-3)
    x[26] = math.log(stage.pending) / 3.0
    x[27] = min(stage.pending * stage.estimate_s / max(job.remaining_work_s, 1e-3), 2.0)
    x[28] = _log(stage.estimate_s) / 3.0
    x[29] = stage.running / len(board.executors)
    x[30] = math.log1p(stage.pending / max(1, job.running))


@kernel
def describe(board: Board, to: Allocator) -> int:
    """Write a row for each startable stage and one for waiting, the last; return how many."""
    moment, count = _survey(board, to), 0
    for i in range(board.pool[0].ready):
        stage = board.ready[i]
        if startable(board, stage):
            x = to.rows[count]
            x[:] = 0.0
            _describe_pool(board, moment, x)
            _describe_job(board, to, moment, board.stages[stage].job, x)
            _describe_stage(board, stage, x)
            to.stages[count] = stage
            count += 1
    x = to.rows[count]
    x[:] = 0.0
    x[0] = 1.0
    _describe_pool(board, moment, x)
    source = moment.source
    if source >= 0 and board.jobs[source].remaining_work_s > 0.0:
        _describe_job(board, to, moment, source, x)
    to.stages[count] = -1
    return count + 1


@kernel
def answer_row(theta: FloatArray, x: FloatArray, hidden: FloatArray, answer: FloatArray) -> None:
    """Write score and logarithm of the cap of one row."""
    for k in range(ANSWERS):
        answer[k] = theta[SIZE * ANSWERS + k]
    for unit in range(HIDDEN):
        hidden[unit] = theta[LINEAR + SIZE * HIDDEN + unit]
    for i in range(SIZE):
        value = x[i]
        if value != 0.0:
            for k in range(ANSWERS):
                answer[k] += theta[i * ANSWERS + k] * value
            row = LINEAR + i * HIDDEN
            for unit in range(HIDDEN):
                hidden[unit] += theta[row + unit] * value
    for unit in range(HIDDEN):
        value = max(hidden[unit], 0.0)
        for k in range(ANSWERS):
            answer[k] += theta[LAYER + unit * ANSWERS + k] * value


@part
def _anything_runs(board: Board) -> bool:
    """Tell whether an executor is at work; others than those that are asked about may idle, too."""
    busy = 0
    for i in range(len(board.executors)):
        busy += board.executors[i].stage >= 0
    return busy > 0


@kernel
def allocate(board: Board, to: Allocator, count: int) -> tuple[int, int, int, float]:
    """Return the action that the answers make best; (WAIT, -1, 0, inf) if nothing is startable.

    A wait is possible only while something runs, and only if the network may wait at all.
    """
    executors, waiting = len(board.executors), count - 1
    best, best_score, best_room = -1, -math.inf, 0
    for row in range(waiting):
        stage = board.stages[to.stages[row]]
        score = to.answers[row, 0]
        cap = math.ceil(min(math.exp(min(to.answers[row, 1], _MOST_LOG_CAP)), float(executors)))
        room = int(max(cap, 1.0)) - board.jobs[stage.job].running
        if room < stage.slots:
            score -= to.theta[FULL]
            room = executors
        if score > best_score:
            best, best_score, best_room = to.stages[row], score, room
    idle = to.may_wait and to.answers[waiting, 0] > best_score
    if best < 0 or (idle and _anything_runs(board)):
        return WAIT, -1, 0, math.inf
    cap_now = board.stages[best].running + best_room // board.stages[best].slots
    return START, best, min(full_cap(board, best), int(cap_now)), math.inf


@kernel
def choose_allocation(board: Board, to: Allocator) -> tuple[int, int, int, float]:
    """Return (kind, stage, cap, until_s) of the network's action."""
    count = describe(board, to)
    for row in range(count):
        answer_row(to.theta, to.rows[row], to.hidden, to.answers[row])
    return allocate(board, to, count)
