"""What an agent sees and may do at one decision, in arrays of fixed size.

A `ClusterState` has as many jobs and stages as there happen to be; a network of fixed size needs rows. A row is a stage
that can be started now. There are more of them than rows only in a crowded system; the rows are then those of the jobs
with the least remaining work, and how many are not shown is part of the observation.

Times, work and counts are given as log(1 + x), which tells 2 s from 20 s as well as 2,000 s from 20,000 s and stays
below `HIGH` for anything that a double can count in seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from fermata.policy.state import ClusterState

Rows = NDArray[np.float32]
Mask = NDArray[np.int8]

HIGH = 50.0  # log(1 + 5e21)
STAGE_FEATURES = (
    "present: 1; 0 in rows that are not used",
    "log1p estimate of one task, s (moldable: on one executor)",
    "log1p tasks that are not started",
    "log1p tasks that run",
    "executors that a task takes / executors of the pool",
    "serial fraction; 1 where the stage is not moldable",
    "moldable: 1; 0 otherwise",
    "log1p longest path from this stage to the end of its job, s",
    "log1p time since it became ready, s",
    "log1p time for which it was held, s",
    "log1p remaining work of its job, executor-seconds",
    "log1p age of its job, s",
    "executors that its job holds / executors of the pool",
    "log1p weight of its job",
)
POOL_FEATURES = (
    "free executors / executors",
    "log1p jobs in the system",
    "log1p stages that can be started",
    "log1p of these not shown",
    "log1p time since the last arrival, s",
    "log1p mean time between recent arrivals, s",
    "log1p mean work of recent arrivals, executor-seconds",
)


class Choices(NamedTuple):
    """What the actions of one decision mean: action `row * len(shares) + share` starts a stage, the last one waits."""

    stages: NDArray[np.int64]  # [rows] index of each row's stage in the state; -1 where the row is not used
    caps: NDArray[np.int64]  # [rows, shares] the parallelism cap that a start asks for; 0 where there is none
    mask: Mask  # [rows * shares + 1] 1 where the action is allowed
    hidden: int  # stages that can be started and have no row


def observation_space(executors: int, rows: int) -> spaces.Dict:
    """Return the space of `observe`'s answers."""
    return spaces.Dict(
        {
            "stages": spaces.Box(0.0, HIGH, (rows, len(STAGE_FEATURES)), np.float32),
            "executors": spaces.Box(0.0, HIGH, (executors,), np.float32),
            "pool": spaces.Box(0.0, HIGH, (len(POOL_FEATURES),), np.float32),
        }
    )


def startable_stages(state: ClusterState) -> NDArray[np.int64]:
    """Return the stages that can be started now, in the order of the rows.

    Least remaining work of the job first, then the earlier job; the stages of one job by their longest path.
    What `fermata.policy.action.startable` says of each: where nothing is held and nobody has set a limit, as here, a
    ready stage waits for executors alone.
    """
    ready = np.asarray(state.ready_stages, np.int64)
    stages = ready[state.stage_slots[ready] <= state.free]
    job = state.stage_job[stages]
    return stages[np.lexsort((stages, -state.stage_path_s[stages], job, state.job_remaining_work_s[job]))]


def choices(state: ClusterState, rows: int, shares: Sequence[float]) -> Choices:
    """Return what each action means in this state.

    Args:
        state: in which at least one stage can be started, or the episode's last.
        rows: how many stages are shown at the most.
        shares: a start with share x asks for x times what the stage can begin now, rounded up. A share that means the
            same cap as an earlier one is masked.
    """
    found = startable_stages(state)
    shown = found[:rows]
    stages = np.full(rows, -1, np.int64)
    stages[: len(shown)] = shown
    caps = np.zeros((rows, len(shares)), np.int64)
    for row, stage in enumerate(shown.tolist()):
        caps[row] = _caps(state, stage, shares)
    mask = np.zeros(rows * len(shares) + 1, np.int8)
    mask[:-1] = (caps > 0).ravel()
    mask[-1] = state.free < len(state.executor_stage)
    return Choices(stages, caps, mask, len(found) - len(shown))


def _caps(state: ClusterState, stage: int, shares: Sequence[float]) -> list[int]:
    """Return the cap of each share, 0 where an earlier share has it."""
    running = int(state.stage_running[stage])
    if np.isnan(state.stage_serial_fraction[stage]):
        most = min(int(state.stage_pending[stage]), state.free // int(state.stage_slots[stage]))
    else:
        most = state.free
    caps: list[int] = []
    for share in shares:
        cap = running + max(1, int(np.ceil(share * most)))
        caps.append(0 if cap in caps else cap)
    return caps


def observe(state: ClusterState, known: Choices) -> dict[str, Rows]:
    """Return new arrays of what an agent sees: see `STAGE_FEATURES`, `POOL_FEATURES` and `observation_space`.

    "executors" holds log1p of the seconds until each is expected to be free, soonest first; 0 where free or overdue.
    """
    executors = len(state.executor_stage)
    rows = np.zeros((len(known.stages), len(STAGE_FEATURES)))
    shown = known.stages[known.stages >= 0]
    job = state.stage_job[shown]
    serial = state.stage_serial_fraction[shown]
    moldable = ~np.isnan(serial)
    rows[: len(shown)] = np.column_stack(
        [
            np.ones(len(shown)),
            np.log1p(state.stage_estimate_s[shown]),
            np.log1p(state.stage_pending[shown]),
            np.log1p(state.stage_running[shown]),
            state.stage_slots[shown] / executors,
            np.where(moldable, serial, 1.0),
            moldable,
            np.log1p(state.stage_path_s[shown]),
            np.log1p(state.now_s - state.stage_ready_s[shown]),
            np.log1p(state.stage_held_s[shown]),
            np.log1p(state.job_remaining_work_s[job]),
            np.log1p(state.now_s - state.job_arrival_s[job]),
            state.job_running[job] / executors,
            np.log1p(state.job_weight[job]),
        ]
    )
    free_in_s = np.maximum(np.sort(np.asarray(state.executor_free_at_s)) - state.now_s, 0.0)
    return {
        "stages": np.minimum(rows, HIGH).astype(np.float32),
        "executors": np.log1p(free_in_s).astype(np.float32),
        "pool": _pool(state, len(shown), known.hidden),
    }


def _pool(state: ClusterState, shown: int, hidden: int) -> Rows:
    recent_s = state.recent_arrival_s
    gap_s = float(recent_s[-1] - recent_s[0]) / (len(recent_s) - 1) if len(recent_s) > 1 else 0.0
    since_s = state.now_s - float(recent_s[-1]) if len(recent_s) else 0.0
    work_s = float(state.recent_work_s.mean()) if len(recent_s) else 0.0
    counts = [len(state.active_jobs), shown + hidden, hidden, since_s, gap_s, work_s]
    return np.array([state.free / len(state.executor_stage), *np.log1p(counts)], np.float32)
