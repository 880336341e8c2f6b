"""Train a Deep Back-Filling agent: sample sequences of the training part, run them, update, keep the best iteration.

It begins at an agent that starts any job that fits about equally often; nothing is imitated.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fermata.sim.hpc.experiment import draw_sequences, expect_decisions, expect_queue, split
from fermata.sim.hpc.jobs import JobLog
from fermata.sim.hpc.policies import policy as named
from fermata.sim.hpc.window import PARAMETERS
from fermata.sim.hpc.window_models import WindowModel
from fermata.training.hpc.runs import Kept, to_the_end
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


@dataclass(frozen=True)
class _State:
    """A training between two iterations."""

    rows: list[Iteration]
    networks: dict[str, Any]
    scale: float  # of returns
    shuffled: dict[str, Any]  # random numbers of the learner
    drawn: dict[str, Any]  # and of the episodes
    maxima: RunningMaxima
    best: list[float]
    least: float
    curve: list[tuple[int, float]]


def train_window(
    log: JobLog,
    config: WindowConfig,
    *,
    part: str,
    on_iteration: Callable[[Iteration], None] | None = None,
    kept: Kept | None = None,
) -> WindowModel:
    """Return the agent of the iteration that waited least on sequences of the training part, likeliest actions.

    Args:
        log: the jobs, with the estimates that the agent will see.
        config: see `WindowConfig`.
        part: where sequences come from, see `experiment.split`.
        on_iteration: told after every iteration, and at once of those of an earlier call.
        kept: what keeps the state after every iteration, to go on from.

    Returns:
        The same for the same arguments.

    Raises:
        InputError: the part is too short for the sequences, or has nothing to decide, or what is kept is damaged.
    """
    torch.set_num_threads(1)
    training = _Training(log, config, part)
    to_the_end(training, config.iterations, _State, kept, on_iteration)
    return replace(training.best, curve=tuple(training.curve))


class _Training:
    """A run, from one iteration to the next."""

    def __init__(self, log: JobLog, config: WindowConfig, part: str) -> None:
        expect_queue(log, named("fcfs/skip"), config.jobs, part)
        self.log, self.config, self.part = log, config, part
        chosen = draw_sequences(log, config.judged, config.jobs, config.seed + _JUDGE_SEED, part=part)
        self.judged = prepare(log, chosen.starts, config.jobs)
        first, end = split(log, part)
        self.starts = first, end - config.jobs + 1
        self.maxima, self.random = RunningMaxima(), np.random.default_rng(config.seed)
        self.learner = WindowLearner(config, _standard(self.judged, config, log, part))
        self.model = WindowModel(config.head, config.tail, self.learner.theta(), log.name, config.seed)
        self.rows: list[Iteration] = []
        self.best, self.least = self.model, math.inf
        self.curve: list[tuple[int, float]] = []

    @property
    def steps_done(self) -> int:
        return len(self.rows)

    def begin(self) -> None:
        self._judge(0)

    def resume(self, state: _State, path: Path) -> None:
        self.learner.networks().resume(state.networks, path)
        self.learner.scale, self.learner.random.bit_generator.state = state.scale, state.shuffled
        self.maxima, self.random.bit_generator.state = state.maxima, state.drawn
        self.model = replace(self.model, theta=self.learner.theta())
        self.best, self.least = replace(self.model, theta=np.array(state.best, dtype=np.float32)), state.least
        self.rows, self.curve = state.rows, state.curve

    def state(self) -> _State:
        learner = self.learner
        random = dict(learner.random.bit_generator.state), dict(self.random.bit_generator.state)
        best = self.best.theta.tolist()
        weights = learner.networks().state()
        return _State(self.rows, weights, learner.scale, *random, self.maxima, best, self.least, self.curve)

    def step(self) -> None:
        config, number, began = self.config, len(self.rows) + 1, time.perf_counter()
        starts = self.random.integers(*self.starts, config.sequences).tolist()
        prepared, seed = prepare(self.log, starts, config.jobs), int(self.random.integers(2**31))
        batch = collect(prepared, self.model, config, self.maxima, seed)
        expect_decisions(len(batch.sizes), self.log, self.part)
        told = self.learner.update(batch, 1.0 - (number - 1) / config.iterations)
        self.model = replace(self.model, theta=self.learner.theta())
        if number % _JUDGE_EVERY == 0 or number == config.iterations:
            self._judge(number)
        waited, took = float(batch.wait_s.mean()), time.perf_counter() - began
        row = Iteration(number, waited, self.least, told["entropy"], told["kl"], told["explained"], took)
        self.rows.append(row)

    def _judge(self, number: int) -> None:
        """Measure the agent of now, and keep it if none waited less."""
        wait_s = float(waits(self.judged, self.model).mean())
        self.curve.append((number, wait_s))
        if wait_s < self.least:
            self.best, self.least = self.model, wait_s


def _standard(episodes: Sequence[Episode], config: WindowConfig, log: JobLog, part: str) -> Standard:
    """Return the units of features as an agent meets them that starts any job that fits."""
    anything = WindowModel(config.head, config.tail, np.zeros(PARAMETERS, dtype=np.float32))
    maxima = RunningMaxima()  # of no reward that counts
    batch = collect(episodes, anything, config, maxima, config.seed)
    expect_decisions(len(batch.sizes), log, part)
    return Standard.of(batch.rows)
