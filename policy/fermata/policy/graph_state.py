"""A state as a graph network reads it: stages with their edges, jobs, the pool, and what may be chosen.

Only what is unfinished is in it: stages with tasks left, the jobs that they belong to, and the edges between them.
Times and work are divided by the head's remaining work (`fermata.policy.features`), counts by the pool or put through
a logarithm, so one network serves seconds and hours, one executor and a thousand. The features of the pool are those
of `fermata.policy.features`, as they are.

A `ClusterState` does not hold the edges of the jobs' DAGs, so they come beside it, as a `Dag` over the same indices.
A change of meaning, order or number of any column is a new `SCHEMA`.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fermata.policy.board import Board, Executor, Job, Pool, Stage
from fermata.policy.decide import BoardPolicy, Policy
from fermata.policy.features import FEATURES, observe_board
from fermata.policy.rows import column, listed, numbers, records

SCHEMA = "fermata.graph/2"

Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]
Positions = NDArray[np.int64]
Mask = NDArray[np.bool_]

STAGE_FEATURES: tuple[str, ...] = (
    "executors of its job, share",
    "its job last used a free executor",
    "free executors, share",
    "work left / unit",
    "tasks left",
    "task / unit",
    "task / remaining work of its job",
    "running tasks",
    "slots / executors",
    "ready",
    "startable",
    "executors that it could take now, share",
    "next completion / task",
    "arrivals of under half its job's rest during a task",
    "moldable",
    "serial fraction",
    "children",
    "path from it / unit",
    "path from it / longest path of its job",
    "average width of its job",
)
JOB_FEATURES: tuple[str, ...] = (
    "remaining work / unit",
    "log of remaining work over unit",
    "longest remaining path / unit",
    "average width",
    "executors, share",
    "stages left",
    "tasks left",
    "share of the jobs with less left",
    "work of the jobs with less left / its own",
    "arrivals of under half its rest during it",
    "next completion / remaining work",
    "log of weight",
    "has a startable stage",
)
STATE_FEATURES: tuple[str, ...] = FEATURES
OPTION_FEATURES: tuple[str, ...] = (
    "share of what it could begin",
    "executors taken / free",
    "executors of its job then, share",
    "waves left",
    "time for the rest of the stage / unit",
)
# Decima's own five, and what the idle-slots papers add to them.
DECIMA_FEATURES = STAGE_FEATURES[:5]
CRITICAL_PATH_FEATURES = (
    "path from it / unit",
    "path from it / longest path of its job",
    "longest remaining path / unit",
    "head's path / unit",
)
WIDTH_FEATURES = ("average width of its job", "average width", "head's job's average width")
PRIOR_COLUMN = JOB_FEATURES.index("log of remaining work over unit")
SMALLER_COLUMN = STATE_FEATURES.index("share of arrivals under half a unit")

# A start may take what the stage could begin now, or a half of it, a quarter, ...: so a cap is a choice of few at any
# size of pool.
OPTIONS = 8
_FAR = 1e4  # ratios above this say no more
_HALVINGS = np.arange(OPTIONS)
# Rows of which log(1 + x) is taken, all at once: a call of numpy costs more than what it does here.
_STAGE_LOGS = np.array([3, 4, 5, 7, 12, 13, 17, 19])
_JOB_LOGS = np.array([0, 2, 3, 5, 6, 8, 9, 10])


class Dag(NamedTuple):
    """The edges between the stages of a state: children in compressed form, indices as in the state."""

    child_ptr: Positions  # [stages + 1]
    child: NDArray[np.int32]  # [edges]

    @classmethod
    def of_parents(cls, parent_ptr: Positions, parent: NDArray[np.int32]) -> Dag:
        """Turn the parents of each stage, as a trace has them, into its children.

        >>> Dag.of_parents(np.array([0, 0, 1, 2]), np.array([0, 0], np.int32))
        Dag(child_ptr=array([0, 2, 2, 2]), child=array([1, 2], dtype=int32))
        """
        stages = len(parent_ptr) - 1
        child_ptr = np.zeros(stages + 1, np.int64)
        child_ptr[1:] = np.cumsum(np.bincount(parent, minlength=stages))
        owner = np.repeat(np.arange(stages, dtype=np.int32), np.diff(parent_ptr))
        return cls(child_ptr, owner[np.argsort(parent, kind="stable")])

    @classmethod
    def of_edges(cls, stages: int, edges: Sequence[tuple[int, int]]) -> Dag:
        """Turn (parent, child) pairs into the children of each of so many stages.

        >>> Dag.of_edges(3, [(0, 2), (0, 1)])
        Dag(child_ptr=array([0, 2, 2, 2]), child=array([2, 1], dtype=int32))
        """
        parent, child = np.array(edges, np.int32).reshape(-1, 2).T
        child_ptr = np.zeros(stages + 1, np.int64)
        child_ptr[1:] = np.cumsum(np.bincount(parent, minlength=stages))
        return cls(child_ptr, child[np.argsort(parent, kind="stable")])

    @property
    def edges(self) -> tuple[tuple[int, int], ...]:
        """The same as (parent, child) pairs."""
        parent = np.repeat(np.arange(len(self.child_ptr) - 1), np.diff(self.child_ptr))
        return tuple(zip(parent.tolist(), self.child.tolist(), strict=True))

    @classmethod
    def stacked(cls, dags: Sequence[Dag]) -> tuple[Dag, list[int]]:
        """Return several as one, and where the stages of each begin in it.

        >>> Dag.stacked([Dag(np.array([0, 1, 1]), np.array([1], np.int32))] * 2)[0].child.tolist()
        [1, 3]
        """
        bases = np.cumsum([0, *(len(dag.child_ptr) - 1 for dag in dags)]).tolist()
        edges = np.cumsum([0, *(len(dag.child) for dag in dags)])
        ptr = [dag.child_ptr[:-1] + first for dag, first in zip(dags, edges[:-1], strict=True)]
        child = [dag.child + np.int32(base) for dag, base in zip(dags, bases[:-1], strict=True)]
        return cls(np.concatenate([*ptr, edges[-1:]]), np.concatenate(child)), bases[:-1]


class GraphState(NamedTuple):
    """One state, or several under each other: stages, jobs and states are numbered through, in the order of states.

    `n` unfinished stages, `e` edges between them, `j` jobs, `s` states, `c` startable stages.
    """

    stage_x: Floats32  # [n, STAGE_FEATURES]
    stage_job: Positions  # [n]
    edge_child: Positions  # [e]
    edge_parent: Positions  # [e]
    job_x: Floats32  # [j, JOB_FEATURES]
    job_state: Positions  # [j]
    state_x: Floats32  # [s, STATE_FEATURES]
    choice_stage: Positions  # [c] the startable ones among the n
    option_x: Floats32  # [c, OPTIONS, OPTION_FEATURES]
    option_mask: Mask  # [c, OPTIONS] which options are different from those before
    can_hold: Mask  # [c] has never been held or started
    can_wait: Mask  # [s] something runs


class Menu(NamedTuple):
    """What the choices of these states mean: rows as `GraphState.choice_stage`."""

    now_s: Floats  # [s]
    wake_s: Floats  # [s] end of a wait with a wake-up; inf where there is none
    first: Positions  # [s + 1] where the choices of each state begin
    stages: Positions  # [c] indices in their state
    caps: Positions  # [c, OPTIONS]
    task_s: Floats  # [c]


class Seen(NamedTuple):
    """A board on which something is startable."""

    board: Board
    first: int = 0  # the unfinished stages are among the rows from here ...
    end: int | None = None  # ... to before here; by default all rows count
    base: int = 0  # where the stages of this board begin in the `Dag`
    # What `observe_board` says of it, if that is known already.
    pool_x: NDArray[np.floating[Any]] | None = None  # [STATE_FEATURES]
    wake_s: float = math.inf


class GraphReader(BoardPolicy):
    """A policy that needs the edges between the stages of the states that it is asked about."""

    @abstractmethod
    def knowing(self, dag: Dag) -> Policy:
        """Return the same policy for states whose stages have these edges."""


def knowing(policy: Policy, dag: Callable[[], Dag]) -> Policy:
    """Return a policy that knows the edges between stages, if it is one that reads them."""
    if isinstance(policy, GraphReader):
        return policy.knowing(dag())
    return policy


def _log1p(value: Floats) -> Floats:
    """Turn values into log(1 + value), bounded for very large values; 0 for negative ones."""
    np.maximum(value, 0.0, out=value)
    np.minimum(value, _FAR, out=value)
    return np.log1p(value, out=value)


class _Read(NamedTuple):
    """What is read of some boards: their rows under each other, of `n` unfinished stages and `j` jobs."""

    pools: list[Pool]  # [s]
    executors: Positions  # [s] how many
    stages: NDArray[Any]  # [n] records of `Stage`
    stage_at: Positions  # [n] their indices on their board
    windows: list[int]  # [s] where the rows of each board begin among all that were looked through
    row_of: Positions  # of each row that was looked through, -1 where nothing is left of the stage
    stage_state: Positions  # [n]
    ready: Positions  # rows of `stages` that are on their board's list of ready stages, in order
    jobs: NDArray[Any]  # [j] records of `Job`
    job_state: Positions  # [j]
    job_first: Positions  # [s + 1] where the jobs of each board begin
    stage_job: Positions  # [n] rows of `jobs`
    last_used: Mask  # [j] last used a free executor
    next_s: Floats  # [s] to the next completion; inf where nothing runs


def _joined(parts: list[NDArray[Any]]) -> NDArray[Any]:
    """Return arrays under each other; records as plain bytes, because numpy joins them field by field."""
    if len(parts) == 1:
        return parts[0]
    kind = parts[0].dtype
    return np.concatenate([part.view(f"V{kind.itemsize}") for part in parts]).view(kind)


def pool_of(board: Board) -> Pool:
    """Return the one row of a board's pool; compiled, a copy."""
    row: Any = board.pool[0]
    return Pool(*row.item()) if isinstance(row, np.void) else row


