"""What counts as reached: aims worked by hand, on both sides of their limits."""

from __future__ import annotations

import pytest

from fermata.sim.hpc.gates import (
    INSPECTOR,
    QUEUE_POLICY,
    RESERVATION,
    RULE,
    Gate,
    Point,
    front_gate,
    lublin_gates,
    reservation_gates,
    slowdown_gates,
    utilisation_gate,
)


def queue(name: str, bsld: float, wait_s: float, trained_on: str = "model", points: float = 0.0) -> Point:
    return Point(name, QUEUE_POLICY, bsld, wait_s, trained_on=trained_on, points=points)


def lublin(*own: Point) -> dict[str, Gate]:
    rules = [
        Point("published-sjf", RULE, 333.196, 24498.0),
        Point("published-sjf-backfill", RULE, 59.05, 12140.0),
        Point("published-saf-backfill", RULE, 44.0, 6842.0),
        Point("saf+easy/skip", RULE, 21.44, 4000.0),
    ]
    return {gate.what: gate for gate in lublin_gates({each.name: each for each in (*rules, *own)})}


def test_aims_on_lublins_log_by_hand() -> None:
    found = lublin(
        Point("slow", INSPECTOR, 11.0, 4401.0, base="saf+easy/skip"),
        Point("right", INSPECTOR, 12.0, 4400.0, base="saf+easy/skip"),
        Point("picks", INSPECTOR, 45.1, 9000.0, base="sjf"),
        queue("queue-a", 9.9, 4200.0),
        queue("queue-b", 5.6, 6000.0),
    )
    reached = [gate.met for gate in found.values()]
    # Three exact figures, of which the third is not; inspectors on SJF (45.1) and SAF EASY (the one within the wait);
    # policies over the queue, of which the second comes to 5.6 only.
    assert reached == [True, True, False, False, True, True, False]
    assert found["another setting: bsld ≤ 5.5"].row == [
        "another setting: bsld ≤ 5.5",
        "5.60 / 6000 (`queue-b`)",
        "**no**",
    ]
    on_easy = next(gate for what, gate in found.items() if "on SAF EASY" in what)
    assert on_easy.figure == "12.00 / 4400 (`right`)"


@pytest.mark.parametrize(
    ("aim", "kind", "base", "bsld", "wait_s"),
    [
        ("inspector on SJF", INSPECTOR, "sjf", 45.0, None),
        ("inspector on SAF EASY", INSPECTOR, "saf+easy/skip", 12.0, 4400.0),
        ("policy over the queue", QUEUE_POLICY, "", 10.0, 4200.0),
        ("another setting", QUEUE_POLICY, "", 5.5, None),
    ],
)
def test_an_aim_is_reached_at_its_limits_and_not_beyond(
    aim: str, kind: str, base: str, bsld: float, wait_s: float | None
) -> None:
    def met(bsld: float, wait_s: float) -> bool:
        other = Point("other", INSPECTOR, 1.0, 1.0, base="fcfs")  # what it inspects is no aim
        found = lublin(other, Point("own", kind, bsld, wait_s, base=base))
        return next(gate.met for what, gate in found.items() if what.startswith(aim))

    assert met(bsld, wait_s or 99_999.0)
    assert not met(bsld + 0.01, 1.0)
    assert wait_s is None or not met(bsld, wait_s + 1.0)


@pytest.mark.parametrize(
    ("name", "published"),
    [("published-sjf", 333.196), ("published-sjf-backfill", 59.05), ("published-saf-backfill", 44.99)],
)
def test_a_published_figure_is_met_to_the_digits_that_it_has(name: str, published: float) -> None:
    for off, met in ((-0.006, False), (-0.004, True), (0.004, True), (0.006, False)):
        found = lublin(Point(name, RULE, published + off, 6842.0))
        assert next(gate.met for what, gate in found.items() if what.startswith(f"`{name}`:")) is met


def test_an_aim_that_nothing_was_measured_for_is_not_reached() -> None:
    found = lublin(queue("queue-b", 1.0, 9000.0), queue("queue-a", 9.9, 4300.0))
    on_sjf = next(gate for what, gate in found.items() if "on SJF" in what)
    assert on_sjf.row[1:] == ["not measured", "**no**"]
    swift = next(gate for what, gate in found.items() if "1.05 x" in what)
    assert swift.row[1:] == ["9.90 / 4300 (`queue-a`)", "**no**"], "nearest, but it waits too long"


