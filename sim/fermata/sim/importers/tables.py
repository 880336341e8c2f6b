"""Tables of jobs, one row each, as accounting systems, log archives and databases write them: CSV with a header line.

What becomes of a row:
- a job with one stage; `ImportOptions.columns` says in which column each of `KEYS` is. What it does not name is in the
  column that is called as in job traces (`DEFAULT_NAMES`), if there is one;
- `arrival` is needed, and either `duration` or both `start` and `end`. Without `slots` each task takes one executor,
  without `tasks` there is one; executors in parts (`0.5`) are rounded up;
- times are numbers of seconds from any origin, or dates in ISO 8601, in UTC unless they say otherwise; what can be a
  number is one. The first job arrives at 0. How long is a number of seconds, or as Slurm and Python write it:
  `1-02:03:04`, `1 day, 2:03:04`;
- the estimate is in `estimate`. Without that it is the duration, or with `family`, which says what runs of the same
  thing have in common, what Fermata would have known (`fermata.sim.importers.runs`): a job's duration from its end on,
  and where no column says when that was, from when it would have ended had it not waited;
- skipped: rows without an arrival, a duration or a number of executors (empty, or a word such as `Unknown` or `NULL`),
  rows that start before they arrive or end before they start, and those that take no executor. With `keep_incomplete` a
  duration that is not known is 0 s, and a number of executors that is not known 1;
- rows of which a column has none of the values in `ImportOptions.where` are not of the table that was asked for: they
  are not counted.

Columns are apart by commas, bars, semicolons or tabs: by that of which the header has most, outside quotes.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator, Mapping, Set
from pathlib import Path
from statistics import fmean
from typing import NamedTuple, TypeVar

from fermata.policy.earlier_runs import FamilyStage, Lesson
from fermata.policy.errors import InputError
from fermata.policy.wording import counted
from fermata.sim.files import Progress, numbered_lines, shown_name
from fermata.sim.importers.base import DEFAULTS, AsItRan, Imported, ImportOptions, JobSink
from fermata.sim.importers.cells import moment_of, number_of, seconds_of, shown
from fermata.sim.importers.runs import SoFar, most_at_once
from fermata.sim.trace_builder import StageSpec

DEFAULT_NAMES = {
    "arrival": "arrival_s",
    "duration": "duration_s",
    "start": "start_s",
    "end": "end_s",
    "tasks": "tasks",
    "slots": "slots",
    "estimate": "estimate_s",
    "weight": "weight",
    "id": "id",
    "family": "family",
}
KEYS = tuple(DEFAULT_NAMES)

_STAGE = "run"
_APART, _QUOTED = ",|;\t", re.compile(r'"[^"]*"')
# What stands for nothing: in tables of databases, of pandas, and of Slurm.
_MISSING = frozenset(
    {"", "-", "\\n", "n/a", "na", "nan", "nat", "none", "null", "partition_limit", "unknown", "unlimited"}
)

_T = TypeVar("_T")


class _Row(NamedTuple):
    """A job of the table; times in seconds."""

    id: str
    arrival_s: float
    start_s: float | None
    ended_s: float | None
    duration_s: float | None
    tasks: int
    slots: int
    estimate_s: float | None
    weight: float
    family: str | None
    line: int

    @property
    def takes_s(self) -> float:
        """How long it takes: no time, if that is not known."""
        return self.duration_s or 0.0

    @property
    def end_s(self) -> float:
        """When it had ended, or would have if it had not waited."""
        if self.ended_s is not None:
            return self.ended_s
        return (self.arrival_s if self.start_s is None else self.start_s) + self.takes_s


class _SkipError(Exception):
    """A row that can be no job; says why."""


def columns_of(texts: list[str], option: str) -> dict[str, str]:
    """Return the names of columns by what is in them, of `KEY=NAME`.

    Raises:
        InputError: of another form, an unknown key, or one that is given twice.
    """
    columns: dict[str, str] = {}
    for text in texts:
        key, equals, name = text.partition("=")
        if not equals or key not in KEYS:
            raise InputError(f"{option} expects KEY=NAME with a KEY of {', '.join(KEYS)}, not {text!r}")
        if key in columns:
            raise InputError(f"{option} says twice where {key} is: {columns[key]!r} and {name!r}; expected one column")
        columns[key] = name
    return columns


def values_of(texts: list[str], option: str) -> dict[str, frozenset[str]]:
    """Return which values a row may have by the name of a column, of `NAME=VALUE`; one that is named twice has either.

    Raises:
        InputError: of another form.
    """
    values: dict[str, frozenset[str]] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InputError(f"{option} expects NAME=VALUE, as state=COMPLETED, not {text!r}")
        values[name] = values.get(name, frozenset()) | {value}
    return values


def read_table(path: str | Path, options: ImportOptions = DEFAULTS) -> Imported:
    """Read a table of jobs.

    Args:
        path: the table, possibly `.xz` or `.gz`; `-` for standard input.
        options: see `ImportOptions`; sampling options do not apply.

    Raises:
        InputError: it cannot be read, has not the columns that are needed, or a row has not as many as the header, or
            something else than what belongs there; names file and line.
    """
    sink = JobSink(path, options)
    table = _Table(path, options)
    rows: list[_Row] = []
    for line, words in table.rows(options.where):
        try:
            rows.append(table.row(words, line))
        except _SkipError as reason:
            sink.skip(str(reason))
        except ValueError as error:
            raise InputError(str(error), file=shown_name(path), line=line) from error
        if len(rows) == options.limit:
            break
    if table.passed_over and not table.taken:
        wanted = " and ".join(f"{name}={' or '.join(sorted(values))}" for name, values in options.where.items())
        raise InputError(f"no row has {wanted}", file=shown_name(path))
    rows.sort(key=lambda row: row.arrival_s)
    _add(rows, sink, options)
    return sink.finish(as_it_ran=_as_it_ran(rows, options))


def _add(rows: list[_Row], sink: JobSink, options: ImportOptions) -> None:
    """Add jobs in order of arrival, the first at 0."""
    so_far = SoFar()
    for row in rows:
        estimate_s = row.estimate_s
        slots = 1 if options.one_slot else row.slots
        if row.family is not None:
            key = FamilyStage("", row.family, _STAGE)
            if estimate_s is None:
                estimate_s = so_far.by(row.arrival_s).of(key, slots).seconds
            if row.duration_s is not None:
                so_far.add(key, slots, Lesson(row.end_s, row.id, row.duration_s))
        stage = StageSpec(
            name=_STAGE,
            durations_s=[row.takes_s] * row.tasks,
            slots=slots,
            estimate_s=None if options.exact_estimates else estimate_s,
        )
        sink.add(row.id, row.arrival_s - rows[0].arrival_s, [stage], row.line, weight=row.weight)


def _as_it_ran(rows: list[_Row], options: ImportOptions) -> AsItRan | None:
    """Return how those jobs did of which it is known when they started and ended, if there are any."""
    ran = [(row, row.start_s) for row in rows if row.start_s is not None and row.duration_s is not None]
    if not ran:
        return None
    at_once = most_at_once(
        (start_s, row.end_s, row.tasks * (1 if options.one_slot else row.slots)) for row, start_s in ran
    )
    mean_jct_s = fmean(row.end_s - row.arrival_s for row, _ in ran)
    return AsItRan(mean_jct_s, at_once, executors=True, jobs=None if len(ran) == len(rows) else len(ran))


class _Table:
    """A table that is being read: which column has what, and what a row says."""

    def __init__(self, path: str | Path, options: ImportOptions) -> None:
        self._name, self._keep = shown_name(path), options.keep_incomplete
        lines = _Lines(path, options.progress)
        header = next(lines, None)
        if header is None:
            raise InputError("there is nothing in it; expected a header line", file=self._name)
        self._apart = max(_APART, key=_QUOTED.sub("", header).count)
        try:
            names = next(csv.reader([header], delimiter=self._apart, skipinitialspace=True))
        except csv.Error as error:
            raise InputError(f"expected a header line: {error}", file=self._name, line=1) from error
        self._header = [name.strip() for name in names]
        self._reader = csv.reader(lines, delimiter=self._apart, skipinitialspace=True, strict=True)
        self._lines, self.taken, self.passed_over = lines, 0, 0  # rows that were asked for, and others
        self._at = self._places(options.columns)
        self._dated: bool | None = None

    def _places(self, columns: Mapping[str, str]) -> dict[str, int]:
        """Return at which place of a row each key is, of those that the table has."""
        at = {key: self._place(name) for key, name in columns.items()}
        for key, name in DEFAULT_NAMES.items():
            if key not in at and name in self._header:
                at[key] = self._place(name)
        if "arrival" not in at:
            raise self._lacking("when jobs arrived", "--column arrival=NAME")
        if "duration" not in at and not {"start", "end"} <= at.keys():
            raise self._lacking("how long jobs took", "--column duration=NAME, or start=NAME and end=NAME")
        return at

    def _place(self, name: str) -> int:
        if self._header.count(name) != 1:
            problem = "has several columns" if name in self._header else "has no column"
            raise InputError(f"it {problem} {name!r}; there are: {', '.join(self._header)}", file=self._name, line=1)
        return self._header.index(name)

    def _lacking(self, what: str, expected: str) -> InputError:
        return InputError(
            f"no column says {what}; expected {expected}; there are: {', '.join(self._header)}", file=self._name, line=1
        )

    def rows(self, where: Mapping[str, Set[str]]) -> Iterator[tuple[int, list[str]]]:
        """Yield the rows that have one of these values in each of these columns, with the number of the line."""
        wanted = [(self._place(name), values) for name, values in where.items()]
        while True:
            line = self._lines.number + 1
            try:
                words = next(self._reader, None)
            except csv.Error as error:
                raise InputError(f"expected columns as in the header: {error}", file=self._name, line=line) from error
            if words is None:
                return
            words = [word.strip() for word in words]
            if not any(words):
                continue
            if len(words) != len(self._header):
                found = f"expected {counted(len(self._header), 'column')} as in the header, found {len(words)}"
                raise InputError(found, file=self._name, line=line)
            if any("\n" in word and word.count(self._apart) >= len(self._header) - 1 > 0 for word in words):
                found = "a quote that is never closed takes in whole lines; expected quotes in pairs"
                raise InputError(found, file=self._name, line=line)
            if all(words[place] in values for place, values in wanted):
                self.taken += 1
                yield line, words
            else:
                self.passed_over += 1

    def row(self, words: list[str], line: int) -> _Row:
        """Return what a row says.

        Raises:
            _SkipError: it can be no job.
            ValueError: something else is there than what belongs there.
        """
        arrival = self._known(self._moment(words, "arrival"), "unknown arrival")
        start, end = self._moment(words, "start"), self._moment(words, "end")
        if start is not None and start < arrival:
            raise _SkipError("started before it arrived")
        return _Row(
            id=self._word(words, "id") or (f"line {line}" if "id" in self._at else str(line)),
            arrival_s=arrival,
            start_s=start,
            ended_s=end,
            duration_s=self._duration_s(words, start, end),
            tasks=self._count(words, "tasks"),
            slots=self._count(words, "slots"),
            estimate_s=self._seconds(words, "estimate"),
            weight=self._weight(words),
            family=self._family(words),
            line=line,
        )

    def _family(self, words: list[str]) -> str | None:
        """Return what runs of the same thing have in common; None if no column says so. Empty is a family, too."""
        return (self._word(words, "family") or "") if "family" in self._at else None

    def _word(self, words: list[str], key: str) -> str | None:
        """Return what a column has, or None if there is no such column, or nothing in it."""
        if key not in self._at:
            return None
        word = words[self._at[key]]
        return None if word.lower() in _MISSING else word

    @staticmethod
    def _known(value: _T | None, reason: str) -> _T:
        if value is None:
            raise _SkipError(reason)
        return value

    def _moment(self, words: list[str], key: str) -> float | None:
        word = self._word(words, key)
        if word is None:
            return None
        moment = moment_of(word, self._what(key))
        if self._dated is None:
            self._dated = moment.dated
        if moment.dated != self._dated:
            expected = "a date" if self._dated else "a number of seconds"
            raise ValueError(f"{self._what(key)} must be {expected}, as times above are, not {shown(word)}")
        return moment.seconds

    def _seconds(self, words: list[str], key: str) -> float | None:
        word = self._word(words, key)
        return None if word is None else seconds_of(word, self._what(key))

    def _duration_s(self, words: list[str], start_s: float | None, end_s: float | None) -> float | None:
        duration_s = self._seconds(words, "duration")
        if duration_s is None and start_s is not None and end_s is not None:
            duration_s = end_s - start_s
        if duration_s is None and not self._keep:
            raise _SkipError("unknown duration")
        if (duration_s or 0.0) < 0.0 or (start_s is not None and end_s is not None and end_s < start_s):
            raise _SkipError("ended before it started")
        return duration_s

    def _count(self, words: list[str], key: str) -> int:
        """Return how many tasks there are, or executors a task takes; 1 if no column says so."""
        if key not in self._at:
            return 1
        word = self._word(words, key)
        if word is None:
            return self._known(1 if self._keep else None, f"unknown number of {_COUNTED[key]}")
        number = number_of(word, self._what(key))
        if number <= 0.0:
            raise _SkipError(_NONE[key])
        if key == "tasks" and not number.is_integer():
            raise ValueError(f"{self._what(key)} must be a whole number, not {shown(word)}")
        return math.ceil(number)

    def _weight(self, words: list[str]) -> float:
        word = self._word(words, "weight")
        return 1.0 if word is None else number_of(word, self._what("weight"))

    def _what(self, key: str) -> str:
        return f"column {self._header[self._at[key]]!r} ({key})"


_COUNTED = {"slots": "executors", "tasks": "tasks"}
_NONE = {"slots": "takes no executor", "tasks": "has no task"}


class _Lines:
    """The lines of a file one at a time, and the number of the one read last."""

    def __init__(self, path: str | Path, progress: Progress | None) -> None:
        self._lines, self.number = numbered_lines(path, progress), 0

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        self.number, line = next(self._lines)
        return line