def _read(seen: Sequence[Seen]) -> _Read:
    """Gather what is unfinished."""
    pools, stages, stage_at, rows_of, ready, last = [], [], [], [], [], []
    windows, found = [0], 0
    for each in seen:
        board, first = each.board, each.first
        pool = pool_of(board)
        pending, running = (column(board.stages, name, each.end)[first:] for name in ("pending", "running"))
        at = np.logical_or(pending, running).nonzero()[0]
        row_of = np.full(len(pending), -1)
        row_of[at] = np.arange(found, found + len(at))
        found += len(at)
        windows.append(windows[-1] + len(pending))
        rows_of.append(row_of)
        pools.append(pool)
        own = row_of[listed(board.ready, pool.ready) - first]
        own.sort()
        ready.append(own)
        stage_at.append(at + first if first else at)
        stages.append(records(board.stages, Stage, stage_at[-1]))
        last.append(records(board.executors, Executor))
    rows, executors = _joined(stages), _joined(last)
    stage_state, executor_state = _numbered(stages), _numbered(last)
    idle = executors["stage"] < 0
    used = executors["job"][idle]  # IDLE for one that never worked
    # Jobs are told apart by state and index, and there is none at the end of a state's span: where IDLE leads to.
    span = 2 + max(int(rows["job"].max(initial=0)), int(used.max(initial=0)))
    if len(seen) > 1:
        keys, stage_job = _distinct(stage_state * span + rows["job"])
        job_state, job_at = np.divmod(keys, span)
        used = executor_state[idle] * span + used
    else:
        keys, stage_job = _distinct(rows["job"].astype(np.int64))
        job_state, job_at = np.zeros(len(keys), np.int64), keys
    is_used = np.zeros(len(seen) * span, np.bool_)
    is_used[used] = True
    job_first = job_state.searchsorted(np.arange(len(seen) + 1))
    ends = job_first.tolist()
    jobs = [records(each.board.jobs, Job, job_at[ends[i] : ends[i + 1]]) for i, each in enumerate(seen)]
    counts = np.array([len(each) for each in last])
    now_s = np.array([pool.now_s for pool in pools])
    free_at_s = np.where(idle, np.inf, executors["free_at_s"])
    return _Read(
        pools=pools,
        executors=counts,
        stages=rows,
        stage_at=_joined(stage_at),
        windows=windows[:-1],
        row_of=_joined(rows_of),
        stage_state=stage_state,
        ready=_joined(ready),
        jobs=_joined(jobs),
        job_state=job_state,
        job_first=job_first,
        stage_job=stage_job,
        last_used=is_used[keys],
        next_s=np.maximum(np.minimum.reduceat(free_at_s, counts.cumsum() - counts) - now_s, 0.0),
    )


