"""Scientific workflows in WfCommons' wfformat, versions 1.3 to 1.5: one JSON file is one run of one workflow.

Source: https://github.com/wfcommons/wfformat. Version 1.5 splits what a task is (`workflow.specification.tasks`) from
how it ran (`workflow.execution.tasks`); before, both stood in `workflow.tasks`.

What becomes of it: the run is one job; each of its tasks is a stage of one task, with `coreCount` (before 1.5 `cores`)
slots, rounded up. An edge counts whether the child names its parent, the parent its child, or both do. A folder is one
job for each `.json` file in it, in order of name; they arrive as a Poisson process with `mean_gap_s`, or all at once if
that is 0. A task without a run time makes the job incomplete: it is skipped, or with `keep_incomplete` that task takes
0 s.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from fermata.policy.errors import InputError
from fermata.sim.files import read_bytes, shown_name
from fermata.sim.importers.base import DEFAULTS, Imported, ImportOptions, JobSink, drawn_arrivals_s, runs_of
from fermata.sim.trace_builder import StageSpec

_RUNTIMES = ("runtimeInSeconds", "runtime")
_CORES = ("coreCount", "cores")


def read_wfcommons(path: str | Path, options: ImportOptions = DEFAULTS) -> Imported:
    """Read one wfformat file, or all of a folder.

    Args:
        path: a file, possibly `.xz` or `.gz`, `-` for standard input, or a folder of `.json` files.
        options: see `ImportOptions`; of the sampling options `mean_gap_s` and `seed` apply, to folders.

    Raises:
        InputError: a file cannot be read or is no wfformat; names it.
    """
    sink = JobSink(path, options)
    folder = Path(path).is_dir()
    for file, arrival_s in zip(runs_of(path, ".json", options), drawn_arrivals_s(options), strict=False):
        if sink.full:
            break
        document = _load(file)
        stages, complete = _stages(document, options, file)
        if not complete and not options.keep_incomplete:
            sink.skip("a task has no run time")
            continue
        job_id = Path(str(file)).stem if folder else str(document.get("name") or "workflow")
        sink.add(job_id, arrival_s, stages, file=file)
    return sink.finish()


def _load(file: str | Path) -> dict[str, Any]:
    try:
        document = json.loads(read_bytes(file))
    except (ValueError, RecursionError) as error:
        line = error.lineno if isinstance(error, json.JSONDecodeError) else None
        raise InputError(f"broken JSON: {error}", file=shown_name(file), line=line) from error
    if not isinstance(document, dict):
        raise InputError("expected a JSON object with a 'workflow'", file=shown_name(file))
    return document


def _stages(document: dict[str, Any], options: ImportOptions, file: str | Path) -> tuple[list[StageSpec], bool]:
    """The stages of a run, and whether the run time of every task is known."""
    try:
        tasks, runs = _tasks(document)
        # Before 1.4 parents were given by name.
        key_of = {task["name"]: _key(task) for task in tasks} | {_key(task): _key(task) for task in tasks}
        parents = _parents(tasks, key_of)
        ran = [runs.get(_key(task), {}) for task in tasks]
        stages = [_stage(task, run, parents[_key(task)], options) for task, run in zip(tasks, ran, strict=True)]
        complete = all(any(run.get(name) is not None for name in _RUNTIMES) for run in ran)
    except KeyError as error:
        raise InputError(f"no wfformat: missing {error}", file=shown_name(file)) from error
    except (TypeError, ValueError, AttributeError) as error:
        raise InputError(f"no wfformat: {error}", file=shown_name(file)) from error
    return stages, complete


def _stage(task: dict[str, Any], run: dict[str, Any], parents: list[str], options: ImportOptions) -> StageSpec:
    """Return what a task is as a stage.

    Raises:
        ValueError: a field has no value that it could have; names the task, of which a run may have thousands.
    """
    key = _key(task)
    try:
        return StageSpec(
            name=str(key),
            durations_s=[_told(run, _RUNTIMES) or 0.0],
            depends_on=parents,
            slots=1 if options.one_slot else max(1, math.ceil(_told(run, _CORES) or 0.0)),
        )
    except (TypeError, ValueError) as error:
        raise ValueError(f"task {key!r}: {error}") from error


def _parents(tasks: list[dict[str, Any]], key_of: dict[Any, Any]) -> dict[Any, list[str]]:
    """Return the names of the stages of each task's parents, each once; by the task's key."""
    found: dict[Any, dict[str, None]] = {_key(task): {} for task in tasks}
    for task in tasks:
        found[_key(task)].update(dict.fromkeys(str(key) for key in _named(task, "parents", key_of)))
    for task in tasks:
        for child in _named(task, "children", key_of):
            found[child][str(_key(task))] = None
    return {key: list(names) for key, names in found.items()}


def _named(task: dict[str, Any], what: str, key_of: dict[Any, Any]) -> list[Any]:
    """Return the keys of the tasks that one names as its parents, or as its children.

    Raises:
        ValueError: it names one that there is not.
    """
    names = _list(task.get(what, []), f"{what} of task {_key(task)!r}")
    if unknown := [name for name in names if name not in key_of]:
        one = {"parents": "parent", "children": "child"}[what]
        raise ValueError(f"task {_key(task)!r}: its {one} {json.dumps(unknown[0])[:40]} is none of the tasks")
    return [key_of[name] for name in names]


def _told(run: dict[str, Any], names: tuple[str, ...]) -> float | None:
    """Return the first number that a run has under one of some names, None if it has none."""
    for name in names:
        if (value := run.get(name)) is not None:
            try:
                number = float(value)
            except (TypeError, ValueError, OverflowError):
                number = math.nan
            if not math.isfinite(number):
                raise ValueError(f"{name} must be a finite number, not {json.dumps(value)[:40]}")
            return number
    return None


def _tasks(document: dict[str, Any]) -> tuple[list[dict[str, Any]], dict[str, dict[str, Any]]]:
    """What the tasks are, and by id how they ran."""
    workflow = _object(document["workflow"], "workflow")
    if "specification" in workflow:
        executed = _objects(_object(workflow.get("execution", {}), "execution").get("tasks", []), "execution.tasks")
        specified = _object(workflow["specification"], "specification")["tasks"]
        runs = {run["id"]: run for run in executed}
        if len(runs) < len(executed):
            twice = next(run["id"] for run in executed if runs[run["id"]] is not run)
            raise ValueError(f"execution.tasks has {twice!r} twice")
        return _objects(specified, "specification.tasks"), runs
    # "jobs" was the name up to 1.2.
    tasks = _objects(workflow["tasks"] if "tasks" in workflow else workflow["jobs"], "tasks")
    return tasks, {_key(task): task for task in tasks}


def _key(task: dict[str, Any]) -> Any:
    """What a task is known by: its id where it has one, else its name."""
    return task.get("id", task["name"])


def _object(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError(f"{what} must be an object, not {json.dumps(value)[:40]}")
    return value


def _list(value: Any, what: str) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(f"{what} must be a list, not {json.dumps(value)[:40]}")
    return value


def _objects(value: Any, what: str) -> list[dict[str, Any]]:
    return [_object(each, f"each of {what}") for each in _list(value, what)]
