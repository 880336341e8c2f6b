"""Train a Deep Back-Filling agent: sample sequences of the training part, run them, update, keep the best iteration.

It begins at an agent that starts any job that fits about equally often; nothing is imitated.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from fermata.sim.hpc.experiment import draw_sequences, expect_decisions, expect_queue, split
from fermata.sim.hpc.jobs import JobLog
from fermata.sim.hpc.policies import policy as named
from fermata.sim.hpc.window import PARAMETERS
from fermata.sim.hpc.window_models import WindowModel
from fermata.training.hpc.window_config import WindowConfig
from fermata.training.hpc.window_ppo import Standard, WindowLearner
from fermata.training.hpc.window_rollouts import Episode, RunningMaxima, collect, prepare, waits

_JUDGE_SEED = 90_001
_JUDGE_EVERY = 5


@dataclass(frozen=True)
class Iteration:
    """What one batch and its update were like; `judged_wait_s` is the best so far on the sequences that choose."""

    number: int
    wait_s: float
    judged_wait_s: float
    entropy: float
    kl: float
    explained: float
    wall_s: float


def train_window(
    log: JobLog,
    config: WindowConfig,
    *,
    part: str,
    on_iteration: Callable[[Iteration], None] | None = None,
) -> WindowModel:
    """Return the agent of the iteration that waited least on sequences of the training part, likeliest actions.

    Args:
        log: the jobs, with the estimates that the agent will see.
        config: see `WindowConfig`.
        part: where sequences come from, see `experiment.split`.
        on_iteration: told after every iteration.

    Returns:
        The same for the same arguments.

    Raises:
        InputError: the part is too short for the sequences, or has nothing to decide.
    """
    torch.set_num_threads(1)
    expect_queue(log, named("fcfs/skip"), config.jobs, part)
    chosen = draw_sequences(log, config.judged, config.jobs, config.seed + _JUDGE_SEED, part=part)
    judged = prepare(log, chosen.starts, config.jobs)
    first, end = split(log, part)
    maxima, random = RunningMaxima(), np.random.default_rng(config.seed)
    learner = WindowLearner(config, _standard(judged, config, log, part))
    model = WindowModel(config.head, config.tail, learner.theta(), log.name, config.seed)
    best, least = model, float(waits(judged, model).mean())
    curve = [(0, least)]
    for number in range(1, config.iterations + 1):
        began = time.perf_counter()
        starts = random.integers(first, end - config.jobs + 1, config.sequences).tolist()
        batch = collect(prepare(log, starts, config.jobs), model, config, maxima, int(random.integers(2**31)))
        expect_decisions(len(batch.sizes), log, part)
        told = learner.update(batch, 1.0 - (number - 1) / config.iterations)
        model = WindowModel(config.head, config.tail, learner.theta(), log.name, config.seed)
        if number % _JUDGE_EVERY == 0 or number == config.iterations:
            wait_s = float(waits(judged, model).mean())
            curve.append((number, wait_s))
            if wait_s < least:
                best, least = model, wait_s
        if on_iteration is not None:
            told_wait, took = float(batch.wait_s.mean()), time.perf_counter() - began
            on_iteration(Iteration(number, told_wait, least, told["entropy"], told["kl"], told["explained"], took))
    return replace(best, curve=tuple(curve))


def _standard(episodes: Sequence[Episode], config: WindowConfig, log: JobLog, part: str) -> Standard:
    """Return the units of features as an agent meets them that starts any job that fits."""
    anything = WindowModel(config.head, config.tail, np.zeros(PARAMETERS, dtype=np.float32))
    maxima = RunningMaxima()  # of no reward that counts
    batch = collect(episodes, anything, config, maxima, config.seed)
    expect_decisions(len(batch.sizes), log, part)
    return Standard.of(batch.rows)
