"""The progress of the long commands, on standard error: a bar where there can be one, a line a minute elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from threading import Lock

from fermata.sim.ticking import LINE_EVERY_S, TICK_S, every


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[[float], object]]:
    """Yield a function that is told the share that is done, 0 to 1.

    The bar appears once there is something to show, and is gone at the end. While this process compiles it says so. In
    a log there is a line a minute, and none of what takes less.
    """
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import Progress

    console = Console(stderr=True)
    if not console.is_interactive:
        with _lines(what) as tell:
            yield tell
        return
    what = escape(what)  # a path may have brackets
    with Progress(console=console, transient=True) as bar, ExitStack() as stack:
        task = bar.add_task(what, total=None, visible=False)
        if (kernels := sys.modules.get("fermata.policy._jit")) is not None:
            compiling = f"{what}; compiling, once for each version"
            stack.enter_context(
                kernels.told_of_compiling(lambda: bar.update(task, description=compiling, visible=True))
            )
        yield lambda share: bar.update(task, description=what, total=1.0, completed=share, visible=True)


@contextmanager
def _lines(what: str) -> Iterator[Callable[[float], None]]:
    """Yield a function that is told the share that is done; it is printed once in `LINE_EVERY_S`, told or not."""
    began = told = time.monotonic()
    done, lock = 0.0, Lock()

    def tell(share: float | None = None) -> None:
        nonlocal done, told
        with lock:
            done, now = done if share is None else share, time.monotonic()
            if now - told >= LINE_EVERY_S:
                told = now
                print(f"{what}: {done:.0%}, {timedelta(seconds=round(now - began))} passed", file=sys.stderr)

    with every(TICK_S, tell):
        yield tell
