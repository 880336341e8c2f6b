"""The API server's HTTP face: finds the object and the verb that a request means, and answers.

Translates only: what a verb does is `api`'s, what objects look like is `listing`'s, who may is `access`'s.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import aiohttp
import orjson
from aiohttp import web

from fermata.sim.kube import errors
from fermata.sim.kube.access import (
    LOCAL_ADMIN,
    RBAC_GROUP,
    Attributes,
    Rights,
    Tokens,
    User,
    denial,
    named_user,
    unauthorized,
)
from fermata.sim.kube.api import Api
from fermata.sim.kube.builtin_types import clean_body
from fermata.sim.kube.definitions import Definitions
from fermata.sim.kube.discovery import NO_SCHEMAS, OPENAPI_V2, OPENAPI_V2_ASKED, Discovery
from fermata.sim.kube.errors import ApiError
from fermata.sim.kube.faults import Faults, LostError
from fermata.sim.kube.kinds.custom import CustomKind
from fermata.sim.kube.listing import Lists, check_version, flag, selection
from fermata.sim.kube.options import WriteOptions
from fermata.sim.kube.patch import APPLY_PATCH
from fermata.sim.kube.requests import attributes_of, body_of, delete_options_of, form_of, verb_of, write_options_of
from fermata.sim.kube.reviews import Reviews, issue_token
from fermata.sim.kube.subresources import bind, evict, finalize
from fermata.sim.kube.target import Target, locate
from fermata.sim.kube.watching import Watches

if TYPE_CHECKING:
    from fermata.sim.kube.resources import Obj, Resource


class Server:
    """Answers requests on one store.

    Args:
        api: the verbs.
        bookmark_every_s: how often a quiet watch is told the present resourceVersion.
    """

    def __init__(self, api: Api, *, bookmark_every_s: float = 60.0) -> None:
        self.api = api
        self.definitions = Definitions(api)
        self.lists = Lists(api, self.definitions)
        self.faults = Faults()
        self.watches = Watches(api, self.lists, bookmark_every_s=bookmark_every_s, lag_s=self._lag_s)
        self.discovery = Discovery(api.resources, self._schema_of)
        self.tokens = Tokens(api)
        self.rights = Rights(api)
        self._reviews = Reviews(self.rights, self.tokens)
        #: The audit log: (user, verb, API group, resource or path, namespace) -> requests.
        self.calls: Counter[tuple[str, str, str, str, str]] = Counter()
        self._kubelets: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """End all watches and the connections to kubelets."""
        for table in self.api.store.tables():
            table.close_watches()
        if self._kubelets is not None:
            await self._kubelets.close()

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request; every refusal is a Status object."""
        try:
            user = self._user(request)
            lost = await self.faults.meet(user.name, request.method, request.path)
            answer = await self._route(request, user)
        except ApiError as error:
            answer, lost = _answer(error.status(), error.code), False
            if error.code in (429, 504):
                answer.headers["Retry-After"] = "1"
        except LostError:
            answer, lost = web.Response(), True
        if lost and request.transport is not None:
            request.transport.abort()
        return answer

    def _user(self, request: web.BaseRequest) -> User:
        """Return who asks: the account of a token, or, without one, this machine's administrator.

        Raises:
            ApiError: 401 for a token that is nobody's, 403 where one may not speak for another.
        """
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        user = LOCAL_ADMIN
        if scheme.lower() == "bearer":
            found = self.tokens.user(token.strip())
            if found is None:
                raise unauthorized()
            user = found
        name = request.headers.get("Impersonate-User")
        if name is None:
            return user
        wanted = Attributes("impersonate", resource="users", name=name)
        if not self.rights.allow(user, wanted):
            raise denial(user, wanted, None)
        return named_user(name, request.headers.getall("Impersonate-Group", []))

    def _lag_s(self, request: web.BaseRequest) -> float:
        return self.faults.lag_s(self._user(request).name, request.path)

    def _authorize(self, user: User, wanted: Attributes, resource: Resource | None) -> None:
        what = wanted.resource or wanted.path
        self.calls[user.name, wanted.verb, wanted.group, what, wanted.namespace] += 1
        if not self.rights.allow(user, wanted):
            raise denial(user, wanted, resource)

    async def _route(self, request: web.BaseRequest, user: User) -> web.StreamResponse:
        path = request.path
        target = locate(self.api.resources, path)
        if target is None:
            self._authorize(user, Attributes(verb_of(request), path=path), None)
            if path in ("/healthz", "/readyz", "/livez"):
                return web.Response(text="ok")
            if request.method != "GET":
                raise errors.no_such_path()
            if path == "/openapi/v2" and OPENAPI_V2_ASKED in request.headers.get("Accept", ""):
                return web.Response(body=NO_SCHEMAS, content_type=OPENAPI_V2)
            return _answer(self.discovery.document(path))
        self._authorize(user, attributes_of(request, target), target.resource)
        if target.resource.verbs == ("create",):
            return await self._review(request, target, user)
        if target.subresource:
            return await self._subresource(request, target, user)
        match request.method, bool(target.name):
            case "GET", True:
                return self._get(request, target)
            case "GET", False:
                return await self._list_or_watch(request, target)
            case "POST", False:
                return await self._create(request, target, user)
            case "PUT", True:
                return await self._update(request, target, user)
            case "PATCH", True:
                return await self._patch(request, target, user)
            case "DELETE", _:
                return await self._delete(request, target)
        raise errors.method_not_allowed()

    # Reading ------------------------------------------------------------------------------------------------------

    def _get(self, request: web.BaseRequest, target: Target) -> web.Response:
        check_version(request.query.get("resourceVersion", ""), self.api.store.rv)
        entry = self.api.entry(target.resource, target.namespace or "", target.name)
        form = form_of(request)
        return _raw(self.lists.one(target.resource, self.lists.shown(target.resource, entry), form))

    async def _list_or_watch(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        query, form = request.query, form_of(request)
        chosen = selection(target.resource, target.namespace, query)
        if flag(query, "watch"):
            return await self.watches.serve(request, target.resource, chosen, query, form)
        return _raw(self.lists.answer(target.resource, chosen, query, form))

    # Writing ------------------------------------------------------------------------------------------------------

    async def _create(self, request: web.BaseRequest, target: Target, user: User) -> web.Response:
        if target.resource.namespaced and target.namespace is None:
            raise errors.method_not_allowed()
        options = self._options(request, target.resource, user)
        obj = self.api.create(target.resource, target.namespace or "", await body_of(request), options)
        return self._written(request, target.resource, obj, 201, options)

    async def _update(self, request: web.BaseRequest, target: Target, user: User) -> web.Response:
        options, body = self._options(request, target.resource, user), await body_of(request)
        is_status = target.subresource == "status"
        obj = self.api.update(target.resource, target.namespace or "", target.name, body, options, status=is_status)
        return self._written(request, target.resource, obj, 200, options)

    async def _patch(self, request: web.BaseRequest, target: Target, user: User) -> web.Response:
        options, body = self._options(request, target.resource, user), await body_of(request)
        kind = request.content_type
        if kind == "application/apply-patch+json":
            kind = APPLY_PATCH
        obj, created = self.api.patch(
            target.resource,
            target.namespace or "",
            target.name,
            kind,
            body,
            options,
            status=target.subresource == "status",
        )
        return self._written(request, target.resource, obj, 201 if created else 200, options)

    async def _delete(self, request: web.BaseRequest, target: Target) -> web.Response:
        options = delete_options_of(request.query, await body_of(request, required=False))
        if not target.name:
            everywhere = target.resource.namespaced and target.namespace is None
            if everywhere or "deletecollection" not in target.resource.verbs:
                raise errors.method_not_allowed()
            chosen = selection(target.resource, target.namespace, request.query)
            deleted = self.api.delete_collection(target.resource, chosen, options)
            head = {"kind": target.resource.list_kind, "apiVersion": target.resource.group_version}
            meta = {"resourceVersion": str(self.api.store.rv)}
            return _answer({**head, "metadata": meta, "items": deleted})
        obj, gone = self.api.delete(target.resource, target.namespace or "", target.name, options)
        if gone and _is_told_by_status(target.resource):
            return _answer(_success(target.resource, obj))
        response = _raw(self.lists.one(target.resource, orjson.dumps(obj), form_of(request)))
        orphans = self.api.kind(target.resource).orphans
        return _warned(response, [orphans] if orphans and options.propagation is None else [])

    def _options(self, request: web.BaseRequest, resource: Resource, user: User) -> WriteOptions:
        """Return how a write is to be done; roles and bindings may grant no more than their author has."""
        options = write_options_of(request)
        if resource.group == RBAC_GROUP:

            def admit(new: Obj, old: Obj | None) -> None:
                granted = ("rules", "aggregationRule", "roleRef", "subjects")
                if old is None or any(new.get(field) != old.get(field) for field in granted):
                    self.rights.check_escalation(user, new, resource)

            options.admit = admit
        return options

    def _written(
        self, request: web.BaseRequest, resource: Resource, obj: Obj, code: int, options: WriteOptions
    ) -> web.Response:
        response = _raw(self.lists.one(resource, orjson.dumps(obj), form_of(request)), code)
        return _warned(response, options.warnings)

    async def write(self, method: str, path: str, body: Any, patch_type: str) -> Obj:
        """Do a write of the control plane's own controllers, as a request by its administrator, and return the answer.

        Raises:
            ApiError: where the write is refused.
            aiohttp.ServerDisconnectedError: where a fault loses the answer.
        """
        try:
            lost = await self.faults.meet(LOCAL_ADMIN.name, method, path)
        except LostError as error:
            raise aiohttp.ServerDisconnectedError from error
        target = locate(self.api.resources, path)
        if target is None:
            raise errors.no_such_path()
        answer = self._do(method, target, body, patch_type)
        if lost:
            raise aiohttp.ServerDisconnectedError
        return answer

    def _do(self, method: str, target: Target, body: Any, patch_type: str) -> Obj:
        api, resource, namespace, name = self.api, target.resource, target.namespace or "", target.name
        options, is_status = WriteOptions.plain(), target.subresource == "status"
        match method, target.subresource:
            case "POST", "" if not name:
                return api.create(resource, namespace, body, options)
            case "POST", "binding":
                bind(api, resource, namespace, name, body, dry_run=False)
                return _success(resource, None)
            case "PUT", "" | "status" if name:
                return api.update(resource, namespace, name, body, options, status=is_status)
            case "PATCH", "" | "status" if name:
                return api.patch(resource, namespace, name, patch_type, body, options, status=is_status)[0]
            case "DELETE", "" if name:
                obj, gone = api.delete(resource, namespace, name, delete_options_of({}, body or {}))
                return _success(resource, obj) if gone and _is_told_by_status(resource) else obj
        raise errors.method_not_allowed()

    # Subresources -------------------------------------------------------------------------------------------------

    async def _subresource(self, request: web.BaseRequest, target: Target, user: User) -> web.StreamResponse:
        match request.method, target.subresource:
            case "GET", "status":
                return self._get(request, target)
            case "PUT", "status":
                return await self._update(request, target, user)
            case "PATCH", "status":
                return await self._patch(request, target, user)
            case "PUT", "finalize":
                options = write_options_of(request)
                body = clean_body(await body_of(request), "V1Namespace")
                return _answer(finalize(self.api, target.resource, target.name, body, options))
            case "POST", "binding":
                dry_run = write_options_of(request).dry_run
                body = clean_body(await body_of(request), "V1Binding")
                bind(self.api, target.resource, target.namespace or "", target.name, body, dry_run=dry_run)
                return _answer(_success(target.resource, None), 201)
            case "POST", "eviction":
                eviction = clean_body(await body_of(request), "V1Eviction")
                options_of_delete = delete_options_of(request.query, eviction.get("deleteOptions") or {})
                evict(self.api, target.resource, target.namespace or "", target.name, options_of_delete)
                return _answer(_success(target.resource, None), 201)
            case "GET", "log":
                return await self._log(request, target)
            case "POST", "token":
                wanted = clean_body(await body_of(request), "AuthenticationV1TokenRequest")
                return _answer(issue_token(self.tokens, target.namespace or "", target.name, wanted), 201)
        raise errors.method_not_allowed()

    async def _log(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        """Pass on a container's output from the kubelet that the pod's node names."""
        pod = self.api.entry(target.resource, target.namespace or "", target.name).load()
        containers = [item["name"] for item in pod["spec"]["containers"]]
        container = request.query.get("container") or containers[0]
        if container not in containers:
            raise errors.bad_request(f"container {container} is not valid for pod {target.name}")
        node = self.api.table(self.api.resources.core("nodes")).get("", pod["spec"].get("nodeName") or "")
        port = _kubelet_port(node.load()) if node is not None else None
        if port is None:
            state = "ContainerCreating" if node is not None else "waiting to be scheduled"
            raise errors.bad_request(f'container "{container}" in pod "{target.name}" is waiting to start: {state}')
        url = f"http://127.0.0.1:{port}/containerLogs/{target.namespace}/{target.name}/{container}"
        self._kubelets = self._kubelets or aiohttp.ClientSession()
        unlimited = aiohttp.ClientTimeout(total=None)
        try:
            async with self._kubelets.get(url, params=request.query, timeout=unlimited) as answer:
                response = web.StreamResponse(status=answer.status, headers={"Content-Type": answer.content_type})
                await response.prepare(request)
                async for chunk in answer.content.iter_any():
                    await response.write(chunk)
                return response
        except aiohttp.ClientConnectionError as error:
            raise ApiError(500, "InternalError", f"the kubelet at port {port} does not answer") from error

    async def _review(self, request: web.BaseRequest, target: Target, user: User) -> web.Response:
        if request.method != "POST":
            raise errors.method_not_allowed()
        kind = target.resource.kind
        review = clean_body(await body_of(request), f"V1{kind}")
        review["status"] = self._reviews.answer(kind, review, user, target.namespace or "")
        return _answer({"apiVersion": target.resource.group_version, "kind": kind, **review}, 201)

    def _schema_of(self, resource: Resource) -> Obj | None:
        kind = self.api.kind(resource)
        return kind.schema if isinstance(kind, CustomKind) else None


def _kubelet_port(node: Obj) -> int | None:
    endpoints = node.get("status", {}).get("daemonEndpoints") or {}
    port = (endpoints.get("kubeletEndpoint") or {}).get("Port")
    return int(port) if port else None


def _is_told_by_status(resource: Resource) -> bool:
    """Return whether the answer to a deletion is a Status once the object is gone, rather than its last state."""
    return resource.plural not in ("pods", "namespaces")


def _success(resource: Resource, obj: Obj | None) -> Obj:
    status: Obj = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    if obj is not None:
        meta = obj["metadata"]
        status["details"] = {"name": meta["name"], "kind": resource.plural, "uid": meta["uid"]}
        if resource.group:
            status["details"]["group"] = resource.group
    return status


def _answer(body: Obj, code: int = 200) -> web.Response:
    return _raw(orjson.dumps(body), code)


def _warned(response: web.Response, warnings: list[str]) -> web.Response:
    for warning in warnings:
        response.headers.add("Warning", f"299 - {orjson.dumps(warning).decode()}")
    return response


def _raw(data: bytes, code: int = 200) -> web.Response:
    return web.Response(body=data, status=code, content_type="application/json")
