"""Search for the weights by which stages are scored where tasks take several executors (record 36).

    python scripts/search_several_slots.py [--generations 90] [--jobs 2] [--run runs/several-slots] [--out FILE]

An evolution strategy: mirrored perturbations of the weights play the same random workloads with such tasks, whole
episodes under the shipped model, and what is lowered is the logarithm of the mean JCT over that under `srwf`; where it
is above, it counts nine times. The workloads are of the kind of `scripts/random_workloads.py --slots`, with numbers
that it is not judged by: from 10,000 on to search, from 3,000 on to choose the best of the means. Takes about ten
minutes on two cores, goes on where it was ended, and writes `slot_weights.py` at the end.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from concurrent.futures import Executor
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from random_workloads import MOST_EXECUTORS, Wide, draw, trace_of

from fermata.policy.several_slots import UNITS, WEIGHTS
from fermata.policy.slot_features import NAMES, SIZE
from fermata.sim.processes import Workers
from fermata.sim.trace import Trace
from fermata.training.files import unfitting
from fermata.training.hpc.evolution import Evolution
from fermata.training.hpc.runs import Kept, to_the_end
from fermata.training.slots.episodes import log_ratios

FloatArray = NDArray[np.float64]

SHORTENED = 2  # episodes of the first half of a search have so many times fewer jobs
SEARCHED, CHOSEN = (10_000, 1_000_000), range(3000, 3300)  # numbers of workloads
CHOSEN_SEED, SEEDS = 620_000, (1_000_000, 2_000_000)
EPISODES, PAIRS, SIGMA, RATE = 48, 12, 0.15, 0.06
BEHIND, ALLOWED = 8.0, 0.005  # what a logarithm above `ALLOWED` counts more by
JUDGE_EVERY = 20


class Episode(NamedTuple):
    """A workload by number, and a seed."""

    number: int
    seed: int
    shortened: int = 1  # it has so many times fewer jobs


class Judged(NamedTuple):
    """The mean of the search after so many generations, on the workloads that choose."""

    generation: int
    change: float  # of the mean JCT against srwf, percent
    behind: int  # workloads in which it is over 1% slower
    cost: float
    wall_s: float

    def __str__(self) -> str:
        text = f"generation {self.generation:3d}: mean JCT {self.change:+.2f}%, over 1% slower in {self.behind}"
        return f"{text}; cost {self.cost:+.4f}; {self.wall_s:.0f} s"


@dataclass(frozen=True)
class _State:
    """A search between two generations."""

    generation: int
    rows: list[tuple[float, ...]]
    centre: list[float]
    moment: list[float]
    spread: list[float]
    mean: list[float]
    best: list[float]
    least: float
    random: dict[str, Any]
    wall_s: float


def _trace(episode: Episode) -> tuple[Trace, int]:
    """Return the jobs of an episode, and its executors."""
    workload = draw(episode.number, MOST_EXECUTORS)
    shorter = workload.with_(jobs=workload.jobs // episode.shortened)
    return trace_of(shorter, episode.seed, Wide.draw(episode.number)), workload.executors


def logarithms(episode: Episode, candidates: FloatArray) -> FloatArray:
    """Return the logarithm of the mean JCT under each of the weights over that under srwf; NaN of a lone executor."""
    trace, executors = _trace(episode)
    if executors < 2:
        return np.full(len(candidates), math.nan)
    return log_ratios(trace, executors, candidates)


def costs(found: FloatArray) -> FloatArray:
    """Return what candidates cost [candidates], by their logarithms [episodes, candidates]."""
    bounded = np.clip(found[~np.isnan(found).any(axis=1)], -1.0, 1.0)
    return np.asarray((bounded + BEHIND * np.maximum(bounded - ALLOWED, 0.0)).mean(axis=0))


def beginning(seed: int) -> FloatArray:
    """Return weights of a rule: shortest first, between work and time, that holds for what is much shorter."""
    weights = np.zeros(WEIGHTS)
    place = {name: number for number, name in enumerate(NAMES)}
    weights[place["work over the least of what waits"]] = -1.0
    weights[place["work over its width, over the least of what waits"]] = -3.0
    weights[place["delays a much shorter one that does not fit"]] = -20.0
    weights[place["many shorter jobs due"]] = -20.0
    weights[place["one"]] = 8.0
    # Hidden units are random, and lead nowhere yet.
    units = np.zeros((UNITS, SIZE + 1))
    units[:, :SIZE] = 0.3 * np.random.default_rng(seed).standard_normal((UNITS, SIZE))
    weights[SIZE:] = units.ravel()
    return weights


class _Search:
    """A search, from one generation to the next."""

    def __init__(self, pool: Executor, generations: int, seed: int) -> None:
        self.pool, self.generations = pool, generations
        self.random, self.began = np.random.default_rng(seed), time.perf_counter()
        self.strategy = Evolution(beginning(seed), PAIRS, SIGMA, RATE)
        self.mean, self.best, self.least = self.strategy.centre, self.strategy.centre, math.inf
        self.steps_done, self.rows = 0, list[Judged]()

    def begin(self) -> None:
        self._judge()

    def resume(self, state: _State, path: Path) -> None:
        arrays = [np.array(each) for each in (state.centre, state.moment, state.spread, state.mean, state.best)]
        if any(each.shape != self.best.shape for each in arrays):
            raise unfitting(path)
        centre, moment, spread, self.mean, self.best = arrays
        self.strategy.resume(centre, moment, spread, state.generation)
        self.random.bit_generator.state = state.random
        self.steps_done, self.least = state.generation, state.least
        self.rows = [Judged(int(row[0]), row[1], int(row[2]), *row[3:]) for row in state.rows]
        self.began -= state.wall_s

    def state(self) -> _State:
        centre, moment, spread = self.strategy.state()
        lists = (each.tolist() for each in (centre, moment, spread, self.mean, self.best))
        rows = [tuple(float(value) for value in row) for row in self.rows]
        random, wall_s = dict(self.random.bit_generator.state), time.perf_counter() - self.began
        return _State(self.steps_done, rows, *lists, self.least, random, wall_s)

    def step(self) -> None:
        numbers, seeds = (self.random.integers(*bounds, EPISODES) for bounds in (SEARCHED, SEEDS))
        shortened = SHORTENED if 2 * self.steps_done < self.generations else 1
        episodes = [Episode(int(number), int(seed), shortened) for number, seed in zip(numbers, seeds, strict=True)]
        found = self._play(episodes, self.strategy.candidates(self.random))
        self.strategy.learn(costs(found), RATE * max(0.1, 1.0 - self.steps_done / self.generations))
        self.mean = 0.9 * self.mean + 0.1 * self.strategy.centre
        self.steps_done += 1
        if self.steps_done % JUDGE_EVERY == 0 or self.steps_done == self.generations:
            self._judge()

    def _play(self, episodes: list[Episode], candidates: FloatArray) -> FloatArray:
        return np.array(list(self.pool.map(logarithms, episodes, repeat(candidates), chunksize=2)))

    def _judge(self) -> None:
        """Measure the mean of the centres, and keep it if none was so good."""
        mean = rounded(self.mean)
        found = self._play([Episode(number, CHOSEN_SEED) for number in CHOSEN], mean[np.newaxis])
        (cost,), known = costs(found), found[~np.isnan(found)]
        if cost < self.least:
            self.best, self.least = mean, float(cost)
        change = 100.0 * float(np.expm1(known).mean())
        behind = int((known > math.log(1.01)).sum())
        self.rows.append(Judged(self.steps_done, change, behind, float(cost), time.perf_counter() - self.began))


def rounded(weights: FloatArray) -> FloatArray:
    """Return weights as they are written."""
    return np.array([float(f"{each:.4g}") for each in weights])


def text_of(weights: FloatArray) -> str:
    """Return the module that holds the weights."""
    numbers = [f"{each:.4g}" for each in weights]
    lines = (", ".join(numbers[at : at + 11]) for at in range(0, len(numbers), 11))
    body = "\n".join(f"    {line}," for line in lines)
    return (
        '"""The weights by which stages are scored where tasks take several executors.\n\n'
        "By `scripts/search_several_slots.py`. Of each feature, then of each hidden unit those of its inputs and "
        'its own.\n"""\n\n'
        "WIDTHS = 12  # powers of two; what is wider counts as of the widest\n"
        f"SLOT_FEATURES = {SIZE}\n"
        f"# fmt: off\nSLOT_WEIGHTS = (\n{body}\n)\n# fmt: on\n"
    )


def main() -> None:
    """Search, or go on with a search, and write what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--generations", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--run", type=Path, default=Path("runs/several-slots"), help="folder that keeps the search")
    parser.add_argument("--out", type=Path, default=Path("policy/fermata/policy/slot_weights.py"))
    args = parser.parse_args()
    args.run.mkdir(parents=True, exist_ok=True)
    with Workers(args.jobs) as pool:
        search = _Search(pool, args.generations, args.seed)
        kept = Kept(args.run / f"seed-{args.seed}-of-{args.generations}.pt")  # of another search nothing is taken up
        to_the_end(search, args.generations, _State, kept, lambda row: print(row, flush=True))
    args.out.write_text(text_of(search.best), encoding="utf-8")
    print(f"wrote {args.out}: cost {search.least:+.4f} on the workloads that choose")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        print("interrupted; the same command goes on", file=sys.stderr)
        sys.exit(130)
