"""Structural schemas of custom kinds: prune unknown fields, set defaults, validate, as the API server does.

Messages and cause types are those of Kubernetes, so that a client that reads them cannot tell the difference. Parts
that did not change are not validated again (validation ratcheting). Knows no CEL: rules are handed to `cel`.

Source: https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/
"""

from __future__ import annotations

import base64
import binascii
import copy
import ipaddress
import json
import math
import re
import uuid
from functools import cache
from typing import TYPE_CHECKING, Any

from fermata.sim.kube.clock import parse
from fermata.sim.kube.errors import Cause, required

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Schema = dict[str, Any]
#: Stands for "there was no such value"; None is a value.
ABSENT: Any = object()

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
}
_ENVELOPE = frozenset({"apiVersion", "kind", "metadata"})


class PatternError(ValueError):
    """A pattern that is no regular expression."""


@cache
def pattern(text: str) -> Any:
    """Return a compiled pattern in the API server's dialect; in Python's own, `$` is also before a last newline.

    Raises:
        PatternError: it is none.
    """
    try:
        import re2
    except ModuleNotFoundError:
        # `fermata validate` needs no extra: the patterns of Fermata's own definitions mean the same in Python's dialect
        # (but for a vertical tab), once the end is the end.
        return re.compile(re.sub(r"\$$", r"\\Z", text), re.ASCII)
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(text, options)
    except re2.error as error:
        raise PatternError(error.args[0].decode()) from error


def prune(value: Any, schema: Schema, path: str = "", *, root: bool = True) -> list[str]:
    """Remove the fields that the schema does not name, in place, and return their paths."""
    removed: list[str] = []
    if isinstance(value, dict):
        properties, additional = schema.get("properties") or {}, schema.get("additionalProperties")
        keep_unknown = bool(schema.get("x-kubernetes-preserve-unknown-fields"))
        envelope = root or bool(schema.get("x-kubernetes-embedded-resource"))
        for key in list(value):
            where = f"{path}.{key}" if path else key
            if envelope and key in _ENVELOPE:
                continue
            if key in properties:
                removed += prune(value[key], properties[key], where, root=False)
            elif isinstance(additional, dict):
                removed += prune(value[key], additional, where, root=False)
            elif additional is not True and not keep_unknown:
                del value[key]
                removed.append(where)
    elif isinstance(value, list) and isinstance(schema.get("items"), dict):
        for position, item in enumerate(value):
            removed += prune(item, schema["items"], f"{path}[{position}]", root=False)
    return removed


def set_defaults(value: Any, schema: Schema) -> None:
    """Fill in the defaults of absent fields, in place; a null that may not be null counts as absent."""
    if isinstance(value, dict):
        for key, below in (schema.get("properties") or {}).items():
            if key in value and value[key] is None and not below.get("nullable") and "default" in below:
                del value[key]
            if key not in value and "default" in below:
                value[key] = copy.deepcopy(below["default"])
            if key in value:
                set_defaults(value[key], below)
        if isinstance(schema.get("additionalProperties"), dict):
            for item in value.values():
                set_defaults(item, schema["additionalProperties"])
    elif isinstance(value, list) and isinstance(schema.get("items"), dict):
        for item in value:
            set_defaults(item, schema["items"])


def drop_nulls(value: Any, schema: Schema) -> None:
    """Remove nulls of fields that may not be null and are optional, in place."""
    if isinstance(value, dict):
        properties = schema.get("properties") or {}
        for key in [key for key, item in value.items() if item is None and key in properties]:
            if not properties[key].get("nullable"):
                del value[key]
        for key, item in value.items():
            if key in properties:
                drop_nulls(item, properties[key])
    elif isinstance(value, list) and isinstance(schema.get("items"), dict):
        for item in value:
            drop_nulls(item, schema["items"])


def correlated(schema: Schema, old: Any, item: Any, position: int) -> Any:
    """Return the old element that a list's new element replaces: by key in a list map, else by position if equal."""
    if not isinstance(old, list):
        return ABSENT
    keys = schema.get("x-kubernetes-list-map-keys")
    if schema.get("x-kubernetes-list-type") == "map" and keys and isinstance(item, dict):
        for candidate in old:
            if isinstance(candidate, dict) and all(candidate.get(key) == item.get(key) for key in keys):
                return candidate
        return ABSENT
    return old[position] if position < len(old) and old[position] == item else ABSENT


