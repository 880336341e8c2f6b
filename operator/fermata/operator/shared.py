"""What keeps many Jobs from being started in the same words: one of them is tried for all.

There may be thousands of such stages, as where a webhook of a namespace does not answer or a right is missing there, or
where a policy denies all Jobs of a workflow. Each would be asked for every few seconds, for as long as that lasts.
Knows nothing of Jobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from fermata.operator.connection import ClusterError
from fermata.operator.progress import StageKey
from fermata.operator.retry import MOST_S, Failure, is_due


class Trouble(NamedTuple):
    """Where, and what the API server says to each of them.

    What admission denies to one Job it may grant to another, and of those of one workflow most often to none or all.
    """

    where: str  # a namespace, or the uid of a workflow
    message: str


class Shared:
    """Stages by the trouble that they share, and when the next of them may be tried.

    One that fails in a way of its own, or has not been tried, is none of these.
    """

    def __init__(self) -> None:
        self._trouble: dict[StageKey, Trouble] = {}
        self._failures: dict[Trouble, Failure] = {}

    def note(self, key: StageKey, namespace: str, error: Exception, now_s: float) -> None:
        """Take in why a stage was not started; of those that are tried at once one counts."""
        self._trouble.pop(key, None)
        if isinstance(error, ClusterError) and (error.is_of_no_object or error.denial):
            of_all = error.is_of_no_object
            trouble = Trouble(namespace, str(error)) if of_all else Trouble(key[0], error.denial)
            self._trouble[key] = trouble
            before = self._failures.get(trouble)
            if is_due(before, now_s):
                self._failures[trouble] = Failure.after(before, trouble.message, now_s, busy=error.is_trouble)

    def forget(self, uid: str) -> None:
        """Drop what is kept of a workflow, whose stages are tried each by itself from now on."""
        for key in [key for key in self._trouble if key[0] == uid]:
            del self._trouble[key]

    def tidy(self) -> None:
        """Drop what nobody shares any more."""
        shared = set(self._trouble.values())
        self._failures = {trouble: failure for trouble, failure in self._failures.items() if trouble in shared}

    def over(self, key: StageKey) -> list[StageKey]:
        """Return all stages that shared a trouble with one that has been started: it is over, and none shares it."""
        trouble = self._trouble.get(key)
        found = [each for each, shared in self._trouble.items() if shared == trouble] if trouble else []
        for each in found:
            del self._trouble[each]
        return found

    def behind(
        self,
        failures: Mapping[StageKey, Failure],
        able: Iterable[StageKey],
        under_way: Iterable[StageKey],
        now_s: float,
    ) -> set[StageKey]:
        """Return the stages that let others be tried for them.

        Who waits longest is tried, lest a Job that alone is at fault keep all others waiting. It may be held, or not
        fit: so after a minute any may be tried.

        Args:
            failures: when each was to be tried again by itself.
            able: stages that may be started now, whatever has failed.
            under_way: those that are being started.
            now_s: the time.
        """
        longest: dict[Trouble, StageKey] = {}
        for key in self._trouble.keys() & set(able):
            known = longest.get(self._trouble[key])
            if known is None or (failures[key].until_s, key) < (failures[known].until_s, known):
                longest[self._trouble[key]] = key
        tried = set(longest.values()) | {key for key in self._trouble if failures[key].until_s + MOST_S <= now_s}
        waits = set(self._waiting(under_way, now_s))
        return {key for key, trouble in self._trouble.items() if trouble in waits or key not in tried}

    def waits(self, key: StageKey, under_way: Iterable[StageKey], now_s: float) -> bool:
        """Tell whether a stage shares a trouble of which another one is being tried, or failed a moment ago."""
        return key in self._trouble and self._trouble[key] in set(self._waiting(under_way, now_s))

    def retries_s(self) -> Iterator[float]:
        """Yield when one of each trouble is tried again."""
        return (failure.until_s for failure in self._failures.values())

    def _waiting(self, under_way: Iterable[StageKey], now_s: float) -> Iterator[Trouble]:
        yield from (self._trouble[key] for key in under_way if key in self._trouble)
        yield from (trouble for trouble, failure in self._failures.items() if not is_due(failure, now_s))
