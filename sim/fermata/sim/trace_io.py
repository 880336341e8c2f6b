"""Read and write the job trace format: one JSON object a line, checked so that every error names its line.

The format is the public contract between Fermata and whoever records jobs. This module knows its syntax (keys, types,
what excludes what); the rules that hold for any trace are `trace_builder`'s.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn

from fermata.policy.errors import InputError
from fermata.sim.files import Progress, atomic_output, numbered_lines, shown_name
from fermata.sim.trace import Trace, too_many_slots
from fermata.sim.trace_builder import MAX_TASKS, StageSpec, TraceBuilder, mean_duration_s

JOB_KEYS = ("id", "arrival_s", "weight", "stages")
STAGE_KEYS = (
    "name",
    "depends_on",
    "tasks",
    "slots",
    "duration_s",
    "durations_s",
    "work_s",
    "serial_fraction",
    "estimate_s",
)
_JOB_KEYS, _STAGE_KEYS = frozenset(JOB_KEYS), frozenset(STAGE_KEYS)
TIME_FORMS = ("duration_s", "durations_s", "work_s")
_ONE_FORM = "exactly one of duration_s, durations_s or work_s"


def read_trace(path: str | Path, *, executors: int | None = None, progress: Progress | None = None) -> Trace:
    """Read a job trace and refuse it at the first line that breaks the format.

    Args:
        path: JSON lines, decompressed if they are `.xz` or `.gz` by their name or first bytes; `-` for standard input.
        executors: refuse a task that needs more slots than this; None to accept any.
        progress: called now and then with the share of the file that has been read, 0 to 1.

    Raises:
        InputError: the file cannot be read or breaks the format; names file and line.
    """
    builder = TraceBuilder()
    for number, line in numbered_lines(path, progress):
        if not line.strip():
            continue
        try:
            job_id, arrival_s, weight, stages = parse_job(line)
            if executors is not None:
                _check_slots(job_id, stages, executors)
            builder.add_job(job_id, arrival_s, stages, weight)
        except InputError as error:
            raise InputError(error.message, file=shown_name(path), line=number) from error
    if not len(builder):
        raise InputError("no jobs; expected one JSON object a line", file=shown_name(path), line=1)
    return builder.finish()


def parse_job(line: str) -> tuple[str, float, float, list[StageSpec]]:
    """Parse one line of a job trace into id, arrival, weight and stages, checking syntax and types.

    Raises:
        InputError: not the JSON object that the format asks for; without file and line.
    """
    job = _decode(line)
    if type(job) is not dict:
        raise InputError(f"expected a JSON object that describes a job, not {_kind(job)}")
    return job_of(job)


def job_of(job: Mapping[str, Any]) -> tuple[str, float, float, list[StageSpec]]:
    """Return id, arrival, weight and stages of a job that is described by the keys of the format, checking its types.

    Raises:
        InputError: not what the format asks for; without file and line.
    """
    if not _JOB_KEYS.issuperset(job):
        _unknown_key(job, JOB_KEYS, "a job")
    job_id = _required(job, "id", "the job")
    if type(job_id) is not str:
        raise InputError(f"id must be a string, not {_kind(job_id)}")
    arrival_s = _number(_required(job, "arrival_s", f"job {job_id!r}"), "arrival_s")
    weight = _number(job.get("weight", 1.0), "weight")
    stages = _required(job, "stages", f"job {job_id!r}")
    if type(stages) is not list:
        raise InputError(f"stages must be a list, not {_kind(stages)}")
    return job_id, arrival_s, weight, [_parse_stage(stage, position) for position, stage in enumerate(stages)]


def _parse_stage(stage: Any, position: int) -> StageSpec:
    if type(stage) is not dict:
        raise InputError(f"stage {position + 1} must be a JSON object, not {_kind(stage)}")
    name = _required(stage, "name", f"stage {position + 1}")
    if type(name) is not str:
        raise InputError(f"the name of stage {position + 1} must be a string, not {_kind(name)}")
    try:
        if not _STAGE_KEYS.issuperset(stage):
            _unknown_key(stage, STAGE_KEYS, "a stage")
        durations_s, serial_fraction = _parse_time(stage)
        return StageSpec(
            name=name,
            durations_s=durations_s,
            depends_on=_parents(stage.get("depends_on", [])),
            slots=_whole(stage.get("slots", 1), "slots"),
            estimate_s=_number(stage["estimate_s"], "estimate_s") if "estimate_s" in stage else None,
            serial_fraction=serial_fraction,
        )
    except InputError as error:
        raise InputError(f"stage {name!r}: {error.message}") from error


def _parents(names: Any) -> list[str]:
    if type(names) is not list or not all(type(name) is str for name in names):
        raise InputError("depends_on must be a list of stage names")
    return names


def _parse_time(stage: Mapping[str, Any]) -> tuple[Sequence[float], float | None]:
    """The durations of the tasks and the serial fraction, from whichever of the three forms the stage uses."""
    forms = [form for form in TIME_FORMS if form in stage]
    if len(forms) != 1:
        raise InputError(f"expected {_ONE_FORM}, found {' and '.join(forms) or 'none'}")
    form, value = forms[0], stage[forms[0]]
    tasks = _whole(stage["tasks"], "tasks") if "tasks" in stage else None
    if tasks is not None and not 1 <= tasks <= MAX_TASKS:
        raise InputError(f"tasks must be between 1 and {MAX_TASKS}, not {tasks}")
    if form == "work_s":
        if "serial_fraction" not in stage:
            raise InputError("work_s needs serial_fraction, the share of the work that never speeds up")
        return [_seconds(value, form)] * (tasks or 1), _number(stage["serial_fraction"], "serial_fraction")
    if "serial_fraction" in stage:
        raise InputError(f"serial_fraction goes with work_s, not with {form}")
    if form == "duration_s":
        return [_seconds(value, form)] * (tasks or 1), None
    if type(value) is not list:
        raise InputError(f"durations_s must be a list of numbers, not {_kind(value)}")
    if not value:
        raise InputError("durations_s must hold at least one number")
    if tasks is not None and tasks != len(value):
        raise InputError(f"tasks is {tasks}, but durations_s holds {len(value)}")
    return [_seconds(item, form) for item in value], None


def _check_slots(job_id: str, stages: Sequence[StageSpec], executors: int) -> None:
    for stage in stages:
        if stage.slots > executors:
            raise InputError(too_many_slots(job_id, stage.name, stage.slots, executors))


def write_trace(trace: Trace, path: str | Path) -> None:
    """Write a job trace that `read_trace` reads back equal, bit for bit; compressed by the suffix of `path`.

    Raises:
        InputError: the file cannot be written.
    """
    with atomic_output(path) as stream:
        for line in job_lines(trace):
            stream.write(line.encode("ascii"))


def job_lines(trace: Trace) -> Iterator[str]:
    """One JSON line, with its line end, for each job."""
    encode = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode
    for job in range(trace.jobs):
        fields: dict[str, Any] = {"id": trace.job_ids[job], "arrival_s": float(trace.job_arrival_s[job])}
        if trace.job_weight[job] != 1.0:
            fields["weight"] = float(trace.job_weight[job])
        stages = range(int(trace.job_stage_ptr[job]), int(trace.job_stage_ptr[job + 1]))
        fields["stages"] = [stage_fields(trace, stage) for stage in stages]
        yield encode(fields) + "\n"


def stage_fields(trace: Trace, stage: int) -> dict[str, Any]:
    """Describe a stage by the keys of the format."""
    parents = trace.parent[trace.parent_ptr[stage] : trace.parent_ptr[stage + 1]].tolist()
    durations_s = trace.task_duration_s[trace.task_ptr[stage] : trace.task_ptr[stage + 1]].tolist()
    serial_fraction, slots = float(trace.stage_serial_fraction[stage]), int(trace.stage_slots[stage])
    fields: dict[str, Any] = {"name": trace.stage_names[stage]}
    fields["depends_on"] = [trace.stage_names[parent] for parent in parents]
    if not math.isnan(serial_fraction):
        fields["work_s"], fields["serial_fraction"] = durations_s[0], serial_fraction
    else:
        fields["tasks"] = len(durations_s)
        if min(durations_s) == max(durations_s):
            fields["duration_s"] = durations_s[0]
        else:
            fields["durations_s"] = durations_s
    if slots != 1:
        fields["slots"] = slots
    if (estimate_s := float(trace.stage_estimate_s[stage])) != mean_duration_s(durations_s):
        fields["estimate_s"] = estimate_s
    return fields


def _reject_constant(constant: str) -> NoReturn:
    raise InputError(f"{constant} is not a finite number")


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        names = [key for key, _ in pairs]
        raise InputError(f"key {next(key for key in names if names.count(key) > 1)!r} is given twice")
    return fields


_DECODER = json.JSONDecoder(object_pairs_hook=_unique_keys, parse_constant=_reject_constant)


def _decode(line: str) -> Any:
    try:
        return _DECODER.decode(line.rstrip())  # what ends too early is told at its end, not in the next line
    except json.JSONDecodeError as error:
        broken = f"broken JSON: {error.msg.removesuffix(' at')} at column {error.colno}"
        raise InputError(f"{broken}; expected one JSON object a line, for each job") from error
    except RecursionError as error:
        raise InputError("broken JSON: nested too deeply") from error
    except ValueError as error:  # Python refuses to convert integers of thousands of digits
        raise InputError("broken JSON: a number with too many digits") from error


def _required(fields: Mapping[str, Any], key: str, owner: str) -> Any:
    try:
        return fields[key]
    except KeyError:
        raise InputError(f"{owner} has no {key!r}") from None


def _unknown_key(fields: Iterable[str], known: Sequence[str], owner: str) -> NoReturn:
    key = next(key for key in fields if key not in known)
    close = get_close_matches(key, known, n=1, cutoff=0.5)
    hint = f"did you mean {close[0]!r}?" if close else f"known keys of {owner}: {', '.join(known)}"
    raise InputError(f"unknown key {key!r}; {hint}")


def _number(value: Any, what: str) -> float:
    if type(value) is float:
        number = value
    elif type(value) is int:
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
    else:
        raise InputError(f"{what} must be a number, not {_kind(value)}")
    if not math.isfinite(number):
        raise InputError(f"{what} must be a finite number")
    return number


def _seconds(value: Any, what: str) -> float:
    number = _number(value, what)
    if number < 0.0:
        raise InputError(f"{what} must be 0 s or more, not {number!r}")
    return number


def _whole(value: Any, what: str) -> int:
    if type(value) is not int:
        raise InputError(f"{what} must be a whole number, not {_kind(value)}")
    return value


def _kind(value: Any) -> str:
    """A JSON value as an error shows it: short, and by its JSON type rather than its Python one."""
    names = {dict: "an object", list: "a list", str: "a string", bool: "true or false", type(None): "null"}
    name = names.get(type(value))
    if name is None:
        return f"{value!r}"
    return f"the string {value[:40]!r}" if type(value) is str else name
