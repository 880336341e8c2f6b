"""What Ctrl-C and SIGTERM end with: one line, and an exit code of its own."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fermata.policy.errors import FermataError

_AGAIN_S = 0.1


class InterruptError(FermataError):
    """Ctrl-C ended or cut short a command; typer would take a KeyboardInterrupt for its own and exit without a word."""

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


def _interrupt() -> None:
    """Interrupt the main thread once more; what ignores SIGINT, as jobs in the background do, was sent SIGTERM."""
    number = signal.SIGTERM if signal.getsignal(signal.SIGINT) is signal.SIG_IGN else signal.SIGINT
    signal.pthread_kill(threading.main_thread().ident or 0, number)


@contextmanager
def never_lost() -> Iterator[None]:
    """Let Ctrl-C end this block also where it falls into a callback or a finaliser, which Python then only tells of.

    Where it fell into one of Numba's compiler, the compiler fails soon after, for want of what the callback was to do.
    """
    again: list[threading.Timer] = []
    tell = sys.unraisablehook

    def note(unraisable: Any) -> None:
        if not issubclass(unraisable.exc_type, KeyboardInterrupt):
            tell(unraisable)
            return
        # Not at once, which would be within this hook and be lost, too.
        again.append(threading.Timer(_AGAIN_S, _interrupt))
        again[-1].daemon = True
        again[-1].start()

    sys.unraisablehook = note
    try:
        yield
    except RuntimeError as error:
        if again:
            raise KeyboardInterrupt from error
        raise
    else:
        if again and not again[-1].finished.is_set():  # the block has ended first
            raise KeyboardInterrupt
    finally:
        sys.unraisablehook = tell
        for timer in again:
            timer.cancel()


@contextmanager
def ended_in_a_line(program: str) -> Iterator[None]:
    """Let Ctrl-C or SIGTERM in this block, all that a program does, say so in one line and end the program.

    Raises:
        SystemExit: either came.
    """
    try:
        with terminable(), never_lost():
            yield
    except KeyboardInterrupt:
        print(f"{program}: interrupted", file=sys.stderr)
        sys.exit(InterruptError.exit_code)


@contextmanager
def told(message: str = "interrupted") -> Iterator[None]:
    """Let an interrupt of this block say so in one line.

    Raises:
        InterruptError: Ctrl-C came.
    """
    try:
        with never_lost():
            yield
    except KeyboardInterrupt as cut:
        raise InterruptError(message) from cut


@contextmanager
def resumable() -> Iterator[None]:
    """Let an interrupt of this block say that nothing of what was done is lost.

    Raises:
        InterruptError: Ctrl-C came.
    """
    with told("interrupted; the same command goes on where it was"):
        yield
