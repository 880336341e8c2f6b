"""The field types of the built-in kinds: which fields there are, and what JSON each takes.

A client's object is held against them before anything else looks at it, so that the rest may rely on the types. As in
the API server, a wrong type is a request that cannot be decoded (400), an unknown field is told or dropped.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from fermata.sim.kube.errors import MistypedError

if TYPE_CHECKING:
    from fermata.sim.kube.resources import Obj, Resource

#: JSON type -> the Python types of its values.
PLAIN_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "boolean": (bool,),
    "number": (int, float),
}


@cache
def _read() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        files(__package__).joinpath("kinds", "builtin_types.json").read_text(encoding="utf-8")
    )
    return found


def table() -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    """Return the type of each kind, by `apiVersion/kind`, and the fields of each type with theirs."""
    return _read()["kinds"], _read()["types"]


def release() -> str:
    """Return the minor version of Kubernetes whose fields these are, as in "1.36"."""
    return str(_read()["release"])


def clean(resource: Resource, obj: Obj) -> list[str]:
    """Drop null and unknown fields, in place, and return the unknown fields' paths.

    Of a custom kind's objects, only the metadata is looked at: the rest is its own schema's.

    Raises:
        ApiError: 400 for a field whose value has another type.
    """
    root = table()[0].get(f"{resource.group_version}/{resource.kind}")
    unknown: list[str] = []
    if root is None or resource.custom:
        unknown, wrong = clean_metadata(obj["metadata"])
    else:
        wrong = _clean(obj, root, "", unknown)
    if wrong:
        message = f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}: {wrong}'
        raise MistypedError(400, "BadRequest", message)
    return unknown


def clean_metadata(meta: Obj) -> tuple[list[str], str]:
    """Do the same for the metadata of any kind; return the unknown fields, and the first wrong type or nothing."""
    return _cleaned(meta, "V1ObjectMeta", "metadata")


def clean_template(template: Obj, path: str) -> tuple[list[str], str]:
    """Do the same for a pod template, which stands at a path of an object of any kind."""
    return _cleaned(template, "V1PodTemplateSpec", path)


def _cleaned(part: Obj, kind: str, path: str) -> tuple[list[str], str]:
    unknown: list[str] = []
    return unknown, _clean(part, kind, path, unknown)


def clean_body(body: Any, kind: str) -> Any:
    """Do the same for a body that is not kept, such as a review or the options of a deletion, and return it.

    Raises:
        ApiError: 400 for a field whose value has another type.
    """
    # From null Go reads nothing, without an error: the zero value, as in lists and maps.
    body = {} if body is None else body
    if wrong := _clean(body, kind, "", []):
        raise MistypedError(400, "BadRequest", f"the body cannot be handled as a {kind}: {wrong}")
    return body


def _clean(value: Any, kind: str, path: str, unknown: list[str]) -> str:
    """Clean one value; return what is wrong with its type, or nothing."""
    if kind == "any" or (kind[-1] == "?" and not isinstance(value, dict)):
        return ""
    if kind.endswith("|boolean") and isinstance(value, bool):
        return ""
    kind = kind.removesuffix("?").removesuffix("|boolean")
    if kind in PLAIN_TYPES:
        fits = isinstance(value, PLAIN_TYPES[kind]) and (kind == "boolean" or not isinstance(value, bool))
        return "" if fits else _wrong(value, kind, path)
    if kind[0] == "[":
        if not isinstance(value, list):
            return _wrong(value, "array", path)
        value[:] = [_empty(kind[1:-1]) if item is None else item for item in value]
        inner = [(item, kind[1:-1], f"{path}[{position}]") for position, item in enumerate(value)]
    else:
        if not isinstance(value, dict):
            return _wrong(value, "object", path)
        inner = _fields(value, kind, path, unknown)
    for item, below, where in inner:
        if wrong := _clean(item, below, where, unknown):
            return wrong
    return ""


def _fields(value: dict[str, Any], kind: str, path: str, unknown: list[str]) -> list[tuple[Any, str, str]]:
    """Return the values of an object with their types and paths; drop what it does not have."""
    if kind[0] == "{":
        value.update({key: _empty(kind[1:-1]) for key, item in value.items() if item is None})
        return [(item, kind[1:-1], f"{path}.{key}") for key, item in value.items()]
    types = table()[1][kind]
    kept: list[tuple[Any, str, str]] = []
    for key in list(value):
        where = f"{path}.{key}" if path else key
        if key not in types:
            unknown.append(where)
        if key not in types or value[key] is None:
            del value[key]
        else:
            kept.append((value[key], types[key], where))
    if kind.endswith("Condition"):
        # Go writes these of every condition, and so whoever reads one counts on them.
        value.update({key: "" for key in ("type", "status") if key in types and key not in value})
    return kept


def _empty(kind: str) -> Any:
    """Return what a null in a list or a map is read as, by a decoder that knows the type: Go's zero value."""
    if kind == "any":
        return None
    return PLAIN_TYPES[kind][0]() if kind in PLAIN_TYPES else {}


def _wrong(value: Any, wanted: str, path: str) -> str:
    given = {bool: "bool", int: "number", float: "number", str: "string", list: "array", dict: "object"}[type(value)]
    return f"json: cannot unmarshal {given} into field {path} of type {wanted}"
