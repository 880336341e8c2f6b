"""Objects of a cluster, as far as a trace needs them: pods, Jobs, Argo Workflows, and runs of Tekton.

Sources: https://kubernetes.io/docs/reference/kubernetes-api/ (batch/v1 Job, v1 Pod);
https://argo-workflows.readthedocs.io/en/latest/fields/ (argoproj.io/v1alpha1 Workflow);
https://tekton.dev/docs/pipelines/pipeline-api/ (tekton.dev/v1 TaskRun, PipelineRun).
"""

from __future__ import annotations

from typing import Any

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from fermata.sim.kube.pod_requests import PodSpec

ARGO, TEKTON = "argoproj.io/", "tekton.dev/"  # groups of API versions


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
    spec: PodSpec = PodSpec()
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


class _PodTemplate(_Object):
    spec: PodSpec = PodSpec()


class _JobSpec(_Object):
    parallelism: int | None = None
    template: _PodTemplate = _PodTemplate()


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


class _TektonRun(_Object):
    metadata: Meta
    status: _Knative = _Knative()

    @property
    def ended(self) -> bool:
        """Whether it runs no more."""
        return self.status.succeeded is not None


class TaskRun(_TektonRun):
    """A TaskRun of Tekton, which has one pod, and another for each time that it is tried again."""


class _Child(_Object):
    kind: str = ""
    pipeline_task_name: str = ""


class _PipelineSpec(_Object):
    tasks: list[dict[str, Any]] | None = None
    finally_: list[dict[str, Any]] | None = Field(None, alias="finally")


class _PipelineRunStatus(_Knative):
    child_references: list[_Child] | None = None
    pipeline_spec: _PipelineSpec | None = None


class PipelineRun(_TektonRun):
    """A PipelineRun of Tekton."""

    status: _PipelineRunStatus = _PipelineRunStatus()


def is_argo(owner: Owner) -> bool:
    """Return whether an owner is a Workflow of Argo."""
    return owner.kind == "Workflow" and owner.api_version.startswith(ARGO)
