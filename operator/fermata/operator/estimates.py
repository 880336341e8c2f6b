"""How long a task will take: what the user says, else what finished stages of its family took, else its class's mean.

What users say is corrected by what stages took of which they had said about as much (`fermata.policy.correction`), if
the pool's policy wants that and it would have missed by less lately. Fed with finished stages, which the statuses of
the API keep, in any order and any number of times: a restarted operator learns the same again, but for how far off
estimates were and how they are corrected, which fades in the order of learning. No cluster, no clock.
"""

from __future__ import annotations

import re
from bisect import insort
from statistics import fmean, median, quantiles
from typing import NamedTuple

from fermata.operator.facts import Meta, WorkflowFact
from fermata.operator.lanes import constant, task_duration_s
from fermata.operator.names import LABEL_FAMILY
from fermata.operator.resources import StageSpec, StageStatus
from fermata.operator.times import parse_or_none
from fermata.policy.correction import corrected_s, learn, learn_order, new_correction, pays
from fermata.policy.estimate_error import after_tasks
from fermata.policy.wording import counted

GIVEN = "estimateSeconds"
UNKNOWN, UNKNOWN_S = "a guess, as nothing has finished in the pool yet", 60.0
LEAST_S = 0.001
_REMEMBERED = 20  # latest durations of each stage of a family: enough for a median, few enough to follow a drift
_REMEMBERED_CLASS = 500
# Stages of families whose runs are kept, those that ran last: names that are never used again must not pile up.
_REMEMBERED_STAGES = 10_000
# A pool begins as if so many tasks had been as expected: one of a new family that was not is no reason for distrust.
_TRUSTED = 10
# What people and generateName append to tell one run from the next: numbers, and five of the letters and digits that
# make no words.
_RUN_SUFFIX = re.compile(r"-(?:[0-9]+|[bcdfghjklmnpqrstvwxz2456789]{5})$")


class Estimate(NamedTuple):
    """Seconds that one task is expected to take, where the number comes from, and the quartiles behind it."""

    seconds: float
    source: str
    quartiles: tuple[float, float] | None = None


class Lesson(NamedTuple):
    """One finished stage; sorts by its end."""

    end_s: float
    uid: str  # of its workflow
    duration_s: float  # of one task


