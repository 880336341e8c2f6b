"""How long a task will take: what the user says, else what finished stages of its family took, else the pool's mean.

Fed with the statuses of finished workflows, which the API keeps, so a restarted operator learns the same again. No
cluster, no clock.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from statistics import fmean, median
from typing import NamedTuple

from fermata.operator.facts import Meta, WorkflowFact
from fermata.operator.names import LABEL_FAMILY
from fermata.operator.resources import StageSpec

UNKNOWN_S = 60.0  # of a task of which nothing at all is known
_REMEMBERED = 50  # latest durations kept for each stage of a family
_REMEMBERED_POOL = 500
# What generateName and people append to tell one run from the next.
_RUN_SUFFIX = re.compile(r"-(?:[0-9]+|[a-z0-9]{5})$")


class Estimate(NamedTuple):
    """Seconds that one task is expected to take, and where the number comes from."""

    seconds: float
    source: str


def family_of(meta: Meta) -> str:
    """Return the family of a workflow: its label, or its name without the suffix of one run.

    >>> _RUN_SUFFIX.sub("", "etl-20261")
    'etl'
    """
    return meta.labels.get(LABEL_FAMILY) or _RUN_SUFFIX.sub("", meta.name)


class Estimates:
    """Durations of finished tasks of one pool, by family and stage."""

    def __init__(self) -> None:
        self._stages: defaultdict[tuple[str, str, str], deque[float]] = defaultdict(lambda: deque(maxlen=_REMEMBERED))
        self._pool: deque[float] = deque(maxlen=_REMEMBERED_POOL)
        self._learned: set[str] = set()

    def learn(self, workflow: WorkflowFact) -> None:
        """Take the task durations of a finished workflow, once."""
        if not workflow.finished or workflow.meta.uid in self._learned:
            return
        self._learned.add(workflow.meta.uid)
        for stage in workflow.status.stages:
            if stage.state == "Succeeded" and stage.run_seconds is not None:
                waves = -(-max(stage.tasks, 1) // max(stage.parallelism or 1, 1))
                duration_s = stage.run_seconds / waves
                self._stages[workflow.meta.namespace, family_of(workflow.meta), stage.name].append(duration_s)
                self._pool.append(duration_s)

    def forget(self, uid: str) -> None:
        """Drop the mark of a deleted workflow; what it taught stays."""
        self._learned.discard(uid)

    def of(self, meta: Meta, stage: StageSpec) -> Estimate:
        """Return what one task of a stage is expected to take."""
        if stage.estimate_seconds is not None:
            return Estimate(float(stage.estimate_seconds), "estimateSeconds")
        known = self._stages.get((meta.namespace, family_of(meta), stage.name))
        if known:
            return Estimate(max(median(known), 0.001), f"median of {len(known)} earlier runs")
        if self._pool:
            return Estimate(max(fmean(self._pool), 0.001), "mean of the pool")
        return Estimate(UNKNOWN_S, "unknown")
