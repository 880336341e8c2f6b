"""What each executor did over time, where only the times of tasks and holds are known: the rows of a Gantt chart."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple


class ExecutorSpan(NamedTuple):
    """What one executor did for a while: ran a task, or was left idle on purpose."""

    executor: int  # from 0
    start_s: float
    end_s: float
    job: str
    kind: Literal["run", "hold"]


def assign_executors(
    tasks: Iterable[tuple[float, float, str]], holds: Iterable[tuple[float, float]], executors: int
) -> list[ExecutorSpan]:
    """Lay tasks on executors where only their times are known, and holds on the executors that are free meanwhile.

    Args:
        tasks: (start, end, job) in seconds, of one executor each; tasks that measured times let overlap by a moment
            are cut, not dropped.
        holds: (start, end) in seconds; they may overlap.
        executors: how many there are.

    >>> assign_executors([(0.0, 2.0, "a"), (1.0, 3.0, "b")], [(2.5, 4.0)], 2)
    ... # doctest: +NORMALIZE_WHITESPACE
    [ExecutorSpan(executor=0, start_s=0.0, end_s=2.0, job='a', kind='run'),
     ExecutorSpan(executor=1, start_s=1.0, end_s=3.0, job='b', kind='run'),
     ExecutorSpan(executor=0, start_s=2.5, end_s=4.0, job='', kind='hold'),
     ExecutorSpan(executor=1, start_s=3.0, end_s=4.0, job='', kind='hold')]
    """
    free_s = [float("-inf")] * executors
    runs: list[ExecutorSpan] = []
    for start_s, end_s, job in sorted(tasks):
        chosen = min(range(executors), key=lambda lane: (max(free_s[lane], start_s), lane))
        begins_s = max(free_s[chosen], start_s)
        free_s[chosen] = max(end_s, begins_s)
        runs.append(ExecutorSpan(chosen, begins_s, free_s[chosen], job, "run"))
    holds = _union(holds)
    idle = [
        ExecutorSpan(lane, max(start_s, hold_start_s), min(end_s, hold_end_s), "", "hold")
        for lane in range(executors)
        for start_s, end_s in _gaps([span for span in runs if span.executor == lane])
        for hold_start_s, hold_end_s in holds
        if max(start_s, hold_start_s) < min(end_s, hold_end_s)
    ]
    return runs + idle


def _union(spans: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    merged: list[tuple[float, float]] = []
    for start_s, end_s in sorted(spans):
        if merged and start_s <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end_s))
        else:
            merged.append((start_s, end_s))
    return merged


def _gaps(runs: Sequence[ExecutorSpan]) -> list[tuple[float, float]]:
    edges = [float("-inf"), *(edge for span in runs for edge in (span.start_s, span.end_s)), float("inf")]
    return list(zip(edges[::2], edges[1::2], strict=True))
