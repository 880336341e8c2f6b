"""Names that this operator writes on other people's objects: the API group, labels, annotations, Job names.

One place, so that what is searched for is what was written. Knows nothing of specs or of a cluster.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

GROUP = "fermata.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
WORKFLOW, WORKFLOWS = "Workflow", "workflows"
POOL, POOLS = "ExecutorPool", "executorpools"

LABEL_POOL = f"{GROUP}/pool"
LABEL_WORKFLOW = f"{GROUP}/workflow"
LABEL_STAGE = f"{GROUP}/stage"
LABEL_FAMILY = f"{GROUP}/family"
# Written once, when a stage starts: the Job itself remembers what a killed operator would forget.
ANNOTATION_READY = f"{GROUP}/ready-time"
ANNOTATION_START = f"{GROUP}/start-time"
ANNOTATION_HELD = f"{GROUP}/held-seconds"
ANNOTATION_POLICY = f"{GROUP}/policy"
ANNOTATION_ESTIMATE = f"{GROUP}/estimate-seconds"
ANNOTATION_SLOTS = f"{GROUP}/slots"
# Written each time a stage is widened, with its parallelism: how many tasks ran at once, and since when.
ANNOTATION_LANES = f"{GROUP}/lanes"
# Set by people: on a Workflow "*" or names of stages that are not held any more; on an ExecutorPool anything: no holds.
ANNOTATION_RELEASE = f"{GROUP}/release"
# Written when this operator suspends a Job for good: the reason, so that others may suspend Jobs and resume them.
ANNOTATION_STOPPED = f"{GROUP}/stopped"
# The scheduling gate at which pods wait for their turn, where a pool has executors given back after each task.
GATE = f"{GROUP}/turn"
# What the Job controller says of a pod: which of the Job's tasks it is.
ANNOTATION_INDEX = "batch.kubernetes.io/job-completion-index"
# What tools write about the object that they applied; a copy on its Jobs would be wrong, or large.
_KEPT_BACK = (f"{GROUP}/", "kubectl.kubernetes.io/", "argocd.argoproj.io/", "helm.sh/", "meta.helm.sh/")
# What the Job controller writes on its pods; an API server refuses a Job whose template says anything else there.
_JOBS_OWN = frozenset(
    prefix + label for prefix in ("", "batch.kubernetes.io/") for label in ("controller-uid", "job-name")
)

MAX_LABEL = 63
# The pods of an Indexed Job have the host name <job>-<index>, which may not exceed 63 characters either.
MAX_JOB_NAME = MAX_LABEL - len("-99999")


def short_hash(text: str, length: int = 10) -> str:
    """Return `length` hexadecimal digits that stand for `text`."""
    return hashlib.sha256(text.encode()).hexdigest()[:length]


def label_value(name: str) -> str:
    """Return `name` as a label value: itself, or its head and a hash where it is longer than a label may be.

    >>> label_value("etl")
    'etl'
    """
    if len(name) <= MAX_LABEL:
        return name
    return f"{name[: MAX_LABEL - 11].rstrip('-._')}-{short_hash(name)}"


def passed_on(annotations: Mapping[str, str]) -> dict[str, str]:
    """Return the annotations of a workflow that its Jobs get too.

    >>> passed_on({"team": "a", "fermata.dev/release": "*", "kubectl.kubernetes.io/last-applied-configuration": "{}"})
    {'team': 'a'}
    """
    return {key: value for key, value in annotations.items() if not key.startswith(_KEPT_BACK)}


def labels_passed_on(labels: Mapping[str, str]) -> dict[str, str]:
    """Return the labels of a workflow that its Jobs and pods get too.

    >>> labels_passed_on({"team": "a", "job-name": "nightly-2026", "batch.kubernetes.io/job-name": "nightly-2026"})
    {'team': 'a'}
    """
    return {key: value for key, value in labels.items() if key not in _JOBS_OWN}


def job_name(workflow: str, uid: str, stage: str) -> str:
    """Return the one name that the Job of this stage of this very object can have: at most 57 characters.

    The hash is of the object's uid, so a workflow that is deleted and created again under its name has other Jobs.
    """
    digest = _digest(uid, stage)
    room = MAX_JOB_NAME - len(digest) - 2
    kept_stage = stage[: room // 2]
    kept_workflow = workflow.replace(".", "-")[: room - len(kept_stage)]
    return f"{kept_workflow.rstrip('-')}-{kept_stage.rstrip('-')}-{digest}"


def is_job_name(name: str, uid: str, stage: str) -> bool:
    """Tell whether this can be the name of the Job of a stage of the object with that uid.

    >>> is_job_name(job_name("etl", "uid", "a"), "uid", "a"), is_job_name("etl-a-copy", "uid", "a")
    (True, False)
    """
    return name.endswith(f"-{_digest(uid, stage)}")


def _digest(uid: str, stage: str) -> str:
    return short_hash(f"{uid}/{stage}")
