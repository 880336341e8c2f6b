"""What kinds of object are served: names, scope, subresources. Built-in ones here, custom ones added at run time.

Knows no object and no request; `discovery` publishes this table and `api` looks requests up in it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Obj = dict[str, Any]

#: Verbs of a full resource, in the order that discovery lists them.
VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


@dataclass(frozen=True, slots=True)
class Resource:
    """One served kind in one version.

    Args:
        group: API group, empty for the core group.
        storage: the (group, plural) under which objects are kept; versions and aliases of a kind share one.
        selectable: the fields, as dotted paths, that field selectors may name beyond metadata.
        to_storage: turns an object of this version into the stored one, where they differ.
        from_storage: the reverse.
    """

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    singular: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()
    verbs: tuple[str, ...] = VERBS
    storage: tuple[str, str] = ("", "")
    selectable: tuple[str, ...] = ()
    custom: bool = False
    list_kind: str = ""
    to_storage: Callable[[Obj], Obj] | None = field(default=None, compare=False)
    from_storage: Callable[[Obj], Obj] | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if self.storage == ("", ""):
            object.__setattr__(self, "storage", (self.group, self.plural))
        if not self.list_kind:
            object.__setattr__(self, "list_kind", f"{self.kind}List")

    @property
    def group_version(self) -> str:
        """The `apiVersion` of objects of this kind."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def path(self) -> tuple[str, str, str]:
        """What the URL names: group, version and plural."""
        return self.group, self.version, self.plural

    @property
    def qualified(self) -> str:
        """The name that error messages use, such as `jobs.batch`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def has_status(self) -> bool:
        """Whether status is written through its own subresource only."""
        return "status" in self.subresources


def _event_to_v1(event: Obj) -> Obj:
    return _rename(event, "v1", {new: old for old, new in _EVENT_FIELDS.items()})


def _event_from_v1(event: Obj) -> Obj:
    return _rename(event, "events.k8s.io/v1", _EVENT_FIELDS)


#: core/v1 field -> events.k8s.io/v1 field.
_EVENT_FIELDS = {
    "involvedObject": "regarding",
    "message": "note",
    "reportingComponent": "reportingController",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
}


def _rename(event: Obj, api_version: str, names: dict[str, str]) -> Obj:
    return {**{names.get(key, key): value for key, value in event.items()}, "apiVersion": api_version}


_EVENT_SELECTABLE = (
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    "source",
    "type",
)


def _new_event_field(path: str) -> str:
    head, dot, rest = path.partition(".")
    return _EVENT_FIELDS.get(head, head) + dot + rest


_RBAC = "rbac.authorization.k8s.io"
_CREATE_ONLY = ("create",)

BUILTIN: tuple[Resource, ...] = (
    Resource(
        "", "v1", "namespaces", "Namespace", False, "namespace", ("ns",), subresources=("finalize", "status"),
        verbs=tuple(verb for verb in VERBS if verb != "deletecollection"), selectable=("status.phase",),
    ),
    Resource(
        "", "v1", "pods", "Pod", True, "pod", ("po",), ("all",), ("binding", "eviction", "log", "status"),
        selectable=("spec.nodeName", "status.phase", "spec.restartPolicy", "spec.schedulerName",
                    "spec.serviceAccountName", "status.podIP"),
    ),
    Resource("", "v1", "nodes", "Node", False, "node", ("no",), (), ("status",), selectable=("spec.unschedulable",)),
    Resource("", "v1", "events", "Event", True, "event", ("ev",), selectable=_EVENT_SELECTABLE),
    Resource("", "v1", "configmaps", "ConfigMap", True, "configmap", ("cm",)),
    Resource("", "v1", "secrets", "Secret", True, "secret", selectable=("type",)),
    Resource("", "v1", "services", "Service", True, "service", ("svc",), ("all",), ("status",)),
    Resource(
        "", "v1", "serviceaccounts", "ServiceAccount", True, "serviceaccount", ("sa",), subresources=("token",),
    ),
    Resource(
        "events.k8s.io", "v1", "events", "Event", True, "event", ("ev",), storage=("", "events"),
        selectable=tuple(_new_event_field(path) for path in _EVENT_SELECTABLE),
        to_storage=_event_to_v1, from_storage=_event_from_v1,
    ),
    Resource(
        "batch", "v1", "jobs", "Job", True, "job", (), ("all",), ("status",), selectable=("status.successful",),
    ),
    Resource("apps", "v1", "deployments", "Deployment", True, "deployment", ("deploy",), ("all",), ("status",)),
    Resource("coordination.k8s.io", "v1", "leases", "Lease", True, "lease"),
    Resource(_RBAC, "v1", "roles", "Role", True, "role"),
    Resource(_RBAC, "v1", "rolebindings", "RoleBinding", True, "rolebinding"),
    Resource(_RBAC, "v1", "clusterroles", "ClusterRole", False, "clusterrole"),
    Resource(_RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", False, "clusterrolebinding"),
    Resource("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy", True, "networkpolicy", ("netpol",)),
    Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", True, "poddisruptionbudget", ("pdb",),
             subresources=("status",)),
    Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", False, "priorityclass", ("pc",)),
    Resource(
        "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", False,
        "customresourcedefinition", ("crd", "crds"), ("api-extensions",), ("status",),
    ),
    *(
        Resource("authorization.k8s.io", "v1", f"{kind.lower()}s", kind, kind.startswith("Local"), kind.lower(),
                 verbs=_CREATE_ONLY)
        for kind in ("LocalSubjectAccessReview", "SelfSubjectAccessReview", "SelfSubjectRulesReview",
                     "SubjectAccessReview")
    ),
    *(
        Resource("authentication.k8s.io", "v1", f"{kind.lower()}s", kind, False, kind.lower(), verbs=_CREATE_ONLY)
        for kind in ("SelfSubjectReview", "TokenReview")
    ),
)  # fmt: skip


class Resources:
    """The kinds that are served now, by (group, version, plural)."""

    def __init__(self) -> None:
        self._served: dict[tuple[str, str, str], Resource] = {}
        #: Rises with each change; discovery and OpenAPI documents are cached by it.
        self.revision = 0
        for resource in BUILTIN:
            self.add(resource)

    def __iter__(self) -> Iterator[Resource]:
        return iter(self._served.values())

    def add(self, resource: Resource) -> None:
        """Serve a kind, replacing an earlier one under the same group, version and plural."""
        self._served[resource.path] = resource
        self.revision += 1

    def drop(self, resource: Resource) -> None:
        """Serve a kind no longer."""
        if self._served.pop(resource.path, None) is not None:
            self.revision += 1

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        """Return the kind served under this path, or None."""
        return self._served.get((group, version, plural))

    def core(self, plural: str) -> Resource:
        """Return a kind of the core group, all of which are always served."""
        return self._served["", "v1", plural]

    def of_storage(self, key: tuple[str, str]) -> Resource | None:
        """Return the kind, in its stored version, whose objects are kept under this key."""
        for resource in self:
            if resource.storage == key and resource.from_storage is None:
                return resource
        return None

    def groups(self) -> dict[str, dict[str, list[Resource]]]:
        """Return group -> version -> kinds, in the order in which they were added."""
        found: dict[str, dict[str, list[Resource]]] = {}
        for resource in self:
            found.setdefault(resource.group, {}).setdefault(resource.version, []).append(resource)
        return found
