"""Server-side apply: who applied which field, conflicts between managers, and removal of fields no longer applied.

Only applied fields are recorded in `managedFields`, not those of updates and other patches: two appliers conflict as
in Kubernetes, an applier and an updater do not.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from fermata.sim.kube.clock import stamp
from fermata.sim.kube.errors import ApiError, Cause, bad_request, conflict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fermata.sim.kube.resources import Obj, Resource

    ListKeys = Callable[[tuple[str, ...]], tuple[str, ...] | None]

#: A field as `FieldsV1` writes it: `f:name` steps into a map, `k:{...}` into a keyed element, `v:...` names a value.
Path = tuple[str, ...]
#: Who owns fields: the name, and the subresource through which it applied them, empty for the object itself.
Manager = tuple[str, str]

_NOT_OWNED = ("apiVersion", "kind")
_NOT_OWNED_METADATA = (
    "name", "namespace", "uid", "resourceVersion", "creationTimestamp", "generation", "managedFields",
)  # fmt: skip


def apply_patch(
    resource: Resource, live: Obj | None, wanted: Obj, *, manager: str, status: bool, force: bool, list_keys: ListKeys
) -> Obj:
    """Return what an object becomes when a manager applies a configuration.

    Args:
        resource: the kind, for the conflict's words.
        live: the stored object, None where there is none yet.
        wanted: the configuration: every field that this manager wants to own.
        manager: who applies.
        status: to the status alone. What a manager owns of it has nothing to do with what it owns of the rest.
        force: take over fields that another manager applied with another value.
        list_keys: the merge keys of the list at a path of names; None for an atomic one, () for a set.

    Raises:
        ApiError: 409 with one cause a field that another manager applied; 500 for an element that is there twice.
    """
    wanted = {**wanted, "metadata": {key: value for key, value in wanted["metadata"].items() if key != "managedFields"}}
    owned = {
        (entry["manager"], entry.get("subresource") or ""): _read(entry)
        for entry in (live or {}).get("metadata", {}).get("managedFields") or ()
    }
    named = list(_owned_paths(wanted, list_keys))
    mine = set(named)
    if len(mine) < len(named):
        raise _twice(resource, wanted, named)
    me = (manager, "status" if status else "")
    if status or resource.has_status:
        mine = {path for path in mine if (path[0] == "f:status") == status}
    others = {other: fields for other, fields in owned.items() if other != me}
    if live is not None:
        others = _resolve(resource, live, wanted, mine, others, force=force)
    elsewhere = set().union(*others.values()) if others else set()
    merged: Obj = _merge(live or {}, wanted, (), list_keys)
    # Elements first: nothing is found of one by its key once its key is gone.
    gone = owned.get(me, set()) - mine - elsewhere
    for path in sorted(gone, key=lambda path: (path[-1] != ".", -len(path))):
        _remove(merged, path)
    fields = {**others, me: mine}
    merged["metadata"]["managedFields"] = [
        _write(resource, owner, paths) for owner, paths in sorted(fields.items()) if paths
    ]
    return merged


def no_typed_patch(resource: Resource, wanted: Obj, why: str) -> ApiError:
    """500 for a configuration that is none of the kind."""
    meta = wanted["metadata"]
    place = f"{meta.get('namespace') or ''}/{meta.get('name') or ''}"
    kind = f"{resource.group}/{resource.version}, Kind={resource.kind}"
    return ApiError(500, "", f"failed to create typed patch object ({place}; {kind}): {why}")


def _twice(resource: Resource, wanted: Obj, named: list[Path]) -> ApiError:
    """Say which element of a list map or a set a configuration names twice."""
    path = next(path for position, path in enumerate(named) if path in named[:position])
    # What stands for an element of a list map is its presence, of a set its value.
    end = -2 if path[-1] == "." else -1
    where, key = _dotted(path[:end]), _dotted(path[end:])
    return no_typed_patch(resource, wanted, f"{where}: duplicate entries for key {key}")


def _resolve(
    resource: Resource, live: Obj, wanted: Obj, mine: set[Path], others: dict[Manager, set[Path]], *, force: bool
) -> dict[Manager, set[Path]]:
    """Return what the others own after this apply, or raise where they own a field that would change."""
    causes: list[Cause] = []
    left: dict[Manager, set[Path]] = {}
    for (name, subresource), fields in others.items():
        lost = {path for path in fields & mine if _value(live, path) != _value(wanted, path)}
        told = f'conflict with "{name}"' + (f' with subresource "{subresource}"' if subresource else "")
        causes += [Cause(_dotted(path), told, "FieldManagerConflict") for path in sorted(lost)]
        left[name, subresource] = fields - lost
    if causes and not force:
        count = f"{len(causes)} conflict{'s' if len(causes) > 1 else ''}"
        told = ", ".join(f"{cause.message}: {cause.field}" for cause in causes)
        error = conflict(resource, str(live["metadata"]["name"]), "", causes)
        error.message = f"Apply failed with {count}: {told}"
        raise error
    return left


def _owned_paths(obj: Obj, list_keys: ListKeys) -> Iterator[Path]:
    for key, value in obj.items():
        if key in _NOT_OWNED:
            continue
        if key == "metadata":
            value = {name: item for name, item in value.items() if name not in _NOT_OWNED_METADATA}
            if not value:
                continue
        yield from _leaves(value, (f"f:{key}",), (key,), list_keys)


def _leaves(value: Any, path: Path, names: tuple[str, ...], list_keys: ListKeys) -> Iterator[Path]:
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _leaves(item, (*path, f"f:{key}"), (*names, key), list_keys)
        return
    keys = list_keys(names) if isinstance(value, list) else None
    if keys is None:
        yield path
        return
    for item in value:
        if not keys or not isinstance(item, dict):
            yield (*path, f"v:{json.dumps(item)}")
            continue
        step = f"k:{json.dumps({key: item.get(key) for key in keys}, separators=(',', ':'))}"
        yield (*path, step, ".")
        for key, inner in item.items():
            yield from _leaves(inner, (*path, step, f"f:{key}"), (*names, key), list_keys)


def _merge(live: Any, wanted: Any, names: tuple[str, ...], list_keys: ListKeys) -> Any:
    if isinstance(wanted, dict):
        result = dict(live) if isinstance(live, dict) else {}
        for key, value in wanted.items():
            result[key] = _merge(result.get(key), value, (*names, key), list_keys)
        return result
    keys = list_keys(names) if isinstance(wanted, list) and isinstance(live, list) else None
    if keys is None:
        return wanted
    if not keys:
        return live + [item for item in wanted if item not in live]

    def identity(item: Any) -> tuple[Any, ...]:
        return tuple(item.get(key) for key in keys)

    for index, item in enumerate(wanted):
        if not isinstance(item, dict) or any(isinstance(each, dict | list) for each in identity(item)):
            where = f".{'.'.join(names)}[{index}]"
            raise bad_request(f"failed to create typed patch object: {where}: expected a map with {', '.join(keys)}")
    asked = {identity(item): item for item in wanted}
    kept = [_merge(item, asked.pop(identity(item), {}), names, list_keys) for item in live]
    return kept + [_merge({}, item, names, list_keys) for item in asked.values()]


def _find(obj: Any, step: str) -> Any:
    """Return the element that one step leads to, or None."""
    if step.startswith("f:"):
        return obj.get(step[2:]) if isinstance(obj, dict) else None
    if not isinstance(obj, list):
        return None
    if step.startswith("k:"):
        keys = json.loads(step[2:])
        return next((item for item in obj if all(item.get(key) == value for key, value in keys.items())), None)
    value = json.loads(step[2:])
    return value if value in obj else None


def _value(obj: Any, path: Path) -> Any:
    for step in path:
        # An element's own presence is no value that could differ.
        if step == ".":
            return True
        obj = _find(obj, step)
    return obj


def _remove(obj: Any, path: Path) -> None:
    """Remove the field or the element at a path, and the maps and lists that this leaves empty.

    An element goes with all that is in it: the defaults in it are nobody's, and no reason to keep it.
    """
    trail = [obj]
    for step in path[:-1]:
        obj = _find(obj, step)
        if obj is None:
            return
        trail.append(obj)
    last, holder = path[-1], trail[-1]
    if last.startswith("f:") and isinstance(holder, dict):
        holder.pop(last[2:], None)
    elif last.startswith("v:") and isinstance(holder, list):
        holder[:] = [item for item in holder if item != json.loads(last[2:])]
    elif last == "." and isinstance(holder, dict) and len(trail) > 1:
        path, element, holder = path[:-1], holder, trail[-2]
        holder.remove(element)
    if holder in ({}, []) and len(path) > 1 and path[-2].startswith("f:") and path[-2] != "f:metadata":
        _remove(trail[0], path[:-1])


def _read(entry: Obj) -> set[Path]:
    def walk(node: Obj, path: Path) -> Iterator[Path]:
        if not node and path:
            yield path
        for step, below in node.items():
            yield from walk(below, (*path, step))

    return set(walk(entry.get("fieldsV1") or {}, ()))


def _write(resource: Resource, owner: Manager, paths: set[Path]) -> Obj:
    manager, subresource = owner
    root: Obj = {}
    for path in sorted(paths):
        node = root
        for step in path:
            node = node.setdefault(step, {})
    return {
        "manager": manager,
        **({"subresource": subresource} if subresource else {}),
        "operation": "Apply",
        "apiVersion": resource.group_version,
        "time": stamp(),
        "fieldsType": "FieldsV1",
        "fieldsV1": root,
    }


def _dotted(path: Path) -> str:
    text = ""
    for step in path:
        if step.startswith("f:"):
            text += f".{step[2:]}"
        elif step.startswith("k:"):
            pairs = json.loads(step[2:]).items()
            text += "[" + ",".join(f"{key}={json.dumps(value)}" for key, value in pairs) + "]"
        elif step.startswith("v:"):
            text += f"[={step[2:]}]"
    return text
