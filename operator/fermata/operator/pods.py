"""Pods of stages' Jobs that have not ended: since when each holds its executors, or that it waits for its turn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Any

from fermata.operator import names
from fermata.operator.facts import JobFact, Meta, job_fact, meta_of
from fermata.operator.resources import MAX_TASKS
from fermata.operator.times import parse, refine

Raw = Mapping[str, Any]


class Place(Enum):
    """How far a pod that has not ended has come."""

    AT_GATE = auto()
    DELETED = auto()  # at its gate
    BEGUN = auto()


@dataclass(frozen=True, slots=True)
class PodFact:
    """A pod of a stage's Job, for as long as it runs."""

    meta: Meta
    start_s: float | None
    running: bool
    gates: tuple[str, ...] = ()  # until all of these are gone no node is looked for
    succeeded: bool = False

    @property
    def gated(self) -> bool:
        """Whether it waits for its turn, and holds nothing."""
        return names.GATE in self.gates

    @property
    def place(self) -> Place:
        """How far it has come."""
        if not self.gated:
            return Place.BEGUN
        return Place.DELETED if self.meta.deleting else Place.AT_GATE

    @property
    def index(self) -> int:
        """Which of its Job's tasks it is; what others wrote there comes last."""
        text = self.meta.annotations.get(names.ANNOTATION_INDEX, "")
        return int(text) if text.isdecimal() else MAX_TASKS


def pod_fact(raw: Raw, now_s: float, before: PodFact | None = None) -> PodFact:
    """Return the fact of a pod; an earlier version, `before`, if there was one, has said for good whose it is."""
    meta, status = meta_of(raw), raw.get("status") or {}
    if before is not None:
        meta = replace(meta, owner_uid=before.meta.owner_uid)
    start_s = before.start_s if before else None
    if start_s is None and status.get("startTime"):
        start_s = refine(parse(status["startTime"]), now_s)
    gates = (raw.get("spec") or {}).get("schedulingGates") or []
    waits_at = tuple(str(gate.get("name", "")) for gate in gates)
    phase = status.get("phase")
    return PodFact(meta, start_s, phase in ("Pending", "Running"), waits_at, phase == "Succeeded")


def job_of(pod: PodFact, now_s: float) -> JobFact:
    """Return what a pod tells of a Job of which nothing else is known: namespace, pool, stage and slots."""
    meta = {"uid": pod.meta.owner_uid, "namespace": pod.meta.namespace}
    return job_fact({"metadata": {**meta, "labels": pod.meta.labels, "annotations": pod.meta.annotations}}, now_s)
