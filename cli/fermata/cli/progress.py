"""The progress bar of the long commands: on standard error, and only where somebody looks at it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[[float], object]]:
    """Yield a function that is told the share that is done, 0 to 1.

    The bar appears only at a terminal, once there is something to show, and is gone at the end. Where nothing has been
    compiled yet it says so at once, because that is what comes first.
    """
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import Progress

    what = escape(what)  # a path may have brackets
    console = Console(stderr=True)
    kernels = sys.modules.get("fermata.policy._jit")
    compiling = kernels is not None and kernels.FIRST_RUN
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        first = f"{what}; compiling, once for each version" if compiling else what
        task = bar.add_task(first, total=None, visible=compiling)
        yield lambda share: bar.update(task, description=what, total=1.0, completed=share, visible=True)
