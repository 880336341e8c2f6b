"""What the long commands show where standard error is no terminal."""

from __future__ import annotations

import pytest

from fermata.cli import progress


def test_a_log_has_a_line_a_minute_and_none_of_what_takes_less(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 1000.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    with progress.progress_bar("200 episodes [of 2]") as tell:
        for share in (0.1, 0.2, 0.3, 0.4, 0.5):
            now += 0.4 * progress.LINE_EVERY_S
            tell(share)
    told = capsys.readouterr()
    assert told.err == "200 episodes [of 2]: 30%, 0:01:12 passed\n"
    assert told.out == ""
