"""The objects, their one rising resourceVersion, and the history that watches read.

Objects are kept serialised: an answer copies no tree, nobody can alter a stored object by accident, and ten thousand
pods fit into tens of megabytes. The store must not know what the objects mean: no defaults, no validation, no HTTP.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal

import orjson

from fermata.sim.kube.errors import ApiError, expired
from fermata.sim.kube.selectors import match_labels

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from fermata.sim.kube.resources import Obj
    from fermata.sim.kube.selectors import FieldSelector, LabelSelector

EventType = Literal["ADDED", "MODIFIED", "DELETED"]
StorageKey = tuple[str, str]

#: etcd's own limit on a request.
_OBJECT_LIMIT_BYTES = 3 * 1024 * 1024 // 2
_NO_LABELS: dict[str, str] = {}


def field_text(obj: Any, path: str) -> str:
    """Return the value at a dotted path as field selectors compare it; an absent one is empty."""
    for part in path.split("."):
        obj = obj.get(part) if isinstance(obj, dict) else None
    if obj is None:
        return ""
    if isinstance(obj, bool):
        return "true" if obj else "false"
    return str(obj)


class Entry:
    """One version of one stored object: its bytes, and the few values that are searched by."""

    __slots__ = ("data", "fields", "labels", "name", "namespace", "owners", "rv", "uid")

    def __init__(self, obj: Obj, rv: int, selectable: tuple[str, ...]) -> None:
        meta = obj["metadata"]
        self.namespace: str = meta.get("namespace") or ""
        self.name: str = meta["name"]
        self.uid: str = meta["uid"]
        self.rv = rv
        self.labels: dict[str, str] = meta.get("labels") or _NO_LABELS
        self.fields = tuple(field_text(obj, path) for path in selectable)
        # An owner may be named twice, and is still one.
        owners = dict.fromkeys(owner["uid"] for owner in meta.get("ownerReferences") or ())
        self.owners: tuple[str, ...] = tuple(owners)
        # A copy of the exact size: orjson's own buffer keeps several times the memory that it needs.
        self.data = bytes(memoryview(orjson.dumps(obj)))

    def load(self) -> Obj:
        """Return the object as a new tree that the caller may alter."""
        obj: Obj = orjson.loads(self.data)
        return obj


class Selection:
    """What a list or a watch asks for: a namespace (None is all), label terms and field terms."""

    __slots__ = ("_at", "_fields", "_labels", "namespace")

    def __init__(
        self,
        namespace: str | None = None,
        labels: LabelSelector = (),
        fields: FieldSelector = (),
        selectable: tuple[str, ...] = (),
    ) -> None:
        self.namespace, self._labels, self._fields = namespace, labels, fields
        self._at = {path: position for position, path in enumerate(selectable)}

    def matches(self, entry: Entry) -> bool:
        """Return whether the entry is asked for."""
        if self.namespace is not None and entry.namespace != self.namespace:
            return False
        if self._labels and not match_labels(self._labels, entry.labels):
            return False
        return all((self._value(entry, term.path) == term.value) == term.positive for term in self._fields)

    def _value(self, entry: Entry, path: str) -> str:
        if path == "metadata.name":
            return entry.name
        if path == "metadata.namespace":
            return entry.namespace
        return entry.fields[self._at[path]]


class Change:
    """One step of one object's history; its watch frame is serialised at most once, however many watch."""

    __slots__ = ("_frame", "entry", "previous", "type")

    def __init__(self, type_: EventType, entry: Entry, previous: Entry | None) -> None:
        self.type, self.entry, self.previous = type_, entry, previous
        self._frame: bytes | None = None

    @property
    def frame(self) -> bytes:
        """The line that a watch of everything sends for this change."""
        if self._frame is None:
            self._frame = frame(self.type, self.entry.data)
        return self._frame

    def seen_by(self, selection: Selection) -> EventType | None:
        """Return what a watch of this selection sees: an object that starts or stops to match comes or goes."""
        now = self.type != "DELETED" and selection.matches(self.entry)
        before = self.previous is not None and selection.matches(self.previous)
        if now:
            return "MODIFIED" if before else "ADDED"
        return "DELETED" if before else None