def _numbered(parts: Sequence[NDArray[Any]]) -> Positions:
    """Return for each row of some arrays under each other which array it is of."""
    if len(parts) == 1:
        return np.zeros(len(parts[0]), np.int64)
    return np.repeat(np.arange(len(parts)), [len(each) for each in parts])


def _spread(by_state: NDArray[Any], state: Positions) -> NDArray[Any]:
    """Return a value of each state for each of some rows; of a single state, one that broadcasts."""
    return by_state if len(by_state) == 1 else by_state[state]


def _distinct(keys: Positions) -> tuple[Positions, Positions]:
    """Return the distinct keys in order, and for each key its row among them."""
    step = keys[1:] - keys[:-1]
    if step.min(initial=0) < 0:  # nobody says that a state's stages stand in the order of their jobs, but most do
        return np.unique(keys, return_inverse=True)
    row = np.zeros(len(keys), np.int64)
    is_new = step > 0
    is_new.cumsum(out=row[1:])
    return np.concatenate((keys[:1], keys[1:][is_new])), row


def _edges(read: _Read, seen: Sequence[Seen], dag: Dag) -> tuple[Positions, Positions]:
    """Return child and parent, as rows of `read.stages`, of every edge between unfinished stages.

    Only the edges of these parents are looked at: what has an unfinished parent has not begun.
    """
    nothing = np.empty(0, np.int64)
    if len(dag.child) == 0:
        return nothing, nothing
    alone = len(seen) == 1
    bases = np.array([each.base for each in seen])
    stages = read.stage_at + (bases if alone else bases[read.stage_state])
    first = dag.child_ptr[stages]
    count = dag.child_ptr[stages + 1] - first
    ends = count.cumsum()
    if ends[-1] == 0:
        return nothing, nothing
    parent = np.arange(len(stages)).repeat(count)
    at = np.arange(ends[-1]) + (first - ends + count).repeat(count)
    # A job's stages are all among the rows that were looked through; several states may have the same.
    moved = np.array([window - each.base - each.first for window, each in zip(read.windows, seen, strict=True)])
    child = read.row_of[dag.child[at] + (moved if alone else moved[read.stage_state[parent]])]
    # Nothing is left to start of the children of a failed job, so they are not among the stages.
    there = child >= 0
    return (child, parent) if there.all() else (child[there], parent[there])


