"""What a learned policy reads of a state: scale-free numbers around the job that would go first.

The head is the startable stage that shortest-remaining-work-first would start, where of a job that runs what has passed
of its tasks is not left, and if its stages run one task at a time 15% of the rest do not count; the alternative is the
first one whose job has more than twice the head's remaining work. Where tasks take several executors the head is what
scores best (`several_slots`). Times and sizes are divided by the head's remaining work (`unit`), so one network serves
seconds and hours, few executors and many. No feature needs more than a state. How long the head has been held is left
out on purpose: a network that reads its own past decisions runs away from what it was taught.

A change of meaning, order or number of features is a new `SCHEMA`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fermata.policy._jit import COMPILED, inlined, kernel, part
from fermata.policy.action import startable
from fermata.policy.board import Board
from fermata.policy.forecast import forecast
from fermata.policy.heuristics.kernel import BY_REMAINING_WORK, FILL, NEVER, Rule, first_stage, is_before
from fermata.policy.remaining import expected_left_s
from fermata.policy.rows import column, listed, read_rows
from fermata.policy.several_slots import best_stage, several_slots

SCHEMA = "fermata.head-alternative-wait/7"

# "Startable" in these names means ready: stages that are held, or are wider than what is free, count, too. The names
# stay, because models hold them.
FEATURES: tuple[str, ...] = (
    "log executors",
    "free share",
    "busy executors with the head's job, share",
    "next completion / unit",
    "second completion / unit",
    "third completion / unit",
    "mean remaining of busy executors / unit",
    "waiting jobs up to 2 units",
    "waiting jobs of 2 to 5 units",
    "waiting jobs of 5 to 15 units",
    "waiting jobs over 15 units",
    "waiting work up to 2 units",
    "waiting work of 2 to 5 units",
    "waiting work of 5 to 15 units",
    "waiting work over 15 units",
    "alternative exists",
    "alternative / unit",
    "jobs before the alternative",
    "next completion / alternative",
    "load by recent arrivals",
    "arrivals during the head",
    "arrivals of under half a unit during the head",
    "arrivals of under half a unit before the next completion",
    "arrivals of up to 2 units during the head",
    "arrivals of up to 2 units before the next completion",
    "share of arrivals under half a unit",
    "share of arrivals up to 2 units",
    "share of arriving work over 2 units",
    "mean arrival under half a unit / unit",
    "head's task / unit",
    "head's path / unit",
    "head's pending tasks",
    "head's job's average width",
    "next completion / head's task",
    "arrivals of under half a unit during the head's task",
    "executors held by other jobs with less left, share",
    "active jobs per executor",
    "stages left of the head's job are one task",
    "active jobs with a stage of more than one task, share",
    "error of recent estimates",
    "time since the last arrival / unit",
    "last arrival / unit",
    "arrivals like the head that one of under half a unit follows, share",
    "time until the next arrival after one like the head / unit",
    "misses of recent estimates",
    "startable stages of jobs that have an executor",
    "busy executors with the alternative's job, share",
    "head's path / longest path left of its job",
    "log free executors",
    "waiting jobs",
    "arrivals of under half a unit due before the next completion",
    "earliness of arrivals of under half a unit due before the next completion",
    "busy executors and startable stages of jobs of several tasks, share",
)
SIZE = len(FEATURES)
# Features that say what the jobs in sight are: 0 where each is a single task, and 0 where each stage is one.
SEVERAL, WIDE = SIZE - 1, FEATURES.index("active jobs with a stage of more than one task, share")
FeatureRow = NDArray[np.float64] | NDArray[np.float32]  # [SIZE]

# Where estimates are rough, two long jobs of about the same work left would take turns, and both end late.
ORDER = Rule(order=BY_REMAINING_WORK, fill=FILL, hold=NEVER, keep_running=0.15)
_FAR = 1e4  # ratios above this say no more
_MOST_RATE = 1e250  # arrivals a second: an infinite rate of none of a kind would be no number


class Completions(NamedTuple):
    """Seconds to the next three completions (inf: none), and the mean over all busy executors."""

    first_s: float
    second_s: float
    third_s: float
    mean_s: float


class Candidates(NamedTuple):
    """What a learned policy chooses between; indices are -1 where there is no such stage."""

    head: int
    alternative: int
    wake_s: float  # when a wait would be reconsidered at the latest; inf: not before the next event
    completions: Completions
    # Where tasks take several executors: of starting the head, which is the best there; waiting scores 0. Else inf.
    score: float = math.inf


@inlined
def _log_ratio(value: float, unit: float) -> float:
    """Return log(1 + value / unit), 0 for negative values, bounded for infinite ones."""
    return math.log1p(min(max(value, 0.0) / unit, _FAR))


@part
def _completions(board: Board) -> Completions:
    """Return when running tasks end.

    The three are what is expected of running tasks whose estimates are as wrong as those of recent ones; the mean takes
    estimates at their word.
    """
    a, b, c, total, busy = math.inf, math.inf, math.inf, 0.0, 0
    now_s, error = board.pool[0].now_s, board.pool[0].estimate_error
    for i in range(len(board.executors)):
        if board.executors[i].stage < 0:
            continue
        left_s = board.executors[i].free_at_s - now_s
        total += max(left_s, 0.0)
        busy += 1
        if left_s >= c:
            continue
        stage = board.stages[board.executors[i].stage]
        # How long a moldable task takes depends on how many executors it was given.
        if math.isnan(stage.serial_fraction):
            left_s = expected_left_s(left_s, stage.estimate_s, error)
        left_s = max(left_s, 0.0)
        if left_s < a:
            a, b, c = left_s, a, b
        elif left_s < b:
            b, c = left_s, b
        elif left_s < c:
            c = left_s
    return Completions(a, b, c, total / max(busy, 1))


@kernel
def candidates(board: Board, order: Rule) -> Candidates:
    """Return the head, the alternative and the wake-up of a wait; the head is -1 if nothing is startable."""
    if several_slots(board):
        head, score = best_stage(board)
    else:
        head, score = first_stage(board, order), math.inf
    if head < 0:
        return Candidates(-1, -1, math.inf, Completions(math.inf, math.inf, math.inf, 0.0), math.inf)
    unit = board.jobs[board.stages[head].job].remaining_work_s
    alternative, least = -1, math.inf
    for i in range(board.pool[0].ready):
        stage = board.ready[i]
        row = board.stages[stage]
        work_s = board.jobs[row.job].remaining_work_s
        if work_s <= 2.0 * unit or work_s > least:
            continue
        if work_s == least and not is_before(board, stage, alternative):
            continue
        # Asked last: of many stages few come so far.
        if startable(board, stage):
            alternative, least = stage, work_s
    completions = _completions(board)
    now_s = board.pool[0].now_s
    waited_s = now_s - board.stages[head].ready_s
    # The last term keeps a wait for what overruns a tiny estimate from being reconsidered without end.
    wake_s = now_s + max(0.2 * completions.first_s, 0.02 * unit, 0.001 * waited_s)
    # Where nothing runs only an arrival can be worth waiting for, and not for longer than starting would take.
    if board.pool[0].free == len(board.executors):
        wake_s = now_s + 0.1 * unit if waited_s < unit else math.inf
    # A task that overruns its estimate says nothing of when it ends, and a time that is not after now is no wake-up.
    if completions.first_s == 0.0 or not wake_s > now_s:
        wake_s = math.inf
    return Candidates(head, alternative, wake_s, completions, score)


@part
def waiting_jobs(board: Board) -> int:
    """Return how many jobs have no executor."""
    waiting = 0
    for i in range(board.pool[0].active):
        waiting += 1 if board.jobs[board.active[i]].running == 0 else 0
    return waiting


@part
def _waiting(board: Board, unit: float, out: FeatureRow, at: int) -> None:
    """Fill in counts (4) and work (4) of the jobs that wait for an executor, by size around the head's."""
    for i in range(8):
        out[at + i] = 0.0
    for i in range(board.pool[0].active):
        job = board.jobs[board.active[i]]
        if job.running > 0:
            continue
        ratio = job.remaining_work_s / unit
        size = 0 if ratio <= 2.0 else 1 if ratio <= 5.0 else 2 if ratio <= 15.0 else 3
        out[at + size] += 1.0
        out[at + 4 + size] += ratio
    for i in range(4):
        out[at + i] = math.log1p(out[at + i])
        out[at + 4 + i] = math.log1p(min(out[at + 4 + i], _FAR))


