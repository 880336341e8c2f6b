"""Write one job as a run in WfCommons' wfformat 1.5, for the tools around scientific workflows.

Source: https://github.com/wfcommons/wfformat. Every task of a stage becomes a task of the workflow, and depends on all
tasks of the parent stages, since a stage starts when its parents have ended.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

from fermata.policy.errors import InputError
from fermata.sim.files import atomic_output
from fermata.sim.trace import Trace

SCHEMA_VERSION = "1.5"
# Edges are tasks times tasks of the parents; a file with more would be of no use to anyone.
MAX_EDGES = 5_000_000


def write_wfformat(trace: Trace, path: str | Path) -> None:
    """Write the one job of a trace.

    Raises:
        InputError: the trace holds several jobs, a moldable stage, stages whose tasks share a name, or so many edges
            between tasks that no tool would read them.
    """
    if trace.jobs != 1:
        raise InputError(f"wfformat holds one run of one workflow, not {trace.jobs} jobs; choose one with --job ID")
    if any(not math.isnan(serial) for serial in trace.stage_serial_fraction.tolist()):
        raise InputError("wfformat cannot say that a stage is moldable")
    names = [_task_names(trace, stage) for stage in range(trace.stages)]
    every = [name for stage in names for name in stage]
    if twice := next((name for name, count in Counter(every).items() if count > 1), None):
        raise InputError(f"two tasks would be called {twice!r}: a task's name is its stage's, / and its number")
    parents = [trace.parent[trace.parent_ptr[s] : trace.parent_ptr[s + 1]].tolist() for s in range(trace.stages)]
    edges = sum(len(names[stage]) * len(names[parent]) for stage in range(trace.stages) for parent in parents[stage])
    if edges > MAX_EDGES:
        raise InputError(f"{edges} edges between tasks are more than the {MAX_EDGES} that this format is good for")
    document = {
        "name": trace.job_ids[0],
        "schemaVersion": SCHEMA_VERSION,
        "workflow": {
            "specification": {"tasks": _specification(names, parents)},
            "execution": {"tasks": _execution(trace, names)},
        },
    }
    with atomic_output(path) as stream:
        stream.write(json.dumps(document, indent=1, allow_nan=False).encode())


def _task_names(trace: Trace, stage: int) -> list[str]:
    tasks = int(trace.task_ptr[stage + 1] - trace.task_ptr[stage])
    name = trace.stage_names[stage]
    return [name] if tasks == 1 else [f"{name}/{task}" for task in range(tasks)]


def _specification(names: list[list[str]], parents: list[list[int]]) -> list[dict[str, Any]]:
    children: list[list[int]] = [[] for _ in names]
    for stage, above in enumerate(parents):
        for parent in above:
            children[parent].append(stage)

    def all_of(stages: list[int]) -> list[str]:
        return [name for stage in stages for name in names[stage]]

    return [
        {"name": name, "id": name, "parents": all_of(parents[stage]), "children": all_of(children[stage])}
        for stage in range(len(names))
        for name in names[stage]
    ]


def _execution(trace: Trace, names: list[list[str]]) -> list[dict[str, Any]]:
    return [
        {"id": name, "runtimeInSeconds": float(seconds), "coreCount": int(trace.stage_slots[stage])}
        for stage in range(trace.stages)
        for name, seconds in zip(names[stage], trace.task_duration_s[trace.task_ptr[stage] :], strict=False)
    ]
