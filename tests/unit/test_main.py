"""The program itself: its version, and the Tab key, which completes commands and options."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import get_type_hints

import pytest
from tests.processes import AS_NOBODY, INTERRUPTED, fermata, interruptible, of_nobody
from typer.main import get_command

from fermata.cli.main import VERBS, app, run

# Ctrl-C falls into a finaliser, as it may into a callback of Numba's compiler, which then fails, goes on or ends.
LOST = """
import signal, sys, time
from fermata.cli import main
from fermata.cli.interrupts import resumable
class Final:
    def __del__(self):
        signal.raise_signal(signal.SIGINT if len(sys.argv) == 3 else signal.SIGTERM)
def invoke(*arguments, **options):
    Final()
    if sys.argv[1] == "fail":
        raise RuntimeError("no compiled object yet")
    if sys.argv[1] == "go on":
        time.sleep(60)
if sys.argv[2] == "is not reached":
    main.TyperGroup.main = invoke
main.TyperGroup.invoke = resumable()(invoke) if sys.argv[2] == "resumes" else invoke
main.run()
"""
# Ctrl-C comes as soon as the first of what the command line needs is looked for.
EARLY = """
import runpy, signal, sys
class Finder:
    def find_spec(name, path, target=None):
        if name == "typer":
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Finder)
runpy.run_module("fermata.cli", run_name="__main__")
"""
# Ctrl-C comes when a script has begun.
BEGUN = """
import runpy, signal, sys
def profile(frame, event, argument):
    if event == "call" and frame.f_code.co_name == "main" and frame.f_code.co_filename == sys.argv[1]:
        sys.setprofile(None)
        signal.raise_signal(signal.SIGINT)
