"""Read logs in Standard Workload Format as `JobLog`, by the archive's rules or by SchedInspector's.

Source: https://www.cs.huji.ac.il/labs/parallel/workload/swf.html (version 2.2); fields are counted from 0 here.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from enum import StrEnum
from operator import itemgetter
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fermata.policy.errors import InputError
from fermata.policy.wording import counted
from fermata.sim.files import Progress, shown_name
from fermata.sim.hpc.jobs import JobLog
from fermata.sim.importers.swf import job_lines, processors_of, why_left_out

_NUMBER, _SUBMIT, _RUN, _ALLOCATED, _REQUESTED, _ESTIMATE, _USER, _PARTITION = 0, 1, 3, 4, 7, 8, 11, 15
_UNKNOWN_RUNTIME_S = 10.0


class Cleaning(StrEnum):
    """What is done with lines that are not plainly a job that ran."""

    # Left out: partial executions, jobs cancelled before they started, unknown times or sizes, and jobs wider than the
    # machine. Jobs are sorted by submission. A missing estimate is the run time.
    ARCHIVE = "archive"
    # As SchedInspector's published loader does: every line counts, an unknown run time is 10 s, a job takes the larger
    # of allocated and requested processors, and jobs are sorted by their number. (It also sets every estimate to the
    # run time, which is `--estimates exact` here.)
    SCHEDINSPECTOR = "schedinspector"


def read_log(
    path: str | Path,
    cleaning: Cleaning = Cleaning.ARCHIVE,
    progress: Progress | None = None,
    left_out: Counter[str] | None = None,
) -> JobLog:
    """Read a log; the machine has MaxProcs cores, else MaxNodes.

    Args:
        path: the log, possibly `.xz` or `.gz`; `-` for standard input.
        cleaning: see `Cleaning`.
        progress: called now and then with the share that has been read, 0 to 1.
        left_out: takes in how many jobs are left out, by why they are.

    Raises:
        InputError: it cannot be read, a line is no job line, the header does not say how large the machine is, or two
            jobs that are not left out have one number.
    """
    header: dict[str, int] = {}
    rows = list(job_lines(path, header, progress))
    cores = processors_of(header)
    if cores is None:
        raise InputError("expected a header line with MaxProcs or MaxNodes, a whole number", file=shown_name(path))
    if not rows:
        raise InputError("expected at least one job line", file=shown_name(path))
    if cleaning is Cleaning.ARCHIVE:
        cleaned = _archive(rows, cores, Counter() if left_out is None else left_out, shown_name(path))
    else:
        cleaned = _schedinspector(np.array([fields for _, fields in rows]))
    if not len(cleaned):
        told = (
            f"no usable job of {len(rows)}: all are wider than {counted(cores, 'core')}, partial, cancelled or unknown"
        )
        raise InputError(told, file=shown_name(path))
    return _log(re.sub(r"(\.swf)?(\.(xz|gz))?$", "", Path(path).name), cleaned, cores)


def _archive(
    rows: list[tuple[int, list[float]]], machine: int, left_out: Counter[str], file: str
) -> NDArray[np.float64]:
    kept, numbers = [], set()
    for line, fields in rows:
        if fields[_ALLOCATED] < 1.0:
            fields[_ALLOCATED] = fields[_REQUESTED]
        if reason := why_left_out(fields, fields[_RUN], fields[_ALLOCATED], machine):
            left_out[reason] += 1
            continue
        if fields[_NUMBER] in numbers:
            raise InputError(f"job number {fields[_NUMBER]:.0f} is used twice", file=file, line=line)
        numbers.add(fields[_NUMBER])
        kept.append(fields)
    return np.array(sorted(kept, key=itemgetter(_SUBMIT)))


def _schedinspector(fields: NDArray[np.float64]) -> NDArray[np.float64]:
    fields[:, _RUN] = np.where(fields[:, _RUN] == -1.0, _UNKNOWN_RUNTIME_S, fields[:, _RUN])
    fields[:, _ALLOCATED] = np.maximum(fields[:, _ALLOCATED], fields[:, _REQUESTED])
    return fields[np.argsort(fields[:, _NUMBER], kind="stable")]


def _log(name: str, fields: NDArray[np.float64], cores: int) -> JobLog:
    runtime, estimate = fields[:, _RUN].copy(), fields[:, _ESTIMATE]
    users = np.unique(fields[:, _USER], return_inverse=True)[1]
    return JobLog(
        name=name,
        machine_cores=cores,
        ids=fields[:, _NUMBER].astype(np.int64),
        submit_s=fields[:, _SUBMIT].copy(),
        runtime_s=runtime,
        estimate_s=np.where(estimate > 0.0, estimate, runtime),
        cores=np.rint(fields[:, _ALLOCATED]).astype(np.int64),
        user=users.astype(np.int64),
        partition=np.maximum(fields[:, _PARTITION], 0.0).astype(np.int64),
    )


def swf_lines(log: JobLog, note: str) -> Iterator[str]:
    """Yield the lines of a log in Standard Workload Format; what the format asks and a `JobLog` lacks is -1."""
    yield from ("; Version: 2.2", f"; Note: {note}", f"; MaxJobs: {len(log)}", f"; MaxProcs: {log.machine_cores}")
    for row in zip(
        log.ids, log.submit_s, log.runtime_s, log.cores, log.estimate_s, log.user, log.partition, strict=True
    ):
        number, submit, run, cores, estimate, user, partition = (f"{value:.15g}" for value in row)
        yield f"{number} {submit} -1 {run} {cores} -1 -1 {cores} {estimate} -1 1 {user} -1 -1 -1 {partition} -1 -1"
