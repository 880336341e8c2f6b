"""Roles and their bindings: complete rules, subjects that can be, and a role that a binding keeps.

Source: `k8s.io/kubernetes/pkg/apis/rbac/validation`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fermata.sim.kube.errors import Cause, required, unsupported
from fermata.sim.kube.kinds.plain import WithoutGeneration

if TYPE_CHECKING:
    from fermata.sim.kube.resources import Obj

_SUBJECTS = ("ServiceAccount", "User", "Group")


class RoleKind(WithoutGeneration):
    """Rules, each of which says something."""

    def validate(self, obj: Obj, old: Obj | None) -> list[Cause]:
        """Refuse rules without verbs, and rules about nothing."""
        del old
        causes: list[Cause] = []
        for position, rule in enumerate(obj.get("rules") or []):
            path = f"rules[{position}]"
            if not rule.get("verbs"):
                causes.append(required(f"{path}.verbs", "verbs must contain at least one value"))
            if rule.get("nonResourceURLs"):
                continue
            if not rule.get("apiGroups"):
                causes.append(required(f"{path}.apiGroups", "resource rules must supply at least one api group"))
            if not rule.get("resources"):
                causes.append(required(f"{path}.resources", "resource rules must supply at least one resource"))
        return causes


class BindingKind(WithoutGeneration):
    """Who has a role; which role that is stands."""

    def validate(self, obj: Obj, old: Obj | None) -> list[Cause]:
        """Refuse subjects that cannot be, and another role than before."""
        causes: list[Cause] = []
        for position, subject in enumerate(obj.get("subjects") or []):
            path, kind = f"subjects[{position}]", subject.get("kind")
            if not subject.get("name"):
                causes.append(required(f"{path}.name"))
            if kind not in _SUBJECTS:
                causes.append(unsupported(f"{path}.kind", kind, _SUBJECTS))
            elif kind == "ServiceAccount" and not subject.get("namespace") and not obj["metadata"].get("namespace"):
                causes.append(required(f"{path}.namespace"))
        role = obj.get("roleRef") or {}
        if not role.get("name"):
            causes.append(required("roleRef.name"))
        roles = ("ClusterRole",) if obj["kind"] == "ClusterRoleBinding" else ("Role", "ClusterRole")
        if role.get("kind") not in roles:
            causes.append(unsupported("roleRef.kind", role.get("kind", ""), roles))
        if old is not None and role != old.get("roleRef"):
            causes.append(Cause("roleRef", f'Invalid value: "{role.get("name")}": cannot change roleRef'))
        return causes
