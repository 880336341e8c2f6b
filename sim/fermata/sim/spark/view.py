"""What Fermata's policies see of a Spark episode: the question of Decima's protocol as a `ClusterState`.

The executors of the source are the free ones, the stages that may be chosen are the ready ones, and executors that are
promised or on their way count as running; so any policy of the product answers the published simulators' question.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fermata.policy._jit import kernel
from fermata.policy.action import START, IllegalActionError
from fermata.policy.allocation import Allocator, allocator, choose_allocation
from fermata.policy.decide import Policy
from fermata.policy.heuristics.base import Heuristic
from fermata.policy.heuristics.kernel import Rule, choose
from fermata.policy.rows import peek
from fermata.policy.state import IDLE, RECENT_ARRIVALS
from fermata.sim.spark.executors import wanted
from fermata.sim.spark.protocol import answer, decline, reachable, run_to_question
from fermata.sim.spark.waves import Waves
from fermata.sim.spark.world import (
    ARRIVED,
    ASKING,
    E_GOING,
    E_JOB,
    E_POOL,
    E_STAGE,
    E_TASK,
    FINISHED,
    J_ATTACHED,
    J_INCOMING,
    J_NEXT,
    NONE,
    NOW_MS,
    POOL,
    S_AT,
    S_COMING,
    S_PROMISED,
    S_UNFINISHED,
    SOURCE_JOB,
    TURN,
    SparkTables,
    SparkWorld,
)
from fermata.sim.world import World, view

if TYPE_CHECKING:
    from fermata.policy.allocation_policy import AllocationPolicy


@kernel
def _show_jobs(tables: SparkTables, world: SparkWorld, shown: World) -> None:
    """Write what is known of the active jobs and their stages."""
    board, pool = shown.board, shown.board.pool[0]
    outside, active, ready = len(world.job) - 1, 0, 0
    job = world.job[outside, J_NEXT]
    while job != outside:
        board.active[active] = job
        active += 1
        held = world.counter[ASKING] if job == world.counter[SOURCE_JOB] else 0
        board.jobs[job].running = world.job[job, J_ATTACHED] + world.job[job, J_INCOMING] - held
        left_s = path_s = 0.0
        for stage in range(tables.job_stage_ptr[job], tables.job_stage_ptr[job + 1]):
            row = board.stages[stage]
            left_s += world.stage[stage, S_UNFINISHED] * row.estimate_s
            if world.stage[stage, S_UNFINISHED] > 0:
                path_s = max(path_s, row.path_s)
            coming = world.stage[stage, S_PROMISED] + world.stage[stage, S_COMING]
            row.pending = max(0, wanted(world, stage))
            row.running = world.stage[stage, S_AT] + coming
            if reachable(tables, world, stage):
                row.ready_s = min(row.ready_s, pool.now_s)
                board.ready[ready] = stage
                ready += 1
        board.jobs[job].remaining_work_s, board.jobs[job].remaining_path_s = left_s, path_s
        job = world.job[job, J_NEXT]
    pool.active, pool.ready = active, ready


@kernel
def _show_executors(world: SparkWorld, shown: World) -> None:
    """Write what the executors do: as many of the source's as are asked about are free; others may idle too."""
    board = shown.board
    turn = world.counter[TURN]
    stage_asked = world.executor[turn, E_STAGE] if turn != NONE else NONE
    free, asking = 0, world.counter[ASKING]
    for executor in range(len(world.executor)):
        stage = world.executor[executor, E_STAGE]
        row = board.executors[executor]
        pooled = turn == NONE and world.executor[executor, E_POOL] == world.counter[POOL]
        mine = pooled or executor == turn or (stage != NONE and stage == stage_asked)
        if mine and free < asking:
            row.stage = IDLE
            row.free_at_s = -math.inf
            row.job = world.counter[SOURCE_JOB]
            board.free[free] = executor
            free += 1
        elif stage != NONE:
            began_s = world.task_start_ms[world.executor[executor, E_TASK]] / 1000.0
            row.stage = stage
            row.free_at_s = began_s + board.stages[stage].estimate_s
            row.job = board.stages[stage].job
        elif world.executor[executor, E_GOING] >= 0:
            row.stage = world.executor[executor, E_GOING]
            row.free_at_s = board.pool[0].now_s + board.stages[row.stage].estimate_s
            row.job = board.stages[row.stage].job
        else:
            row.stage, row.free_at_s, row.job = IDLE, -math.inf, world.executor[executor, E_JOB]
    board.pool[0].free = free


