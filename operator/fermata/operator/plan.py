"""From a decision to the requests that carry it out: which Jobs to create, which to widen, what to hold until when.

And, whatever is decided, which Jobs to stop.

Pure. The one thing that a policy does not know of is a workflow's own parallelism cap over several stages, so starts
are cut here to what it leaves. A cap may also be above what is free: what it begins is then what fits, but a Job would
make pods for all of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from fermata.operator import reasons
from fermata.operator.build_state import Keys
from fermata.operator.facts import JobFact
from fermata.operator.progress import StageKey, WorkflowView
from fermata.policy.action import HOLD, START
from fermata.policy.decide import Step


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do in a pool now."""

    starts: dict[StageKey, int] = field(default_factory=dict)  # cap in tasks
    holds: dict[StageKey, float] = field(default_factory=dict)  # committed holds, until when
    wake_s: float = math.inf  # when the policy wants to be asked again at the latest
    waits: bool = False  # the policy leaves startable stages waiting
    cut: bool = False  # a start was cut, so the policy can be asked again at once


def plan(steps: tuple[Step, ...], keys: Keys, views: Mapping[str, WorkflowView], free: int) -> Plan:
    """Return what a decision asks for.

    Args:
        steps: the decision.
        keys: what its indices stand for.
        views: workflows by uid.
        free: executors that were free.
    """
    starts: dict[StageKey, int] = {}
    holds: dict[StageKey, float] = {}
    room = {uid: view.room for uid, view in views.items() if view.spec.parallelism is not None}
    wake_s, waits, cut = math.inf, False, False
    for step in steps:
        action = step.action
        if action.kind not in (START, HOLD):
            wake_s, waits = action.until_s, True
            continue
        key = keys.stages[action.stage]
        if action.kind == HOLD:
            holds[key] = action.until_s
            continue
        uid, name = key
        stage = next(stage for stage in views[uid].stages if stage.spec.name == name)
        before = starts.get(key, stage.occupied)
        fits = min(action.cap, before + free // stage.slots)
        cap = min(fits, before + room.get(uid, fits))
        cut = cut or cap < fits
        if cap > before:
            starts[key] = cap
            free -= (cap - before) * stage.slots
            if uid in room:
                room[uid] -= cap - before
    return Plan(starts, holds, wake_s, waits, cut)


def unwanted(view: WorkflowView, now_s: float) -> Iterator[tuple[JobFact, str]]:
    """Yield the Jobs of a workflow that are to be stopped, and why."""
    if view.blocked in (reasons.DEADLINE_EXCEEDED, reasons.STAGE_FAILED):
        reason = reasons.DEADLINE_EXCEEDED if view.deadline_s <= now_s else reasons.STOPPED
        yield from ((stage.job, reason) for stage in view.stages if stage.phase == "Running" and stage.job is not None)
    yield from ((job, reasons.STAGE_REMOVED) for job in view.removed if job.goes_on)
