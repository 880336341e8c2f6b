"""Batch jobs of Alibaba's 2018 cluster trace: `batch_task.csv`, whose task names spell out each job's DAG.

Source: https://github.com/alibaba/clusterdata/blob/master/cluster-trace-v2018/trace_2018.md. Columns: task_name,
instance_num, job_name, task_type, status, start_time, end_time, plan_cpu, plan_mem.

What becomes of it:
- the rows of one job_name are one job; each row is a stage with `instance_num` tasks, or one if it does not say;
- `M2_1` is number 2 and depends on number 1, `J4_2_3` on 2 and 3; a part that is no number ends the list; any other
  name (`task_...`, `MergeTask`) depends on nothing;
- every task of a stage takes end_time - start_time, the only duration in this table, and one slot;
- a job arrives when its first stage started: submit times are not recorded, so waiting in the source is left out;
- a job is skipped if two rows have the same name or number, or its rows depend on each other in a circle; and if a row
  did not terminate, has no times, or names a parent that has no row. With `keep_incomplete` the latter count with what
  is known: no duration is 0 s, an unknown parent is dropped.

Rows of one job need not be next to each other, but close: `OPEN_JOBS` jobs are kept open at a time, which bounds the
memory. The real file is ordered well enough; any other can be sorted by its third column.
"""

from __future__ import annotations

import csv
import re
from collections import OrderedDict
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

from fermata.policy.errors import InputError
from fermata.sim.files import numbered_lines, shown_name
from fermata.sim.importers.base import DEFAULTS, Imported, ImportOptions, JobSink
from fermata.sim.trace_builder import MAX_TASKS, StageSpec

COLUMNS = 9
OPEN_JOBS = 10_000
_DAG_NAME = re.compile(r"[A-Za-z]+(\d{1,9})((?:_\d{1,9}(?=_|$))*)(?:_.*)?")


class _Row(NamedTuple):
    task: str
    number: int | None  # of the task within its job
    parents: list[int]  # their numbers
    tasks: int
    start_s: float | None
    end_s: float | None
    terminated: bool
    line: int


def read_alibaba(path: str | Path, options: ImportOptions = DEFAULTS) -> Imported:
    """Read `batch_task.csv` of the 2018 trace, with or without a header line.

    Args:
        path: the table, possibly `.xz` or `.gz`; `-` for standard input.
        options: see `ImportOptions`; sampling options do not apply.

    Raises:
        InputError: it cannot be read, a line has too few columns or no number where one belongs, or the rows of a job
            are too far apart; names file and line.
    """
    sink = JobSink(path, options)
    is_open: OrderedDict[str, list[_Row]] = OrderedDict()
    closed: set[str] = set()
    for number, line in numbered_lines(path, options.progress):
        if not line.strip():
            continue
        try:
            words = _columns(line.strip())
            if words[0] == "task_name":
                continue
            job, row = _parse(words, number)
        except ValueError as error:
            raise InputError(str(error), file=shown_name(path), line=number) from error
        if job in closed:
            message = f"rows of job {job!r} are more than {OPEN_JOBS} jobs apart; sort the file by its third column"
            raise InputError(message, file=shown_name(path), line=number)
        is_open.setdefault(job, []).append(row)
        is_open.move_to_end(job)
        if len(is_open) > OPEN_JOBS:
            oldest, rows = is_open.popitem(last=False)
            closed.add(oldest)
            _add(sink, oldest, rows, options)
        if sink.full:
            break
    for job, rows in is_open.items():
        if sink.full:
            break
        _add(sink, job, rows, options)
    return sink.finish()


def _columns(text: str) -> list[str]:
    """The columns of a line, without the quotes and spaces that other tools write around them."""
    try:
        return next(csv.reader([text], skipinitialspace=True, strict=True))
    except csv.Error as error:
        raise ValueError(f"expected columns separated by commas: {error}") from error


