"""Built-in kinds that need little: nodes, Events, Leases, ConfigMaps, Secrets, Deployments (stored, not run)."""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING

from fermata.sim.kube.errors import Cause
from fermata.sim.kube.kinds.base import Kind

if TYPE_CHECKING:
    from fermata.sim.kube.resources import Obj


class WithoutGeneration(Kind):
    """A plain object whose generation is not counted."""

    has_generation = False


class ConfigMapKind(WithoutGeneration):
    """Text by key; may be made immutable."""

    def validate(self, obj: Obj, old: Obj | None) -> list[Cause]:
        """Refuse values that are no text, and any change of an immutable one."""
        causes = [
            Cause(f"data[{key}]", "Invalid value: must be a string", "FieldValueTypeInvalid")
            for key, value in (obj.get("data") or {}).items()
            if not isinstance(value, str)
        ]
        if old is not None and old.get("immutable"):
            changed = [key for key in ("data", "binaryData", "immutable") if obj.get(key) != old.get(key)]
            causes += [
                Cause(key, "Forbidden: field is immutable when `immutable` is set", "FieldValueForbidden")
                for key in changed
            ]
        return causes


class SecretKind(ConfigMapKind):
    """Bytes by key, as base64; `stringData` is folded in."""

    def prepare_create(self, obj: Obj) -> None:
        """Fold stringData into data."""
        obj.setdefault("type", "Opaque")
        for key, text in (obj.pop("stringData", None) or {}).items():
            obj.setdefault("data", {})[key] = base64.b64encode(str(text).encode()).decode()

    def prepare_update(self, new: Obj, old: Obj) -> None:
        """Fold stringData into data."""
        del old
        self.prepare_create(new)

    def validate(self, obj: Obj, old: Obj | None) -> list[Cause]:
        """Refuse what is not base64."""
        causes = super().validate(obj, old)
        for key, value in (obj.get("data") or {}).items():
            try:
                base64.b64decode(value, validate=True)
            except (binascii.Error, TypeError):
                causes.append(Cause(f"data[{key}]", "Invalid value: must be base64"))
        return causes


class DeploymentKind(Kind):
    """Stored only: no controller makes its pods."""

    def prepare_create(self, obj: Obj) -> None:
        """Default the number of replicas."""
        obj.setdefault("spec", {}).setdefault("replicas", 1)