class _Common(NamedTuple):
    """What several groups of features need, by state."""

    now_s: Floats
    free: Floats
    executors: Floats
    unit_s: Floats  # the head's remaining work


def _smaller_arrivals(read: _Read, seen: Sequence[Seen], work_s: Floats) -> Floats:
    """Return for each job how many jobs of under half of its remaining work arrive a second."""
    ends = read.job_first.tolist()
    rate = np.zeros(len(work_s))
    for i, (each, pool) in enumerate(zip(seen, read.pools, strict=True)):
        begin, end, own = pool.recent_begin, pool.recent_end, slice(ends[i], ends[i + 1])
        count = end - begin
        span_s = pool.now_s - each.board.recent_arrival_s[begin] if count > 1 else 0.0
        # One arrival more than intervals: the first one opens the window.
        if span_s > 0.0:
            recent_s = np.sort(numbers(each.board.recent_work_s, begin, end))
            rate[own] = recent_s.searchsorted(0.5 * work_s[own]) * ((count - 1) / (count * span_s))
    return rate


def _job_features(read: _Read, common: _Common, left_s: Floats, longest_s: Floats, smaller: Floats) -> Floats:
    """Return [JOB_FEATURES, j] but "has a startable stage", which the caller knows."""
    jobs, state, n = read.jobs, read.job_state, len(read.jobs)
    unit_s = _spread(common.unit_s, state)
    alone = len(read.pools) == 1
    order = left_s.argsort(kind="stable") if alone else np.lexsort((left_s, state))
    before = np.empty((2, n))  # how many jobs and how much work, of all states
    before[0, order] = np.arange(n)
    sorted_s = left_s[order]
    before[1, order] = sorted_s.cumsum() - sorted_s
    if not alone:
        before -= before[:, order[read.job_first[state]]]
    out = np.empty((len(JOB_FEATURES), n))
    ratio = left_s / unit_s
    out[0] = ratio
    out[1] = np.maximum(np.minimum(np.log(ratio), 10.0), -10.0)
    out[2] = longest_s / unit_s
    out[3] = jobs["width"]
    out[4] = jobs["running"] / _spread(common.executors, state)
    out[5] = np.bincount(read.stage_job, minlength=n)
    out[6] = np.bincount(read.stage_job, read.stages["pending"], minlength=n)
    out[7] = before[0] / (n if alone else np.bincount(state)[state])
    out[8] = before[1] / left_s
    out[9] = smaller * left_s
    out[10] = _spread(read.next_s, state) / left_s
    out[11] = np.log(jobs["weight"])
    out[12] = 0.0
    out[_JOB_LOGS] = _log1p(out[_JOB_LOGS])
    return out


