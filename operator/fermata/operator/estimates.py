"""How long a task will take: what the user says, else what finished stages of its family took, else its class's mean.

What users say is corrected by what stages took of which they had said about as much (`fermata.policy.correction`), if
the pool's policy wants that and it would have missed by less lately. Fed with finished stages, which the statuses of
the API keep, in any order and any number of times: a restarted operator learns the same again, but for how far off
estimates were and how they are corrected, which fades in the order of learning. No cluster, no clock.
"""

from __future__ import annotations

from fermata.operator.facts import Meta, WorkflowFact
from fermata.operator.lanes import constant, task_duration_s
from fermata.operator.names import LABEL_FAMILY
from fermata.operator.resources import StageSpec, StageStatus
from fermata.operator.times import parse_or_none
from fermata.policy.correction import corrected_s, learn, learn_order, new_correction, pays
from fermata.policy.earlier_runs import UNKNOWN_S, EarlierRuns, Estimate, FamilyStage, Lesson, without_run_suffix
from fermata.policy.estimate_error import after_tasks

GIVEN = "estimateSeconds"
# A pool begins as if so many tasks had been as expected: one of a new family that was not is no reason for distrust.
_TRUSTED = 10


def family_of(meta: Meta) -> str:
    """Return the family of a workflow: its label, or its name without the suffix of one run."""
    return meta.labels.get(LABEL_FAMILY) or without_run_suffix(meta.name)


def _key(meta: Meta, stage: str) -> FamilyStage:
    return FamilyStage(meta.namespace, family_of(meta), stage)


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
    """What the tasks of one pool will take, and how far what was expected of them was off."""

    def __init__(self) -> None:
        self._runs = EarlierRuns()
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
        if not self._runs.learn(_key(meta, stage), slots, Lesson(end_s, meta.uid, duration_s)):
            return False
        if given_s is not None:
            given_s = float(given_s)  # one kind of number: compiled once
            work_s = self._works_s.setdefault(meta.uid, [0.0, 0.0, 0.0])
            for at, seconds in enumerate((given_s, corrected_s(self._correction, given_s), duration_s)):
                work_s[at] += tasks * slots * seconds
            learn(self._correction, given_s, duration_s)
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
        return self._runs.runs(_key(meta, stage))

    @property
    def ripeness(self) -> tuple[int, bool]:
        """Changes when many estimates do: twice as many stages of a class are known, or corrections begin or end."""
        return self._runs.ripeness, self._is_correcting

    @property
    def _is_correcting(self) -> bool:
        return self.corrects and pays(self._correction)

    def of(self, meta: Meta, stage: StageSpec) -> Estimate:
        """Return what one task of a stage is expected to take."""
        if stage.estimate_seconds is not None:
            return self._given(stage.estimate_seconds)
        return self._runs.of(_key(meta, stage.name), stage.slots)

    def _given(self, given_s: int) -> Estimate:
        """Return what is expected of a task of which a user says so much."""
        if not self._is_correcting:
            return Estimate(float(given_s), GIVEN)
        seconds = corrected_s(self._correction, float(given_s))
        return Estimate(seconds, f"{GIVEN} {given_s}, corrected by what such stages took")
