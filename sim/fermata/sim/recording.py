"""Write down the decisions of an episode, one `fermata.policy.record` line each, to look into or to replay.

A recorded state names only what still counts: the simulator keeps finished jobs in its arrays, and with them a long
episode would grow with the square of its jobs. Policies see no difference: order, ties and recent arrivals are kept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fermata.policy.action import Action
from fermata.policy.decide import Step
from fermata.policy.guardrails import Guardrails
from fermata.policy.record import Record, dumps
from fermata.policy.state import IDLE, ClusterState
from fermata.sim.trace import Trace

IndexArray = NDArray[np.int32]


class Recorder:
    """An observer for `simulate` that hands each decision, as a line, to `write`.

    Args:
        trace: names the jobs and stages.
        policy: name of the policy.
        limits: the guardrails of the episode.
        write: takes one line of ASCII, its line end included.
    """

    def __init__(self, trace: Trace, policy: str, limits: Guardrails, write: Callable[[bytes], Any]) -> None:
        self._trace, self._policy, self._limits, self._write = trace, policy, limits, write

    def __call__(self, state: ClusterState, steps: tuple[Step, ...]) -> None:
        """Record one decision."""
        jobs = np.sort(state.active_jobs)
        stages = np.flatnonzero(np.isin(state.stage_job, jobs))
        job_ids, names, owner = self._trace.job_ids, self._trace.stage_names, state.stage_job.tolist()
        moved = _numbers(stages, len(owner))
        record = Record(
            state=only(state, jobs, stages),
            steps=tuple(
                Step(_renamed(action, moved), _renamed(proposed, moved), override)
                for action, proposed, override in steps
            ),
            policy=self._policy,
            limits=self._limits,
            labels={
                "jobs": [job_ids[job] for job in jobs.tolist()],
                "stages": [f"{job_ids[owner[stage]]}/{names[stage]}" for stage in stages.tolist()],
            },
            edges=self._edges(stages, moved),
        )
        self._write(f"{dumps(record)}\n".encode("ascii"))

    def _edges(self, stages: NDArray[np.int64], moved: IndexArray) -> tuple[tuple[int, int], ...]:
        """Return (parent, child) of some stages, all of their jobs, in their new numbers."""
        first = self._trace.parent_ptr[stages]
        count = self._trace.parent_ptr[stages + 1] - first
        at = np.arange(count.sum()) + np.repeat(first - (np.cumsum(count) - count), count)
        parent, child = moved[self._trace.parent[at]], moved[np.repeat(stages, count)]
        return tuple(zip(parent.tolist(), child.tolist(), strict=True))


def only(state: ClusterState, jobs: IndexArray, stages: NDArray[np.int64]) -> ClusterState:
    """Return a copy of the state with some of its jobs and stages, renumbered in their order.

    Args:
        state: what the scheduler saw.
        jobs: [n] ascending; every active job.
        stages: [m] ascending; all stages of these jobs.
    """
    new_job, new_stage = _numbers(jobs, len(state.job_arrival_s)), _numbers(stages, len(state.stage_job))
    fields: dict[str, Any] = {}
    for name, value in state._asdict().items():
        if name.startswith("job_"):
            fields[name] = value[jobs]
        elif name.startswith("stage_"):
            fields[name] = value[stages]
    fields["stage_job"] = new_job[fields["stage_job"]]
    # Index IDLE is the last of the table of numbers, which is IDLE again.
    fields["executor_stage"] = new_stage[state.executor_stage]
    fields["executor_job"] = new_job[state.executor_job]
    fields["active_jobs"] = new_job[state.active_jobs]
    fields["ready_stages"] = new_stage[state.ready_stages]
    return state._replace(**fields)


def _numbers(kept: NDArray[Any], size: int) -> IndexArray:
    """Return [size + 1] the new number of each old index, IDLE for what is dropped and for IDLE itself."""
    numbers = np.full(size + 1, IDLE, np.int32)
    numbers[kept] = np.arange(len(kept), dtype=np.int32)
    return numbers


def _renamed(action: Action, new_stage: IndexArray) -> Action:
    return action._replace(stage=int(new_stage[action.stage]))
