"""What `kubectl get -o json` prints: the objects in it that matter to a trace, each as it was last.

A file may hold one list, or any number of JSON documents one after another: lists, objects and watch events, as
`kubectl get --watch`, with or without `--output-watch-events`, and `cat` of several files give them. Of an object that
comes several times the last one that has ended counts, else the last one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from fermata.policy.errors import InputError
from fermata.sim.files import Progress, read_bytes, shown_name
from fermata.sim.importers.cluster_objects import ARGO, TEKTON, ArgoWorkflow, Job, PipelineRun, Pod, TaskRun

_Kind = TypeVar("_Kind", Pod, Job, ArgoWorkflow, TaskRun, PipelineRun)


class Objects:
    """The pods of a file, and what made them, each as it was last, by uid."""

    def __init__(self) -> None:
        self.pods: dict[str, Pod] = {}
        self.jobs: dict[str, Job] = {}
        self.workflows: dict[str, ArgoWorkflow] = {}
        self.task_runs: dict[str, TaskRun] = {}
        self.pipeline_runs: dict[str, PipelineRun] = {}

    def add(self, raw: dict[str, Any], kind: str) -> None:
        """Take an object, if it is of a kind that matters.

        Raises:
            ValidationError: it lacks what all of its kind have, or a field is not what it should be.
        """
        version = str(raw.get("apiVersion", ""))
        if kind == "Pod" and version == "v1":
            _keep(self.pods, Pod.model_validate(raw))
        elif kind == "Job" and version.startswith("batch/"):
            _keep(self.jobs, Job.model_validate(raw))
        elif kind == "Workflow" and version.startswith(ARGO):
            _keep(self.workflows, ArgoWorkflow.model_validate(raw))
        elif kind == "TaskRun" and version.startswith(TEKTON):
            _keep(self.task_runs, TaskRun.model_validate(raw))
        elif kind == "PipelineRun" and version.startswith(TEKTON):
            _keep(self.pipeline_runs, PipelineRun.model_validate(raw))

    @property
    def empty(self) -> bool:
        """Whether there is nothing that could become a job of a trace."""
        return not (self.jobs or self.workflows or self.task_runs or self.pipeline_runs)


def _keep(known: dict[str, _Kind], new: _Kind) -> None:
    before = known.get(new.metadata.uid)
    if before is None or new.ended or not before.ended:
        known[new.metadata.uid] = new


def read_objects(path: str | Path, progress: Progress | None = None) -> Objects:
    """Read all that a file of kubectl's holds.

    Args:
        path: the file, possibly `.xz` or `.gz`; `-` for standard input.
        progress: called now and then with the share that has been read, 0 to 1.

    Raises:
        InputError: it cannot be read, is not JSON, or an object in it is not what its kind should be.
    """
    objects, name = Objects(), shown_name(path)
    for document, line in _documents(path, progress):
        for raw, kind in _unpacked(document):
            try:
                objects.add(raw, kind)
            except ValidationError as error:
                raise InputError(f"{_title(raw, kind)}: {_first(error)}", file=name, line=line) from error
    if objects.empty:
        told = "no Job, Argo Workflow or Tekton run in it; expected what `kubectl get jobs,pods -o json` prints"
        raise InputError(told, file=name)
    return objects


def _documents(path: str | Path, progress: Progress | None) -> Iterator[tuple[Any, int]]:
    """Yield each JSON document of a file, and the line that it begins in."""
    name = shown_name(path)
    try:
        text = read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"not UTF-8 text ({error.reason})", file=name) from error
    decoder, at, line = json.JSONDecoder(), 0, 1
    while True:
        begin = at
        while at < len(text) and text[at].isspace():
            at += 1
        line += text.count("\n", begin, at)
        if at == len(text):
            return
        try:
            document, end = decoder.raw_decode(text, at)
        except json.JSONDecodeError as error:
            told = f"broken JSON: {error.msg}; expected what `kubectl get -o json` prints"
            raise InputError(told, file=name, line=error.lineno) from error
        except (ValueError, RecursionError) as error:
            raise InputError(f"broken JSON: {error}", file=name, line=line) from error
        yield document, line
        line += text.count("\n", at, end)
        at = end
        if progress is not None:
            progress(at / len(text))


def _unpacked(document: Any) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield the objects of a document with their kinds: of a list its items, of a watch event what it tells of."""
    if not isinstance(document, dict):
        return
    if "kind" not in document:  # a watch event, of which a bookmark tells of no object
        document = {} if document.get("type") == "BOOKMARK" else document.get("object")
        if not isinstance(document, dict):
            return
    kind = str(document.get("kind", ""))
    items = document.get("items")
    if not isinstance(items, list):
        yield document, kind
        return
    version, of = document.get("apiVersion"), kind.removesuffix("List")
    for item in items:
        if isinstance(item, dict):
            # Answers of an API server name kind and version for the whole list.
            yield ({"apiVersion": version} | item), str(item.get("kind", of))


def _title(raw: dict[str, Any], kind: str) -> str:
    meta = raw.get("metadata")
    meta = meta if isinstance(meta, dict) else {}
    return f"{kind} {'/'.join(str(meta[key]) for key in ('namespace', 'name') if key in meta) or 'without a name'}"


def _first(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    return f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"
