"""From an episode of the simulator to the plain schedule that reports are made of, and what bounds it from below."""

from __future__ import annotations

import numpy as np

from fermata.policy.theory.bounds import lower_bound_s, pooled_srpt_jct_s
from fermata.sim.metrics import JobShapes, job_shapes
from fermata.sim.report.schedule import NO_HOLDS, Holds, Schedule, Tasks, held_intervals
from fermata.sim.simulate import Episode
from fermata.sim.trace import FloatArray, Trace

_LEAST_HELD_S = 1e-9  # less is rounding


def schedule_of(episode: Episode, warm: int = 0) -> Schedule:
    """Return what happened in an episode, with the tasks and holds."""
    trace = episode.trace
    shapes = job_shapes(trace, episode.executors)
    counts = np.diff(trace.task_ptr)
    tasks = Tasks(
        start_s=episode.task_start_s,
        end_s=episode.task_end_s,
        job=np.repeat(trace.stage_job, counts),
        width=np.repeat(episode.stage_width, counts),
    )
    return Schedule(
        executors=episode.executors,
        job_ids=trace.job_ids,
        arrival_s=trace.job_arrival_s,
        start_s=episode.job_start_s,
        completion_s=episode.job_completion_s,
        held_s=episode.job_held_s,
        run_s=episode.job_run_s,
        work_s=shapes.work_s,
        ideal_s=shapes.critical_path_s,
        busy_s=episode.busy_s,
        warm=warm,
        tasks=tasks,
        holds=_holds_of(episode, tasks),
    )


def _holds_of(episode: Episode, tasks: Tasks) -> Holds:
    trace = episode.trace
    held = np.flatnonzero(episode.stage_held_s > _LEAST_HELD_S)
    if not len(held):
        return NO_HOLDS
    rests = [_rests(episode, stage) for stage in held.tolist()]
    owner = np.repeat(held, [len(begin_s) for begin_s, _ in rests])
    begin_s, end_s = (np.concatenate(column) for column in zip(*rests, strict=True))
    found = held_intervals(tasks, episode.executors, begin_s, end_s, trace.stage_slots[owner])
    stages = owner[found.stage]
    names = [trace.stage_names[stage] for stage in stages.tolist()]
    return Holds(found.start_s, found.end_s, trace.stage_job[stages], names)


def _rests(episode: Episode, stage: int) -> tuple[FloatArray, FloatArray]:
    """Return from when until when a stage could have run and no task of it did: before the first, and between them."""
    tasks = slice(episode.trace.task_ptr[stage], episode.trace.task_ptr[stage + 1])
    order = np.argsort(episode.task_start_s[tasks], kind="stable")
    end_s = episode.task_start_s[tasks][order]
    done_s = np.maximum.accumulate(episode.task_end_s[tasks][order])
    begin_s = np.concatenate([episode.stage_ready_s[stage : stage + 1], done_s[:-1]])
    rest = end_s > begin_s
    return begin_s[rest], end_s[rest]


def mean_jct_bound(trace: Trace, executors: int) -> tuple[str, float] | None:
    """Return what no schedule's mean JCT over all jobs of a trace can go below, and how that is known.

    The bounds apply to jobs that have work. Whatever has none takes no executor and no time from these, and its JCT is
    not below 0. None where no job has any.

    Source: `fermata.policy.theory.bounds`.
    """
    shapes: JobShapes = job_shapes(trace, executors)
    works = shapes.work_s > 0.0
    if not works.any():
        return None
    arrival_s, work_s, share = trace.job_arrival_s[works], shapes.work_s[works], float(works.mean())
    one_task = trace.tasks == trace.stages == trace.jobs and bool(np.all(trace.stage_slots == 1))
    if one_task and bool(np.all(np.isnan(trace.stage_serial_fraction))):
        bound_s = share * lower_bound_s(arrival_s, work_s, executors)
        return "mean busy times of jobs that cannot be preempted", bound_s
    pooled_s = share * float(pooled_srpt_jct_s(arrival_s, work_s, executors).mean())
    return "pooled SRPT, and critical paths", max(pooled_s, float(shapes.critical_path_s.mean()))