class _Recent:
    """The latest lessons, whatever order they come in."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._rows: list[Lesson] = []
        self._uids: set[str] = set()
        self._estimate: Estimate | None = None

    def add(self, lesson: Lesson) -> bool:
        """Take a lesson, unless it is known or older than all that are kept; tell whether it was taken."""
        # Many may have ended at once, as far as the API's whole seconds tell: what was dropped must not look new.
        if len(self._rows) == self._size and lesson < self._rows[0]:
            return False
        if lesson.uid in self._uids:
            return False
        insort(self._rows, lesson)
        self._uids.add(lesson.uid)
        while len(self._rows) > self._size:
            self._uids.remove(self._rows.pop(0).uid)
        self._estimate = None
        return True

    def __len__(self) -> int:
        return len(self._rows)

    def median(self) -> Estimate:
        """Return the median, which one slow run does not move."""
        if self._estimate is None:
            durations_s = [row.duration_s for row in self._rows]
            spread = None
            if len(durations_s) > 1:
                low_s, _, high_s = quantiles(durations_s, n=4, method="inclusive")
                spread = low_s, high_s
            text = f"median of {counted(len(durations_s), 'earlier run')}"
            self._estimate = Estimate(max(median(durations_s), LEAST_S), text, spread)
        return self._estimate

    def mean(self, where: str) -> Estimate:
        """Return the mean: of an unknown member of a class it is the best guess, where the median is not."""
        if self._estimate is None:
            mean_s = fmean(row.duration_s for row in self._rows)
            self._estimate = Estimate(max(mean_s, LEAST_S), f"mean of {counted(len(self._rows), 'stage')} {where}")
        return self._estimate


def family_of(meta: Meta) -> str:
    """Return the family of a workflow: its label, or its name without the suffix of one run.

    >>> [_RUN_SUFFIX.sub("", name) for name in ("etl-20261", "etl-x7k2p", "etl-daily")]
    ['etl', 'etl', 'etl-daily']
    """
    return meta.labels.get(LABEL_FAMILY) or _RUN_SUFFIX.sub("", meta.name)


def is_guess(estimate_s: float | None, *, given: bool) -> bool:
    """Tell whether an estimate was no more than a guess, which says nothing of how far estimates can be trusted."""
    return not given and estimate_s == UNKNOWN_S


def measured_s(row: StageStatus, tasks: int) -> float:
    """Return how long one task of a stage that ran took, by its status.

    One that an older version wrote does not say so, and counts as run with its last cap from the start.
    """
    if row.task_seconds is not None:
        return row.task_seconds
    return task_duration_s(row.run_seconds or 0.0, tasks, constant(row.parallelism or 1))


class Estimates:
    """Durations of finished tasks of one pool, by family and stage, and by class: tasks of so many slots."""

    def __init__(self) -> None:
        self._stages: dict[tuple[str, str, str], _Recent] = {}
        self._classes: dict[int, _Recent] = {}
        self._pool = _Recent(_REMEMBERED_CLASS)
        self.trust = 0.0, 0.0  # how far off estimates were lately, `fermata.policy.estimate_error`
        self._measured = _TRUSTED
        self.corrects = False  # whether what users say is corrected
        self._correction = new_correction()
        # Of workflows that go on, by uid: executor-seconds of finished stages as given, as expected, as they took.
        self._works_s: dict[str, list[float]] = {}

    def measure(self, duration_s: float, estimate_s: float, tasks: int = 1) -> None:
        """Note how long each task of a finished stage took, and how long it had been expected to take."""
        tasks = max(tasks, 1)  # a status that somebody wrote may say of none
        self.trust = after_tasks(*self.trust, self._measured, tasks, duration_s, estimate_s)
        self._measured += tasks

    def learn(
        self,
        meta: Meta,
        stage: str,
        slots: int,
        duration_s: float,
        end_s: float,
        given_s: float | None = None,
        tasks: int = 1,
    ) -> bool:
        """Take a finished stage; tell whether it was new.

        Args:
            meta: of its workflow.
            stage: its name.
            slots: executors that one of its tasks takes.
            duration_s: of one task.
            end_s: when it ended, seconds since the epoch.
            given_s: what its user said that one would take, if anything.
            tasks: that it had.
        """
        lesson = Lesson(end_s, meta.uid, duration_s)
        key = meta.namespace, family_of(meta), stage
        known = self._stages.pop(key, None) or _Recent(_REMEMBERED)
        self._stages[key] = known  # the latest one at the end
        if len(self._stages) > _REMEMBERED_STAGES:
            del self._stages[next(iter(self._stages))]
        if not known.add(lesson):
            return False
        if given_s is not None:
            given_s = float(given_s)  # one kind of number: compiled once
            work_s = self._works_s.setdefault(meta.uid, [0.0, 0.0, 0.0])
            for at, seconds in enumerate((given_s, corrected_s(self._correction, given_s), duration_s)):
                work_s[at] += tasks * slots * seconds
            learn(self._correction, given_s, duration_s)
        # A workflow has many stages, and a class knows its members by uid.
        member = lesson._replace(uid=f"{meta.uid}/{stage}")
        self._classes.setdefault(slots, _Recent(_REMEMBERED_CLASS)).add(member)
        self._pool.add(member)
        return True

    def learn_all(self, workflow: WorkflowFact) -> None:
        """Take the finished stages of a workflow that has ended from its status, and what it took in all."""
        specs = {stage.name: stage for stage in workflow.spec.stages} if workflow.spec else {}
        for row in workflow.status.stages:
            ended_s = parse_or_none(row.completion_time)
            if row.state == "Succeeded" and row.run_seconds is not None and ended_s is not None:
                duration_s = measured_s(row, row.tasks)
                spec = specs.get(row.name)
                slots, given_s = (spec.slots, spec.estimate_seconds) if spec else (1, None)
                new = self.learn(workflow.meta, row.name, slots, duration_s, ended_s, given_s, row.tasks)
                given = row.estimate_source.startswith(GIVEN)
                if new and row.estimate_seconds and not is_guess(row.estimate_seconds, given=given):
                    self.measure(duration_s, row.estimate_seconds, row.tasks)
        work_s = self._works_s.pop(workflow.meta.uid, None)
        if work_s is not None and all(row.state == "Succeeded" for row in workflow.status.stages):
            learn_order(self._correction, *work_s)

    def forget(self, uid: str) -> None:
        """Leave a workflow that is gone, and never ended, out of what ends are compared with."""
        self._works_s.pop(uid, None)

    def lessons(self, meta: Meta, stage: str) -> int:
        """Return how many runs of a family's stage are known."""
        return len(self._stages.get((meta.namespace, family_of(meta), stage), ()))

    @property
    def ripeness(self) -> tuple[int, bool]:
        """Changes when many estimates do: twice as many stages of a class are known, or corrections begin or end."""
        known = sum(len(members).bit_length() for members in self._classes.values())
        return known, self._is_correcting

    @property
    def _is_correcting(self) -> bool:
        return self.corrects and pays(self._correction)

    def of(self, meta: Meta, stage: StageSpec) -> Estimate:
        """Return what one task of a stage is expected to take."""
        if stage.estimate_seconds is not None:
            return self._given(stage.estimate_seconds)
        known = self._stages.get((meta.namespace, family_of(meta), stage.name))
        if known is not None:
            return known.median()
        if stage.slots in self._classes:
            return self._classes[stage.slots].mean(f"of {counted(stage.slots, 'slot')} in the pool")
        if self._classes:
            return self._pool.mean("in the pool")
        return Estimate(UNKNOWN_S, UNKNOWN)

    def _given(self, given_s: int) -> Estimate:
        """Return what is expected of a task of which a user says so much."""
        if not self._is_correcting:
            return Estimate(float(given_s), GIVEN)
        seconds = max(corrected_s(self._correction, float(given_s)), LEAST_S)
        return Estimate(seconds, f"{GIVEN} {given_s}, corrected by what such stages took")