def frame(type_: str, data: bytes) -> bytes:
    """Return one line of a watch."""
    return b'{"type":"' + type_.encode() + b'","object":' + data + b"}\n"


class Subscription:
    """The changes of one table since some resourceVersion, as one watch takes them."""

    #: A watch that falls this far behind is closed, as the API server does, rather than kept in memory.
    LIMIT = 100_000

    def __init__(self, backlog: Iterable[Change]) -> None:
        self._pending: list[Change] = list(backlog)
        self._wake = asyncio.Event()
        self.closed = False
        if self._pending:
            self._wake.set()

    def push(self, change: Change) -> None:
        """Hand over a change."""
        self._pending.append(change)
        if len(self._pending) > self.LIMIT:
            self.close()
        self._wake.set()

    def close(self) -> None:
        """End the subscription; what is pending may still be taken."""
        self.closed = True
        self._wake.set()

    async def take(self, timeout_s: float) -> list[Change]:
        """Return all pending changes, waiting for the first at most `timeout_s`; empty on time-out or when closed."""
        if not self._pending and not self.closed:
            with suppress(TimeoutError):  # in the moment in which time is up something may come all the same
                async with asyncio.timeout(timeout_s):
                    await self._wake.wait()
        self._wake.clear()
        taken, self._pending = self._pending, []
        return taken


class Table:
    """All objects of one kind, by namespace and name, with the recent history of changes."""

    def __init__(self, key: StorageKey, selectable: tuple[str, ...], history: int) -> None:
        self.key, self.selectable = key, selectable
        self._namespaces: dict[str, dict[str, Entry]] = {}
        self._history: deque[Change] = deque(maxlen=history)
        #: Watches may start from this resourceVersion or a later one.
        self.compacted = 0
        self._subscriptions: set[Subscription] = set()

    def __len__(self) -> int:
        return sum(map(len, self._namespaces.values()))

    def get(self, namespace: str, name: str) -> Entry | None:
        """Return the current version of an object, or None."""
        return self._namespaces.get(namespace, {}).get(name)

    def select(self, selection: Selection, at: int | None = None) -> list[Entry]:
        """Return the matching entries in the order of their keys, as of a resourceVersion or as they are.

        Raises:
            ApiError: 410 when the history no longer reaches back so far.
        """
        stored = self._namespaces if at is None else self._as_of(at)
        if selection.namespace is None:
            spaces: Iterator[dict[str, Entry]] = (stored[name] for name in sorted(stored))
        else:
            spaces = iter([stored.get(selection.namespace, {})])
        return [space[name] for space in spaces for name in sorted(space) if selection.matches(space[name])]

    def record(self, change: Change) -> None:
        """Make a change the current state and tell every watch."""
        entry = change.entry
        space = self._namespaces.setdefault(entry.namespace, {})
        if change.type == "DELETED":
            del space[entry.name]
            if not space:
                del self._namespaces[entry.namespace]
        else:
            space[entry.name] = entry
        if self._history.maxlen == len(self._history):
            self.compacted = self._history[0].entry.rv if self._history else entry.rv
        self._history.append(change)
        for subscription in self._subscriptions:
            subscription.push(change)

    def subscribe(self, since: int) -> Subscription:
        """Follow all changes after a resourceVersion.

        Raises:
            ApiError: 410 when the history no longer reaches back so far.
        """
        subscription = Subscription(reversed(self._newest_first(since)))
        self._subscriptions.add(subscription)
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """Stop following."""
        self._subscriptions.discard(subscription)

    def _newest_first(self, since: int) -> list[Change]:
        """Return all changes after a resourceVersion."""
        if since < self.compacted:
            raise expired(f"too old resource version: {since} ({self.compacted})")
        return list(itertools.takewhile(lambda change: change.entry.rv > since, reversed(self._history)))

    def _as_of(self, rv: int) -> dict[str, dict[str, Entry]]:
        """Return what was stored at a resourceVersion: what is, with all later changes undone."""
        undone = self._newest_first(rv)
        if not undone:
            return self._namespaces
        spaces = {name: dict(space) for name, space in self._namespaces.items()}
        for change in undone:
            space = spaces.setdefault(change.entry.namespace, {})
            if change.previous is None:
                del space[change.entry.name]
            else:
                space[change.entry.name] = change.previous
        return spaces

    def compact(self) -> None:
        """Forget the history, as etcd's compaction does; older watches are answered 410."""
        if self._history:
            self.compacted = self._history[-1].entry.rv
            self._history.clear()

    def close_watches(self) -> None:
        """End every subscription."""
        for subscription in self._subscriptions:
            subscription.close()


