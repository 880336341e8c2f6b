"""Write jobs of one stage and one task in Standard Workload Format, for the simulators of that world.

Source: https://www.cs.huji.ac.il/labs/parallel/workload/swf.html (version 2.2).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fermata.policy.errors import InputError
from fermata.sim.files import atomic_output
from fermata.sim.trace import IntArray, Trace

_COMPLETED = 1


def write_swf(trace: Trace, path: str | Path, executors: int | None = None) -> None:
    """Write a trace of rigid jobs; job ids become numbers from 1, times are whole numbers of seconds where they can be.

    Args:
        trace: the jobs.
        path: where to write them.
        executors: processors of the machine, which a job trace does not say; left out of the header if None.

    Raises:
        InputError: a job has several stages or tasks, is moldable, or takes some time and has an estimate of none,
            which the format cannot say; or it is too wide.
    """
    if len(others := _others(trace)):
        told = f"which {len(others)} of {trace.jobs} are not; the first is {trace.job_ids[others[0]]!r}"
        raise InputError(f"Standard Workload Format holds only jobs of one stage with one task, not moldable, {told}")
    widest = int(trace.stage_slots.max())
    if executors is not None and executors < widest:
        raise InputError(f"a machine of {executors} executors: a job takes {widest} of them")
    untold = np.flatnonzero((trace.stage_estimate_s == 0.0) & (trace.task_duration_s > 0.0))
    if len(untold):
        job = trace.job_ids[untold[0]]
        raise InputError(f"Standard Workload Format has no estimate of 0 s, which job {job!r} has: 0 is unknown there")
    with atomic_output(path) as stream:
        header = ["Version: 2.2", "Computer: Fermata", f"MaxJobs: {trace.jobs}"]
        header += [] if executors is None else [f"MaxProcs: {executors}"]
        stream.write("".join(f"; {line}\n" for line in header).encode())
        for job in range(trace.jobs):
            stream.write(_line(trace, job).encode())


def _others(trace: Trace) -> IntArray:
    """Return which jobs have several stages or tasks, or are moldable."""
    stages = (np.diff(trace.task_ptr) != 1) | ~np.isnan(trace.stage_serial_fraction)
    several = np.flatnonzero(np.diff(trace.job_stage_ptr) != 1)
    return np.union1d(several, trace.stage_job[stages]).astype(np.int64)


def _line(trace: Trace, job: int) -> str:
    run, requested = _shown(trace.task_duration_s[job]), _shown(trace.stage_estimate_s[job])
    submit, slots = _shown(trace.job_arrival_s[job]), trace.stage_slots[job]
    return f"{job + 1} {submit} -1 {run} {slots} -1 -1 {slots} {requested} -1 {_COMPLETED} -1 -1 -1 -1 -1 -1 -1\n"


def _shown(seconds: float) -> str:
    return f"{seconds:.0f}" if seconds == round(seconds) else repr(float(seconds))
