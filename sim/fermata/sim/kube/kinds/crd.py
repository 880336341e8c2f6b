"""CustomResourceDefinitions: what makes one acceptable, and the names and conditions that its status tells."""

from __future__ import annotations

import copy
import re
from typing import TYPE_CHECKING, Any

from fermata.sim.kube import jsonpath
from fermata.sim.kube.cel import RuleError, compile_rules
from fermata.sim.kube.clock import stamp
from fermata.sim.kube.errors import Cause, required, unsupported
from fermata.sim.kube.kinds.base import Kind
from fermata.sim.kube.schema import PatternError, pattern, set_defaults, validate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fermata.sim.kube.resources import Obj

CLEANUP_FINALIZER = "customresourcecleanup.apiextensions.k8s.io"


class CrdKind(Kind):
    """A definition is established at once: its kinds are served when the answer is sent."""

    def prepare_create(self, obj: Obj) -> None:
        """Set name defaults, the cleanup finalizer and the status."""
        spec = obj.get("spec")
        if not isinstance(spec, dict):
            return
        self._default_names(spec)
        obj["metadata"].setdefault("finalizers", []).append(CLEANUP_FINALIZER)
        versions = spec.get("versions") or []
        obj["status"] = {
            "acceptedNames": spec.get("names", {}),
            "conditions": [
                _condition("NamesAccepted", "NoConflicts", "no conflicts found"),
                _condition("Established", "InitialNamesAccepted", "the initial names have been accepted"),
            ],
            "storedVersions": [version.get("name", "") for version in versions if version.get("storage")],
        }

    def prepare_update(self, new: Obj, old: Obj) -> None:
        """Set name defaults."""
        del old
        if isinstance(new.get("spec"), dict):
            self._default_names(new["spec"])
            new.setdefault("status", {})["acceptedNames"] = new["spec"].get("names", {})

    @staticmethod
    def _default_names(spec: Obj) -> None:
        names = spec.get("names")
        if isinstance(names, dict) and names.get("kind"):
            names.setdefault("singular", str(names["kind"]).lower())
            names.setdefault("listKind", f"{names['kind']}List")
        spec.setdefault("conversion", {"strategy": "None"})

    def validate(self, obj: Obj, old: Obj | None) -> list[Cause]:
        """Refuse wrong names, versions without a schema, and rules that do not compile."""
        del old
        spec = obj.get("spec")
        if not isinstance(spec, dict):
            return [required("spec")]
        names = spec.get("names") or {}
        missing = [
            required(f"spec.{path}")
            for path, value in (
                ("group", spec.get("group")),
                ("names.plural", names.get("plural")),
                ("names.kind", names.get("kind")),
                ("versions", spec.get("versions")),
                *_named_parts(spec.get("versions") or []),
            )
            if not value
        ]
        if missing:
            return missing
        causes: list[Cause] = []
        wanted = f"{names['plural']}.{spec['group']}"
        if obj["metadata"]["name"] != wanted:
            message = f'Invalid value: "{obj["metadata"]["name"]}": must be spec.names.plural+"."+spec.group'
            causes.append(Cause("metadata.name", message))
        if spec.get("scope") not in ("Namespaced", "Cluster"):
            causes.append(unsupported("spec.scope", spec.get("scope"), ("Cluster", "Namespaced")))
        if sum(bool(version.get("storage")) for version in spec["versions"]) != 1:
            message = "Invalid value: must have exactly one version marked as storage version"
            causes.append(Cause("spec.versions", message))
        causes += _unreadable_paths(spec["versions"])
        versions = [version["name"] for version in spec["versions"]]
        if len(set(versions)) < len(versions):
            causes.append(Cause("spec.versions", "Invalid value: must contain unique version names"))
        if _alike(spec["versions"], "schema"):
            return causes + _validate_schema(spec["versions"][0], "spec.validation.openAPIV3Schema")
        for position, version in enumerate(spec["versions"]):
            causes += _validate_schema(version, f"spec.versions[{position}].schema.openAPIV3Schema")
        return causes


def _named_parts(versions: list[Obj]) -> Iterator[tuple[str, Any]]:
    """Yield what every version and every column of its must have, each with its path."""
    alike = _alike(versions, "additionalPrinterColumns")
    for at, version in enumerate(versions):
        yield f"versions[{at}].name", version.get("name")
        columns = (version.get("additionalPrinterColumns") or []) if at == 0 or not alike else []
        above = "additionalPrinterColumns" if alike else f"versions[{at}].additionalPrinterColumns"
        for place, column in enumerate(columns):
            for field, told in (("name", "name"), ("type", "type"), ("jsonPath", "JSONPath")):
                yield f"{above}[{place}].{told}", column.get(field)


