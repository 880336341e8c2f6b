"""Requests to one API server and its answers, as raw JSON over the official asynchronous client.

Raw, because turning thousands of Jobs into the client's model classes and back costs more than all the rest. Says what
went wrong in one exception type that knows whether trying again can help. Knows no resources.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any, Self

import aiohttp
from kubernetes.aio.client import ApiClient
from kubernetes.aio.client.rest import RESTResponse
from pydantic_core import from_json

from fermata.operator.access import Renewal, configuration
from fermata.operator.clock import ServerClock
from fermata.policy.errors import FermataError, InputError

_TIMEOUT = aiohttp.ClientTimeout(total=30.0)
_WATCH_S = 120  # then the API server ends a watch; one that is silent for longer is dead
_WATCH_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=30.0, sock_read=_WATCH_S + 15.0)
_MOST_LATER_S = 30
# etcd's own words, and those of the protocol by which the API server asks it.
_TOO_LARGE = re.compile(r"etcdserver: request is too large|message larger than max")
_QUOTA = re.compile(r"exceeded quota: .*", re.DOTALL)
_DENIAL = re.compile(
    r"^admission webhook .* denied the request|\bValidatingAdmissionPolicy .* denied request"
    r"|^policy ['\"].*['\"] denied request",  # of a MutatingAdmissionPolicy, where its expression fails
    re.DOTALL,
)
Json = dict[str, Any]


class ClusterError(FermataError):
    """A request that did not succeed: its HTTP status (0: no answer), and a reason where the API server gave one.

    `fields` are those of an object in which it is invalid, such as `spec.parallelism`.
    """

    def __init__(self, status: int, reason: str, message: str, fields: tuple[str, ...] = ()) -> None:
        self.status, self.reason, self.message, self.fields = status, reason, message, fields
        super().__init__(f"{reason or status or 'no answer'}: {message[:300]}")

    @property
    def is_trouble(self) -> bool:
        """Whether the API server is down, slow, busy or of two minds, rather than saying no to this request."""
        return self.status in (0, 408, 409, 429) or self.status >= 500

    @property
    def is_of_no_object(self) -> bool:
        """Whether others like it in its namespace are likely to meet with the same: trouble, or a right that lacks."""
        is_forbidden = self.status == 403 and not (self.is_denial or self.quota)
        return is_forbidden or (self.is_trouble and self.status != 409)

    @property
    def is_unsure(self) -> bool:
        """Whether it may have been done all the same: the answer was lost, or the server did not see the end of it."""
        return self.status == 0 or self.status >= 500

    @property
    def is_too_large(self) -> bool:
        """Whether the object is larger than etcd takes (by default 1.5 MiB), or than the API server does.

        Admission may say no by the same status to one of any size.
        """
        return (self.status == 413 and not self.is_denial) or _TOO_LARGE.search(self.message) is not None

    @property
    def quota(self) -> str:
        """What the quota of a namespace says that has no room for another one, whichever it is; empty: none does."""
        return "".join(_QUOTA.findall(self.message)) if self.status == 403 and not self.is_denial else ""

    @property
    def is_denial(self) -> bool:
        """Whether admission said no. A policy can be mended, and its status says little: a webhook's is 400 by default.

        Of a ValidatingAdmissionPolicy it is 422, and of a mutating one 403, as where a right lacks. Only the API
        server's own words tell: "admission webhook ... denied the request", "ValidatingAdmissionPolicy ... denied
        request", "policy ... denied request".
        """
        return bool(self.denial)

    @property
    def denial(self) -> str:
        """What admission said, without the name of the object; empty: it did not say no."""
        found = _DENIAL.search(self.message)
        return self.message[found.start() :] if found else ""


class Connection:
    """A connection to one API server.

    Args:
        client: of the official library.
        observed: called after each request with its verb, resource and HTTP status (0: no answer).
        clock: told the dates of the answers.
        patience: how often a request comes again that is to come later, as an API server with too many of them says.
    """

    def __init__(
        self,
        client: ApiClient,
        observed: Callable[[str, str, int], None] = lambda *_: None,
        clock: ServerClock | None = None,
        patience: int = 0,
    ) -> None:
        self._client, self._observed, self._patience = client, observed, patience
        self._clock = clock or ServerClock()
        self._shown = b""  # the certificate that was shown instead of the first one

    @classmethod
    async def connect(
        cls,
        kubeconfig: str | None = None,
        observed: Callable[[str, str, int], None] = lambda *_: None,
        clock: ServerClock | None = None,
        patience: int = 0,
    ) -> Self:
        """Return a connection by a kubeconfig, or by the service account inside a cluster.

        Raises:
            InputError: there is no usable configuration.
        """
        settings = await configuration(kubeconfig)
        try:
            client = ApiClient(settings)
        except OSError as error:  # that of ssl is one, too
            raise InputError(f"no usable certificates for {settings.host}: {error}", file=kubeconfig) from error
        client.user_agent = f"fermata/{metadata.version('fermata')}"  # what audit logs and managedFields call it
        return cls(client, observed, clock, patience)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    @property
    def server(self) -> str:
        """URL of the API server."""
        return str(self._client.configuration.host)

    def now(self) -> float:
        """Return the time by the API server's clock, as its answers have told it; seconds since the epoch."""
        return self._clock()

    async def get(self, path: str, query: Mapping[str, str] | None = None) -> Json:
        """Read one path."""
        return await self._request("GET", path, query=query)

    async def create(self, path: str, body: Mapping[str, Any], query: Mapping[str, str] | None = None) -> Json:
        """Create an object in a collection."""
        return await self._request("POST", path, query=query, body=body)

    async def replace(self, path: str, body: Mapping[str, Any]) -> Json:
        """Replace an object; 409 where the version that `body` names is not the present one."""
        return await self._request("PUT", path, body=body)

    async def patch(self, path: str, patch: Mapping[str, Any]) -> Json:
        """Merge a patch into an object."""
        return await self._request("PATCH", path, body=patch)

    async def delete(self, path: str, options: Mapping[str, Any]) -> Json:
        """Delete an object."""
        return await self._request("DELETE", path, body=options)

    async def changes(self, path: str, version: str, query: Mapping[str, str]) -> AsyncIterator[tuple[str, Json]]:
        """Yield each change of a collection after a version, as ADDED, MODIFIED, DELETED or BOOKMARK and the object.

        Ends when the API server ends it; `query` selects.

        Raises:
            ClusterError: no answer or a lost connection, or an error: 410 where the version is too old.
        """
        watch = {"watch": "true", "resourceVersion": version, "allowWatchBookmarks": "true"}
        watch["timeoutSeconds"] = str(_WATCH_S)
        answer = await self._send("GET", path, {**query, **watch}, None, _WATCH_TIMEOUT)
        try:
            if answer.status != 200:
                raise _refusal(answer.status, await answer.read())
            rest = b""
            async for chunk in answer.response.content.iter_any():
                lines = (rest + chunk).split(b"\n")
                rest = lines.pop()
                for line in lines:
                    event = _parsed(line)
                    obj = _sound(event.get("object"), line)
                    if event.get("type") == "ERROR":
                        code = int(obj.get("code") or 500)
                        raise ClusterError(code, str(obj.get("reason", "")), str(obj.get("message", "")))
                    yield str(event.get("type")), obj
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise ClusterError(0, type(error).__name__, str(error)) from error
        finally:
            answer.response.close()

    async def _request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        attempt: int = 0,
    ) -> Json:
        """Send one request, again where it is to come later, and return its JSON.

        Raises:
            ClusterError: no answer, or one that is not 2xx.
        """
        answer = await self._send(method, path, query, body, _TIMEOUT)
        try:
            content = await answer.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise ClusterError(0, type(error).__name__, str(error)) from error
        if 200 <= answer.status < 300:
            return _sound(_parsed(content), content)
        later_s = answer.headers.get("Retry-After", "")
        if answer.status == 429 and attempt < self._patience and later_s.isdecimal() and int(later_s) <= _MOST_LATER_S:
            await asyncio.sleep(int(later_s))
            return await self._request(method, path, query=query, body=body, attempt=attempt + 1)
        raise _refusal(answer.status, content)

    async def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        body: Mapping[str, Any] | None,
        timeout: aiohttp.ClientTimeout,
    ) -> RESTResponse:
        """Send one request and return its answer, not read yet.

        Raises:
            ClusterError: there is none.
        """
        headers = {"Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = "application/merge-patch+json" if method == "PATCH" else "application/json"
        status, sent_s = 0, self._clock.local()
        try:
            # The body goes around `param_serialize`, which would copy it looking for the client's model classes.
            _, url, headers, *_ = await self._client.param_serialize(
                method, path, query_params=list((query or {}).items()), header_params=headers,
                auth_settings=["BearerToken"],
            )  # fmt: skip
            answer = await self._client.call_api(method, url, headers, body, _request_timeout=timeout)
            status = answer.status
            self._clock.note(answer.headers.get("Date"), sent_s)
            if status == 401:
                await answer.read()
                await self._be_known_anew()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            if isinstance(error, aiohttp.ClientConnectorCertificateError):
                self._trust_anew()
            raise ClusterError(0, type(error).__name__, str(error)) from error
        finally:
            self._observed(method, path, status)
        return answer

    def _trust_anew(self) -> None:
        """Trust from now on also the authorities that are in their file by now: a cluster that runs may get others."""
        file = self._client.configuration.ssl_ca_cert
        if file:
            with suppress(OSError):  # it may be half written; the next request that fails looks again
                self._client.rest_client.ssl_context.load_verify_locations(cafile=file)

    async def _be_known_anew(self) -> None:
        """Have what was refused renewed, and show the certificate that there is by now, if it is another one.

        A connection is known by the certificate that it began with, so all of them begin again.
        """
        settings, rest = self._client.configuration, self._client.rest_client
        if isinstance(settings.refresh_api_key_hook, Renewal):
            settings.refresh_api_key_hook.doubt()
        if not settings.cert_file:
            return
        await settings.get_api_key_with_prefix("BearerToken")  # renews it; the client does so only for who has a token
        with suppress(OSError):  # it may be half written; the next request that is refused looks again
            found = Path(settings.cert_file).read_bytes()
            if found == self._shown:
                return
            rest.ssl_context.load_cert_chain(settings.cert_file, settings.key_file)
            self._shown = found
            session, rest.pool_manager = rest.pool_manager, None
            if session is not None:
                await session.close()


def _refusal(status: int, content: bytes) -> ClusterError:
    """Return what the API server said no with: a Status object, or a line of text where nothing is served."""
    said = _parsed(content)
    text = content[:200].decode(errors="replace").strip()
    return ClusterError(status, str(said.get("reason", "")), str(said.get("message", text)), _fields(said))


def _fields(said: Json) -> tuple[str, ...]:
    """Return the fields in which an object is invalid, as a Status names them; what stands before may say anything."""
    details = said.get("details")
    causes = details.get("causes") if isinstance(details, dict) else None
    rows = causes if isinstance(causes, list) else []
    return tuple(str(row["field"]) for row in rows if isinstance(row, dict) and "field" in row)


def _sound(value: Any, content: bytes) -> Json:
    """Return what was read from an answer, if it is an object of an API server.

    What stands before one may answer in its place, with a page to log in or half an answer, and call that a success. As
    an empty list it would be taken for a cluster in which nothing is left.

    Raises:
        ClusterError: it is none, so that nobody knows what was done.
    """
    if not isinstance(value, dict) or "kind" not in value:
        raise ClusterError(0, "UnreadableAnswer", content[:200].decode(errors="replace").strip())
    return value


def _parsed(content: bytes) -> Json:
    try:
        value = from_json(content)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
