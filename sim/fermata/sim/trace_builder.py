"""Build a `Trace` job by job.

Everything that makes traces (the reader, importers, generators) goes through here, so the rules that every trace obeys
are written once: names unique and not empty, parents known, no cycle, times between 0 and MAX_TIME_S. It knows nothing
of files; whoever does adds the file and the line to its errors.
"""

from __future__ import annotations

import math
import sys
from array import array
from collections.abc import Iterable, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
from numpy.typing import NDArray

from fermata.policy.errors import InputError
from fermata.policy.wording import cycle
from fermata.sim.trace import Trace
from fermata.sim.trace_jobs import in_order_of_arrival

_Number = TypeVar("_Number", np.float64, np.int64, np.int32)

MAX_TASKS = 10_000_000
MAX_SLOTS = 2**31 - 1
# Beyond, a clock of floats cannot tell tenths of a second apart, and sums of such times would soon be infinite.
MAX_TIME_S = 1e15
MAX_WEIGHT = 1e15


class StageSpec(NamedTuple):
    """One stage of a job to add.

    Args:
        name: unique within the job, not empty.
        durations_s: what happens, one number a task; a moldable stage has one, its work (time on one executor).
        depends_on: names of stages of the same job, in any order of definition.
        slots: executors that one task takes together.
        estimate_s: what the scheduler believes of one task; None for the mean duration.
        serial_fraction: the share of a moldable stage's work that never speeds up, in [0, 1]; None if not moldable.
    """

    name: str
    durations_s: Sequence[float]
    depends_on: Sequence[str] = ()
    slots: int = 1
    estimate_s: float | None = None
    serial_fraction: float | None = None


def mean_duration_s(durations_s: Sequence[float]) -> float:
    """The estimate that a stage gets where none is given; exact for equal durations."""
    first = durations_s[0]
    if len(durations_s) == 1 or all(duration == first for duration in durations_s):
        return first
    return math.fsum(durations_s) / len(durations_s)


