"""How a policy does on the jobs of a real GPU cluster, in each of its virtual clusters.

    python scripts/gpu_jobs.py philly.csv [--policy default] [--load 0.9] [--backfill] [--jobs 2]

The table has one row a job: `timestamp`, `duration`, `num_gpus` and `cluster`, as Microsoft's Philly log in one table
(docs/results.md says where it is). An executor is a GPU, and a job one task that takes several of them. Of each virtual
cluster with enough jobs the pool is the smallest in nodes of eight GPUs that fits every job and whose load is at most
`--load`. The policy is compared with `srwf` (shortest first: jobs have one stage) and with `fifo`, with exact estimates
and with ones that are off: on episodes of a thousand jobs, in blocks of the log, and on the whole log from some job on,
as a circle. Intervals are of the bootstrap: how far from these the jobs let the means of such a log be, since more
episodes of the same jobs know no more about others. Those of whole logs say how much it matters where they begin.

With `--backfill` the policy is compared with what clusters of rigid jobs do: the job with the smallest area gets a
reservation, or the oldest one, and others are backfilled as EASY does.
"""

from __future__ import annotations

import argparse
import csv
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from random_workloads import play_all, run

from fermata.policy.registry import load
from fermata.sim.generate.estimates import Noise
from fermata.sim.hpc import policy as rigid
from fermata.sim.hpc import simulate as run_rigid
from fermata.sim.hpc.jobs import JobLog
from fermata.sim.importers import ImportOptions
from fermata.sim.importers.tables import read_table
from fermata.sim.metrics import Interval, resampled_ci95
from fermata.sim.scenarios import Scenario
from fermata.sim.scenarios.blocks import TraceBlocks, offered_load
from fermata.sim.simulate import simulate
from fermata.sim.trace import FloatArray, Trace
from fermata.sim.trace_jobs import job_work_s

COLUMNS = {"arrival": "timestamp", "duration": "duration", "slots": "num_gpus"}
CLUSTER = "cluster"
BASES, BACKFILL = ("srwf", "fifo"), ("saf+easy/skip", "fcfs+easy/skip")
NOISE = {"exact": None, "off": Noise("lognormal", 0.7)}
SEEDS, WHOLE = range(2000, 2040), range(2000, 2006)  # of episodes in blocks; of the whole log
JOBS, LEAST_JOBS, NODE = 1000, 300, 8  # of an episode; of a virtual cluster; GPUs of a node


class Played(NamedTuple):
    """What became of a virtual cluster: changes of the mean JCT by estimates, percent."""

    name: str
    jobs: int
    executors: int
    load: float
    wide: FloatArray  # of jobs of several GPUs, and of all: how many, and their GPU time
    blocks: list[Interval]  # against each base, by estimates
    whole: list[Interval]  # the same of the whole log


def clusters(table: Path) -> list[str]:
    """Return the virtual clusters that have enough jobs, those with most first."""
    with table.open(encoding="utf-8", newline="") as lines:
        found = Counter(row.get(CLUSTER, "") for row in csv.DictReader(lines))
    return [name for name, jobs in found.most_common() if jobs >= LEAST_JOBS]


def pool_of(trace: Trace, most: float) -> int:
    """Return how many GPUs the smallest pool has in which the load is at most `most` and every job fits."""
    needed = max(offered_load(trace, 1) / most, float(trace.stage_slots.max()))
    return NODE * math.ceil(needed / NODE)


def backfilled(trace: Trace, executors: int, policy: str) -> FloatArray:
    """Return the JCT [jobs] of jobs of one task under a policy of rigid jobs."""
    ids, slots = np.arange(trace.jobs), trace.stage_slots.astype(np.int64)
    nobody = np.zeros_like(ids)
    times = (trace.job_arrival_s, trace.task_duration_s, trace.stage_estimate_s)
    chosen = rigid(policy)
    schedule = run_rigid(JobLog(policy, executors, ids, *times, slots, nobody, nobody), chosen.order, chosen.rules)
    return schedule.end_s - trace.job_arrival_s


