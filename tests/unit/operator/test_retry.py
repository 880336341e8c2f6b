"""What failed is tried again, soon at first and less and less often."""

from __future__ import annotations

import pytest

from fermata.operator.retry import MOST_S, Failure, is_due


@pytest.mark.parametrize(
    ("busy", "waits_s"),
    [
        (False, [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]),
        (True, [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 8.0, 8.0, 8.0, 8.0]),  # it ends by itself
    ],
)
def test_what_fails_again_and_again_is_tried_less_and_less_often(busy: bool, waits_s: list[float]) -> None:
    failure: Failure | None = None
    now_s, waited_s = 1000.0, []
    assert is_due(failure, now_s)
    for _ in waits_s:
        failure = Failure.after(failure, "no", now_s, busy=busy)
        assert not is_due(failure, failure.until_s - 0.01)
        assert is_due(failure, failure.until_s)
        waited_s.append(failure.until_s - now_s)
        now_s = failure.until_s
    assert waited_s == waits_s


def test_a_clock_that_is_set_back_puts_nothing_off_for_long() -> None:
    failure = Failure.after(None, "no", 1000.0, busy=False)
    assert is_due(failure, 1000.0 - 3600.0)
    assert not is_due(failure, failure.until_s - MOST_S), "an answer may come as late as that"
