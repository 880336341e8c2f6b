"""Where a run or a model cannot be written, the command says so in one line."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs the [training] extra")

from fermata.cli.main import run

pytestmark = pytest.mark.training


@pytest.mark.parametrize("config", ["smoke", "graph-smoke"])
def test_a_folder_that_cannot_be_made(
    config: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file"
    file.write_text("not a folder")
    monkeypatch.setattr(sys, "argv", ["fermata", "train", "--config", config, "--out", str(file / "run")])
    with pytest.raises(SystemExit) as exit_:
        run()
    assert exit_.value.code == 2
    assert capsys.readouterr().err == f"fermata: {file / 'run'}: Not a directory\n"


def test_an_error_without_a_file_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise OSError("no such thing")

    monkeypatch.setattr("fermata.cli.main.app", broken)
    with pytest.raises(OSError, match="no such thing"):
        run()
