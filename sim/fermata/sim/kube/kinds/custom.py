"""Custom kinds: what one version of a CustomResourceDefinition says about its objects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fermata.sim.kube import schema as schemas
from fermata.sim.kube.errors import Cause
from fermata.sim.kube.kinds.base import Kind

if TYPE_CHECKING:
    from fermata.sim.kube.cel import Rules
    from fermata.sim.kube.resources import Obj


#: Causes after which rules are not looked at.
_BLOCKING = frozenset(
    ("FieldValueRequired", "FieldValueTypeInvalid", "FieldValueNotSupported", "FieldValueTooLong", "FieldValueTooMany")
)
_UNCHECKED = Cause(
    "<nil>",
    "Invalid value: null: some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation",
)


class CustomKind(Kind):
    """Objects of a custom kind: pruned, defaulted and validated by schema and rules.

    Args:
        schema: the structural schema of the objects.
        rules: its CEL rules, compiled.
        has_status: whether status is a subresource.
    """

    unconditional_update = False
    strategic = False

    def __init__(self, schema: dict[str, Any], rules: Rules, *, has_status: bool) -> None:
        self.schema, self._rules, self._has_status = schema, rules, has_status

    def unknown_fields(self, obj: Obj) -> list[str]:
        """Prune."""
        return schemas.prune(obj, self.schema)

    def prepare_create(self, obj: Obj) -> None:
        """Set defaults."""
        schemas.drop_nulls(obj, self.schema)
        schemas.set_defaults(obj, self.schema)

    def prepare_update(self, new: Obj, old: Obj) -> None:
        """Set defaults."""
        del old
        self.prepare_create(new)

    def validate(self, obj: Obj, old: Obj | None) -> list[Cause]:
        """Check the schema, then the rules; rules see only objects of the form that they were written for."""
        before = schemas.ABSENT if old is None else old
        causes = list(schemas.validate(obj, self.schema, "", before))
        if not self._rules:
            return causes
        if any(cause.reason in _BLOCKING for cause in causes):
            return [*causes, _UNCHECKED]
        return causes + list(self._rules.check(obj, before))

    def validate_status(self, obj: Obj, old: Obj) -> list[Cause]:
        """Check a new status as part of its object."""
        schemas.set_defaults(obj.get("status"), (self.schema.get("properties") or {}).get("status") or {})
        return self.validate(obj, old)

    def desired(self, obj: Obj) -> Obj:
        """Return all but metadata, and but status where that is a subresource."""
        left_out = ("metadata", "status") if self._has_status else ("metadata",)
        return {key: value for key, value in obj.items() if key not in left_out}

    def list_keys(self, path: tuple[str, ...]) -> tuple[str, ...] | None:
        """Return the keys of the list map at a path, () for a set."""
        if path[0] == "metadata":
            return super().list_keys(path)
        below: dict[str, Any] = self.schema
        for name in path:
            below = below.get("items") or below
            below = (below.get("properties") or {}).get(name) or below.get("additionalProperties") or {}
            if not isinstance(below, dict):
                return None
        kind = below.get("x-kubernetes-list-type")
        if kind == "map":
            return tuple(below.get("x-kubernetes-list-map-keys") or ())
        return () if kind == "set" else None
