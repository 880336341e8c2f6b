"""What this operator remembers of an object of the API: a few fields of it, parsed once.

Pure: an object as the API sends it goes in, a small immutable fact comes out. An object that makes no sense becomes a
fact that says so; nothing that a user writes raises here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ValidationError

from fermata.operator import names, reasons
from fermata.operator.annotated import seconds_in, slots_in, text_in, time_in
from fermata.operator.lanes import Lanes, lanes_of
from fermata.operator.resources import (
    MAX_EXECUTORS,
    MAX_POLICY,
    MAX_REASON,
    MAX_TASKS,
    ExecutorPoolSpec,
    ExecutorPoolStatus,
    WorkflowSpec,
    WorkflowStatus,
)
from fermata.operator.specs import ReadSpec, read_spec
from fermata.operator.times import parse, parse_or_none, refine

Raw = Mapping[str, Any]
M = TypeVar("M", bound=BaseModel)
# To be scheduled and to pull an image takes a while; only then is it told that pods of a Job are not ready.
NOT_READY_S = 60.0
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


@dataclass(frozen=True, slots=True)
class Meta:
    """What all objects have."""

    uid: str
    namespace: str
    name: str
    resource_version: str
    generation: int
    created_s: float
    deleting: bool
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    owner_uid: str

    def is_newer_than(self, other: Meta) -> bool:
        """Tell whether this is a later version of the same object, or a later object of its name.

        True where versions cannot be compared.
        """
        # A control plane that was begun anew counts its versions anew, but not the time.
        if self.uid != other.uid and self.created_s != other.created_s:
            return self.created_s > other.created_s
        if self.resource_version.isdigit() and other.resource_version.isdigit():
            return int(self.resource_version) > int(other.resource_version)
        return self.resource_version != other.resource_version


@dataclass(frozen=True, slots=True)
class WorkflowFact:
    """A Workflow. `spec` is None where this version cannot read it, and `problem` says why."""

    meta: Meta
    pool: str
    spec: WorkflowSpec | None
    problem: str
    status: WorkflowStatus
    seen_s: float  # when this operator first saw it
    unknown: tuple[str, ...] = ()  # fields of its spec that this version does not know

    @property
    def arrival_s(self) -> float:
        """When it was created, to better than a second where that is known."""
        recorded = parse_or_none(self.status.arrival_time)
        return refine(self.meta.created_s, self.seen_s) if recorded is None else recorded

    @property
    def title(self) -> str:
        """Namespace and name."""
        return f"{self.meta.namespace}/{self.meta.name}"

    @property
    def completion_s(self) -> float | None:
        """When it finished, if it has."""
        return parse_or_none(self.status.completion_time)

    @property
    def rejected_s(self) -> float | None:
        """Since when it is not accepted, as far as its status says; None: it is, or nothing has been told."""
        accepted = self.status.condition(reasons.ACCEPTED)
        if accepted is None or accepted.status != "False":
            return None
        return parse_or_none(accepted.last_transition_time)

    @property
    def kept_s(self) -> float:
        """Its time to live after its end; inf if it has none."""
        ttl_s = self.spec.ttl_seconds_after_finished if self.spec else None
        return math.inf if ttl_s is None else float(ttl_s)

    @property
    def expiry_s(self) -> float:
        """When its time to live after its end is over; inf if it has none or has not ended."""
        return math.inf if self.completion_s is None else self.completion_s + self.kept_s

    @property
    def released(self) -> frozenset[str]:
        """Stages that people said are not to be held any more."""
        if self.spec is None or names.ANNOTATION_RELEASE not in self.meta.annotations:
            return frozenset()
        return released_stages(self.meta.annotations[names.ANNOTATION_RELEASE], [s.name for s in self.spec.stages])

    @property
    def finished(self) -> bool:
        """Whether its outcome has been written."""
        return _is_finished(self.status)


@dataclass(frozen=True, slots=True)
class PoolFact:
    """An ExecutorPool. `spec` is None where this version cannot read it, and `problem` says why."""

    meta: Meta
    spec: ExecutorPoolSpec | None
    problem: str
    status: ExecutorPoolStatus
    unknown: tuple[str, ...] = ()  # fields of its spec that this version does not know

    @property
    def released(self) -> bool:
        """Whether people said that nothing is to be held in it: the kill switch."""
        return names.ANNOTATION_RELEASE in self.meta.annotations


@dataclass(frozen=True, slots=True)
class JobFact:
    """The Job of a started stage."""

    meta: Meta
    pool: str
    stage: str
    completions: int
    parallelism: int
    suspended: bool
    failing: bool  # its pods are being ended, and then it has failed
    active: int  # of its pods, with those that are being ended
    ready: int  # of its pods; very many, as long as nobody knows
    succeeded: int
    failed: int
    uncounted: int  # tasks that have succeeded, and are not counted yet
    outcome: Literal["", "Complete", "Failed"]
    reason: str
    message: str
    ready_s: float
    start_s: float
    held_s: float
    end_s: float | None
    estimate_s: float | None
    slots: int | None  # executors that a task of it takes; None where an older operator made it
    policy: str  # that decided to start it
    stopped: str  # why this operator suspended it for good, or empty
    lanes: tuple[Lanes, ...]  # as many as its parallelism
    idle_s: float  # since when pods lack that are ready, and no other became so or succeeded, as far as seen; or inf
    gated: bool  # its pods wait for their turn at a gate
    # Of a gated one:
    let_in: int = 0  # its pods that are not at the gate any more
    owed: int = 0  # tasks whose turn it is, and whose pods still are
    unsettled: int = 0  # tasks that have ended, and the Job controller has not said how
    absent: int = 0  # tasks to be tried again, or after such, that the Job controller makes no pods for yet
    task_s: float | None = None  # what its pods took that succeeded, in the mean, as far as seen

    @property
    def genuine(self) -> bool:
        """Whether its name is that of its stage's one Job: labels and owners are copied easily, by people as well."""
        return names.is_job_name(self.meta.name, self.meta.owner_uid, self.stage)

    @property
    def ended(self) -> bool:
        """Whether nothing more becomes of it: it has succeeded or failed, or was stopped for good."""
        return bool(self.outcome or self.stopped)

    @property
    def goes_on(self) -> bool:
        """Whether tasks of it run, or will: also of what somebody suspended, once that is resumed."""
        return not self.ended and not self.meta.deleting

    @property
    def begins_more(self) -> bool:
        """Whether tasks of it may begin from now on, or take the place of others."""
        return not (self.outcome or self.suspended or self.failing or self.meta.deleting)

    def amiss(self, now_s: float) -> str:
        """Return the reason why tasks of it do not get on, or an empty one."""
        if self.suspended:
            return reasons.JOB_SUSPENDED
        if now_s < self.idle_s + NOT_READY_S:
            return ""
        return reasons.PODS_NOT_READY if self.ready else reasons.NO_POD_READY

    @property
    def occupied(self) -> int:
        """How many tasks hold executors: the Job controller keeps as many running as parallelism allows.

        Of a gated Job it is as many as have their turn: a pod at its gate holds nothing. What a Job controller ends,
        as of a Job that is suspended, failing, deleted or narrowed, may take its grace period for that.
        """
        if self.outcome:
            return 0
        if self.gated:
            # Where its last tasks have ended, their executors wait until it is known what comes after them.
            left = self.completions - self.succeeded
            return self.let_in + self.owed or (left if left <= self.unsettled else 0)
        kept = min(self.parallelism, self.completions - self.succeeded) if self.begins_more else 0
        return max(kept, self.active)


