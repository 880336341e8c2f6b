"""Lists: selection from a query, pages that all show one moment, and the forms in which objects are answered."""

from __future__ import annotations

import base64
import binascii
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import orjson

from fermata.sim.kube.errors import (
    Cause,
    bad_request,
    invalid_options,
    not_acceptable,
    too_large_version,
    unsupported,
)
from fermata.sim.kube.selectors import parse_fields, parse_labels
from fermata.sim.kube.store import Selection
from fermata.sim.kube.table import BUILTIN_COLUMNS, PLAIN_COLUMNS, Column, custom_columns, partial, table

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from fermata.sim.kube.api import Api
    from fermata.sim.kube.definitions import Definitions
    from fermata.sim.kube.resources import Obj, Resource
    from fermata.sim.kube.store import Entry

#: How many lists that are read in pages are kept: to make up their moment for each page would take a sort of all.
_KEPT = 16
_FORBIDDEN = "FieldValueForbidden"
#: Decimal digits of the largest resourceVersion, an unsigned number of 64 bits; Python refuses to read 4,301.
_VERSION_DIGITS = 20
#: What a client may accept, of which JSON is answered.
_ACCEPTED = ("application/json", "application/*", "*/*")


def selection(resource: Resource, namespace: str | None, query: Mapping[str, str]) -> Selection:
    """Return what a list, watch or deletion of a collection asks for.

    Raises:
        ApiError: 400 for a selector that cannot be understood.
    """
    fields = parse_fields(query.get("fieldSelector", ""), ("metadata.name", "metadata.namespace", *resource.selectable))
    return Selection(namespace, parse_labels(query.get("labelSelector", "")), fields, resource.selectable)


class Form:
    """The form in which a client wants its objects: whole, as a Table, or their metadata only.

    Args:
        accept: the request's Accept header.
        include: the query's `includeObject`, for Tables.

    Raises:
        ApiError: 406 where no form will do.
    """

    def __init__(self, accept: str, include: str) -> None:
        # kubectl names the Table first and plain JSON as what it can also read.
        first = accept.split(",")[0]
        if accept and not any(part.split(";")[0].strip() in _ACCEPTED for part in accept.split(",")):
            raise not_acceptable()
        self.is_table = "as=Table" in first
        self.is_partial = "as=PartialObjectMetadata" in first
        self.whole = include == "Object"

    @property
    def is_plain(self) -> bool:
        """Whether objects go out as they are stored."""
        return not (self.is_table or self.is_partial)


class Lists:
    """Answers with many objects.

    Args:
        api: where the objects are.
        definitions: the columns of custom kinds.
    """

    def __init__(self, api: Api, definitions: Definitions) -> None:
        self._api, self._definitions = api, definitions
        self._kept: OrderedDict[Hashable, list[Entry]] = OrderedDict()

    def answer(self, resource: Resource, chosen: Selection, query: Mapping[str, str], form: Form) -> bytes:
        """Return the serialised list.

        Raises:
            ApiError: 400 for a wrong limit or token, 410 for a token that is too old.
        """
        check_versions(query, self._api.store.rv)
        rv, entries, token, remaining = self._page(resource, chosen, query)
        meta: Obj = {"resourceVersion": str(rv)}
        if token:
            meta["continue"] = token
            meta["remainingItemCount"] = remaining
        if form.is_plain:
            head = {"kind": resource.list_kind, "apiVersion": resource.group_version, "metadata": meta}
            items = b",".join(self._item(resource, entry) for entry in entries)
            return orjson.dumps(head)[:-1] + b',"items":[' + items + b"]}"
        objects = [self._object(resource, entry) for entry in entries]
        if form.is_table:
            return orjson.dumps(table(self._columns(resource), objects, meta, whole=form.whole))
        listed = {"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": meta}
        return orjson.dumps({**listed, "items": [partial(obj) for obj in objects]})

    def one(self, resource: Resource, data: bytes, form: Form) -> bytes:
        """Return one serialised object in the form asked for."""
        if form.is_plain:
            return data
        obj = orjson.loads(data)
        if form.is_partial:
            return orjson.dumps(partial(obj))
        meta = {"resourceVersion": obj["metadata"].get("resourceVersion", "")}
        return orjson.dumps(table(self._columns(resource), [obj], meta, whole=form.whole))

    def shown(self, resource: Resource, entry: Entry) -> bytes:
        """Return a stored object in the version that was asked for."""
        return entry.data if resource.from_storage is None else orjson.dumps(resource.from_storage(entry.load()))

    def _item(self, resource: Resource, entry: Entry) -> bytes:
        """Return an object as an item of a list; those of built-in kinds leave out what the list says."""
        data = self.shown(resource, entry)
        if resource.custom:
            return data
        said = orjson.dumps({"kind": resource.kind, "apiVersion": resource.group_version})[:-1] + b","
        return b"{" + data.removeprefix(said) if data.startswith(said) else data

    def _object(self, resource: Resource, entry: Entry) -> Obj:
        obj: Obj = orjson.loads(self.shown(resource, entry))
        return obj

    def _columns(self, resource: Resource) -> Sequence[Column]:
        if resource.custom:
            return custom_columns(self._definitions.columns.get(resource.path, []))
        return BUILTIN_COLUMNS.get(resource.storage, PLAIN_COLUMNS)

    def _page(
        self, resource: Resource, chosen: Selection, query: Mapping[str, str]
    ) -> tuple[int, list[Entry], str, int]:
        limit, token = max(number(query.get("limit")), 0), query.get("continue", "")
        since, match = query.get("resourceVersion", ""), query.get("resourceVersionMatch", "")
        now, start = self._api.store.rv, 0
        if token:
            rv, start = _read_token(token)
        else:
            # With a limit, a version without a match is that version.
            exact = match == "Exact" or (limit and not match and since not in ("", "0"))
            rv = int(since) if exact else now
        # Pages show the moment of the first, so each of them may be read again.
        asked = query.get("labelSelector", ""), query.get("fieldSelector", "")
        key = resource.storage, chosen.namespace, *asked, rv
        entries = self._kept.pop(key, None)
        if entries is None:
            entries = self._api.table(resource).select(chosen, None if rv == now else rv)
        end = start + limit if limit else len(entries)
        if token or end < len(entries):
            self._kept[key] = entries
            if len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        if end >= len(entries):
            return rv, entries[start:], "", 0
        return rv, entries[start:end], _token(rv, end), len(entries) - end


