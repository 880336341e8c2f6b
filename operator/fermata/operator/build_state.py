"""From what is known of one pool to the `ClusterState` that a policy decides on.

Pure: views and a time in, arrays and the names behind their indices out. Two things differ from a simulator's state,
because Jobs start the next task of a stage by themselves. `stage_running` counts the executors that a stage keeps
(its parallelism, while it has so many tasks left), and `executor_free_at_s` is when such an executor is expected to
be given back, after the tasks that its Job will still put on it.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from fermata.operator.facts import PodFact
from fermata.operator.progress import StageView, WorkflowView
from fermata.policy.state import IDLE, RECENT_ARRIVALS, ClusterState, free_executor_list


class Keys(NamedTuple):
    """What the indices of a state stand for."""

    jobs: tuple[str, ...]  # workflow uids
    stages: tuple[tuple[str, str], ...]  # (workflow uid, stage name)


class HoldTimes(NamedTuple):
    """Held seconds so far, and the end of a committed hold (-inf where there is none)."""

    held_s: float = 0.0
    until_s: float = -math.inf


class Arrival(NamedTuple):
    """One recent arrival, finished or not."""

    arrival_s: float
    work_s: float


def build_state(
    views: Sequence[WorkflowView],
    executors: int,
    pods: Mapping[str, Mapping[str, PodFact]],
    stage_holds: Mapping[tuple[str, str], HoldTimes],
    workflow_held_s: Mapping[str, float],
    arrivals: Sequence[Arrival],
    now_s: float,
    paused: Collection[tuple[str, str]] = (),
) -> tuple[ClusterState, Keys]:
    """Return the state of one pool, and what its indices stand for.

    Args:
        views: its unfinished workflows, in any order.
        executors: its size; more are counted where stages hold more, because the pool was shrunk.
        pods: running pods by Job uid.
        stage_holds: of stages that are not started, by workflow uid and stage.
        workflow_held_s: by workflow uid.
        arrivals: recent ones, oldest first.
        now_s: seconds since the epoch.
        paused: stages not to be started now.
    """
    # Policies break their ties by the order of the jobs, so that priority decides between equals.
    ordered = sorted(views, key=lambda view: (-view.spec.priority, view.arrival_s, view.fact.meta.uid))
    stages = [(j, view, stage) for j, view in enumerate(ordered) for stage in view.stages]
    keys = Keys(
        tuple(view.fact.meta.uid for view in ordered),
        tuple((view.fact.meta.uid, stage.spec.name) for _, view, stage in stages),
    )
    open_ = [
        _may_start(view, stage) and key not in paused for (_, view, stage), key in zip(stages, keys.stages, strict=True)
    ]
    holds = [stage_holds.get(key, HoldTimes()) for key in keys.stages]
    lanes = [
        (free_at_s, s, j)
        for s, (j, _, stage) in enumerate(stages)
        for free_at_s in _lanes(stage, pods, now_s)
        for _ in range(stage.spec.slots)
    ]
    idle = max(executors - len(lanes), 0)
    executor_stage = _ints([*(lane[1] for lane in lanes), *[IDLE] * idle])
    ready = [s for s, ((_, _, stage), may) in enumerate(zip(stages, open_, strict=True)) if may and stage.pending > 0]
    recent = arrivals[-RECENT_ARRIVALS:]
    state = ClusterState(
        now_s=now_s,
        free=idle,
        executor_free_at_s=_floats([*(lane[0] for lane in lanes), *[-math.inf] * idle]),
        executor_stage=executor_stage,
        executor_job=_ints([*(lane[2] for lane in lanes), *[IDLE] * idle]),
        job_arrival_s=_floats([view.arrival_s for view in ordered]),
        job_weight=_floats([weight(view.spec.priority) for view in ordered]),
        job_work_s=_floats([view.work_s for view in ordered]),
        job_remaining_work_s=_floats([_remaining_work_s(view) for view in ordered]),
        job_critical_path_s=_floats([view.critical_path_s for view in ordered]),
        job_width=_floats([view.width for view in ordered]),
        job_running=_ints([sum(stage.occupied * stage.spec.slots for stage in view.stages) for view in ordered]),
        job_held_s=_floats([workflow_held_s.get(uid, 0.0) for uid in keys.jobs]),
        stage_job=_ints([j for j, _, _ in stages]),
        stage_pending=_ints([stage.pending for _, _, stage in stages]),
        stage_running=_ints([stage.occupied for _, _, stage in stages]),
        stage_estimate_s=_floats([stage.estimate.seconds for _, _, stage in stages]),
        stage_slots=_ints([stage.spec.slots for _, _, stage in stages]),
        stage_serial_fraction=np.full(len(stages), math.nan),
        stage_cap=_ints([stage.job.parallelism if stage.job else 0 for _, _, stage in stages]),
        stage_max_cap=_ints([_max_cap(view, stage) for _, view, stage in stages]),
        stage_ready_s=_floats(
            [stage.ready_s if may else math.inf for (_, _, stage), may in zip(stages, open_, strict=True)]
        ),
        stage_held_s=_floats([hold.held_s for hold in holds]),
        stage_hold_until_s=_floats([hold.until_s for hold in holds]),
        stage_path_s=_floats([stage.path_s for _, _, stage in stages]),
        free_executors=free_executor_list(executor_stage),
        active_jobs=np.arange(len(ordered), dtype=np.int32),
        ready_stages=_ints(ready),
        recent_arrival_s=_floats([arrival.arrival_s for arrival in recent]),
        recent_work_s=_floats([arrival.work_s for arrival in recent]),
    )
    return state, keys


def weight(priority: int) -> float:
    """Return the weight of a priority: doubled every ten steps.

    >>> weight(0), weight(10), weight(-10)
    (1.0, 2.0, 0.5)
    """
    return float(2.0 ** (priority / 10))


def _may_start(view: WorkflowView, stage: StageView) -> bool:
    if stage.job is not None and stage.job.suspended:
        return False
    return not view.blocked and stage.phase in ("Ready", "Running")


def _max_cap(view: WorkflowView, stage: StageView) -> int:
    own = min(stage.spec.parallelism or stage.spec.tasks, stage.spec.tasks)
    return min(own, stage.occupied + view.room)


def _remaining_work_s(view: WorkflowView) -> float:
    return sum(
        (stage.spec.tasks - stage.succeeded) * stage.spec.slots * stage.estimate.seconds
        for stage in view.stages
        if stage.phase not in ("Succeeded", "Failed")
    )


def _lanes(stage: StageView, pods: Mapping[str, Mapping[str, PodFact]], now_s: float) -> list[float]:
    """Return for each task that runs when the executors under it are expected to be given back."""
    if not stage.occupied or stage.job is None:
        return []
    length_s = stage.estimate.seconds
    begun = sorted(
        pod.start_s if pod.start_s is not None else now_s for pod in pods.get(stage.job.meta.uid, {}).values()
    )[: stage.occupied]
    # Between a Job and its pods there is a moment; a task without a pod began with its Job, or is about to.
    unseen_s = max(stage.job.start_s, now_s) if stage.job.succeeded else stage.job.start_s
    begun += [unseen_s] * (stage.occupied - len(begun))
    lanes = [start_s + length_s for start_s in begun]
    heapq.heapify(lanes)
    for _ in range(stage.pending):
        # A task that overruns its estimate is expected to end now.
        heapq.heapreplace(lanes, max(lanes[0], now_s) + length_s)
    return sorted(lanes)


def _floats(values: Sequence[float]) -> np.ndarray:
    return np.array(values, dtype=np.float64)


def _ints(values: Sequence[int]) -> np.ndarray:
    return np.array(values, dtype=np.int32)
