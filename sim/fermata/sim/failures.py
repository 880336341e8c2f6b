"""Tasks that fail and are tried again, as the pods of a Kubernetes Job are.

A failed attempt ends somewhere in the task's duration; the next one begins after a back-off that doubles. The Job keeps
its executors meanwhile: its parallelism is not given to others, so a task with its attempts is one long stay. A stage
that has failed more often than it may fails its job: what runs ends, nothing more of it starts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fermata.policy.errors import InputError
from fermata.sim.trace import Trace

MAX_RETRIES = 1000  # each attempt of all tasks is drawn


@dataclass(frozen=True)
class Failures:
    """How tasks fail.

    Args:
        probability: that an attempt fails, in [0, 1).
        retries: failures that a stage may have (a Job's `backoffLimit`, 6 by default there).
        backoff_s: between the first failure and the second attempt; doubled each time.
        max_backoff_s: the longest.
        seed: of the draws, which depend on nothing else but the trace.

    Raises:
        InputError: a number out of its range.

    Source: the Job controller's back-off, 10 s doubling up to 6 minutes.
    """

    probability: float
    retries: int = 6
    backoff_s: float = 10.0
    max_backoff_s: float = 360.0
    seed: int = 0

    def __post_init__(self) -> None:
        """Check the ranges."""
        if not 0.0 <= self.probability < 1.0:
            raise InputError(f"failure probability: expected a number in [0, 1), got {self.probability:g}")
        if not 0 <= self.retries <= MAX_RETRIES:
            raise InputError(f"retries: expected 0 to {MAX_RETRIES:,}, got {self.retries}")
        if self.backoff_s < 0.0 or self.max_backoff_s < self.backoff_s:
            raise InputError("failures: expected a back-off of at least 0, and a longest back-off above it")


class Stays(NamedTuple):
    """What comes of tasks with failures drawn for them: arrays by task, times in seconds."""

    work_s: NDArray[np.float64]  # all attempts together, of a moldable stage on one executor
    pause_s: NDArray[np.float64]  # all back-offs together, which more executors do not shorten
    fails: NDArray[np.bool_]  # its end fails the job


def draw_failures(trace: Trace, failures: Failures) -> Stays:
    """Return for how long each task keeps its executors, and which tasks fail for good."""
    rng = np.random.default_rng([failures.seed, trace.tasks])
    # How often each task fails before it succeeds, and the stage's failures before and with each of its tasks.
    times = rng.geometric(1.0 - failures.probability, trace.tasks) - 1
    stage = np.repeat(np.arange(trace.stages), np.diff(trace.task_ptr))
    total = np.cumsum(times)
    earlier = np.concatenate([[0], total])[trace.task_ptr[:-1]]
    before = total - times - earlier[stage]
    fails = (times > 0) & (before + times > failures.retries)
    # The task whose failure is one too many stops there; a later one of the stage stops at its first failure.
    allowed = np.where(fails, np.clip(failures.retries - before + 1, 1, None), times)
    work_s, backoffs_s = np.where(fails, 0.0, trace.task_duration_s), np.zeros(trace.tasks)
    for attempt in range(int(allowed.max(initial=0))):
        tried = allowed > attempt
        part = rng.random(trace.tasks)
        pause_s = min(failures.backoff_s * 2.0**attempt, failures.max_backoff_s)
        last = fails & (allowed == attempt + 1)
        work_s += np.where(tried, part * trace.task_duration_s, 0.0)
        backoffs_s += np.where(tried & ~last, pause_s, 0.0)
    return Stays(work_s, backoffs_s, fails)
