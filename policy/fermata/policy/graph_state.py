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
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fermata.policy.board import Board, state_of
from fermata.policy.decide import BoardPolicy, Policy
from fermata.policy.features import FEATURES, observe_board
from fermata.policy.state import ClusterState

SCHEMA = "fermata.graph/1"

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
# Columns of which log(1 + x) is taken, all at once: a call of numpy costs more than what it does here.
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


class GraphState(NamedTuple):
    """One state, or several next to each other (`join`): stages, jobs and states are numbered through.

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
    """What the choices of one state mean: rows as `GraphState.choice_stage`."""

    now_s: float
    wake_s: float  # end of a wait with a wake-up; inf where there is none
    stages: Positions  # [c] indices in the state
    caps: Positions  # [c, OPTIONS]
    task_s: Floats  # [c]


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
    """Return log(1 + value), bounded for very large values; 0 for negative ones."""
    found: Floats = np.log1p(np.minimum(np.maximum(value, 0.0), _FAR))
    return found


def startable_stages(state: ClusterState) -> Positions:
    """Return the stages that can be started now, lowest index first; see `fermata.policy.action.startable`."""
    ready = np.asarray(state.ready_stages, np.int64)
    legal = (
        (state.stage_pending[ready] > 0)
        & (state.stage_ready_s[ready] <= state.now_s)
        & (state.stage_slots[ready] <= state.free)
        & (state.stage_running[ready] < state.stage_max_cap[ready])
        & ~(state.stage_hold_until_s[ready] > state.now_s)
    )
    return np.sort(ready[legal])


def _edges(dag: Dag, stages: Positions) -> tuple[Positions, Positions]:
    """Return child and parent, as positions in `stages`, of every edge between unfinished stages.

    Only the edges of these parents are looked at: what has an unfinished parent has not begun.
    """
    first = dag.child_ptr[stages]
    count = dag.child_ptr[stages + 1] - first
    total = int(count.sum())
    if total == 0:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    parent = np.repeat(np.arange(len(stages)), count)
    at = np.arange(total) + np.repeat(first - (np.cumsum(count) - count), count)
    child = np.searchsorted(stages, dag.child[at])
    # Nothing is left to start of the children of a failed job, so they are not among the stages.
    there = stages[np.minimum(child, len(stages) - 1)] == dag.child[at]
    return (child, parent) if there.all() else (child[there], parent[there])


class _Common(NamedTuple):
    """What several groups of features need."""

    unit_s: float  # the head's remaining work
    next_s: float  # to the next completion; inf where nothing runs
    rate: float  # arrivals a second
    recent_s: Floats  # work of recent arrivals, sorted


def _common(state: ClusterState, startable: Positions) -> _Common:
    work_s = state.job_remaining_work_s[state.stage_job[startable]]
    unit_s = max(float(work_s.min()), 1e-9) if len(work_s) else 1.0
    free_at_s = np.asarray(state.executor_free_at_s)[np.asarray(state.executor_stage) >= 0]
    next_s = max(float(free_at_s.min()) - state.now_s, 0.0) if len(free_at_s) else math.inf
    seen = len(state.recent_arrival_s)
    span_s = state.now_s - float(state.recent_arrival_s[0]) if seen else 0.0
    rate = (seen - 1) / span_s if seen > 1 and span_s > 0.0 else 0.0
    return _Common(unit_s, next_s, rate, np.sort(state.recent_work_s))


def _smaller_arrivals(common: _Common, work_s: Floats) -> Floats:
    """Return how many jobs of under half of these works arrive a second."""
    share = np.searchsorted(common.recent_s, 0.5 * work_s) / max(len(common.recent_s), 1)
    return common.rate * share


def _job_features(
    state: ClusterState, jobs: Positions, stage_job: Positions, pending: Floats, path_s: Floats, common: _Common
) -> tuple[Floats, Floats]:
    """Return [j, JOB_FEATURES] but the last, and each job's longest remaining path."""
    executors, unit_s = state.executors, common.unit_s
    left_s = np.maximum(state.job_remaining_work_s[jobs], 1e-9)
    longest_s = np.full(len(jobs), 1e-9)
    np.maximum.at(longest_s, stage_job, path_s)
    order = np.argsort(left_s, kind="stable")
    before = np.empty(len(jobs))
    work_before_s = np.empty(len(jobs))
    before[order] = np.arange(len(jobs))
    work_before_s[order] = np.cumsum(left_s[order]) - left_s[order]
    out = np.empty((len(jobs), len(JOB_FEATURES)))
    ratio = left_s / unit_s
    out[:, 0] = ratio
    out[:, 1] = np.maximum(np.minimum(np.log(ratio), 10.0), -10.0)
    out[:, 2] = longest_s / unit_s
    out[:, 3] = state.job_width[jobs]
    out[:, 4] = state.job_running[jobs] / executors
    out[:, 5] = np.bincount(stage_job, minlength=len(jobs))
    out[:, 6] = np.bincount(stage_job, pending, minlength=len(jobs))
    out[:, 7] = before / len(jobs)
    out[:, 8] = work_before_s / left_s
    out[:, 9] = _smaller_arrivals(common, left_s) * left_s
    out[:, 10] = common.next_s / left_s
    out[:, 11] = np.log(state.job_weight[jobs])
    out[:, 12] = 0.0
    out[:, _JOB_LOGS] = _log1p(out[:, _JOB_LOGS])
    return out, longest_s


