"""TPC-H settings as experiments: the figures that every other scenario gives, from Spark episodes."""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from functools import partial
from itertools import pairwise

import numpy as np

from fermata.policy.errors import InputError
from fermata.policy.guardrails import NO_LIMITS, Guardrails
from fermata.policy.registry import load
from fermata.sim.experiment import Run, Setting, figures_of, over_processes
from fermata.sim.importers.tpch import MS_PER_S
from fermata.sim.metrics import job_shapes
from fermata.sim.simulate import Episode, StuckError
from fermata.sim.spark.episode import draw_workload, peer_episode, policy_episode
from fermata.sim.spark.peers import PEERS
from fermata.sim.spark.settings import SparkSetting
from fermata.sim.spark.world import ARRIVED, DECISIONS, MOVES_ENDED, NONE, TASKS_ENDED, SparkWorld
from fermata.sim.trace import FloatArray, Trace


def run_tpch_seed(seed: int, folder: str, of: SparkSetting, setting: Setting) -> Run:
    """Draw and run one episode of a TPC-H setting.

    Args:
        seed: of the queries, as the published simulators draw them, and of the durations.
        folder: Decima's TPC-H data.
        of: how the queries are drawn, and how executors move.
        setting: everything else; its policy may also be one of the published heuristics (`PEERS`).

    Raises:
        InputError: the data cannot be read, no such policy, or limits on holding, which this model does not know.
        StuckError: the policy leaves jobs unfinished, as two of `PEERS` may where nothing is done ahead.
    """
    if setting.limits != NO_LIMITS or setting.sticky:
        raise InputError(f"{of.name}: --max-hold, --max-wait and --sticky do not apply to the Spark model")
    workload = draw_workload(folder, of, seed)
    delay_ms = round(MS_PER_S * of.moving_delay_s)
    waves = workload.waves(setting.executors, seed=seed)
    began = time.perf_counter()
    if setting.policy in PEERS:
        _, world = peer_episode(workload, waves, setting.policy, delay_ms, ahead=of.ahead)
    else:
        _, world = policy_episode(workload, waves, load(setting.policy), delay_ms, ahead=of.ahead)
    wall_s = time.perf_counter() - began
    if (left := int((world.job_completion_ms == NONE).sum())) > 0:
        raise StuckError(f"policy {setting.policy!r} left {left} of {workload.trace.jobs} jobs of {of.name} unfinished")
    episode = episode_of(workload.trace, setting.executors, world)
    return Run(seed, {**figures_of(episode, setting.warm), "wall_s": wall_s}, episode)


def run_tpch(
    folder: str, of: SparkSetting, seeds: Sequence[int], setting: Setting, processes: int
) -> Generator[Run, None, None]:
    """Yield the episodes of a TPC-H setting in the order of `seeds`; see `fermata.sim.experiment.run_seeds`."""
    yield from over_processes(partial(run_tpch_seed, folder=folder, of=of, setting=setting), seeds, processes)


def episode_of(trace: Trace, executors: int, world: SparkWorld) -> Episode:
    """Return what happened as every simulation tells it; no time counts as held, since executors may be travelling."""
    start_s, end_s = world.task_start_ms / 1000.0, world.task_end_ms / 1000.0
    stage_end_s = np.maximum.reduceat(end_s, trace.task_ptr[:-1])
    ready_s = trace.job_arrival_s[trace.stage_job].copy()
    np.maximum.at(ready_s, np.repeat(np.arange(trace.stages), np.diff(trace.parent_ptr)), stage_end_s[trace.parent])
    job_task_ptr = trace.task_ptr[trace.job_stage_ptr]
    return Episode(
        job_failed=np.zeros(trace.jobs, np.bool_),
        trace=trace,
        executors=executors,
        job_start_s=np.minimum.reduceat(start_s, job_task_ptr[:-1]),
        job_completion_s=world.job_completion_ms / 1000.0,
        job_held_s=np.zeros(trace.jobs),
        job_run_s=np.array([_covered_s(start_s[a:b], end_s[a:b]) for a, b in pairwise(job_task_ptr)]),
        job_critical_path_s=job_shapes(trace, executors).critical_path_s,
        stage_ready_s=ready_s,
        stage_held_s=np.zeros(trace.stages),
        task_start_s=start_s,
        task_end_s=end_s,
        task_executor=world.task_executor,
        stage_width=np.ones(trace.stages, np.int32),
        events=int(world.counter[[TASKS_ENDED, MOVES_ENDED, ARRIVED]].sum()),
        decisions=int(world.counter[DECISIONS]),
    )


def _covered_s(start_s: FloatArray, end_s: FloatArray) -> float:
    """Return for how long at least one of these intervals lasted.

    >>> _covered_s(np.array([0.0, 4.0, 1.0]), np.array([2.0, 5.0, 3.0]))
    4.0
    """
    order = np.argsort(start_s)
    until_s = np.maximum.accumulate(end_s[order])
    gap_s = np.maximum(start_s[order][1:] - until_s[:-1], 0.0)
    return float(until_s[-1] - start_s[order[0]] - gap_s.sum())


def tpch_setting(of: SparkSetting, policy: str, executors: int | None, warm: int, limits: Guardrails) -> Setting:
    """Return the setting of a TPC-H experiment; `executors` None: the setting's own.

    Raises:
        InputError: no such policy.
        ModelError: the policy's file cannot be used.
    """
    if policy not in PEERS:
        load(policy)
    return Setting(policy, executors or of.executors, warm, limits)
