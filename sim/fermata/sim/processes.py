"""Processes and signals: workers that end with whoever started them, and steps that no interrupt cuts in two."""

from __future__ import annotations

import ctypes
import math
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.connection import wait
from pathlib import Path
from types import TracebackType
from typing import ParamSpec, TypeVar

from fermata.policy.errors import FermataError

P = ParamSpec("P")
R = TypeVar("R")
_PR_SET_PDEATHSIG = 1
_MOST_PROCESSES = 10_000  # far beyond any machine's cores, and far below what a semaphore counts to
_CPU_LIMIT = Path("/sys/fs/cgroup/cpu.max")  # of a container, cgroup v2: microseconds of every so many


class LostWorkerError(FermataError):
    """A worker process is gone although nobody here ended it."""


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
    if sys.platform == "linux":
        # A compiled kernel lets no thread of this process run until it returns, which may take a minute.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if then is not None:
        then()


class Workers(ProcessPoolExecutor):
    """A pool of processes that are deaf to Ctrl-C from their first instruction on, and end with this one.

    As a context manager it ends when all its work is done; an error or an interrupt in the block ends it at once,
    whatever the processes are at.

    Args:
        processes: how many, started as work comes.
        then: called in each of them first.
    """

    def __init__(self, processes: int, then: Callable[[], None] | None = None) -> None:
        # Spawned, not forked: a fork of a process with threads (ONNX Runtime, Numba, torch) may hang.
        context = multiprocessing.get_context("spawn")
        super().__init__(min(processes, _MOST_PROCESSES), mp_context=context, initializer=_begin, initargs=(then,))

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Submit a call. A process that is started for it inherits that SIGINT is blocked here.

        An interrupt waits: in between, a process might have been started that nobody knows of, and ends.
        """
        with uninterrupted():
            before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
            try:
                return super().submit(fn, *args, **kwargs)
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """End the processes.

        Raises:
            LostWorkerError: one of them ended by itself.
        """
        if kind is not None and self._processes:
            if sys.version_info < (3, 11, 5):  # as Debian 12 has; later ones do it themselves
                # Who sends the calls would wait for somebody to read the rest of one, as this end is open, too.
                self._call_queue._reader.close()  # type: ignore[attr-defined]
            for process in list(self._processes.values()):
                process.kill()
            # Who reads the results would wait for the rest of one that was being sent, as this end is open, too.
            self._result_queue._writer.close()  # type: ignore[attr-defined]
        self.shutdown(wait=True, cancel_futures=True)
        if isinstance(error, BrokenProcessPool):
            raise LostWorkerError("a worker process was killed, perhaps for lack of memory") from error


@contextmanager
def uninterrupted() -> Generator[None, None, None]:
    """Let Ctrl-C or SIGTERM in this block wait until its end: what is written and what is counted stay the same.

    In other threads, which Python never interrupts, there is nothing to do.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = {
        number: signal.signal(number, lambda which, frame: came.append(which))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if came:
        signal.raise_signal(came[0])
