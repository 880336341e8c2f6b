"""The program itself: its version, and the Tab key, which completes commands and options."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import version

import pytest
from tests.processes import fermata

from fermata.cli.main import VERBS, run

RUN = "import sys; sys.argv = ['fermata']; from fermata.cli.main import run; run()"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("fermata rel", ["release", "release-all"]),
        ("fermata policy ex", ["explain"]),
        ("fermata operator --lease-n", ["--lease-namespace"]),
    ],
)
def test_words_are_completed(words: str, expected: list[str]) -> None:
    asked = {"_FERMATA_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    done = subprocess.run(
        [sys.executable, "-c", RUN],
        env={**os.environ, **asked},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.split() == expected


def test_it_says_its_version() -> None:
    done = fermata("--version")
    assert (done.returncode, done.stdout) == (0, f"fermata {version('fermata')}\n")


def test_no_command_has_options_about_completion() -> None:
    assert "--install-completion" in fermata("--help").stdout
    for verb in VERBS:
        assert "-completion" not in fermata(verb, "--help").stdout, verb


def test_an_interrupt_around_a_command_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("fermata.cli.main.app", interrupted)
    with pytest.raises(SystemExit) as exit_:
        run()
    assert exit_.value.code == 130
    assert capsys.readouterr().err == "fermata: interrupted\n"
