"""The one compiled kernel behind every heuristic: an order, a way to fill executors, and a rule for holding.

A heuristic is a `Rule`, a flat tuple of numbers, so that the simulator's compiled loop runs any of them without being
compiled again. The files beside this one give the rules their names.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from fermata.policy._jit import inlined, kernel, part
from fermata.policy.action import HOLD, START, WAIT, startable
from fermata.policy.board import Board
from fermata.policy.guardrails import divided_cap, full_cap
from fermata.policy.heuristics.pair_hold import committed_hold_of, released_hold_until

# Orders: the startable stage with the lowest key comes first. Ties go to the earlier job; within a job to the stage
# with the longest path to the job's end, then to the earlier stage. Work and paths count per unit of a job's weight:
# Smith's rule, which is least in the sum of weighted completion times on one executor.
BY_ARRIVAL, BY_LAST_ARRIVAL, BY_JOB_WORK, BY_REMAINING_WORK, BY_CRITICAL_PATH, BY_EXECUTORS, BY_TASK_SLOTS = range(7)
# How many executors a start takes; the last two bound the executors of the whole job.
FILL, ONE_TASK, BOUNDED, DIVIDED, WORK_SHARE, EQUAL_SHARE = range(6)
MAX_EXPONENT = 5.0  # beyond, the power of a work that a trace may have is no number any more
MAX_COUNT = 1_000_000_000  # of executors or jobs: what is counted with is a machine's whole number
# Rules for holding.
NEVER, SWITCH, FOLLOWER, PAIR_COMMITTED, PAIR_RELEASED = range(5)


class Rule(NamedTuple):
    """A heuristic as numbers. Times in seconds; what a hold rule does not use is ignored."""

    order: int = BY_ARRIVAL
    fill: int = FILL
    exponent: float = 0.0  # BY_EXECUTORS: (executors + 1) / work ** exponent
    cap: int = 0  # BOUNDED: executors per stage
    hold: int = NEVER
    split_s: float = 0.0  # 0: between the recent extremes (`long_from`)
    # SWITCH
    last: int = 1
    tau_s: float = math.inf
    tau_per_long_s: float = 0.0
    max_longs: int = 1_000_000
    theta_s: float = -math.inf
    theta_per_short_s: float = 0.0
    follower_s: float = 0.0  # FOLLOWER
    grain_s: float = 1.0  # WORK_SHARE
    share: float = 0.0  # EQUAL_SHARE
    keep: int = 0  # *_SHARE
    spare: int = 0  # *_SHARE
    # BY_REMAINING_WORK: of a job that runs what has passed of its tasks does not count, and where its stages run
    # one task at a time this share of the rest does not either.
    keep_running: float = 0.0


# Of the fields that a user may set.
MEANING = {
    "exponent": "power of a job's work that the executors it holds are weighed against",
    "split_s": "executor-seconds of work from which a job is long; 0: between the smallest and the largest recent job",
    "last": "hold only while at most so many executors are free",
    "tau_s": "hold while the next completion is further away than so many seconds",
    "tau_per_long_s": "seconds that are added to tau for each further long job that waits",
    "max_longs": "hold only while fewer long jobs wait",
    "theta_s": "a long job goes first if the next completion is nearer than so many seconds",
    "theta_per_short_s": "seconds that are taken off theta for each further short job that waits",
    "follower_s": "hold a long job for so many seconds after it became ready, unless a short one arrives",
    "grain_s": "a job gets one executor for each of so many executor-seconds of its work left",
    "share": "a job gets this part of the pool, or an equal share where that is more",
    "keep": "if 1, an executor that frees stays with its job, as far as that may have it",
    "spare": "if 1, executors that no job may have go to the first one all the same",
}


@inlined
def order_key(board: Board, stage: int, rule: Rule) -> float:
    """Return the sort key of a stage; lower goes first."""
    index = board.stages[stage].job
    if rule.order == BY_ARRIVAL:
        return float(index)
    job = board.jobs[index]
    if rule.order == BY_LAST_ARRIVAL:  # not by the index: in a cluster jobs stand by priority, the highest first
        return -float(job.arrival_s)
    if rule.order == BY_JOB_WORK:
        return float(job.work_s / job.weight)
    if rule.order == BY_REMAINING_WORK:
        work_s = job.remaining_work_s
        if rule.keep_running > 0.0 and job.running > 0:
            # No more than what runs was estimated at: tasks that outlive their estimates would make a long job the
            # shortest. And not below zero: in a cluster an executor is due after all that its Job still puts on it.
            left_s = max(job.due_s - job.running * board.pool[0].now_s, 0.0)
            passed_s = max(job.running_work_s - left_s, 0.0)
            work_s = (1.0 - rule.keep_running * job.narrow) * max(work_s - passed_s, 0.0)
        return float(work_s / job.weight)
    if rule.order == BY_CRITICAL_PATH:
        return float(job.remaining_path_s / job.weight)
    if rule.order == BY_EXECUTORS:
        return float((job.running + 1) / max(job.work_s, 1e-9) ** rule.exponent)
    return -float(board.stages[stage].slots)


@inlined
def is_before(board: Board, stage: int, other: int) -> bool:
    """Break a tie: the earlier job, then the longer path, then the earlier stage."""
    one, two = board.stages[stage], board.stages[other]
    if one.job != two.job:
        return bool(one.job < two.job)
    if one.path_s != two.path_s:
        return bool(one.path_s > two.path_s)
    return stage < other


@part
def first_stage(board: Board, rule: Rule) -> int:
    """Return the startable stage that comes first in the rule's order, or -1."""
    best, best_key = -1, math.inf
    for i in range(board.pool[0].ready):
        stage = board.ready[i]
        if not startable(board, stage):
            continue
        key = order_key(board, stage, rule)
        if best < 0 or key < best_key or (key == best_key and is_before(board, stage, best)):
            best, best_key = stage, key
    return best


