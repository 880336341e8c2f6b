"""The patch types: JSON merge patch, JSON patch, and the strategic merge patch of the built-in kinds.

Each is a pure function of an object and a patch. Server-side apply, which also needs field owners, is in `apply`.
"""

from __future__ import annotations

from typing import Any

import jsonpatch

from fermata.sim.kube.errors import ApiError, bad_request

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"

#: Lists of the built-in kinds whose elements are merged by a key; looked up by field name, the longest path first.
#: Source: the `patchMergeKey` tags of Kubernetes' API types.
MERGE_KEYS: dict[str, str] = {
    "conditions": "type",
    "containers": "name",
    "containers.ports": "containerPort",
    "containers.volumeMounts": "mountPath",
    "env": "name",
    "ephemeralContainers": "name",
    "hostAliases": "ip",
    "imagePullSecrets": "name",
    "initContainers": "name",
    "initContainers.ports": "containerPort",
    "initContainers.volumeMounts": "mountPath",
    "metadata.ownerReferences": "uid",
    "resourceClaims": "name",
    "schedulingGates": "name",
    "secrets": "name",
    "spec.ports": "port",
    "status.addresses": "type",
    "topologySpreadConstraints": "topologyKey",
    "volumeDevices": "devicePath",
    "volumes": "name",
}
#: Lists of plain values that are merged as sets.
MERGE_SETS = frozenset({"metadata.finalizers", "podCIDRs"})


def merge_key(path: tuple[str, ...]) -> str | None:
    """Return the merge key of the list at a path of field names, or None for a list that is replaced."""
    return MERGE_KEYS.get(".".join(path[-2:])) or MERGE_KEYS.get(path[-1])


def is_merge_set(path: tuple[str, ...]) -> bool:
    """Return whether the list at a path of field names is merged as a set of plain values."""
    return ".".join(path[-2:]) in MERGE_SETS or path[-1] in MERGE_SETS


def merge_patch(target: Any, patch: Any) -> Any:
    """Apply a JSON merge patch.

    Source: RFC 7396.

    >>> merge_patch({"a": 1, "b": {"c": 2}}, {"a": None, "b": {"d": 3}})
    {'b': {'c': 2, 'd': 3}}
    """
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge_patch(result.get(key), value)
    return result


def json_patch(target: Any, patch: Any) -> Any:
    """Apply a JSON patch; a `test` that fails refuses the whole.

    Raises:
        ApiError: 400 for a patch that is none, 422 for one that does not fit the object.

    Source: RFC 6902.
    """
    if not isinstance(patch, list) or not all(map(_is_operation, patch)):
        raise bad_request("error decoding patch: json: expected a list of operations")
    try:
        return jsonpatch.apply_patch(target, patch)
    except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException, TypeError) as error:
        # An API server says no more of it, either.
        raise ApiError(422, "Invalid", "the server rejected our request due to an error in our request") from error


def _is_operation(item: Any) -> bool:
    """Return whether an element of a JSON patch can be read as an operation, whatever it asks for; null can."""
    if not isinstance(item, dict):
        return item is None
    return all(isinstance(item.get(name), str | None) for name in ("op", "path", "from"))


def strategic_patch(target: Any, patch: Any, path: tuple[str, ...] = ()) -> Any:
    """Apply a strategic merge patch: lists with a merge key are merged by element.

    Args:
        target: the object, or the part of it at `path`.
        patch: what to change; the `$patch`, `$retainKeys`, `$deleteFromPrimitiveList/` and `$setElementOrder/`
            directives are followed.
        path: the names of the fields that lead here.

    Raises:
        ApiError: 400 for a directive that is none, or deletes from what is no list.
    """
    if not isinstance(patch, dict):
        return patch
    _check_directives(patch)
    directive = patch.get("$patch")
    if directive == "delete":
        return None
    if directive == "replace":
        return {key: value for key, value in patch.items() if key != "$patch"}
    result = dict(target) if isinstance(target, dict) else {}
    if retain := patch.get("$retainKeys"):
        result = {key: value for key, value in result.items() if key in retain}
    for key, value in patch.items():
        if key.startswith("$deleteFromPrimitiveList/"):
            name = key.partition("/")[2]
            current = result.get(name) or []
            if not isinstance(current, list):
                raise bad_request(f"{key} deletes from a list, and {name} is none")
            result[name] = [item for item in current if item not in value]
        elif key.startswith("$"):
            continue
        elif value is None:
            result.pop(key, None)
        elif isinstance(value, list):
            result[key] = _strategic_list(result.get(key), value, (*path, key))
        else:
            merged = strategic_patch(result.get(key), value, (*path, key))
            if merged is None:
                result.pop(key, None)
            else:
                result[key] = merged
    for key, order in patch.items():
        if key.startswith("$setElementOrder/"):
            name = key.partition("/")[2]
            if isinstance(result.get(name), list):
                result[name] = _ordered(result[name], order, merge_key((*path, name)))
    return result


def _check_directives(patch: dict[str, Any]) -> None:
    if patch.get("$patch", "merge") not in ("delete", "merge", "replace"):
        raise bad_request(f"unrecognized directive $patch: {patch['$patch']}; expected delete, merge or replace")
    for key, value in patch.items():
        is_list = key.startswith(("$retainKeys", "$deleteFromPrimitiveList/", "$setElementOrder/"))
        if is_list and not isinstance(value, list):
            raise bad_request(f"expected a list as {key}, got {value!r}")


def _strategic_list(target: Any, patch: list[Any], path: tuple[str, ...]) -> list[Any]:
    # What is no list is replaced by one: whether the field may hold one is for its kind to say.
    current = list(target) if isinstance(target, list) else []
    if is_merge_set(path):
        return current + [item for item in patch if item not in current]
    key = merge_key(path)
    if key is None or any(not isinstance(item, dict) for item in patch):
        return patch
    if any(item.get("$patch") == "replace" for item in patch):
        return [item for item in patch if item.get("$patch") != "replace"]
    for item in patch:
        if key not in item:
            raise bad_request(f"map: {item} does not contain declared merge key: {key}")
        position = next((i for i, old in enumerate(current) if old.get(key) == item[key]), None)
        if item.get("$patch") == "delete":
            if position is not None:
                del current[position]
        elif position is None:
            current.append(strategic_patch({}, item, path))
        else:
            current[position] = strategic_patch(current[position], item, path)
    return current


def _ordered(items: list[Any], order: list[Any], key: str | None) -> list[Any]:
    """Put the named elements into the order asked for; unnamed ones keep their place after their predecessor."""

    def identity(item: Any) -> str:
        # As text, since what a client sends need not be hashable.
        return repr(item.get(key) if key is not None and isinstance(item, dict) else item)

    rank = {identity(item): position for position, item in enumerate(order)}
    last = -1
    ranked: list[tuple[int, int, Any]] = []
    for position, item in enumerate(items):
        last = rank.get(identity(item), last)
        ranked.append((last, position, item))
    return [item for _, _, item in sorted(ranked, key=lambda entry: entry[:2])]
