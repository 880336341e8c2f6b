"""What scores of one's own are worth: each of some random workloads teaches a model its own, on a trace of 2,000 jobs.

    python scripts/random_workloads_own.py [--first 7500] [--workloads 24] [--seed 1] [--jobs 2]
    python scripts/random_workloads_own.py [--seed 1] [--seeds 610000-610019] NUMBER [NUMBER ...]

Workloads are those of `scripts/random_workloads.py --slots`; the second command plays those of the numbers. They are
taught as by `fermata train --trace` where tasks take several executors. The shipped model then plays other seeds of the
workload, with its own scores and with those that were taught, against the better of `sjf` and `srwf`. Workloads that
were chosen by how the model does on some seeds are to be judged on others (`--seeds`).
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from random_workloads import AGAIN, BASES, BEHIND_PCT, MOST_EXECUTORS, Wide, draw, play_all, run, trace_of
from rich.console import Console

from fermata.cli.options import seed_range
from fermata.policy.decide import Policy
from fermata.policy.errors import InputError
from fermata.policy.onnx_policy import OnnxPolicy
from fermata.policy.registry import load
from fermata.policy.rows import new_values
from fermata.policy.slot_scores import SHIPPED
from fermata.sim.metrics import Interval, paired_percent
from fermata.sim.simulate import simulate
from fermata.sim.trace_io import write_trace
from fermata.training.graph.config import read_any
from fermata.training.own import own_trace, takes_several
from fermata.training.slots.config import OnTrace, ScoresConfig
from fermata.training.slots.train import shortest_first, train

JOBS, TAUGHT = 2000, 700_001  # of the trace that teaches: jobs, and its seed
SEEDS = f"{AGAIN[0]}-{AGAIN[19]}"
KEPT = ("own", "shipped", "shortest first")


class Changes(NamedTuple):
    """Changes of the mean JCT of a workload, percent."""

    number: int
    kept: str  # which scores the training gave
    shipped: Interval  # against the better of the simple policies
    own: Interval
    apart: Interval  # own scores against those that ship


def taught(seed: int, number: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]] | None:
    """Return the weights that a workload teaches, or None if no task of the trace's first half takes several slots.

    Args:
        seed: of the training.
        number: of the workload.
    """
    workload = draw(number, MOST_EXECUTORS)
    config = read_any("own-slots")
    assert isinstance(config, ScoresConfig)
    with tempfile.TemporaryDirectory(prefix="fermata-") as folder:
        path = Path(folder) / "trace.jsonl"
        write_trace(trace_of(workload.with_(jobs=JOBS), TAUGHT, Wide.draw(number)), path)
        own = own_trace(str(path), (workload.executors, workload.executors))
        if not takes_several(own):
            return None
        config = config.model_copy(update={"workloads": OnTrace(own=own), "seed": seed, "processes": 1})
        return train(config, Path(folder) / "run", Console(quiet=True))


def play(taught_by: int, seeds: Sequence[int], number: int) -> Changes | None:
    """Teach scores on a workload, and play it with them; None if it has nothing to teach.

    Args:
        taught_by: the seed of the training.
        seeds: on which it is played.
        number: of the workload.
    """
    weights = taught(taught_by, number)
    if weights is None:
        return None
    workload, shipped = draw(number, MOST_EXECUTORS), load("default")
    assert isinstance(shipped, OnnxPolicy)
    policies: list[Policy] = [shipped, replace(shipped, slot_weights=new_values(weights)), *map(load, BASES)]
    jct_s = np.empty((len(seeds), len(policies)))
    for row, seed in zip(jct_s, seeds, strict=True):
        trace = trace_of(workload, seed, Wide.draw(number))
        for at, policy in enumerate(policies):
            row[at] = simulate(trace, workload.executors, policy).job_jct_s[workload.warm :].mean()
    theirs, ours = (max(paired_percent(jct_s[:, at], base_s) for base_s in jct_s[:, 2:].T) for at in (0, 1))
    kept = [not np.array_equal(weights, each) for each in (SHIPPED, shortest_first())]
    name = KEPT[0] if all(kept) else KEPT[1 + kept.index(False)]
    return Changes(number, name, theirs, ours, paired_percent(jct_s[:, 1], jct_s[:, 0]))


def _told(name: str, changes: list[Interval]) -> str:
    means = np.array([each.mean for each in changes])
    counts = f"over 1% faster in {(means < -BEHIND_PCT).sum()}, slower in {(means > BEHIND_PCT).sum()}"
    return (
        f"  {name}: mean JCT {means.mean():+.2f}%, median {np.median(means):+.2f}%; {counts}; worst {means.max():+.1f}%"
    )


def main() -> None:
    """Play all workloads and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("numbers", nargs="*", type=int, help="of workloads; all others are left out then")
    parser.add_argument("--first", type=int, default=7500, help="number of the first workload")
    parser.add_argument("--workloads", type=int, default=24)
    parser.add_argument("--seed", type=int, default=1, help="of the trainings")
    parser.add_argument("--seeds", default=SEEDS, help="on which the scores are played: A-B")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    args = parser.parse_args()
    if min(args.workloads, args.jobs) < 1 or min(args.first, args.seed, *args.numbers, 0) < 0:
        parser.error("expected --workloads and --jobs of at least 1, and no number below 0")
    numbers = args.numbers or range(args.first, args.first + args.workloads)
    try:
        seeds = seed_range(args.seeds)
    except InputError as error:
        parser.error(str(error))
    played = [each for each in play_all(partial(play, args.seed, seeds), numbers, args.jobs) if each is not None]
    print(f"{len(played)} random workloads, {len(seeds)} seeds each, against the better of {' and '.join(BASES)}:")
    print(_told("scores that ship", [each.shipped for each in played]))
    print(_told("scores of its own", [each.own for each in played]))
    better, worse = (sum(sign * each.apart.mean > each.apart.ci95 for each in played) for sign in (-1, 1))
    print(f"  own against shipped: by more than chance better in {better}, worse in {worse}")
    for each in played:
        told = ", ".join(f"{one.mean:+.1f} ± {one.ci95:.1f}%" for one in (each.shipped, each.own))
        apart = f"{each.apart.mean:+.1f} ± {each.apart.ci95:.1f}%"
        print(f"  random-{each.number}: {told}; own against shipped {apart}; kept: {each.kept}")


if __name__ == "__main__":
    run(main)
