"""What `kubectl get -o json` prints, as far as a trace needs it: pods, Jobs, Argo Workflows, and runs of Tekton.

Sources: https://kubernetes.io/docs/reference/kubernetes-api/ (batch/v1 Job, v1 Pod);
https://argo-workflows.readthedocs.io/en/latest/fields/ (argoproj.io/v1alpha1 Workflow);
https://tekton.dev/docs/pipelines/pipeline-api/ (tekton.dev/v1 TaskRun, PipelineRun).

A file may hold one list, or any number of JSON documents one after another: lists, objects and watch events, as
`kubectl get --watch`, with or without `--output-watch-events`, and `cat` of several files give them. Of an object that
comes several times the last one that has ended counts, else the last one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from fermata.policy.errors import InputError
from fermata.sim.files import Progress, read_bytes, shown_name

_ARGO, _TEKTON = "argoproj.io/", "tekton.dev/"


class _Object(BaseModel):
    """A part of an object, as far as it is asked for."""

    model_config = ConfigDict(alias_generator=to_camel, extra="ignore")


class Owner(_Object):
    """Whose an object is."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool | None = None


class Meta(_Object):
    """`metadata` of an object."""

    uid: str
    name: str
    namespace: str = ""
    creation_timestamp: AwareDatetime
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[Owner] | None = None

    @property
    def created_s(self) -> float:
        """When it was made, seconds since the epoch."""
        return self.creation_timestamp.timestamp()

    @property
    def controller(self) -> Owner | None:
        """Who looks after it."""
        return next((owner for owner in self.owner_references or () if owner.controller), None)

    def label(self, key: str) -> str | None:
        """Return what a label says; None where there is none, or an empty one."""
        return (self.labels or {}).get(key) or None


class _Terminated(_Object):
    finished_at: AwareDatetime | None = None


class _State(_Object):
    terminated: _Terminated | None = None


class _Container(_Object):
    state: _State | None = None

    @property
    def end_s(self) -> float | None:
        ended = self.state.terminated if self.state else None
        return ended.finished_at.timestamp() if ended and ended.finished_at else None


class _PodStatus(_Object):
    phase: str = ""
    start_time: AwareDatetime | None = None
    container_statuses: list[_Container] | None = None
    init_container_statuses: list[_Container] | None = None


class Pod(_Object):
    """A pod."""

    metadata: Meta
    status: _PodStatus = _PodStatus()

    @property
    def ended(self) -> bool:
        """Whether it runs no more."""
        return self.status.phase in ("Succeeded", "Failed")

    @property
    def span_s(self) -> tuple[float, float] | None:
        """From when it was on its node until its last container ended, seconds since the epoch, if it is known."""
        containers = [*(self.status.container_statuses or ()), *(self.status.init_container_statuses or ())]
        ends_s = [end_s for container in containers if (end_s := container.end_s) is not None]
        if not self.ended or self.status.start_time is None or not ends_s:
            return None
        start_s = self.status.start_time.timestamp()
        return start_s, max(start_s, *ends_s)


class _Condition(_Object):
    type: str
    status: str


class _JobSpec(_Object):
    parallelism: int | None = None


class _JobStatus(_Object):
    succeeded: int | None = None
    start_time: AwareDatetime | None = None
    completion_time: AwareDatetime | None = None
    conditions: list[_Condition] | None = None


class Job(_Object):
    """A Job of batch/v1."""

    metadata: Meta
    spec: _JobSpec = _JobSpec()
    status: _JobStatus = _JobStatus()

    @property
    def phase(self) -> str:
        """How it ended: Complete or Failed; empty while it has not."""
        held = [each.type for each in self.status.conditions or () if each.status == "True"]
        return next((each for each in held if each in ("Complete", "Failed")), "")

    @property
    def ended(self) -> bool:
        """Whether it runs no more."""
        return bool(self.phase)


class _Memo(_Object):
    hit: bool = False


class Node(_Object):
    """A step of an Argo Workflow's run: a pod, or what holds others together."""

    id: str
    name: str
    type: str = ""
    phase: str = ""
    started_at: AwareDatetime | None = None
    finished_at: AwareDatetime | None = None
    children: list[str] | None = None
    memoization_status: _Memo | None = None

    @property
    def is_pod_that_ran(self) -> bool:
        """Whether a pod of its own did what it is for, rather than a cache."""
        cached = self.memoization_status is not None and self.memoization_status.hit
        return self.type == "Pod" and self.phase == "Succeeded" and not cached


class _TemplateRef(_Object):
    name: str | None = None


class _ArgoSpec(_Object):
    workflow_template_ref: _TemplateRef | None = None


class _ArgoStatus(_Object):
    phase: str = ""
    nodes: dict[str, Node] | None = None
    compressed_nodes: str | None = None
    offload_node_status_version: str | None = None


class ArgoWorkflow(_Object):
    """A Workflow of Argo."""

    metadata: Meta
    spec: _ArgoSpec = _ArgoSpec()
    status: _ArgoStatus = _ArgoStatus()

    @property
    def ended(self) -> bool:
        """Whether it runs no more."""
        return self.status.phase in ("Succeeded", "Failed", "Error")


class _Knative(_Object):
    """The part of a status that all runs of Tekton have."""

    conditions: list[_Condition] | None = None
    start_time: AwareDatetime | None = None
    completion_time: AwareDatetime | None = None

    @property
    def succeeded(self) -> bool | None:
        """Whether it succeeded; None while it has not ended."""
        told = next((each.status for each in self.conditions or () if each.type == "Succeeded"), "Unknown")
        return {"True": True, "False": False}.get(told)


class TaskRun(_Object):
    """A TaskRun of Tekton, which has one pod, and another for each time that it is tried again."""

    metadata: Meta
    status: _Knative = _Knative()

    @property
    def ended(self) -> bool:
        """Whether it runs no more."""
        return self.status.succeeded is not None


class _Child(_Object):
    kind: str = ""
    pipeline_task_name: str = ""


class _PipelineSpec(_Object):
    tasks: list[dict[str, Any]] | None = None
    finally_: list[dict[str, Any]] | None = Field(None, alias="finally")


class _PipelineRunStatus(_Knative):
    child_references: list[_Child] | None = None
    pipeline_spec: _PipelineSpec | None = None


class PipelineRun(_Object):
    """A PipelineRun of Tekton."""

    metadata: Meta
    status: _PipelineRunStatus = _PipelineRunStatus()

    @property
    def ended(self) -> bool:
        """Whether it runs no more."""
        return self.status.succeeded is not None


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
        elif kind == "Workflow" and version.startswith(_ARGO):
            _keep(self.workflows, ArgoWorkflow.model_validate(raw))
        elif kind == "TaskRun" and version.startswith(_TEKTON):
            _keep(self.task_runs, TaskRun.model_validate(raw))
        elif kind == "PipelineRun" and version.startswith(_TEKTON):
            _keep(self.pipeline_runs, PipelineRun.model_validate(raw))

    @property
    def empty(self) -> bool:
        """Whether there is nothing that could become a job of a trace."""
        return not (self.jobs or self.workflows or self.task_runs or self.pipeline_runs)


def is_argo(owner: Owner) -> bool:
    """Return whether an owner is a Workflow of Argo."""
    return owner.kind == "Workflow" and owner.api_version.startswith(_ARGO)


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
