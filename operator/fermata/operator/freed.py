"""Whose the free executors of a pool were last: policies that let a job keep what it frees ask for that.

In a cluster an executor is a number, and no object says which one is which. So what each workflow holds is compared
from one decision to the next: what is freed is put on a pile, and a start takes from its top, as in the simulator.
Nothing is started wrongly without it: after a restart what is free is nobody's until something frees again.
"""

from __future__ import annotations

import numpy as np

from fermata.operator.build_state import Keys
from fermata.policy.state import IDLE, ClusterState


class Freed:
    """The free executors of one pool, by the workflow that each was last held by."""

    def __init__(self) -> None:
        self._held: dict[str, int] = {}  # executors by workflow uid, at the last decision
        self._pile: list[str] = []  # uids, the latest last

    def told(self, state: ClusterState, keys: Keys) -> ClusterState:
        """Return a state that says of its free executors whose they were; those of finished workflows are nobody's."""
        rows = np.flatnonzero(state.job_running)
        held = {keys.jobs[j]: count for j, count in zip(rows.tolist(), state.job_running[rows].tolist(), strict=True)}
        before, self._held = self._held, held
        changes = {uid: held.get(uid, 0) - before.get(uid, 0) for uid in before | held}
        started = sum(more for more in changes.values() if more > 0)
        del self._pile[max(len(self._pile) - started, 0) :]
        for uid, more in changes.items():
            self._pile += [uid] * -more
        del self._pile[: max(len(self._pile) - state.free, 0)]
        index = {uid: j for j, uid in enumerate(keys.jobs)} if self._pile else {}
        jobs = state.executor_job.copy()
        for executor, uid in zip(state.free_executors[::-1].tolist(), reversed(self._pile), strict=False):
            jobs[executor] = index.get(uid, IDLE)
        return state._replace(executor_job=jobs)
