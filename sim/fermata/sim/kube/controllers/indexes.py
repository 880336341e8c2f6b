"""Sets of completion indexes as a Job's status writes them: `0,3-5`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def parse_indexes(text: str) -> set[int]:
    """Return the indexes that a text names.

    >>> sorted(parse_indexes("0,3-5"))
    [0, 3, 4, 5]
    """
    found: set[int] = set()
    for part in text.split(","):
        if part:
            first, _, last = part.partition("-")
            found.update(range(int(first), int(last or first) + 1))
    return found


def format_indexes(indexes: Iterable[int]) -> str:
    """Return the shortest text that names the indexes.

    >>> format_indexes([5, 3, 4, 0, 7, 8])
    '0,3-5,7,8'
    """
    parts: list[str] = []
    run: list[int] = []
    for index in [*sorted(indexes), -1]:
        if run and index != run[-1] + 1:
            # Two neighbours are written one by one, as Kubernetes does.
            parts += [f"{run[0]}-{run[-1]}"] if len(run) > 2 else map(str, run)
            run = []
        run.append(index)
    return ",".join(parts)
