"""A state as a graph network reads it: stages with their edges, jobs, the pool, and what may be chosen.

Only what is unfinished is in it: stages with tasks left, the jobs that they belong to, and the edges between them. What
its columns mean is said in `fermata.policy.graph_features`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fermata.policy.board import Board
from fermata.policy.dag import Dag, Positions
from fermata.policy.features import observe_board
from fermata.policy.graph_features import (
    Common,
    Floats32,
    as_rows,
    job_features,
    options,
    smaller_arrivals,
    stage_features,
)
from fermata.policy.graph_rows import Floats, Mask, Seen, edges, gather, startable


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
    read = gather(seen)
    now_s = np.array([pool.now_s for pool in read.pools])
    free = np.array([pool.free for pool in read.pools], np.float64)
    choice, chosen = startable(read, now_s, free)
    choice_job = read.stage_job[choice]
    left_s = np.maximum(read.jobs["remaining_work_s"], 1e-9)
    first = read.stage_state[choice].searchsorted(np.arange(len(seen) + 1))
    unit_s = np.minimum.reduceat(left_s[choice_job], first[:-1])
    common = Common(now_s, free, read.executors.astype(np.float64), unit_s)
    longest_s = np.full(len(left_s), 1e-9)
    np.maximum.at(longest_s, read.stage_job, read.stages["path_s"])
    smaller = smaller_arrivals(read, seen, left_s)
    job_x = job_features(read, common, left_s, longest_s, smaller)
    stage_x = stage_features(read, common, left_s, longest_s, smaller)
    child, parent = edges(read, seen, dag)
    if len(parent):
        stage_x[16] = np.log1p(np.bincount(parent, minlength=len(read.stages)))
    stage_x[10, choice] = 1.0
    job_x[12, choice_job] = 1.0
    option_x, option_mask, caps = options(read, choice, chosen, common)
    told = [_observed(each) for each in seen]
    graph = GraphState(
        stage_x=as_rows(stage_x),
        stage_job=read.stage_job,
        edge_child=child,
        edge_parent=parent,
        job_x=as_rows(job_x),
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
