"""What each kind adds to the generic API: defaults, validation, what may change. One file a kind.

A kind knows its own objects only: never the store, a request or another kind.
"""

from __future__ import annotations

from fermata.sim.kube.kinds.base import Kind
from fermata.sim.kube.kinds.crd import CrdKind
from fermata.sim.kube.kinds.job import JobKind
from fermata.sim.kube.kinds.namespace import NamespaceKind
from fermata.sim.kube.kinds.plain import (
    ConfigMapKind,
    DeploymentKind,
    EventKind,
    LeaseKind,
    NodeKind,
    SecretKind,
    WithoutGeneration,
)
from fermata.sim.kube.kinds.pod import PodKind
from fermata.sim.kube.kinds.rbac import BindingKind, RoleKind

#: Storage key -> behaviour of the built-in kinds that have one; the rest are plain objects.
BUILTIN_KINDS: dict[tuple[str, str], Kind] = {
    ("", "namespaces"): NamespaceKind(),
    ("", "pods"): PodKind(),
    ("", "nodes"): NodeKind(),
    ("", "events"): EventKind(),
    ("", "configmaps"): ConfigMapKind(),
    ("", "secrets"): SecretKind(),
    ("", "services"): WithoutGeneration(),
    ("", "serviceaccounts"): WithoutGeneration(),
    ("batch", "jobs"): JobKind(),
    ("apps", "deployments"): DeploymentKind(),
    ("apiextensions.k8s.io", "customresourcedefinitions"): CrdKind(),
    ("coordination.k8s.io", "leases"): LeaseKind(),
    **{("rbac.authorization.k8s.io", plural): RoleKind() for plural in ("roles", "clusterroles")},
    **{("rbac.authorization.k8s.io", plural): BindingKind() for plural in ("rolebindings", "clusterrolebindings")},
}

__all__ = ["BUILTIN_KINDS", "Kind"]
