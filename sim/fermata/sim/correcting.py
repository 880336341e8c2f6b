"""Estimates that are corrected during an episode: what jobs get as they arrive, and what finished ones teach."""

from __future__ import annotations

import math

from fermata.policy._jit import part
from fermata.policy.correction import corrected_s, learn, learn_order
from fermata.sim.world import World


@part
def correct_job(world: World, job: int) -> None:
    """Give a job that arrives corrected estimates, and what follows from them; moldable stages have no such thing."""
    stages, progress, row = world.board.stages, world.job_progress[job], world.board.jobs[job]
    first, end = progress.first_stage, progress.end_stage
    for stage in range(first, end):
        if not (math.isnan(stages[stage].serial_fraction) and stages[stage].estimate_s > 0.0):
            return
        # What takes next to no time makes no path longer, and may stand behind its children in the order of paths.
        for edge in range(world.stage_progress[stage].first_child, world.stage_progress[stage].end_child):
            if not stages[stage].path_s > stages[world.children[edge]].path_s:
                return
    work_s, longest_s = 0.0, 0.0
    for at in range(end - 1, first - 1, -1):  # children before their parents
        stage = world.by_path[at]
        estimate_s = corrected_s(world.correction, world.stage_progress[stage].given_s)
        below_s = 0.0
        for edge in range(world.stage_progress[stage].first_child, world.stage_progress[stage].end_child):
            below_s = max(below_s, stages[world.children[edge]].path_s)
        stages[stage].estimate_s = estimate_s
        stages[stage].path_s = estimate_s + below_s
        longest_s = max(longest_s, stages[stage].path_s)
        work_s += stages[stage].pending * stages[stage].slots * estimate_s
    _sort_by_path(world, first, end)
    row.work_s, row.remaining_work_s = work_s, work_s
    row.critical_path_s, row.remaining_path_s = longest_s, longest_s
    row.width = work_s / longest_s
    world.board.recent_work_s[world.board.pool[0].recent_end] = work_s


@part
def _sort_by_path(world: World, first: int, end: int) -> None:
    """Put the stages of a job into the order of their paths again: the longest first, ties by index."""
    order, stages = world.by_path, world.board.stages
    for i in range(first + 1, end):
        stage, at = order[i], i
        while at > first:
            other = order[at - 1]
            if stages[other].path_s > stages[stage].path_s or (
                stages[other].path_s == stages[stage].path_s and other < stage
            ):
                break
            order[at] = other
            at -= 1
        order[at] = stage


@part
def learn_from(world: World, stage: int) -> None:
    """Note what the tasks of a finished stage took, in the mean, and what they were given."""
    row, progress = world.board.stages[stage], world.stage_progress[stage]
    if not math.isnan(row.serial_fraction):
        return
    first = world.stage_progress[stage - 1].end_task if stage > 0 else 0
    total_s = 0.0
    for task in range(first, progress.end_task):
        total_s += world.tasks[task].end_s - world.tasks[task].start_s
    tasks = progress.end_task - first
    if progress.given_s > 0.0:
        job = world.job_progress[row.job]
        job.given_work_s += tasks * row.slots * progress.given_s
        job.expected_work_s += tasks * row.slots * corrected_s(world.correction, progress.given_s)
        job.took_work_s += row.slots * total_s
    learn(world.correction, progress.given_s, total_s / tasks)


@part
def learn_order_of(world: World, job: int) -> None:
    """Note what a finished job took, and what was expected of it."""
    progress = world.job_progress[job]
    for stage in range(progress.first_stage, progress.end_stage):
        if world.stage_progress[stage].mute:
            return
    if progress.given_work_s > 0.0 and not progress.failed:
        learn_order(world.correction, progress.given_work_s, progress.expected_work_s, progress.took_work_s)
