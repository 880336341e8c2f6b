"""Whether an episode is worth compiling for.

The first run of a version compiles its kernels for some ten seconds, and every later one loads Numba for half a
second; plain Python has simulated a thousand jobs by then. Importable before anything that would be compiled, and of
use only then.
"""

from __future__ import annotations

import os
import sys

import numpy as np

from fermata.sim.trace import IntArray, Trace

# Of a heuristic in plain Python, seconds on one core of the reference machine (docs/performance.md); a network takes
# about five times as long.
_TASK_S, _LOOK_S = 25e-6, 1e-6
WORTH_COMPILING_S = 1.0


def interpreted_s(trace: Trace, executors: int) -> float:
    """Estimate the seconds that an episode takes a heuristic in plain Python.

    Each start looks at every stage that is ready. Which jobs wait is told by a fluid queue, first come, first served:
    work of `executors` a second flows out, and a job has left when its own last drop has.

    Args:
        trace: the jobs.
        executors: size of the pool, at least 1.
    """
    if not trace.tasks:
        return 0.0
    stage_work_s = np.add.reduceat(trace.task_duration_s, trace.task_ptr[:-1]) * trace.stage_slots
    work_s = np.bincount(trace.stage_job, stage_work_s, minlength=trace.jobs) / executors
    done_s = np.cumsum(work_s)
    left_s = done_s + np.maximum.accumulate(trace.job_arrival_s - (done_s - work_s))
    ready = _ready_stages(trace)
    up_to = np.concatenate([[0], np.cumsum(ready)])
    before = np.maximum(up_to[:-1] - up_to[np.searchsorted(left_s, trace.job_arrival_s, side="right")], 0)
    # From its arrival on a job meets those before it, and then those after it: half of what is looked at. Of its own
    # stages that are ready together half are left on average.
    looks = np.diff(trace.job_stage_ptr) * (2.0 * before + 0.5 * ready)
    return float(_TASK_S * trace.tasks + _LOOK_S * np.sum(looks))


def _ready_stages(trace: Trace) -> IntArray:
    """Return [jobs] about how many stages of each job are ready together: its first ones, or the children of one."""
    first = np.bincount(trace.stage_job[np.diff(trace.parent_ptr) == 0], minlength=trace.jobs)
    children = np.bincount(trace.parent, minlength=trace.stages)
    return np.maximum(first, np.maximum.reduceat(children, trace.job_stage_ptr[:-1]))


def interpret_if_small(trace: Trace, executors: int) -> None:
    """Let this process run its kernels as plain Python if the episode is over before compiled ones would be loaded.

    Nothing changes where FERMATA_NO_JIT says what to do, or where the kernels are loaded already.
    """
    if "FERMATA_NO_JIT" in os.environ or "fermata.policy._jit" in sys.modules:
        return
    if interpreted_s(trace, executors) < WORTH_COMPILING_S:
        os.environ["FERMATA_NO_JIT"] = "1"
