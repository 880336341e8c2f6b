"""API errors as Kubernetes tells them: a `Status` object with reason, code and details, which every client maps.

Used on both sides: the server raises them, the client rebuilds them from an answer. Knows nothing of HTTP libraries.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fermata.sim.kube.resources import Resource


@dataclass(frozen=True, slots=True)
class Cause:
    """One reason why a field was refused; `reason` is one of Kubernetes' `FieldValue...` cause types."""

    field: str
    message: str
    reason: str = "FieldValueInvalid"


def required(field: str, why: str = "") -> Cause:
    """Return that a field is missing, and why it may not."""
    return Cause(field, f"Required value: {why}" if why else "Required value", "FieldValueRequired")


def unsupported(field: str, value: Any, supported: Sequence[str]) -> Cause:
    """Return that a field has another value than one of those that there are."""
    told = ", ".join(f'"{each}"' for each in supported)
    return Cause(field, f'Unsupported value: "{value}": supported values: {told}', "FieldValueNotSupported")


class ApiError(Exception):
    """An answer other than success.

    Args:
        code: the HTTP status.
        reason: the machine-readable reason, such as `NotFound`.
        message: one line for people.
        details: the `details` of the Status object.
    """

    def __init__(self, code: int, reason: str, message: str, details: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code, self.reason, self.message, self.details = code, reason, message, details or {}

    @classmethod
    def from_status(cls, code: int, body: Any) -> ApiError:
        """Rebuild the error from an answer's body, whatever it holds."""
        if isinstance(body, dict) and body.get("kind") == "Status":
            return cls(
                int(body.get("code") or code),
                str(body.get("reason") or "Unknown"),
                str(body.get("message") or ""),
                body.get("details") or {},
            )
        return cls(code, "Unknown", str(body)[:500])

    def status(self) -> dict[str, Any]:
        """Return the Status object that says this error."""
        body: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            body["reason"] = self.reason
        if self.details:
            body["details"] = self.details
        body["code"] = self.code
        return body


class MistypedError(ApiError):
    """400 for a body that is no object of the kind: a value of another type, a field too many where none may be."""


def _details(resource: Resource, name: str, **more: Any) -> dict[str, Any]:
    details: dict[str, Any] = {"name": name, "kind": resource.plural}
    if resource.group:
        details["group"] = resource.group
    return {**details, **more}


def not_found(resource: Resource, name: str) -> ApiError:
    """404 for an object that does not exist."""
    return ApiError(404, "NotFound", f'{resource.qualified} "{name}" not found', _details(resource, name))


def no_such_path() -> ApiError:
    """404 for a path that names no served resource."""
    return ApiError(404, "NotFound", "the server could not find the requested resource")


def already_exists(resource: Resource, name: str) -> ApiError:
    """409 for a name that is taken."""
    return ApiError(409, "AlreadyExists", f'{resource.qualified} "{name}" already exists', _details(resource, name))


def conflict(resource: Resource, name: str, why: str, causes: Sequence[Cause] = ()) -> ApiError:
    """409 for a write that was based on something else than what is stored."""
    more = {"causes": [_cause(cause) for cause in causes]} if causes else {}
    message = f'Operation cannot be fulfilled on {resource.qualified} "{name}": {why}'
    return ApiError(409, "Conflict", message, _details(resource, name, **more))


STALE = "the object has been modified; please apply your changes to the latest version and try again"


def _cause(cause: Cause) -> dict[str, str]:
    return {"reason": cause.reason, "message": cause.message, "field": cause.field}


def invalid(resource: Resource, name: str, causes: Sequence[Cause]) -> ApiError:
    """422 that names every refused field."""
    kind = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
    details: dict[str, Any] = {"name": name, "kind": resource.kind, "causes": [_cause(cause) for cause in causes]}
    if resource.group:
        details["group"] = resource.group
    return ApiError(422, "Invalid", f'{kind} "{name}" is invalid: {_told(causes)}', details)


def _told(causes: Sequence[Cause]) -> str:
    told = [f"{cause.field}: {cause.message}" for cause in causes]
    return told[0] if len(told) == 1 else f"[{', '.join(told)}]"


def invalid_options(kind: str, causes: Sequence[Cause]) -> ApiError:
    """422 for a query, or a body of options, that asks for what there is not; `kind` is such as `ListOptions`."""
    details = {"group": "meta.k8s.io", "kind": kind, "causes": [_cause(cause) for cause in causes]}
    return ApiError(422, "Invalid", f'{kind}.meta.k8s.io "" is invalid: {_told(causes)}', details)


def too_large_version(asked: int, current: int) -> ApiError:
    """504 for a resourceVersion that this server has not come to yet."""
    cause = Cause("", "Too large resource version", "ResourceVersionTooLarge")
    details = {"causes": [{"reason": cause.reason, "message": cause.message}], "retryAfterSeconds": 1}
    return ApiError(504, "Timeout", f"Timeout: Too large resource version: {asked}, current: {current}", details)


def bad_request(message: str) -> ApiError:
    """400 for a request that cannot be understood."""
    return ApiError(400, "BadRequest", message)


def forbidden(resource: Resource, name: str, why: str, causes: Sequence[Cause] = ()) -> ApiError:
    """403 for a request that is understood and refused."""
    more = {"causes": [_cause(cause) for cause in causes]} if causes else {}
    message = f'{resource.qualified} "{name}" is forbidden: {why}'
    return ApiError(403, "Forbidden", message, _details(resource, name, **more))


def expired(message: str) -> ApiError:
    """410 for a resourceVersion or continue token that is too old."""
    return ApiError(410, "Expired", message)


def method_not_allowed() -> ApiError:
    """405 for a verb that the resource does not serve."""
    return ApiError(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")


def not_acceptable() -> ApiError:
    """406 for a form in which no object is answered."""
    return ApiError(406, "NotAcceptable", "406: Not Acceptable\n\nAvailable representations: application/json")


def unsupported_media_type(message: str) -> ApiError:
    """415 for a body in a format that the resource does not take."""
    return ApiError(415, "UnsupportedMediaType", message)
