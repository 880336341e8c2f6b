"""What a run shows in a log: when each task begins and ends, and a line a minute in between."""

from __future__ import annotations

import io

from rich.console import Console

from fermata.training.progress import LINE_EVERY_S, _Lines, shown


class _Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def _lines(told: io.StringIO, clock: _Clock) -> _Lines:
    return _Lines(console=Console(file=told, width=40), get_time=clock, speed_estimate_period=600.0)


def test_a_log_has_a_line_a_minute_with_the_time_to_go() -> None:
    told, clock = io.StringIO(), _Clock()
    with _lines(told, clock) as progress:
        task = progress.add_task("round 1: labels [of a name longer than the console]", total=10)
        for _ in range(10):
            clock.now += 0.4 * LINE_EVERY_S
            progress.advance(task)
    name = "round 1: labels [of a name longer than the console]"
    assert told.getvalue().splitlines() == [
        f"{name}: 0 of 10, 0:00:00 passed",
        f"{name}: 3 of 10, 0:01:12 passed, 0:02:48 to go",
        f"{name}: 6 of 10, 0:02:24 passed, 0:01:36 to go",
        f"{name}: 9 of 10, 0:03:36 passed, 0:00:24 to go",
        f"{name}: 10 of 10, 0:04:00 passed",
    ]


def test_a_minute_in_which_nothing_was_done_has_a_line_too() -> None:
    told, clock = io.StringIO(), _Clock()
    with _lines(told, clock) as progress:
        progress.tick()
        progress.add_task("done", total=1, completed=1)
        clock.now += 1.0
        task = progress.add_task("labels", total=4)
        for _ in range(5):
            clock.now += 0.5 * LINE_EVERY_S
            progress.tick()
        progress.add_task("fit", total=1, completed=1)
        clock.now += LINE_EVERY_S
        progress.tick()
        progress.update(task, completed=4)
        clock.now += 2.0 * LINE_EVERY_S
        progress.tick()
    assert told.getvalue().splitlines() == [
        "done: 1 of 1, 0:00:00 passed",
        "labels: 0 of 4, 0:00:00 passed",
        "labels: 0 of 4, 0:01:00 passed",
        "labels: 0 of 4, 0:02:00 passed",
        "fit: 1 of 1, 0:00:00 passed",
        "labels: 0 of 4, 0:03:30 passed",
        "labels: 4 of 4, 0:03:30 passed",
    ]


def test_the_end_is_told_once_and_so_is_where_a_task_was_left() -> None:
    told, clock = io.StringIO(), _Clock()
    with _lines(told, clock) as progress:
        there = progress.add_task("there", total=3, completed=3)
        progress.update(there, completed=3)
        left = progress.add_task("left", total=3)
        progress.update(left, completed=2, description="left by hand")
    assert told.getvalue().splitlines() == [
        "there: 3 of 3, 0:00:00 passed",
        "left: 0 of 3, 0:00:00 passed",
        "left by hand: 2 of 3, 0:00:00 passed",
    ]


def test_a_terminal_has_bars_and_a_log_has_none() -> None:
    bars, lines, dumb = io.StringIO(), io.StringIO(), io.StringIO()
    terminal = Console(file=bars, force_terminal=True, width=100, _environ={"TERM": "xterm"})
    printer = Console(file=dumb, force_terminal=True, width=100, _environ={"TERM": "dumb"})
    for console in (terminal, Console(file=lines, width=100), printer):
        with shown(console) as progress:
            progress.add_task("generations", total=2, completed=1)
    assert "━" in bars.getvalue()
    assert lines.getvalue() == dumb.getvalue() == "generations: 1 of 2, 0:00:00 passed\n"


def test_brackets_of_a_configuration_s_name_are_shown_as_they_are() -> None:
    bars = io.StringIO()
    terminal = Console(file=bars, force_terminal=True, width=100, _environ={"TERM": "xterm"})
    with shown(terminal) as progress:
        progress.add_task("express [v2] [/long]: ppo", total=2)
    assert "express [v2] [/long]: ppo" in bars.getvalue()
