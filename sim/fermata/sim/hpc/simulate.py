"""One run: jobs, an order and rules in; when every job started and what that was worth out."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fermata.policy.errors import InputError
from fermata.sim.files import Progress
from fermata.sim.hpc.inspect import Inspector, no_inspector
from fermata.sim.hpc.jobs import FloatArray, IntArray, JobLog
from fermata.sim.hpc.kernel import run
from fermata.sim.hpc.orders import Order
from fermata.sim.hpc.rules import Rules
from fermata.sim.hpc.world import DECISIONS, EVENTS, config_of, jobs_of, new_world, run_on

if TYPE_CHECKING:
    from fermata.sim.hpc.queue_models import QueueModel
    from fermata.sim.hpc.window_models import WindowModel


@dataclass(frozen=True)
class Schedule:
    """What happened: arrays by job, in the order of submission; times in seconds.

    The first `warm` jobs are there so that the others meet a busy machine; figures do not count them.
    """

    log: JobLog
    start_s: FloatArray
    runtime_s: FloatArray  # what the job ran for: shorter than the log's where it was killed at its estimate
    events: int
    inspections: int
    rejected: IntArray  # how often an inspector rejected the job
    warm: int = 0

    @property
    def rejections(self) -> int:
        """How often an inspector rejected one of the jobs that count."""
        return int(self.rejected[self.warm :].sum())

    @property
    def wait_s(self) -> FloatArray:
        """Start minus submission."""
        return self.start_s - self.log.submit_s

    @property
    def end_s(self) -> FloatArray:
        """Start plus run time."""
        return self.start_s + self.runtime_s


def simulate(
    log: JobLog,
    order: Order,
    rules: Rules,
    inspector: Inspector | None = None,
    model: QueueModel | WindowModel | None = None,
    progress: Progress | None = None,
) -> Schedule:
    """Run the jobs of a log on its machine, idle at first.

    Args:
        log: the jobs; submissions of one instant keep the order of the log.
        order: the order of the queue.
        rules: start semantics, backfilling, reservations.
        inspector: accepts or rejects what is about to be done; default: nobody does.
        model: scores the queue, or a window of it, and decides instead of the rules; the order only breaks ties and
            says who is first.
        progress: called now and then with the share of the jobs that have started, 0 to 1.

    Returns:
        The schedule; the same for the same arguments.

    Raises:
        InputError: an inspector beside a model, which decides by itself when to wait.
    """
    if model is not None and inspector is not None:
        raise InputError("a policy over the queue or a window holds jobs by itself; expected no inspector beside it")
    jobs = jobs_of(log, order, rules)
    world = new_world(len(log), int(log.user.max()) + 1, log.machine_cores)
    config = config_of(log, order, rules)
    if model is not None:
        model.run(jobs, config, world, log, progress)
    else:
        run_on(partial(run, jobs, config, world, inspector or no_inspector()), world, progress)
    counts: NDArray[np.int64] = world.counts
    return Schedule(log, world.start, jobs.runtime, int(counts[EVENTS]), int(counts[DECISIONS]), world.rejections)
