"""Watches: the stream of changes that one client asked for, until it goes, its time is up or the server stops."""

from __future__ import annotations

import asyncio
import random
import time
from typing import TYPE_CHECKING

import orjson
from aiohttp import web

from fermata.sim.kube.errors import ApiError, Cause, invalid_options, too_large_version
from fermata.sim.kube.listing import flag, is_version, number
from fermata.sim.kube.store import frame

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from fermata.sim.kube.api import Api
    from fermata.sim.kube.listing import Form, Lists
    from fermata.sim.kube.resources import Resource
    from fermata.sim.kube.store import Change, Selection, Subscription

_INITIAL_EVENTS_END = "k8s.io/initial-events-end"


class Watches:
    """Serves watches.

    Args:
        api: where the objects are.
        lists: forms objects for the client.
        bookmark_every_s: how often a quiet watch that allows bookmarks is told the present resourceVersion.
        lag_s: how late, in seconds, this request's watch is told things at present.
    """

    def __init__(
        self,
        api: Api,
        lists: Lists,
        *,
        bookmark_every_s: float,
        lag_s: Callable[[web.BaseRequest], float],
    ) -> None:
        self._api, self._lists, self._bookmark_every_s, self._lag_s = api, lists, bookmark_every_s, lag_s

    async def serve(
        self, request: web.BaseRequest, resource: Resource, chosen: Selection, query: Mapping[str, str], form: Form
    ) -> web.StreamResponse:
        """Answer a watch; returns when it has ended."""
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        table = self._api.table(resource)
        since = query.get("resourceVersion", "")
        send_initial = flag(query, "sendInitialEvents")
        # Before the answer begins, after which nothing can be refused.
        ends = time.monotonic() + _timeout_s(query.get("timeoutSeconds"))
        match = query.get("resourceVersionMatch", "")
        if match != ("NotOlderThan" if "sendInitialEvents" in query else ""):
            why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
            if "sendInitialEvents" not in query:
                why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
            cause = Cause("resourceVersionMatch", f"Forbidden: {why}", "FieldValueForbidden")
            raise invalid_options("ListOptions", [cause])
        first: list[bytes] = []
        try:
            start = _revision(since)
            if send_initial and start > self._api.store.rv:
                raise too_large_version(start, self._api.store.rv)
            # Of what is yet to come nothing is told: the stream begins after that version, whenever that is.
            begins_after = start
            if send_initial or since in ("", "0"):
                start = self._api.store.rv
                first = [self._frame("ADDED", resource, entry.data, form) for entry in table.select(chosen)]
            if send_initial:
                first.append(self._bookmark(resource, initial_end=True))
            subscription = table.subscribe(start)
        except ApiError as error:
            if error.code not in (410, 504):
                raise
            # A watch that starts too far back, or too far ahead, is accepted and then told so, as the API server does.
            await response.prepare(request)
            await response.write(frame("ERROR", orjson.dumps(error.status())))
            return response
        try:
            await response.prepare(request)
            if first:
                await response.write(b"".join(first))
            await self._stream(request, response, subscription, resource, chosen, query, form, begins_after, ends)
        except (ConnectionResetError, ConnectionError):
            pass  # The client went away, which is how most watches end.
        finally:
            table.unsubscribe(subscription)
        return response

    async def _stream(
        self,
        request: web.BaseRequest,
        response: web.StreamResponse,
        subscription: Subscription,
        resource: Resource,
        chosen: Selection,
        query: Mapping[str, str],
        form: Form,
        begins_after: int,
        ends: float,
    ) -> None:
        bookmarks = flag(query, "allowWatchBookmarks")
        while not subscription.closed and (left_s := ends - time.monotonic()) > 0:
            changes = await subscription.take(min(left_s, self._bookmark_every_s))
            if changes and (lag_s := self._lag_s(request)):
                await asyncio.sleep(lag_s)
            told = (change for change in changes if change.entry.rv > begins_after)
            frames = [line for change in told if (line := self._line(change, resource, chosen, form))]
            if frames:
                await response.write(b"".join(frames))
            elif bookmarks and not changes and not subscription.closed and self._api.store.rv >= begins_after:
                await response.write(self._bookmark(resource))

    def _line(self, change: Change, resource: Resource, chosen: Selection, form: Form) -> bytes | None:
        seen = change.seen_by(chosen)
        if seen is None:
            return None
        if seen == change.type and form.is_plain and resource.from_storage is None:
            return change.frame
        # An object that stops to match is told in its new state, as by the API server.
        return self._frame(seen, resource, self._lists.shown(resource, change.entry), form)

    def _frame(self, type_: str, resource: Resource, data: bytes, form: Form) -> bytes:
        return frame(type_, self._lists.one(resource, data, form))

    def _bookmark(self, resource: Resource, *, initial_end: bool = False) -> bytes:
        meta: dict[str, object] = {"resourceVersion": str(self._api.store.rv), "creationTimestamp": None}
        if initial_end:
            meta["annotations"] = {_INITIAL_EVENTS_END: "true"}
        obj = {"kind": resource.kind, "apiVersion": resource.group_version, "metadata": meta}
        return frame("BOOKMARK", orjson.dumps(obj))


def _revision(text: str) -> int:
    if text and not is_version(text):
        message = f'resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax'
        raise ApiError(500, "InternalError", message)
    return int(text or 0)


def _timeout_s(text: str | None) -> float:
    # By default spread out, so that the watches of many clients do not end together; 0 is the default, too.
    return number(text) or random.uniform(1800, 3600)  # noqa: S311 - no secret
