"""Training of the policy over the whole queue: begin at a rule that is worth having, then search with whole episodes.

The beginning is SAF EASY that holds long and wide jobs back, or shortest first that holds nothing, written as weights.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fermata.policy.errors import InputError
from fermata.policy.queue_features import FEATURE_NAMES, FEATURES
from fermata.sim.hpc.experiment import expect_queue
from fermata.sim.hpc.jobs import FloatArray, JobLog
from fermata.sim.hpc.policies import policy as named
from fermata.sim.hpc.queue_models import QueueModel, load_queue_model
from fermata.sim.hpc.scoring import HIDDEN_UNITS
from fermata.sim.hpc.world import World
from fermata.training.hpc.evolution import single
from fermata.training.hpc.runs import Kept
from fermata.training.hpc.search import Episode, Generation, search
from fermata.training.hpc.search_config import QueueConfig

_LOG_SCALE = 12.0  # of log_estimate, see `scoring`
_PLACE = {name: number for number, name in enumerate(FEATURE_NAMES)}


def train_queue_policy(
    log: JobLog,
    config: QueueConfig,
    *,
    part: str,
    on_generation: Callable[[Generation], None] | None = None,
    kept: Kept | None = None,
) -> QueueModel:
    """Return the best policy that was found; the same for the same arguments.

    Args:
        log: the jobs, with the estimates that the policy will see.
        config: see `QueueConfig`.
        part: where episodes come from, see `experiment.split`.
        on_generation: told now and then, and at once what an earlier call was told.
        kept: what keeps the state after every generation, to go on from.

    Raises:
        InputError: the part is too short or has no queue, or a name means nothing.
        ModelError: `config.start` is no policy over the queue.
    """
    expect_queue(log, named(config.yardstick), config.jobs, part)
    theta = _beginning(config)
    found = search(log, named("saf/skip"), theta, queue_run, config, part=part, on_generation=on_generation, kept=kept)
    return QueueModel(found, log.name, config.wait_price, config.seed)


def queue_run(episode: Episode, world: World, theta: FloatArray) -> None:
    """Run an episode under weights of the policy over the queue."""
    QueueModel(theta).run(episode.jobs, episode.config, world, episode.log)


def rule(seed: int) -> FloatArray:
    """Return weights of SAF EASY that holds back long jobs that leave little free, and long wide ones.

    A job longer than an hour or two waits unless a share of the machine stays free that grows with its length; one that
    takes most of the machine waits the longer it is. The other units are small and random, and lead nowhere yet.
    """
    direct = np.zeros(FEATURES + 1)
    direct[_PLACE["log_estimate"]], direct[_PLACE["log_cores"]] = -6.0, -2.8
    direct[_PLACE["delays_head"]] = -20.0
    direct[FEATURES] = 10.0
    weights, biases, out = _idle_units(seed)
    weights[:, :2] = 0.0
    weights[_PLACE["log_estimate"], 0], weights[_PLACE["free_after"], 0] = 10.0, -10.0
    biases[0], out[0] = 1.5 - 10.0 * np.log(6300.0) / _LOG_SCALE, -20.0
    weights[_PLACE["log_estimate"], 1], weights[_PLACE["cores"], 1] = 5.0, 10.0
    biases[1], out[1] = -8.0 - 5.0 * np.log(2440.0) / _LOG_SCALE, -5.0
    return single(np.concatenate([direct, weights.ravel(), biases, out]))


def shortest_first(seed: int) -> FloatArray:
    """Return weights of SJF skip: the shortest job that fits is started, and nothing of less than five days is held.

    From here a search finds what a hold is worth without first having to unlearn what the rule holds.
    """
    direct = np.zeros(FEATURES + 1)
    direct[_PLACE["log_estimate"]], direct[FEATURES] = -6.0, 6.5
    weights, biases, out = _idle_units(seed)
    return single(np.concatenate([direct, weights.ravel(), biases, out]))


def _idle_units(seed: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return weights, biases and output weights of hidden units that are small and random, and lead nowhere yet."""
    weights = 0.3 * np.random.default_rng(seed).standard_normal((FEATURES, HIDDEN_UNITS))
    return weights, np.zeros(HIDDEN_UNITS), np.zeros(HIDDEN_UNITS)


_BEGINNINGS: dict[str, Callable[[int], FloatArray]] = {"": rule, "sjf": shortest_first}


def _beginning(config: QueueConfig) -> FloatArray:
    if config.start in _BEGINNINGS:
        return _BEGINNINGS[config.start](config.seed)
    try:
        return load_queue_model(config.start).theta
    except InputError as error:
        raise InputError(f"start: {error}, or sjf for shortest first") from error
