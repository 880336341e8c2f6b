"""The two resources as typed models: the one source of the CRDs, of validation and of what the operator reads.

Specs are what users write, so they forbid unknown keys, of which `specs.py` forgives those that an API server let
through; statuses are what this operator wrote, so they ignore keys of other versions. Knows nothing of a cluster.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from fermata.operator.names import MAX_LABEL

# Bounds of what one object may hold. An object of the API is at most about 1.5 MB.
MAX_STAGES = 1000
MAX_PARENTS = 64
MAX_TASKS = 100_000
MAX_EXECUTORS = 100_000
MAX_SECONDS = 10 * 365 * 24 * 3600
MAX_MESSAGE = 32768  # of a condition
MAX_STAGE_MESSAGE = 1024
MAX_REASON = 128  # of a stage
MAX_POLICY = 253
MAX_NAME = 253  # of a DNS name

Name = Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", min_length=1, max_length=63)]
Seconds = Annotated[int, Field(ge=1, le=MAX_SECONDS)]
SecondsOrZero = Annotated[int, Field(ge=0, le=MAX_SECONDS)]
# In statuses, which others can write, too: what is read there is never negative, nor beyond what a spec may say.
CountRead = Annotated[int, AfterValidator(lambda count: min(max(count, 0), MAX_TASKS))]
SecondsRead = Annotated[float, AfterValidator(lambda seconds: min(max(seconds, 0.0), float(MAX_SECONDS)))]
Time = Annotated[str, Field(json_schema_extra={"format": "date-time"})]
_POLICY = r"^[a-z][a-z0-9-]*(:[a-z_]+=[^,=\s]+(,[a-z_]+=[^,=\s]+)*)?$"
PolicyName = Annotated[str, Field(pattern=_POLICY, max_length=MAX_POLICY)]
# Of labels, as Kubernetes has them. That a key's prefix is no longer than a DNS name, no pattern of an API server says.
_DNS_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
LABEL_KEY = rf"^({_DNS_LABEL}(\.{_DNS_LABEL})*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{{0,61}}[A-Za-z0-9])?$"
LabelKey = Annotated[str, Field(pattern=LABEL_KEY, max_length=MAX_NAME + len("/") + MAX_LABEL)]
LabelValue = Annotated[str, Field(pattern=r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$", max_length=MAX_LABEL)]


def _rules(*pairs: tuple[str, str]) -> dict[str, Any]:
    return {"x-kubernetes-validations": [{"rule": rule, "message": message} for rule, message in pairs]}


class _Spec(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True)


class _Status(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="ignore")


class StageSpec(_Spec):
    """One stage: a number of equal tasks that start when all its parents have succeeded."""

    model_config = ConfigDict(
        json_schema_extra=_rules(("!(self.name in self.dependsOn)", "a stage must not depend on itself"))
    )

    name: Name = Field(
        description="Name of the stage, unique in the workflow: up to 63 of a-z, 0-9 and -, no - at its ends."
    )
    depends_on: list[Name] = Field(
        default_factory=list,
        max_length=MAX_PARENTS,
        description="Stages that must have succeeded before this one may start.",
        json_schema_extra={"x-kubernetes-list-type": "set", "default": []},
    )
    tasks: int = Field(
        default=1,
        ge=1,
        le=MAX_TASKS,
        description="Number of tasks: the completions of its Job, which an edit after its start does not change.",
    )
    slots: int = Field(
        default=1, ge=1, le=MAX_EXECUTORS, description="Executors of the pool that one task takes together."
    )
    parallelism: int | None = Field(
        default=None, ge=1, le=MAX_TASKS, description="The most tasks that run at once; all of them if absent."
    )
    estimate_seconds: Seconds | None = Field(
        default=None, description="Expected duration of one task; learned from finished stages if absent."
    )
    retries: int = Field(default=0, ge=0, le=1000, description="How many runs of its tasks may fail before it does.")
    active_deadline_seconds: Seconds | None = Field(
        default=None, description="Fails the stage so long after its start; what it waited before does not count."
    )
    template: dict[str, Any] = Field(description="The pod template of its tasks.")


class WorkflowSpec(_Spec):
    """What a user asks for: stages that depend on each other, and the pool that runs them."""

    model_config = ConfigDict(
        json_schema_extra=_rules(("self.poolName == oldSelf.poolName", "a workflow cannot move to another pool"))
    )

    pool_name: Annotated[str, Field(min_length=1, max_length=MAX_LABEL)] = Field(
        description="The ExecutorPool that runs it."
    )
    priority: int = Field(
        default=0, ge=-1000, le=1000, description="Higher is more important: its weight, and the order of equals."
    )
    parallelism: int | None = Field(
        default=None, ge=1, le=MAX_TASKS, description="The most tasks of the whole workflow that run at once."
    )
    suspend: bool = Field(default=False, description="If true, what runs goes on and nothing new is started.")
    active_deadline_seconds: Seconds | None = Field(
        default=None, description="Fails the workflow so long after its creation, whatever it did in that time."
    )
    on_failure: Literal["Stop", "Finish"] = Field(
        default="Stop",
        description="When a stage fails. Stop: what runs is stopped. Finish: what does not depend on it is run first.",
    )
    ttl_seconds_after_finished: SecondsOrZero | None = Field(
        default=None, description="Deletes the workflow, with its Jobs, so long after it has finished."
    )
    stages: list[StageSpec] = Field(
        min_length=1,
        max_length=MAX_STAGES,
        description="The stages of the workflow.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )


class Condition(_Status):
    """One aspect of an object's state, as Kubernetes writes it."""

    type: Annotated[str, Field(max_length=316)]
    status: Literal["True", "False", "Unknown"]
    observed_generation: int = 0
    last_transition_time: Time
    reason: Annotated[str, Field(max_length=1024)]
    message: Annotated[str, Field(max_length=MAX_MESSAGE)] = ""


