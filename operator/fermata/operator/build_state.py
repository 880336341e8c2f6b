"""From what is known of one pool to the `ClusterState` that a policy decides on.

Pure: views and a time in, arrays and the names behind their indices out. Two things differ from a simulator's state,
because Jobs start the next task of a stage by themselves, unless their pods wait for their turn. `stage_running` counts
the executors that a stage keeps (its parallelism, while it has so many tasks left), and `executor_free_at_s` is when
such an executor is expected to be given back, after the tasks that its Job will still put on it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import NamedTuple

import numpy as np

from fermata.operator.lanes import given_back_s
from fermata.operator.pods import PodFact
from fermata.operator.progress import StageKey, StageView, WorkflowView
from fermata.operator.resources import MAX_EXECUTORS
from fermata.policy.dag import Dag
from fermata.policy.graph import compressed
from fermata.policy.state import IDLE, RECENT_ARRIVALS, ClusterState, FloatArray, IndexArray, free_executor_list


@dataclass(frozen=True)
class Keys:
    """What the indices of a state stand for."""

    jobs: tuple[str, ...]  # workflow uids
    stages: tuple[StageKey, ...]

    @cached_property
    def stage_index(self) -> dict[StageKey, int]:
        """The index of each stage."""
        return {key: i for i, key in enumerate(self.stages)}


class HoldTimes(NamedTuple):
    """Held seconds so far, and the end of a committed hold (-inf where there is none)."""

    held_s: float = 0.0
    until_s: float = -math.inf


class Arrival(NamedTuple):
    """One recent arrival, finished or not."""

    arrival_s: float  # since the epoch
    work_s: float  # executor-seconds by estimate
    weight: float = 1.0


class Rows(NamedTuple):
    """What one workflow contributes to a state, for as long as its view is the same one."""

    view: WorkflowView
    keys: tuple[StageKey, ...]
    job: tuple[float, ...]  # in the order of _JOB
    floats: FloatArray  # [stages, _FLOATS]
    ints: IndexArray  # [stages, _INTS]
    takes_part: bool


# The clocks of a cluster agree within this: what is said to be ready later was seen before the clock was set back.
_APART_S = 2.0
_JOB = ("arrival_s", "weight", "work_s", "remaining_work_s", "critical_path_s", "width", "running")
_FLOATS = ("estimate_s", "ready_s", "path_s")
_INTS = ("pending", "running", "slots", "cap", "max_cap")


def rows_of(view: WorkflowView) -> Rows:
    """Return the rows of a workflow; those of a stage that may not start are ready at +inf."""
    room = view.room
    return Rows(
        view=view,
        keys=tuple((view.fact.meta.uid, stage.spec.name) for stage in view.stages),
        job=(
            view.arrival_s,
            weight(view.spec.priority),
            view.work_s,
            remaining_work_s(view),
            view.critical_path_s,
            view.width,
            sum(stage.occupied * stage.slots for stage in view.stages),
        ),
        floats=_floats(
            [
                (stage.estimate.seconds, stage.ready_s if _may_start(view, stage) else math.inf, stage.path_s)
                for stage in view.stages
            ]
        ),
        ints=_ints(
            [
                (
                    stage.pending,
                    stage.occupied,
                    stage.slots,
                    stage.job.parallelism if stage.job else 0,
                    _max_cap(stage, room),
                )
                for stage in view.stages
            ]
        ),
        takes_part=takes_part(view),
    )


def takes_part(view: WorkflowView, paused: Collection[StageKey] = ()) -> bool:
    """Tell whether a workflow is one of a state's jobs: something of it runs, or may start and is not paused.

    All others, such as those that are suspended, or for whose Jobs a namespace has no quota, wait for something else
    than executors, and to a policy jobs without an executor are a queue.
    """
    uid = view.fact.meta.uid
    return any(
        stage.occupied or (_may_start(view, stage) and (uid, stage.spec.name) not in paused) for stage in view.stages
    )


def build_state(
    views: Iterable[WorkflowView],
    executors: int,
    pods: Mapping[str, Mapping[str, PodFact]],
    stage_holds: Mapping[StageKey, HoldTimes],
    workflow_held_s: Mapping[str, float],
    arrivals: Sequence[Arrival],
    now_s: float,
    paused: Collection[StageKey] = (),
    cache: dict[str, Rows] | None = None,
    trust: tuple[float, float] = (0.0, 0.0),
) -> tuple[ClusterState, Keys]:
    """Return the state of one pool, and what its indices stand for.

    Args:
        views: its unfinished workflows, in any order; jobs of the state are those that take part.
        executors: its size; more are counted where stages hold more, because the pool was shrunk.
        pods: running pods by Job uid.
        stage_holds: of stages that are not started, by workflow uid and stage.
        workflow_held_s: by workflow uid; 0 where it is missing.
        arrivals: recent ones, oldest first.
        now_s: seconds since the epoch.
        paused: stages not to be started now.
        cache: rows by workflow uid, read and written: only what changed is looked at stage by stage.
        trust: mean error and share of misses of recent estimates (`fermata.policy.estimate_error`).
    """
    known: dict[str, Rows] = {} if cache is None else cache
    stalled = {uid for uid, _ in paused}
    rows = [
        row
        for row in (_cached(view, known) for view in views)
        if row.takes_part and (row.view.fact.meta.uid not in stalled or takes_part(row.view, paused))
    ]
    # Policies break their ties by the order of the jobs, so that priority decides between equals.
    rows.sort(key=lambda row: (-row.view.spec.priority, row.job[0], row.view.fact.meta.uid))
    keys = Keys(tuple(row.view.fact.meta.uid for row in rows), tuple(key for row in rows for key in row.keys))
    counts = [len(row.keys) for row in rows]
    jobs = dict(zip(_JOB, _floats([row.job for row in rows]).reshape(-1, len(_JOB)).T.copy(), strict=True))
    floats = _columns(_FLOATS, [row.floats for row in rows], np.float64)
    ints = _columns(_INTS, [row.ints for row in rows], np.int32)
    ready_s = floats["ready_s"]
    ready_s[(now_s + _APART_S < ready_s) & (ready_s < math.inf)] = now_s
    for key in keys.stage_index.keys() & paused:
        ready_s[keys.stage_index[key]] = math.inf
    held_s, hold_until_s = _holds(keys, stage_holds)
    free_at_s, executor_stage, executor_job = _executors(rows, jobs["running"], executors, pods, now_s)
    recent = arrivals[-RECENT_ARRIVALS:]
    state = ClusterState(
        now_s=now_s,
        free=int(np.count_nonzero(executor_stage == IDLE)),
        executor_free_at_s=free_at_s,
        executor_stage=executor_stage,
        executor_job=executor_job,
        job_arrival_s=jobs["arrival_s"],
        job_weight=jobs["weight"],
        job_work_s=jobs["work_s"],
        job_remaining_work_s=jobs["remaining_work_s"],
        job_critical_path_s=jobs["critical_path_s"],
        job_width=jobs["width"],
        job_running=jobs["running"].astype(np.int32),
        job_held_s=_floats([workflow_held_s.get(uid, 0.0) for uid in keys.jobs]),
        stage_job=np.repeat(np.arange(len(rows), dtype=np.int32), counts),
        stage_pending=ints["pending"],
        stage_running=ints["running"],
        stage_estimate_s=floats["estimate_s"],
        stage_slots=ints["slots"],
        stage_serial_fraction=np.full(len(keys.stages), math.nan),
        stage_cap=ints["cap"],
        stage_max_cap=ints["max_cap"],
        stage_ready_s=ready_s,
        stage_held_s=held_s,
        stage_hold_until_s=hold_until_s,
        stage_path_s=floats["path_s"],
        free_executors=free_executor_list(executor_stage),
        active_jobs=np.arange(len(rows), dtype=np.int32),
        ready_stages=np.flatnonzero((ready_s < math.inf) & (ints["pending"] > 0)).astype(np.int32),
        recent_arrival_s=_floats([arrival.arrival_s for arrival in recent]),
        recent_work_s=_floats([arrival.work_s for arrival in recent]),
        recent_weight=_floats([arrival.weight for arrival in recent]),
        estimate_error=trust[0],
        estimate_misses=trust[1],
    )
    return state, keys


def dag_of(views: Iterable[WorkflowView], keys: Keys) -> Dag:
    """Return the edges between the stages of a state, for policies that read them."""
    index, jobs = keys.stage_index, frozenset(keys.jobs)
    above: list[list[int]] = [[] for _ in keys.stages]
    for view in views:
        uid = view.fact.meta.uid
        for stage in view.stages if uid in jobs else ():
            above[index[uid, stage.spec.name]] = [index[uid, parent] for parent in stage.spec.depends_on]
    return Dag.of_parents(*compressed(above))


def _holds(keys: Keys, stage_holds: Mapping[StageKey, HoldTimes]) -> tuple[FloatArray, FloatArray]:
    """Return for each stage how long it was held, and until when it is to be: [stages] each."""
    held_s, until_s = np.zeros(len(keys.stages)), np.full(len(keys.stages), -math.inf)
    for key in stage_holds.keys() & keys.stage_index.keys():
        stage = keys.stage_index[key]
        held_s[stage], until_s[stage] = stage_holds[key]
    return held_s, until_s


def _executors(
    rows: Sequence[Rows],
    running: FloatArray,
    executors: int,
    pods: Mapping[str, Mapping[str, PodFact]],
    now_s: float,
) -> tuple[FloatArray, IndexArray, IndexArray]:
    """Return when each executor is free, and its stage and job: [executors] each, busy ones first.

    Args:
        rows: of the jobs.
        running: how many executors each job keeps, [jobs].
        executors: size of the pool; there are more where jobs keep more, but no more than the largest pool has.
        pods: running pods by Job uid.
        now_s: seconds since the epoch.
    """
    first = np.cumsum([0, *(len(row.keys) for row in rows)]).tolist()
    busy = (
        (free_at_s, first[j] + s, j)
        for j in np.flatnonzero(running).tolist()
        for s, stage_view in enumerate(rows[j].view.stages)
        for free_at_s in _lanes(stage_view, pods, now_s)
        for _ in range(stage_view.slots)
    )
    # Only Jobs that somebody else has changed keep more, and there may be many: to list it all would take all memory.
    lanes: list[tuple[float, int, int]] = list(islice(busy, MAX_EXECUTORS))
    lanes += [(-math.inf, IDLE, IDLE)] * (executors - len(lanes))
    free_at_s, stages, jobs = zip(*lanes, strict=True) if lanes else ((), (), ())
    return _floats(free_at_s), _ints(stages), _ints(jobs)


def _cached(view: WorkflowView, cache: dict[str, Rows]) -> Rows:
    uid = view.fact.meta.uid
    found = cache.get(uid)
    if found is None or found.view is not view:
        found = cache[uid] = rows_of(view)
    return found


def _columns(names: Sequence[str], blocks: Sequence[np.ndarray], kind: type[np.generic]) -> dict[str, np.ndarray]:
    """Return the columns of some blocks [stages, names] under each other."""
    table = np.concatenate([np.empty((0, len(names)), kind), *blocks])
    return dict(zip(names, table.T.copy(), strict=True))


def weight(priority: int) -> float:
    """Return the weight of a priority: doubled every ten steps.

    >>> weight(0), weight(10), weight(-10)
    (1.0, 2.0, 0.5)
    """
    return float(2.0 ** (priority / 10))


def _may_start(view: WorkflowView, stage: StageView) -> bool:
    if view.blocked:
        return False
    if stage.job is None:  # one that runs all the same is being looked for
        return stage.phase == "Ready"
    return stage.phase == "Running" and stage.job.begins_more and (stage.pending > 0 or not stage.job.absent)


def _max_cap(stage: StageView, room: int) -> int:
    own = min(stage.spec.parallelism or stage.tasks, stage.tasks)
    return min(own, stage.occupied + room)


def remaining_work_s(view: WorkflowView) -> float:
    """Return the executor-seconds, by estimate, of what is left of a workflow: of what may run yet, and what runs."""
    return sum(
        (stage.to_do + stage.occupied) * stage.slots * stage.estimate.seconds
        for stage in view.stages
        if stage.phase not in ("Succeeded", "Failed") and not stage.lost
    )


def _lanes(stage: StageView, pods: Mapping[str, Mapping[str, PodFact]], now_s: float) -> list[float]:
    """Return for each task that runs when the executors under it are expected to be given back."""
    if not stage.occupied or stage.job is None:
        return []
    length_s = stage.estimate.seconds
    # What has not got on for long is late, and not about to begin: nobody would be held for ever for its end.
    about_s = min(stage.job.start_s, now_s) if stage.job.amiss(now_s) else now_s
    # Another clock may say that a pod begins in a moment.
    begun = sorted(
        min(pod.start_s, now_s) if pod.start_s is not None else about_s
        for pod in pods.get(stage.job.meta.uid, {}).values()
        if not pod.gated
    )[: stage.occupied]
    # Between a Job and its pods there is a moment; a task without a pod began with its Job, or is about to. Once
    # one has failed it is about to begin anew, maybe minutes later.
    unseen_s = about_s if stage.job.succeeded or stage.job.failed else min(stage.job.start_s, now_s)
    begun += [unseen_s] * (stage.occupied - len(begun))
    ends_s = sorted(start_s + length_s for start_s in begun)
    return ends_s if stage.job.gated else sorted(given_back_s(ends_s, stage.pending, length_s, now_s))


def _floats(values: Sequence[float] | Sequence[tuple[float, ...]]) -> np.ndarray:
    return np.array(values, dtype=np.float64)


def _ints(values: Sequence[int] | Sequence[tuple[int, ...]]) -> np.ndarray:
    return np.array(values, dtype=np.int32)
