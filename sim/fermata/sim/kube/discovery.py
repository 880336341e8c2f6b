"""What is served, as clients ask for it: versions, groups, resources, OpenAPI.

Documents are built from the table of resources and cached until it changes. Knows no object.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fermata.sim.kube.errors import no_such_path
from fermata.sim.kube.kinds.builtin_openapi import schemas_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from fermata.sim.kube.resources import Obj, Resource, Resources

#: The Kubernetes minor whose API this server follows.
VERSION: Obj = {
    "major": "1",
    "minor": "36",
    "gitVersion": "v1.36.0+fermata",
    "gitCommit": "0000000000000000000000000000000000000000",
    "gitTreeState": "clean",
    "buildDate": "2026-01-01T00:00:00Z",
    "goVersion": "none",
    "compiler": "none",
    "platform": "linux/amd64",
}
#: How kubectl asks for OpenAPI v2, before it applies a List, and the media type of the answer, which cannot have an @.
OPENAPI_V2_ASKED = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
OPENAPI_V2 = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
#: A document (swagger: "2.0") without a schema: kubectl checks nothing by itself, and each object is checked here.
NO_SCHEMAS = b"\n\x032.0"
_SUBRESOURCE_KINDS = {"binding": "Binding", "eviction": "Eviction", "token": "TokenRequest"}
_SUBRESOURCE_VERBS = {
    "status": ["get", "patch", "update"],
    "finalize": ["update"],
    "binding": ["create"],
    "eviction": ["create"],
    "log": ["get"],
    "token": ["create"],
}


class Discovery:
    """The discovery documents of a table of resources.

    Args:
        resources: the kinds that are served.
        schema_of: returns the OpenAPI schema of a kind, or None where it is not known.
    """

    def __init__(self, resources: Resources, schema_of: Callable[[Resource], Obj | None]) -> None:
        self._resources, self._schema_of = resources, schema_of
        self._cache: dict[str, Any] = {}
        self._revision = -1

    def document(self, path: str) -> Obj:
        """Return the document at a path such as `/apis/batch/v1`.

        Raises:
            ApiError: 404 where there is none.
        """
        if self._revision != self._resources.revision:
            self._cache.clear()
            self._revision = self._resources.revision
        path = path.rstrip("/") or "/"
        if path not in self._cache:
            self._cache[path] = self._build(path)
        found: Obj = self._cache[path]
        return found

    def _build(self, path: str) -> Obj:
        match path.split("/")[1:]:
            case [""]:
                return {"paths": ["/api", "/api/v1", "/apis", "/healthz", "/openapi/v3", "/readyz", "/version"]}
            case ["version"]:
                return VERSION
            case ["api"]:
                return {"kind": "APIVersions", "apiVersion": "v1", "versions": ["v1"], "serverAddressByClientCIDRs": []}
            case ["apis"]:
                groups = [self._group(group) for group in self._resources.groups() if group]
                return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
            case ["api", version]:
                return self._resource_list("", version)
            case ["apis", group]:
                return {**self._group(group), "kind": "APIGroup", "apiVersion": "v1"}
            case ["apis", group, version]:
                return self._resource_list(group, version)
            case ["openapi", "v3"]:
                return self._openapi_index()
            case ["openapi", "v3", "api", version]:
                return self._openapi("", version)
            case ["openapi", "v3", "apis", group, version]:
                return self._openapi(group, version)
            case ["openapi", "v2"]:
                return self._openapi_v2()
        raise no_such_path()

    def _versions(self, group: str) -> dict[str, list[Resource]]:
        found = self._resources.groups().get(group)
        if not found:
            raise no_such_path()
        return found

    def _group(self, group: str) -> Obj:
        versions = [
            {"groupVersion": f"{group}/{version}", "version": version}
            for version in sorted(self._versions(group), key=_version_rank, reverse=True)
        ]
        return {"name": group, "versions": versions, "preferredVersion": versions[0]}

    def _resource_list(self, group: str, version: str) -> Obj:
        served = self._versions(group).get(version)
        if not served:
            raise no_such_path()
        listed: list[Obj] = []
        for resource in served:
            listed.append(_described(resource))
            listed += [_described_subresource(resource, name) for name in resource.subresources]
        return {
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": served[0].group_version,
            "resources": listed,
        }

    # OpenAPI ------------------------------------------------------------------------------------------------------

    def _openapi_index(self) -> Obj:
        paths: Obj = {}
        for group, versions in self._resources.groups().items():
            for version in versions:
                path = f"apis/{group}/{version}" if group else f"api/{version}"
                paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={self._revision}"}
        return {"paths": paths}

    def _openapi(self, group: str, version: str) -> Obj:
        served = self._versions(group).get(version)
        if not served:
            raise no_such_path()
        schemas: Obj = {}
        paths: Obj = {}
        for resource in served:
            name = _schema_name(resource)
            schema = self._schema_of(resource)
            if schema is None and (builtin := schemas_of(resource)) is not None:
                schema, parts = builtin
                schemas.update(parts)
            schema = schema or {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
            schemas[name] = {**schema, "x-kubernetes-group-version-kind": [_gvk(resource)]}
            paths.update(_paths(resource, {"$ref": f"#/components/schemas/{name}"}))
        return {
            "openapi": "3.0.0",
            "info": {"title": "Fermata's embedded control plane", "version": VERSION["gitVersion"]},
            "paths": paths,
            "components": {"schemas": schemas},
        }

    def _openapi_v2(self) -> Obj:
        definitions: Obj = {}
        paths: Obj = {}
        for resource in self._resources:
            schema = {"type": "object", "x-kubernetes-group-version-kind": [_gvk(resource)]}
            definitions[_schema_name(resource)] = schema
            paths.update(_paths(resource, None))
        return {
            "swagger": "2.0",
            "info": {"title": "Fermata's embedded control plane", "version": VERSION["gitVersion"]},
            "paths": paths,
            "definitions": definitions,
        }


def _version_rank(version: str) -> tuple[int, int, int]:
    """Order versions as Kubernetes does: stable over beta over alpha, then by number."""
    stage = 0 if "alpha" in version else 1 if "beta" in version else 2
    numbers = [int(part) for part in "".join(c if c.isdigit() else " " for c in version).split()] + [0, 0]
    return stage, numbers[0], numbers[1]


def _described(resource: Resource) -> Obj:
    described: Obj = {
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": list(resource.verbs),
    }
    if resource.short_names:
        described["shortNames"] = list(resource.short_names)
    if resource.categories:
        described["categories"] = list(resource.categories)
    return described


def _described_subresource(resource: Resource, name: str) -> Obj:
    return {
        "name": f"{resource.plural}/{name}",
        "singularName": "",
        "namespaced": resource.namespaced,
        "kind": _SUBRESOURCE_KINDS.get(name, resource.kind),
        "verbs": _SUBRESOURCE_VERBS[name],
    }


def _gvk(resource: Resource) -> Obj:
    return {"group": resource.group, "version": resource.version, "kind": resource.kind}


def _schema_name(resource: Resource) -> str:
    group = ".".join(reversed(resource.group.split("."))) if resource.group else "io.k8s.api.core"
    return f"{group}.{resource.version}.{resource.kind}"


def _paths(resource: Resource, body: Obj | None) -> Obj:
    """Return the operations of a kind; clients read from them that dry run and field validation are served."""
    root = f"/apis/{resource.group_version}" if resource.group else f"/api/{resource.version}"
    collection = (
        f"{root}/namespaces/{{namespace}}/{resource.plural}" if resource.namespaced else f"{root}/{resource.plural}"
    )
    options = [
        {"name": name, "in": "query", **({"schema": {"type": "string"}} if body else {"type": "string"})}
        for name in ("dryRun", "fieldManager", "fieldValidation")
    ]

    def operation(action: str) -> Obj:
        content = {"content": {"application/json": {"schema": body}}} if body else {}
        return {
            "operationId": f"{action}{resource.group}{resource.version}{resource.kind}",
            "parameters": options,
            "responses": {"200": {"description": "OK", **content}},
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": _gvk(resource),
        }

    paths: Obj = {collection: {"post": operation("post")}}
    if "patch" in resource.verbs:
        paths[f"{collection}/{{name}}"] = {
            "get": operation("get"),
            "put": operation("put"),
            "patch": operation("patch"),
            "delete": operation("delete"),
        }
    return paths
