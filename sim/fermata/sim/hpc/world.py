"""The arrays of one run: jobs, rules and the machine at one instant, as the compiled kernel wants them.

The queue and both lists of running jobs are kept in descending order, so that the first one is taken off the end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fermata.sim.files import Progress
from fermata.sim.hpc.jobs import JobLog
from fermata.sim.hpc.orders import Order
from fermata.sim.hpc.rules import Rules

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

# Places in World.counts
WAITING, RUNNING, NEXT, FREE, PICKED, EVENTS, DECISIONS, RECORDED, MACHINE = range(9)
# Places in World.clock; times in seconds
NOW, SHADOW, WAKE, USAGE_AT = range(4)
NOBODY = -1
# What a compiled call goes through at the most: between two calls Ctrl-C is heard. At an instant at which the queue is
# planned anew every job of it meets a plan of as many steps: so many pairs.
INSTANTS, PAIRS = 2_000, 50_000_000


class Jobs(NamedTuple):
    """One entry a job, in the order of submission."""

    submit: FloatArray  # s
    runtime: FloatArray  # s; what happens, killing included
    estimate: FloatArray  # s
    cores: IntArray
    rank: IntArray  # place in the order of the queue
    user: IntArray
    partition: FloatArray  # its number over the highest one, 0 to 1


class Config(NamedTuple):
    """`Rules` and `Order` as numbers."""

    start: int
    backfill: int
    order: int
    single_event: int
    reserve_over: float  # s
    reserve_cores: int
    weights: FloatArray  # of the multifactor order, in the order of its parameters


class World(NamedTuple):
    """What changes during a run."""

    start: FloatArray  # [jobs], s; NaN while it waits
    queue: IntArray  # [jobs] waiting, last in the order first
    ending: IntArray  # [jobs] running, last to end first
    expected: IntArray  # [jobs] running, last expected end first
    key: FloatArray  # [jobs] keys of a dynamic order
    usage: FloatArray  # [users] decayed core-seconds
    rate: FloatArray  # [users] cores in use
    profile_at: FloatArray  # [2 * jobs + 2] times of the plan of conservative backfilling
    profile_free: IntArray  # [2 * jobs + 2] cores free from each of them on
    rejections: IntArray  # [jobs] how often an inspector has rejected it
    rejected: IntArray  # [jobs] the same, as it counts towards the limit
    rejected_at: FloatArray  # [jobs] when it was rejected last; minus infinity if never (s)
    counted_at: FloatArray  # [jobs] when a rejection was counted last; minus infinity if never (s)
    counts: IntArray
    clock: FloatArray


def jobs_of(log: JobLog, order: Order, rules: Rules) -> Jobs:
    """Return the arrays of a log."""
    runtime = np.minimum(log.runtime_s, log.estimate_s) if rules.kill_at_estimate else log.runtime_s
    partition = log.partition / max(int(log.partition.max()), 1)
    return Jobs(
        log.submit_s, runtime, log.estimate_s, log.cores, order.ranks(log), log.user.astype(np.int64), partition
    )


def config_of(log: JobLog, order: Order, rules: Rules) -> Config:
    """Return rules and order as numbers."""
    return Config(
        int(rules.start),
        int(rules.backfill),
        order.kind,
        int(rules.one_event_at_a_time),
        float(rules.reserve_over_s),
        round(rules.reserve_share * log.machine_cores),
        np.array([*order.parameters.values()] or [0.0]),
    )


def new_world(jobs: int, users: int, machine_cores: int) -> World:
    """Return an idle machine before the first submission."""
    counts = np.zeros(9, dtype=np.int64)
    counts[FREE] = counts[MACHINE] = machine_cores
    counts[PICKED] = NOBODY
    clock = np.zeros(4)
    clock[WAKE] = np.inf
    return World(
        start=np.full(jobs, np.nan),
        queue=np.zeros(jobs, dtype=np.int64),
        ending=np.zeros(jobs, dtype=np.int64),
        expected=np.zeros(jobs, dtype=np.int64),
        key=np.zeros(jobs),
        usage=np.zeros(users),
        rate=np.zeros(users),
        profile_at=np.zeros(2 * jobs + 2),
        profile_free=np.zeros(2 * jobs + 2, dtype=np.int64),
        rejections=np.zeros(jobs, dtype=np.int64),
        rejected=np.zeros(jobs, dtype=np.int64),
        rejected_at=np.full(jobs, -np.inf),
        counted_at=np.full(jobs, -np.inf),
        counts=counts,
        clock=clock,
    )


def run_on(kernel: Callable[[], bool], world: World, progress: Progress | None = None) -> None:
    """Call a kernel until it tells that every job has started; in between, Ctrl-C is heard.

    Args:
        kernel: runs on for a while.
        world: that it runs.
        progress: called between two calls with the share of the jobs that have started, 0 to 1.
    """
    while not kernel():
        if progress is not None:
            progress(float(np.isfinite(world.start).mean()))
