"""The Job of a stage, and the one way to start it: at most once, whatever fails in between.

`build_job` is pure. `start` creates; a Job that is already there under the stage's own name and owner is the same
start, seen twice. `find` looks for one that was started and is not seen. Pod templates are passed on as they are, but
for labels, the workflow's and those that find the pods again, and how many executors a pod takes.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from fermata.operator import names, reasons
from fermata.operator.cluster import Cluster
from fermata.operator.connection import ClusterError, Json
from fermata.operator.facts import JobFact, Meta, WorkflowFact, job_fact, meta_of
from fermata.operator.lanes import text_of, widened
from fermata.operator.progress import Refusal, StageView, WorkflowView
from fermata.operator.times import render
from fermata.policy.wording import counted

# Fields of a Job that may be invalid because of what its workflow says; what that says of others its CRD bounds.
_GIVEN = ("spec.template", "metadata.annotations")
_MARKS = (names.LABEL_POOL, names.LABEL_WORKFLOW, names.LABEL_STAGE)
# A pod that is evicted, preempted or lost with its node is no failure of its task, and uses up no retry.
_FAILURE_POLICY = {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]}


class RefusedError(Exception):
    """The API server will never take this Job; `refusal` says why."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


def build_job(
    workflow: WorkflowView,
    stage: StageView,
    cap: int,
    *,
    start_s: float,
    held_s: float,
    policy: str,
    gated: bool = False,
) -> dict[str, Any]:
    """Return the Indexed Job that starts a stage.

    Args:
        workflow: that the stage belongs to.
        stage: ready to start.
        cap: tasks that run at once at the most, >= 1.
        start_s: the time of the decision, seconds since the epoch.
        held_s: for how long the stage was held before.
        policy: that decided.
        gated: whether each of its pods is to wait for its turn.
    """
    meta = workflow.fact.meta
    ours = _labels(workflow.fact, stage.spec.name)
    passed_on = names.labels_passed_on(meta.labels)
    slots = {names.ANNOTATION_SLOTS: str(stage.spec.slots)}
    template = _template(stage.spec.template, passed_on, ours, slots)
    if gated and not template["spec"].get("nodeName"):  # a pod that names its node may have no gate
        turn = {"name": names.GATE}
        given = template["spec"].get("schedulingGates") or []
        if isinstance(given, list):  # what is no list is the API server's to refuse
            template["spec"]["schedulingGates"] = [*(gate for gate in given if gate != turn), turn]
    spec: dict[str, Any] = {
        "completionMode": "Indexed",
        "completions": stage.spec.tasks,
        "parallelism": min(cap, stage.spec.tasks),
        "backoffLimit": stage.spec.retries,
        # Or a pod that ends slowly and the one that follows it would take two executors.
        "podReplacementPolicy": "Failed",
        "template": template,
    }
    if template["spec"]["restartPolicy"] == "Never":  # the API takes a failure policy with no other
        spec["podFailurePolicy"] = _FAILURE_POLICY
    if stage.spec.active_deadline_seconds is not None:
        spec["activeDeadlineSeconds"] = stage.spec.active_deadline_seconds
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": names.job_name(meta.name, meta.uid, stage.spec.name),
            "namespace": meta.namespace,
            "labels": {**passed_on, **ours},
            "annotations": {
                **names.passed_on(meta.annotations),
                names.ANNOTATION_READY: render(min(stage.ready_s, start_s)),  # or the clock was set back in between
                names.ANNOTATION_START: render(start_s),
                names.ANNOTATION_HELD: f"{held_s:.6f}",
                names.ANNOTATION_POLICY: policy,
                names.ANNOTATION_ESTIMATE: f"{stage.estimate.seconds:.6f}",
                **slots,
            },
            "ownerReferences": [_owner(workflow.fact)],
        },
        "spec": spec,
    }


