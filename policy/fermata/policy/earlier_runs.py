"""What one task will take by what tasks took before: in earlier runs of its family, else of its class, else a guess.

Fed with finished stages, in any order and any number of times: what is known already is not counted again. No cluster,
no clock.
"""

from __future__ import annotations

import re
from bisect import insort
from statistics import fmean, median, quantiles
from typing import NamedTuple

from fermata.policy.wording import counted

UNKNOWN, UNKNOWN_S = "a guess, as nothing has finished in the pool yet", 60.0
LEAST_S = 0.001
_REMEMBERED = 20  # latest durations of each stage of a family: enough for a median, few enough to follow a drift
_REMEMBERED_CLASS = 500
# Stages of families whose runs are kept, those that ran last: names that are never used again must not pile up.
_REMEMBERED_STAGES = 10_000
# What people and generateName append to tell one run from the next: numbers, and five of the letters and digits that
# make no words.
_RUN_SUFFIX = re.compile(r"-(?:[0-9]+|[bcdfghjklmnpqrstvwxz2456789]{5})$")


class Estimate(NamedTuple):
    """Seconds that one task is expected to take, where the number comes from, and the quartiles behind it."""

    seconds: float
    source: str
    quartiles: tuple[float, float] | None = None


class Lesson(NamedTuple):
    """One finished stage; sorts by its end."""

    end_s: float
    uid: str  # of its workflow
    duration_s: float  # of one task


class FamilyStage(NamedTuple):
    """What runs of a stage have in common."""

    namespace: str
    family: str
    stage: str


class _Recent:
    """The latest lessons, whatever order they come in."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._rows: list[Lesson] = []
        self._uids: set[str] = set()
        self._estimate: Estimate | None = None

    def add(self, lesson: Lesson) -> bool:
        """Take a lesson, unless it is known or older than all that are kept; tell whether it was taken."""
        # Many may have ended at once, as far as the API's whole seconds tell: what was dropped must not look new.
        if len(self._rows) == self._size and lesson < self._rows[0]:
            return False
        if lesson.uid in self._uids:
            return False
        insort(self._rows, lesson)
        self._uids.add(lesson.uid)
        while len(self._rows) > self._size:
            self._uids.remove(self._rows.pop(0).uid)
        self._estimate = None
        return True

    def __len__(self) -> int:
        return len(self._rows)

    def median(self) -> Estimate:
        """Return the median, which one slow run does not move."""
        if self._estimate is None:
            durations_s = [row.duration_s for row in self._rows]
            spread = None
            if len(durations_s) > 1:
                low_s, _, high_s = quantiles(durations_s, n=4, method="inclusive")
                spread = low_s, high_s
            text = f"median of {counted(len(durations_s), 'earlier run')}"
            self._estimate = Estimate(max(median(durations_s), LEAST_S), text, spread)
        return self._estimate

    def mean(self, where: str) -> Estimate:
        """Return the mean: of an unknown member of a class it is the best guess, where the median is not."""
        if self._estimate is None:
            mean_s = fmean(row.duration_s for row in self._rows)
            self._estimate = Estimate(max(mean_s, LEAST_S), f"mean of {counted(len(self._rows), 'stage')} {where}")
        return self._estimate


def without_run_suffix(name: str) -> str:
    """Return what the runs of one thing are called, by the name of one of them.

    >>> [without_run_suffix(name) for name in ("etl-20261", "etl-x7k2p", "etl-daily")]
    ['etl', 'etl', 'etl-daily']
    """
    return _RUN_SUFFIX.sub("", name)


class EarlierRuns:
    """Durations of finished tasks of one pool, by family and stage, and by class: tasks of so many slots."""

    def __init__(self) -> None:
        self._stages: dict[FamilyStage, _Recent] = {}
        self._classes: dict[int, _Recent] = {}
        self._pool = _Recent(_REMEMBERED_CLASS)

    def learn(self, key: FamilyStage, slots: int, lesson: Lesson) -> bool:
        """Take a finished stage whose tasks took so many slots; tell whether it was new."""
        known = self._stages.pop(key, None) or _Recent(_REMEMBERED)
        self._stages[key] = known  # the latest one at the end
        if len(self._stages) > _REMEMBERED_STAGES:
            del self._stages[next(iter(self._stages))]
        if not known.add(lesson):
            return False
        # A workflow has many stages, and a class knows its members by uid.
        member = lesson._replace(uid=f"{lesson.uid}/{key.stage}")
        self._classes.setdefault(slots, _Recent(_REMEMBERED_CLASS)).add(member)
        self._pool.add(member)
        return True

    def runs(self, key: FamilyStage) -> int:
        """Return how many runs of a family's stage are known."""
        return len(self._stages.get(key, ()))

    @property
    def ripeness(self) -> int:
        """Grows when twice as many stages of a class are known, which changes many estimates."""
        return sum(len(members).bit_length() for members in self._classes.values())

    def of(self, key: FamilyStage, slots: int) -> Estimate:
        """Return what one task of a stage, of so many slots, is expected to take."""
        known = self._stages.get(key)
        if known is not None:
            return known.median()
        if slots in self._classes:
            return self._classes[slots].mean(f"of {counted(slots, 'slot')} in the pool")
        if self._classes:
            return self._pool.mean("in the pool")
        return Estimate(UNKNOWN_S, UNKNOWN)