sys.setprofile(profile)
runpy.run_path(sys.argv[1], run_name="__main__")
"""
ROOT = Path(__file__).resolve().parents[2]
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


@pytest.mark.parametrize("then", ["fail", "go on", "end"])
@pytest.mark.parametrize(
    ("command", "hint"),
    [("is not reached", ""), ("begins anew", ""), ("resumes", "; the same command goes on where it was")],
)
def test_an_interrupt_is_not_lost_in_a_callback(command: str, hint: str, then: str) -> None:
    child = interruptible([sys.executable, "-c", LOST, then, command], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert child.communicate(timeout=30) == ("", f"fermata: interrupted{hint}\n")
    assert child.returncode in INTERRUPTED


def test_an_interrupt_before_the_command_line_is_there_is_told() -> None:
    child = interruptible([sys.executable, "-c", EARLY], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert child.communicate(timeout=30) == ("", "fermata: interrupted\n")
    assert child.returncode in INTERRUPTED


@pytest.mark.parametrize("name", ["bench_local.py", "demo_streams.py"])
def test_an_interrupt_of_a_script_is_told(name: str) -> None:
    command = [sys.executable, "-c", BEGUN, str(ROOT / "scripts" / name)]
    child = interruptible(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert child.communicate(timeout=60) == ("", f"{name}: interrupted\n")
    assert child.returncode == 130


def test_sigterm_is_not_lost_in_a_callback_of_a_job_in_the_background() -> None:
    script = f"import signal; signal.signal(signal.SIGINT, signal.SIG_IGN){LOST}"
    command = [sys.executable, "-c", script, "go on", "resumes", "SIGTERM"]
    told = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert (told.returncode, told.stderr) == (130, "fermata: interrupted; the same command goes on where it was\n")


def test_a_verb_that_is_misspelt_is_told_with_the_one_that_was_meant() -> None:
    done = fermata("trian")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith("No such command 'trian'. Did you mean 'train', 'trace'?\n")


def test_it_says_its_version() -> None:
    done = fermata("--version")
    assert (done.returncode, done.stdout) == (0, f"fermata {version('fermata')}\n")


def test_figures_are_shown_where_standard_output_has_no_letters_for_all() -> None:
    asked = [sys.executable, "-m", "fermata.cli", "policy", "info", "default"]
    done = subprocess.run(
        asked, env={**os.environ, "PYTHONIOENCODING": "ascii"}, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert r"\xb1" in done.stdout


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (["trace", "stats", "examples/figure1.jsonl"], "jobs, stages, tasks"),
        (["explain", "w"], "fermata: /.kube/config: no such file; expected a kubeconfig"),
    ],
)
def test_a_user_without_a_home_and_without_an_entry_needs_none(command: list[str], told: str) -> None:
    as_nobody = [sys.executable, "-c", AS_NOBODY, *command]
    done = subprocess.run(as_nobody, capture_output=True, text=True, check=False, env=of_nobody(), cwd=ROOT)
    assert (done.stdout or done.stderr).startswith(told)


def test_a_user_without_a_home_gets_the_one_that_kubernetes_would_give() -> None:
    then = "import atexit, os; atexit.register(lambda: print(os.path.expanduser('~'))); "
    asked = [sys.executable, "-c", then + AS_NOBODY, "--version"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False, env=of_nobody())
    assert (done.stdout.splitlines()[-1], done.stderr) == ("/", "")


def test_no_command_has_options_about_completion() -> None:
    assert "--install-completion" in fermata("--help").stdout
    for verb in VERBS:
        assert "-completion" not in fermata(verb, "--help").stdout, verb


def test_the_help_of_every_command_has_its_options_and_their_meaning_in_full() -> None:
    root = get_command(app)
    commands = [((verb,), root.get_command(None, verb)) for verb in VERBS]  # type: ignore[attr-defined,arg-type]
    for words, command in commands:
        commands += [((*words, name), each) for name, each in getattr(command, "commands", {}).items()]
        done = fermata(*words, "--help")
        assert (done.returncode, done.stderr) == (0, ""), words
        text = "".join(done.stdout.split())  # lines break in words with hyphens, too
        assert "".join(command.help.split()) in text, words
        for param in command.params:
            assert all(name in done.stdout for name in param.opts if name.startswith("-")), (words, param.opts)
            assert "".join(param.help.split()) in text, (words, param.opts)


def test_no_command_takes_an_empty_name_of_a_file_or_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a variable that is not set: to Python it is the current folder, where a run would then be begun."""
    monkeypatch.chdir(tmp_path)
    asked = 0
    for verb, module in VERBS.items():
        own = importlib.import_module(module).app
        root = get_command(own)
        for each in own.registered_commands:
            name = each.name or each.callback.__name__.replace("_", "-")
            words, command = ([verb], root) if not hasattr(root, "commands") else ([verb, name], root.commands[name])
            hints = get_type_hints(each.callback)
            for param in command.params:
                if hints[param.name] in (Path, Path | None, list[Path]):
                    given = f"{param.opts[0]}=" if param.opts[0].startswith("-") else ""
                    done = fermata(*words, given)
                    assert (done.returncode, done.stdout) == (2, ""), (words, param.name)
                    assert "expected a name, got ''" in done.stderr, (words, param.name)
                    asked += 1
    assert asked > 20
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("group", ["", "hpc", "local", "policy", "trace"])
def test_a_list_of_commands_says_in_whole_sentences_what_they_do(group: str) -> None:
    told = fermata(*group.split(), "--help").stdout.partition("Commands:\n")[2]
    assert told.count("\n") >= 3
    assert all(re.fullmatch(r"  [a-z-]+ +[A-Z][^.]+\.", line) for line in told.splitlines()), told


@pytest.mark.parametrize("where", ["fermata.cli.main.app", "typer.core.TyperGroup.make_context"])
def test_an_interrupt_around_a_command_is_one_line(
    where: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(where, interrupted)
    with pytest.raises(SystemExit) as exit_:
        run()
    assert exit_.value.code == 130
    assert capsys.readouterr().err == "fermata: interrupted\n"
