"""What an episode is paid for, by objective: stays, each with what a second of it costs.

Every objective is a sum over stays, so that the cost rate changes only at known times and one way to value decisions
serves all of them. Weights of jobs are 1 on average, and times are relative to the episode's own jobs, so an objective
means the same in seconds and hours.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fermata.sim.metrics import SLOWDOWN_THRESHOLD_S
from fermata.sim.trace import Trace

Floats = NDArray[np.float64]
Objective = Literal["jct", "weighted_jct", "slowdown", "tail", "makespan_mix"]

TAIL_AFTER = 4.0  # a job is late when it has stayed for so many times the mean critical path of the episode's jobs
TAIL_WEIGHT = 4.0  # each second of a late job costs so much more


class Stays(NamedTuple):
    """What is paid for, `n` stays."""

    begin_s: Floats  # [n]
    end_s: Floats  # [n] not before they begin
    weight: Floats  # [n] what a second costs

    @property
    def cost(self) -> float:
        """Return what all of it costs."""
        return float((self.weight * (self.end_s - self.begin_s)).sum())


def stays(objective: Objective, trace: Trace, executors: int, completion_s: Floats, critical_path_s: Floats) -> Stays:
    """Return what an episode is paid for.

    `jct`: each job from arrival to completion. `weighted_jct`: the same by the jobs' weights. `slowdown`: by 1 over
    their critical paths. `tail`: as `jct`, and what a job stays beyond a threshold counts TAIL_WEIGHT times in
    addition. `makespan_mix`: as `jct`, and the time until the last completion as if one more job for each executor
    stayed until then.

    Args:
        objective: which.
        trace: the episode's jobs.
        executors: of its pool.
        completion_s: [jobs]
        critical_path_s: [jobs] on an empty cluster.
    """
    arrival_s, weight = trace.job_arrival_s, np.ones(trace.jobs)
    if objective == "weighted_jct":
        weight = trace.job_weight / trace.job_weight.mean()
    elif objective == "slowdown":
        weight = 1.0 / np.maximum(critical_path_s, SLOWDOWN_THRESHOLD_S)
        weight /= weight.mean()
    paid = Stays(arrival_s, completion_s, weight)
    if objective == "tail":
        late_s = arrival_s + TAIL_AFTER * critical_path_s.mean()
        late = completion_s > late_s
        return _both(paid, Stays(late_s[late], completion_s[late], np.full(int(late.sum()), TAIL_WEIGHT)))
    if objective == "makespan_mix":
        return _both(paid, Stays(arrival_s[:1], completion_s.max(keepdims=True), np.array([float(executors)])))
    return paid


def _both(one: Stays, other: Stays) -> Stays:
    return Stays(*(np.concatenate(pair) for pair in zip(one, other, strict=True)))
