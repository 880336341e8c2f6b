"""Train an inspector: sample sequences of the training part, run them, update, keep the best epoch."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

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
from fermata.training.hpc.rollouts import Figures, base_figures, collect, cost

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


def train_inspector(
    log: JobLog,
    config: InspectorConfig,
    *,
    part: str,
    on_epoch: Callable[[Epoch], None] | None = None,
) -> InspectorModel:
    """Return the inspector of the epoch that did best on the training part; the same for the same arguments.

    Args:
        log: the jobs, with the estimates that the inspector will see.
        config: see `InspectorConfig`.
        part: where training sequences come from, see `experiment.split`.
        on_epoch: told after every epoch.

    Raises:
        InputError: the part is too short for the sequences or has nothing to decide, or the policy has no such name.
    """
    torch.set_num_threads(1)  # another number may round differently
    policy, learner = named(config.policy), Learner(config)
    first, end = split(log, part)
    random = np.random.default_rng(config.seed)
    expect_queue(log, policy, config.jobs, part, config.warm)
    model = InspectorModel(
        config.scope,
        config.features,
        float(config.jobs),
        theta_of(learner.policy),
        config.policy,
        log.name,
        config.objective,
        config.seed,
    )
    base_of = lru_cache(maxsize=None)(lambda start: base_figures(log, policy, start, config))
    judge = _judge(log, config, part)
    best, least = model, judge(model)
    for number in range(config.epochs):
        began = time.perf_counter()
        starts = random.integers(first + config.warm, end - config.jobs + 1, config.trajectories)
        seed = int(random.integers(2**31))
        batch = collect(log, policy, starts, model, config, base_of, seed)
        expect_decisions(len(batch.acted), log, part)
        told = learner.update(batch)
        model = replace(model, theta=theta_of(learner.policy))
        selected = judge(model)
        if selected <= least or not config.select_sequences:
            best, least = model, selected
        if on_epoch is not None:
            found, base = pooled(batch.inspected)[0], pooled(batch.base)[0]
            on_epoch(
                Epoch(
                    number,
                    found["bsld"],
                    base["bsld"],
                    found["wait_s"],
                    base["wait_s"],
                    found["rejections"],
                    told["entropy"],
                    selected,
                    time.perf_counter() - began,
                )
            )
    return best


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
