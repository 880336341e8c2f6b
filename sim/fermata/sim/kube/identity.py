"""Is this the object that a request means: what a body, a patch or a precondition says against path and store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fermata.sim.kube.errors import Cause, bad_request, conflict, invalid

if TYPE_CHECKING:
    from fermata.sim.kube.resources import Resource
    from fermata.sim.kube.store import Entry


def check_identity(resource: Resource, obj: Any, namespace: str, name: str | None, *, patched: bool = False) -> None:
    """Refuse a body, or what a patch made, that is no object of this kind here; fill in what it may lack."""
    if not isinstance(obj, dict):
        raise bad_request("the request's body must be an object")
    for field, expected in (("apiVersion", resource.group_version), ("kind", resource.kind)):
        # The type of a built-in kind is known from the path; of a custom one it has to be told.
        if resource.custom and field == "apiVersion" and obj.get(field) != expected and not patched:
            given = obj.get(field) or ""
            raise bad_request(
                f"the API version in the data ({given}) does not match the expected API version ({expected})"
            )
        if resource.custom and not obj.get(field):
            raise bad_request(f"the object provided is unrecognized (must be of type {resource.kind}): no {field}")
        given = obj.setdefault(field, expected)
        if given != expected and resource.custom:
            cause = Cause(field, f'Invalid value: "{given}": must be {expected}')
            raise invalid(resource, name or str((obj.get("metadata") or {}).get("name") or ""), [cause])
        if given != expected:
            raise bad_request(
                f"the API version in the data ({obj.get('apiVersion')}) or its kind ({obj.get('kind')}) does not "
                f"match the expected {resource.group_version} {resource.kind}"
            )
    meta = obj.get("metadata")
    if meta is None:
        meta = obj["metadata"] = {}
    if not isinstance(meta, dict):
        raise bad_request("metadata must be an object")
    if meta.get("namespace") and meta["namespace"] != namespace:
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
    if name is not None and not meta.get("name"):
        raise bad_request(f"the name of the object ({name} based on URL) was undeterminable: name must be provided")
    if name is not None and meta["name"] != name:
        raise bad_request(f"the name of the object ({meta['name']}) does not match the name on the URL ({name})")


def check_preconditions(resource: Resource, entry: Entry, uid: str | None, resource_version: str | None = None) -> None:
    """Refuse a request that means another object, or another version, than the stored one; None is any."""
    if uid is not None and uid != entry.uid:
        why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {entry.uid}"
        raise conflict(resource, entry.name, why)
    if resource_version is not None and resource_version != str(entry.rv):
        why = (
            f"Precondition failed: ResourceVersion in precondition: {resource_version}, "
            f"ResourceVersion in object meta: {entry.rv}"
        )
        raise conflict(resource, entry.name, why)
