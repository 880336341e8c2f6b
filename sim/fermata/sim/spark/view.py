"""What Fermata's policies see of a Spark episode: the question of Decima's protocol as a `ClusterState`.

The executors of the source are the free ones, the stages that may be chosen are the ready ones, and executors that are
promised or on their way count as running; so any policy of the product answers the published simulators' question.
"""

from __future__ import annotations

import math

from fermata.policy._jit import jit
from fermata.policy.action import START
from fermata.policy.decide import Policy
from fermata.policy.heuristics.base import Heuristic
from fermata.policy.heuristics.kernel import Rule, choose
from fermata.policy.state import IDLE, ClusterState
from fermata.sim.spark.executors import wanted
from fermata.sim.spark.protocol import answer, reachable, run_to_question
from fermata.sim.spark.waves import Waves
from fermata.sim.spark.world import (
    ARRIVED,
    ASKING,
    E_POOL,
    E_STAGE,
    E_TASK,
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
from fermata.sim.world import ACTIVE, FREE, NOW, READY, Tables, World, view
from fermata.sim.world import ARRIVED as SHOWN_ARRIVED


@jit
def _show_jobs(tables: SparkTables, world: SparkWorld, known: Tables, shown: World) -> None:
    """Write what is known of the active jobs and their stages."""
    now_s = world.counter[NOW_MS] / 1000.0
    outside, active, ready = len(world.job) - 1, 0, 0
    job = world.job[outside, J_NEXT]
    while job != outside:
        shown.active_jobs[active] = job
        active += 1
        held = world.counter[ASKING] if job == world.counter[SOURCE_JOB] else 0
        shown.job_running[job] = world.job[job, J_ATTACHED] + world.job[job, J_INCOMING] - held
        left_s = 0.0
        for stage in range(tables.job_stage_ptr[job], tables.job_stage_ptr[job + 1]):
            left_s += world.stage[stage, S_UNFINISHED] * known.stage_estimate_s[stage]
            coming = world.stage[stage, S_PROMISED] + world.stage[stage, S_COMING]
            shown.stage_pending[stage] = max(0, wanted(world, stage))
            shown.stage_running[stage] = world.stage[stage, S_AT] + coming
            if reachable(tables, world, stage):
                shown.stage_ready_s[stage] = min(shown.stage_ready_s[stage], now_s)
                shown.ready_stages[ready] = stage
                ready += 1
        shown.job_remaining_work_s[job] = left_s
        job = world.job[job, J_NEXT]
    shown.counter[ACTIVE], shown.counter[READY] = active, ready


@jit
def _show_executors(world: SparkWorld, known: Tables, shown: World) -> None:
    """Write what the executors do: as many of the source's as are asked about are free."""
    turn = world.counter[TURN]
    stage_asked = world.executor[turn, E_STAGE] if turn != NONE else NONE
    free, asking = 0, world.counter[ASKING]
    for executor in range(len(world.executor)):
        stage = world.executor[executor, E_STAGE]
        pooled = turn == NONE and world.executor[executor, E_POOL] == world.counter[POOL]
        mine = pooled or executor == turn or (stage != NONE and stage == stage_asked)
        if mine and free < asking:
            shown.executor_stage[executor] = IDLE
            shown.executor_free_at_s[executor] = -math.inf
            shown.executor_job[executor] = world.counter[SOURCE_JOB]
            shown.free_executors[free] = executor
            free += 1
        elif stage != NONE:
            began_s = world.task_start_ms[world.executor[executor, E_TASK]] / 1000.0
            shown.executor_stage[executor] = stage
            shown.executor_free_at_s[executor] = began_s + known.stage_estimate_s[stage]
            shown.executor_job[executor] = known.stage_job[stage]
    shown.counter[FREE] = free


@jit
def question(tables: SparkTables, world: SparkWorld, known: Tables, shown: World) -> ClusterState:
    """Return the question as a state: views of `shown`, which is written to."""
    shown.clock[NOW] = world.counter[NOW_MS] / 1000.0
    shown.counter[SHOWN_ARRIVED] = world.counter[ARRIVED]
    _show_jobs(tables, world, known, shown)
    _show_executors(world, known, shown)
    return view(known, shown)


@jit
def take(
    tables: SparkTables, waves: Waves, world: SparkWorld, state: ClusterState, kind: int, stage: int, cap: int
) -> None:
    """Answer the question with an action: anything but a START lets the executors idle."""
    if kind == START:
        answer(tables, waves, world, stage, cap - state.stage_running[stage])
    else:
        answer(tables, waves, world, NONE, world.counter[ASKING])


@jit
def _run_rule(tables: SparkTables, waves: Waves, world: SparkWorld, known: Tables, shown: World, rule: Rule) -> None:
    while run_to_question(tables, waves, world):
        state = question(tables, world, known, shown)
        kind, stage, cap, _ = choose(state, rule)
        take(tables, waves, world, state, kind, stage, cap)


def run_policy(
    tables: SparkTables, waves: Waves, world: SparkWorld, known: Tables, shown: World, policy: Policy
) -> None:
    """Run an episode to its end under any policy: a heuristic compiled, others asked one question at a time.

    Args:
        tables: the jobs.
        waves: their durations.
        world: written to; its results are the episode's.
        known: what policies know of the jobs, `fermata.sim.world.tables_of` the same trace.
        shown: a new world of `known`, in which the questions are laid out.
        policy: asked.
    """
    if isinstance(policy, Heuristic):
        _run_rule(tables, waves, world, known, shown, policy.rule)
        return
    while run_to_question(tables, waves, world):
        state = question(tables, world, known, shown)
        kind, stage, cap = NONE, NONE, 0
        if state.ready_stages.size:
            kind, stage, cap, _ = policy.choose(state)
        take(tables, waves, world, state, kind, stage, cap)
