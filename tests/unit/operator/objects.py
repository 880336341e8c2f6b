"""Objects of the API as a server sends them, small enough to work a test out by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from fermata.operator import names
from fermata.operator.facts import JobFact, WorkflowFact, job_fact, workflow_fact
from fermata.operator.times import render

Raw = dict[str, Any]
T0 = 1_800_000_000.0  # a whole second


def write_kubeconfig(folder: Path, user: Raw, cluster: Raw | None = None) -> str:
    """Write a kubeconfig of one context into a folder; by default nobody answers where it leads."""
    config = {
        "clusters": [{"name": "c", "cluster": cluster or {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    file = folder / "kubeconfig"
    file.write_text(yaml.safe_dump(config), encoding="utf-8")
    return str(file)


def template() -> Raw:
    """Return the smallest pod template."""
    return {"spec": {"containers": [{"name": "main", "image": "busybox"}]}}


DONE = {
    "conditions": [{"type": "Succeeded", "status": "True", "reason": "x", "lastTransitionTime": "2027-01-01T00:00:00Z"}]
}


def stage(name: str, *parents: str, **fields: Any) -> Raw:
    """Return a stage of a workflow's spec."""
    return {"name": name, "dependsOn": list(parents), "estimateSeconds": 10, "template": template(), **fields}


def workflow(
    name: str, *stages: Raw, arrival_s: float = T0, status: Raw | None = None, labels: Raw | None = None,
    annotations: Raw | None = None, **spec: Any,
) -> Raw:  # fmt: skip
    """Return a Workflow."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": "Workflow",
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"uid-{name}",
            "resourceVersion": "1",
            "generation": 1,
            "creationTimestamp": render(arrival_s),
            "labels": labels or {},
            "annotations": annotations or {},
        },
        "spec": {"poolName": "pool", "stages": list(stages), **spec},
        "status": status or {},
    }


def workflow_fact_of(name: str, *stages: Raw, now_s: float = T0, **fields: Any) -> WorkflowFact:
    """Return the fact of a Workflow."""
    return workflow_fact(workflow(name, *stages, **fields), now_s)


def job(
    workflow_name: str,
    stage_name: str,
    *,
    start_s: float = T0,
    tasks: int = 1,
    parallelism: int = 1,
    succeeded: int = 0,
    active: int = 0,
    failed: int = 0,
    outcome: str = "",
    end_s: float | None = None,
    version: str = "1",
    held_s: float = 0.0,
    suspended: bool = False,
    annotations: Raw | None = None,
) -> Raw:
    """Return the Job of a stage."""
    conditions = []
    if outcome:
        conditions = [
            {"type": outcome, "status": "True", "reason": "Test", "lastTransitionTime": render(end_s or start_s)}
        ]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": names.job_name(workflow_name, f"uid-{workflow_name}", stage_name),
            "namespace": "default",
            "uid": f"job-{workflow_name}-{stage_name}",
            "resourceVersion": version,
            "creationTimestamp": render(start_s),
            "labels": {names.LABEL_POOL: "pool", names.LABEL_WORKFLOW: workflow_name, names.LABEL_STAGE: stage_name},
            "annotations": {
                names.ANNOTATION_READY: render(start_s - held_s),
                names.ANNOTATION_START: render(start_s),
                names.ANNOTATION_HELD: str(held_s),
                **(annotations or {}),
            },
            "ownerReferences": [{"kind": "Workflow", "uid": f"uid-{workflow_name}", "controller": True}],
        },
        "spec": {"completions": tasks, "parallelism": parallelism, "suspend": suspended},
        "status": {"succeeded": succeeded, "active": active, "failed": failed, "conditions": conditions},
    }


def job_fact_of(workflow_name: str, stage_name: str, now_s: float = T0, **fields: Any) -> JobFact:
    """Return the fact of a stage's Job."""
    return job_fact(job(workflow_name, stage_name, **fields), now_s)
