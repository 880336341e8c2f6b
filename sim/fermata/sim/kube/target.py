"""What a request's path names: kind, namespace, object, subresource."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote

from fermata.sim.kube.errors import no_such_path

if TYPE_CHECKING:
    from fermata.sim.kube.resources import Resource, Resources


@dataclass(frozen=True, slots=True)
class Target:
    """The object or collection that a path names; `namespace` None means all, or none for cluster-scoped kinds."""

    resource: Resource
    namespace: str | None
    name: str
    subresource: str


def locate(resources: Resources, path: str) -> Target | None:
    """Return what a path names, or None for a path of discovery.

    Raises:
        ApiError: 404 for a path under a served version that names nothing.
    """
    parts = [unquote(part) for part in path.strip("/").split("/")]
    if parts[0] == "api" and len(parts) > 2:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) > 3:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return None
    namespace: str | None = None
    # `namespaces/x/status` is a namespace's own subresource, `namespaces/x/pods` is what it holds.
    if rest[0] == "namespaces" and len(rest) > 2 and not (rest[2] in ("status", "finalize") and not group):
        namespace, rest = rest[1], rest[2:]
    resource = resources.find(group, version, rest[0])
    if resource is None or len(rest) > 3:
        raise no_such_path()
    name = rest[1] if len(rest) > 1 else ""
    subresource = rest[2] if len(rest) > 2 else ""
    if (namespace is not None and not resource.namespaced) or (
        subresource and subresource not in resource.subresources
    ):
        raise no_such_path()
    if name and resource.namespaced and namespace is None:
        raise no_such_path()
    return Target(resource, namespace, name, subresource)
