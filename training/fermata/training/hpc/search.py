"""The search that trains inspectors and policies over the queue: whole episodes, a price on wait and on idle cores.

It lowers the logarithm of mean bounded slowdown plus a price times mean wait: the price chooses the point on the front
of the two. A bound on the wait in its place made a noisier search, because half of the generations then see the one
and half the other. Every candidate of a generation runs the same episodes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fermata.sim.hpc.estimates import with_estimates
from fermata.sim.hpc.experiment import draw_sequences, split
from fermata.sim.hpc.jobs import FloatArray, JobLog
from fermata.sim.hpc.metrics import bounded_slowdowns
from fermata.sim.hpc.policies import Policy
from fermata.sim.hpc.policies import policy as named
from fermata.sim.hpc.simulate import simulate
from fermata.sim.hpc.world import Config, Jobs, World, config_of, jobs_of, new_world
from fermata.training.files import unfitting
from fermata.training.hpc.evolution import Evolution, single
from fermata.training.hpc.runs import Kept, to_the_end
from fermata.training.hpc.search_config import SearchConfig

_JUDGE_EVERY = 10


class Episode(NamedTuple):
    """A sequence as the kernel wants it, and what the yardstick makes of it."""

    log: JobLog
    jobs: Jobs
    config: Config
    yardstick_wait_s: float  # mean
    yardstick_span_s: float  # from the first submission to the last end


Run = Callable[[Episode, World, FloatArray], None]  # runs an episode under weights; starts are in the world


class Measured(NamedTuple):
    """What weights are worth on some episodes."""

    bsld: float  # mean
    wait_ratio: float  # mean wait over the yardstick's
    points_lost: float  # utilisation with the tail, percentage points below the yardstick's; negative if above

    def cost(self, config: SearchConfig) -> float:
        """Return the logarithm of the slowdown plus the prices of the wait and of what stands idle."""
        idle = config.idle_price * max(self.points_lost, 0.0)
        return float(np.log(self.bsld)) + config.wait_price * self.wait_ratio + idle


@dataclass(frozen=True)
class Generation:
    """Where the search is: the mean of its centres on the judged episodes, and the least cost so far."""

    number: int
    bsld: float
    wait_ratio: float
    points_lost: float
    cost: float
    wall_s: float


@dataclass(frozen=True)
class _State:
    """A search between two generations."""

    generation: int
    rows: list[Generation]
    centre: list[float]
    moment: list[float]
    spread: list[float]
    mean: list[float]
    best: list[float]
    least: float
    random: dict[str, Any]
    wall_s: float


def search(
    log: JobLog,
    policy: Policy,
    theta: FloatArray,
    run: Run,
    config: SearchConfig,
    *,
    part: str = "train",
    on_generation: Callable[[Generation], None] | None = None,
    kept: Kept | None = None,
) -> FloatArray:
    """Return the best weights that were found, as a file holds them; the same for the same arguments.

    Args:
        log: the jobs, with the estimates that the scheduler will see.
        policy: order and rules under which episodes run.
        theta: where the search begins.
        run: runs one episode.
        config: see `SearchConfig`.
        part: where episodes come from, see `experiment.split`.
        on_generation: told now and then, and at once what an earlier call was told.
        kept: what keeps the state after every generation, to go on from.

    Raises:
        InputError: the part is too short, or a name means nothing, or what is kept is damaged.
    """
    searching = _Search(log, policy, theta, run, config, part)
    to_the_end(searching, config.generations, _State, kept, on_generation)
    return searching.best


class _Search:
    """A search, from one generation to the next."""

    def __init__(
        self, log: JobLog, policy: Policy, theta: FloatArray, run: Run, config: SearchConfig, part: str
    ) -> None:
        self.log, self.policy, self.run, self.config = log, policy, run, config
        self.random, self.began = np.random.default_rng(config.seed), time.perf_counter()
        chosen = draw_sequences(log, config.judged, config.jobs, config.seed + 1, part=part)
        self.judged = episodes(log, chosen.starts, policy, config, np.random.default_rng(config.seed + 1))
        first, end = split(log, part)
        self.starts = first, end - config.jobs + 1
        self.strategy = Evolution(theta, config.pairs, config.sigma, config.rate)
        self.mean, self.best, self.least = self.strategy.centre, self.strategy.centre, math.inf
        self.steps_done = 0
        self.rows: list[Generation] = []

    def begin(self) -> None:
        self._judge()

    def resume(self, state: _State, path: Path) -> None:
        arrays = [np.array(each) for each in (state.centre, state.moment, state.spread, state.mean, state.best)]
        if any(each.shape != self.best.shape for each in arrays):
            raise unfitting(path)
        centre, moment, spread, self.mean, self.best = arrays
        self.strategy.resume(centre, moment, spread, state.generation)
        self.random.bit_generator.state = state.random
        self.steps_done, self.rows, self.least = state.generation, state.rows, state.least
        self.began -= state.wall_s

    def state(self) -> _State:
        centre, moment, spread = self.strategy.state()
        return _State(
            self.steps_done,
            self.rows,
            centre.tolist(),
            moment.tolist(),
            spread.tolist(),
            self.mean.tolist(),
            self.best.tolist(),
            self.least,
            dict(self.random.bit_generator.state),
            time.perf_counter() - self.began,
        )

    def step(self) -> None:
        config = self.config
        starts = self.random.integers(*self.starts, config.sequences).tolist()
        drawn = episodes(self.log, starts, self.policy, config, self.random)
        candidates = self.strategy.candidates(self.random)
        self.strategy.learn(np.array([measure(drawn, self.run, each).cost(config) for each in candidates]))
        self.mean = 0.9 * self.mean + 0.1 * self.strategy.centre
        self.steps_done += 1
        if self.steps_done % _JUDGE_EVERY == 0 or self.steps_done == config.generations:
            self._judge()

    def _judge(self) -> None:
        """Measure the centre of the search and its mean, and keep the better if none was so good."""
        for centre in (self.strategy.centre, single(self.mean)):
            found = measure(self.judged, self.run, centre)
            if found.cost(self.config) < self.least:
                self.best, self.least = centre, found.cost(self.config)
        self.rows.append(Generation(self.steps_done, *found, self.least, time.perf_counter() - self.began))


def episodes(
    log: JobLog, starts: Sequence[int], policy: Policy, config: SearchConfig, random: np.random.Generator
) -> list[Episode]:
    """Return sequences of a log, prepared once for many candidates; `random` draws their estimates."""
    yardstick = named(config.yardstick)
    prepared = []
    for start in starts:
        cut = log.sequence(start, config.jobs)
        if config.estimates:
            kind = config.estimates[random.integers(len(config.estimates))]
            cut = with_estimates(cut, kind, int(random.integers(2**31)))
        measured = simulate(cut, yardstick.order, yardstick.rules, None, yardstick.model)
        span = measured.end_s.max() - cut.submit_s[0]
        jobs, rules = jobs_of(cut, policy.order, policy.rules), config_of(cut, policy.order, policy.rules)
        prepared.append(Episode(cut, jobs, rules, float(measured.wait_s.mean()), float(span)))
    return prepared


def measure(prepared: Sequence[Episode], run: Run, theta: FloatArray) -> Measured:
    """Return what weights are worth on prepared episodes."""
    slowdowns, waits, lost = (np.empty(len(prepared)) for _ in range(3))
    for number, episode in enumerate(prepared):
        log, runtime = episode.log, episode.jobs.runtime
        world = new_world(len(log), int(log.user.max()) + 1, log.machine_cores)
        run(episode, world, theta)
        wait = world.start - log.submit_s
        slowdowns[number], waits[number] = bounded_slowdowns(wait, runtime).mean(), wait.mean()
        span = (world.start + runtime).max() - log.submit_s[0]
        full = float((runtime * log.cores).sum()) / log.machine_cores  # s of the whole machine
        lost[number] = 100.0 * (full / max(episode.yardstick_span_s, 1e-9) - full / max(float(span), 1e-9))
    allowed = float(np.mean([each.yardstick_wait_s for each in prepared]))
    return Measured(float(slowdowns.mean()), float(waits.mean()) / max(allowed, 1.0), float(lost.mean()))
