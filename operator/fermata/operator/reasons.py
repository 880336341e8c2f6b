"""Every condition and reason that a person can meet in a status or an Event, and what it means.

The documentation is generated from here, so a reason that is not in this file does not exist.
"""

from __future__ import annotations

from typing import Final

# Conditions of a Workflow
ACCEPTED: Final = "Accepted"
RUNNING: Final = "Running"
HELD: Final = "Held"
SUCCEEDED: Final = "Succeeded"
# Conditions of an ExecutorPool
READY: Final = "Ready"
POLICY_READY: Final = "PolicyReady"
HOLDING_PAUSED: Final = "HoldingPaused"

# Accepted
VALID: Final = "Valid"
INVALID_SPEC: Final = "InvalidSpec"
NO_STAGES: Final = "NoStages"
DUPLICATE_STAGE: Final = "DuplicateStage"
UNKNOWN_PARENT: Final = "UnknownParent"
CYCLE: Final = "Cycle"
TOO_MANY_SLOTS: Final = "TooManySlots"
POOL_NOT_FOUND: Final = "PoolNotFound"
POOL_INVALID: Final = "PoolInvalid"
NAMESPACE_NOT_ALLOWED: Final = "NamespaceNotAllowed"
# Succeeded, while the workflow is not finished (Unknown), and the activity of a workflow
WAITING: Final = "Waiting"
SUSPENDED: Final = "Suspended"
REJECTED: Final = "Rejected"
# Ready
OPEN: Final = "Open"
# Running and Held, when it is finished
FINISHED: Final = "Finished"
# Succeeded, when it is finished
ALL_STAGES_SUCCEEDED: Final = "AllStagesSucceeded"
STAGE_FAILED: Final = "StageFailed"
DEADLINE_EXCEEDED: Final = "DeadlineExceeded"
# Why a stage is where it is
PARENTS_RUNNING: Final = "ParentsRunning"
EXECUTORS_BUSY: Final = "ExecutorsBusy"
HELD_BY_POLICY: Final = "HeldByPolicy"
PARALLELISM_REACHED: Final = "ParallelismReached"
STARTING: Final = "Starting"
START_RETRYING: Final = "StartRetrying"
JOB_REJECTED: Final = "JobRejected"
JOB_NAME_TAKEN: Final = "JobNameTaken"
JOB_DELETED: Final = "JobDeleted"
JOB_FAILED: Final = "JobFailed"
JOB_SUSPENDED: Final = "JobSuspended"
JOB_UNSEEN: Final = "JobUnseen"
CHANGE_RETRYING: Final = "ChangeRetrying"
NO_POD_READY: Final = "NoPodReady"
PODS_NOT_READY: Final = "PodsNotReady"
STOPPED: Final = "Stopped"
STAGE_REMOVED: Final = "StageRemoved"
NOT_STARTED: Final = "NotStarted"
WAITING_FOR_TURN: Final = "WaitingForTurn"
# Those that somebody should look at: they are told of the workflow, too.
AMISS: Final = (START_RETRYING, CHANGE_RETRYING, JOB_UNSEEN, NO_POD_READY, PODS_NOT_READY)
# PolicyReady
POLICY_LOADED: Final = "PolicyLoaded"
POLICY_OFF: Final = "PolicyOff"
POLICY_LOADING: Final = "PolicyLoading"
POLICY_UNKNOWN: Final = "PolicyUnknown"
MODEL_UNUSABLE: Final = "ModelUnusable"
DECISION_FAILED: Final = "DecisionFailed"
DECISION_LATE: Final = "DecisionLate"
OUT_OF_DISTRIBUTION: Final = "OutOfDistribution"
FALLBACK_UNKNOWN: Final = "FallbackUnknown"
# HoldingPaused
HOLDING_ALLOWED: Final = "HoldingAllowed"
HOLDING_RELEASED: Final = "ReleasedByAnnotation"
HOLDING_COSTS: Final = "HoldingCosts"
# Events that are not also a reason of a condition
STAGE_STARTED: Final = "StageStarted"
STAGE_SUCCEEDED: Final = "StageSucceeded"
STAGE_HELD: Final = "StageHeld"
STAGE_WAITING: Final = "StageWaiting"
STAGES_NOT_TOLD: Final = "StagesNotTold"
POLICY_FALLBACK: Final = "PolicyFallback"
HOLDING_RESUMED: Final = "HoldingResumed"

