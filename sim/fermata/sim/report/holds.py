"""What holds cost and what they saved: each held stage's job, and the jobs that overtook it, against the base run.

Two schedules of the same arrivals drift apart after their first different decision, so a difference of one job is not
caused by one hold alone. The sums are exact all the same: together the jobs' differences are what the policy gained.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fermata.sim.report.schedule import Schedule
from fermata.sim.trace import FloatArray

WORST, BEST = 10, 5


class HoldEffect(NamedTuple):
    """One stage that was held, and what followed; seconds, negative changes are savings."""

    unit: str  # seed, or whatever tells schedules apart
    job: str
    stage: str
    work_s: float  # of the whole job
    from_s: float
    until_s: float
    held_s: float
    job_change_s: float  # its JCT minus its JCT in the base
    overtook: int  # other jobs that first started after a hold began and before the held job went on
    others_change_s: float  # the sum over these of JCT minus JCT in the base

    @property
    def net_s(self) -> float:
        """What the held job lost and those that overtook it gained, together."""
        return self.job_change_s + self.others_change_s


@dataclass(frozen=True)
class HoldSummary:
    """All holds of a policy: how many, how long, how many paid; and those that cost or saved the most."""

    count: int = 0
    held_s: float = 0.0
    paid: int = 0
    worst: tuple[HoldEffect, ...] = ()
    best: tuple[HoldEffect, ...] = ()

    def __add__(self, other: HoldSummary) -> HoldSummary:
        return HoldSummary(
            self.count + other.count,
            self.held_s + other.held_s,
            self.paid + other.paid,
            _first((*self.worst, *other.worst), WORST, most=True),
            _first((*self.best, *other.best), BEST, most=False),
        )


def _first(effects: Iterable[HoldEffect], number: int, *, most: bool) -> tuple[HoldEffect, ...]:
    sign = -1.0 if most else 1.0
    return tuple(sorted(effects, key=lambda effect: (sign * effect.net_s, effect.unit, effect.from_s))[:number])


def summary_of(effects: Iterable[HoldEffect]) -> HoldSummary:
    """Return the summary of some holds."""
    known = list(effects)
    return HoldSummary(
        len(known),
        sum(effect.held_s for effect in known),
        sum(effect.net_s < 0.0 for effect in known),
        _first((effect for effect in known if effect.net_s > 0.0), WORST, most=True),
        _first((effect for effect in known if effect.net_s < 0.0), BEST, most=False),
    )


def _task_starts_s(schedule: Schedule) -> list[FloatArray]:
    """Return for each job when its tasks start, in order."""
    tasks = schedule.tasks
    order = np.lexsort((tasks.start_s, tasks.job))
    bounds = np.searchsorted(tasks.job[order], np.arange(len(schedule.job_ids) + 1))
    return np.split(tasks.start_s[order], bounds)[1:-1]


def _waits(task_s: FloatArray, spans: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return from when until when a job waited because a stage was held: from each hold to its next task's start.

    Holds without a task between are one wait, although too few executors were free for a while: whoever took them
    passed the stage. Without a next task a wait ends with the hold.
    """
    waits: list[tuple[float, float]] = []
    for start_s, end_s in sorted(spans):
        after = np.searchsorted(task_s, end_s)
        on_s = float(task_s[after]) if after < len(task_s) else end_s
        if waits and start_s <= waits[-1][1]:
            waits[-1] = (waits[-1][0], on_s)
        else:
            waits.append((start_s, on_s))
    return waits


def effects_of(schedule: Schedule, base: Schedule, unit: str = "") -> list[HoldEffect]:
    """Return what became of every held stage of a schedule, over the jobs that both schedules have.

    A stage that was held twice, with a time between in which it ran or too few executors were free, is one hold. What
    starts while it runs has not overtaken it.
    """
    base_jct_s = dict(zip(base.job_ids, base.jct_s.tolist(), strict=True))
    change_s = schedule.jct_s - np.array([base_jct_s.get(job, np.nan) for job in schedule.job_ids])
    known = np.nan_to_num(change_s)
    order = np.argsort(schedule.start_s, kind="stable")
    starts_s, sums_s = schedule.start_s[order], np.concatenate([[0.0], np.cumsum(known[order])])
    held: dict[tuple[int, str], list[tuple[float, float]]] = {}
    holds = schedule.holds
    for start_s, end_s, job, stage in zip(
        holds.start_s.tolist(), holds.end_s.tolist(), holds.job.tolist(), holds.stage, strict=True
    ):
        held.setdefault((job, stage), []).append((start_s, end_s))
    task_starts_s = _task_starts_s(schedule)
    effects = []
    for (job, stage), spans in held.items():
        if job < 0 or np.isnan(change_s[job]):
            continue
        overtook, others_s, own_place = 0, 0.0, np.searchsorted(starts_s, schedule.start_s[job])
        for wait in _waits(task_starts_s[job], spans):
            first, end = np.searchsorted(starts_s, wait).tolist()
            own = first <= own_place < end  # another stage of the job started meanwhile
            overtook += end - first - int(own)
            others_s += float(sums_s[end] - sums_s[first] - (known[job] if own else 0.0))
        effects.append(
            HoldEffect(
                unit=unit,
                job=schedule.job_ids[job],
                stage=stage,
                work_s=float(schedule.work_s[job]),
                from_s=min(span[0] for span in spans),
                until_s=max(span[1] for span in spans),
                held_s=sum(stop - start for start, stop in spans),
                job_change_s=float(change_s[job]),
                overtook=overtook,
                others_change_s=others_s,
            )
        )
    return effects
