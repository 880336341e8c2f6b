"""The latest arrivals of a pool, by which a policy judges what may come next."""

from __future__ import annotations

from bisect import insort

from fermata.operator.build_state import Arrival
from fermata.policy.state import RECENT_ARRIVALS


class RecentArrivals:
    """When the latest workflows arrived and how much work they brought, each counted once."""

    def __init__(self) -> None:
        self._rows: list[tuple[float, str, float]] = []  # arrival, uid, work; oldest first
        self._by_uid: dict[str, tuple[float, str, float]] = {}

    @property
    def arrivals(self) -> list[Arrival]:
        """The latest ones, oldest first."""
        return [Arrival(arrival_s, work_s) for arrival_s, _, work_s in self._rows]

    def note(self, uid: str, arrival_s: float, work_s: float) -> None:
        """Take in a workflow, or what its work is thought to be by now; it arrived when it was first noted."""
        before = self._by_uid.get(uid)
        row = (before[0] if before else arrival_s, uid, work_s)
        if row == before:
            return
        if before is not None:
            self._rows.remove(before)
        insort(self._rows, row)
        self._by_uid[uid] = row
        while len(self._rows) > RECENT_ARRIVALS:
            del self._by_uid[self._rows.pop(0)[1]]