_CONDITIONS: Any = Field(
    default_factory=list,
    max_length=16,
    json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
)

StageState = Literal["Pending", "Waiting", "Held", "Running", "Succeeded", "Failed", "Skipped"]


class StageStatus(_Status):
    """What became of one stage. Times are measured, so seconds have decimals."""

    name: Annotated[str, Field(max_length=63)]
    state: StageState
    reason: Annotated[str, Field(max_length=MAX_REASON)] = Field(default="", description="Why, in a word.")
    message: Annotated[str, Field(max_length=MAX_STAGE_MESSAGE)] = Field(
        default="", description="Why, with the numbers of the moment when the reason began, or of an edit since."
    )
    ready_time: Time | None = Field(default=None, description="Since when it could start: all parents had succeeded.")
    start_time: Time | None = Field(default=None, description="When it was started.")
    completion_time: Time | None = Field(default=None, description="When it ended.")
    held_since: Time | None = Field(default=None, description="Since when it is held now; adds to heldSeconds.")
    hold_until: Time | None = Field(default=None, description="End of a committed hold.")
    wait_seconds: SecondsRead | None = Field(default=None, description="It was ready, and neither ran nor was held.")
    held_seconds: SecondsRead | None = Field(default=None, description="It was ready, and held on purpose.")
    run_seconds: SecondsRead | None = Field(default=None, description="From its start to its end.")
    task_seconds: SecondsRead | None = Field(
        default=None, description="What each task took, if all took the same, by runSeconds and all caps until then."
    )
    estimate_seconds: SecondsRead | None = Field(default=None, description="What one task is expected to take.")
    estimate_source: Annotated[str, Field(max_length=128)] = Field(default="", description="Where that comes from.")
    parallelism: CountRead | None = Field(default=None, description="The cap in force.")
    job_name: Annotated[str, Field(max_length=63)] | None = Field(
        default=None, description="Its Job, in the namespace of the workflow."
    )
    tasks: CountRead = 0
    active: CountRead = Field(default=0, description="Tasks that hold executors.")
    succeeded: CountRead = Field(default=0, description="Tasks that have succeeded.")
    failed: CountRead = Field(default=0, description="Runs of tasks that failed.")


