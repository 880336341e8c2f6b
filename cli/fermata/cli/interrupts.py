"""What Ctrl-C and SIGTERM end with: one line, and an exit code of its own."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

from fermata.policy.errors import FermataError


class InterruptError(FermataError):
    """Ctrl-C ended a command; typer would take a KeyboardInterrupt for its own and exit without a word."""

    exit_code = 130


@contextmanager
def terminable() -> Iterator[None]:
    """Let SIGTERM end this block as Ctrl-C does, with all that is cleaned up and said then; unless it is ignored."""
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


@contextmanager
def resumable() -> Iterator[None]:
    """Let an interrupt of this block say that nothing of what was done is lost.

    Raises:
        InterruptError: Ctrl-C came.
    """
    try:
        yield
    except KeyboardInterrupt as cut:
        raise InterruptError("interrupted; the same command goes on where it was") from cut
