"""Jobs: selector and label defaults, validation, and what stands once a Job exists.

Source: `k8s.io/kubernetes/pkg/apis/batch/validation` and `pkg/registry/batch/job/strategy.go`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fermata.sim.kube.errors import Cause, required, unsupported
from fermata.sim.kube.failure_policy import validate_policy
from fermata.sim.kube.kinds.base import Kind
from fermata.sim.kube.kinds.pod import default_pod_spec, validate_pod_spec
from fermata.sim.kube.success_policy import validate_success_policy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fermata.sim.kube.resources import Obj

CONTROLLER_UID = "batch.kubernetes.io/controller-uid"
JOB_NAME = "batch.kubernetes.io/job-name"
COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
INDEX_FAILURES = "batch.kubernetes.io/job-index-failure-count"
TRACKING_FINALIZER = "batch.kubernetes.io/job-tracking"

_COUNTS = (
    "parallelism",
    "completions",
    "backoffLimit",
    "backoffLimitPerIndex",
    "maxFailedIndexes",
    "activeDeadlineSeconds",
    "ttlSecondsAfterFinished",
)
_DIGITS = 10  # of an index, or a number of failures
_IMMUTABLE = ("selector", "completionMode", "podFailurePolicy", "successPolicy", "backoffLimitPerIndex", "managedBy")
_REPLACEMENTS = ("Failed", "TerminatingOrFailed")
#: How many pods of an Indexed Job may run at once.
_MOST_INDEXED = 100_000
#: The scheduling directives of the template, which may change while a Job is suspended and has not started.
_DIRECTIVES = ("nodeSelector", "affinity", "tolerations", "schedulingGates")


def number_of(pod_meta: Obj, key: str) -> int | None:
    """Return the number that the Job controller wrote into a pod's annotation; what else stands there is none."""
    text = (pod_meta.get("annotations") or {}).get(key, "")
    return int(text) if text.isdecimal() and len(text) <= _DIGITS else None


