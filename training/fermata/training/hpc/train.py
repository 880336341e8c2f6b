"""Train an inspector: sample sequences of the training part, run them, update, keep the best epoch."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fermata.sim.hpc.experiment import draw_sequences, expect_decisions, expect_queue, pooled, run_sequence, split
from fermata.sim.hpc.jobs import JobLog
from fermata.sim.hpc.metrics import figures
from fermata.sim.hpc.models import InspectorModel
from fermata.sim.hpc.policies import policy as named
from fermata.training.hpc.config import InspectorConfig
from fermata.training.hpc.network import theta_of
from fermata.training.hpc.ppo import Learner
from fermata.training.hpc.rollouts import Batch, Figures, base_figures, collect, cost
from fermata.training.hpc.runs import Kept, to_the_end

SELECT_JOBS = 256  # the length of the test's sequences, if the training part has as many
SELECT_SEED = 90_001


@dataclass(frozen=True)
class Epoch:
    """What one epoch was like; `selected` is the argmax inspector's cost on the sequences that choose the epoch."""

    number: int
    bsld: float
    base_bsld: float
    wait_s: float
    base_wait_s: float
    rejections: float
    entropy: float
    selected: float
    wall_s: float


@dataclass(frozen=True)
class _State:
    """A training between two epochs."""

    rows: list[Epoch]
    networks: dict[str, Any]
    random: dict[str, Any]
    best: list[float]
    least: float


def train_inspector(
    log: JobLog,
    config: InspectorConfig,
    *,
    part: str,
    on_epoch: Callable[[Epoch], None] | None = None,
    kept: Kept | None = None,
) -> InspectorModel:
    """Return the inspector of the epoch that did best on the training part; the same for the same arguments.

    Args:
        log: the jobs, with the estimates that the inspector will see.
        config: see `InspectorConfig`.
        part: where training sequences come from, see `experiment.split`.
        on_epoch: told after every epoch, and at once of those of an earlier call.
        kept: what keeps the state after every epoch, to go on from.

    Raises:
        InputError: the part is too short for the sequences or has nothing to decide, or the policy has no such name, or
            what is kept is damaged.
    """
    torch.set_num_threads(1)  # another number may round differently
    training = _Training(log, config, part)
    to_the_end(training, config.epochs, _State, kept, on_epoch)
    return training.best


class _Training:
    """A run, from one epoch to the next."""

    def __init__(self, log: JobLog, config: InspectorConfig, part: str) -> None:
        policy = named(config.policy)
        self.log, self.config, self.part, self.policy = log, config, part, policy
        self.learner = Learner(config)
        first, end = split(log, part)
        self.starts = first + config.warm, end - config.jobs + 1
        self.random = np.random.default_rng(config.seed)
        expect_queue(log, policy, config.jobs, part, config.warm)
        self.model = InspectorModel(
            config.scope,
            config.features,
            float(config.jobs),
            theta_of(self.learner.policy),
            config.policy,
            log.name,
            config.objective,
            config.seed,
        )
        self.base_of = lru_cache(maxsize=None)(lambda start: base_figures(log, policy, start, config))
        self.judge = _judge(log, config, part)
        self.rows: list[Epoch] = []
        self.best, self.least = self.model, math.inf

    @property
    def steps_done(self) -> int:
        return len(self.rows)

    def begin(self) -> None:
        self.least = self.judge(self.model)

    def resume(self, state: _State, path: Path) -> None:
        self.learner.networks().resume(state.networks, path)
        self.random.bit_generator.state = state.random
        self.model = replace(self.model, theta=theta_of(self.learner.policy))
        self.rows, self.best, self.least = state.rows, replace(self.model, theta=np.array(state.best)), state.least

    def state(self) -> _State:
        drawn = dict(self.random.bit_generator.state)
        return _State(self.rows, self.learner.networks().state(), drawn, self.best.theta.tolist(), self.least)

    def step(self) -> None:
        config, began = self.config, time.perf_counter()
        starts = self.random.integers(*self.starts, config.trajectories)
        seed = int(self.random.integers(2**31))
        batch = collect(self.log, self.policy, starts, self.model, config, self.base_of, seed)
        expect_decisions(len(batch.acted), self.log, self.part)
        entropy = self.learner.update(batch)["entropy"]
        self.model = replace(self.model, theta=theta_of(self.learner.policy))
        selected = self.judge(self.model)
        if selected <= self.least or not config.select_sequences:
            self.best, self.least = self.model, selected
        self.rows.append(_epoch(len(self.rows), batch, entropy, selected, began))


def _epoch(number: int, batch: Batch, entropy: float, selected: float, began: float) -> Epoch:
    found, base = pooled(batch.inspected)[0], pooled(batch.base)[0]
    waits = found["wait_s"], base["wait_s"]
    took = time.perf_counter() - began
    return Epoch(number, found["bsld"], base["bsld"], *waits, found["rejections"], entropy, selected, took)


def _judge(log: JobLog, config: InspectorConfig, part: str) -> Callable[[InspectorModel], float]:
    """Return a function that gives the mean cost of an inspector that takes its likeliest action."""
    if not config.select_sequences:
        return lambda model: float("nan")
    policy, (first, end) = named(config.policy), split(log, part)
    jobs = min(SELECT_JOBS, end - first)
    chosen = draw_sequences(log, config.select_sequences, jobs, SELECT_SEED, part=part)
    bases: list[Figures] = [figures(run_sequence(log, policy, start, jobs)) for start in chosen.starts]

    def judge(model: InspectorModel) -> float:
        inspector = model.inspector(log)
        costs = [
            cost(figures(run_sequence(log, policy, start, jobs, 0, inspector)), base, config)
            for start, base in zip(chosen.starts, bases, strict=True)
        ]
        return float(np.mean(costs))

    return judge