def changes_with_starts(rule: Rule) -> bool:
    """Tell whether a start may change the order of what is left."""
    return rule.order == BY_EXECUTORS or rule.keep_running > 0.0


class InOrder:
    """The startable stages of a board in a rule's order, sorted once for all the actions of a decision.

    For plain Python, where looking at all ready stages again for each start is what a large decision takes. Within a
    decision a stage that is not startable does not become so.

    Raises:
        ValueError: the rule's order changes with what is started.
    """

    def __init__(self, board: Board, rule: Rule) -> None:
        if changes_with_starts(rule):
            raise ValueError("the order changes with every start")
        self._board = board
        keys = []
        for i in range(board.pool[0].ready):
            stage = board.ready[i]
            if startable(board, stage):
                row = board.stages[stage]
                keys.append((order_key(board, stage, rule), row.job, -row.path_s, stage))
        keys.sort(reverse=True)
        self._last_first = [key[3] for key in keys]

    def first(self) -> int:
        """Return what `first_stage` returns now."""
        stages = self._last_first
        while stages and not startable(self._board, stages[-1]):
            stages.pop()
        return stages[-1] if stages else -1


@inlined
def cap_for(board: Board, stage: int, rule: Rule) -> int:
    """Return the parallelism cap of a start."""
    full = full_cap(board, stage)
    if rule.fill == ONE_TASK:
        return min(full, int(board.stages[stage].running) + 1)
    if rule.fill == DIVIDED:
        return divided_cap(board, stage)
    if rule.fill == BOUNDED:
        return max(min(full, rule.cap), int(board.stages[stage].running) + 1)
    return full


@part
def start_of(board: Board, stage: int, rule: Rule) -> tuple[int, int, int, float]:
    """Return the START of a stage with the cap of a rule that does not bound the executors of a job."""
    return START, stage, cap_for(board, stage, rule), math.inf


@part
def next_completion_s(board: Board) -> float:
    """Return the seconds until a busy executor is expected to end its task (0 if one overruns); inf if none is busy."""
    nearest = math.inf
    for i in range(len(board.executors)):
        if board.executors[i].stage >= 0:
            nearest = min(nearest, board.executors[i].free_at_s)
    return max(nearest - board.pool[0].now_s, 0.0)


@inlined
def long_from(board: Board, split_s: float) -> float:
    """Return the work from which a job counts as long.

    Without a given split it is the geometric mean of the smallest and the largest recent job, if these differ by more
    than a factor of four; else no job is long.
    """
    if split_s > 0.0:
        return split_s
    least, most = math.inf, 0.0
    for i in range(board.pool[0].recent_begin, board.pool[0].recent_end):
        least, most = min(least, board.recent_work_s[i]), max(most, board.recent_work_s[i])
    return math.sqrt(least * most) if most > 4.0 * least and least > 0.0 else math.inf


@part
def followed_by_s(board: Board, stage: int, rule: Rule) -> float:
    """Return until when a stage waits for a shorter job to follow its own; -inf if that has come, or its job is short.

    Without a given split a job is long from the geometric mean of the smallest and the largest recent job, be they
    equal: the first job of all is held.
    """
    ready_s = board.stages[stage].ready_s
    begin, end = board.pool[0].recent_begin, board.pool[0].recent_end
    split_s, least, most = rule.split_s, math.inf, 0.0
    if split_s <= 0.0:
        for i in range(begin, end):
            least, most = min(least, board.recent_work_s[i]), max(most, board.recent_work_s[i])
        split_s = math.sqrt(least * most)
    if board.jobs[board.stages[stage].job].work_s < split_s:
        return -math.inf
    for i in range(begin, end):
        if board.recent_work_s[i] < split_s and board.recent_arrival_s[i] >= ready_s:
            return -math.inf
    return float(ready_s + rule.follower_s)