class JobKind(Kind):
    """A Job: its template, selector and mode stand; parallelism, suspension and limits may change."""

    orphans = (
        "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them "
        "or set propagationPolicy=Orphan to suppress this warning"
    )

    def prepare_create(self, obj: Obj) -> None:
        """Set defaults, the generated selector and its labels."""
        spec = obj.get("spec")
        obj["status"] = {}
        if not isinstance(spec, dict):
            return
        if spec.get("completions") is None and spec.get("parallelism") is None:
            spec["completions"] = 1
        if spec.get("parallelism") is None:
            spec["parallelism"] = 1
        per_index = spec.get("backoffLimitPerIndex") is not None
        for key, value in {
            "backoffLimit": 2**31 - 1 if per_index else 6,
            "completionMode": "NonIndexed",
            "suspend": False,
            "manualSelector": False,
            "podReplacementPolicy": "TerminatingOrFailed" if spec.get("podFailurePolicy") is None else "Failed",
        }.items():
            if spec.get(key) is None:
                spec[key] = value
        template = spec.get("template")
        if not isinstance(template, dict) or not isinstance(template.get("spec"), dict):
            return
        default_pod_spec(template["spec"])
        if not spec.get("manualSelector") and not spec.get("selector"):
            self._select_own_pods(obj, template)
        labels = template.setdefault("metadata", {}).get("labels")
        if labels and not obj["metadata"].get("labels"):
            obj["metadata"]["labels"] = dict(labels)

    def _select_own_pods(self, obj: Obj, template: Obj) -> None:
        uid, name = obj["metadata"]["uid"], obj["metadata"]["name"]
        labels = (template.setdefault("metadata", {}) or {}).get("labels") or {}
        template["metadata"] = {**(template["metadata"] or {}), "labels": {**_own_labels(name, uid), **labels}}
        if not obj["spec"].get("selector"):
            obj["spec"]["selector"] = {"matchLabels": {CONTROLLER_UID: uid}}

    def prepare_update(self, new: Obj, old: Obj) -> None:
        """Restore the generated parts that clients leave out when they replace a Job."""
        spec, before = new.get("spec"), old["spec"]
        if not isinstance(spec, dict):
            return
        for key in ("parallelism", "backoffLimit", "completionMode", "suspend", "podReplacementPolicy", "selector"):
            if spec.get(key) is None and before.get(key) is not None:
                spec[key] = before[key]
        template = spec.get("template")
        if not isinstance(template, dict) or not isinstance(template.get("spec"), dict):
            return
        default_pod_spec(template["spec"])
        if not spec.get("manualSelector"):
            self._select_own_pods(new, template)

    def validate(self, obj: Obj, old: Obj | None) -> list[Cause]:
        """Refuse an incomplete Job and changes of what must stand."""
        spec = obj.get("spec")
        if not isinstance(spec, dict):
            return [required("spec")]
        causes = [
            Cause(f"spec.{key}", f"Invalid value: {spec[key]}: must be greater than or equal to 0")
            for key in _COUNTS
            if spec.get(key) is not None and (not isinstance(spec[key], int) or spec[key] < 0)
        ]
        if len(str(obj["metadata"].get("name"))) > 63:
            # Its name is a label of its pods.
            causes.append(Cause("spec.template.labels", "Invalid value: must be no more than 63 characters"))
        if spec.get("manualSelector") and not spec.get("selector"):
            causes.append(required("spec.selector"))
        if spec.get("selector") and not spec.get("manualSelector") and not _selects_own_pods(obj):
            causes.append(Cause("spec.selector", "Invalid value: `selector` not auto-generated"))
        if not spec.get("manualSelector"):
            causes += _validate_own_labels(obj)
        causes += _validate_mode(spec, obj["metadata"]["name"])
        causes += _validate_policies(spec)
        causes += _validate_indexes(spec)
        template = spec.get("template")
        pod_spec = template.get("spec") if isinstance(template, dict) else None
        causes += validate_pod_spec(pod_spec, "spec.template.spec")
        if isinstance(pod_spec, dict) and pod_spec.get("restartPolicy") == "Always":
            causes.append(required("spec.template.spec.restartPolicy", 'valid values: "OnFailure", "Never"'))
        if old is not None and not causes:
            causes += _validate_change(spec, old)
        return causes


def _own_labels(name: str, uid: str) -> dict[str, str]:
    return {CONTROLLER_UID: uid, "controller-uid": uid, JOB_NAME: name, "job-name": name}


def _validate_own_labels(obj: Obj) -> list[Cause]:
    """Refuse a template that has the labels of another Job's pods, as one has that was copied from those."""
    template, meta = obj["spec"].get("template"), obj["metadata"]
    labels = (template.get("metadata") or {}).get("labels") or {} if isinstance(template, dict) else {}
    return [
        Cause(f"spec.template.metadata.labels[{key}]", f"Invalid value: \"{labels[key]}\": must be '{value}'")
        for key, value in _own_labels(meta.get("name"), meta.get("uid")).items()
        if key in labels and labels[key] != value
    ]


def _selects_own_pods(obj: Obj) -> bool:
    own = {"matchLabels": {CONTROLLER_UID: obj["metadata"].get("uid")}}
    return bool({key: value for key, value in obj["spec"]["selector"].items() if value} == own)


