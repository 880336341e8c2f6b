"""What schedulers do on sequences of jobs: figures with intervals, ratios of means, an agent's use of its window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from fermata.sim.hpc.experiment import Sequences, run_sequences
from fermata.sim.hpc.jobs import JobLog
from fermata.sim.hpc.orders import order
from fermata.sim.hpc.policies import Policy
from fermata.sim.hpc.rules import Rules, Start
from fermata.sim.hpc.window import STALE, run_windowed
from fermata.sim.hpc.window_models import WindowModel
from fermata.sim.hpc.world import DECISIONS, config_of, jobs_of, new_world, run_on
from fermata.sim.metrics import student_t975
from fermata.sim.trace import FloatArray


@dataclass(frozen=True)
class Measured:
    """Figures of one scheduler by sequence, `[sequences]` each, means over the trainings of it."""

    label: str
    figures: dict[str, FloatArray]
    trainings: tuple[dict[str, FloatArray], ...]  # the same of each

    def cell(self, key: str, digits: int = 0) -> str:
        """Return the mean over sequences and half of its 95% interval."""
        values = self.figures[key]
        return f"{np.nanmean(values):.{digits}f} ± {half_width(values):.{digits}f}"

    def average(self, key: str) -> float:
        """Return the mean over sequences."""
        return float(self.figures[key].mean())

    def mean(self, key: str, digits: int = 0, scale: float = 1.0) -> str:
        """Return the mean over sequences that have such jobs."""
        return f"{scale * np.nanmean(self.figures[key]):.{digits}f}"

    def __str__(self) -> str:
        return f"{self.average('wait_s'):.0f} s / {self.average('queue_length'):.2f}"


def measure(log: JobLog, label: str, chosen: Sequence[Policy], drawn: Sequences) -> Measured:
    """Return the figures of a scheduler on sequences of a log.

    Args:
        log: the jobs.
        label: what tables call it.
        chosen: the scheduler, or what several trainings of it gave; of window agents also "stale" and "fwd", see
            `habits`.
        drawn: the sequences.
    """
    found = []
    for each in chosen:
        rows = run_sequences(log, each, drawn)
        figures = {key: np.array([row[key] for row in rows]) for key in rows[0]}
        if isinstance(each.model, WindowModel):
            figures["stale"], figures["fwd"] = habits(log, each.model, drawn)
        found.append(figures)
    means = {key: np.mean([figures[key] for figures in found], axis=0) for key in found[0]}
    return Measured(label, means, tuple(found))


def habits(log: JobLog, model: WindowModel, drawn: Sequences) -> tuple[FloatArray, FloatArray]:
    """Return how an agent uses its window, `[sequences]` each.

    Returns:
        The share of the time in which nothing in the window fits, but a job that waits and is not in it does; and the
        share of decisions, which are made when something in the window fits, that are Fwd.
    """
    arrival, rules, stale, fwd = order("fcfs"), Rules(start=Start.SKIP), [], []
    for start in drawn.starts:
        cut, agent = log.sequence(start, drawn.jobs), model.agent()
        world = new_world(len(cut), int(cut.user.max()) + 1, cut.machine_cores)
        run_on(partial(run_windowed, jobs_of(cut, arrival, rules), config_of(cut, arrival, rules), world, agent), world)
        end = float((world.start + cut.runtime_s).max())
        stale.append(agent.spent[STALE] / (end - cut.submit_s[0]))
        fwd.append(1.0 - len(cut) / world.counts[DECISIONS])  # every other decision starts a job
    return np.array(stale), np.array(fwd)


def half_width(values: FloatArray) -> float:
    """Return half of the 95% interval of a mean (Student's); values that are not numbers do not count."""
    known = values[~np.isnan(values)]
    return float(student_t975(len(known) - 1) * known.std(ddof=1) / np.sqrt(len(known)))


def change(before: FloatArray, after: FloatArray) -> tuple[float, float]:
    """Return how much lower or higher the mean of paired values is afterwards, in percent, and half its 95% interval.

    The interval is that of a ratio of means, linearised: what remains of `after` when the ratio times `before` is
    taken away. So a pair that moves both means alike does not widen it.
    Source: Cochran, "Sampling Techniques", 3rd edition, 1977, section 6.4.

    >>> change(np.array([10.0, 20.0, 30.0]), np.array([5.0, 10.0, 15.0]))
    (-50.0, 0.0)
    """
    ratio = after.mean() / before.mean()
    return float(100.0 * (ratio - 1.0)), 100.0 * half_width(after - ratio * before) / float(before.mean())
