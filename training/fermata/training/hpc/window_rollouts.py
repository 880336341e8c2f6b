"""Episodes of a window agent that samples: what it saw and did, the reward with running maxima, advantages.

Simulation, features and the network's forward pass are compiled; torch sees whole batches afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fermata.sim.hpc.inspect import SAMPLE, seed_sampling
from fermata.sim.hpc.jobs import JobLog
from fermata.sim.hpc.orders import order
from fermata.sim.hpc.rules import Rules, Start
from fermata.sim.hpc.window import FEATURES, IDLED, WAITED, run_windowed
from fermata.sim.hpc.window_models import WindowModel
from fermata.sim.hpc.world import NOW, RECORDED, Config, Jobs, config_of, jobs_of, new_world, run_on
from fermata.sim.trace import FloatArray
from fermata.training.hpc.window_config import WindowConfig

SingleArray = NDArray[np.float32]
IntArray = NDArray[np.int64]

_ROOM_A_JOB = 3  # decisions: its own start, and a Fwd at its submission and at its end
_BIN_S = 3600.0  # what is about the same time in two runs of an episode


class Episode(NamedTuple):
    """A sequence as the kernel wants it."""

    log: JobLog
    jobs: Jobs
    config: Config


@dataclass
class RunningMaxima:
    """The largest wait and the largest idleness of one step so far, in the whole training: they scale the reward.

    Source: the paper's reward, in which each objective counts relative to the largest value seen so far.
    """

    waited: float = field(default=0.0)  # job-seconds
    idled: float = field(default=0.0)  # core-seconds

    def rewards(self, waited: FloatArray, idled: FloatArray, idle_weight: float) -> FloatArray:
        """Return the reward of every step, `[steps]`, each -1 to 0, and remember its largest values.

        Args:
            waited: `[steps]` job-seconds that jobs waited from one decision to the next.
            idled: `[steps]` core-seconds that were idle meanwhile, with jobs waiting.
            idle_weight: 0 to 1; what is left is the weight of waiting.

        >>> RunningMaxima(waited=100.0).rewards(np.array([50.0, 0.0]), np.array([8.0, 4.0]), 0.25).tolist()
        [-0.625, -0.125]
        """
        self.waited = max(self.waited, float(waited.max(initial=0.0)))
        self.idled = max(self.idled, float(idled.max(initial=0.0)))
        wait_cost, idle_cost = waited / max(self.waited, 1e-9), idled / max(self.idled, 1e-9)
        return np.asarray(-(1.0 - idle_weight) * wait_cost - idle_weight * idle_cost)


@dataclass(frozen=True)
class Batch:
    """Decisions of many episodes, one after the other; the rows of a decision are consecutive."""

    rows: SingleArray  # [rows, FEATURES]
    sizes: IntArray  # [decisions] rows of each
    acted: IntArray  # [decisions] the row taken, among the decision's
    log_chance: SingleArray  # [decisions]
    rewards: FloatArray  # [decisions] until the next one
    passed: FloatArray  # [decisions] s until the next one
    at: FloatArray  # [decisions] s since the first submission of the episode
    ends: IntArray  # [episodes] one past the last decision of each
    wait_s: FloatArray  # [episodes] mean


class _Run(NamedTuple):
    """What one episode leaves behind: arrays as in `Batch`, and `spent` from one decision to the next."""

    rows: SingleArray
    sizes: IntArray
    acted: IntArray
    log_chance: SingleArray
    at: FloatArray
    steps: FloatArray  # [decisions, 3] s, job-seconds, core-seconds
    wait_s: float


def prepare(log: JobLog, starts: Sequence[int], jobs: int) -> list[Episode]:
    """Return sequences of a log as the kernel wants them."""
    arrival, rules = order("fcfs"), Rules(start=Start.SKIP)
    cuts = [log.sequence(start, jobs) for start in starts]
    return [Episode(cut, jobs_of(cut, arrival, rules), config_of(cut, arrival, rules)) for cut in cuts]


def waits(episodes: Sequence[Episode], model: WindowModel) -> FloatArray:
    """Return the mean wait of every episode under the likeliest actions, `[episodes]`, in s."""
    found = np.empty(len(episodes))
    for number, (log, jobs, config) in enumerate(episodes):
        world = new_world(len(log), int(log.user.max()) + 1, log.machine_cores)
        model.run(jobs, config, world, log)
        found[number] = (world.start - log.submit_s).mean()
    return found


def collect(
    episodes: Sequence[Episode], model: WindowModel, config: WindowConfig, maxima: RunningMaxima, seed: int
) -> Batch:
    """Run every episode `config.copies` times with an agent that samples; copies are next to each other."""
    seed_sampling(seed)
    runs = [_run(each, model) for each in episodes for _ in range(config.copies)]
    steps = np.concatenate([each.steps for each in runs])
    return Batch(
        np.concatenate([each.rows for each in runs]).reshape(-1, FEATURES),
        np.concatenate([each.sizes for each in runs]),
        np.concatenate([each.acted for each in runs]),
        np.concatenate([each.log_chance for each in runs]),
        maxima.rewards(steps[:, 1], steps[:, 2], config.idle_weight),
        steps[:, 0],
        np.concatenate([each.at for each in runs]),
        np.cumsum([len(each.sizes) for each in runs]),
        np.array([each.wait_s for each in runs]),
    )


def _run(episode: Episode, model: WindowModel) -> _Run:
    log = episode.log
    agent = model.agent(SAMPLE, record=_ROOM_A_JOB * len(log))
    world = new_world(len(log), int(log.user.max()) + 1, log.machine_cores)
    run_on(partial(run_windowed, episode.jobs, episode.config, world, agent), world)
    many = int(world.counts[RECORDED])
    last = (world.clock[NOW], agent.spent[WAITED], agent.spent[IDLED])
    marks = agent.marks[:many]
    return _Run(
        agent.rows[: agent.filled[0]],
        agent.sizes[:many],
        agent.acted[:many],
        agent.log_chance[:many],
        marks[:, 0] - log.submit_s[0],
        np.diff(np.vstack([marks, last]), axis=0),
        float((world.start - log.submit_s).mean()),
    )


def estimate_advantages(values: FloatArray, batch: Batch, horizon_s: float, trace_s: float) -> FloatArray:
    """Return generalised advantages, `[decisions]`; time discounts, not the number of decisions.

    Many decisions share an instant and others are hours apart, so both the discount and the weight of longer traces
    (lambda) fall with the time that passes. An episode ends when its last job has started: nothing is worth more then.
    Source: Schulman et al., "High-dimensional continuous control using generalized advantage estimation", 2016.
    """
    advantages = np.empty(len(values))
    discount = np.exp(-batch.passed / horizon_s)
    trace = discount * np.exp(-batch.passed / trace_s)
    first = 0
    for end in batch.ends:
        following, carried = 0.0, 0.0
        for step in range(end - 1, first - 1, -1):
            surprise = batch.rewards[step] + discount[step] * following - values[step]
            carried = surprise + trace[step] * carried
            advantages[step] = carried
            following = values[step]
        first = end
    return advantages


def without_arrivals(advantages: FloatArray, batch: Batch, copies: int) -> FloatArray:
    """Return advantages less the mean that the other runs of the same episode had in the same hour, `[decisions]`.

    Much of a return is what arrives next, whatever is done; the other runs' arrivals are the same.
    Source: Mao et al., "Variance reduction for reinforcement learning in input-driven environments", ICLR 2019.
    """
    if copies == 1:
        return advantages
    left = advantages.copy()
    hour = (batch.at / _BIN_S).astype(np.int64)
    firsts = np.concatenate([[0], batch.ends[:-1]])
    for group in range(0, len(batch.ends), copies):
        runs = [slice(firsts[run], batch.ends[run]) for run in range(group, group + copies)]
        hours = 1 + max(int(hour[run].max(initial=0)) for run in runs)
        totals = np.array([np.bincount(hour[run], advantages[run], hours) for run in runs])
        counts = np.array([np.bincount(hour[run], minlength=hours) for run in runs])
        others = totals.sum(axis=0) - totals
        mean = others / np.maximum(counts.sum(axis=0) - counts, 1)
        for run, of_others in zip(runs, mean, strict=True):
            left[run] -= of_others[hour[run]]
    return left