def _owner(fact: WorkflowFact) -> Json:
    """Return the reference by which a Job is its workflow's, and goes with it."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.WORKFLOW,
        "name": fact.meta.name,
        "uid": fact.meta.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _template(given: Json, passed_on: Json, ours: Json, slots: Json) -> Json:
    """Return the pod template of a Job: the labels of its workflow, its own, and ours; a pod may outlive its Job."""
    template = copy.deepcopy(given)
    meta = template.get("metadata") or {}
    labels = {**passed_on, **(meta.get("labels") or {}), **ours}
    template["metadata"] = {**meta, "labels": labels, "annotations": {**(meta.get("annotations") or {}), **slots}}
    # The CRD's default; said again for an API server that has an older CRD.
    template["spec"].setdefault("restartPolicy", "Never")
    return template


def _labels(fact: WorkflowFact, stage: str) -> dict[str, str]:
    """Return the labels by which the Job of a stage, and its pods, are found."""
    return {
        names.LABEL_POOL: names.label_value(fact.pool),
        names.LABEL_WORKFLOW: names.label_value(fact.meta.name),
        names.LABEL_STAGE: stage,
    }


async def start(cluster: Cluster, job: Mapping[str, Any]) -> Json:
    """Create a Job and return it as the API server has it; one that exists already and is ours is returned as it is.

    Raises:
        RefusedError: it can never be created.
        ClusterError: it could not be created now.
    """
    meta = job["metadata"]
    try:
        return await cluster.create_job(job)
    except ClusterError as error:
        if error.status == 409 and error.reason == "AlreadyExists":
            return _ours(await cluster.get_job(meta["namespace"], meta["name"]), meta)
        # What the API server says has a reason; what a proxy before it says is no judgement of the Job.
        if error.status in (400, 413, 422) and error.reason and not (error.is_denial or _is_spoilt(error)):
            raise RefusedError(Refusal(reasons.JOB_REJECTED, error.message)) from error
        raise


def _is_spoilt(error: ClusterError) -> bool:
    """Tell whether a Job is invalid only where no workflow has a say: admission has made it so, and can be mended."""
    return bool(error.fields) and not any(field.startswith(_GIVEN) for field in error.fields)


def _ours(found: Json, wanted: Json) -> Json:
    """Return a Job that was found under a stage's name if it has that stage's owner, and labels or none: see `find`."""
    meta, labels = meta_of(found), wanted["labels"]
    same = all(meta.labels.get(key, labels[key]) == labels[key] for key in (names.LABEL_POOL, names.LABEL_STAGE))
    if same and _is_of(meta, wanted["ownerReferences"][0]["uid"], labels):
        return found
    message = f"Job {meta.name!r} exists and does not belong to this workflow"
    raise RefusedError(Refusal(reasons.JOB_NAME_TAKEN, message))


def _is_of(meta: Meta, owner_uid: str, labels: Mapping[str, str]) -> bool:
    """Tell whether a Job under the name of a stage's is that one, though admission took its labels or its owner off.

    Without an owner it is if it has the labels: the controllers of Kubernetes adopt such orphans in the same way.
    """
    if meta.owner_uid:
        return meta.owner_uid == owner_uid
    return all(meta.labels.get(key) == labels[key] for key in _MARKS)


async def find(cluster: Cluster, fact: WorkflowFact, stage: str, now_s: float) -> Json | Refusal:
    """Give the Job of a started stage back the labels and the owner by which it is seen.

    One that has ended is returned with both whether it can be given them or not: nobody has to watch it. A refusal says
    why there is none: it was deleted, or has become another's, which is left alone.

    Raises:
        ClusterError: nobody knows yet, or it must not be changed.
    """
    meta, labels = fact.meta, _labels(fact, stage)
    name = names.job_name(meta.name, meta.uid, stage)
    try:
        found = await cluster.get_job(meta.namespace, name)
        known = meta_of(found)
        if not _is_of(known, meta.uid, labels):
            message = f"the Job of stage {stage!r} belongs to this workflow no more: somebody has changed its owner"
            return Refusal(reasons.JOB_NAME_TAKEN, message if known.owner_uid else f"{message} and its labels")
        marks: Json = {"labels": labels}
        if not known.owner_uid:
            marks["ownerReferences"] = [*(found["metadata"].get("ownerReferences") or []), _owner(fact)]
        marked = {**found, "metadata": {**found["metadata"], **marks, "labels": {**known.labels, **labels}}}
        if job_fact(marked, now_s).ended:
            return marked
        return await cluster.patch_job(meta.namespace, name, {"metadata": {"uid": known.uid, **marks}})
    except ClusterError as error:
        if error.reason == "NotFound":
            return Refusal(reasons.JOB_DELETED, f"the Job of stage {stage!r} was deleted before it finished")
        raise


async def widen(cluster: Cluster, stage: StageView, cap: int, now_s: float) -> Json:
    """Raise the parallelism of a started stage's Job to `cap` and note when; it never shrinks.

    Raises:
        ClusterError: it could not be raised now, or admission keeps it lower.
    """
    if stage.job is None:
        raise ValueError(f"stage {stage.spec.name!r} has no Job to widen")
    parallelism = max(cap, stage.job.parallelism)
    opened = text_of(widened(stage.job.lanes, parallelism, now_s - stage.job.start_s))
    made = await _patch(cluster, stage.job, {names.ANNOTATION_LANES: opened}, {"parallelism": parallelism})
    kept = made["spec"]["parallelism"]
    if kept < parallelism:
        raise ClusterError(200, "KeptNarrow", f"admission leaves it {counted(kept, 'task')} at once, not {parallelism}")
    return made


async def stop(cluster: Cluster, job: JobFact, reason: str) -> Json:
    """Suspend a stage's Job for good: its pods end and its record stays, with the reason.

    Raises:
        ClusterError: it could not be stopped now.
    """
    return await _patch(cluster, job, {names.ANNOTATION_STOPPED: reason}, {"suspend": True})


async def _patch(cluster: Cluster, job: JobFact, annotations: Mapping[str, str], spec: Mapping[str, Any]) -> Json:
    """Patch this very Job: by its uid the API server refuses another one that was made under its name."""
    meta = job.meta
    patch = {"metadata": {"uid": meta.uid, "annotations": annotations}, "spec": spec}
    return await cluster.patch_job(meta.namespace, meta.name, patch)
