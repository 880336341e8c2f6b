"""Runs of a cluster's Jobs and workflows, and how they become jobs of a trace: in order, with honest estimates.

Estimates are what Fermata would have had when a job arrived: the median of the last runs of its family's stage that had
ended by then, else the mean of all that had, else its guess (`fermata.policy.earlier_runs`). So a policy is judged with
what it would know, and the first run of something new is one that nobody could have foreseen.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from fermata.policy.earlier_runs import EarlierRuns, FamilyStage, Lesson, without_run_suffix
from fermata.sim.importers.base import ImportOptions, JobSink
from fermata.sim.importers.cluster_objects import Meta
from fermata.sim.importers.executor_size import ExecutorSize
from fermata.sim.kube.pod_requests import Requests
from fermata.sim.trace_builder import StageSpec, mean_duration_s

FAMILY = "fermata.dev/family"
NO_PODS = "not all of its pods are in the file (--keep-incomplete fills in how long they may have run)"
NOT_A_POD = "waited for something that is no pod"


class UnfitError(Exception):
    """A run that can be no job of a trace; says why."""


@dataclass(frozen=True)
class RanStage:
    """A stage that ran.

    Args:
        name: unique in its run.
        kind: what it has in common with the same stage of other runs, and may have with others of its own.
        durations_s: how long each of its tasks ran, seconds.
        depends_on: names of its parents.
        end_s: when the last one ended, seconds since the epoch.
        requests: the most that a pod of it requests, of each resource.
    """

    name: str
    kind: str
    durations_s: Sequence[float]
    depends_on: Sequence[str]
    end_s: float
    requests: Requests = field(default_factory=dict)

    def slots(self, executor: ExecutorSize | None) -> int:
        """Return how many executors a task takes: one, unless it is known what an executor is."""
        return executor.slots(self.requests) if executor is not None else 1


@dataclass(frozen=True)
class Run:
    """A Job or a workflow that ran.

    Args:
        meta: of its object.
        family: what its runs have in common.
        stages: at least one.
    """

    meta: Meta
    family: str
    stages: Sequence[RanStage]


def family_of(meta: Meta, maker: str | None) -> str:
    """Return what runs of the same thing have in common: their label, else who makes them, else their name's stem."""
    return meta.label(FAMILY) or maker or without_run_suffix(meta.name)


class SoFar:
    """What had ended by the time at which a job arrived, as one after the other arrives."""

    def __init__(self) -> None:
        self._known = EarlierRuns()
        self._ahead: list[tuple[Lesson, FamilyStage, int]] = []

    def by(self, now_s: float) -> EarlierRuns:
        """Return what is known at a time, which is never before the one asked for last."""
        while self._ahead and self._ahead[0][0].end_s <= now_s:
            lesson, key, slots = heapq.heappop(self._ahead)
            self._known.learn(key, slots, lesson)
        return self._known

    def add(self, key: FamilyStage, slots: int, lesson: Lesson) -> None:
        """Take a stage that is known from its end on."""
        heapq.heappush(self._ahead, (lesson, key, slots))


def add_runs(sink: JobSink, runs: Iterable[Run], options: ImportOptions) -> dict[str, float]:
    """Add runs as jobs, in order of arrival, the first at 0; return the JCT that each had by its uid, seconds."""
    ordered = sorted(runs, key=lambda run: (run.meta.created_s, run.meta.namespace, run.meta.name))
    so_far, seen, jcts_s = SoFar(), Counter[str](), dict[str, float]()
    for run in ordered:
        if sink.full:
            break
        now_s = run.meta.created_s
        known = so_far.by(now_s)
        stages = [_spec(run, stage, known, options) for stage in run.stages]
        title = f"{run.meta.namespace}/{run.meta.name}"
        seen[title] += 1  # a name may be used again once its object is gone
        job_id = title if seen[title] == 1 else f"{title}/{run.meta.uid}"
        sink.add(job_id, now_s - ordered[0].meta.created_s, stages)
        jcts_s[run.meta.uid] = max(stage.end_s for stage in run.stages) - now_s
        for stage in run.stages:
            lesson = Lesson(stage.end_s, f"{run.meta.uid}/{stage.name}", mean_duration_s(stage.durations_s))
            so_far.add(_key(run, stage), stage.slots(options.executor), lesson)
    return jcts_s


def _spec(run: Run, stage: RanStage, known: EarlierRuns, options: ImportOptions) -> StageSpec:
    slots = stage.slots(options.executor)
    return StageSpec(
        name=stage.name,
        durations_s=stage.durations_s,
        depends_on=stage.depends_on,
        slots=slots,
        estimate_s=None if options.exact_estimates else known.of(_key(run, stage), slots).seconds,
    )


def _key(run: Run, stage: RanStage) -> FamilyStage:
    return FamilyStage(run.meta.namespace, run.family, stage.kind)


def most_at_once(spans_s: Iterable[tuple[float, float, int]]) -> int:
    """Return how many executors are in use at most, by from when to when how many are; an end goes before a start."""
    ran = [each for each in spans_s if each[1] > each[0]]
    changes = sorted(change for start_s, end_s, many in ran for change in ((start_s, many), (end_s, -many)))
    most = now = 0
    for _, change in changes:
        now += change
        most = max(most, now)
    return most


def reached(key: str, above: Mapping[str, set[str]], ran: Container[str]) -> set[str]:
    """Return which of those that ran are reached from one against the edges, by way of what did not.

    Args:
        key: where to begin.
        above: by key, what has an edge to it.
        ran: keys of what did.
    """
    found, seen, ahead = set[str](), {key}, [key]
    while ahead:
        for upper in above.get(ahead.pop(), set()) - seen:
            seen.add(upper)
            if upper in ran:
                found.add(upper)
            else:
                ahead.append(upper)
    return found