@part
def waiting_by_class(board: Board, split_s: float) -> tuple[int, int, int]:
    """Return the startable stages of short jobs, the long jobs without an executor, and the first long stage (or -1).

    A long job that runs and could use one executor more does not wait: what it gains by one is little.
    """
    shorts, longs, first_long = 0, 0, -1
    for i in range(board.pool[0].ready):
        stage = board.ready[i]
        if not startable(board, stage):
            continue
        work_s = board.jobs[board.stages[stage].job].remaining_work_s
        if work_s <= split_s:
            shorts += 1
            continue
        if first_long >= 0:
            best_s = board.jobs[board.stages[first_long].job].remaining_work_s
            if work_s > best_s or (work_s == best_s and not is_before(board, stage, first_long)):
                continue
        first_long = stage
    for i in range(board.pool[0].active):
        job = board.jobs[board.active[i]]
        longs += 1 if job.running == 0 and job.remaining_work_s > split_s else 0
    return shorts, longs, first_long


@inlined
def job_cap(board: Board, job: int, rule: Rule) -> int:
    """Return how many executors a job may have under WORK_SHARE or EQUAL_SHARE; at least 1."""
    executors = len(board.executors)
    if rule.fill == WORK_SHARE:
        share = board.jobs[job].remaining_work_s / max(rule.grain_s, 1e-6)
    else:
        share = max(rule.share * executors, executors / max(1, board.pool[0].active))
    return max(1, math.ceil(float(min(share, float(executors)))))


@part
def choose_within_shares(board: Board, rule: Rule) -> tuple[int, int, int, float]:
    """Return the action of a rule that bounds the executors of a job, as `choose` does."""
    best, best_key, best_room = -1, math.inf, 0
    free = board.pool[0].free
    keeper = board.executors[board.free[free - 1]].job if rule.keep and free > 0 else -1
    for i in range(board.pool[0].ready):
        stage = board.ready[i]
        job = board.stages[stage].job
        room = job_cap(board, job, rule) - board.jobs[job].running
        if room < board.stages[stage].slots or not startable(board, stage):
            continue
        key = -math.inf if job == keeper else order_key(board, stage, rule)
        if best < 0 or key < best_key or (key == best_key and is_before(board, stage, best)):
            best, best_key, best_room = stage, key, room
    if best < 0:
        spare = first_stage(board, rule) if rule.spare or free == len(board.executors) else -1
        if spare < 0:
            return WAIT, -1, 0, math.inf
        return START, spare, full_cap(board, spare), math.inf
    cap = board.stages[best].running + best_room // board.stages[best].slots
    return START, best, min(full_cap(board, best), int(cap)), math.inf


@kernel
def choose_with(board: Board, rule: Rule, head: int) -> tuple[int, int, int, float]:
    """Return the action of a rule that does not bound the executors of a job; `head` is its first stage, or -1."""
    if head < 0:
        return WAIT, -1, 0, math.inf
    free, now_s = board.pool[0].free, board.pool[0].now_s
    if rule.hold == NEVER:
        return start_of(board, head, rule)
    if rule.hold == FOLLOWER or rule.hold == PAIR_RELEASED:
        until_s = followed_by_s(board, head, rule) if rule.hold == FOLLOWER else released_hold_until(board, head)
        if now_s < until_s:
            return WAIT, -1, 0, until_s
    if rule.hold == PAIR_COMMITTED and board.stages[head].cap == 0 and board.stages[head].hold_until_s == -math.inf:
        hold_s = committed_hold_of(board, head, long_from(board, rule.split_s))
        if now_s + hold_s > now_s:
            return HOLD, head, 0, now_s + hold_s
    if rule.hold == SWITCH and free < len(board.executors) and free <= rule.last:
        split_s = long_from(board, rule.split_s)
        shorts, longs, first_long = waiting_by_class(board, split_s)
        next_s = next_completion_s(board)
        # The hold ends when the next completion has come as near as this: then it would not be entered any more.
        spare_s = next_s - rule.tau_s - rule.tau_per_long_s * (longs - 1)
        if shorts == 0 and longs < rule.max_longs and now_s + spare_s > now_s:
            return WAIT, -1, 0, now_s + spare_s
        if shorts > 0 and first_long >= 0 and next_s <= rule.theta_s - rule.theta_per_short_s * (shorts - 1):
            head = first_long
    return start_of(board, head, rule)


@kernel
def choose(board: Board, rule: Rule) -> tuple[int, int, int, float]:
    """Return (kind, stage, cap, until_s) of the rule's action; (WAIT, -1, 0, inf) if nothing is startable."""
    if rule.fill == WORK_SHARE or rule.fill == EQUAL_SHARE:
        return choose_within_shares(board, rule)
    return choose_with(board, rule, first_stage(board, rule))


@kernel
def choose_eager(board: Board, rule: Rule) -> tuple[int, int, int, float]:
    """Return the action of the same order without its hold: what a pool falls back to where it must not wait."""
    if rule.fill == WORK_SHARE or rule.fill == EQUAL_SHARE:
        return choose_within_shares(board, rule)
    head = first_stage(board, rule)
    if head < 0:
        return WAIT, -1, 0, math.inf
    return start_of(board, head, rule)
