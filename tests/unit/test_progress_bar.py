"""What the long commands show where standard error is no terminal, or one that can only print."""

from __future__ import annotations

import pytest

from fermata.cli import progress
from fermata.cli.demo.examples import setup
from fermata.cli.demo.screen import screen

DUMB = {"FORCE_COLOR": "1", "TERM": "dumb"}  # a terminal, as rich takes it, in which no line can be written anew


@pytest.mark.parametrize("environment", [{}, DUMB], ids=["log", "dumb"])
def test_a_log_has_a_line_a_minute_and_none_of_what_takes_less(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], environment: dict[str, str]
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    now = 1000.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    with progress.progress_bar("200 episodes [of 2]") as tell:
        for share in (0.1, 0.2, 0.3, 0.4, 0.5):
            now += 0.4 * progress.LINE_EVERY_S
            tell(share)
    told = capsys.readouterr()
    assert told.err == "200 episodes [of 2]: 30%, 0:01:12 passed\n"
    assert told.out == ""


def test_the_demonstration_says_where_it_is_in_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in DUMB.items():
        monkeypatch.setenv(name, value)
    plan = setup(2, 0.8, 1, None)
    with screen(plan.stream, list(plan.executors)):
        assert "starting an API server and the operator" in capsys.readouterr().err
