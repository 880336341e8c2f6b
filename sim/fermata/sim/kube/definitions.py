"""Serves the kinds of CustomResourceDefinitions: follows the stored definitions and registers what they define."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fermata.sim.kube.cel import compile_rules
from fermata.sim.kube.kinds.custom import CustomKind
from fermata.sim.kube.resources import Resource

if TYPE_CHECKING:
    from fermata.sim.kube.api import Api
    from fermata.sim.kube.resources import Obj
    from fermata.sim.kube.store import Change, Table

CRDS = ("apiextensions.k8s.io", "customresourcedefinitions")


class Definitions:
    """The custom kinds that are served now.

    Args:
        api: where kinds are registered.
    """

    def __init__(self, api: Api) -> None:
        self._api = api
        #: Printer columns of each custom kind, by (group, version, plural).
        self.columns: dict[tuple[str, str, str], list[Obj]] = {}
        self._served: dict[str, list[Resource]] = {}
        api.store.listeners.append(self._on_change)

    def _on_change(self, table: Table, change: Change) -> None:
        if table.key != CRDS:
            return
        definition = change.entry.load()
        previous = None if change.previous is None else change.previous.load()
        if change.type == "DELETED":
            self._withdraw(change.entry.name)
            self._api.store.drop((definition["spec"]["group"], definition["spec"]["names"]["plural"]))
        elif previous is None or previous["spec"] != definition["spec"]:
            self._withdraw(change.entry.name)
            self._serve(definition)

    def _withdraw(self, name: str) -> None:
        for resource in self._served.pop(name, []):
            self._api.resources.drop(resource)
            self._api.custom.pop(resource.path, None)
            self.columns.pop(resource.path, None)

    def _serve(self, definition: Obj) -> None:
        spec = definition["spec"]
        storage_version = next(version["name"] for version in spec["versions"] if version.get("storage"))
        for version in spec["versions"]:
            if not version.get("served"):
                continue
            resource = _resource(spec, version, storage_version)
            schema = version["schema"]["openAPIV3Schema"]
            kind = CustomKind(schema, compile_rules(schema), has_status=resource.has_status)
            self._api.resources.add(resource)
            self._api.table(resource)
            self._api.custom[resource.path] = kind
            self.columns[resource.path] = version.get("additionalPrinterColumns") or []
            self._served.setdefault(definition["metadata"]["name"], []).append(resource)


def _resource(spec: Obj, version: Obj, storage_version: str) -> Resource:
    names, group = spec["names"], spec["group"]

    def restamped(to: str) -> dict[str, str]:
        return {"apiVersion": f"{group}/{to}"}

    other = version["name"] != storage_version
    return Resource(
        group=group,
        version=version["name"],
        plural=names["plural"],
        kind=names["kind"],
        namespaced=spec["scope"] == "Namespaced",
        singular=names.get("singular") or names["kind"].lower(),
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        subresources=("status",) if "status" in (version.get("subresources") or {}) else (),
        selectable=tuple(field["jsonPath"].lstrip(".") for field in version.get("selectableFields") or ()),
        custom=True,
        list_kind=names.get("listKind") or f"{names['kind']}List",
        to_storage=(lambda obj: {**obj, **restamped(storage_version)}) if other else None,
        from_storage=(lambda obj: {**obj, **restamped(version["name"])}) if other else None,
    )