@pytest.mark.parametrize(("wait_s", "met"), [(1029.0, True), (1031.0, False)])
def test_a_reservation_is_beaten_at_its_wait_or_not_at_all(wait_s: float, met: bool) -> None:
    points = [
        Point("saf", RULE, 1.0, 1.0),
        Point("fair", RESERVATION, 5.0, 1000.0),
        Point("lavish", RESERVATION, 2.0, 9000.0),
        queue("queue-own", 4.9, wait_s, trained_on="log"),
        queue("queue-late", 1.0, 1100.0),
        queue("queue-carried", 5.1, 900.0),
    ]
    own, carried = reservation_gates("log", points, "log, test")
    assert own.met is met
    assert (carried.met, carried.figure) == (False, "5.10 / 900 (`queue-carried`)")
    assert [gate.what.rpartition(", ")[2] for gate in (own, carried)] == ["trained on it", "carried over"]
    assert len(list(reservation_gates("other", points, "other"))) == 1, "nothing was trained on it"
    own, carried = slowdown_gates("log", points, "log", 2.5)
    assert (own.met, carried.met, carried.figure) == (False, True, "1.00 / 1100 (`queue-late`)")
    assert "bsld ≤ 2.50, wait ≤ 9000 s" in carried.what
    late = [*points, queue("queue-later", 0.5, 9001.0)]
    assert list(slowdown_gates("log", late, "log", 2.5))[1] == carried, "nothing that waits longer than the reservation"


def test_the_front_is_dominated_only_by_what_is_better_in_both() -> None:
    points = [queue("queue-a", 5.0, 1000.0), queue("queue-b", 7.0, 800.0), Point("saf", RULE, 4.9, 1001.0)]
    assert front_gate("log", points, ["queue-a"]).met
    worse = front_gate("log", [*points, Point("sjf", RULE, 5.0, 999.0)], ["queue-a"])
    assert (worse.met, worse.figure) == (False, "`queue-a` by `sjf`")


@pytest.mark.parametrize(
    ("bsld", "wait_s", "met"),
    [(5.0, 999.0, False), (4.9, 1000.0, False), (5.0, 1000.0, True), (4.9, 1001.0, True), (5.1, 999.0, True)],
)
def test_what_is_as_good_in_one_and_better_in_the_other_dominates(bsld: float, wait_s: float, met: bool) -> None:
    assert front_gate("log", [queue("queue-a", 5.0, 1000.0), Point("saf", RULE, bsld, wait_s)], []).met is met


def test_a_setting_behind_the_front_is_named_and_does_not_count() -> None:
    points = [
        queue("queue-a", 5.0, 1000.0),
        queue("queue-b", 6.0, 1100.0),
        queue("queue-mine", 4.0, 900.0),
        Point("inspector", INSPECTOR, 4.5, 950.0),
    ]
    gate = front_gate("log", points, ["queue-a"])
    assert (gate.met, gate.figure) == (True, "nothing does; behind the front: `queue-a` by `inspector`")
    assert front_gate("log", points[:3], ["queue-a"]).figure == "nothing does", "of another setting it is no news"
    assert not front_gate("log", [*points, Point("saf", RULE, 4.0, 899.0)], ["queue-a"]).met
    twice = [queue("queue-a", 5.0, 1000.0), queue("queue-mine", 5.0, 1000.0)]
    assert not front_gate("log", [*twice, Point("saf", RULE, 4.0, 900.0)], []).met, "equal points are both on it"


def test_utilisation_within_a_point_names_who_keeps_it() -> None:
    points = [
        queue("queue-a", 5.0, 1.0, points=-0.96),
        queue("queue-b", 4.0, 1.0, points=-1.04),
        queue("own", 3.0, 1.0),
    ]
    gate = utilisation_gate("log", points, ["queue-a", "queue-b"])
    assert (gate.met, gate.figure) == (True, "within: `queue-a` -0.96; not: `queue-b` -1.04")
    assert gate.row[2] == "yes"
    assert utilisation_gate("log", points, ["queue-b"]).figure == "within: none; not: `queue-b` -1.04"
