"""Commands as a user runs them: in this process where that is enough, or as children that heed Ctrl-C."""

from __future__ import annotations

import contextlib
import io
import math
import os
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from typing import Any
from unittest import mock

from fermata.cli import progress
from fermata.cli.main import run

# What a child ends with: where the interrupt went through text that Python executes, as it does to make a dataclass,
# Python ends by SIGINT itself in the end, whoever caught it. To a shell both are 130.
INTERRUPTED = (130, -signal.SIGINT)
# The command line as a user without an entry runs it, who only root could be for real: a container's, as a rule.
AS_NOBODY = "import pwd; pwd.getpwuid = {}.__getitem__; from fermata.cli.main import run; run()"
_OF_A_USER = ("HOME", "LOGNAME", "USER", "LNAME", "USERNAME", "XDG_CACHE_HOME", "KUBECONFIG")


def of_nobody() -> dict[str, str]:
    """Return the environment of a user without an entry, whom no variable names, either."""
    return {key: value for key, value in os.environ.items() if key not in _OF_A_USER}


def interruptible(command: Sequence[str], **options: Any) -> subprocess.Popen[str]:
    """Start a process on which SIGINT has its usual effect; options as of `subprocess.Popen`, output as text.

    A shell lets its background jobs ignore SIGINT, their children inherit that, and Python then installs no handler:
    a test that interrupts a child would wait for ever.
    """
    with sigint_handled():
        return subprocess.Popen(command, text=True, **options)


@contextlib.contextmanager
def sigint_handled() -> Iterator[None]:
    """Handle SIGINT in this process: a signal that is handled, and not ignored, is at its default in a child."""
    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def fermata(*arguments: object, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run `fermata` in this process: most of what a short command takes is the start of another one.

    Args:
        arguments: of the command line, as text or what is text by `str`, like paths and numbers.
        stdin: what standard input holds.

    Returns:
        Its exit code and what it and its own children wrote, warnings too, as of a child.
    """
    code, argv = 0, sys.argv
    # How long a command takes says as much of the machine's other users: no line a minute.
    untimed = mock.patch.object(progress, "LINE_EVERY_S", math.inf)
    with _standard_streams(stdin) as written, _warnings_shown(), untimed:
        sys.argv = ["fermata", *map(str, arguments)]
        try:
            run()
        except SystemExit as exit_:
            code = int(exit_.code or 0)
        finally:
            sys.argv = argv
    return subprocess.CompletedProcess(arguments, code, *written)


@contextlib.contextmanager
def _standard_streams(stdin: str) -> Iterator[list[str]]:
    """Let standard output and error be files, for child processes too; at the end, the list has what was written."""
    written: list[str] = []
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, contextlib.ExitStack() as stack:
        for number, file in ((1, out), (2, err)):
            stack.enter_context(_in_place_of(number, file.fileno()))
        stdout = stack.enter_context(open(out.fileno(), "w", encoding="utf-8", closefd=False))
        stderr = stack.enter_context(open(err.fileno(), "w", encoding="utf-8", buffering=1, closefd=False))
        stderr.reconfigure(errors="backslashreplace")
        stack.enter_context(contextlib.redirect_stdout(stdout))
        stack.enter_context(contextlib.redirect_stderr(stderr))
        before, sys.stdin = sys.stdin, io.TextIOWrapper(io.BufferedReader(io.BytesIO(stdin.encode())), "utf-8")
        try:
            yield written
        finally:
            sys.stdin = before
            for stream, file in ((stdout, out), (stderr, err)):
                stream.flush()
                file.seek(0)
                written.append(file.read().decode())


@contextlib.contextmanager
def _in_place_of(number: int, other: int) -> Iterator[None]:
    """Let a descriptor, which children inherit, be another one's file."""
    kept = os.dup(number)
    os.dup2(other, number)
    try:
        yield
    finally:
        os.dup2(kept, number)
        os.close(kept)


@contextlib.contextmanager
def _warnings_shown() -> Iterator[None]:
    """Write warnings to standard error, as Python does by itself, where pytest would collect them."""
    with warnings.catch_warnings():
        warnings.resetwarnings()
        for unseen in (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning):
            warnings.simplefilter("ignore", unseen)
        warnings.showwarning = _write_warning
        yield


def _write_warning(message: Warning | str, *told: Any) -> None:
    category, file, line = told[:3]
    sys.stderr.write(warnings.formatwarning(message, category, file, line))