def _stage_features(read: _Read, common: _Common, left_s: Floats, longest_s: Floats, smaller: Floats) -> Floats:
    """Return [STAGE_FEATURES, n] but "startable" and "children", which the caller knows."""
    rows, state, job = read.stages, read.stage_state, read.stage_job
    now_s, free, executors, unit_s = (_spread(each, state) for each in common)
    pending, running, slots = (rows[name].astype(np.float64) for name in ("pending", "running", "slots"))
    serial, path_s = rows["serial_fraction"], rows["path_s"]
    task_s = np.maximum(rows["estimate_s"], 1e-9)
    fixed, waits = np.isnan(serial), pending > 0
    room = np.minimum(pending, np.floor(free / slots)) * slots
    out = np.empty((len(STAGE_FEATURES), len(rows)))
    out[14], out[15] = 0.0, 1.0
    if not fixed.all():
        moldable = ~fixed
        room = np.where(moldable & waits, free, room)
        out[14] = moldable
        out[15] = np.where(moldable, serial, 1.0)
    out[0] = read.jobs["running"][job] / executors
    out[1] = read.last_used[job]
    out[2] = free / executors
    own = slots * task_s
    out[3] = (pending + running) * own / unit_s
    out[4] = pending
    out[5] = task_s / unit_s
    out[6] = np.minimum(own / left_s[job], 2.0)
    out[7] = running
    out[8] = slots / executors
    out[9] = (rows["ready_s"] <= now_s) & waits
    out[10] = 0.0
    out[11] = room / executors
    out[12] = _spread(read.next_s, state) / task_s
    out[13] = smaller[job] * task_s
    out[16] = 0.0
    out[17] = path_s / unit_s
    out[18] = path_s / longest_s[job]
    out[19] = read.jobs["width"][job]
    out[_STAGE_LOGS] = _log1p(out[_STAGE_LOGS])
    return out


