"""What is unfinished on some boards, gathered under each other: stages with tasks left, their jobs and their edges."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fermata.policy.board import Board, Executor, Job, Pool, Stage
from fermata.policy.dag import Dag, Positions
from fermata.policy.rows import column, listed, records

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


class Seen(NamedTuple):
    """A board on which something is startable."""

    board: Board
    first: int = 0  # the unfinished stages are among the rows from here ...
    end: int | None = None  # ... to before here; by default all rows count
    base: int = 0  # where the stages of this board begin in the `Dag`
    # What `observe_board` says of it, if that is known already.
    pool_x: NDArray[np.floating[Any]] | None = None  # [STATE_FEATURES]
    wake_s: float = math.inf


class Read(NamedTuple):
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


def gather(seen: Sequence[Seen]) -> Read:
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
    return Read(
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


def _distinct(keys: Positions) -> tuple[Positions, Positions]:
    """Return the distinct keys in order, and for each key its row among them."""
    step = keys[1:] - keys[:-1]
    if step.min(initial=0) < 0:  # nobody says that a state's stages stand in the order of their jobs, but most do
        return np.unique(keys, return_inverse=True)
    row = np.zeros(len(keys), np.int64)
    is_new = step > 0
    is_new.cumsum(out=row[1:])
    return np.concatenate((keys[:1], keys[1:][is_new])), row


def spread(by_state: NDArray[Any], state: Positions) -> NDArray[Any]:
    """Return a value of each state for each of some rows; of a single state, one that broadcasts."""
    return by_state if len(by_state) == 1 else by_state[state]


def edges(read: Read, seen: Sequence[Seen], dag: Dag) -> tuple[Positions, Positions]:
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


def startable(read: Read, now_s: Floats, free: Floats) -> tuple[Positions, NDArray[Any]]:
    """Return which rows are of stages that can be started now, and their records.

    See `fermata.policy.action.startable`.
    """
    at = read.ready
    rows, state = records(read.stages, Stage, at), read.stage_state[at]
    now_s, free = spread(now_s, state), spread(free, state)
    legal = (
        (rows["pending"] > 0)
        & (rows["ready_s"] <= now_s)
        & (rows["slots"] <= free)
        & (rows["running"] < rows["max_cap"])
        & ~(rows["hold_until_s"] > now_s)
    )
    return (at, rows) if legal.all() else (at[legal], records(rows, Stage, legal.nonzero()[0]))
