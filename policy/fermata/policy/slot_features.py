"""What is read of a state where tasks take several executors: numbers for each width of what could be started now.

Of the stages that fit, only the first by work of each width can be started, where a width is a power of two and what is
below the next one; of those that do not fit one counts, the one that would come first. Times and sizes are read against
each other or against the stage's own estimate, so these numbers have no unit, either. A change of meaning, order or
number needs other weights (`slot_weights`) and another schema of those in models' files (`slot_scores`).
"""

from __future__ import annotations

import math
from typing import NamedTuple

from fermata.policy._jit import inlined, kernel, part
from fermata.policy.board import Board
from fermata.policy.heuristics.kernel import BY_REMAINING_WORK, Rule, is_before, order_key
from fermata.policy.remaining import expected_left_s
from fermata.policy.rows import Values
from fermata.policy.slot_weights import WIDTHS
from fermata.policy.together import come_together

NAMES = (
    "work over the least of what waits",  # log, half of it
    "work over its width, over the least of what waits",  # log, half of it
    "width, log",  # over that of the pool
    "width",  # share of the pool
    "free executors beside it",  # share of the pool
    "takes all that are free",
    "delays a much shorter one that does not fit",  # with less than SHORTER of its size
    "delays the one that does not fit",
    "its size over that of the one it delays",  # log, half of it
    "time until that one fits / task",  # log
    "width of the one that does not fit",  # share of the pool
    "many shorter jobs due",  # more than the jobs that wait are worth
    "shorter jobs due before the next completion",  # log
    "waiting jobs",  # log, a third of it
    "waiting work over the pool / task",  # log, a third of it
    "load by recent arrivals",
    "next completion / task",  # log, half of it
    "its job has an executor",
    "it waits / task",  # log, a third of it
    "the one that does not fit waits / its task",  # log, a third of it
    "error of recent estimates",
    "pending tasks",  # log, a third of it
    "path / longest path left of its job",
    "log executors",  # a third of it
    "shorter jobs due during its task",  # log, half of it
    "executors beside it that nothing fills",  # share of the pool
    "jobs like its own come together",  # as batches do
    "executors asked for / pool",  # log, a third of it
    "those asked for by what does not fit",  # share of all that are asked for
    "work of the one that does not fit, over the least of what waits",  # log, half of it
    "time of the one that does not fit, over the least of what waits",  # log, half of it
    "one",
)
SIZE = len(NAMES)
DELAYS, DUE = NAMES.index("delays the one that does not fit"), NAMES.index("many shorter jobs due") + 1
SHORTER = 0.3  # of a size: what is much shorter has less
HALF = 0.5  # of a job's work: those that are due have less
NEEDED, EACH_WAITS = 1.4, 0.8  # log1p of many such jobs; and more with log1p of those that wait
PER_SLOT = 0.75  # sizes are work over executors to this power
_SEEN = 20  # arrivals, below which nothing is due
_FAR, _NEAR = 1e3, 1e-9  # ratios above say no more; what is divided by is at least that
_PARTS = 2.0**30  # of the longest job: what waiting work is counted in
_BY_WORK = Rule(order=BY_REMAINING_WORK, keep_running=0.15)  # as of all learned policies


class Facts(NamedTuple):
    """What all stages of a state are read against."""

    blocked: int  # the stage that would come first of those that do not fit; -1: none
    fits_s: float  # until enough executors are expected to be free for it; inf: nobody knows
    spare: int  # executors that are free then beside those that it takes
    blocked_size_s: float
    least_work_s: float  # of what waits
    least_time_s: float  # the same over widths
    completion_s: float  # until the next one; inf: nothing runs
    asked: int  # executors, by all tasks that wait and may start
    asked_in_vain: int  # those by tasks that do not fit
    waiting: int  # jobs without an executor
    waiting_work_s: float
    load: float


@inlined
def _log_ratio(value: float) -> float:
    return math.log(min(max(value, 1.0 / _FAR), _FAR))


@inlined
def _log1p(value: float) -> float:
    return math.log1p(min(max(value, 0.0), 10.0 * _FAR))


@inlined
def work_s(board: Board, stage: int) -> float:
    """Return the remaining work of a stage's job, as jobs are ordered by it."""
    return max(order_key(board, stage, _BY_WORK), _NEAR)


@inlined
def size_s(board: Board, stage: int) -> float:
    """Return that work over the width to a power: between work and time."""
    return float(work_s(board, stage) / board.stages[stage].slots ** PER_SLOT)


@part
def _width(slots: int) -> int:
    width = 0
    while slots > 1 and width < WIDTHS - 1:
        slots >>= 1
        width += 1
    return width


