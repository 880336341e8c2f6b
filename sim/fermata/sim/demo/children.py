"""Processes that live exactly as long as a block of code: started in it, and gone after it, whatever ends it.

Each has a session of its own, so that Ctrl-C reaches only the parent, which then stops them in order; each is tied to
the parent, so that even SIGKILL leaves none behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from typing import TYPE_CHECKING

from fermata.policy.errors import FermataError

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType
    from typing import Self

_STOP_S = 5.0


class ChildError(FermataError):
    """A process ended although it was still needed."""


class Children:
    """Child processes inside `async with`.

    Args:
        folder: where their logs go, one file a process.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: list[tuple[str, asyncio.subprocess.Process]] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # The latest first: it may still need the earlier ones to say goodbye to.
        while self._running:
            _, process = self._running.pop()
            await _stop(process)

    def log_of(self, name: str) -> Path:
        """Return where a process writes."""
        return self._folder / f"{name}.log"

    async def start(self, name: str, *arguments: str) -> int:
        """Start `python ARGUMENT...` and return its process id, which stays when it becomes that program."""
        tie = [sys.executable, "-m", "fermata.sim.demo.tied", str(os.getpid()), sys.executable]
        with self.log_of(name).open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                *tie, *arguments, stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        self._running.append((name, process))
        return process.pid

    def check(self) -> None:
        """Make sure that all of them run.

        Raises:
            ChildError: one has ended.
        """
        for name, process in self._running:
            if process.returncode is not None:
                lines = self.log_of(name).read_text(encoding="utf-8", errors="replace").strip().splitlines()
                said = f": {lines[-1]}" if lines else ""
                raise ChildError(f"the {name} ended with exit code {process.returncode}{said}")


async def _stop(process: asyncio.subprocess.Process) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        # The whole group: what a child has started ends with it.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        try:
            await asyncio.wait_for(process.wait(), _STOP_S)
        except TimeoutError:
            continue
        break
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