def _unreadable_paths(versions: list[Obj]) -> Iterator[Cause]:
    """Yield the columns whose values cannot be found."""
    for at, version in enumerate(versions):
        for place, column in enumerate(version.get("additionalPrinterColumns") or []):
            try:
                jsonpath.parse(column["jsonPath"])
            except ValueError as error:
                path = f"spec.versions[{at}].additionalPrinterColumns[{place}].jsonPath"
                yield Cause(path, f'Invalid value: "{column["jsonPath"]}": is an invalid jsonPath: {error}')


def _alike(versions: list[Obj], field: str) -> bool:
    """Return whether all versions have the same there: the API server then tells of it as one for all of them."""
    return all(version.get(field) == versions[0].get(field) for version in versions)


_FIELD_OF_SELF = re.compile(r"\b(?:self|oldSelf)\.([A-Za-z_]\w*)\b(?!\s*\()")
_TEXT = re.compile(r"'[^']*'|\"[^\"]*\"")
_TYPES = ("array", "boolean", "integer", "number", "object", "string")


def _validate_schema(version: Obj, path: str) -> list[Cause]:
    schema = (version.get("schema") or {}).get("openAPIV3Schema")
    if not isinstance(schema, dict):
        return [required(path, "schemas are required")]
    if schema.get("type") != "object":
        return [Cause(f"{path}.type", f'Invalid value: "{schema.get("type")}": must be object at the root')]
    causes = list(_untyped(schema, path)) or list(_wrong_defaults(schema, path))
    if not causes:
        try:
            compile_rules(schema, path)
        except RuleError as error:
            causes.append(Cause(path, f"Invalid value: {error}"))
    return causes


def _untyped(schema: Any, path: str) -> list[Cause]:
    """Return the places of a schema that say no type, which a structural schema must."""
    if not isinstance(schema, dict):
        return [Cause(path, "Invalid value: must be a schema", "FieldValueTypeInvalid")]
    causes: list[Cause] = []
    free = schema.get("x-kubernetes-int-or-string") or schema.get("x-kubernetes-preserve-unknown-fields")
    if not schema.get("type") and not free:
        causes.append(required(f"{path}.type", "must not be empty for specified object fields"))
    elif schema.get("type") and schema["type"] not in _TYPES:
        causes.append(unsupported(f"{path}.type", schema["type"], _TYPES))
    causes += [*_unusable(schema, path), *_undefined(schema, path)]
    for key, below in (schema.get("properties") or {}).items():
        causes += _untyped(below, f"{path}.properties[{key}]")
    if schema.get("items") is not None:
        causes += _untyped(schema["items"], f"{path}.items")
    elif schema.get("type") == "array":
        causes.append(required(f"{path}.items", "must be specified"))
    additional = schema.get("additionalProperties")
    if additional is not None and not isinstance(additional, bool):
        causes += _untyped(additional, f"{path}.additionalProperties")
    return causes


def _unusable(schema: Obj, path: str) -> Iterator[Cause]:
    """Yield the keywords of one place that no object could be held against."""
    if (text := schema.get("pattern")) is not None:
        try:
            pattern(text)
        except PatternError as error:
            message = f'Invalid value: "{text}": must be a valid regular expression, but isn\'t: {error}'
            yield Cause(f"{path}.pattern", message)
    if schema.get("x-kubernetes-list-type") == "map" and not schema.get("x-kubernetes-list-map-keys"):
        yield required(f"{path}.x-kubernetes-list-map-keys", "must not be empty if x-kubernetes-list-type is map")


def _wrong_defaults(schema: Obj, path: str) -> Iterator[Cause]:
    """Yield the defaults that their own schema refuses: no object that leaves them out could be stored."""
    if "default" in schema:
        filled = copy.deepcopy(schema["default"])
        set_defaults(filled, schema)
        yield from validate(filled, schema, f"{path}.default")
    for key, below in (schema.get("properties") or {}).items():
        yield from _wrong_defaults(below, f"{path}.properties[{key}]")
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from _wrong_defaults(schema[key], f"{path}.{key}")


def _undefined(schema: Obj, path: str) -> list[Cause]:
    """Return the rules that name a field of `self` which the schema does not have."""
    known = schema.get("properties")
    if not known or schema.get("additionalProperties") or schema.get("x-kubernetes-preserve-unknown-fields"):
        return []
    # The root of an object has these in any case.
    known = {*known, "apiVersion", "kind", "metadata"}
    return [
        Cause(f"{path}.x-kubernetes-validations[{position}].rule", f"Invalid value: undefined field '{name}'")
        for position, rule in enumerate(schema.get("x-kubernetes-validations") or [])
        for name in _FIELD_OF_SELF.findall(_TEXT.sub('""', str(rule.get("rule"))))
        if name.strip("_") not in known and name not in known
    ]


def _condition(type_: str, reason: str, message: str) -> Obj:
    return {"type": type_, "status": "True", "reason": reason, "message": message, "lastTransitionTime": stamp()}
