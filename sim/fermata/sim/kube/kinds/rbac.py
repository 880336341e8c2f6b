"""Roles and their bindings: complete rules, subjects that can be, and a role that a binding keeps.

Source: `k8s.io/kubernetes/pkg/apis/rbac/validation`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fermata.sim.kube.errors import Cause
from fermata.sim.kube.kinds.plain import WithoutGeneration

if TYPE_CHECKING:
    from fermata.sim.kube.resources import Obj

_SUBJECTS = ("ServiceAccount", "User", "Group")
_REQUIRED = "FieldValueRequired"


class RoleKind(WithoutGeneration):
    """Rules, each of which says something."""

    def validate(self, obj: Obj, old: Obj | None) -> list[Cause]:
        """Refuse rules without verbs, and rules about nothing."""
        del old
        causes: list[Cause] = []
        for position, rule in enumerate(obj.get("rules") or []):
            path = f"rules[{position}]"
            if not rule.get("verbs"):
                message = "Required value: verbs must contain at least one value"
                causes.append(Cause(f"{path}.verbs", message, _REQUIRED))
            if rule.get("nonResourceURLs"):
                continue
            if not rule.get("apiGroups"):
                message = "Required value: resource rules must supply at least one api group"
                causes.append(Cause(f"{path}.apiGroups", message, _REQUIRED))
            if not rule.get("resources"):
                message = "Required value: resource rules must supply at least one resource"
                causes.append(Cause(f"{path}.resources", message, _REQUIRED))
        return causes


class BindingKind(WithoutGeneration):
    """Who has a role; which role that is stands."""

    def validate(self, obj: Obj, old: Obj | None) -> list[Cause]:
        """Refuse subjects that cannot be, and another role than before."""
        causes: list[Cause] = []
        for position, subject in enumerate(obj.get("subjects") or []):
            path, kind = f"subjects[{position}]", subject.get("kind")
            if not subject.get("name"):
                causes.append(Cause(f"{path}.name", "Required value", _REQUIRED))
            if kind not in _SUBJECTS:
                supported = ", ".join(f'"{name}"' for name in _SUBJECTS)
                message = f'Unsupported value: "{kind}": supported values: {supported}'
                causes.append(Cause(f"{path}.kind", message, "FieldValueNotSupported"))
            elif kind == "ServiceAccount" and not subject.get("namespace") and not obj["metadata"].get("namespace"):
                causes.append(Cause(f"{path}.namespace", "Required value", _REQUIRED))
        role = obj.get("roleRef") or {}
        if not role.get("name"):
            causes.append(Cause("roleRef.name", "Required value", _REQUIRED))
        roles = ("ClusterRole",) if obj["kind"] == "ClusterRoleBinding" else ("Role", "ClusterRole")
        if role.get("kind") not in roles:
            supported = ", ".join(f'"{name}"' for name in roles)
            message = f'Unsupported value: "{role.get("kind", "")}": supported values: {supported}'
            causes.append(Cause("roleRef.kind", message, "FieldValueNotSupported"))
        if old is not None and role != old.get("roleRef"):
            causes.append(Cause("roleRef", f'Invalid value: "{role.get("name")}": cannot change roleRef'))
        return causes
