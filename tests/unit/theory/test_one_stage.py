"""A diamond, worked by hand."""

import numpy as np
import pytest

from fermata.policy.errors import InputError
from fermata.policy.theory.one_stage import one_stage

# Job 0: a (1 x 2 s) -> b (4 x 3 s), c (1 x 5 s) -> d (1 x 1 s). Job 1: one stage of 3 x 4 s.
JOB_STAGE_PTR = np.array([0, 4, 5])
PARENT_PTR = np.array([0, 0, 1, 2, 4, 4])
PARENT = np.array([0, 0, 1, 2], np.int32)
TASK_S = np.array([2.0, 3.0, 5.0, 1.0, 4.0])
WORK_S = np.array([2.0, 12.0, 5.0, 1.0, 12.0])


def test_length_is_the_critical_path_and_width_the_work_over_it() -> None:
    jobs = one_stage(JOB_STAGE_PTR, PARENT_PTR, PARENT, TASK_S, WORK_S)
    assert jobs.length_s.tolist() == [8.0, 4.0]
    assert jobs.width.tolist() == [2.5, 3.0]
    assert jobs.work_s.tolist() == [20.0, 12.0]


def test_alone_a_job_needs_its_path_or_its_share_of_the_work() -> None:
    jobs = one_stage(JOB_STAGE_PTR, PARENT_PTR, PARENT, TASK_S, WORK_S)
    assert jobs.alone_s(1).tolist() == [20.0, 12.0]
    assert jobs.alone_s(2).tolist() == [10.0, 6.0]
    assert jobs.alone_s(10).tolist() == [8.0, 4.0]
    with pytest.raises(ValueError, match="at least 1, not 0"):
        jobs.alone_s(0)


def test_a_cycle_is_refused() -> None:
    with pytest.raises(InputError, match="2 of 2"):
        one_stage(np.array([0, 2]), np.array([0, 1, 2]), np.array([1, 0], np.int32), np.ones(2), np.ones(2))
