"""Worker processes that leave Ctrl-C to whoever started them: one kind for episodes, labels and rollouts."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def _begin(then: Callable[[], None] | None) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if then is not None:
        then()


class Workers(ProcessPoolExecutor):
    """A pool of processes that are deaf to Ctrl-C from their first instruction on.

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
