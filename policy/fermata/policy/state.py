"""What a scheduler sees at one instant, as named arrays: the contract between policies and what drives them.

`ClusterState` is a named tuple of numpy arrays. The simulator hands out views of its own memory; the operator builds
the arrays from what the API server holds; the kernels read the same as rows (`fermata.policy.board`). Nothing here
knows the time of day, a cluster or a trace.

Indices are positions in these arrays and mean nothing outside of one state. Jobs stand in the order of their arrival
(ties in a fixed order; in the operator by priority first), so "the lower index" is "the earlier job", and that is how
every policy here breaks ties.
A finished job may still be listed (the simulator does not compact its arrays); `active_jobs` and `ready_stages` say
what counts.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IndexArray = NDArray[np.int32]

IDLE = -1  # executor_stage of a free executor; executor_job of one that never worked
RECENT_ARRIVALS = 400  # how many arrivals a state carries at the most


class ClusterState(NamedTuple):
    """All that a scheduler may see at `now_s`. Shapes in brackets; every time and work is in seconds.

    Work is executor-seconds by estimate: tasks * slots * estimate.
    """

    now_s: float
    free: int  # free executors; always len(free_executors)
    # executors: [executors]
    # when its task is expected to end, and those after which its stage gives it back: in the past if it overruns; -inf
    # where free
    executor_free_at_s: FloatArray
    executor_stage: IndexArray  # the stage that it works on; IDLE where free
    executor_job: IndexArray  # the job that it works on, or last worked on where free; IDLE where none
    # jobs: [jobs]
    job_arrival_s: FloatArray
    job_weight: FloatArray  # above 0; shortest-first orders divide work by it, so higher goes earlier
    job_work_s: FloatArray  # work of all its stages
    job_remaining_work_s: FloatArray  # work of its tasks that have not finished
    job_critical_path_s: FloatArray  # length of the longest path through the whole job
    job_width: FloatArray  # average width: work / critical path, >= 1 for jobs of one-slot tasks
    job_running: IndexArray  # executors that it holds
    job_held_s: FloatArray  # held time so far
    # stages: [stages]
    stage_job: IndexArray
    stage_pending: IndexArray  # tasks that have not been started
    stage_running: IndexArray  # tasks that run
    stage_estimate_s: FloatArray  # expected duration of one task; of a moldable stage on one executor
    stage_slots: IndexArray  # executors that one task takes together
    stage_serial_fraction: FloatArray  # moldable: serial fraction in [0, 1]; NaN where not moldable
    stage_cap: IndexArray  # parallelism cap in force, in tasks; 0 before the first start
    stage_max_cap: IndexArray  # the highest cap that may be asked for, in tasks (moldable: in executors)
    stage_ready_s: FloatArray  # since when all parents have finished; +inf before
    stage_held_s: FloatArray  # held time so far: ready, no task of it running, and enough executors free
    stage_hold_until_s: FloatArray  # end of a committed hold (`HOLD`); -inf where there is none
    stage_path_s: FloatArray  # length of the longest path from its start to the end of its job, itself included
    # lists of indices, in no particular order
    free_executors: IndexArray
    active_jobs: IndexArray  # arrived and not finished
    ready_stages: IndexArray  # ready, with pending tasks
    # recent arrivals, oldest first: [recent], at most RECENT_ARRIVALS; finished jobs included
    recent_arrival_s: FloatArray
    recent_work_s: FloatArray
    recent_weight: FloatArray
    # of the tasks that finished lately (`fermata.policy.estimate_error`); 0 before the first
    estimate_error: float = 0.0  # mean |ln(duration / estimate)|
    estimate_misses: float = 0.0  # share that was off by more than a factor of three

    @property
    def executors(self) -> int:
        """Size of the pool."""
        return len(self.executor_stage)


def free_executor_list(executor_stage: IndexArray) -> IndexArray:
    """Return the indices of the free executors, highest first, so that a start takes the lowest first."""
    return np.flatnonzero(executor_stage == IDLE)[::-1].astype(np.int32)
