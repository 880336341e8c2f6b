"""What stays in the way is said at once, and now and then afterwards."""

from __future__ import annotations

import pytest

from fermata.operator.reminder import Reminder


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_the_same_is_said_again_when_its_time_has_passed_since_it_was_said_last(clock: Clock) -> None:
    reminder = Reminder(60.0, clock)
    said = []
    for now_s in range(0, 200, 20):
        clock.now_s = float(now_s)
        if reminder.is_due("jobs", "you may not"):
            said.append(now_s)
    assert said == [0, 60, 120, 180]


def test_what_is_new_is_said_at_once_and_so_is_what_is_old_behind_it(clock: Clock) -> None:
    reminder = Reminder(60.0, clock)
    said = [reminder.is_due("jobs", trouble) for trouble in ("no", "no", "late", "late", "no")]
    assert said == [True, False, True, False, True]
    assert reminder.is_due("pods", "no"), "of another thing it is new"


def test_of_very_many_things_those_of_which_something_was_said_lately_are_remembered(clock: Clock) -> None:
    reminder = Reminder(60.0, clock)
    for number in range(1000):
        assert reminder.is_due(number, "no")
    assert reminder.is_due(0, "late"), "which is the latest now"
    assert reminder.is_due("one more", "no")
    clock.now_s = 59.0
    assert not reminder.is_due(0, "late")
    assert not any(reminder.is_due(each, "no") for each in (2, 999, "one more"))
    assert reminder.is_due(1, "no"), "what was said longest ago is forgotten"
