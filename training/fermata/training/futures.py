"""Where in another episode of a scenario the future of a decision may begin: behind moments that look like it.

What comes may depend on what came: a job of a pair on its partner, a batch on a schedule on when the last one came. A
future from behind a moment at which that was otherwise would teach that nothing can be foreseen.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fermata.sim.trace import FloatArray

_LEAST = 16  # moments to draw from, as far as there are so many alike


class Moment(NamedTuple):
    """What is looked at of a moment."""

    last_work_s: float  # of the job that arrived last, executor-seconds
    since_s: float  # since it arrived
    short_s: float  # executor-seconds; jobs of less are short
    without_s: float  # since the last short job arrived; inf: there was none


class Library:
    """The arrivals of an episode that futures are cut from."""

    def __init__(self, arrival_s: FloatArray, work_s: FloatArray) -> None:
        """Take arrivals, in order, and the work of the jobs, [jobs] each."""
        self._arrival_s, self._work_s = arrival_s, np.maximum(work_s, 1e-9)
        self._gap_s = np.diff(arrival_s)  # [jobs - 1] until the next one

    def next_jobs(self, moment: Moment, end: int) -> tuple[NDArray[np.int64], float]:
        """Return the jobs before `end` that could be the next to arrive, and the time since the last one did.

        Each candidate follows a job about as large as the last one, by a longer gap than has passed. Of these are taken
        the ones before which a short job came about as long ago.
        """
        alike = np.abs(np.log(self._work_s[: end - 1] / max(moment.last_work_s, 1e-9))) < math.log(1.5)
        before = np.flatnonzero(alike & (self._gap_s[: end - 1] > moment.since_s))
        if not len(before):
            return np.arange(1, end), 0.0
        if math.isfinite(moment.without_s):
            last_short_s = np.maximum.accumulate(np.where(self._work_s < moment.short_s, self._arrival_s, -math.inf))
            apart_s = np.abs(self._arrival_s[before] + moment.since_s - last_short_s[before] - moment.without_s)
            before = before[np.argsort(apart_s, kind="stable")[: max(_LEAST, len(before) // 10)]]
        return before + 1, moment.since_s
