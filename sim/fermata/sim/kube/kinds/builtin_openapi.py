"""OpenAPI of the built-in kinds, for `kubectl explain` and for the patches that `kubectl apply` makes.

Made from the field types; the descriptions are not there, so `explain` shows names and types.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any

from fermata.sim.kube.builtin_types import PLAIN_TYPES, table
from fermata.sim.kube.patch import is_merge_set, merge_key

if TYPE_CHECKING:
    from fermata.sim.kube.resources import Obj, Resource


_VERSIONED = re.compile(r"(V\d+(?:(?:alpha|beta)\d+)?)?(.*)")


def schemas_of(resource: Resource) -> tuple[Obj, dict[str, Obj]] | None:
    """Return a built-in kind's schema and those of the types that it is made of, or None where they are not known."""
    kinds, types = table()
    root = kinds.get(f"{resource.group_version}/{resource.kind}")
    if root is None or resource.custom:
        return None
    parts: dict[str, Obj] = {}
    waiting = [root]
    while waiting:
        name = waiting.pop()
        if name in parts:
            continue
        parts[name] = {
            "type": "object",
            "properties": {field: _property(name, field, kind) for field, kind in types[name].items()},
        }
        waiting += [model for kind in types[name].values() if (model := kind.strip("[]{}")) in types]
    return parts[root], {_component(name): part for name, part in parts.items()}


def _property(holder: str, field: str, kind: str) -> Obj:
    described = _described(kind)
    path = (_field_that_holds(holder), field)
    if kind[0] == "[":
        if (key := merge_key(path)) is not None:
            described |= {"x-kubernetes-patch-strategy": "merge", "x-kubernetes-patch-merge-key": key}
        elif is_merge_set(path):
            described["x-kubernetes-patch-strategy"] = "merge"
    return described


def _described(kind: str) -> Obj:
    if kind == "any" or kind[-1] == "?" or "|" in kind:
        return {"x-kubernetes-preserve-unknown-fields": True}
    if kind in PLAIN_TYPES:
        return {"type": kind}
    if kind[0] == "[":
        return {"type": "array", "items": _described(kind[1:-1])}
    if kind[0] == "{":
        return {"type": "object", "additionalProperties": _described(kind[1:-1])}
    return {"$ref": f"#/components/schemas/{_component(kind)}"}


def _component(model: str) -> str:
    """Return the name of a type's schema, of which `kubectl explain` shows what follows the last dot.

    >>> _component("V1Container")
    'io.k8s.api.v1.Container'
    """
    version, name = _VERSIONED.fullmatch(model).groups()  # type: ignore[union-attr]
    return f"io.k8s.api.{version.lower()}.{name}" if version else f"io.k8s.api.{name}"


def _field_that_holds(model: str) -> str:
    """Return the name of a field that holds a type, as merge keys are told apart by it."""
    return _holders().get(model, "")


@cache
def _holders() -> dict[str, str]:
    found: dict[str, Any] = {}
    for fields in table()[1].values():
        for field, kind in fields.items():
            found.setdefault(kind.strip("[]{}"), field)
    # A container's lists are keyed as `containers.*`, whichever of the lists of containers holds it.
    return {**found, "V1Container": "containers"}