@part
def _arrivals(board: Board, unit: float, nearest_s: float, task_s: float, out: FeatureRow, at: int) -> None:
    """Fill in what recent arrivals say of the rate and the mix (10), from `at` on; and of the head's task and kind."""
    pool = board.pool[0]
    seen = pool.recent_end - pool.recent_begin
    times_s, sizes_s, short_s = board.recent_arrival_s, board.recent_work_s, board.short_arrival_s
    span_s = pool.now_s - times_s[pool.recent_begin] if seen > 0 else 0.0
    # One arrival more than intervals: the first one opens the window.
    rate = min((seen - 1) / span_s, _MOST_RATE) if seen > 1 and span_s > 0.0 else 0.0
    half, twice = 0.5 * unit, 2.0 * unit
    total, under, upto, over_work, under_work = 0.0, 0, 0, 0.0, 0.0
    alike, followed, gaps_s, was_alike, alike_s = 0, 0, 0.0, False, 0.0
    for i in range(pool.recent_begin, pool.recent_end):
        work_s = sizes_s[i]
        total += work_s
        if was_alike:
            was_alike = False
            alike += 1
            gaps_s += times_s[i] - alike_s
            if work_s < half:
                followed += 1
        if work_s < half:
            short_s[under] = times_s[i]
            under += 1
            under_work += work_s
        elif work_s <= twice:
            upto += 1
            was_alike, alike_s = True, times_s[i]
        else:
            over_work += work_s
    upto += under
    count = max(seen, 1)
    horizon_s = min(nearest_s, _FAR * unit)
    out[at] = min(rate * total / count / len(board.executors), 2.0)
    out[at + 1] = _log_ratio(rate * unit, 1.0)
    out[at + 2] = _log_ratio(rate * under / count * unit, 1.0)
    out[at + 3] = _log_ratio(rate * under / count * horizon_s, 1.0)
    out[at + 4] = _log_ratio(rate * upto / count * unit, 1.0)
    out[at + 5] = _log_ratio(rate * upto / count * horizon_s, 1.0)
    out[at + 6] = under / count
    out[at + 7] = upto / count
    out[at + 8] = over_work / total if total > 0.0 else 0.0
    out[at + 9] = under_work / under / unit if under > 0 else 0.0
    out[34] = _log_ratio(rate * under / count * task_s, 1.0)
    out[40], out[41] = 0.0, 0.0
    if seen > 0:
        out[40] = _log_ratio(pool.now_s - times_s[pool.recent_end - 1], unit)
        out[41] = _log_ratio(sizes_s[pool.recent_end - 1], unit)
    # Of what never was there, what holds for all arrivals is the best guess.
    out[42] = followed / alike if alike > 0 else under / count
    gap_s = gaps_s / alike if alike > 0 else 1.0 / rate if rate > 0.0 else math.inf
    out[43] = _log_ratio(gap_s, unit)
    due = forecast(short_s, under, pool.now_s, horizon_s, rate * under / count)
    out[50] = _log_ratio(due.arrivals, 1.0)
    out[51] = _log_ratio(due.earliness, 1.0)


