"""Pods: the defaults of a pod spec, what makes one invalid, and the few fields that may change later."""

from __future__ import annotations

import copy
import re
from typing import TYPE_CHECKING, Any

from fermata.sim.kube.clock import stamp
from fermata.sim.kube.errors import Cause, required, unsupported
from fermata.sim.kube.kinds.base import Kind
from fermata.sim.kube.names import wrong_key
from fermata.sim.kube.quantity import parse_quantities

if TYPE_CHECKING:
    from fermata.sim.kube.resources import Obj

_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_DNS_POLICIES = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
_RESTART_POLICIES = ("Always", "Never", "OnFailure")

_SPEC_DEFAULTS: Obj = {
    "restartPolicy": "Always",
    "dnsPolicy": "ClusterFirst",
    "terminationGracePeriodSeconds": 30,
    "schedulerName": "default-scheduler",
    "securityContext": {},
}


def default_pod_spec(spec: Obj) -> None:
    """Set the defaults that pods and pod templates share."""
    for key, value in _SPEC_DEFAULTS.items():
        spec.setdefault(key, copy.copy(value))
    if "serviceAccountName" in spec or "serviceAccount" in spec:
        name = spec.get("serviceAccountName") or spec.get("serviceAccount")
        spec["serviceAccountName"] = spec["serviceAccount"] = name
    for container in (*_items(spec.get("initContainers")), *_items(spec.get("containers"))):
        container.setdefault("resources", {})
        container.setdefault("terminationMessagePath", "/dev/termination-log")
        container.setdefault("terminationMessagePolicy", "File")
        image = str(container.get("image") or "")
        latest = ":" not in image.rpartition("/")[2] or image.endswith(":latest")
        container.setdefault("imagePullPolicy", "Always" if latest else "IfNotPresent")


def _items(value: Any) -> list[Obj]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def validate_pod_spec(spec: Any, path: str) -> list[Cause]:
    """Return why a pod spec cannot be stored.

    Args:
        spec: the spec, defaults set.
        path: the field that holds it, such as `spec` or `spec.template.spec`.

    Raises:
        MistypedError: an amount is no quantity, which is found when an object is read.
    """
    if not isinstance(spec, dict):
        return [required(path)]
    causes: list[Cause] = []
    if spec.get("restartPolicy") not in _RESTART_POLICIES:
        causes.append(unsupported(f"{path}.restartPolicy", spec.get("restartPolicy"), _RESTART_POLICIES))
    if not _items(spec.get("containers")):
        causes.append(required(f"{path}.containers"))
    names: set[str] = set()
    for field in ("initContainers", "containers"):
        for position, container in enumerate(_items(spec.get(field))):
            causes += _validate_container(container, f"{path}.{field}[{position}]", names)
    causes += _validate_resources(spec.get("resources") or {}, f"{path}.resources")
    parse_quantities(spec.get("overhead"))
    causes += _validate_volumes(spec, path)
    if spec.get("schedulingGates") and spec.get("nodeName"):
        message = "Forbidden: cannot be set until all schedulingGates have been cleared"
        causes.append(Cause(f"{path}.nodeName", message, "FieldValueForbidden"))
    if spec.get("hostname") and not _DNS_LABEL.fullmatch(str(spec["hostname"])):
        message = f'Invalid value: "{spec["hostname"]}": must be a lowercase RFC 1123 label'
        causes.append(Cause(f"{path}.hostname", message))
    if spec.get("dnsPolicy") not in (None, *_DNS_POLICIES):
        causes.append(unsupported(f"{path}.dnsPolicy", spec["dnsPolicy"], _DNS_POLICIES))
    gates = [str(gate.get("name") or "") for gate in _items(spec.get("schedulingGates"))]
    causes += [
        Cause(f"{path}.schedulingGates[{position}]", f'Duplicate value: "{gate}"', "FieldValueDuplicate")
        for position, gate in enumerate(gates)
        if gate in gates[:position]
    ]
    causes += [
        Cause(f"{path}.schedulingGates[{position}]", f'Invalid value: "{gate}": must be a qualified name')
        for position, gate in enumerate(gates)
        if wrong_key(gate)
    ]
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and (not isinstance(deadline, int) or deadline < 1):
        causes.append(Cause(f"{path}.activeDeadlineSeconds", f"Invalid value: {deadline}: must be greater than 0"))
    return causes


def _validate_container(container: Obj, path: str, names: set[str]) -> list[Cause]:
    causes: list[Cause] = []
    name = container.get("name")
    if not name:
        causes.append(required(f"{path}.name"))
    elif not isinstance(name, str) or not _DNS_LABEL.fullmatch(name):
        causes.append(Cause(f"{path}.name", f'Invalid value: "{name}": must be a lowercase RFC 1123 label'))
    elif name in names:
        causes.append(Cause(f"{path}.name", f'Duplicate value: "{name}"', "FieldValueDuplicate"))
    else:
        names.add(name)
    if not container.get("image"):
        causes.append(required(f"{path}.image"))
    for variable, entry in enumerate(_items(container.get("env"))):
        if not isinstance(entry.get("name"), str) or not entry["name"]:
            causes.append(required(f"{path}.env[{variable}].name"))
        elif "=" in entry["name"]:
            message = f'Invalid value: "{entry["name"]}": a valid environment variable name must not contain "="'
            causes.append(Cause(f"{path}.env[{variable}].name", message))
        if entry.get("value") is not None and not isinstance(entry["value"], str):
            message = f"Invalid value: {entry['value']!r}: must be a string"
            causes.append(Cause(f"{path}.env[{variable}].value", message, "FieldValueTypeInvalid"))
    causes += _validate_resources(container.get("resources") or {}, f"{path}.resources")
    for field in ("command", "args"):
        value = container.get(field)
        if value is not None and not (isinstance(value, list) and all(isinstance(item, str) for item in value)):
            causes.append(Cause(f"{path}.{field}", "Invalid value: must be a list of strings", "FieldValueTypeInvalid"))
    return causes