class TraceBuilder:
    """Appends jobs to flat, growing arrays; `finish` turns them into a `Trace` without copying them.

    Jobs may come in any order of arrival; `finish` sorts them, ties in the order they were added. The arrays take about
    150 bytes for a job of one stage, so a million jobs need no special care.
    """

    def __init__(self) -> None:
        self._arrival_s, self._weight = array("d"), array("d")
        self._job_stage_ptr, self._task_ptr, self._parent_ptr = array("q", [0]), array("q", [0]), array("q", [0])
        self._slots, self._parent = array("i"), array("i")
        self._estimate_s, self._serial_fraction, self._duration_s = array("d"), array("d"), array("d")
        self._job_ids: dict[str, None] = {}
        self._stage_names: list[str] = []

    def __len__(self) -> int:
        """Number of jobs added so far."""
        return len(self._arrival_s)

    def add_job(self, job_id: str, arrival_s: float, stages: Iterable[StageSpec], weight: float = 1.0) -> None:
        """Append one job; on an error the builder is left in the middle of it and must be thrown away.

        Raises:
            InputError: the job breaks a rule of the format; the message names the job or stage, not the file.
        """
        if not job_id or job_id.isspace():
            raise InputError("id must not be empty")
        _check_text("id", job_id)
        if job_id in self._job_ids:
            raise InputError(f"job id {job_id!r} is used twice")
        check_time("arrival_s", arrival_s)
        if not 0.0 < weight <= MAX_WEIGHT:
            raise InputError(f"weight must be a number above 0 and at most {MAX_WEIGHT:g}, not {weight!r}")
        self._job_ids[job_id] = None
        self._arrival_s.append(arrival_s)
        self._weight.append(weight)
        self._add_stages(list(stages))

    def _add_stages(self, stages: list[StageSpec]) -> None:
        if not stages:
            raise InputError("a job needs at least one stage")
        base = len(self._stage_names)
        index: dict[str, int] = {}
        for position, stage in enumerate(stages):
            if not stage.name or stage.name.isspace():
                raise InputError(f"the name of stage {position + 1} must not be empty")
            _check_text(f"the name of stage {position + 1}", stage.name)
            if stage.name in index:
                raise InputError(f"stage name {stage.name!r} is used twice in one job")
            index[stage.name] = position
        _check_acyclic(stages, index)
        for stage in stages:
            self._add_tasks(stage)
            self._parent.extend([base + index[parent] for parent in stage.depends_on])
            self._parent_ptr.append(len(self._parent))
            self._stage_names.append(sys.intern(stage.name))
        self._job_stage_ptr.append(len(self._stage_names))

    def _add_tasks(self, stage: StageSpec) -> None:
        tasks = len(stage.durations_s)
        if not 1 <= tasks <= MAX_TASKS:
            raise InputError(f"stage {stage.name!r}: tasks must be between 1 and {MAX_TASKS}, not {tasks}")
        if not 1 <= stage.slots <= MAX_SLOTS:
            raise InputError(f"stage {stage.name!r}: slots must be between 1 and {MAX_SLOTS}, not {stage.slots}")
        if stage.serial_fraction is not None:
            if not 0.0 <= stage.serial_fraction <= 1.0:
                raise InputError(
                    f"stage {stage.name!r}: serial_fraction must be in [0, 1], not {stage.serial_fraction}"
                )
            if tasks != 1 or stage.slots != 1:
                raise InputError(f"stage {stage.name!r}: a moldable stage (work_s) has exactly 1 task and 1 slot")
        for duration_s in stage.durations_s if tasks > 1 else stage.durations_s[:1]:
            if not 0.0 <= duration_s <= MAX_TIME_S:
                check_time(f"stage {stage.name!r}: a time", duration_s)
        estimate_s = mean_duration_s(stage.durations_s) if stage.estimate_s is None else stage.estimate_s
        check_time(f"stage {stage.name!r}: estimate_s", estimate_s)
        self._duration_s.extend(stage.durations_s)
        self._task_ptr.append(len(self._duration_s))
        self._slots.append(stage.slots)
        self._estimate_s.append(estimate_s)
        self._serial_fraction.append(math.nan if stage.serial_fraction is None else stage.serial_fraction)

    def finish(self) -> Trace:
        """The trace of all jobs added, in order of arrival; the builder must not be used afterwards."""
        job_stage_ptr = _as_array(self._job_stage_ptr, np.int64)
        jobs = np.arange(len(self._arrival_s), dtype=np.int32)
        trace = Trace(
            job_arrival_s=_as_array(self._arrival_s, np.float64),
            job_weight=_as_array(self._weight, np.float64),
            job_stage_ptr=job_stage_ptr,
            stage_job=np.repeat(jobs, np.diff(job_stage_ptr)),
            stage_slots=_as_array(self._slots, np.int32),
            stage_estimate_s=_as_array(self._estimate_s, np.float64),
            stage_serial_fraction=_as_array(self._serial_fraction, np.float64),
            task_ptr=_as_array(self._task_ptr, np.int64),
            task_duration_s=_as_array(self._duration_s, np.float64),
            parent_ptr=_as_array(self._parent_ptr, np.int64),
            parent=_as_array(self._parent, np.int32),
            job_ids=list(self._job_ids),
            stage_names=self._stage_names,
        )
        return in_order_of_arrival(trace)


def _as_array(values: array[Any], dtype: type[_Number]) -> NDArray[_Number]:
    """The same memory as a numpy array; it can no longer grow."""
    return np.frombuffer(values, dtype=dtype) if len(values) else np.empty(0, dtype=dtype)


def _check_text(what: str, text: str) -> None:
    """Refuse what no file could hold: JSON can spell half of a surrogate pair."""
    try:
        text.isascii() or text.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{what} is no valid text: {error.reason}") from error


def check_time(what: str, seconds: float) -> None:
    """Refuse a time that is negative or too large, naming `what` it is."""
    if not 0.0 <= seconds <= MAX_TIME_S:
        raise InputError(f"{what} must be a number of seconds, 0 to {MAX_TIME_S:g}, not {seconds!r}")


