"""TPC-H episodes for the Spark model: a drawn sequence of queries, their trace, and the durations of their stages.

The data is not part of Fermata; see `fermata.sim.importers.tpch`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fermata.policy.decide import Policy
from fermata.policy.errors import InputError
from fermata.sim.importers.tpch import (
    MS_PER_S,
    QUERIES,
    SEQUENCES,
    SIZES,
    Arrival,
    TpchQuery,
    Wave,
    load_query,
    specs_of,
)
from fermata.sim.spark.peers import PEERS, run_peer
from fermata.sim.spark.settings import SparkSetting
from fermata.sim.spark.view import run_policy
from fermata.sim.spark.waves import IndexArray, IntArray, Waves, grid_of, lists_of
from fermata.sim.spark.world import SparkTables, SparkWorld, new_spark_world, spark_tables
from fermata.sim.trace import Trace
from fermata.sim.trace_builder import TraceBuilder
from fermata.sim.world import new_world, tables_of

MOVING_DELAY_MS = 2000
WARM_UP_MS = 1000
# Two words a task are enough for most episodes; where they are not, the first follow the last.
_WORDS_PER_TASK = 4


@dataclass(frozen=True)
class SparkWorkload:
    """Jobs with measured durations: what a Spark episode is made of, apart from the pool and the random words.

    Args:
        trace: the jobs; each task's duration is its stage's estimate, since the real one depends on the executor.
        lists: where each stage's durations stand, see `Waves.lists`.
        duration_ms: all durations.
    """

    trace: Trace
    lists: IntArray
    duration_ms: IndexArray

    def waves(self, executors: int, draws: NDArray[np.uint32] | None = None, *, seed: int = 0) -> Waves:
        """Return the durations for a pool.

        Args:
            executors: size of the pool.
            draws: the random words to use, and then every task takes the first duration of its list; None to draw
                durations with `seed`.
            seed: of the words.
        """
        if draws is not None:
            return Waves(grid_of(executors), self.lists, self.duration_ms, draws, sampled=False)
        words = np.random.default_rng(seed).integers(0, 2**32, _WORDS_PER_TASK * self.trace.tasks + 1, np.uint32)
        return Waves(grid_of(executors), self.lists, self.duration_ms, words, sampled=True)


@cache
def _query(folder: Path, size: str, number: int) -> TpchQuery:
    return load_query(folder, size, number)


def check_data(folder: str | Path) -> None:
    """Read every query, before work of hours meets the first one that is not there.

    Raises:
        InputError: one cannot be read.
    """
    for size in SIZES:
        for number in range(1, QUERIES + 1):
            _query(Path(folder), size, number)


def workload_of(folder: str | Path, arrivals: Sequence[Arrival], warm_up_ms: int = WARM_UP_MS) -> SparkWorkload:
    """Return the workload of a sequence of queries.

    Args:
        folder: Decima's TPC-H data.
        arrivals: which query arrives when.
        warm_up_ms: what a task takes longer on an executor that comes from elsewhere, where that was not measured.

    Raises:
        InputError: the data cannot be read.
    """
    builder = TraceBuilder()
    rows: dict[tuple[str, int], range] = {}
    measured: list[tuple[Wave, ...]] = []
    stage_row: list[int] = []
    for index, arrival in enumerate(arrivals):
        query = _query(Path(folder), arrival.size, arrival.number)
        kind = (arrival.size, arrival.number)
        if kind not in rows:
            rows[kind] = range(len(measured), len(measured) + len(query.stages))
            measured.extend([(stage.fresh, stage.first_wave, stage.rest_wave) for stage in query.stages])
        stage_row.extend(rows[kind])
        builder.add_job(f"{index}-{query.name}", arrival.arrival_ms / MS_PER_S, specs_of(query))
    lists, duration_ms = lists_of(measured, warm_up_ms)
    return SparkWorkload(builder.finish(), lists[stage_row], duration_ms)


def draw_workload(folder: str | Path, setting: SparkSetting, seed: int) -> SparkWorkload:
    """Draw the workload of a setting for a seed, the same as the simulator that it comes from.

    Raises:
        InputError: the data cannot be read.
    """
    return workload_of(folder, SEQUENCES[setting.sequence](seed, setting.jobs, MS_PER_S * setting.gap_s))


def peer_episode(
    workload: SparkWorkload, waves: Waves, peer: str, moving_delay_ms: int = MOVING_DELAY_MS, *, ahead: bool = True
) -> tuple[SparkTables, SparkWorld]:
    """Run one episode under a published simulator's heuristic.

    Args:
        workload: the jobs.
        waves: their durations on a pool, of this workload.
        peer: a name in `PEERS`.
        moving_delay_ms: how long an executor takes to another job.
        ahead: whether executors may be kept for, or sent to, a stage whose parents still run.

    Raises:
        InputError: no such heuristic.
    """
    if peer not in PEERS:
        raise InputError(f"no published heuristic {peer!r}; there are: {', '.join(PEERS)}")
    tables = spark_tables(workload.trace, moving_delay_ms, asks_idle=peer.startswith("spark-"), ahead=ahead)
    world = new_spark_world(tables, waves)
    run_peer(tables, waves, world, PEERS[peer])
    return tables, world


def policy_episode(
    workload: SparkWorkload, waves: Waves, policy: Policy, moving_delay_ms: int = MOVING_DELAY_MS, *, ahead: bool = True
) -> tuple[SparkTables, SparkWorld]:
    """Run one episode under a policy of Fermata, asked in the published simulators' protocol; see `peer_episode`."""
    tables = spark_tables(workload.trace, moving_delay_ms, asks_idle=True, ahead=ahead)
    known = tables_of(workload.trace, len(waves.grid) - 1)
    world = new_spark_world(tables, waves)
    run_policy(tables, waves, world, new_world(known, len(waves.grid) - 1), policy)
    return tables, world


def mean_jct_s(tables: SparkTables, world: SparkWorld) -> float:
    """Return the mean job completion time in seconds."""
    return float((world.job_completion_ms - tables.job_arrival_ms).mean()) / MS_PER_S