@kernel
def question(tables: SparkTables, world: SparkWorld, shown: World) -> None:
    """Write the question onto the board of `shown`."""
    arrived = world.counter[ARRIVED]
    pool = shown.board.pool[0]
    pool.now_s = world.counter[NOW_MS] / 1000.0
    shown.clock[0].arrived = arrived
    pool.recent_begin, pool.recent_end = max(0, arrived - RECENT_ARRIVALS), arrived
    _show_jobs(tables, world, shown)
    _show_executors(world, shown)


@kernel
def take(tables: SparkTables, waves: Waves, world: SparkWorld, shown: World, kind: int, stage: int, cap: int) -> None:
    """Answer the question with an action; after anything but a START executors idle, each as it gets free."""
    if kind == START:
        answer(tables, waves, world, stage, cap - shown.board.stages[stage].running)
    else:
        decline(tables, waves, world)


@kernel
def _run_rule(tables: SparkTables, waves: Waves, world: SparkWorld, shown: World, rule: Rule) -> None:
    while run_to_question(tables, waves, world):
        question(tables, world, shown)
        kind, stage, cap, _ = choose(shown.board, rule)
        take(tables, waves, world, shown, kind, stage, cap)


@kernel
def run_allocation(tables: SparkTables, waves: Waves, world: SparkWorld, shown: World, to: Allocator) -> None:
    """Run an episode to its end under a network that allocates; see `run_policy`."""
    while run_to_question(tables, waves, world):
        question(tables, world, shown)
        kind, stage, cap, _ = choose_allocation(shown.board, to)
        take(tables, waves, world, shown, kind, stage, cap)


def run_policy(tables: SparkTables, waves: Waves, world: SparkWorld, shown: World, policy: Policy) -> None:
    """Run an episode to its end under any policy; a heuristic and an allocation compiled, others by the question.

    Args:
        tables: the jobs.
        waves: their durations.
        world: written to; its results are the episode's.
        shown: a new world of the same trace, in which the questions are laid out.
        policy: asked.

    Raises:
        IllegalActionError: the policy waited although nothing ran, and so for ever.
    """
    _run(tables, waves, world, shown, policy)
    if world.counter[FINISHED] < len(tables.job_arrival_ms):
        at_s = world.counter[NOW_MS] / 1000.0
        raise IllegalActionError(f"policy {policy.name!r} waits at {at_s:g} s although nothing runs and jobs are left")


def _run(tables: SparkTables, waves: Waves, world: SparkWorld, shown: World, policy: Policy) -> None:
    if isinstance(policy, Heuristic):
        _run_rule(tables, waves, world, shown, policy.rule)
        return
    network = _allocation_of(policy)
    if network is not None:
        to = allocator(network.theta, network.may_wait, len(tables.job_arrival_ms), len(tables.stage_job))
        run_allocation(tables, waves, world, shown, to)
        return
    while run_to_question(tables, waves, world):
        question(tables, world, shown)
        kind, stage, cap = NONE, NONE, 0
        if peek(shown.board.pool).ready:
            kind, stage, cap, _ = policy.choose(view(shown))
        take(tables, waves, world, shown, kind, stage, cap)


def _allocation_of(policy: Policy) -> AllocationPolicy | None:
    """Return the network of a policy that decides here, or None; ONNX Runtime is loaded only by who has loaded it."""
    if isinstance(policy, Heuristic):
        return None
    from fermata.policy.allocation_policy import AllocationPolicy, CombinedPolicy

    if isinstance(policy, CombinedPolicy):
        return policy.allocation
    return policy if isinstance(policy, AllocationPolicy) else None
