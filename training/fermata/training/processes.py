"""What the worker processes of a training run have in common."""

from __future__ import annotations

import multiprocessing
import signal
from concurrent.futures import ProcessPoolExecutor


def _ignore_interrupt() -> None:
    """Leave Ctrl-C to the parent, which stops the pool."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def workers(processes: int) -> ProcessPoolExecutor:
    """Return a pool of processes that leave Ctrl-C to the caller."""
    # Spawned, not forked: a fork of a process with threads (torch, progress) may hang.
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(processes, mp_context=context, initializer=_ignore_interrupt)
