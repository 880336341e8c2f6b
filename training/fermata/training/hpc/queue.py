"""Training of the policy over the whole queue: begin at a rule that is worth having, then search with whole episodes.

The beginning is SAF EASY that holds long and wide jobs back, written as weights.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fermata.policy.queue_features import FEATURE_NAMES, FEATURES
from fermata.sim.hpc.jobs import FloatArray, JobLog
from fermata.sim.hpc.policies import policy as named
from fermata.sim.hpc.queue_models import QueueModel, load_queue_model
from fermata.sim.hpc.scoring import HIDDEN_UNITS, PARAMETERS
from fermata.sim.hpc.world import World
from fermata.training.hpc.evolution import single
from fermata.training.hpc.search import Episode, Generation, SearchConfig, search

_LOG_SCALE = 12.0  # of log_estimate, see `scoring`


class QueueConfig(SearchConfig):
    """Options of `train_queue_policy`; `start` is a setting or a file."""


def train_queue_policy(
    log: JobLog,
    config: QueueConfig,
    *,
    part: str = "train",
    on_generation: Callable[[Generation], None] | None = None,
) -> QueueModel:
    """Return the best policy that was found; the same for the same arguments.

    Args:
        log: the jobs, with the estimates that the policy will see.
        config: see `SearchConfig`.
        part: where episodes come from, see `experiment.split`.
        on_generation: told now and then.

    Raises:
        InputError: the part is too short, or a name means nothing.
        ModelError: `config.start` is no policy over the queue.
    """
    theta = load_queue_model(config.start).theta if config.start else rule(config.seed)
    found = search(log, named("saf/skip"), theta, queue_run, config, part=part, on_generation=on_generation)
    return QueueModel(found, log.name, config.wait_price, config.seed)


def queue_run(episode: Episode, world: World, theta: FloatArray) -> None:
    """Run an episode under weights of the policy over the queue."""
    QueueModel(theta).run(episode.jobs, episode.config, world, episode.log)


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