# Where a person meets them -> what each means.
MEANINGS: Final[dict[str, dict[str, str]]] = {
    "Conditions of a Workflow": {
        ACCEPTED: "The workflow can run in its pool; if False, nothing of it is started and the reason says why.",
        RUNNING: "At least one of its tasks holds an executor.",
        HELD: "None of its tasks runs, a stage is ready, enough executors are free, and the policy leaves them idle.",
        SUCCEEDED: (
            "Unknown until the workflow is finished, with what it does, or what keeps a stage of it from getting on; "
            "then True, or False with the reason of the failure."
        ),
    },
    "Conditions of an ExecutorPool": {
        READY: "The pool takes workflows.",
        POLICY_READY: "The pool's own policy decides; if False, the fallback does, or nobody, and the reason says why.",
        HOLDING_PAUSED: "Nothing is held in the pool, whatever its policy says; the reason says why.",
    },
    "Reasons of Accepted, and of Ready": {
        VALID: "The specification is sound and the pool exists.",
        OPEN: "The pool's specification is sound.",
        INVALID_SPEC: "A field has a value that this version does not understand.",
        NO_STAGES: "A workflow needs at least one stage.",
        DUPLICATE_STAGE: "Two stages have the same name.",
        UNKNOWN_PARENT: "A stage depends on a name that no stage has.",
        CYCLE: "Stages depend on each other in a circle; the message names it.",
        TOO_MANY_SLOTS: "One task of a stage needs more executors than the pool has.",
        POOL_NOT_FOUND: "No ExecutorPool has the name in spec.poolName.",
        POOL_INVALID: "The pool's own specification is not sound; its condition Ready says why.",
        NAMESPACE_NOT_ALLOWED: "The pool's namespaceSelector does not select the workflow's namespace.",
    },
    "Reasons of Running, Held and Succeeded": {
        WAITING: "A stage is ready, or its next task is, but too few executors are free for it.",
        SUSPENDED: (
            "spec.suspend is set, or it or its namespace is being deleted: what runs goes on, nothing new starts. "
            "Or all that has started and not ended are Jobs that somebody suspended."
        ),
        REJECTED: "Not accepted; the condition Accepted says why.",
        FINISHED: "The workflow has ended; the condition Succeeded says how.",
        ALL_STAGES_SUCCEEDED: "Every task of every stage succeeded.",
        STAGE_FAILED: "A stage failed; spec.onFailure says what became of the others.",
        DEADLINE_EXCEEDED: "activeDeadlineSeconds have passed.",
    },
    "Reasons of a stage": {
        PARENTS_RUNNING: "Not all parents of the stage have succeeded.",
        EXECUTORS_BUSY: "Fewer executors are free than one task of the stage takes.",
        HELD_BY_POLICY: "Enough executors are free, and the policy keeps them for something better.",
        PARALLELISM_REACHED: "The workflow already runs as many tasks as spec.parallelism allows.",
        STARTING: "The stage's Job is being created, and the API server takes long to answer.",
        START_RETRYING: "The API server did not take the Job; it is tried again.",
        JOB_REJECTED: (
            "The API server refuses the stage's Job for good, most often because of its template, as given or as "
            "admission has changed it."
        ),
        JOB_NAME_TAKEN: "A Job of that name exists and belongs to somebody else.",
        JOB_DELETED: "The stage's Job was deleted before it finished; a stage is never started twice.",
        JOB_FAILED: "The stage's Job failed; the message has its reason.",
        JOB_SUSPENDED: "Somebody suspended the stage's Job; it goes on when it is resumed.",
        JOB_UNSEEN: (
            "The stage's Job has lost its labels or its owner and cannot get them back, or is not found and nobody can "
            "say yet whether it was deleted; it keeps its executors until it ends."
        ),
        CHANGE_RETRYING: (
            "The API server does not let the stage's Job run more tasks at once, or be stopped, or its pods pass their "
            "gates, or the Lease is in doubt, without which nothing is stopped; it is tried again."
        ),
        NO_POD_READY: (
            "For a minute no pod of its Job has been ready: kubectl describe job says whether they are refused, "
            "and kubectl describe pod what they wait for."
        ),
        PODS_NOT_READY: (
            "For a minute fewer pods of its Job have been ready than may run, and no task has succeeded: kubectl "
            "describe job says whether others are refused, and kubectl describe pod what they wait for."
        ),
        STOPPED: "The stage ran when another one failed, and was stopped because spec.onFailure is Stop.",
        STAGE_REMOVED: (
            "An edit took the stage out of the workflow, so its Job was stopped. Putting it back does not start it "
            "again."
        ),
        WAITING_FOR_TURN: (
            "The stage has begun, and its next tasks wait at their gates until the policy gives them executors: the "
            "pool's giveBack is Task. After a failure, also until its Job makes pods again."
        ),
        NOT_STARTED: "The stage will not start: a stage that it depends on has failed, or the workflow has ended.",
    },
    "Reasons of PolicyReady": {
        POLICY_LOADED: "The policy passed its checks and decides.",
        POLICY_OFF: "spec.mode is Off: the fallback decides.",
        POLICY_LOADING: "The policy is being loaded; the fallback decides meanwhile.",
        POLICY_UNKNOWN: "No built-in policy has this name, or it has no such parameter.",
        MODEL_UNUSABLE: "The model is missing, has another digest or schema, or failed its dry run.",
        DECISION_FAILED: "The policy failed, or answered NaN or an illegal action; the fallback made that decision.",
        DECISION_LATE: "The policy did not answer in time; the fallback made that decision.",
        OUT_OF_DISTRIBUTION: "The pool is in a state that the model was not taught; the fallback made that decision.",
        FALLBACK_UNKNOWN: (
            "spec.fallback is not a built-in heuristic: the policy decides, and where it cannot, sjf does."
        ),
    },
    "Reasons of HoldingPaused": {
        HOLDING_ALLOWED: "The policy may hold stages, within maxHoldSeconds and maxWaitSeconds.",
        HOLDING_RELEASED: "The pool has the annotation fermata.dev/release; take it off to let the policy hold again.",
        HOLDING_COSTS: "By replay of recent workflows holding makes the mean JCT longer, so it is off.",
    },
    "Other reasons of Events": {
        STAGE_STARTED: "The stage's Job was created, or its parallelism was raised.",
        STAGE_SUCCEEDED: "Every task of the stage succeeded.",
        STAGE_HELD: "The policy holds the stage although enough executors are free.",
        STAGE_WAITING: "The stage is ready and waits for executors.",
        STAGES_NOT_TOLD: "etcd has no room for the status of its stages beside its spec; they run all the same.",
        HOLDING_RESUMED: "The pool's policy may hold again.",
        POLICY_FALLBACK: "The pool's own policy cannot decide; the fallback does.",
    },
}
MEANING: Final[dict[str, str]] = {name: meaning for group in MEANINGS.values() for name, meaning in group.items()}
