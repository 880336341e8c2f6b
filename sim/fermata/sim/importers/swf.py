"""Logs of parallel machines in Standard Workload Format: rigid jobs that take several processors at once.

Source: https://www.cs.huji.ac.il/labs/parallel/workload/swf.html (version 2.2), fields 1 to 18 of a job line.

What becomes of a line:
- a job with one stage of one task that takes the allocated processors (field 5, else the requested, field 8) for the
  run time (field 4); it arrives at the submit time (field 2);
- the estimate is the requested time (field 9) where there is one, else the run time;
- skipped: partial executions (status 2 to 4; the summary line of the job counts), jobs cancelled before they started
  (status 5 without a run time), jobs wider than the machine (MaxProcs), and jobs whose submit time, run time or
  processors are unknown. With `keep_incomplete` the last two take the requested time and one processor instead, where
  that is known;
- dependencies on preceding jobs (fields 17 and 18) are left out: the submit times contain them already.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from fermata.policy.errors import InputError
from fermata.sim.files import Progress, numbered_lines, shown_name
from fermata.sim.importers.base import DEFAULTS, Imported, ImportOptions, JobSink
from fermata.sim.trace_builder import MAX_TIME_S, StageSpec
from fermata.sim.trace_jobs import select_jobs

FIELDS = 18
UNKNOWN = -1.0
_MOST = MAX_TIME_S  # up to which a number here keeps all of its digits: two longer job ids may be one
_NUMBER, _SUBMIT, _RUN, _ALLOCATED, _REQUESTED, _REQUESTED_TIME, _STATUS = 0, 1, 3, 4, 7, 8, 10
_WHOLE = (_NUMBER, _ALLOCATED, _REQUESTED)  # a job's number and its processors, which are counted; times need not be
PARTIAL = (2.0, 3.0, 4.0)
CANCELLED = 5.0
_WIDER = "wider than the machine"
# A number that goes on after a comma or a point is none that can be read: of 1,024 processors the first is one.
_MACHINE = re.compile(r";\s*(MaxProcs|MaxNodes)\s*:\s*(\d{1,15})(?![\d.,]*\d)")


def processors_of(header: Mapping[str, int]) -> int | None:
    """Return the size of the machine by the comments read so far: MaxProcs, else MaxNodes; None if they do not say."""
    return header.get("MaxProcs") or header.get("MaxNodes") or None


def job_lines(path: str | Path, header: dict[str, int], progress: Progress | None) -> Iterator[tuple[int, list[float]]]:
    """Yield number and fields of each job line.

    Args:
        path: the log, possibly `.xz` or `.gz`; `-` for standard input.
        header: takes in what the comments say of the machine, as they are reached; what is said first counts.
        progress: called now and then with the share that has been read, 0 to 1.

    Raises:
        InputError: it cannot be read, or a line is no job line; names file and line.
    """
    for number, line in numbered_lines(path, progress, "replace"):  # comments may be in Latin-1
        text = line.strip()
        if text.startswith(";"):
            if match := _MACHINE.match(text):
                header.setdefault(match[1], int(match[2]))
        elif text:
            try:
                fields = _parse_line(text)
            except ValueError as error:
                raise InputError(str(error), file=shown_name(path), line=number) from error
            yield number, fields


def read_swf(path: str | Path, options: ImportOptions = DEFAULTS) -> Imported:
    """Read a log in Standard Workload Format; `executors` of the result is MaxProcs, else MaxNodes, of any comment.

    Args:
        path: the log, possibly `.xz` or `.gz`; `-` for standard input.
        options: see `ImportOptions`; sampling options do not apply.

    Raises:
        InputError: it cannot be read, or a line is no job line; names file and line.
    """
    sink = JobSink(path, options)
    header: dict[str, int] = {}
    for number, fields in job_lines(path, header, options.progress):
        _add(sink, fields, options, number, processors_of(header) or math.inf)
        if sink.full:
            break
    machine = processors_of(header)
    imported = sink.finish(machine)
    return imported if machine is None else _fitting(imported, machine, path)


def _fitting(imported: Imported, machine: int, path: str | Path) -> Imported:
    """Leave out what is wider than a machine whose size was told below it; every job is one stage."""
    fits = imported.trace.stage_slots <= machine
    if fits.all():
        return imported
    skipped = imported.skipped | {_WIDER: imported.skipped.get(_WIDER, 0) + int((~fits).sum())}
    if not fits.any():
        raise InputError(f"no usable jobs (no job fits into MaxProcs, {machine})", file=shown_name(path))
    return Imported(select_jobs(imported.trace, np.flatnonzero(fits)), machine, skipped=skipped)


def _parse_line(text: str) -> list[float]:
    """Return the 18 fields of a job line; those that are missing at the end are unknown.

    Raises:
        ValueError: it is not a line of numbers, finite and at most 1e15, or counts jobs or processors in fractions.
    """
    words = text.split()
    if not _STATUS < len(words) <= FIELDS:
        raise ValueError(f"expected a job line of {FIELDS} numbers, found {len(words)} words")
    try:
        fields = [float(word) for word in words]
    except ValueError as error:
        raise ValueError(f"expected {FIELDS} numbers: {error}") from error
    if not all(abs(field) <= _MOST for field in fields):
        raise ValueError(f"expected finite numbers of at most {_MOST:g}")
    for index in _WHOLE:
        if not fields[index].is_integer():
            raise ValueError(f"expected a whole number in field {index + 1}, found {words[index]}")
    return fields + [UNKNOWN] * (FIELDS - len(fields))


def _add(sink: JobSink, fields: list[float], options: ImportOptions, line: int, machine: float) -> None:
    run_s, processors, requested_s = fields[_RUN], fields[_ALLOCATED], fields[_REQUESTED_TIME]
    if processors < 1.0:
        processors = fields[_REQUESTED]
    if options.keep_incomplete:
        run_s = requested_s if run_s < 0.0 else run_s
        processors = max(processors, 1.0)
    if reason := why_left_out(fields, run_s, processors, math.inf if options.one_slot else machine):
        sink.skip(reason)
        return
    stage = StageSpec(
        name="run",
        durations_s=[run_s],
        slots=1 if options.one_slot else round(processors),
        estimate_s=requested_s if requested_s > 0.0 and not options.exact_estimates else None,
    )
    sink.add(f"{fields[_NUMBER]:.0f}", fields[_SUBMIT], [stage], line)


def why_left_out(fields: list[float], run_s: float, processors: float, machine: float) -> str | None:
    """Return why a job line is left out, if it is.

    Args:
        fields: of the line.
        run_s: how long the job ran; below 0 if that is unknown.
        processors: how many it took; below 1 if that is unknown.
        machine: how many there are.
    """
    if fields[_STATUS] in PARTIAL:
        return "partial execution"
    if fields[_STATUS] == CANCELLED and fields[_RUN] <= 0.0:
        return "cancelled before it started"
    if fields[_SUBMIT] < 0.0:
        return "unknown submit time"
    if run_s < 0.0:
        return "unknown run time"
    if processors < 1.0:
        return "unknown number of processors"
    return _WIDER if processors > machine else None