@inlined
def _has_more(board: Board, index: int) -> bool:
    """Tell whether a stage's job has or had more to do than one task of this stage."""
    stage = board.stages[index]
    return bool(board.jobs[stage.job].work_s > 1.000001 * stage.slots * stage.estimate_s)


@part
def _of_several_tasks(board: Board) -> float:
    """Return the share of the busy executors and ready stages whose job is or was more than one task."""
    several, seen = 0, 0
    for i in range(len(board.executors)):
        index = board.executors[i].stage
        if index >= 0:
            seen += 1
            several += 1 if _has_more(board, index) else 0
    for i in range(board.pool[0].ready):
        seen += 1
        several += 1 if _has_more(board, board.ready[i]) else 0
    return several / max(seen, 1)


@kernel
def features(board: Board, choice: Candidates, out: FeatureRow) -> None:
    """Write the features of a state with a head into `out`, [SIZE]; see FEATURES for their names."""
    executors = len(board.executors)
    head = choice.head
    stage = board.stages[head]
    index = stage.job
    job = board.jobs[index]
    unit = max(job.remaining_work_s, 1e-9)
    task_s = max(stage.estimate_s, 1e-9)
    first_s, second_s, third_s, mean_s = choice.completions
    out[0] = math.log(executors)
    out[1] = board.pool[0].free / executors
    out[2] = job.running / executors
    out[3] = _log_ratio(first_s, unit)
    out[4] = _log_ratio(second_s, unit)
    out[5] = _log_ratio(third_s, unit)
    out[6] = _log_ratio(mean_s, unit)
    _waiting(board, unit, out, 7)
    out[15], out[16], out[17], out[18] = 0.0, 0.0, 0.0, 0.0
    if choice.alternative >= 0:
        other_s = board.jobs[board.stages[choice.alternative].job].remaining_work_s
        out[15] = 1.0
        out[16] = _log_ratio(other_s, unit)
        out[17] = out[7]
        out[18] = _log_ratio(first_s, other_s)
    _arrivals(board, unit, first_s, task_s, out, 19)
    out[29] = min(task_s / unit, 2.0)
    out[30] = min(stage.path_s / unit, 2.0)
    out[31] = math.log1p(stage.pending)
    out[32] = math.log1p(job.width)
    out[33] = _log_ratio(first_s, task_s)
    smaller, wide = 0, 0
    for i in range(board.pool[0].active):
        other = board.jobs[board.active[i]]
        wide += 1 - other.narrow
        if board.active[i] != index and other.remaining_work_s <= unit:
            smaller += other.running
    out[35] = smaller / executors
    out[36] = math.log1p(board.pool[0].active / executors)
    out[37] = 1.0 if unit <= 1.000001 * stage.slots * task_s else 0.0
    out[38] = wide / max(board.pool[0].active, 1)
    out[39] = board.pool[0].estimate_error
    out[44] = board.pool[0].estimate_misses
    begun = 0
    for i in range(board.pool[0].ready):
        begun += 1 if board.jobs[board.stages[board.ready[i]].job].running > 0 else 0
    out[45] = math.log1p(begun)
    out[46] = 0.0
    if choice.alternative >= 0:
        out[46] = board.jobs[board.stages[choice.alternative].job].running / executors
    out[47] = stage.path_s / max(job.remaining_path_s, stage.path_s, 1e-9)
    out[48] = math.log(max(board.pool[0].free, 1))
    out[49] = math.log1p(waiting_jobs(board))
    out[SEVERAL] = _of_several_tasks(board)


@kernel
def _observe(board: Board, order: Rule, always: bool, out: FeatureRow) -> Candidates:
    choice = candidates(board, order)
    if choice.head >= 0 and (always or choice.score == math.inf):
        features(board, choice, out)
    return choice


def _read_ahead(board: Board) -> None:
    """Make ready, many at once, the rows that the kernels are about to look at one by one."""
    pool, running = board.pool[0], column(board.executors, "stage")
    stages = np.concatenate((listed(board.ready, pool.ready), running[running >= 0]))
    read_rows(board.stages, list(dict.fromkeys(stages.tolist())))
    read_rows(board.jobs, listed(board.active, pool.active).tolist())
    read_rows(board.executors)


def observe_board(board: Board, *, always: bool = True) -> tuple[Candidates, NDArray[np.float32]]:
    """Return the candidates on a board and its features, float32 [SIZE] (zeros if nothing is startable).

    With `always` off they are zeros where scores decide, too: there nobody asks a network.
    """
    if not COMPILED:
        _read_ahead(board)
    out = np.zeros(SIZE)
    choice = _observe(board, ORDER, always, out)
    return choice, out.astype(np.float32)
