"""What Ctrl-C ends with: one line, and an exit code of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fermata.policy.errors import FermataError


class InterruptError(FermataError):
    """Ctrl-C ended a command; typer would take a KeyboardInterrupt for its own and exit without a word."""

    exit_code = 130


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
