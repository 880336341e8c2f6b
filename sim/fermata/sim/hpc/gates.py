"""What was aimed at and whether it is reached: one row a gate, from the figures that the results page measures.

Waits that differ by less than 3% count as equal: so much the order of ties may be worth. Means are compared, not
intervals, so where two are close the draw of the sequences decides.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

WAIT_NOISE = 1.03
POINT = 1.0  # percentage point of utilisation
RULE, RESERVATION, INSPECTOR, QUEUE_POLICY = "rule", "reservation", "inspector", "queue"


class Point(NamedTuple):
    """What one policy got on some sequences."""

    name: str
    kind: str  # RULE, RESERVATION, INSPECTOR or QUEUE_POLICY
    bsld: float
    wait_s: float
    base: str = ""  # of an inspector: what it inspects
    trained_on: str = ""
    points: float = 0.0  # utilisation with the tail, percentage points above SAF EASY's; of an inspector, its base's

    def __str__(self) -> str:
        return f"{self.bsld:.2f} / {self.wait_s:.0f} (`{self.name}`)"


class Gate(NamedTuple):
    """One aim."""

    what: str
    figure: str
    met: bool

    @property
    def row(self) -> list[str]:
        """Return the cells of its row."""
        return [self.what, self.figure, "yes" if self.met else "**no**"]


def lublin_gates(points: Mapping[str, Point]) -> Iterator[Gate]:
    """Yield the gates of Lublin's log, on the published draws; `points` by name."""
    for name, wanted in (
        ("published-sjf", 333.196),
        ("published-sjf-backfill", 59.05),
        ("published-saf-backfill", 44.99),
    ):
        found = points[name].bsld
        yield Gate(f"`{name}`: bsld {wanted:g}, exact", f"{found:.3f}", abs(found - wanted) < 0.005)
    base = points["saf+easy/skip"]
    wait = f"{base.wait_s:.0f} s of SAF EASY"
    inspectors = [each for each in points.values() if each.kind == INSPECTOR]
    yield _least(
        "inspector on SJF, commit, no backfilling: bsld ≤ 45", [p for p in inspectors if p.base == "sjf"], 45.0
    )
    on_easy = [p for p in inspectors if p.base == base.name]
    yield _least(f"inspector on SAF EASY: bsld ≤ 12, wait ≤ 1.1 x {wait}", on_easy, 12.0, 1.1 * base.wait_s)
    queues = [p for p in points.values() if p.kind == QUEUE_POLICY]
    yield _least(f"policy over the queue: bsld ≤ 10, wait ≤ 1.05 x {wait}", queues, 10.0, 1.05 * base.wait_s)
    yield _least("another setting: bsld ≤ 5.5", queues, 5.5)


def front_gate(log: str, points: Sequence[Point], shipped: Sequence[str]) -> Gate:
    """Return whether no rule, reservation or inspector is better in both bsld and wait than what is on the front.

    The front are the policies over the queue that no other of them is better than in both; settings that ship and lie
    behind a rule, a reservation or an inspector on this log are named, though they are not on it.
    """
    own = [p for p in points if p.kind == QUEUE_POLICY]
    front = [p for p in own if not any(_dominates(each, p) for each in own)]
    others = [p for p in points if p.kind != QUEUE_POLICY]
    told = {p.name: "; ".join(f"`{p.name}` by `{each.name}`" for each in others if _dominates(each, p)) for p in own}
    above = [told[p.name] for p in front if told[p.name]]
    behind = [told[p.name] for p in own if p.name in shipped and p not in front and told[p.name]]
    figure = "; ".join(above) or "nothing does"
    if behind:
        figure += "; behind the front: " + "; ".join(behind)
    return Gate(f"{log}: a front that nothing else dominates", figure, not above)


def _dominates(one: Point, other: Point) -> bool:
    """Return whether one is at least as good in both and better in one."""
    return (
        one.bsld <= other.bsld and one.wait_s <= other.wait_s and (one.bsld, one.wait_s) != (other.bsld, other.wait_s)
    )


def reservation_gates(log: str, points: Sequence[Point], which: str) -> Iterator[Gate]:
    """Yield whether policies over the queue beat the tuned reservation at its wait: trained there, carried over."""
    reservation = next(p for p in points if p.kind == RESERVATION)
    for how, chosen in _queues(log, points):
        what = f"{which}: below the reservation's {reservation}, {how}"
        yield _least(what, chosen, reservation.bsld, WAIT_NOISE * reservation.wait_s)


def slowdown_gates(log: str, points: Sequence[Point], which: str, aim: float) -> Iterator[Gate]:
    """Yield whether they reach a slowdown within the wait of the reservation that is tuned for slowdown alone."""
    wait_s = min((p for p in points if p.kind == RESERVATION), key=lambda p: p.bsld).wait_s
    for how, chosen in _queues(log, points):
        what = f"{which}: bsld ≤ {aim:.2f}, wait ≤ {wait_s:.0f} s of the reservation for bsld alone, {how}"
        yield _least(what, chosen, aim, wait_s)


def _queues(log: str, points: Sequence[Point]) -> Iterator[tuple[str, list[Point]]]:
    """Yield the policies over the queue that were trained on a log, and the others; not what there is none of."""
    queues = [p for p in points if p.kind == QUEUE_POLICY]
    for how, chosen in (
        ("trained on it", [p for p in queues if p.trained_on == log]),
        ("carried over", [p for p in queues if p.trained_on != log]),
    ):
        if chosen:
            yield how, chosen


def utilisation_gate(which: str, points: Sequence[Point], shipped: Sequence[str]) -> Gate:
    """Return whether a policy that ships stays within a point of utilisation, and which do not."""
    own = [p for p in points if p.name in shipped]
    kept, lost = [p for p in own if p.points >= -POINT], [p for p in own if p.points < -POINT]
    told = "within: " + (", ".join(f"`{p.name}` {p.points:+.2f}" for p in kept) or "none")
    if lost:
        told += "; not: " + ", ".join(f"`{p.name}` {p.points:+.2f}" for p in lost)
    return Gate(f"{which}: utilisation within a point of SAF EASY", told, bool(kept))


def _least(what: str, points: Sequence[Point], bsld: float, wait_s: float = float("inf")) -> Gate:
    """Return a gate of the least bounded slowdown among points that wait little enough; the nearest if none does."""
    allowed = [p for p in points if p.wait_s <= wait_s]
    if not allowed:
        nearest = min(points, key=lambda p: p.wait_s, default=None)
        return Gate(what, str(nearest) if nearest else "not measured", False)
    best = min(allowed, key=lambda p: p.bsld)
    return Gate(what, str(best), best.bsld <= bsld)