def _parse(words: list[str], line: int) -> tuple[str, _Row]:
    if len(words) < COLUMNS - 2:
        raise ValueError(f"expected {COLUMNS} columns separated by commas, found {len(words)}")
    task, instances, job, _, status, start, end = words[: COLUMNS - 2]
    if not task or not job:
        raise ValueError("expected a task_name and a job_name")
    tasks = _number(instances, "instance_num")
    if tasks is not None and not 1 <= tasks <= MAX_TASKS:
        raise ValueError(f"instance_num must be between 1 and {MAX_TASKS}, or empty, not {instances}")
    number, parents = _dag(task)
    row = _Row(
        task=task,
        number=number,
        parents=parents,
        tasks=1 if tasks is None else int(tasks),
        start_s=_number(start, "start_time"),
        end_s=_number(end, "end_time"),
        terminated=status == "Terminated",
        line=line,
    )
    return job, row


def _number(word: str, what: str) -> float | None:
    """A whole number, or None where the column is empty or 0 (how this trace writes a missing time)."""
    if not word:
        return None
    try:
        # Tools write a column with gaps in decimals, as pandas does: 10.0.
        return float(int(word.removesuffix(".0"))) or None
    except (ValueError, OverflowError):
        raise ValueError(f"{what} must be a whole number, not {word[:40]!r}") from None


def _add(sink: JobSink, job: str, rows: list[_Row], options: ImportOptions) -> None:
    reason = _unsound(rows) or (None if options.keep_incomplete else _why_not(rows))
    starts_s = [row.start_s for row in rows if row.start_s is not None]
    if reason or not starts_s:
        sink.skip(reason or "no row has a start time")
        return
    parents = _parents(rows)
    stages = [
        StageSpec(name=row.task, durations_s=[_duration_s(row)] * row.tasks, depends_on=parents[row.task])
        for row in rows
    ]
    sink.add(job, min(starts_s), stages, rows[0].line)


def _parents(rows: list[_Row]) -> dict[str, list[str]]:
    """Return the parents of each task, those that have a row."""
    by_number = {row.number: row.task for row in rows if row.number is not None}
    return {row.task: [by_number[each] for each in row.parents if each in by_number] for row in rows}


def _unsound(rows: list[_Row]) -> str | None:
    """Return why the rows are no DAG, if so."""
    if len({row.task for row in rows}) < len(rows):
        return "two rows have the same name"
    numbers = [row.number for row in rows if row.number is not None]
    if len(set(numbers)) < len(numbers):
        return "two rows have the same number"
    try:
        TopologicalSorter(_parents(rows)).prepare()
    except CycleError:
        return "its tasks depend on each other in a circle"
    return None


def _why_not(rows: list[_Row]) -> str | None:
    if not all(row.terminated for row in rows):
        return "a task did not terminate"
    if any(row.start_s is None or row.end_s is None or row.end_s < row.start_s for row in rows):
        return "a task has no valid times"
    numbers = {row.number for row in rows}
    if any(parent not in numbers for row in rows for parent in row.parents):
        return "a parent has no row"
    return None


def _duration_s(row: _Row) -> float:
    return 0.0 if row.start_s is None or row.end_s is None else max(0.0, row.end_s - row.start_s)


def _dag(task: str) -> tuple[int | None, list[int]]:
    """The number of a task within its job and those of its parents, from its name.

    >>> _dag("J4_2_3"), _dag("M1"), _dag("task_x"), _dag("R3_2_Stg1"), _dag("R3_2_1b")
    ((4, [2, 3]), (1, []), (None, []), (3, [2]), (3, [2]))
    """
    match = _DAG_NAME.fullmatch(task)
    if match is None:
        return None, []
    # A task that names itself or a parent twice would be a mistake of the source, not of the job.
    parents = dict.fromkeys(int(part) for part in match[2].split("_") if part)
    parents.pop(int(match[1]), None)
    return int(match[1]), list(parents)