class TaskCounts(_Status):
    """Tasks of the whole workflow."""

    total: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0


class _Told(_Status):
    """What is told of an object as conditions, and of which version of it."""

    observed_generation: int = Field(default=0, description="Which version of the specification this is about.")
    conditions: list[Condition] = _CONDITIONS

    def condition(self, kind: str) -> Condition | None:
        """Return the condition of a type, or None."""
        return next((condition for condition in self.conditions if condition.type == kind), None)


class WorkflowStatus(_Told):
    """What a person asks of a workflow: is it done, how long did it take, and what did it wait for."""

    policy: Annotated[str, Field(max_length=MAX_POLICY)] | None = Field(
        default=None, description="The policy that made the latest decision about it."
    )
    arrival_time: Time | None = Field(default=None, description="Its creation, to the microsecond where known.")
    start_time: Time | None = Field(default=None, description="When its first stage was started.")
    completion_time: Time | None = Field(default=None, description="When it ended.")
    jct_seconds: SecondsRead | None = Field(default=None, description="Job completion time: wait + held + run.")
    wait_seconds: SecondsRead | None = Field(default=None, description="No task ran and too few executors were free.")
    held_seconds: SecondsRead | None = Field(default=None, description="No task ran although executors were left free.")
    run_seconds: SecondsRead | None = Field(default=None, description="At least one task ran.")
    held_since: Time | None = Field(default=None, description="Since when it is held now; adds to heldSeconds.")
    gap_seconds: SecondsRead | None = Field(
        default=None, description="It had begun, and all its tasks waited for their turn: counts as wait, not as run."
    )
    gap_since: Time | None = Field(default=None, description="Since when they do now; adds to gapSeconds.")
    suspended_time: Time | None = Field(
        default=None, description="When it, or a Job of it, was first suspended, or was not accepted for a while."
    )
    slowdown: float | None = Field(default=None, description="JCT over the run time (at least 10 s), at least 1.")
    progress: Annotated[str, Field(max_length=32)] = Field(default="", description="Tasks succeeded of all.")
    tasks: TaskCounts = Field(default_factory=TaskCounts)
    stages: list[StageStatus] = Field(
        default_factory=list,
        max_length=MAX_STAGES,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )


class ConfigMapKey(_Spec):
    """A key of a ConfigMap that holds a model under binaryData."""

    namespace: Name
    name: Annotated[str, Field(min_length=1, max_length=253)]
    key: Annotated[str, Field(min_length=1, max_length=253)]


class ModelSource(_Spec):
    """Where an exported policy lies, and the digest that it must have."""

    model_config = ConfigDict(
        json_schema_extra=_rules(("has(self.path) != has(self.configMap)", "give exactly one of path and configMap"))
    )

    path: Annotated[str, Field(pattern=r"^/.+\.onnx$", max_length=4096)] | None = Field(
        default=None,
        description="A file in the operator's own container: an absolute path that ends in .onnx.",
    )
    config_map: ConfigMapKey | None = None
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$", max_length=64)] = Field(
        description="Digest of the file, as sha256sum prints it; a model with another one is not used."
    )


class PolicySource(_Spec):
    """A built-in policy by name, or a model."""

    model_config = ConfigDict(
        json_schema_extra=_rules(("has(self.name) != has(self.model)", "give exactly one of name and model"))
    )

    name: PolicyName | None = Field(
        default=None,
        description="One of fermata policy list, with parameters if it has any: sjf-hold:tau=20,split=100.",
    )
    model: ModelSource | None = None

    @property
    def title(self) -> str:
        """Name for people who have the specification alone: of a model by its digest."""
        return self.name or (f"model-{self.model.sha256[:12]}" if self.model else "")


