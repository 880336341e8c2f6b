"""What a request says: whom it asks for what, in which form, with which body and options.

Reads only: what there is to be asked for is not known here.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING, Any

import orjson
import yaml
from aiohttp import web

from fermata.sim.kube import errors
from fermata.sim.kube.access import Attributes
from fermata.sim.kube.builtin_types import clean_body
from fermata.sim.kube.errors import ApiError
from fermata.sim.kube.listing import Form, flag
from fermata.sim.kube.options import DeleteOptions, WriteOptions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fermata.sim.kube.resources import Obj
    from fermata.sim.kube.target import Target

#: The API server's own limit on a request's body.
_BODY_LIMIT_BYTES = 3 * 1024 * 1024
_MANAGER_LIMIT = 128
_READABLE = ("application/json", "application/yaml", "application/vnd.kubernetes.protobuf")
_OPTIONS = {"POST": "CreateOptions", "PUT": "UpdateOptions"}
_VERBS = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


def verb_of(request: web.BaseRequest) -> str:
    """Return what a request does to one object, or to what is no object."""
    return _VERBS.get(request.method, "get")


def attributes_of(request: web.BaseRequest, target: Target) -> Attributes:
    """Return what a request asks for, as the authorizer is asked."""
    verb, name = verb_of(request), target.name
    if not name:
        if verb == "delete":
            verb = "deletecollection"
        elif verb == "get":
            verb = "watch" if flag(request.query, "watch") else "list"
        terms = request.query.get("fieldSelector", "").split(",")
        names = [term.partition("=")[2].lstrip("=") for term in terms if term.startswith("metadata.name=")]
        name = names[0] if names else ""
    plural = target.resource.plural
    return Attributes(
        verb=verb,
        group=target.resource.group,
        resource=f"{plural}/{target.subresource}" if target.subresource else plural,
        namespace=target.namespace or "",
        name=name,
    )


def form_of(request: web.BaseRequest) -> Form:
    """Return the form in which the client wants objects; raises what `Form` does."""
    return Form(request.headers.get("Accept", ""), request.query.get("includeObject", ""))


def sized_request(message: Any, payload: Any, protocol: Any, writer: Any, task: Any) -> web.BaseRequest:
    """Return a request of an HTTP server whose body may be as large as the API server's may."""
    loop = asyncio.get_running_loop()
    return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=_BODY_LIMIT_BYTES)