def validate(value: Any, schema: Schema, path: str = "", old: Any = ABSENT) -> Iterator[Cause]:
    """Yield what is wrong with a value.

    Args:
        value: what to check, defaults set.
        schema: its schema.
        path: the field that holds it, empty at the root.
        old: the value that it replaces; an equal one is not checked again.
    """
    if old is not ABSENT and value == old and type(value) is type(old):
        return
    if value is None and schema.get("nullable"):
        return
    if not _fits(value, schema):
        yield _mistyped(value, schema, path or "<root>")
        return
    if (known := schema.get("enum")) is not None and value not in known:
        supported = ", ".join(_shown(item) for item in known)
        message = f"Unsupported value: {_shown(value)}: supported values: {supported}"
        yield Cause(path, message, "FieldValueNotSupported")
    if isinstance(value, str):
        yield from _validate_string(value, schema, path)
    elif isinstance(value, dict):
        yield from _validate_object(value, schema, path, old)
    elif isinstance(value, list):
        yield from _validate_array(value, schema, path, old)
    elif not isinstance(value, bool):
        yield from _validate_number(value, schema, path)
    yield from _validate_combined(value, schema, path)


def _fits(value: Any, schema: Schema) -> bool:
    if schema.get("x-kubernetes-int-or-string"):
        return isinstance(value, (int, str)) and not isinstance(value, bool)
    wanted = schema.get("type")
    if not wanted:
        return True
    if wanted == "integer" and isinstance(value, float) and value.is_integer():
        return True
    return isinstance(value, _TYPES[wanted]) and (wanted == "boolean" or not isinstance(value, bool))


def _mistyped(value: Any, schema: Schema, path: str) -> Cause:
    """Return what is said of a value of another type: the types, and not the value."""
    found, wanted = _json_type(value), "integer,string" if schema.get("x-kubernetes-int-or-string") else schema["type"]
    message = f'Invalid value: "{found}": {path} in body must be of type {wanted}: "{found}"'
    return Cause(path, message, "FieldValueTypeInvalid")


def _json_type(value: Any) -> str:
    for name in ("boolean", "integer", "number", "string", "array", "object"):
        if isinstance(value, _TYPES[name]):
            return name
    return "null"


def _shown(value: Any) -> str:
    return json.dumps(value) if not isinstance(value, (dict, list)) else json.dumps(value)[:200]


def _validate_string(value: str, schema: Schema, path: str) -> Iterator[Cause]:
    longest, shortest = schema.get("maxLength"), schema.get("minLength")
    if longest is not None and len(value) > longest:
        yield Cause(path, f"Too long: may not be more than {longest} bytes", "FieldValueTooLong")
    if shortest is not None and len(value) < shortest:
        yield _broken(path, value, f"should be at least {shortest} chars long")
    if (wanted := schema.get("pattern")) is not None and not pattern(wanted).search(value):
        yield _broken(path, value, f"should match '{wanted}'")
    check = _FORMATS.get(schema.get("format") or "")
    if check is not None and not check(value):
        yield _broken(path, value, f"must be of type {schema['format']}: {_shown(value)}")


def _validate_number(value: float, schema: Schema, path: str) -> Iterator[Cause]:
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and (value <= low if schema.get("exclusiveMinimum") else value < low):
        relation = "greater than" if schema.get("exclusiveMinimum") else "greater than or equal to"
        yield _broken(path, value, f"should be {relation} {low}")
    if high is not None and (value >= high if schema.get("exclusiveMaximum") else value > high):
        relation = "less than" if schema.get("exclusiveMaximum") else "less than or equal to"
        yield _broken(path, value, f"should be {relation} {high}")
    step = schema.get("multipleOf")
    if step and not math.isclose(value / step, round(value / step), abs_tol=1e-9):
        yield _broken(path, value, f"should be a multiple of {step}")
    limits = {"int32": 2**31, "int64": 2**63}.get(schema.get("format") or "")
    if limits is not None and not -limits <= value < limits:
        yield _broken(path, value, f"must be of type {schema['format']}")


