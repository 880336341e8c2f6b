"""Rigid parallel jobs as arrays: what a machine's log or a workload model gives to the scheduler.

Knows nothing of queues or time; sequences cut from a log are views of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from fermata.policy.errors import InputError
from fermata.policy.wording import counted
from fermata.sim.trace_builder import MAX_SLOTS, MAX_TIME_S

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True)
class JobLog:
    """Jobs of one machine in the order of their submission; every array has one entry a job.

    Raises:
        InputError: a job that needs more cores than there are, times that run backwards, a time that is
            negative or above MAX_TIME_S, or a machine of more than MAX_SLOTS cores.
    """

    name: str
    machine_cores: int
    ids: IntArray
    submit_s: FloatArray
    runtime_s: FloatArray  # what happens
    estimate_s: FloatArray  # what the scheduler believes
    cores: IntArray
    user: IntArray  # small numbers from 0; 0 where the log names nobody
    partition: IntArray

    def __post_init__(self) -> None:
        if not len(self):
            raise InputError(f"{self.name}: no job left")
        if self.machine_cores > MAX_SLOTS:
            raise InputError(f"{self.name}: expected a machine of at most {MAX_SLOTS} cores, not {self.machine_cores}")
        wide = int(self.cores.argmax())
        if self.cores[wide] > self.machine_cores:
            many, job = self.cores[wide], self.ids[wide]
            raise InputError(f"{self.name}: job {job} needs {many} cores, the machine has {self.machine_cores}")
        negative = (self.submit_s < 0.0) | (self.runtime_s < 0.0) | (self.estimate_s < 0.0)
        wrong = np.flatnonzero((self.cores < 1) | negative)
        if len(wrong):
            raise InputError(f"{self.name}: job {self.ids[wrong[0]]}: expected at least 1 core and no negative time")
        # Python's own `max` would pass over a NaN.
        if not all(each.max() <= MAX_TIME_S for each in (self.submit_s, self.runtime_s, self.estimate_s)):
            raise InputError(f"{self.name}: expected times of at most {MAX_TIME_S:g} s for every job")
        backwards = np.flatnonzero(np.diff(self.submit_s) < 0.0)
        if len(backwards):
            raise InputError(f"{self.name}: job {self.ids[backwards[0] + 1]} is submitted before the one above it")

    def __len__(self) -> int:
        return len(self.ids)

    def sequence(self, start: int, jobs: int) -> JobLog:
        """Return `jobs` consecutive jobs from index `start`.

        Raises:
            InputError: the log has no such jobs.
        """
        if start < 0 or jobs < 1 or start + jobs > len(self):
            raise InputError(f"{self.name} has {counted(len(self), 'job')}; cannot take {jobs} from index {start}")
        return self.select(slice(start, start + jobs))

    def select(self, chosen: slice | NDArray[np.bool_]) -> JobLog:
        """Return the chosen jobs."""
        arrays = {each.name: getattr(self, each.name)[chosen] for each in fields(self) if each.name not in _SCALARS}
        return replace(self, **arrays)

    def stretched(self, factor: float) -> JobLog:
        """Return the same jobs, each taking `factor` times as long as it did: as much more load, with days as they are.

        Raises:
            InputError: the factor is no number above 0.
        """
        if not 0.0 < factor < math.inf:
            raise InputError(f"expected a number above 0 by which jobs take longer, got {factor}")
        with np.errstate(over="ignore"):  # a new log says what is too long
            return replace(self, runtime_s=factor * self.runtime_s, estimate_s=factor * self.estimate_s)

    def with_exact_estimates(self) -> JobLog:
        """Return the same jobs with estimates that are the run times."""
        return replace(self, estimate_s=self.runtime_s)


_SCALARS = ("name", "machine_cores")