class SelectorRequirement(_Spec):
    """One requirement of a label selector."""

    model_config = ConfigDict(
        json_schema_extra=_rules(
            (
                "(self.operator in ['In', 'NotIn']) == (has(self.values) && size(self.values) > 0)",
                "In and NotIn need values, Exists and DoesNotExist take none",
            )
        )
    )

    key: LabelKey
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: list[LabelValue] = Field(default_factory=list, max_length=64)


class LabelSelector(_Spec):
    """A label selector, as Kubernetes has it; an empty one selects everything."""

    match_labels: dict[str, LabelValue] = Field(default_factory=dict, max_length=64)
    match_expressions: list[SelectorRequirement] = Field(default_factory=list, max_length=64)

    def selects(self, labels: dict[str, str]) -> bool:
        """Tell whether an object with these labels is selected."""
        if any(labels.get(key) != value for key, value in self.match_labels.items()):
            return False
        return all(_holds(requirement, labels) for requirement in self.match_expressions)


def _holds(requirement: SelectorRequirement, labels: dict[str, str]) -> bool:
    if requirement.operator == "Exists":
        return requirement.key in labels
    if requirement.operator == "DoesNotExist":
        return requirement.key not in labels
    inside = labels.get(requirement.key) in requirement.values
    return inside if requirement.operator == "In" else not inside


class ExecutorPoolSpec(_Spec):
    """A number of executors, and how they are given to workflows."""

    executors: int = Field(ge=1, le=MAX_EXECUTORS, description="How many one-slot tasks run at once.")
    mode: Literal["Off", "Shadow", "Enforce"] = Field(
        default="Enforce",
        description="Enforce: the policy decides. Shadow: the policy is asked, the fallback decides. "
        '"Off", in quotes, as YAML\'s Off is a boolean: nobody is asked, the fallback decides.',
    )
    # An API server that filled the name in would refuse whoever names a model later: a merge keeps what is there.
    policy: PolicySource = Field(
        default_factory=lambda: PolicySource(name="default"),
        description="The policy of the pool; if absent, default, the model that ships.",
    )
    fallback: PolicyName = Field(
        default="sjf", description="Built-in heuristic, without its holds, that decides where the policy cannot."
    )
    max_hold_seconds: SecondsOrZero | None = Field(
        default=None, description="The longest that a stage is held in all; unlimited if absent."
    )
    max_wait_seconds: SecondsOrZero | None = Field(
        default=None, description="Age from which a ready stage is not held any more; unlimited if absent."
    )
    give_back: Literal["Stage", "Task"] = Field(
        default="Stage",
        description="When a stage of several tasks gives its executors back. Stage: when it runs out of tasks, as its "
        "Job starts one after the other. Task: after each task, and the policy decides who is next; its pods wait at a "
        "scheduling gate, which takes an operator with the right to patch pods.",
    )
    hold_when_idle: bool = Field(
        default=False,
        description="Whether a timed hold may leave the whole pool idle, for a job that is expected to follow.",
    )
    decision_deadline_seconds: Annotated[int, Field(ge=1, le=60)] = Field(
        default=1, description="A policy that takes longer for a decision is late, and the fallback makes it."
    )
    namespace_selector: LabelSelector | None = Field(
        default=None, description="Namespaces whose workflows it takes; all of them if absent."
    )


class ExecutorPoolStatus(_Told):
    """What the pool does now."""

    policy: Annotated[str, Field(max_length=MAX_POLICY)] = Field(default="", description="The policy in force.")
    mode: Annotated[str, Field(max_length=16)] = ""
    executors: int = 0
    busy: int = Field(default=0, description="Executors that stages hold.")
    waiting: int = Field(default=0, description="Stages that are ready and lack executors.")
    held: int = Field(default=0, description="Stages that are ready and held.")
    workflows: int = Field(default=0, description="Accepted workflows that are not finished.")
    hold_savings_percent: float | None = Field(
        default=None,
        description="What holding saves of the mean JCT, by replay of recent workflows; negative if it costs.",
    )