def _check_acyclic(stages: Sequence[StageSpec], index: dict[str, int]) -> None:
    """Refuse unknown or repeated parents and cycles; stages listed parents first cost one look-up an edge."""
    forward = False
    for position, stage in enumerate(stages):
        for parent in stage.depends_on:
            parent_position = index.get(parent)
            if parent_position is None:
                raise InputError(f"stage {stage.name!r} depends on {parent!r}, which is no stage of this job")
            forward |= parent_position >= position
        if len(stage.depends_on) > 1 and len(set(stage.depends_on)) < len(stage.depends_on):
            raise InputError(f"stage {stage.name!r} names a parent twice in depends_on")
    if forward:
        try:
            TopologicalSorter({stage.name: stage.depends_on for stage in stages}).prepare()
        except CycleError as error:  # which names it from parent to child, the first one again at the end
            raise InputError(f"the stages form a cycle: {cycle(error.args[1])}") from error


def one_stage_trace(
    arrival_s: npt.ArrayLike,
    duration_s: npt.ArrayLike,
    *,
    slots: npt.ArrayLike = 1,
    estimate_s: npt.ArrayLike | None = None,
    serial_fraction: float | None = None,
) -> Trace:
    """A trace of jobs `j0`, `j1`, ... that each have one stage of one task, without a Python loop over jobs.

    Args:
        arrival_s: [jobs] seconds, in any order; ids are given after sorting.
        duration_s: [jobs] seconds; the work where `serial_fraction` is given.
        slots: executors a task, for all jobs or each.
        estimate_s: what the scheduler believes; the duration if not given.
        serial_fraction: makes every stage moldable.

    Raises:
        InputError: a time is negative or above MAX_TIME_S, or the serial fraction is none.
    """
    if serial_fraction is not None and not 0.0 <= serial_fraction <= 1.0:
        raise InputError(f"serial_fraction must be in [0, 1], not {serial_fraction}")
    arrivals = np.asarray(arrival_s, dtype=np.float64)
    order = np.argsort(arrivals, kind="stable")
    durations = np.asarray(duration_s, dtype=np.float64)
    estimates = durations if estimate_s is None else np.asarray(estimate_s, dtype=np.float64)
    for what, values in (("arrival_s", arrivals), ("duration_s", durations), ("estimate_s", estimates)):
        bad = ~((values >= 0.0) & (values <= MAX_TIME_S))
        if bad.any():
            check_time(what, float(values[bad][0]))
    jobs = len(arrivals)
    every = np.arange(jobs + 1, dtype=np.int64)
    return Trace(
        job_arrival_s=arrivals[order],
        job_weight=np.ones(jobs),
        job_stage_ptr=every,
        stage_job=every[:-1].astype(np.int32),
        stage_slots=np.broadcast_to(np.asarray(slots, dtype=np.int32), (jobs,))[order],
        stage_estimate_s=estimates[order],
        stage_serial_fraction=np.full(jobs, math.nan if serial_fraction is None else serial_fraction),
        task_ptr=every,
        task_duration_s=durations[order],
        parent_ptr=np.zeros(jobs + 1, dtype=np.int64),
        parent=np.empty(0, dtype=np.int32),
        job_ids=[f"j{job}" for job in range(jobs)],
        stage_names=["s0"] * jobs,
    )


def specs_of(trace: Trace, job: int) -> list[StageSpec]:
    """The stages of one job of a trace, as they could be added to another."""
    stages = range(int(trace.job_stage_ptr[job]), int(trace.job_stage_ptr[job + 1]))
    serial = trace.stage_serial_fraction
    return [
        StageSpec(
            name=trace.stage_names[stage],
            durations_s=trace.task_duration_s[trace.task_ptr[stage] : trace.task_ptr[stage + 1]].tolist(),
            depends_on=[
                trace.stage_names[parent]
                for parent in trace.parent[trace.parent_ptr[stage] : trace.parent_ptr[stage + 1]].tolist()
            ],
            slots=int(trace.stage_slots[stage]),
            estimate_s=float(trace.stage_estimate_s[stage]),
            serial_fraction=None if math.isnan(serial[stage]) else float(serial[stage]),
        )
        for stage in stages
    ]
