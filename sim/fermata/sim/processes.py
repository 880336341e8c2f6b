"""Processes and signals: workers that end with whoever started them, and steps that Ctrl-C does not cut in two."""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing.connection import wait
from pathlib import Path
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
_CPU_LIMIT = Path("/sys/fs/cgroup/cpu.max")  # of a container, cgroup v2: microseconds of every so many


def cores() -> int:
    """Return how many processor cores this process may use: those of the machine, or of a container's limit."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota_us, period_us = _CPU_LIMIT.read_text(encoding="ascii").split()
    except OSError:  # no container, or not Linux
        return count
    return count if quota_us == "max" else min(count, math.ceil(int(quota_us) / int(period_us)))


def _end_with_parent() -> None:
    """End this process when the one that started it is gone: killed, it told nobody to stop."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)  # nobody is left to read what this process would have to say


def _begin(then: Callable[[], None] | None) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if then is not None:
        then()


class Workers(ProcessPoolExecutor):
    """A pool of processes that are deaf to Ctrl-C from their first instruction on, and end with this one.

    Args:
        processes: how many, started as work comes.
        then: called in each of them first.
    """

    def __init__(self, processes: int, then: Callable[[], None] | None = None) -> None:
        # Spawned, not forked: a fork of a process with threads (ONNX Runtime, Numba, torch) may hang.
        context = multiprocessing.get_context("spawn")
        super().__init__(processes, mp_context=context, initializer=_begin, initargs=(then,))

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Submit a call. A process that is started for it inherits that SIGINT is blocked here."""
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            return super().submit(fn, *args, **kwargs)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def uninterrupted() -> Generator[None, None, None]:
    """Let a Ctrl-C that comes in this block wait until its end: what is written and what is counted stay the same.

    To be used in the main thread, the only one that Python interrupts.
    """
    came: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if came:
        signal.raise_signal(signal.SIGINT)