@dataclass(frozen=True, slots=True)
class NamespaceFact:
    """A namespace: all that is asked of it are its labels, and whether it is being deleted."""

    meta: Meta


def is_later(version: str, than: str) -> bool:
    """Tell whether a resourceVersion is later than another one; False where they cannot be compared."""
    return version.isdigit() and than.isdigit() and int(version) > int(than)


def released_stages(annotation: str, stages: Iterable[str]) -> frozenset[str]:
    """Return which stages an annotation releases: all of them if it is "*", else those that it names.

    >>> sorted(released_stages("b, x", ["a", "b"])), sorted(released_stages("*", ["a", "b"]))
    (['b'], ['a', 'b'])
    """
    named = frozenset(part.strip() for part in annotation.split(","))
    return frozenset(stages) if "*" in named else named & frozenset(stages)


def meta_of(raw: Raw) -> Meta:
    """Return the metadata of any object."""
    meta = raw.get("metadata") or {}
    owners = meta.get("ownerReferences") or []
    controller: Raw = next((owner for owner in owners if owner.get("controller")), {})
    return Meta(
        uid=meta.get("uid", ""),
        namespace=meta.get("namespace", ""),
        name=meta.get("name", ""),
        resource_version=str(meta.get("resourceVersion", "")),
        generation=int(meta.get("generation") or 0),
        created_s=parse_or_none(meta.get("creationTimestamp")) or 0.0,
        deleting=bool(meta.get("deletionTimestamp")),
        labels=meta.get("labels") or {},
        # kubectl keeps a copy of the whole object there, which is most of its memory.
        annotations={key: text for key, text in (meta.get("annotations") or {}).items() if key != _LAST_APPLIED},
        owner_uid=str(controller.get("uid", "")),
    )


