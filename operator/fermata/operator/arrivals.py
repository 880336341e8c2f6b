"""The latest arrivals of a pool, by which a policy judges what may come next.

A policy reads rates off them: so many came since the first one. One that came long before the others, or without those
that came with it, makes it believe that next to nothing comes, and it holds next to nothing. Hence two exceptions to
"a workflow arrives when it is created": below, and `came_s`.
"""

from __future__ import annotations

import math
from bisect import insort

from fermata.operator.build_state import Arrival
from fermata.operator.facts import WorkflowFact
from fermata.operator.times import parse_or_none
from fermata.policy.state import RECENT_ARRIVALS


class RecentArrivals:
    """When the latest workflows arrived, how much work they brought and what they weigh, each counted once.

    Args:
        begun_s: since when none is missed. Of those that came earlier, and have a time to live after their end, some
            may have been deleted. So one of these counts if it came within that time: what came later is still there.
    """

    def __init__(self, begun_s: float) -> None:
        self._begun_s = begun_s
        self._rows: list[tuple[float, str, Arrival]] = []  # arrival, uid, all of it; oldest first
        self._by_uid: dict[str, tuple[float, str, Arrival]] = {}

    @property
    def arrivals(self) -> list[Arrival]:
        """The latest ones, oldest first."""
        return [arrival for _, _, arrival in self._rows]

    def note(self, uid: str, arrival: Arrival, kept_s: float = math.inf) -> None:
        """Take in a workflow, or what is thought of it by now; when it arrived is what was said first.

        Args:
            uid: its.
            arrival: of it.
            kept_s: its time to live after its end.
        """
        before = self._by_uid.get(uid)
        if before is None and arrival.arrival_s < self._begun_s - kept_s:
            return
        if before is not None:
            arrival = arrival._replace(arrival_s=before[0])
        row = (arrival.arrival_s, uid, arrival)
        if row == before:
            return
        if before is not None:
            self._rows.remove(before)
        insort(self._rows, row)
        self._by_uid[uid] = row
        while len(self._rows) > RECENT_ARRIVALS:
            del self._by_uid[self._rows.pop(0)[1]]


def came_s(fact: WorkflowFact, begun_s: float | None, now_s: float) -> float:
    """Return when a workflow came to be scheduled: when it was created, if nobody kept it from beginning.

    One that was suspended or not accepted before it began came when it began, or now.

    Args:
        fact: it is accepted and not suspended now, or has begun.
        begun_s: when it began, if it has.
        now_s: the time.
    """
    kept_s = parse_or_none(fact.status.suspended_time)
    if kept_s is None:
        kept_s = fact.rejected_s  # its status says so until it is written that it is accepted
    if kept_s is None or (begun_s is not None and begun_s < kept_s):
        return fact.arrival_s
    return now_s if begun_s is None else begun_s