def check_versions(query: Mapping[str, str], current: int) -> None:
    """Refuse a list of a version that cannot be, or that is not there yet.

    Raises:
        ApiError: 400 for what is no version, 422 for a match that does not go with it, 504 for a version to come.
    """
    number(query.get("timeoutSeconds"))
    since, match = query.get("resourceVersion", ""), query.get("resourceVersionMatch", "")
    causes: list[Cause] = []
    if "sendInitialEvents" in query:
        causes.append(Cause("sendInitialEvents", "Forbidden: sendInitialEvents is forbidden for list", _FORBIDDEN))
    if match and not since:
        text = "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided"
        causes.append(Cause("resourceVersionMatch", text, _FORBIDDEN))
    elif match not in ("", "Exact", "NotOlderThan"):
        causes.append(unsupported("resourceVersionMatch", match, ("Exact", "NotOlderThan", "")))
    elif match == "Exact" and since == "0":
        text = 'Forbidden: resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
        causes.append(Cause("resourceVersionMatch", text, _FORBIDDEN))
    elif match and "continue" in query:
        text = "Forbidden: resourceVersionMatch is forbidden for continue"
        causes.append(Cause("resourceVersionMatch", text, _FORBIDDEN))
    if causes:
        raise invalid_options("ListOptions", causes)
    check_version(since, current)
    if query.get("continue") and since not in ("", "0"):
        raise bad_request("specifying resource version is not allowed when using continue")


def check_version(since: str, current: int) -> None:
    """Refuse what is no resourceVersion, or one that is not there yet.

    Raises:
        ApiError: 400 or 504.
    """
    if since and not is_version(since):
        raise bad_request(f'invalid resource version: resourceVersion: Invalid value: "{since}"')
    if int(since or 0) > current:
        raise too_large_version(int(since), current)


def is_version(text: str) -> bool:
    """Return whether a text can be a resourceVersion."""
    return text.isdecimal() and len(text) <= _VERSION_DIGITS


def number(text: str | None) -> int:
    """Return a number of a query, 0 where it is absent.

    Raises:
        ApiError: 400 for anything else.
    """
    try:
        return int(text or 0)
    except ValueError as error:
        raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax') from error


def flag(query: Mapping[str, str], name: str) -> bool:
    """Return a switch of a query: on with any value but 0 and false."""
    return query.get(name, "false").lower() not in ("0", "false")


def _token(rv: int, start: int) -> str:
    return base64.urlsafe_b64encode(orjson.dumps([rv, start])).decode()


def _read_token(token: str) -> tuple[int, int]:
    try:
        read: Any = orjson.loads(base64.urlsafe_b64decode(token))
        rv, start = read
        return int(rv), int(start)
    except (binascii.Error, ValueError, TypeError) as error:
        raise bad_request("continue key is not valid") from error
