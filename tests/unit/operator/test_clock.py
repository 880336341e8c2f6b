"""The API server's clock: corrected where it certainly differs, left alone where it may not."""

from __future__ import annotations

import time
from email.utils import formatdate

import pytest

from fermata.operator.clock import ServerClock


class Machines:
    """A local clock, and a server's that differs by `skew_s`."""

    def __init__(self, skew_s: float) -> None:
        self.at_s, self.skew_s = 1_800_000_000.25, skew_s
        self.clock = ServerClock(lambda: self.at_s)

    def ask(self, latency_s: float = 0.02) -> None:
        sent_s = self.at_s
        self.at_s += latency_s / 2
        date = formatdate(int(self.at_s + self.skew_s), usegmt=True)
        self.at_s += latency_s / 2
        self.clock.note(date, sent_s)


@pytest.mark.parametrize("skew_s", [0.0, 0.4, -0.4])
def test_clocks_that_agree_within_what_can_be_told_are_left_alone(skew_s: float) -> None:
    machines = Machines(skew_s)
    machines.ask()
    assert abs(machines.clock.offset_s) <= 0.8


@pytest.mark.parametrize("skew_s", [90.0, -90.0, 3600.5])
def test_a_certain_difference_is_corrected_ever_more_closely(skew_s: float) -> None:
    machines = Machines(skew_s)
    machines.ask()
    assert machines.clock() == pytest.approx(machines.at_s + skew_s, abs=0.6)
    for _ in range(200):
        machines.at_s += 0.137
        machines.ask()
    assert machines.clock() == pytest.approx(machines.at_s + skew_s, abs=0.6)


def test_a_clock_that_is_set_is_followed() -> None:
    machines = Machines(0.0)
    machines.ask()
    machines.skew_s = 45.0
    machines.ask()
    assert machines.clock.offset_s == pytest.approx(45.0, abs=0.6)
    machines.skew_s = 0.0
    machines.ask()
    assert machines.clock.offset_s == pytest.approx(0.0, abs=0.6)


def test_servers_in_turn_whose_clocks_differ_are_told_of_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    machines = Machines(0.0)
    for number in range(120):  # of 0.75 s each
        machines.skew_s = 5.0 * (number % 2)
        machines.at_s += 0.73
        machines.ask()
        assert machines.clock() == pytest.approx(machines.at_s + machines.skew_s, abs=1.1)
    assert len(caplog.records) == 2


def test_no_date_or_nonsense_changes_nothing() -> None:
    machines = Machines(0.0)
    machines.clock.note(None, machines.at_s)
    machines.clock.note("yesterday", machines.at_s)
    assert machines.clock.offset_s == 0.0


def test_setting_this_machines_clock_lets_no_time_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    epoch_s, up_s = [1_800_000_000.0], [50.0]
    monkeypatch.setattr(time, "time", lambda: epoch_s[0])
    monkeypatch.setattr(time, "monotonic", lambda: up_s[0])
    clock = ServerClock()
    up_s[0] += 2.0
    epoch_s[0] += 3602.0  # and no answer has told yet that the server's was not set
    assert clock() == 1_800_000_002.0