def _startable(read: _Read, now_s: Floats, free: Floats) -> tuple[Positions, NDArray[Any]]:
    """Return which rows are of stages that can be started now, and their records.

    See `fermata.policy.action.startable`.
    """
    at = read.ready
    rows, state = records(read.stages, Stage, at), read.stage_state[at]
    now_s, free = _spread(now_s, state), _spread(free, state)
    legal = (
        (rows["pending"] > 0)
        & (rows["ready_s"] <= now_s)
        & (rows["slots"] <= free)
        & (rows["running"] < rows["max_cap"])
        & ~(rows["hold_until_s"] > now_s)
    )
    return (at, rows) if legal.all() else (at[legal], records(rows, Stage, legal.nonzero()[0]))


def _options(read: _Read, choice: Positions, rows: NDArray[Any], common: _Common) -> tuple[Floats32, Mask, Positions]:
    """Return features [c, OPTIONS, OPTION_FEATURES], mask and caps [c, OPTIONS] of the starts of some stages."""
    state = read.stage_state[choice]
    running, pending, slots = (rows[name].astype(np.int64) for name in ("running", "pending", "slots"))
    _, free, executors, unit_s = (_spread(each, state)[:, np.newaxis] for each in common)
    serial, left, each_takes = rows["serial_fraction"], pending[:, np.newaxis], slots
    most = np.minimum(pending, np.floor(free[:, 0] / slots))
    fixed = np.isnan(serial)
    if not fixed.all():
        most, each_takes = np.where(fixed, most, free[:, 0]), np.where(fixed, slots, 1)
    most = np.minimum(most, rows["max_cap"] - running).astype(np.int64)[:, np.newaxis]
    count = -(-most >> _HALVINGS)  # the most, and rounded up its half, its quarter, ...
    mask = np.empty(count.shape, np.bool_)
    mask[:, 0] = True
    np.less(count[:, 1:], count[:, :-1], out=mask[:, 1:])
    caps = running[:, np.newaxis] + count
    rest_s = left / caps
    if not fixed.all():
        fraction = np.where(fixed, 1.0, serial)[:, np.newaxis]
        rest_s = np.where(fixed[:, np.newaxis], rest_s, fraction + (1.0 - fraction) / count)
    taken = count * each_takes[:, np.newaxis]
    held = read.jobs["running"][read.stage_job[choice]][:, np.newaxis]
    out = np.empty((len(OPTION_FEATURES), *count.shape))
    np.divide(count, most, out=out[0])
    np.divide(taken, free, out=out[1])
    np.divide(held + taken, executors, out=out[2])
    np.divide(left, count, out=out[3])
    np.multiply(rest_s, rows["estimate_s"][:, np.newaxis] / unit_s, out=out[4])
    _log1p(out[3:])
    return _rows(out), mask, caps


def _rows(features: Floats) -> Floats32:
    """Return features that were computed one under another as the rows that a network takes."""
    return features.transpose(*range(1, features.ndim), 0).astype(np.float32, order="C")


def _observed(seen: Seen) -> tuple[NDArray[Any], float]:
    """Return the features of a pool and the end of a wait with a wake-up."""
    if seen.pool_x is not None:
        return seen.pool_x, seen.wake_s
    found, pool_x = observe_board(seen.board)
    return pool_x, found.wake_s


