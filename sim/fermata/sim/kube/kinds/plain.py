"""Built-in kinds that need little: nodes, Events, Leases, ConfigMaps, Secrets, Deployments (stored, not run)."""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING

from fermata.sim.kube.errors import Cause, MistypedError, required
from fermata.sim.kube.kinds.base import Kind
from fermata.sim.kube.quantity import parse_quantities

if TYPE_CHECKING:
    from fermata.sim.kube.resources import Obj


_KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}")
_DATA_LIMIT_BYTES = 1024 * 1024
#: What a MicroTime is read from, and nothing shorter.
_MICRO_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}(Z|[-+]\d\d:\d\d)")


def _decoded_size(kind: str, data: Obj | None) -> int:
    try:
        return sum(len(base64.b64decode(value, validate=True)) for value in (data or {}).values())
    except ValueError as error:  # of text that is no base64, or no ASCII
        message = f'{kind} in version "v1" cannot be handled as a {kind}: illegal base64 data'
        raise MistypedError(400, "BadRequest", message) from error


class WithoutGeneration(Kind):
    """A plain object whose generation is not counted."""

    has_generation = False


class ConfigMapKind(WithoutGeneration):
    """Text by key, and bytes; may be made immutable."""

    #: Where it is told that all of it together is too large.
    _sized = "[]"

    def _size(self, obj: Obj) -> int:
        """Return how many bytes it holds; also refuses what is not base64, as a decoder does."""
        text = sum(len(value.encode()) for value in (obj.get("data") or {}).values() if isinstance(value, str))
        return text + _decoded_size("ConfigMap", obj.get("binaryData"))

    def validate(self, obj: Obj, old: Obj | None) -> list[Cause]:
        """Refuse values that are no text, and any change of an immutable one."""
        causes = [
            Cause(f"data[{key}]", "Invalid value: must be a string", "FieldValueTypeInvalid")
            for key, value in (obj.get("data") or {}).items()
            if not isinstance(value, str)
        ]
        causes += [
            Cause(f"{field}[{key}]", f'Invalid value: "{key}": a valid config key must consist of alphanumeric '
                  "characters, '-', '_' or '.'")
            for field in ("data", "binaryData")
            for key in obj.get(field) or {}
            if not _KEY.fullmatch(key)
        ]  # fmt: skip
        causes += [
            Cause(f"data[{key}]", f'Invalid value: "{key}": duplicate of key present in binaryData')
            for key in obj.get("data") or {}
            if key in (obj.get("binaryData") or {})
        ]
        if self._size(obj) > _DATA_LIMIT_BYTES:
            message = f"Too long: may not be more than {_DATA_LIMIT_BYTES} bytes"
            causes.append(Cause(self._sized, message, "FieldValueTooLong"))
        if old is not None and old.get("immutable"):
            changed = [key for key in ("data", "binaryData", "immutable") if obj.get(key) != old.get(key)]
            causes += [
                Cause(key, "Forbidden: field is immutable when `immutable` is set", "FieldValueForbidden")
                for key in changed
            ]
        return causes


class NodeKind(WithoutGeneration):
    """A node, whose room the scheduler counts in."""

    def validate(self, obj: Obj, old: Obj | None) -> list[Cause]:
        """Refuse room that is no quantity."""
        status = obj.get("status") or {}
        for field in ("capacity", "allocatable"):
            parse_quantities(status.get(field))
        return super().validate(obj, old)

    def validate_status(self, obj: Obj, old: Obj) -> list[Cause]:
        """Refuse room that is no quantity."""
        return self.validate(obj, old)


class SecretKind(ConfigMapKind):
    """Bytes by key, as base64; `stringData` is folded in."""

    _sized = "data"

    def prepare_create(self, obj: Obj) -> None:
        """Fold stringData into data."""
        obj.setdefault("type", "Opaque")
        for key, text in (obj.pop("stringData", None) or {}).items():
            obj.setdefault("data", {})[key] = base64.b64encode(str(text).encode()).decode()

    def prepare_update(self, new: Obj, old: Obj) -> None:
        """Fold stringData into data."""
        del old
        self.prepare_create(new)

    def _size(self, obj: Obj) -> int:
        return _decoded_size("Secret", obj.get("data"))


class DeploymentKind(Kind):
    """Stored only: no controller makes its pods."""

    def prepare_create(self, obj: Obj) -> None:
        """Default the number of replicas."""
        obj.setdefault("spec", {}).setdefault("replicas", 1)


class LeaseKind(WithoutGeneration):
    """Who holds something, and until when."""

    def prepare_create(self, obj: Obj) -> None:
        """Refuse times of another form, as a decoder does."""
        spec = obj.get("spec") or {}
        for field in ("acquireTime", "renewTime"):
            if spec.get(field) is not None and not _MICRO_TIME.fullmatch(str(spec[field])):
                message = f'Lease in version "v1" cannot be handled as a Lease: parsing time "{spec[field]}" of {field}'
                raise MistypedError(400, "BadRequest", message)

    def prepare_update(self, new: Obj, old: Obj) -> None:
        """Refuse times of another form, as a decoder does."""
        del old
        self.prepare_create(new)

    def validate(self, obj: Obj, old: Obj | None) -> list[Cause]:
        """Refuse a duration that is none, and a count that cannot be."""
        del old
        spec, causes = obj.get("spec") or {}, []
        if (seconds := spec.get("leaseDurationSeconds")) is not None and seconds <= 0:
            causes.append(Cause("spec.leaseDurationSeconds", f"Invalid value: {seconds}: must be greater than 0"))
        if (times := spec.get("leaseTransitions")) is not None and times < 0:
            message = f"Invalid value: {times}: must be greater than or equal to 0"
            causes.append(Cause("spec.leaseTransitions", message))
        return causes


class EventKind(WithoutGeneration):
    """What happened to an object, told in that object's namespace; `default` is that of cluster-scoped ones."""

    def validate(self, obj: Obj, old: Obj | None) -> list[Cause]:
        """Refuse an Event about another namespace, or of a type that is none."""
        if old is not None:
            return []
        namespace = obj["metadata"].get("namespace", "")
        about = (obj.get("involvedObject") or obj.get("regarding") or {}).get("namespace", "")
        causes: list[Cause] = []
        if about != namespace and not (not about and namespace in ("default", "kube-system")):
            message = f'Invalid value: "{about}": does not match event.namespace'
            causes.append(Cause("involvedObject.namespace", message))
        if "regarding" in obj:
            needed = ("eventTime", "reportingController", "reportingInstance", "action", "reason")
            causes += [required(name) for name in needed if not obj.get(name)]
        if obj.get("eventTime") and obj.get("type") not in ("Normal", "Warning"):
            causes.append(Cause("type", f'Invalid value: "{obj.get("type", "")}": '))
        return causes
