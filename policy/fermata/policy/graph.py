"""Longest paths through the DAGs of many jobs at once, in time linear in stages and edges.

Stages of all jobs share one index space; edges are the parents of each stage in compressed form (`parent_ptr`,
`parent`), as in a trace. The papers' two stage features come from here: critical path and average width.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fermata.policy._jit import jit

FloatArray = NDArray[np.float64]


def compressed(parents: Sequence[Sequence[int]]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return the parents of each stage, given as lists of indices, as `parent_ptr` [stages + 1] and `parent` [edges].

    >>> pointer, parent = compressed([[], [0], [0, 1]])
    >>> pointer.tolist(), parent.tolist()
    ([0, 0, 1, 3], [0, 0, 1])
    """
    pointer = np.cumsum([0, *(len(above) for above in parents)], dtype=np.int64)
    return pointer, np.array([parent for above in parents for parent in above], dtype=np.int32)


def path_lengths(
    parent_ptr: NDArray[np.int64], parent: NDArray[np.int32], length_s: FloatArray
) -> tuple[FloatArray, int]:
    """Return for each stage the longest path from its start to the end of its job, and how many stages were reached.

    Args:
        parent_ptr: [stages + 1] where each stage's parents begin in `parent`.
        parent: [edges] stage indices.
        length_s: [stages] what a stage adds to a path, seconds.

    Returns:
        [stages] seconds, its own length included, and the number of stages whose length is final: fewer than there
        are exactly when the graph has a cycle.

    Source: the critical path by reverse topological order (Kahn).
    """
    if len(parent) == 0:  # jobs of one stage: nothing to walk, and nothing to compile for it
        return np.array(length_s, np.float64), len(length_s)
    return _walk(parent_ptr, parent, length_s)


@jit
def _walk(parent_ptr: NDArray[np.int64], parent: NDArray[np.int32], length_s: FloatArray) -> tuple[FloatArray, int]:
    """Do what `path_lengths` says."""
    stages = len(length_s)
    children_left = np.zeros(stages, np.int64)
    for edge in range(len(parent)):
        children_left[parent[edge]] += 1
    below_s = np.zeros(stages)  # the longest path that begins at a child
    path_s = np.zeros(stages)
    stack = np.empty(stages, np.int64)
    size = 0
    for stage in range(stages):
        if children_left[stage] == 0:
            stack[size] = stage
            size += 1
    done = 0
    while size > 0:
        size -= 1
        stage = stack[size]
        done += 1
        path_s[stage] = length_s[stage] + below_s[stage]
        for edge in range(parent_ptr[stage], parent_ptr[stage + 1]):
            above = parent[edge]
            below_s[above] = max(below_s[above], path_s[stage])
            children_left[above] -= 1
            if children_left[above] == 0:
                stack[size] = above
                size += 1
    return path_s, done


def job_shape(
    job_stage_ptr: NDArray[np.int64], stage_work_s: FloatArray, stage_path_s: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return each job's work, critical path and average width.

    Args:
        job_stage_ptr: [jobs + 1] where each job's stages begin.
        stage_work_s: [stages] executor-seconds of all tasks.
        stage_path_s: [stages] from `path_lengths`.

    Returns:
        [jobs] work in executor-seconds, critical path in seconds, and width = work / critical path (1 for a job
        that takes no time).

    Source: the idle-slots paper's stage features.
    """
    jobs = len(job_stage_ptr) - 1
    job = np.repeat(np.arange(jobs), np.diff(job_stage_ptr))
    work_s, critical_s = np.zeros(jobs), np.zeros(jobs)
    np.add.at(work_s, job, stage_work_s)
    np.maximum.at(critical_s, job, stage_path_s)
    takes_time = (critical_s > 0.0) & ~np.isinf(critical_s)
    width = np.divide(work_s, critical_s, out=np.ones(jobs), where=takes_time)
    return work_s, critical_s, width


def shape_of_job(
    parents: Sequence[Sequence[int]], length_s: FloatArray, executors: NDArray[np.integer[Any]]
) -> tuple[FloatArray, float, float, float]:
    """Return the path of each stage of one job [stages], and the job's work, critical path and average width.

    Args:
        parents: of each stage, indices among the job's stages.
        length_s: [stages] of one task.
        executors: [stages] that its tasks take, all together.
    """
    path_s, _ = path_lengths(*compressed(parents), length_s)
    work_s, critical_s, width = job_shape(np.array([0, len(length_s)]), length_s * executors, path_s)
    return path_s, float(work_s[0]), float(critical_s[0]), float(width[0])
