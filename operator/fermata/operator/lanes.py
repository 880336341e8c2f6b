"""How many tasks of a stage ran at once, since when, and how long one of them must have taken for that.

A lane runs one task after another. A Job has as many as its parallelism says, and gets more when it is widened: the
run time and the last cap alone say nothing of tasks that ran before. The Job itself remembers, in an annotation that is
written together with its parallelism, so that an operator killed in between forgets nothing. Pure.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from typing import NamedTuple

# A stage may be widened a thousand times; of the oldest lanes their mean start is enough.
_KEPT = 16


class Lanes(NamedTuple):
    """Some lanes that opened together."""

    since_s: float  # after the start of the stage
    number: int


def constant(cap: int) -> tuple[Lanes, ...]:
    """Return the lanes of a stage that has had one cap since its start."""
    return (Lanes(0.0, max(cap, 1)),)


def widened(lanes: Sequence[Lanes], cap: int, since_s: float) -> tuple[Lanes, ...]:
    """Return the lanes of a stage whose cap is raised.

    Args:
        lanes: those that it has.
        cap: the new one; nothing changes if it is no higher.
        since_s: when, after the start of the stage.

    >>> widened(constant(1), 13, 11.5)
    (Lanes(since_s=0.0, number=1), Lanes(since_s=11.5, number=12))
    """
    more = cap - sum(row.number for row in lanes)
    rows = [*lanes, Lanes(max(since_s, 0.0), more)] if more > 0 else list(lanes)
    while len(rows) > _KEPT:
        first, second = rows[:2]
        both = first.number + second.number
        # At the mean, they could have worked as many seconds as they can.
        rows[:2] = [Lanes((first.since_s * first.number + second.since_s * second.number) / both, both)]
    return tuple(rows)


def text_of(lanes: Sequence[Lanes]) -> str:
    """Return lanes as the text of an annotation.

    >>> text_of(widened(constant(1), 13, 11.5))
    '1@0.000 12@11.500'
    """
    return " ".join(f"{row.number}@{row.since_s:.3f}" for row in lanes)


def lanes_of(text: str, cap: int) -> tuple[Lanes, ...]:
    """Return the lanes of a Job from its annotation.

    Others can write annotations, and raise a parallelism, too: what does not add up to the cap counts as never widened.

    >>> lanes_of("1@0.000 12@11.500", 13) == widened(constant(1), 13, 11.5), lanes_of("nonsense", 3) == constant(3)
    (True, True)
    """
    try:
        parts = [part.split("@") for part in text.split()]
        lanes = tuple(Lanes(float(since), int(number)) for number, since in parts)
    except ValueError:
        return constant(cap)
    sound = all(row.number > 0 and 0.0 <= row.since_s < math.inf for row in lanes)
    # Of a Job whose parallelism somebody has set to 0 no lanes add up to it, but its tasks ran on some.
    return lanes if lanes and sound and sum(row.number for row in lanes) == cap else constant(cap)


def given_back_s(ends_s: Sequence[float], pending: int, length_s: float, now_s: float) -> list[float]:
    """Return when each lane is expected to be given back, after the tasks that its stage will still put on it.

    Tasks of one length that began by now end in turn, so those that wait go round the lanes; there may be very many.
    One that overruns its estimate is expected to end now.

    Args:
        ends_s: when the tasks that run are expected to end, the earliest first.
        pending: tasks that wait.
        length_s: of each of them.
        now_s: the time.

    >>> given_back_s([3.0, 7.0], 3, 10.0, 5.0)
    [25.0, 17.0]
    """
    rounds, rest = divmod(pending, len(ends_s))
    waves = [rounds + (lane < rest) for lane in range(len(ends_s))]
    return [max(end_s, now_s) + n * length_s if n else end_s for end_s, n in zip(ends_s, waves, strict=True)]


def task_duration_s(run_s: float, tasks: int, lanes: Sequence[Lanes]) -> float:
    """Return how long one task of a stage took, if all took the same.

    It is the longest duration with which the lanes get through all tasks in time; of lanes that were all there from the
    start, the run time over the waves in which the tasks ran.

    Args:
        run_s: from the start of the stage to its end.
        tasks: of the stage.
        lanes: on which they ran.

    >>> task_duration_s(30.0, 5, constant(2)), task_duration_s(13.0, 24, widened(constant(1), 13, 12.0))
    (10.0, 1.0)
    """
    tasks = max(tasks, 1)
    spans = [(run_s - row.since_s, row.number) for row in lanes if row.since_s < run_s]
    most_s = sum(span_s * number for span_s, number in spans) / tasks  # if no lane was ever idle
    if most_s <= 0.0:
        return 0.0
    # In a span s a lane gets through n tasks of s / n, so the duration is one of these: the first, from the longest
    # down, at which there is room for all tasks. At `most_s`, all but some of the last wave have room.
    left, ends = tasks, []
    for span_s, number in spans:
        waves = int(span_s // most_s)
        left -= waves * number
        ends.append((-span_s / (waves + 1), waves + 1, span_s, number))
    heapq.heapify(ends)
    found_s = most_s
    while left > 0:
        negative_s, waves, span_s, number = ends[0]
        found_s, left = -negative_s, left - number
        heapq.heapreplace(ends, (-span_s / (waves + 1), waves + 1, span_s, number))
    return found_s