def _validate_object(value: dict[str, Any], schema: Schema, path: str, old: Any) -> Iterator[Cause]:
    properties, additional = schema.get("properties") or {}, schema.get("additionalProperties")
    before = old if isinstance(old, dict) else {}
    for key in schema.get("required") or ():
        if key not in value:
            yield required(f"{path}.{key}" if path else key)
    most, fewest = schema.get("maxProperties"), schema.get("minProperties")
    if most is not None and len(value) > most:
        message = f"Too many: {len(value)}: must have at most {most} items"
        yield Cause(path, message, "FieldValueTooMany")
    if fewest is not None and len(value) < fewest:
        yield _broken(path, value, f"should have at least {fewest} properties")
    for key, item in value.items():
        below = properties.get(key, additional if isinstance(additional, dict) else None)
        if below is not None:
            where = f"{path}.{key}" if path else key
            yield from validate(item, below, where, before.get(key, ABSENT))


def _validate_array(value: list[Any], schema: Schema, path: str, old: Any) -> Iterator[Cause]:
    most, fewest = schema.get("maxItems"), schema.get("minItems")
    if most is not None and len(value) > most:
        message = f"Too many: {len(value)}: must have at most {most} items"
        yield Cause(path, message, "FieldValueTooMany")
    if fewest is not None and len(value) < fewest:
        yield _broken(path, len(value), f"should have at least {fewest} items")
    yield from _duplicates(value, schema, path)
    if isinstance(schema.get("items"), dict):
        for position, item in enumerate(value):
            before = correlated(schema, old, item, position)
            yield from validate(item, schema["items"], f"{path}[{position}]", before)


def _duplicates(value: list[Any], schema: Schema, path: str) -> Iterator[Cause]:
    kind, keys = schema.get("x-kubernetes-list-type"), schema.get("x-kubernetes-list-map-keys") or []
    if kind not in ("map", "set") and not schema.get("uniqueItems"):
        return
    seen: dict[str, int] = {}
    for position, item in enumerate(value):
        shown: Any = item
        if kind == "map":
            shown = {key: item.get(key) for key in keys} if isinstance(item, dict) else item
        text = json.dumps(shown, sort_keys=True, separators=(",", ":"))
        seen[text] = seen.get(text, 0) + 1
        if seen[text] == 2:  # and is not told a third time
            yield Cause(f"{path}[{position}]", f"Duplicate value: {text}", "FieldValueDuplicate")


def _validate_combined(value: Any, schema: Schema, path: str) -> Iterator[Cause]:
    for below in schema.get("allOf") or ():
        yield from validate(value, below, path)
    for keyword, most, told in (("anyOf", None, "at least one schema"), ("oneOf", 1, "one and only one schema")):
        below = schema.get(keyword)
        if not below:
            continue
        fitting = sum(not any(validate(value, each, path)) for each in below)
        if not fitting or (most is not None and fitting > most):
            yield _broken(path, value, f"must validate {told} ({keyword})")
    if "not" in schema and not any(validate(value, schema["not"], path)):
        yield _broken(path, value, "must not validate the schema (not)")


def _broken(path: str, value: Any, expected: str) -> Cause:
    where = path or "<root>"
    return Cause(where, f"Invalid value: {_shown(value)}: {where} in body {expected}")


def _accepts(parser: Callable[[str], Any]) -> Callable[[str], bool]:
    def check(text: str) -> bool:
        try:
            parser(text)
        except (ValueError, binascii.Error):
            return False
        return True

    return check


#: Formats that the API server enforces; it ignores the names that it does not know.
_FORMATS: dict[str, Callable[[str], bool]] = {
    "date-time": _accepts(parse),
    "date": lambda text: bool(re.fullmatch(r"\d{4}-\d\d-\d\d", text)),
    "duration": lambda text: bool(re.fullmatch(r"[-+]?(\d+(\.\d*)?(ns|us|µs|ms|s|m|h))+|0", text)),
    "byte": _accepts(lambda text: base64.b64decode(text, validate=True)),
    "ipv4": _accepts(ipaddress.IPv4Address),
    "ipv6": _accepts(ipaddress.IPv6Address),
    "cidr": _accepts(ipaddress.ip_network),
    "uuid": _accepts(uuid.UUID),
    "hostname": lambda text: bool(re.fullmatch(r"[A-Za-z0-9]([-A-Za-z0-9.]{0,252}[A-Za-z0-9])?", text)),
}
