"""A small asynchronous client of any Kubernetes API, and the list-and-watch loop that controllers stand on.

The controllers of this package use nothing else, so a kubeconfig is all it takes to point them at a real API server.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import aiohttp
import orjson

from fermata.sim.kube.errors import ApiError
from fermata.sim.kube.kubeconfig import read_kubeconfig
from fermata.sim.kube.patch import MERGE_PATCH

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Callable, Mapping
    from pathlib import Path
    from types import TracebackType

    from fermata.sim.kube.resources import Obj

log = logging.getLogger(__name__)

_UNLIMITED = aiohttp.ClientTimeout(total=None, sock_connect=10)
_PAGE = 500
_WATCH_S = 300
#: How many deletions an informer remembers, so that a late answer to a write cannot bring an object back.
_TOMBSTONES = 10_000


class Client:
    """Requests to one API server.

    Args:
        server: its URL.
        tls: how to verify it and who we are, for https.
        token: bearer token, where one is used.
    """

    def __init__(self, server: str, *, tls: ssl.SSLContext | None = None, token: str | None = None) -> None:
        self.server = server.rstrip("/")
        self.headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.tls = tls
        self._session: aiohttp.ClientSession | None = None

    @classmethod
    def from_kubeconfig(cls, path: Path) -> Client:
        """Return a client of the current context: certificates, or a token.

        Raises:
            InputError: the file names no server, or credentials that are none.
        """
        found = read_kubeconfig(path)
        return cls(found.server, tls=found.tls, token=found.token)

    async def __aenter__(self) -> Client:
        connector = aiohttp.TCPConnector(ssl=self.tls if self.tls is not None else True, limit=0)
        self._session = aiohttp.ClientSession(headers=self.headers, connector=connector)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.session.close()

    @property
    def session(self) -> aiohttp.ClientSession:
        """The open session."""
        if self._session is None:
            raise RuntimeError("the client is used outside of `async with`")
        return self._session

    async def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        params: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> Obj:
        """Send a request and return the answer's object.

        Raises:
            ApiError: for an answer other than success.
            aiohttp.ClientError: where there is no answer.
        """
        data = None if body is None else orjson.dumps(body)
        headers = {"Content-Type": content_type} if data is not None else None
        url = self.server + path
        async with self.session.request(method, url, data=data, params=params, headers=headers) as answer:
            raw = await answer.read()
            is_json = "json" in answer.content_type
            found: Any = orjson.loads(raw) if is_json and raw else raw.decode(errors="replace")
            if answer.status >= 400:
                raise ApiError.from_status(answer.status, found)
            return found if isinstance(found, dict) else {"text": found}

    async def get(self, path: str, **params: str) -> Obj:
        """Read an object or a list."""
        return await self.request("GET", path, params=params)

    async def create(self, path: str, obj: Obj) -> Obj:
        """Create an object in a collection."""
        return await self.request("POST", path, obj)

    async def patch(self, path: str, patch: Any, content_type: str = MERGE_PATCH) -> Obj:
        """Patch an object."""
        return await self.request("PATCH", path, patch, content_type=content_type)

    async def delete(self, path: str, **options: Any) -> Obj:
        """Delete an object; `options` are DeleteOptions' fields."""
        return await self.request("DELETE", path, {"kind": "DeleteOptions", "apiVersion": "v1", **options})

    async def watch(self, path: str, since: str, params: Mapping[str, str]) -> AsyncIterator[tuple[str, Obj]]:
        """Yield (type, object) for each change after a resourceVersion until the server ends the watch.

        Raises:
            ApiError: 410 when the resourceVersion is too old, or what else the server reports.
        """
        query = {
            **params,
            "watch": "true",
            "resourceVersion": since,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(_WATCH_S),
        }
        async with self.session.get(self.server + path, params=query, timeout=_UNLIMITED) as answer:
            if answer.status >= 400:
                raise ApiError.from_status(answer.status, await answer.text())
            rest = b""
            async for chunk in answer.content.iter_any():
                lines = (rest + chunk).split(b"\n")
                rest = lines.pop()
                for line in lines:
                    event = orjson.loads(line)
                    if event["type"] == "ERROR":
                        raise ApiError.from_status(500, event["object"])
                    yield event["type"], event["object"]


T = TypeVar("T")


class Informer(Generic[T]):
    """What a controller needs to know of a collection, kept current by list and watch.

    Args:
        client: whom to ask.
        path: the collection.
        view: takes from an object what the controller needs; None leaves the object out.
        on_change: called with (key, before, after) for each change; None stands for absent.
        params: selectors.
    """

    def __init__(
        self,
        client: Client,
        path: str,
        view: Callable[[Obj], T | None],
        on_change: Callable[[str, T | None, T | None], None],
        params: Mapping[str, str] | None = None,
    ) -> None:
        self._client, self._path, self._view, self._on_change = client, path, view, on_change
        self._params = dict(params or {})
        self._versions: dict[str, int] = {}
        self._tombstones: OrderedDict[str, int] = OrderedDict()
        self.cache: dict[str, T] = {}
        #: Set once the first list is in the cache.
        self.synced = asyncio.Event()

    async def run(self) -> None:
        """Keep the cache current until cancelled; survives lost connections and a server that restarts."""
        pause_s = 0.05
        while True:
            try:
                since = await self._list()
                pause_s = 0.05
                self.synced.set()
                while True:
                    async for type_, obj in self._client.watch(self._path, since, self._params):
                        since = obj["metadata"]["resourceVersion"]
                        if type_ != "BOOKMARK":
                            self.note(obj, deleted=type_ == "DELETED")
            except ApiError as error:
                if error.code != 410:
                    log.warning("list and watch of %s: %s", self._path, error)
            except (aiohttp.ClientError, TimeoutError) as error:
                log.debug("list and watch of %s: %s", self._path, error)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, 5.0)

    async def _list(self) -> str:
        seen: set[str] = set()
        params = {**self._params, "limit": str(_PAGE)}
        while True:
            page = await self._client.request("GET", self._path, params=params)
            # Items of a built-in kind's list go without.
            of_list = {"kind": page["kind"].removesuffix("List"), "apiVersion": page["apiVersion"]}
            for item in page["items"]:
                obj = {**of_list, **item}
                seen.add(key_of(obj))
                self.note(obj)
            if not page["metadata"].get("continue"):
                break
            params["continue"] = page["metadata"]["continue"]
        for key in [key for key in self._versions if key not in seen]:
            self._forget(key)
        return str(page["metadata"]["resourceVersion"])

    def note(self, obj: Obj, *, deleted: bool = False) -> None:
        """Take in a version of an object, from a watch or from the answer to a write; older versions are ignored."""
        key, version = key_of(obj), int(obj["metadata"]["resourceVersion"])
        if version < self._versions.get(key, 0) or version <= self._tombstones.get(key, 0):
            return
        view = None if deleted else self._view(obj)
        if view is None:
            self._forget(key)
            self._bury(key, version)
            return
        if version == self._versions.get(key):
            return
        before = self.cache.get(key)
        self._versions[key], self.cache[key] = version, view
        self._on_change(key, before, view)

    def _bury(self, key: str, version: int) -> None:
        self._tombstones[key] = version
        if len(self._tombstones) > _TOMBSTONES:
            self._tombstones.popitem(last=False)

    def _forget(self, key: str) -> None:
        self._versions.pop(key, None)
        before = self.cache.pop(key, None)
        if before is not None:
            self._on_change(key, before, None)


def key_of(obj: Obj) -> str:
    """Return `namespace/name`."""
    meta = obj["metadata"]
    return f"{meta.get('namespace', '')}/{meta['name']}"
