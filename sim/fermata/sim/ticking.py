"""Something that is done again and again beside other work."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread

LINE_EVERY_S = 60.0  # in a log, what goes on for long says so as often
TICK_S = 5.0  # by so much such a line may be late


@contextmanager
def every(seconds: float, call: Callable[[], object]) -> Iterator[None]:
    """Call a function once in so many seconds, in a thread of its own, as long as the block runs.

    >>> with every(60.0, print):
    ...     pass
    """
    over = Event()

    def tick() -> None:
        while not over.wait(seconds):
            call()

    thread = Thread(target=tick, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(1.0)  # what it calls may wait for a reader who does not read
