"""Whose turn it is in Jobs whose pods wait at a gate: tasks that were given executors, and pods to be let through.

That a task was given one is remembered here alone, and only until its pod is let through; what is let through holds
its executors, as everybody can see. An operator that is started anew in between gives them away once more.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from fermata.operator.facts import JobFact
from fermata.operator.pods import Place, PodFact


class Turns:
    """Turns of tasks, by the uid of their Job."""

    def __init__(self) -> None:
        self._owed: dict[str, int] = {}  # tasks whose turn it is, and no pod of theirs was let through yet
        self._ended: dict[str, tuple[int, float]] = {}  # pods that were let through and succeeded, and their seconds

    def give(self, job: str, tasks: int) -> None:
        """Let it be the turn of so many more tasks of a Job, or of fewer."""
        self._owed[job] = max(self._owed.get(job, 0) + tasks, 0)

    def passed(self, job: str) -> None:
        """Note that a pod of a Job was let through."""
        if job in self._owed:  # or somebody else has let it through
            self.give(job, -1)

    def succeeded(self, job: str, took_s: float) -> None:
        """Note that a pod of a Job that had been let through has succeeded."""
        number, total_s = self._ended.get(job, (0, 0.0))
        self._ended[job] = number + 1, total_s + max(took_s, 0.0)

    def forget(self, job: str) -> None:
        """Drop what is kept of a Job."""
        self._owed.pop(job, None)
        self._ended.pop(job, None)

    def told(self, job: JobFact, pods: Mapping[Place, int], now_s: float) -> JobFact:
        """Return what is known of a gated Job, with how many of its pods that have not ended are where."""
        begun, at_gate, deleted = (pods.get(place, 0) for place in (Place.BEGUN, Place.AT_GATE, Place.DELETED))
        uid, present, left = job.meta.uid, begun + at_gate + deleted, job.completions - job.succeeded
        # Somebody may have lowered its parallelism: there will be no pods for more.
        most = min(job.parallelism, left)
        owed = min(self._owed.get(uid, 0), max(most - begun, 0) if job.begins_more else 0)
        # After a failure pods may be made again in minutes only, and for one that was deleted at its gate when it is
        # tidied up: until then it is the turn of those that are there.
        lacks_pods = job.begins_more and max(job.active, present) - deleted < most
        lacks_pods = lacks_pods and (job.failed > 0 or deleted > 0)
        owed = min(owed, at_gate) if lacks_pods else owed
        if owed:
            self._owed[uid] = owed
        else:
            self._owed.pop(uid, None)
        number, total_s = self._ended.get(uid, (0, 0.0))
        task_s = total_s / number if number else None
        unsettled = max(job.active - present, 0) + job.uncounted
        absent = max(left - begun - unsettled - at_gate, 0) if lacks_pods else 0
        told = replace(job, let_in=begun, owed=owed, unsettled=unsettled, absent=absent, task_s=task_s)
        # Also where what holds executors is not seen, as a pod that somebody took the label from that it is found by.
        lacks_ready = job.begins_more and job.ready < min(told.occupied, left)
        return replace(told, idle_s=min(job.idle_s, now_s) if lacks_ready else math.inf)

    def due(self, job: str, pods: Iterable[PodFact]) -> Iterator[PodFact]:
        """Yield the pods of a Job that are to be let through, in the order of their tasks."""
        waiting = sorted((pod for pod in pods if pod.place is Place.AT_GATE), key=lambda pod: pod.index)
        yield from waiting[: self._owed.get(job, 0)]

    def __iter__(self) -> Iterator[str]:
        """Yield the Jobs of which pods are to be let through."""
        return iter(list(self._owed))