def _stage_features(
    state: ClusterState, stages: Positions, jobs: Positions, stage_job: Positions, longest_s: Floats, common: _Common
) -> Floats:
    """Return [n, STAGE_FEATURES] but "startable" and "children", which the caller knows."""
    executors, unit_s = state.executors, common.unit_s
    pending, running = state.stage_pending[stages].astype(np.float64), state.stage_running[stages]
    slots, serial = state.stage_slots[stages], state.stage_serial_fraction[stages]
    task_s = np.maximum(state.stage_estimate_s[stages], 1e-9)
    path_s = state.stage_path_s[stages]
    left_s = np.maximum(state.job_remaining_work_s[jobs], 1e-9)
    moldable = ~np.isnan(serial)
    last_jobs = set(np.asarray(state.executor_job)[np.asarray(state.free_executors)].tolist())
    room = np.where(moldable, state.free, np.minimum(pending, state.free // slots) * slots)
    out = np.empty((len(stages), len(STAGE_FEATURES)))
    out[:, 0] = (state.job_running[jobs] / executors)[stage_job]
    out[:, 1] = np.array([job in last_jobs for job in jobs.tolist()])[stage_job]
    out[:, 2] = state.free / executors
    out[:, 3] = (pending + running) * slots * task_s / unit_s
    out[:, 4] = pending
    out[:, 5] = task_s / unit_s
    out[:, 6] = np.minimum(task_s * slots / left_s[stage_job], 2.0)
    out[:, 7] = running
    out[:, 8] = slots / executors
    out[:, 9] = (state.stage_ready_s[stages] <= state.now_s) & (pending > 0)
    out[:, 10] = 0.0
    out[:, 11] = np.where(pending > 0, room / executors, 0.0)
    out[:, 12] = common.next_s / task_s
    out[:, 13] = _smaller_arrivals(common, left_s)[stage_job] * task_s
    out[:, 14] = moldable
    out[:, 15] = np.where(moldable, serial, 1.0)
    out[:, 16] = 0.0
    out[:, 17] = path_s / unit_s
    out[:, 18] = path_s / longest_s[stage_job]
    out[:, 19] = state.job_width[jobs][stage_job]
    out[:, _STAGE_LOGS] = _log1p(out[:, _STAGE_LOGS])
    return out


def _options(state: ClusterState, stages: Positions, common: _Common) -> tuple[Floats, Mask, Positions]:
    """Return features [c, OPTIONS, OPTION_FEATURES], mask and caps [c, OPTIONS] of the starts of some stages."""
    running, pending = state.stage_running[stages].astype(np.int64), state.stage_pending[stages].astype(np.int64)
    slots, serial = state.stage_slots[stages].astype(np.int64), state.stage_serial_fraction[stages]
    moldable = ~np.isnan(serial)
    room = state.stage_max_cap[stages] - running
    most = np.minimum(np.where(moldable, state.free, np.minimum(pending, state.free // slots)), room)
    count = -(-most[:, np.newaxis] >> np.arange(OPTIONS))  # the most, and rounded up its half, its quarter, ...
    mask = np.ones(count.shape, np.bool_)
    mask[:, 1:] = count[:, 1:] < count[:, :-1]
    caps = running[:, np.newaxis] + count
    taken = np.where(moldable[:, np.newaxis], count, count * slots[:, np.newaxis])
    task_s = state.stage_estimate_s[stages][:, np.newaxis]
    fraction = np.where(moldable, serial, 1.0)[:, np.newaxis]
    rest_s = np.where(
        moldable[:, np.newaxis], task_s * (fraction + (1.0 - fraction) / count), task_s * pending[:, np.newaxis] / caps
    )
    held = state.job_running[state.stage_job[stages]][:, np.newaxis]
    out = np.empty((*count.shape, len(OPTION_FEATURES)))
    out[..., 0] = count / most[:, np.newaxis]
    out[..., 1] = taken / state.free
    out[..., 2] = (held + taken) / state.executors
    out[..., 3] = pending[:, np.newaxis] / count
    out[..., 4] = rest_s / common.unit_s
    out[..., 3:] = _log1p(out[..., 3:])
    return out, mask, caps


def graph_state(board: Board, dag: Dag, state: ClusterState | None = None) -> tuple[GraphState, Menu]:
    """Return what a graph network reads of a board on which something is startable, and what its choices mean.

    Args:
        board: the state; left unchanged.
        dag: the edges between its stages.
        state: the same as named arrays, if the caller has them.
    """
    if state is None:
        state = state_of(board)
    head, pool_x = observe_board(board)
    startable = startable_stages(state)
    stages = np.flatnonzero((state.stage_pending > 0) | (state.stage_running > 0))
    jobs, stage_job = np.unique(state.stage_job[stages].astype(np.int64), return_inverse=True)
    common = _common(state, startable)
    pending = state.stage_pending[stages].astype(np.float64)
    job_x, longest_s = _job_features(state, jobs, stage_job, pending, state.stage_path_s[stages], common)
    stage_x = _stage_features(state, stages, jobs, stage_job, longest_s, common)
    child, parent = _edges(dag, stages)
    choice = np.searchsorted(stages, startable)
    if len(parent):
        stage_x[:, 16] = np.log1p(np.bincount(parent, minlength=len(stages)))
    stage_x[choice, 10] = 1.0
    job_x[stage_job[choice], 12] = 1.0
    option_x, option_mask, caps = _options(state, startable, common)
    never_held = (state.stage_cap[startable] == 0) & np.isneginf(state.stage_hold_until_s[startable])
    graph = GraphState(
        stage_x=stage_x.astype(np.float32),
        stage_job=stage_job.astype(np.int64),
        edge_child=child,
        edge_parent=parent,
        job_x=job_x.astype(np.float32),
        job_state=np.zeros(len(jobs), np.int64),
        state_x=pool_x[np.newaxis],
        choice_stage=choice,
        option_x=option_x.astype(np.float32),
        option_mask=option_mask,
        can_hold=never_held,
        can_wait=np.array([state.free < state.executors]),
    )
    return graph, Menu(state.now_s, head.wake_s, startable, caps, state.stage_estimate_s[startable])


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
