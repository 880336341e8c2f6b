"""A control plane as a process of its own: one a folder, found again by its state file, alive while it holds a lock.

The lock, not the process id, says whether one is up: it cannot outlive its process, and an id may name another.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import logging
import os
import signal
import time
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fermata.policy.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from fermata.sim.kube.plane import Options
    from fermata.sim.kube.resources import Obj

_KILL_AFTER_S = 10.0
_LOOK_S = 0.5  # who looks whether one is up (`is_up`) has the lock for a moment


@dataclass(frozen=True, slots=True)
class State:
    """What is written about a control plane that is up."""

    pid: int
    url: str
    slots: int
    nodes: int


def log_file(folder: Path) -> Path:
    """Return where a detached control plane writes its log."""
    return folder / "log"


def is_up(folder: Path) -> bool:
    """Return whether a control plane of this folder runs."""
    lock = folder / "lock"
    if not lock.exists():
        return False
    with lock.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def read_state(folder: Path) -> State | None:
    """Return what is known of the control plane that is up, or None where there is none, or none that is ready."""
    if not is_up(folder):
        return None
    try:
        return State(**json.loads((folder / "state.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    ends = time.monotonic() + _LOOK_S
    with (folder / "lock").open("ab") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() > ends:
                    raise InputError("a control plane is already up here; expected `fermata local down` first",
                                     file=folder) from error  # fmt: skip
                time.sleep(0.01)
        # What a killed one left behind is not ours.
        (folder / "state.json").unlink(missing_ok=True)
        yield


def serve(options: Options, folder: Path, manifests: Sequence[Obj], ready: Callable[[State], None]) -> None:
    """Run a control plane until SIGINT or SIGTERM.

    Args:
        options: how it is set up.
        folder: where its kubeconfig and state go.
        manifests: objects that are there from the start.
        ready: called once it answers.

    Raises:
        InputError: when one is up in this folder, or the port is taken.
    """
    logging.getLogger("celpy").setLevel(logging.WARNING)
    with _locked(folder):
        try:
            asyncio.run(_serve(options, folder, manifests, ready))
        finally:
            (folder / "state.json").unlink(missing_ok=True)


async def _serve(options: Options, folder: Path, manifests: Sequence[Obj], ready: Callable[[State], None]) -> None:
    from fermata.sim.kube.plane import ControlPlane

    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    try:
        plane = await ControlPlane(options, folder=folder.resolve(), manifests=manifests).__aenter__()
    except OSError as error:
        raise InputError(f"cannot listen on 127.0.0.1:{options.port}: {error.strerror or error}") from error
    try:
        state = State(os.getpid(), plane.url, options.slots, options.nodes)
        # Written whole or not at all: whoever waits for the file reads it at once.
        partial = folder / "state.json.part"
        partial.write_text(json.dumps(asdict(state)), encoding="utf-8")
        partial.rename(folder / "state.json")
        ready(state)
        await stop.wait()
    finally:
        await plane.__aexit__(None, None, None)


def stop(folder: Path) -> bool:
    """Stop the control plane of a folder; return whether one was up."""
    if not is_up(folder):
        with suppress(NotADirectoryError):  # nothing can be up there either
            (folder / "state.json").unlink(missing_ok=True)
        return False
    state = read_state(folder)
    if state is None:
        raise InputError("a control plane is starting or does not say its process id; try again", file=folder)
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.kill(state.pid, number)
        except ProcessLookupError:
            break
        ends = time.monotonic() + _KILL_AFTER_S
        while is_up(folder) and time.monotonic() < ends:
            time.sleep(0.02)
        if not is_up(folder):
            break
    (folder / "state.json").unlink(missing_ok=True)
    return True
