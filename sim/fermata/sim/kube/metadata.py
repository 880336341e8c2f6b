"""`metadata`: names, labels, annotations, what the system owns in it, and how a change of an object is dated.

Knows no kind: the same rules hold for every object.
"""

from __future__ import annotations

import random
import uuid
from typing import TYPE_CHECKING, Any

from fermata.sim.kube.clock import stamp
from fermata.sim.kube.errors import Cause, required
from fermata.sim.kube.names import wrong_key, wrong_value

if TYPE_CHECKING:
    from collections.abc import Callable

    from fermata.sim.kube.resources import Obj

#: A generator of its own: whoever seeds Python's, as Hypothesis does for each example, would give two objects one uid.
_RANDOM = random.Random()  # noqa: S311 - names, not secrets
#: The characters of generated names: no vowels and no look-alikes, as in Kubernetes.
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_ANNOTATIONS_LIMIT_BYTES = 256 * 1024
_STANDARD_FINALIZERS = ("foregroundDeletion", "orphan", "kubernetes")
#: Written by the system only; a client's value is ignored.
_SYSTEM_FIELDS = (
    "uid",
    "creationTimestamp",
    "generation",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "selfLink",
)


def suffix() -> str:
    """Return the random end of a generated name."""
    return "".join(_RANDOM.choices(_ALPHABET, k=5))


def start(meta: Obj) -> None:
    """Give a new object what the system owns: name if generated, uid, creation time."""
    for field in (*_SYSTEM_FIELDS, "resourceVersion"):
        meta.pop(field, None)
    if not meta.get("name") and meta.get("generateName"):
        meta["name"] = str(meta["generateName"])[:58] + suffix()
    meta.setdefault("name", "")  # which `validate` refuses, after the kind has filled in what belongs to a name
    meta["uid"] = str(uuid.UUID(int=_RANDOM.getrandbits(128), version=4))
    meta["creationTimestamp"] = stamp()
    _drop_empty(meta)


def keep(new: Obj, old: Obj) -> None:
    """Restore what the system owns in changed metadata."""
    for field in (*_SYSTEM_FIELDS, "name", "namespace", "generateName"):
        if field in old:
            new[field] = old[field]
        else:
            new.pop(field, None)
    _drop_empty(new)


def _drop_empty(meta: Obj) -> None:
    for field in ("labels", "annotations", "ownerReferences", "finalizers", "managedFields"):
        if field in meta and not meta[field]:
            del meta[field]


def is_gone(meta: Obj) -> bool:
    """Return whether a deletion has nothing left to wait for."""
    return bool(meta.get("deletionTimestamp")) and not meta.get("finalizers") and not meta.get(
        "deletionGracePeriodSeconds"
    )  # fmt: skip


def validate(
    meta: Obj, *, wrong_name: Callable[[str], str], any_finalizer: bool = False, old: Obj | None
) -> list[Cause]:
    """Return why this metadata cannot be stored.

    Args:
        meta: the metadata, system fields set.
        wrong_name: says what is wrong with a name of this kind.
        any_finalizer: a finalizer's name need not have a domain (custom kinds and their definitions).
        old: the metadata that it replaces.
    """
    causes = _validate_names(meta, wrong_name) if old is None else []
    if not meta.get("name"):
        causes.append(required("metadata.name", "name or generateName is required"))
    causes += _validate_labels(meta.get("labels"))
    causes += _validate_annotations(meta.get("annotations"))
    causes += _validate_owners(meta.get("ownerReferences"))
    causes += _validate_finalizers(meta, old, any_finalizer=any_finalizer)
    return causes


def _validate_names(meta: Obj, wrong_name: Callable[[str], str]) -> list[Cause]:
    causes: list[Cause] = []
    for field in ("generateName", "name"):
        name = str(meta.get(field) or "")
        # A dash at the end of a prefix is none at the end of the name.
        whole = f"{name[:-2]}a" if field == "generateName" and len(name) > 1 and name.endswith("-") else name
        if whole and (wrong := wrong_name(whole)):
            causes.append(Cause(f"metadata.{field}", f'Invalid value: "{name}": {wrong}'))
    return causes


def _validate_labels(labels: Any) -> list[Cause]:
    if labels is None:
        return []
    if not isinstance(labels, dict):
        return [Cause("metadata.labels", "Invalid value: must be a map of strings", "FieldValueTypeInvalid")]
    causes: list[Cause] = []
    for key, value in labels.items():
        for text, wrong in ((key, wrong_key(key)), (value, wrong_value(str(value)))):
            if wrong:
                causes.append(Cause("metadata.labels", f'Invalid value: "{text}": {wrong}'))
    return causes


def _validate_annotations(annotations: Any) -> list[Cause]:
    if annotations is None:
        return []
    if not isinstance(annotations, dict) or not all(isinstance(value, str) for value in annotations.values()):
        return [Cause("metadata.annotations", "Invalid value: must be a map of strings", "FieldValueTypeInvalid")]
    size = sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items())
    if size > _ANNOTATIONS_LIMIT_BYTES:
        message = f"Too long: may not be more than {_ANNOTATIONS_LIMIT_BYTES} bytes"
        return [Cause("metadata.annotations", message, "FieldValueTooLong")]
    return [
        Cause("metadata.annotations", f'Invalid value: "{key}": {wrong}')
        for key in annotations
        if (wrong := wrong_key(key.lower()))
    ]


def _validate_owners(owners: Any) -> list[Cause]:
    if owners is None:
        return []
    if not isinstance(owners, list):
        return [Cause("metadata.ownerReferences", "Invalid value: must be a list", "FieldValueTypeInvalid")]
    causes: list[Cause] = []
    controllers = 0
    for owner in owners:
        causes += [
            Cause(f"metadata.ownerReferences.{field}", 'Invalid value: "": must not be empty')
            for field in ("apiVersion", "kind", "name", "uid")
            if not isinstance(owner, dict) or not owner.get(field)
        ]
        controllers += isinstance(owner, dict) and bool(owner.get("controller"))
    if controllers > 1:
        message = "Invalid value: only one reference can have Controller set to true"
        causes.append(Cause("metadata.ownerReferences", message))
    return causes


def _validate_finalizers(meta: Obj, old: Obj | None, *, any_finalizer: bool) -> list[Cause]:
    finalizers = meta.get("finalizers") or []
    if not isinstance(finalizers, list) or not all(isinstance(item, str) and item for item in finalizers):
        return [Cause("metadata.finalizers", "Invalid value: must be a list of names", "FieldValueTypeInvalid")]
    wrong = [
        Cause(
            f"metadata.finalizers[{position}]",
            f'Invalid value: "{item}": name is neither a standard finalizer name nor is it fully qualified',
        )
        for position, item in enumerate(finalizers)
        if not (item in _STANDARD_FINALIZERS or (not wrong_key(item) and (any_finalizer or "/" in item)))
    ]
    if wrong:
        return wrong
    if old is not None and old.get("deletionTimestamp"):
        added = [item for item in finalizers if item not in (old.get("finalizers") or [])]
        if added:
            message = f"Forbidden: no new finalizers can be added if the object is being deleted, found new {added}"
            return [Cause("metadata.finalizers", message, "FieldValueForbidden")]
    return []
