"""Numba where it is installed, plain Python where it is not: the same source is both.

The operator's image has no Numba; there the kernels of this package run as ordinary functions over numpy arrays.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

_numba: Any = None
# FERMATA_NO_JIT=1 runs plain Python where Numba is installed: for small episodes, and to compare the two.
if os.environ.get("FERMATA_NO_JIT", "0") in ("", "0"):
    with contextlib.suppress(ImportError):
        _numba = importlib.import_module("numba")

COMPILED = _numba is not None

_ROOM_BYTES = 64 * 2**20  # twice what all kernels take


def _cache_folder() -> Path | None:
    """Return a folder for compiled code of exactly these sources; None where the user has no home.

    Numba's own cache looks only at the file of the outermost function, so a change in a kernel that it calls would go
    unnoticed; a folder a digest of all sources cannot be stale.
    """
    digest = hashlib.sha256()
    here = Path(__file__).parent
    rooms = (Path(root) / room for root in importlib.import_module("fermata").__path__ for room in ("sim", "training"))
    for folder in (here, *rooms):
        for source in sorted(folder.rglob("*.py")):
            digest.update(source.read_bytes())
    try:
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:
        return None
    return home / "fermata" / f"compiled-{digest.hexdigest()[:16]}"


def _can_hold_code(folder: Path) -> bool:
    """Tell whether a folder can be written and has room; Numba would end the program where its disk is full."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return os.access(folder, os.W_OK) and shutil.disk_usage(folder).free >= _ROOM_BYTES
    except OSError:
        return False


_CACHED = False
if _numba is not None:
    _folder = Path(_numba.config.CACHE_DIR) if _numba.config.CACHE_DIR else _cache_folder()
    if _folder is not None and _can_hold_code(_folder):
        _CACHED = True
        _numba.config.CACHE_DIR = str(_folder)

_KERNEL: dict[str, Any] = {
    "cache": _CACHED,
    "error_model": "numpy",  # Python's would add a branch to every division
    "_nrt": False,
    "no_cfunc_wrapper": True,
}


@contextlib.contextmanager
def told_of_compiling(tell: Callable[[], object]) -> Iterator[None]:
    """Call `tell` in this block whenever something begins to be compiled in this process, not loaded from the cache."""
    if _numba is None:
        yield
        return
    events = importlib.import_module("numba.core.event")

    class Listener(events.Listener):  # type: ignore[misc, name-defined]
        def on_start(self, event: object) -> None:
            tell()

        def on_end(self, event: object) -> None:
            pass

    with events.install_listener("numba:compile", Listener()):
        yield


def jit(function: F) -> F:
    """Compile `function` with Numba, cached on disk, or return it unchanged; divisions by zero must be ruled out."""
    if _numba is None:
        return function
    compiled: F = _numba.njit(cache=_CACHED, error_model="numpy", no_cfunc_wrapper=True)(function)
    return compiled


def kernel(function: F) -> F:
    """Like `jit`, for what allocates nothing: its caller owns every array, so none of them is reference-counted.

    Counting costs more than the work of most kernels: each is an atomic operation, for each array of each call. So does
    a call: a world is passed as some two hundred numbers, seven for each of its arrays. Kernels that call others have
    their code instead.
    """
    if _numba is None:
        return function
    compiled: F = _numba.njit(**_KERNEL, forceinline=True)(function)
    return compiled


def routine(function: F) -> F:
    """Like `kernel`, for what goes on for long, beside which a call costs nothing: its callers do not have its code."""
    if _numba is None:
        return function
    compiled: F = _numba.njit(**_KERNEL)(function)
    return compiled


def part(function: F) -> F:
    """Like `kernel`, for what only kernels call: a way in from Python takes a tenth of the time to compile."""
    if _numba is None:
        return function
    compiled: F = _numba.njit(**_KERNEL, forceinline=True, no_cpython_wrapper=True)(function)
    return compiled


def inlined(function: F) -> F:
    """Like `kernel`, for small ones that interpreted code may call, too: a way in is compiled only where it does."""
    if _numba is None:
        return function
    compiled: F = _numba.njit(inline="always", error_model="numpy")(function)
    return compiled
