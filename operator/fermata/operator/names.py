"""Names that this operator writes on other people's objects: the API group, labels, annotations, Job names.

One place, so that what is searched for is what was written. Knows nothing of specs or of a cluster.
"""

from __future__ import annotations

import hashlib

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


def job_name(workflow: str, uid: str, stage: str) -> str:
    """Return the one name that the Job of this stage of this very object can have: at most 57 characters.

    The hash is of the object's uid, so a workflow that is deleted and created again under its name has other Jobs.
    """
    digest = short_hash(f"{uid}/{stage}")
    room = MAX_JOB_NAME - len(digest) - 2
    kept_stage = stage[: room // 2]
    kept_workflow = workflow.replace(".", "-")[: room - len(kept_stage)]
    return f"{kept_workflow.rstrip('-')}-{kept_stage.rstrip('-')}-{digest}"
