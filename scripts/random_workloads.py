"""How a policy does on workloads that nobody chose: of every kind, with all parameters drawn at random.

    python scripts/random_workloads.py [POLICY] [--workloads 1500] [--first 0] [--jobs 2] [--slots]

Tasks take one executor. With `--slots` those of some jobs take several: of so many jobs drawn at random, of the short
ones, or of the tenth with the most work. Jobs then come as much later as makes the load what it was.

Each workload is played on a few seeds, under the policy and under `sjf` and `srwf`, and the policy is compared with the
better of the two. Where it is more than a percent behind it is played again on many other seeds, because among so many
workloads some are behind by chance, and by a lot where few jobs decide. Prints the spread, and the workloads that are
behind there, too, by more than chance.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.random import Generator

from fermata.cli.progress import progress_bar
from fermata.policy.registry import load
from fermata.sim.generate.arrivals import Arrivals, Bursty, Periodic, Piecewise, Poisson
from fermata.sim.generate.estimates import Noise
from fermata.sim.generate.mix import Mix
from fermata.sim.generate.one_stage import OneStage
from fermata.sim.generate.sizes import BoundedPareto, Classes, Hyperexponential, Lognormal, Sizes
from fermata.sim.metrics import Interval, paired_percent
from fermata.sim.processes import Workers
from fermata.sim.scenarios import JobClass, LayeredDags, Recipe, Scenario
from fermata.sim.simulate import simulate
from fermata.sim.trace import Trace
from fermata.sim.trace_jobs import job_work_s

T, U = TypeVar("T"), TypeVar("U")

FIRST, AGAIN = range(600_000, 600_004), range(610_000, 610_040)  # seeds
BASES = ("sjf", "srwf")
BEHIND_PCT = 1.0
MOST_EXECUTORS = 24


class Played(NamedTuple):
    """A workload by number, and the change of the mean JCT against the better of the simple policies, percent."""

    number: int
    executors: int
    change: float
    again: Interval  # on many other seeds; NaN where the first ones were well

    @property
    def behind(self) -> float:
        """By how many percent the policy is behind, if by more than chance; else 0."""
        return self.again.mean if self.again.mean > self.again.ci95 else 0.0


def _log_uniform(rng: Generator, low: float, high: float) -> float:
    return float(math.exp(rng.uniform(math.log(low), math.log(high))))


def _shares(rng: Generator, number: int) -> tuple[float, ...]:
    drawn = np.maximum(rng.dirichlet(np.ones(number)), 0.01)
    return tuple((drawn / drawn.sum()).tolist())


def _draw_arrivals(rng: Generator) -> Arrivals:
    kind = int(rng.integers(0, 5))
    if kind <= 1:
        return Poisson()
    if kind == 2:
        return Bursty(_log_uniform(rng, 2, 50), float(rng.uniform(0.02, 0.5)), _log_uniform(rng, 3, 200))
    if kind == 3:
        return Periodic(int(rng.integers(1, 33)), _log_uniform(rng, 0.001, 0.5))
    rates = (float(rng.uniform(1.0, 2.0)), float(rng.uniform(0.05, 1.0)))
    return Piecewise((0.5, 0.5), rates, _log_uniform(rng, 20, 1000))


def _draw_sizes(rng: Generator) -> Sizes:
    kind = int(rng.integers(0, 5))
    if kind == 0:
        return Lognormal(60.0, float(rng.uniform(0.3, 2.2)))
    if kind == 1:
        return BoundedPareto(float(rng.uniform(0.8, 2.5)), 5.0, _log_uniform(rng, 50, 20_000))
    long_share, long_s = _log_uniform(rng, 0.01, 0.6), 10.0 * _log_uniform(rng, 2, 200)
    if kind == 2:
        return Hyperexponential((1.0 - long_share, long_share), (10.0, long_s))
    if kind == 3:
        return Classes((1.0 - long_share, long_share), (10.0, long_s))
    classes = int(rng.integers(2, 6))
    return Classes(_shares(rng, classes), tuple(sorted(_log_uniform(rng, 3, 2000) for _ in range(classes))))


def _draw_tasks(rng: Generator) -> OneStage:
    return OneStage(float(rng.uniform(0.3, 1.0)), _draw_arrivals(rng), _draw_sizes(rng))


def _draw_dags(rng: Generator) -> LayeredDags:
    classes = []
    for share in _shares(rng, int(rng.integers(1, 4))):
        stages, tasks = int(rng.integers(1, 6)), 1 if rng.random() < 0.4 else int(rng.integers(1, 12))
        spread, misses = float(rng.uniform(0.0, 0.8)), float(rng.uniform(0.0, 0.5))
        most = stages + int(rng.integers(0, 8))
        classes.append(JobClass(share, (stages, most), (1, tasks), _log_uniform(rng, 3, 400), spread, misses))
    return LayeredDags(float(rng.uniform(0.3, 1.0)), tuple(classes))


def _draw_noise(rng: Generator) -> Noise | None:
    kind = rng.random()
    if kind < 0.15:
        return Noise("lognormal", float(rng.uniform(0.1, 1.3)))
    if kind < 0.25:
        return Noise("class-flips", _log_uniform(rng, 0.02, 0.3))
    return Noise("class-means") if kind < 0.32 else None


def draw(number: int, most_executors: int) -> Scenario:
    """Return the workload of a number; the same on every machine."""
    rng = np.random.default_rng([number, 1])
    executors, kind = round(_log_uniform(rng, 1, most_executors)), rng.random()
    recipe: Recipe
    if kind < 0.45:
        recipe, jobs = _draw_tasks(rng), 3000
    elif kind < 0.75:
        recipe, jobs = _draw_dags(rng), 900
    else:
        alpha, load_ = float(rng.uniform(0.05, 0.95)), float(rng.uniform(0.3, 1.0))
        recipe, jobs = Mix(_draw_tasks(rng), _draw_dags(rng), alpha, load_, _draw_arrivals(rng)), 1200
    return Scenario(f"random-{number}", executors, jobs, jobs // 10, "SJF", recipe, _draw_noise(rng))


class Wide(NamedTuple):
    """Which jobs of a workload have tasks of several slots: a power of two, each as likely."""

    number: int  # of the workload
    share: float  # of the jobs that may
    among: str  # "any", the "short" ones, or the "long" tenth

    @classmethod
    def draw(cls, number: int) -> Wide:
        """Return those of the workload of a number; the same on every machine."""
        rng = np.random.default_rng([number, 2])
        return cls(number, float(rng.uniform(0.05, 0.8)), str(rng.choice(["any", "short", "long"])))

    def widen(self, trace: Trace, executors: int, seed: int) -> Trace:
        """Return a trace with such tasks, and with its arrivals stretched by as much as there is more work."""
        rng, work_s = np.random.default_rng([self.number, seed]), job_work_s(trace)
        long = work_s >= np.quantile(work_s, 0.9)
        may = {"any": np.ones(trace.jobs, np.bool_), "short": ~long, "long": long}[self.among]
        drawn = 2 ** rng.integers(1, max(2, executors.bit_length()), trace.jobs)
        slots = np.where(may & (rng.random(trace.jobs) < self.share), np.minimum(drawn, executors), 1)
        moldable = ~np.isnan(trace.stage_serial_fraction)
        wide = replace(trace, stage_slots=np.where(moldable, 1, slots[trace.stage_job]).astype(np.int32))
        return replace(wide, job_arrival_s=trace.job_arrival_s * (job_work_s(wide).sum() / work_s.sum()))


def trace_of(workload: Scenario, seed: int, wide: Wide | None) -> Trace:
    """Return the jobs of a workload; with `wide` tasks of some take several slots."""
    trace = workload.generate(seed)
    return trace if wide is None else wide.widen(trace, workload.executors, seed)


def change_pct(policy: str, workload: Scenario, seeds: Sequence[int], wide: Wide | None = None) -> Interval:
    """Return the change of the mean JCT against the better base, percent: the mean over seeds, and its 95% interval."""
    jct_s = np.empty((len(seeds), 1 + len(BASES)))
    for row, seed in zip(jct_s, seeds, strict=True):
        trace = trace_of(workload, seed, wide)
        for at, name in enumerate((policy, *BASES)):
            row[at] = simulate(trace, workload.executors, load(name)).job_jct_s[workload.warm :].mean()
    return max(paired_percent(jct_s[:, 0], base_s) for base_s in jct_s[:, 1:].T)


def _play(policy: str, most_executors: int, slots: bool, number: int) -> Played:
    workload, wide = draw(number, most_executors), Wide.draw(number) if slots else None
    change = change_pct(policy, workload, FIRST, wide).mean
    again = change_pct(policy, workload, AGAIN, wide) if change > BEHIND_PCT else Interval(math.nan, math.nan)
    return Played(number, workload.executors, change, again)


def play_all(
    play: Callable[[U], T], units: Sequence[U], processes: int, what: str = "playing random workloads"
) -> list[T]:
    """Return what a function says of each number or name, found by several processes."""
    found = []
    with Workers(processes) as pool, progress_bar(what) as progress:
        for each in pool.map(play, units):
            found.append(each)
            progress(len(found) / len(units))
    return found


def run(main: Callable[[], None]) -> None:
    """Run a script, and end it without a traceback on Ctrl-C."""
    try:
        main()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)


def main() -> None:
    """Play all workloads and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("policy", nargs="?", default="default")
    parser.add_argument("--workloads", type=int, default=1500)
    parser.add_argument("--first", type=int, default=0, help="number of the first workload")
    parser.add_argument("--most-executors", type=int, default=MOST_EXECUTORS)
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--slots", action="store_true", help="tasks of some jobs take several executors")
    args = parser.parse_args()
    play_one = partial(_play, args.policy, args.most_executors, args.slots)
    played = play_all(play_one, range(args.first, args.first + args.workloads), args.jobs)
    changes = np.array([each.change for each in played])
    print(f"{args.policy} on {len(played)} random workloads, against the better of {' and '.join(BASES)}:")
    print(f"  mean JCT {changes.mean():+.2f}%; median {np.median(changes):+.2f}%", end="")
    print(f"; over 1% faster in {(changes < -1.0).sum()}, slower in {(changes > 1.0).sum()}")
    told = sorted((each for each in played if each.behind > 0.0), key=lambda each: -each.behind)
    over = [sum(each.behind > limit for each in told) for limit in (0.0, 1.0, 2.0, 3.0, 5.0)]
    print(f"  of these on {len(AGAIN)} other seeds, by more than chance: {over[0]}; over 1, 2, 3 and 5%:", *over[1:])
    for each in told[:10]:
        print(f"  {each.again.mean:+.1f} ± {each.again.ci95:.1f}%: {draw(each.number, args.most_executors)}")


if __name__ == "__main__":
    run(main)