class Store:
    """All tables under one resourceVersion.

    Args:
        history: how many changes each table remembers for watches that resume.
    """

    def __init__(self, history: int = 4096) -> None:
        self.rv = 1
        self._history = history
        self._tables: dict[StorageKey, Table] = {}
        self._dependents: dict[str, set[tuple[StorageKey, str, str]]] = {}
        self._uids: set[str] = set()
        #: Called, in order, after each change; they must not raise and must not write at once.
        self.listeners: list[Callable[[Table, Change], None]] = []

    def table(self, key: StorageKey, selectable: tuple[str, ...] = ()) -> Table:
        """Return the table of a kind, made on first use."""
        found = self._tables.get(key)
        if found is None:
            found = self._tables[key] = Table(key, selectable, self._history)
            found.compacted = self.rv if self.rv > 1 else 0
        return found

    def tables(self) -> list[Table]:
        """Return all tables."""
        return list(self._tables.values())

    def drop(self, key: StorageKey) -> None:
        """Forget a kind; its watches end."""
        table = self._tables.pop(key, None)
        if table is not None:
            table.close_watches()

    def write(self, table: Table, obj: Obj, previous: Entry | None) -> Entry:
        """Store an object under a new resourceVersion; `previous` is the version it replaces, None for a new one.

        Raises:
            ApiError: 500 for one that is larger than etcd takes.
        """
        entry = self._entry(table, obj)
        if len(entry.data) > _OBJECT_LIMIT_BYTES:
            raise ApiError(500, "", "etcdserver: request is too large")
        self._link(table, previous, entry)
        self._record(table, Change("ADDED" if previous is None else "MODIFIED", entry, previous))
        return entry

    def remove(self, table: Table, obj: Obj, previous: Entry) -> Entry:
        """Delete an object; `obj` is its last state, which the watches are told under a new resourceVersion."""
        entry = self._entry(table, obj)
        self._link(table, previous, None)
        self._record(table, Change("DELETED", entry, previous))
        return entry

    def dependents(self, uid: str) -> list[tuple[Table, Entry]]:
        """Return the objects that name this uid as an owner."""
        found: list[tuple[Table, Entry]] = []
        for key, namespace, name in self._dependents.get(uid, ()):
            table = self._tables[key]
            entry = table.get(namespace, name)
            if entry is None:
                raise RuntimeError(f"the owner index names {key} {namespace}/{name}, which is not stored")
            found.append((table, entry))
        return found

    def exists(self, uid: str) -> bool:
        """Return whether an object with this uid is stored."""
        return uid in self._uids

    def _entry(self, table: Table, obj: Obj) -> Entry:
        self.rv += 1
        obj["metadata"]["resourceVersion"] = str(self.rv)
        # First, so that a list of a built-in kind, whose items go without, need only leave out a known beginning.
        obj = {"kind": obj["kind"], "apiVersion": obj["apiVersion"], **obj}
        return Entry(obj, self.rv, table.selectable)

    def _record(self, table: Table, change: Change) -> None:
        table.record(change)
        for listener in self.listeners:
            listener(table, change)

    def _link(self, table: Table, previous: Entry | None, entry: Entry | None) -> None:
        """Keep the index of owners: `entry` takes the place of `previous`; either may be absent."""
        if previous is not None:
            self._uids.discard(previous.uid)
            for uid in previous.owners:
                dependents = self._dependents[uid]
                dependents.discard((table.key, previous.namespace, previous.name))
                if not dependents:
                    del self._dependents[uid]
        if entry is not None:
            self._uids.add(entry.uid)
            for uid in entry.owners:
                self._dependents.setdefault(uid, set()).add((table.key, entry.namespace, entry.name))
