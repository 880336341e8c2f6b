"""What the long commands show where standard error is no terminal, or one that can only print."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

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


def test_a_log_hears_of_what_does_not_get_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "TICK_S", 0.01)
    monkeypatch.setattr(progress, "LINE_EVERY_S", 0.02)
    with progress.progress_bar("episodes"):
        told, until_s = "", time.monotonic() + 60.0
        while not told and time.monotonic() < until_s:
            time.sleep(0.01)
            told = capsys.readouterr().err
    assert re.match(r"episodes: 0%, 0:0\d:\d\d passed\n", told)


BARS = """
import numpy as np
from fermata.cli.progress import progress_bar
from fermata.policy.theory.bounds import lower_bound_s

with progress_bar("reading") as tell:
    tell(0.5)
with progress_bar("thinking"):
    lower_bound_s(np.zeros(2), np.ones(2), 1)
"""


def test_a_bar_says_that_it_compiles_while_it_does(tmp_path: Path) -> None:
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "TERM": "xterm", "COLUMNS": "100"}
    for name in ("FERMATA_NO_JIT", "NUMBA_CACHE_DIR", "NO_COLOR"):
        environment.pop(name, None)

    def shown() -> str:
        ours, theirs = pty.openpty()
        text = b""
        with subprocess.Popen([sys.executable, "-c", BARS], stderr=theirs, env=environment) as process:
            os.close(theirs)
            with suppress(OSError):  # what reading a terminal says at its end
                while part := os.read(ours, 65536):
                    text += part
        os.close(ours)
        assert process.returncode == 0
        return text.decode()

    first, second = shown(), shown()
    assert "reading" in first
    assert "reading; compiling" not in first
    assert "thinking; compiling, once for each version" in first
    assert "reading" in second
    assert "compiling" not in second


def test_the_demonstration_says_where_it_is_in_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in DUMB.items():
        monkeypatch.setenv(name, value)
    plan = setup(2, 0.8, 1, None)
    with screen(plan.stream, list(plan.executors)):
        assert "starting an API server and the operator" in capsys.readouterr().err