def _validate_mode(spec: Obj, name: str) -> list[Cause]:
    mode = spec.get("completionMode")
    if mode not in ("Indexed", "NonIndexed"):
        return [unsupported("spec.completionMode", mode, ("Indexed", "NonIndexed"))]
    if mode == "Indexed":
        if spec.get("completions") is None:
            return [required("spec.completions", "when completion mode is Indexed")]
        if isinstance(spec.get("parallelism"), int) and spec["parallelism"] > _MOST_INDEXED:
            message = f"must be less than or equal to {_MOST_INDEXED} when completion mode is Indexed"
            return [Cause("spec.parallelism", f"Invalid value: {spec['parallelism']}: {message}")]
        longest = f"{name}-{max(int(spec['completions']) - 1, 0)}"
        if len(longest) > 63:
            message = (
                f'Invalid value: "{longest}": will not be a valid pod hostname: must be no more than 63 characters'
            )
            return [Cause("metadata.name", message)]
    elif spec.get("backoffLimitPerIndex") is not None:
        message = 'Invalid value: "NonIndexed": requires indexed completion mode'
        return [Cause("spec.backoffLimitPerIndex", message)]
    return []


def _validate_indexes(spec: Obj) -> Iterator[Cause]:
    """Refuse what is about failed indexes where there are none, or cannot be so many."""
    most, completions = spec.get("maxFailedIndexes"), spec.get("completions")
    if spec.get("backoffLimitPerIndex") is not None:
        if isinstance(most, int) and isinstance(completions, int) and most > completions:
            message = f"Invalid value: {most}: must be less than or equal to {completions}"
            yield Cause("spec.maxFailedIndexes", message)
        return
    if most is not None:
        yield required("spec.backoffLimitPerIndex", "when maxFailedIndexes is specified")
    for number, rule in enumerate((spec.get("podFailurePolicy") or {}).get("rules") or []):
        if rule.get("action") == "FailIndex":
            message = 'Invalid value: "FailIndex": requires the backoffLimitPerIndex to be set'
            yield Cause(f"spec.podFailurePolicy.rules[{number}].action", message)


def _validate_policies(spec: Obj) -> Iterator[Cause]:
    """Refuse policies that are none, or that do not go with the rest of the Job."""
    replacement, on_failure, on_success = (
        spec.get(key) for key in ("podReplacementPolicy", "podFailurePolicy", "successPolicy")
    )
    supported = _REPLACEMENTS if on_failure is None else _REPLACEMENTS[:1]
    if replacement not in (None, *supported):
        yield unsupported("spec.podReplacementPolicy", replacement, supported)
    if on_failure is not None:
        yield from validate_policy(on_failure, "spec.podFailurePolicy")
        pod_spec = (spec.get("template") or {}).get("spec") or {}
        if pod_spec.get("restartPolicy") != "Never":
            message = f'Invalid value: "{pod_spec.get("restartPolicy")}": only "Never" is supported when '
            yield Cause("spec.template.spec.restartPolicy", f"{message}podFailurePolicy is specified")
    if on_success is not None and spec.get("completionMode") != "Indexed":
        yield Cause("spec.successPolicy", "Invalid value: requires indexed completion mode")
    elif on_success is not None and spec.get("completions") is not None:
        yield from validate_success_policy(on_success, spec["completions"], "spec.successPolicy")


def _validate_change(new: Obj, job: Obj) -> list[Cause]:
    old = job["spec"]
    changed = [f"spec.{key}" for key in _IMMUTABLE if new.get(key) != old.get(key)]
    if new.get("completions") != old.get("completions"):
        elastic = new["completionMode"] == "Indexed" and new.get("completions") == new.get("parallelism")
        if not elastic:
            changed.append("spec.completions")
    thawed = bool(old.get("suspend")) and not (job.get("status") or {}).get("startTime")
    if _standing(new["template"], thawed=thawed) != _standing(old["template"], thawed=thawed):
        changed.append("spec.template")
    return [Cause(field, "Invalid value: field is immutable", "FieldValueInvalid") for field in changed]


def _standing(template: Obj, *, thawed: bool) -> Any:
    spec = {key: value for key, value in template["spec"].items() if not (thawed and key in _DIRECTIVES)}
    meta = {key: value for key, value in (template.get("metadata") or {}).items() if value not in (None, {})}
    if thawed:
        meta = {key: value for key, value in meta.items() if key not in ("labels", "annotations")}
    return {"spec": spec, "metadata": meta}