def _validate_resources(resources: Obj, path: str) -> list[Cause]:
    """Refuse requests above their limits.

    Raises:
        MistypedError: an amount is no quantity, which is found when an object is read.
    """
    requests, limits = (parse_quantities(resources.get(field)) for field in ("requests", "limits"))
    return [
        Cause(f"{path}.requests", f'Invalid value: "{amount:g}": must be less than or equal to {name} limit')
        for name, amount in requests.items()
        if amount > limits.get(name, amount)
    ]


def _validate_volumes(spec: Obj, path: str) -> list[Cause]:
    names = [str(volume.get("name")) for volume in _items(spec.get("volumes"))]
    causes = [
        Cause(f"{path}.volumes[{position}].name", f'Duplicate value: "{name}"', "FieldValueDuplicate")
        for position, name in enumerate(names)
        if name in names[:position]
    ]
    for field in ("initContainers", "containers"):
        for position, container in enumerate(_items(spec.get(field))):
            for place, mount in enumerate(_items(container.get("volumeMounts"))):
                if mount.get("name") not in names:
                    where = f"{path}.{field}[{position}].volumeMounts[{place}].name"
                    causes.append(Cause(where, f'Not found: "{mount.get("name")}"', "FieldValueNotFound"))
    return causes


class PodKind(Kind):
    """A pod: its spec stands but for image, deadline, tolerations and the removal of scheduling gates."""

    graceful = True

    def prepare_create(self, obj: Obj) -> None:
        """Set defaults and the first status."""
        spec = obj.get("spec")
        if not isinstance(spec, dict):
            return
        default_pod_spec(spec)
        spec.setdefault("enableServiceLinks", True)
        spec.setdefault("serviceAccountName", "default")
        spec.setdefault("priority", 0)
        obj["status"] = {"phase": "Pending", "qosClass": _qos_class(spec)}
        if spec.get("schedulingGates"):
            obj["status"]["conditions"] = [
                {
                    "type": "PodScheduled",
                    "status": "False",
                    "reason": "SchedulingGated",
                    "message": "Scheduling is blocked due to non-empty scheduling gates",
                    "lastProbeTime": None,
                    "lastTransitionTime": stamp(),
                }
            ]

    def validate(self, obj: Obj, old: Obj | None) -> list[Cause]:
        """Refuse an incomplete spec and changes of what must stand."""
        causes = validate_pod_spec(obj.get("spec"), "spec")
        if old is None:
            if not causes and obj["spec"].get("schedulingGates") and obj["spec"].get("nodeName"):
                message = "Forbidden: nodeName cannot be set until all schedulingGates have been cleared"
                causes.append(Cause("spec.nodeName", message, "FieldValueForbidden"))
            return causes
        return causes or _validate_pod_change(obj["spec"], old["spec"])

    def grace_s(self, obj: Obj) -> int:
        """Return the pod's grace period; a pod that no kubelet holds, or that has ended, goes at once."""
        if not obj["spec"].get("nodeName") or obj.get("status", {}).get("phase") in ("Succeeded", "Failed"):
            return 0
        return int(obj["spec"].get("terminationGracePeriodSeconds", 30))


def _validate_pod_change(new: Obj, old: Obj) -> list[Cause]:
    before = {gate.get("name") for gate in old.get("schedulingGates") or ()}
    after = {gate.get("name") for gate in new.get("schedulingGates") or ()}
    if after - before:
        message = f"Forbidden: only deletion is allowed, but found new scheduling gates {sorted(after - before)}"
        return [Cause("spec.schedulingGates", message, "FieldValueForbidden")]
    tolerations = new.get("tolerations") or []
    if any(item not in tolerations for item in old.get("tolerations") or []):
        return [Cause("spec.tolerations", "Forbidden: existing toleration can not be modified", "FieldValueForbidden")]
    if _frozen(new, gated=bool(before)) != _frozen(old, gated=bool(before)):
        message = (
            "Forbidden: pod updates may not change fields other than `spec.containers[*].image`,"
            "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to "
            "existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously "
            "negative)"
        )
        return [Cause("spec", message, "FieldValueForbidden")]
    return []


def _frozen(spec: Obj, *, gated: bool) -> Obj:
    """Return the part of a spec that must stand; a gated pod's node selection may still be narrowed."""
    free = {"activeDeadlineSeconds", "tolerations", "schedulingGates"}
    if gated:
        free |= {"nodeSelector", "affinity"}
    kept = {key: value for key, value in spec.items() if key not in free and value not in (None, [], {})}
    for field in ("containers", "initContainers"):
        if field in kept:
            kept[field] = [{k: v for k, v in item.items() if k != "image"} for item in kept[field]]
    return kept


def _qos_class(spec: Obj) -> str:
    resources = [item.get("resources") or {} for item in _items(spec.get("containers"))]
    asked = [(each.get("requests") or {}, each.get("limits") or {}) for each in resources]
    if not any(requests or limits for requests, limits in asked):
        return "BestEffort"
    sure = all({"cpu", "memory"} <= set(limits) and requests in ({}, limits) for requests, limits in asked)
    return "Guaranteed" if sure else "Burstable"
