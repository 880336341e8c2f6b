"""A job trace as flat arrays: what arrives and how long it really takes.

The one form in which jobs reach the engine, whatever wrote them. It holds the durations, so no policy ever sees a
`Trace`; the engine shows policies a `ClusterState`. Reading and writing files is the business of `trace_io`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fermata.policy.errors import InputError
from fermata.policy.wording import counted

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
IndexArray = NDArray[np.int32]

MAX_EXECUTORS = 100_000  # of a pool, as an ExecutorPool has it


@dataclass(frozen=True, slots=True)
class Trace:
    """Jobs in order of arrival (ties in the order of the input), their stages next to each other, their tasks too.

    Stages keep the input's order within a job. With `j` a job, `s` a stage: the stages of `j` are
    `job_stage_ptr[j]:job_stage_ptr[j + 1]`, the tasks of `s` are `task_ptr[s]:task_ptr[s + 1]`, its parents are
    `parent[parent_ptr[s]:parent_ptr[s + 1]]`, global stage indices of the same job.
    """

    job_arrival_s: FloatArray  # [jobs] seconds, >= 0, not falling
    job_weight: FloatArray  # [jobs] > 0
    job_stage_ptr: IntArray  # [jobs + 1]
    stage_job: IndexArray  # [stages]
    stage_slots: IndexArray  # [stages] executors that one task takes together; 1 for a moldable stage
    stage_estimate_s: FloatArray  # [stages] what the scheduler believes of one task (moldable: on one executor)
    stage_serial_fraction: FloatArray  # [stages] in [0, 1]; NaN where the stage is not moldable
    task_ptr: IntArray  # [stages + 1]; a moldable stage has exactly one task
    task_duration_s: FloatArray  # [tasks] what happens; moldable: work_s, the time on one executor
    parent_ptr: IntArray  # [stages + 1]
    parent: IndexArray  # [edges]
    job_ids: Sequence[str] = field(repr=False)
    stage_names: Sequence[str] = field(repr=False)

    @property
    def jobs(self) -> int:
        """Number of jobs."""
        return len(self.job_arrival_s)

    @property
    def stages(self) -> int:
        """Number of stages of all jobs."""
        return len(self.stage_job)

    @property
    def tasks(self) -> int:
        """Number of tasks of all stages."""
        return len(self.task_duration_s)


def check_fits(trace: Trace, executors: int, file: str | Path | None = None) -> None:
    """Refuse a trace with a task that needs more slots than there are executors; it could never start.

    Raises:
        InputError: names the first such job and stage.
    """
    for stage in (trace.stage_slots > executors).nonzero()[0][:1].tolist():
        job, slots = int(trace.stage_job[stage]), int(trace.stage_slots[stage])
        raise InputError(too_many_slots(trace.job_ids[job], trace.stage_names[stage], slots, executors), file=file)


def too_many_slots(job_id: str, stage: str, slots: int, executors: int) -> str:
    """Return what is told of a task that no pool of this size can ever start."""
    size = counted(executors, "executor")
    return f"job {job_id!r}, stage {stage!r}: a task needs {slots} slots, but the pool has {size}"
