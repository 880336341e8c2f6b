"""Small workloads of Decima's Spark model, by hand and at random."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fermata.sim.spark.episode import SparkWorkload
from fermata.sim.spark.waves import lists_of
from fermata.sim.trace_builder import StageSpec, TraceBuilder

Lists = tuple[Mapping[int, Sequence[int]], ...]
# Fresh tasks take 9 s, first ones 5 s, later ones 2 s, on however many executors.
PLAIN: Lists = ({5: [9000]}, {5: [5000]}, {5: [2000]})
VARIED: Lists = ({5: [9000, 8000]}, {5: [5000, 4000, 3000]}, {5: [2000, 1000, 0]})


def workload(
    jobs: Sequence[tuple[float, Sequence[tuple[int, Sequence[int]]]]], durations: Lists = PLAIN
) -> SparkWorkload:
    """Jobs from their arrival and (tasks, parents) of each stage, all with the same durations."""
    builder = TraceBuilder()
    stages = 0
    for number, (arrival_s, specs) in enumerate(jobs):
        stages += len(specs)
        builder.add_job(
            f"j{number}",
            arrival_s,
            [StageSpec(f"s{i}", [2.0] * tasks, [f"s{p}" for p in parents]) for i, (tasks, parents) in enumerate(specs)],
        )
    return SparkWorkload(builder.finish(), *lists_of([durations] * stages, 1000))


def random_workload(seed: int) -> SparkWorkload:
    """Up to eight jobs of up to five stages, each depending on some before it."""
    rng = np.random.default_rng(seed)
    jobs, arrival_s = [], 0.0
    for _ in range(int(rng.integers(1, 9))):
        stages = [
            (int(rng.integers(1, 12)), [above for above in range(index) if rng.random() < 0.4])
            for index in range(int(rng.integers(1, 6)))
        ]
        jobs.append((arrival_s, stages))
        arrival_s += float(rng.integers(0, 30))
    return workload(jobs, VARIED)
