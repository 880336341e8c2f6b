"""Commands as a user runs them: in this process where that is enough, or as children that heed Ctrl-C."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any

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
    with _sigint_handled():
        return subprocess.Popen(command, text=True, **options)


@contextlib.contextmanager
def _sigint_handled() -> Iterator[None]:
    """Handle SIGINT in this process: a signal that is handled, and not ignored, is at its default in a child."""
    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def fermata(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `fermata` in this process: most of what a short command takes is the start of another one.

    Returns:
        Its exit code and what it wrote, as of a child.
    """
    out, err, code = io.StringIO(), io.StringIO(), 0
    argv = sys.argv
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        sys.argv = ["fermata", *arguments]
        try:
            run()
        except SystemExit as exit_:
            code = int(exit_.code or 0)
        finally:
            sys.argv = argv
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())