@part
def _first_of_each_width(board: Board) -> tuple[int, int, int]:
    """List in `board.first` the first stage that fits of each width, -1 if none, and in `board.many` their tasks.

    Returns the first stage that does not fit, and how many executors what waits, and what of it does not fit, ask for.
    """
    for width in range(WIDTHS):
        board.first[width], board.many[width] = -1, 0
    blocked, least_s, asked, in_vain = -1, math.inf, 0, 0
    now_s, free = board.pool[0].now_s, board.pool[0].free
    for i in range(board.pool[0].ready):
        stage = board.ready[i]
        row = board.stages[stage]
        if row.pending <= 0 or row.running >= row.max_cap or row.hold_until_s > now_s or row.ready_s > now_s:
            continue
        if row.slots > len(board.executors):  # a pool may have been made too small for a stage
            continue
        tasks = min(row.pending, row.max_cap - row.running)
        asked += tasks * row.slots
        if row.slots > free:
            in_vain += tasks * row.slots
            size = size_s(board, stage)
            # Stages stand in no particular order, so what decides between equal ones must not hang on it.
            if size < least_s or (size == least_s and is_before(board, stage, blocked)):
                blocked, least_s = stage, size
            continue
        width = _width(row.slots)
        board.many[width] += tasks
        other = board.first[width]
        if other >= 0:
            work, others = work_s(board, stage), work_s(board, other)
            if work > others or (work == others and not is_before(board, stage, other)):
                continue
        board.first[width] = stage
    return blocked, asked, in_vain


