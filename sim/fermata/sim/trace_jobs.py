"""What can be made of the jobs of a `Trace`: pick, reorder and join them, and add up their work."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from fermata.sim.trace import FloatArray, IntArray, Trace


def in_order_of_arrival(trace: Trace) -> Trace:
    """The same jobs sorted by arrival, ties left as they are."""
    arrival_s = trace.job_arrival_s
    if len(arrival_s) < 2 or bool((arrival_s[1:] >= arrival_s[:-1]).all()):
        return trace
    return select_jobs(trace, np.argsort(arrival_s, kind="stable"))


def select_jobs(trace: Trace, jobs: npt.ArrayLike) -> Trace:
    """A trace of the given jobs in the given order, with everything that belongs to them.

    Args:
        trace: where they come from.
        jobs: [n] indices of jobs, in an order in which their arrivals do not fall; of one that is named more than once
            each copy has the same id and arrival, which is for the caller to change.
    """
    chosen = np.asarray(jobs, dtype=np.int64)
    stages, job_stage_ptr = _gather(trace.job_stage_ptr, chosen)
    tasks, task_ptr = _gather(trace.task_ptr, stages)
    edges, parent_ptr = _gather(trace.parent_ptr, stages)
    moved = job_stage_ptr[:-1] - trace.job_stage_ptr[chosen]  # [n] by how much the numbers of a job's stages grow
    return replace(
        trace,
        job_arrival_s=trace.job_arrival_s[chosen],
        job_weight=trace.job_weight[chosen],
        job_stage_ptr=job_stage_ptr,
        stage_job=np.repeat(np.arange(len(chosen), dtype=np.int32), np.diff(job_stage_ptr)),
        stage_slots=trace.stage_slots[stages],
        stage_estimate_s=trace.stage_estimate_s[stages],
        stage_serial_fraction=trace.stage_serial_fraction[stages],
        task_ptr=task_ptr,
        task_duration_s=trace.task_duration_s[tasks],
        parent_ptr=parent_ptr,
        parent=(trace.parent[edges] + np.repeat(moved, np.diff(parent_ptr[job_stage_ptr]))).astype(np.int32),
        job_ids=[trace.job_ids[job] for job in chosen.tolist()],
        stage_names=[trace.stage_names[stage] for stage in stages.tolist()],
    )


def joined(first: Trace, then: Trace) -> Trace:
    """Return a trace of the jobs of one, and then those of another, whose clock begins at the last arrival.

    The ids of the later jobs begin with `later-`, so that they stay distinct.
    """
    begins_s = first.job_arrival_s[-1] if first.jobs else 0.0
    return Trace(
        job_arrival_s=np.concatenate([first.job_arrival_s, begins_s + then.job_arrival_s]),
        job_weight=np.concatenate([first.job_weight, then.job_weight]),
        job_stage_ptr=_joined_ptr(first.job_stage_ptr, then.job_stage_ptr),
        stage_job=np.concatenate([first.stage_job, then.stage_job + np.int32(first.jobs)]),
        stage_slots=np.concatenate([first.stage_slots, then.stage_slots]),
        stage_estimate_s=np.concatenate([first.stage_estimate_s, then.stage_estimate_s]),
        stage_serial_fraction=np.concatenate([first.stage_serial_fraction, then.stage_serial_fraction]),
        task_ptr=_joined_ptr(first.task_ptr, then.task_ptr),
        task_duration_s=np.concatenate([first.task_duration_s, then.task_duration_s]),
        parent_ptr=_joined_ptr(first.parent_ptr, then.parent_ptr),
        parent=np.concatenate([first.parent, then.parent + np.int32(first.stages)]),
        job_ids=[*first.job_ids, *(f"later-{job}" for job in then.job_ids)],
        stage_names=[*first.stage_names, *then.stage_names],
    )


def _joined_ptr(first: IntArray, then: IntArray) -> IntArray:
    """Row pointers of a ragged array under another."""
    return np.concatenate([first, first[-1] + then[1:]])


def _gather(ptr: IntArray, rows: IntArray) -> tuple[IntArray, IntArray]:
    """Indices of all items of the given rows of a ragged array, and the row pointer of the result."""
    lengths = ptr[rows + 1] - ptr[rows]
    new_ptr = np.zeros(len(rows) + 1, dtype=np.int64)
    np.cumsum(lengths, out=new_ptr[1:])
    items = np.repeat(ptr[rows] - new_ptr[:-1], lengths) + np.arange(new_ptr[-1], dtype=np.int64)
    return items, new_ptr


def task_counts(trace: Trace) -> IntArray:
    """[stages] number of tasks of each stage."""
    return np.diff(trace.task_ptr)


def stage_work_s(trace: Trace) -> FloatArray:
    """[stages] executor-seconds that each stage really takes: durations times slots; moldable: on one executor."""
    totals = np.add.reduceat(trace.task_duration_s, trace.task_ptr[:-1]) if trace.stages else np.empty(0)
    return totals * trace.stage_slots


def mean_task_s(trace: Trace) -> FloatArray:
    """[stages] seconds that a task of each stage really takes on average; moldable: on one executor."""
    mean_s: FloatArray = stage_work_s(trace) / task_counts(trace) / trace.stage_slots
    return mean_s


def job_work_s(trace: Trace) -> FloatArray:
    """[jobs] executor-seconds that each job really takes."""
    return np.add.reduceat(stage_work_s(trace), trace.job_stage_ptr[:-1]) if trace.jobs else np.empty(0)