def against_bases(policy: str, trace: Trace, executors: int, bases: Sequence[str] = BASES) -> list[float]:
    """Return the change of the mean JCT against each base, of all jobs but the first tenth, percent."""

    def mean_jct_s(name: str) -> float:
        if name in BACKFILL:
            jct_s = backfilled(trace, executors, name)
        else:
            jct_s = simulate(trace, executors, load(name)).job_jct_s
        return float(jct_s[trace.jobs // 10 :].mean())

    ours_s = mean_jct_s(policy)
    return [100.0 * (ours_s / mean_jct_s(name) - 1.0) for name in bases]


def play(table: Path, policy: str, most: float, bases: Sequence[str], name: str) -> Played:
    """Play a virtual cluster."""
    trace = read_table(table, ImportOptions(columns=COLUMNS, where={CLUSTER: frozenset({name})})).trace
    executors = pool_of(trace, most)
    episodes = Scenario(name, executors, min(JOBS, trace.jobs), 0, "SRWF", TraceBlocks(trace))
    turned = Scenario(name, executors, trace.jobs, 0, "SRWF", TraceBlocks(trace, block=trace.jobs))

    def found(scenario: Scenario, seeds: range) -> list[Interval]:
        changes = np.empty((len(bases), len(NOISE), len(seeds)))
        for at, noise in enumerate(NOISE.values()):
            for number, seed in enumerate(seeds):
                episode = replace(scenario, estimates=noise).generate(seed)
                changes[:, at, number] = against_bases(policy, episode, executors, bases)
        return [resampled_ci95(each, scenario.jobs / trace.jobs) for each in changes.reshape(-1, len(seeds))]

    blocks, whole = found(episodes, SEEDS), found(turned, WHOLE)
    several, work_s = trace.stage_slots > 1, job_work_s(trace)
    wide = np.array([[several.sum(), work_s[several].sum()], [trace.jobs, work_s.sum()]])
    return Played(name, trace.jobs, executors, offered_load(trace, executors), wide, blocks, whole)


def _told(found: Interval) -> str:
    return f"{found.mean:+.1f} ± {found.ci95:.1f}"


def _row(name: str, facts: list[str], found: list[Interval]) -> str:
    return f"| {' | '.join([name, *facts, *map(_told, found)])} |"


def _mean(found: Sequence[Interval]) -> Interval:
    """Return the mean of means of different jobs."""
    means, ci95 = np.array(found).T
    return Interval(float(means.mean()), float(np.sqrt((ci95**2).sum()) / len(found)))


def main() -> None:
    """Play all virtual clusters and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path)
    parser.add_argument("--policy", default="default")
    parser.add_argument("--load", type=float, default=0.9, help="at most so high in each pool")
    parser.add_argument("--backfill", action="store_true", help=f"against {' and '.join(BACKFILL)}")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    args = parser.parse_args()
    if not 0.0 < args.load <= 2.0 or args.jobs < 1:
        parser.error("expected a --load above 0, up to 2, and --jobs of at least 1")
    if not args.table.is_file():
        parser.error(f"{args.table}: expected a file")
    names = clusters(args.table)
    if not names:
        parser.error(f"{args.table}: expected a virtual cluster with {LEAST_JOBS} jobs or more")
    bases = BACKFILL if args.backfill else BASES
    played = play_all(
        partial(play, args.table, args.policy, args.load, bases), names, args.jobs, "playing virtual clusters"
    )
    kinds = [f"{part}{base}, {kind}" for part in ("", "whole log, ") for base in bases for kind in NOISE]
    titles = ["cluster", "jobs", "GPUs", "load", *kinds]
    several, everything = np.sum([each.wide for each in played], axis=0)
    share, of_time = several / everything
    print(f"{everything[0]:,.0f} jobs; {share:.1%} take several GPUs, and {of_time:.1%} of the GPU time")
    print(f"{args.policy}: change of the mean JCT, percent")
    print(f"| {' | '.join(titles)} |")
    for each in played:
        facts = [f"{each.jobs:,}", f"{each.executors}", f"{each.load:.2f}"]
        print(_row(f"`{each.name}`", facts, each.blocks + each.whole))
    columns = zip(*(each.blocks + each.whole for each in played), strict=True)
    print(_row("mean", ["", "", ""], [_mean(column) for column in columns]))


if __name__ == "__main__":
    run(main)