def graph_states(seen: Sequence[Seen], dag: Dag) -> tuple[GraphState, Menu]:
    """Return what a graph network reads of some boards, under each other, and what its choices mean.

    Args:
        seen: boards on each of which something is startable; left unchanged.
        dag: the edges between their stages.
    """
    read = _read(seen)
    now_s = np.array([pool.now_s for pool in read.pools])
    free = np.array([pool.free for pool in read.pools], np.float64)
    choice, chosen = _startable(read, now_s, free)
    choice_job = read.stage_job[choice]
    left_s = np.maximum(read.jobs["remaining_work_s"], 1e-9)
    first = read.stage_state[choice].searchsorted(np.arange(len(seen) + 1))
    unit_s = np.minimum.reduceat(left_s[choice_job], first[:-1])
    common = _Common(now_s, free, read.executors.astype(np.float64), unit_s)
    longest_s = np.full(len(left_s), 1e-9)
    np.maximum.at(longest_s, read.stage_job, read.stages["path_s"])
    smaller = _smaller_arrivals(read, seen, left_s)
    job_x = _job_features(read, common, left_s, longest_s, smaller)
    stage_x = _stage_features(read, common, left_s, longest_s, smaller)
    child, parent = _edges(read, seen, dag)
    if len(parent):
        stage_x[16] = np.log1p(np.bincount(parent, minlength=len(read.stages)))
    stage_x[10, choice] = 1.0
    job_x[12, choice_job] = 1.0
    option_x, option_mask, caps = _options(read, choice, chosen, common)
    told = [_observed(each) for each in seen]
    graph = GraphState(
        stage_x=_rows(stage_x),
        stage_job=read.stage_job,
        edge_child=child,
        edge_parent=parent,
        job_x=_rows(job_x),
        job_state=read.job_state,
        state_x=np.array([x for x, _ in told], np.float32),
        choice_stage=choice,
        option_x=option_x,
        option_mask=option_mask,
        can_hold=(chosen["cap"] == 0) & (chosen["hold_until_s"] == -math.inf),
        can_wait=free < common.executors,
    )
    return graph, Menu(
        now_s,
        np.array([float(wake_s) for _, wake_s in told]),
        first,
        read.stage_at[choice],
        caps,
        chosen["estimate_s"].copy(),
    )


def graph_state(board: Board, dag: Dag) -> tuple[GraphState, Menu]:
    """Return the same of one board, all of whose rows count."""
    return graph_states([Seen(board)], dag)


def join(states: list[GraphState]) -> GraphState:
    """Return several states as one: rows under each other, indices moved."""
    columns = {name: np.concatenate([getattr(each, name) for each in states]) for name in GraphState._fields}
    stage_at = np.cumsum([0, *(len(each.stage_x) for each in states[:-1])])
    job_at = np.cumsum([0, *(len(each.job_x) for each in states[:-1])])
    state_at = np.cumsum([0, *(len(each.state_x) for each in states[:-1])])
    moved = {
        "stage_job": job_at,
        "edge_child": stage_at,
        "edge_parent": stage_at,
        "job_state": state_at,
        "choice_stage": stage_at,
    }
    for name, first in moved.items():
        columns[name] += np.repeat(first, [len(getattr(each, name)) for each in states])
    return GraphState(**columns)


def part(graph: GraphState, first: int, end: int) -> tuple[GraphState, int]:
    """Return the states from `first` to before `end` of several, and how many choices stand before them."""
    jobs = slice(*np.searchsorted(graph.job_state, [first, end]))
    stages = slice(*np.searchsorted(graph.stage_job, [jobs.start, jobs.stop]))
    edges = slice(*np.searchsorted(graph.edge_parent, [stages.start, stages.stop]))
    choices = slice(*np.searchsorted(graph.choice_stage, [stages.start, stages.stop]))
    return GraphState(
        stage_x=graph.stage_x[stages],
        stage_job=graph.stage_job[stages] - jobs.start,
        edge_child=graph.edge_child[edges] - stages.start,
        edge_parent=graph.edge_parent[edges] - stages.start,
        job_x=graph.job_x[jobs],
        job_state=graph.job_state[jobs] - first,
        state_x=graph.state_x[first:end],
        choice_stage=graph.choice_stage[choices] - stages.start,
        option_x=graph.option_x[choices],
        option_mask=graph.option_mask[choices],
        can_hold=graph.can_hold[choices],
        can_wait=graph.can_wait[first:end],
    ), int(choices.start)
