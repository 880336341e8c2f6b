"""The pods that a Job makes: a pure function of the Job and the completion index."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from fermata.sim.kube.kinds.job import COMPLETION_INDEX, INDEX_FAILURES, TRACKING_FINALIZER

if TYPE_CHECKING:
    from fermata.sim.kube.resources import Obj

_INDEX_VARIABLE = "JOB_COMPLETION_INDEX"


def new_pod(job: Obj, index: int | None, failures: int = 0) -> Obj:
    """Return a pod to create.

    Args:
        job: the Job, from its API server, so with its defaults.
        index: the completion index, None for a Job that is not Indexed.
        failures: of pods of that index before; said where the Job limits them for each index.
    """
    meta, template = job["metadata"], job["spec"]["template"]
    labels = dict((template.get("metadata") or {}).get("labels") or {})
    annotations = dict((template.get("metadata") or {}).get("annotations") or {})
    spec = copy.deepcopy(template["spec"])
    prefix = f"{meta['name']}-"
    if index is not None:
        prefix = f"{meta['name']}-{index}-"
        labels[COMPLETION_INDEX] = annotations[COMPLETION_INDEX] = str(index)
        if job["spec"].get("backoffLimitPerIndex") is not None:
            annotations[INDEX_FAILURES] = str(failures)
        spec.setdefault("hostname", f"{meta['name']}-{index}")
        for container in (*(spec.get("initContainers") or []), *spec["containers"]):
            _name_index(container)
    owner = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    pod_meta: Obj = {
        "generateName": prefix,
        "namespace": meta["namespace"],
        "labels": labels,
        "ownerReferences": [owner],
        "finalizers": [TRACKING_FINALIZER],
    }
    if annotations:
        pod_meta["annotations"] = annotations
    return {"apiVersion": "v1", "kind": "Pod", "metadata": pod_meta, "spec": spec}


def _name_index(container: Obj) -> None:
    """Give a container its index in the environment, unless it sets the variable itself."""
    variables = container.setdefault("env", [])
    if any(variable["name"] == _INDEX_VARIABLE for variable in variables):
        return
    source = {"fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.labels['{COMPLETION_INDEX}']"}}
    variables.append({"name": _INDEX_VARIABLE, "valueFrom": source})
