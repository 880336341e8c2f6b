"""Namespaces: active until deleted, then terminating until their content is gone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fermata.sim.kube.kinds.plain import WithoutGeneration

if TYPE_CHECKING:
    from fermata.sim.kube.resources import Obj


class NamespaceKind(WithoutGeneration):
    """A namespace carries the finalizer that its content's removal takes away, and its name as a label."""

    def prepare_create(self, obj: Obj) -> None:
        """Set finalizer, phase and the name label."""
        obj["spec"] = {"finalizers": ["kubernetes"]}
        obj["status"] = {"phase": "Active"}
        obj["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = obj["metadata"]["name"]

    def prepare_update(self, new: Obj, old: Obj) -> None:
        """Keep the finalizer, which only the `finalize` subresource removes, and the name label."""
        new["spec"] = old.get("spec", {})
        new["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = new["metadata"]["name"]
