"""Training of the policy over the whole queue: begin at a rule that is worth having, then search with whole episodes.

The beginning is SAF EASY that holds long and wide jobs back, written as weights. The search lowers the logarithm of
mean bounded slowdown plus a price times mean wait: the price chooses the point on the front of the two. A bound on the
wait in its place made a noisier search, because half of the generations then see the one and half the other. Every
candidate of a generation runs the same sequences.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from fermata.policy.queue_features import FEATURE_NAMES, FEATURES
from fermata.sim.hpc.experiment import draw_sequences, split
from fermata.sim.hpc.jobs import FloatArray, JobLog
from fermata.sim.hpc.metrics import bounded_slowdowns
from fermata.sim.hpc.policies import policy as named
from fermata.sim.hpc.queue_models import QueueModel, load_queue_model
from fermata.sim.hpc.scoring import HIDDEN_UNITS, PARAMETERS, run_scored
from fermata.sim.hpc.simulate import simulate
from fermata.sim.hpc.world import Config, Jobs, config_of, jobs_of, new_world
from fermata.training.hpc.evolution import Evolution, single

_JUDGE_EVERY = 10
_LOG_SCALE = 12.0  # of log_estimate, see `scoring`


class QueueConfig(BaseModel):
    """Options of `train_queue_policy`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    wait_price: float = Field(
        4.0, ge=0.0, description="What waiting as long as the yardstick does costs, in logarithms of slowdown."
    )
    yardstick: str = Field("saf+easy/skip", description="The policy whose wait is the measure.")
    start: str = Field("", description="A setting or a file to go on from; default: the rule.")
    generations: int = Field(200, ge=0, description="Steps of the search.")
    pairs: int = Field(12, ge=1, description="Mirrored perturbations a generation.")
    sequences: int = Field(80, ge=1, description="Episodes for each of them.")
    judged: int = Field(300, ge=1, description="Episodes that choose the best centre.")
    jobs: int = Field(256, ge=2, description="Jobs of an episode.")
    sigma: float = Field(0.1, gt=0.0, description="Size of a perturbation.")
    rate: float = Field(0.05, gt=0.0, description="Adam's step.")
    seed: int = Field(0, ge=0)


class Episode(NamedTuple):
    """A sequence as the kernel wants it, and what the yardstick waits on it."""

    log: JobLog
    jobs: Jobs
    config: Config
    yardstick_wait_s: float


@dataclass(frozen=True)
class Progress:
    """Where the search is: what the better of its centre and its mean centre got on the judged episodes."""

    number: int
    bsld: float
    wait_ratio: float
    cost: float
    wall_s: float


def train_queue_policy(
    log: JobLog,
    config: QueueConfig,
    *,
    part: str = "train",
    on_generation: Callable[[Progress], None] | None = None,
) -> QueueModel:
    """Return the best policy that was found; the same for the same arguments.

    Args:
        log: the jobs, with the estimates that the policy will see.
        config: see `QueueConfig`.
        part: where episodes come from, see `experiment.split`.
        on_generation: told now and then.

    Raises:
        InputError: the part is too short, or a name means nothing.
        ModelError: `config.start` is no policy over the queue.
    """
    random = np.random.default_rng(config.seed)
    chosen = draw_sequences(log, config.judged, config.jobs, config.seed + 1, part=part)
    judged = episodes(log, chosen.starts, config)
    first, end = split(log, part)
    theta = load_queue_model(config.start).theta if config.start else rule(config.seed)
    search = Evolution(theta, config.pairs, config.sigma, config.rate)
    mean, best, least, began = search.centre, search.centre, np.inf, time.perf_counter()
    for number in range(config.generations + 1):
        if number % _JUDGE_EVERY == 0:
            for centre in (search.centre, single(mean)):
                bsld, ratio = measure(judged, centre)
                cost = _cost(bsld, ratio, config)
                if cost < least:
                    best, least = centre, cost
            if on_generation is not None:
                on_generation(Progress(number, bsld, ratio, least, time.perf_counter() - began))
        if number == config.generations:
            break
        drawn = episodes(log, random.integers(first, end - config.jobs + 1, config.sequences).tolist(), config)
        candidates = search.candidates(random)
        search.learn(np.array([_cost(*measure(drawn, each), config) for each in candidates]))
        mean = 0.9 * mean + 0.1 * search.centre
    return QueueModel(best, log.name, config.wait_price, config.seed)


def rule(seed: int) -> FloatArray:
    """Return weights of SAF EASY that holds back long jobs that leave little free, and long wide ones.

    A job longer than an hour or two waits unless a share of the machine stays free that grows with its length; one that
    takes most of the machine waits the longer it is. The other units are small and random, and lead nowhere yet.
    """
    place = {name: number for number, name in enumerate(FEATURE_NAMES)}
    theta = np.zeros(PARAMETERS)
    theta[place["log_estimate"]], theta[place["log_cores"]] = -6.0, -2.8
    theta[place["delays_head"]] = -20.0
    theta[FEATURES] = 10.0
    random = np.random.default_rng(seed)
    weights = 0.3 * random.standard_normal((FEATURES, HIDDEN_UNITS))
    biases, out = np.zeros(HIDDEN_UNITS), np.zeros(HIDDEN_UNITS)
    weights[:, :2] = 0.0
    weights[place["log_estimate"], 0], weights[place["free_after"], 0] = 10.0, -10.0
    biases[0], out[0] = 1.5 - 10.0 * np.log(6300.0) / _LOG_SCALE, -20.0
    weights[place["log_estimate"], 1], weights[place["cores"], 1] = 5.0, 10.0
    biases[1], out[1] = -8.0 - 5.0 * np.log(2440.0) / _LOG_SCALE, -5.0
    theta[FEATURES + 1 :] = np.concatenate([weights.ravel(), biases, out])
    return single(theta)


def episodes(log: JobLog, starts: Sequence[int], config: QueueConfig) -> list[Episode]:
    """Return sequences of a log, prepared once for many candidates."""
    policy, yardstick = named("saf/skip"), named(config.yardstick)
    prepared = []
    for start in starts:
        cut = log.sequence(start, config.jobs)
        waits = simulate(cut, yardstick.order, yardstick.rules).wait_s
        prepared.append(
            Episode(
                cut, jobs_of(cut, policy.order, policy.rules), config_of(cut, policy.order, policy.rules), waits.mean()
            )
        )
    return prepared


def measure(prepared: Sequence[Episode], theta: FloatArray) -> tuple[float, float]:
    """Return mean bounded slowdown, and mean wait relative to the yardstick's."""
    model = QueueModel(theta)
    slowdowns, waits = np.empty(len(prepared)), np.empty(len(prepared))
    for number, (log, jobs, config, _) in enumerate(prepared):
        world = new_world(len(log), int(log.user.max()) + 1, log.machine_cores)
        run_scored(jobs, config, world, model.scorer(log))
        wait = world.start - log.submit_s
        slowdowns[number], waits[number] = bounded_slowdowns(wait, jobs.runtime).mean(), wait.mean()
    allowed = float(np.mean([each.yardstick_wait_s for each in prepared]))
    return float(slowdowns.mean()), float(waits.mean()) / max(allowed, 1.0)


def _cost(bsld: float, ratio: float, config: QueueConfig) -> float:
    return float(np.log(bsld)) + config.wait_price * ratio
