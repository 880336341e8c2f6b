"""A DAG job seen as one stage: as long as its critical path, as wide as its work spread over that path.

The papers' theorems and the bounds are about jobs of one stage; this is how a DAG job becomes one. It loses the order
of stages, so it is a lower bound on what the job needs, not a schedule.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fermata.policy.errors import InputError
from fermata.policy.graph import job_shape, path_lengths
from fermata.policy.state import FloatArray


@dataclass(frozen=True)
class OneStage:
    """Jobs as single stages.

    Attributes:
        length_s: [jobs] critical path: what a job takes with executors without end, seconds.
        width: [jobs] executors that it keeps busy on average over that time.
    """

    length_s: FloatArray
    width: FloatArray

    @property
    def work_s(self) -> FloatArray:
        """[jobs] executor-seconds."""
        return self.length_s * self.width

    def alone_s(self, executors: int) -> FloatArray:
        """Return what each job takes at least with all of `executors` to itself, [jobs] seconds.

        Raises:
            ValueError: no executor.

        Source: Brent's bound, max(critical path, work / executors).
        """
        if executors < 1:
            raise ValueError(f"executors must be at least 1, not {executors}")
        return np.maximum(self.length_s, self.work_s / executors)


def one_stage(
    job_stage_ptr: NDArray[np.int64],
    parent_ptr: NDArray[np.int64],
    parent: NDArray[np.int32],
    task_s: FloatArray,
    stage_work_s: FloatArray,
) -> OneStage:
    """Return the one-stage abstraction of every job.

    Args:
        job_stage_ptr: [jobs + 1] where each job's stages begin.
        parent_ptr: [stages + 1] where each stage's parents begin in `parent`.
        parent: [edges] stage indices.
        task_s: [stages] the longest task of a stage, seconds.
        stage_work_s: [stages] executor-seconds of all its tasks.

    Raises:
        InputError: the stages depend on each other in a cycle.

    Source: the idle-slots paper, one-stage abstraction (critical path and average width).
    """
    path_s, reached = path_lengths(parent_ptr, parent, task_s)
    if reached != len(task_s):
        raise InputError(f"the stages have a cycle: {len(task_s) - reached} of {len(task_s)} are part of one")
    _, length_s, width = job_shape(job_stage_ptr, stage_work_s, path_s)
    return OneStage(length_s, width)