def workflow_fact(raw: Raw, now_s: float, before: WorkflowFact | None = None) -> WorkflowFact:
    """Return the fact of a Workflow; `before` is an earlier version of it, if there was one.

    Of a finished workflow, of which there can be very many, the pod templates are dropped and the rest is made small.
    """
    meta = meta_of(raw)
    seen_s = before.seen_s if before else now_s
    status = _status(WorkflowStatus, raw)
    body = raw.get("spec")
    pool = str(body.get("poolName", "")) if isinstance(body, Mapping) else ""
    same = before is not None and before.meta.generation == meta.generation and before.meta.uid == meta.uid
    # Somebody may take back the status of a finished one, of whose spec the templates are gone.
    if before and before.spec and same and (_is_finished(status) or not before.finished):
        read = ReadSpec(before.spec, before.problem, before.unknown)
    else:
        read = read_spec(WorkflowSpec, body)
    spec, problem, unknown = read
    fact = WorkflowFact(meta, pool, spec, problem, status, seen_s, unknown)
    if not fact.finished:
        return fact
    if spec is not None and (spec is not (before and before.spec) or any(stage.template for stage in spec.stages)):
        spec = _bare(spec, stages=[_bare(stage, template={}) for stage in spec.stages])
    status = _bare(
        status,
        stages=[_bare(stage) for stage in status.stages],
        conditions=[_bare(condition) for condition in status.conditions],
    )
    return WorkflowFact(meta, pool, spec, problem, status, seen_s, unknown)


def _is_finished(status: WorkflowStatus) -> bool:
    condition = status.condition(reasons.SUCCEEDED)
    return condition is not None and condition.status != "Unknown"


_NO_FIELDS: set[str] = set()


def _bare(model: M, **changes: Any) -> M:
    """Return a model with the same values that does not remember which of them were given: half of its memory."""
    return model.model_construct(_NO_FIELDS, **{**vars(model), **changes})


def pool_fact(raw: Raw) -> PoolFact:
    """Return the fact of an ExecutorPool."""
    spec, problem, unknown = read_spec(ExecutorPoolSpec, raw.get("spec"))
    return PoolFact(meta_of(raw), spec, problem, _status(ExecutorPoolStatus, raw), unknown)