@part
def _unfilled(board: Board, stage: int) -> int:
    """Return how many of the free executors nothing that waits would fill beside a task of a stage, widest first."""
    left, own = board.pool[0].free - board.stages[stage].slots, _width(board.stages[stage].slots)
    for i in range(WIDTHS):
        width = WIDTHS - 1 - i
        first = board.first[width]
        if first >= 0:
            slots = board.stages[first].slots
            left -= slots * min(board.many[width] - (1 if width == own else 0), left // slots)
    return int(left)


@part
def _left_s(board: Board, executor: int) -> float:
    """Return how long a busy executor is expected to be, seconds."""
    row = board.executors[executor]
    stage = board.stages[row.stage]
    left_s = row.free_at_s - board.pool[0].now_s
    if math.isnan(stage.serial_fraction):
        left_s = expected_left_s(left_s, stage.estimate_s, board.pool[0].estimate_error)
    return max(left_s, 0.0)


@part
def _list_left_s(board: Board) -> int:
    """List in `board.left_s` how long each busy executor is expected to be; return how many there are."""
    busy = 0
    for i in range(len(board.executors)):
        if board.executors[i].stage >= 0:
            board.left_s[busy] = _left_s(board, i)
            busy += 1
    return busy


@part
def _least(values: Values, count: int, place: int) -> float:
    """Return the value that stands at a place, from 0, once the first `count` are in order; brings them nearer to it.

    Source: Hoare, "Algorithm 65: Find", 1961.
    """
    low, high = 0, count - 1
    while low < high:
        pivot, i, j = values[(low + high) // 2], low, high
        while i <= j:
            while values[i] < pivot:
                i += 1
            while pivot < values[j]:
                j -= 1
            if i <= j:
                values[i], values[j] = values[j], values[i]
                i += 1
                j -= 1
        if place <= j:
            high = j
        elif place >= i:
            low = i
        else:
            break
    return float(values[place])


@kernel
def enough_after_s(board: Board, executors: int) -> float:
    """Return after how many seconds so many of the busy executors are expected to be free."""
    return float(_least(board.left_s, _list_left_s(board), executors - 1))


@part
def _load(board: Board) -> float:
    """Return the work of recent arrivals over what the pool could have done meanwhile."""
    pool = board.pool[0]
    seen = pool.recent_end - pool.recent_begin
    span_s = pool.now_s - board.recent_arrival_s[pool.recent_begin] if seen > 1 else 0.0
    if not span_s > 0.0:
        return 0.0
    total_s = 0.0
    for i in range(pool.recent_begin, pool.recent_end):
        total_s += board.recent_work_s[i]
    return float(min((seen - 1) / seen * total_s / span_s / len(board.executors), 2.0))


@part
def _waiting(board: Board) -> tuple[int, float]:
    """Return how many jobs have no executor, and their work in seconds.

    Jobs stand in no particular order. So parts of the longest are added up: whole numbers give the same in any.
    """
    waiting, longest_s, parts = 0, 0.0, 0
    for i in range(board.pool[0].active):
        job = board.jobs[board.active[i]]
        if job.running == 0:
            waiting += 1
            longest_s = max(longest_s, job.remaining_work_s)
    if not longest_s > 0.0:
        return waiting, 0.0
    for i in range(board.pool[0].active):
        job = board.jobs[board.active[i]]
        if job.running == 0:
            parts += int(_PARTS * (job.remaining_work_s / longest_s))
    return waiting, parts / _PARTS * longest_s


@part
def facts_of(board: Board) -> Facts:
    """Return what all stages are read against, and list in `board.first` those that can be started."""
    pool = board.pool[0]
    blocked, asked, in_vain = _first_of_each_width(board)
    busy = _list_left_s(board)
    completion_s = math.inf
    for i in range(busy):
        completion_s = min(completion_s, board.left_s[i])
    fits_s, spare, blocked_size_s, least_work_s, least_time_s = 0.0, 0, math.inf, math.inf, math.inf
    if blocked >= 0:
        slots = board.stages[blocked].slots
        # Executors may be neither free nor known to run something.
        fits_s = _least(board.left_s, busy, slots - pool.free - 1) if slots - pool.free <= busy else math.inf
        spare = pool.free - slots
        for i in range(busy):
            spare += 1 if board.left_s[i] <= fits_s else 0
        blocked_size_s, least_work_s = size_s(board, blocked), work_s(board, blocked)
        least_time_s = least_work_s / slots
    for width in range(WIDTHS):
        stage = board.first[width]
        if stage >= 0:
            work = work_s(board, stage)
            least_work_s = min(least_work_s, work)
            least_time_s = min(least_time_s, work / board.stages[stage].slots)
    waiting, waiting_work_s = _waiting(board)
    return Facts(
        blocked,
        fits_s,
        spare,
        blocked_size_s,
        least_work_s,
        least_time_s,
        completion_s,
        asked,
        in_vain,
        waiting,
        waiting_work_s,
        _load(board),
    )


@part
def _shorter_a_second(board: Board, stage: int) -> float:
    """Return how many jobs of a lot less work than a stage's come a second, by recent arrivals."""
    pool = board.pool[0]
    seen = pool.recent_end - pool.recent_begin
    span_s = pool.now_s - board.recent_arrival_s[pool.recent_begin] if seen >= _SEEN else 0.0
    if not span_s > 0.0:
        return 0.0
    half_s, shorter = HALF * board.jobs[board.stages[stage].job].remaining_work_s, 0
    for i in range(pool.recent_begin, pool.recent_end):
        shorter += 1 if board.recent_work_s[i] < half_s else 0
    return float(shorter / span_s)


@part
def _describe_delay(board: Board, facts: Facts, stage: int) -> float:
    """Write what is read of the one that does not fit; return 1 if it is much shorter and a stage delays it, else 0."""
    pool, row, seen = board.pool[0], board.stages[stage], board.seen
    for i in (6, 7, 8, 9, 10, 19, 29, 30):
        seen[i] = 0.0
    if facts.blocked < 0:
        return 0.0
    other, work = board.stages[facts.blocked], work_s(board, facts.blocked)
    if row.slots > facts.spare and row.estimate_s > facts.fits_s > 0.0:
        size = size_s(board, stage)
        seen[6] = 1.0 if facts.blocked_size_s < SHORTER * size else 0.0
        seen[7] = 1.0
        seen[8] = 0.5 * _log_ratio(size / facts.blocked_size_s)
        seen[9] = _log1p(facts.fits_s / max(row.estimate_s, _NEAR))
    seen[10] = other.slots / len(board.executors)
    seen[19] = _log1p((pool.now_s - other.ready_s) / max(other.estimate_s, _NEAR)) / 3.0
    seen[29] = 0.5 * _log_ratio(work / facts.least_work_s)
    seen[30] = 0.5 * _log_ratio(work / other.slots / facts.least_time_s)
    return float(seen[6])


@part
def describe(board: Board, facts: Facts, stage: int) -> None:
    """Write the features of a stage that fits into `board.seen`, [SIZE]; see NAMES."""
    pool, row, seen, executors = board.pool[0], board.stages[stage], board.seen, len(board.executors)
    job = board.jobs[row.job]
    task_s, work = max(row.estimate_s, _NEAR), work_s(board, stage)
    shorter = _describe_delay(board, facts, stage)
    rate = _shorter_a_second(board, stage)
    due = rate * min(facts.completion_s, task_s)
    many = _log1p(due + shorter) > NEEDED + EACH_WAITS * math.log1p(facts.waiting)
    seen[0] = 0.5 * _log_ratio(work / facts.least_work_s)
    seen[1] = 0.5 * _log_ratio(work / row.slots / facts.least_time_s)
    seen[2] = math.log(row.slots) / math.log(max(executors, 2))
    seen[3] = row.slots / executors
    seen[4] = (pool.free - row.slots) / executors
    seen[5] = 1.0 if pool.free == row.slots else 0.0
    seen[11] = 1.0 if many and pool.free == row.slots < executors else 0.0
    seen[12] = _log1p(due)
    seen[13] = math.log1p(facts.waiting) / 3.0
    seen[14] = _log1p(facts.waiting_work_s / executors / task_s) / 3.0
    seen[15] = facts.load
    seen[16] = _log1p(facts.completion_s / task_s) / 2.0
    seen[17] = 1.0 if job.running > 0 else 0.0
    seen[18] = _log1p((pool.now_s - row.ready_s) / task_s) / 3.0
    seen[20] = pool.estimate_error
    seen[21] = math.log1p(row.pending) / 3.0
    seen[22] = row.path_s / max(job.remaining_path_s, row.path_s, _NEAR)
    seen[23] = math.log(executors) / 3.0
    seen[24] = _log1p(rate * task_s) / 2.0
    seen[25] = _unfilled(board, stage) / executors
    seen[26] = 1.0 if come_together(board, job.remaining_work_s) else 0.0
    seen[27] = _log1p(facts.asked / executors) / 3.0
    seen[28] = facts.asked_in_vain / max(facts.asked, 1)
    seen[31] = 1.0