async def body_of(request: web.BaseRequest, *, required: bool = True) -> Any:
    """Return what was sent, as JSON, YAML or protobuf; of none an empty object, where one is not required.

    Raises:
        ApiError: 400 for what cannot be read, 413 where it is too large, 415 for another media type.
    """
    try:
        raw = await request.read() if request.can_read_body else b""
    except web.HTTPRequestEntityTooLarge as error:
        message = f"Request entity too large: limit is {_BODY_LIMIT_BYTES}"
        raise ApiError(413, "RequestEntityTooLarge", message) from error
    if not raw:
        if required:
            raise errors.bad_request("the request has no body")
        return {}
    if "protobuf" in request.content_type:
        # Imported with the first such body: only kubectl's and Go's typed clients send them.
        from fermata.sim.kube.protobuf import decode

        return decode(raw)
    if request.method == "POST" and "Content-Type" in request.headers and request.content_type not in _READABLE:
        raise errors.unsupported_media_type(
            f"the body of the request was in an unknown format - accepted media types include: {', '.join(_READABLE)}"
        )
    if request.query.get("fieldValidation") == "Strict":
        _refuse_duplicates(raw)
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        if "yaml" not in request.content_type:
            raise errors.bad_request(f"the object provided is unrecognized: {error}") from error
    try:
        return yaml.load(raw, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - a safe loader
    except yaml.YAMLError as error:
        raise errors.bad_request(f"error decoding YAML: {error}") from error


def _refuse_duplicates(raw: bytes) -> None:
    """Refuse a body that names a field twice, where nothing may be ignored; what is no JSON is another's to judge."""
    twice: list[str] = []

    def note(pairs: list[tuple[str, Any]]) -> Obj:
        fields = dict(pairs)
        if len(fields) < len(pairs):
            names = [name for name, _ in pairs]
            twice.extend(name for name in fields if names.count(name) > 1)
        return fields

    with contextlib.suppress(ValueError):
        json.loads(raw, object_pairs_hook=note)
    if twice:
        raise errors.bad_request("strict decoding error: " + ", ".join(f'duplicate field "{name}"' for name in twice))


def write_options_of(request: web.BaseRequest) -> WriteOptions:
    """Return how something is to be written.

    Raises:
        ApiError: 422 for an option that means nothing.
    """
    query = request.query
    dry_run = query.get("dryRun", "")
    validation = query.get("fieldValidation") or "Warn"
    causes: list[errors.Cause] = []
    if dry_run not in ("", "All"):
        message = f'Unsupported value: ["{dry_run}"]: supported values: "All"'
        causes.append(errors.Cause("dryRun", message, "FieldValueNotSupported"))
    if validation not in ("Ignore", "Warn", "Strict"):
        causes.append(errors.unsupported("fieldValidation", validation, ("", "Ignore", "Strict", "Warn")))
    manager = query.get("fieldManager", "")
    if len(manager) > _MANAGER_LIMIT:
        message = f"Too long: may not be more than {_MANAGER_LIMIT} bytes"
        causes.append(errors.Cause("fieldManager", message, "FieldValueTooLong"))
    if request.method == "PATCH" and "force" in query and "apply" not in request.content_type:
        message = "Forbidden: may not be specified for non-apply patch"
        causes.append(errors.Cause("force", message, "FieldValueForbidden"))
    if causes:
        raise errors.invalid_options(_OPTIONS.get(request.method, "PatchOptions"), causes)
    return WriteOptions(
        dry_run=dry_run == "All",
        field_validation=validation,
        field_manager=manager,
        force=flag(query, "force"),
        warnings=[],
    )


def delete_options_of(query: Mapping[str, str], body: Any) -> DeleteOptions:
    """Return how something is to be deleted: the body says it, the query where the body does not.

    Raises:
        ApiError: 422 for an option that means nothing, 400 for a grace period that is no number.
    """
    body = clean_body(body, "V1DeleteOptions")
    preconditions = body.get("preconditions") or {}
    dry_run = body.get("dryRun") or ([query["dryRun"]] if query.get("dryRun") else [])
    if dry_run not in ([], ["All"]):
        message = f'Unsupported value: {json.dumps(dry_run)}: supported values: "All"'
        raise errors.invalid_options("DeleteOptions", [errors.Cause("dryRun", message, "FieldValueNotSupported")])
    propagation = body.get("propagationPolicy") or query.get("propagationPolicy")
    orphan = body.get("orphanDependents")
    if propagation not in (None, "Background", "Foreground", "Orphan"):
        policies = ("Foreground", "Background", "Orphan", "nil")
        cause = errors.unsupported("propagationPolicy", propagation, policies)
        raise errors.invalid_options("DeleteOptions", [cause])
    if propagation is not None and orphan is not None:
        message = f'Invalid value: "{propagation}": orphanDependents and deletionPropagation cannot be both set'
        raise errors.invalid_options("DeleteOptions", [errors.Cause("propagationPolicy", message)])
    if orphan is not None:
        propagation = "Orphan" if orphan else "Background"
    grace = body.get("gracePeriodSeconds", query.get("gracePeriodSeconds"))
    try:
        grace_s = None if grace is None else int(grace)
    except ValueError as error:
        raise errors.bad_request(f"gracePeriodSeconds must be a number, not {grace!r}") from error
    return DeleteOptions(
        propagation=propagation,
        grace_s=grace_s,
        uid=preconditions.get("uid"),
        resource_version=preconditions.get("resourceVersion"),
        dry_run=bool(dry_run),
    )