def job_fact(raw: Raw, now_s: float, before: JobFact | None = None) -> JobFact:
    """Return the fact of a Job; an earlier version, `before`, if there was one, has said for good whose it is."""
    meta = meta_of(raw)
    pool, stage = meta.labels.get(names.LABEL_POOL, ""), meta.labels.get(names.LABEL_STAGE, "")
    if before is not None:
        meta, pool, stage = replace(meta, owner_uid=before.meta.owner_uid), before.pool, before.stage
    spec, status = raw.get("spec") or {}, raw.get("status") or {}
    end = _condition(status, "Complete", "Failed")
    stopped = text_in(meta.annotations, names.ANNOTATION_STOPPED, MAX_REASON) if spec.get("suspend") else ""
    end_s = None
    if end or stopped:
        told = end or _condition(status, "Suspended") or {}
        stamp = status.get("completionTime") or told.get("lastTransitionTime")
        known = before.end_s if before else None
        end_s = known if known is not None else refine(parse(stamp), now_s) if stamp else now_s
    failing = _condition(status, "FailureTarget") is not None
    start_s = time_in(meta.annotations, names.ANNOTATION_START, meta.created_s)
    parallelism = int(spec["parallelism"]) if spec.get("parallelism") is not None else 1
    completions, succeeded = min(int(spec.get("completions") or 1), MAX_TASKS), int(status.get("succeeded") or 0)
    # The Job controller says how many are ready once it has looked at the Job.
    ready, idle_s = int(status.get("ready", MAX_EXECUTORS)), math.inf
    gated = _is_gated(spec)
    begun = (before.occupied if before else 0) if gated else parallelism
    if ready < min(begun, completions - succeeded) and not (end or failing or spec.get("suspend")):
        # Where tasks are short, each may be over before it is counted as ready: what succeeded since was.
        same = (ready, succeeded) == ((before.ready, before.succeeded) if before else (0, 0))
        idle_s = now_s if not same else min(before.idle_s, now_s) if before else start_s
    return JobFact(
        meta=meta,
        pool=pool,
        stage=stage,
        completions=completions,
        parallelism=parallelism,
        suspended=bool(spec.get("suspend")),
        failing=failing,
        active=int(status.get("active") or 0) + int(status.get("terminating") or 0),
        ready=ready,
        succeeded=succeeded,
        failed=int(status.get("failed") or 0),
        uncounted=len((status.get("uncountedTerminatedPods") or {}).get("succeeded") or []),
        outcome=end["type"] if end else "",
        reason=str(end.get("reason", "")) if end else "",
        message=str(end.get("message", "")) if end else "",
        ready_s=time_in(meta.annotations, names.ANNOTATION_READY, start_s),
        start_s=start_s,
        held_s=seconds_in(meta.annotations, names.ANNOTATION_HELD) or 0.0,
        end_s=end_s,
        estimate_s=seconds_in(meta.annotations, names.ANNOTATION_ESTIMATE),
        slots=slots_in(meta.annotations, names.ANNOTATION_SLOTS),
        policy=text_in(meta.annotations, names.ANNOTATION_POLICY, MAX_POLICY),
        stopped=stopped,
        lanes=lanes_of(meta.annotations.get(names.ANNOTATION_LANES, ""), parallelism),
        idle_s=idle_s,
        gated=gated,
    )


def _is_gated(spec: Raw) -> bool:
    """Tell whether the pods of a Job wait for their turn, by its spec."""
    gates = ((spec.get("template") or {}).get("spec") or {}).get("schedulingGates") or []
    return any(gate.get("name") == names.GATE for gate in gates)


def _condition(status: Raw, *kinds: str) -> Raw | None:
    """Return the condition of one of these types that is true, or None."""
    rows = status.get("conditions") or []
    return next((row for row in rows if row.get("type") in kinds and row.get("status") == "True"), None)


def _status(model: type[Any], raw: Raw) -> Any:
    """Return a status as the model reads it; one that another program has spoilt counts as empty."""
    try:
        return model.model_validate(raw.get("status") or {})
    except ValidationError:
        return model()
