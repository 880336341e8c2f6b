"""What deletion entails: dependents of a deleted owner, the content of a namespace or of a custom kind, lost nodes.

Follows the store and acts through `api`, each step on its own, so that a large cascade does not hold up requests.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from typing import TYPE_CHECKING

from fermata.sim.kube.api import FOREGROUND_FINALIZER, ORPHAN_FINALIZER
from fermata.sim.kube.clock import stamp
from fermata.sim.kube.definitions import CRDS
from fermata.sim.kube.errors import ApiError
from fermata.sim.kube.failure_policy import disrupted
from fermata.sim.kube.kinds.crd import CLEANUP_FINALIZER
from fermata.sim.kube.options import DeleteOptions, WriteOptions
from fermata.sim.kube.store import Selection
from fermata.sim.kube.subresources import finalize

if TYPE_CHECKING:
    from collections.abc import Callable

    from fermata.sim.kube.api import Api
    from fermata.sim.kube.resources import Obj
    from fermata.sim.kube.store import Change, Entry, Table

log = logging.getLogger(__name__)

_NAMESPACES, _NODES, _EVENTS = ("", "namespaces"), ("", "nodes"), ("", "events")
_EVENT_SWEEP_S = 10.0
_AT_ONCE = DeleteOptions(propagation="Background", grace_s=0)
_BACKGROUND = DeleteOptions(propagation="Background")


class Janitor:
    """Carries out what deletions entail.

    Args:
        api: the verbs.
        event_ttl_s: how long Events are kept, in seconds.
    """

    def __init__(self, api: Api, *, event_ttl_s: float) -> None:
        self._api = api
        #: When each Event is to be forgotten, oldest first: (monotonic time, namespace, name, uid).
        self._events: deque[tuple[float, str, str, str]] = deque()
        self._event_ttl_s = event_ttl_s
        self._queue: asyncio.Queue[Callable[[], None]] = asyncio.Queue()
        #: Objects that wait for something to be gone: foreground owners by uid, namespaces and definitions by name.
        self._owners: dict[str, tuple[Table, str, str]] = {}
        self._namespaces: set[str] = set()
        self._definitions: dict[tuple[str, str], str] = {}
        api.store.listeners.append(self._on_change)

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            self._forget_events()
            try:
                async with asyncio.timeout(_EVENT_SWEEP_S):
                    step = await self._queue.get()
            except TimeoutError:
                continue
            try:
                step()
            except ApiError as error:
                if error.code != 404:  # else somebody else was faster
                    log.warning("what a deletion entails could not be done, and is left: %s", error)
            await asyncio.sleep(0)

    def _later(self, step: Callable[[], None]) -> None:
        self._queue.put_nowait(step)

    def _on_change(self, table: Table, change: Change) -> None:
        entry = change.entry
        if change.type == "DELETED":
            self._later(lambda: self._owner_gone(entry.uid))
            self._owners.pop(entry.uid, None)
            self._someone_gone(table, entry)
            return
        if table.key == _EVENTS and change.previous is None:
            self._events.append((time.monotonic() + self._event_ttl_s, entry.namespace, entry.name, entry.uid))
        if entry.owners and (change.previous is None or change.previous.owners != entry.owners):
            self._later(lambda: self._check_owners(table, entry.namespace, entry.name))
        if b'"deletionTimestamp"' in entry.data:
            self._being_deleted(table, entry)

    def _someone_gone(self, table: Table, entry: Entry) -> None:
        """Look again at whoever may have waited for this object to be gone."""
        for uid in entry.owners:
            if uid in self._owners:
                self._later(lambda uid=uid: self._foreground(uid))  # type: ignore[misc]
        if entry.namespace in self._namespaces:
            self._later(lambda: self._empty_namespace(entry.namespace))
        if table.key in self._definitions:
            self._later(lambda: self._empty_definition(table.key))
        if table.key == _NODES:
            self._later(lambda: self._node_gone(entry.name))
        if table.key == _NAMESPACES:
            self._namespaces.discard(entry.name)

    def _being_deleted(self, table: Table, entry: Entry) -> None:
        obj = entry.load()
        finalizers = obj["metadata"].get("finalizers") or []
        if FOREGROUND_FINALIZER in finalizers:
            self._owners[entry.uid] = (table, entry.namespace, entry.name)
            self._later(lambda: self._foreground(entry.uid))
        if ORPHAN_FINALIZER in finalizers:
            self._later(lambda: self._orphan(table, entry))
        if table.key == _NAMESPACES and obj["metadata"].get("deletionTimestamp"):
            self._namespaces.add(entry.name)
            self._later(lambda: self._empty_namespace(entry.name))
        if table.key == CRDS and CLEANUP_FINALIZER in finalizers:
            key = (obj["spec"]["group"], obj["spec"]["names"]["plural"])
            self._definitions[key] = entry.name
            self._later(lambda: self._empty_definition(key))

    # Owners -------------------------------------------------------------------------------------------------------

    def _owner_gone(self, uid: str) -> None:
        for table, entry in self._api.store.dependents(uid):
            self._later(lambda table=table, entry=entry: self._check_owners(table, entry.namespace, entry.name))  # type: ignore[misc]

    def _check_owners(self, table: Table, namespace: str, name: str) -> None:
        """Delete an object none of whose owners exists; else take the owners that do not out of its list."""
        entry = table.get(namespace, name)
        if entry is None:
            return
        living = [uid for uid in entry.owners if self._api.store.exists(uid)]
        if len(living) == len(entry.owners):
            return
        if not living:
            self._delete(table, entry, _BACKGROUND)
            return
        self._edit(table, entry, lambda meta: _keep_owners(meta, living))

    def _foreground(self, uid: str) -> None:
        """Delete an owner's dependents; let the owner go when none is left that blocks it."""
        where = self._owners.get(uid)
        owner = None if where is None else where[0].get(*where[1:])
        if where is None or owner is None:
            return
        blocked = False
        for table, entry in self._api.store.dependents(uid):
            obj = entry.load()
            references = obj["metadata"].get("ownerReferences") or []
            blocked |= any(item["uid"] == uid and item.get("blockOwnerDeletion") for item in references)
            if not obj["metadata"].get("deletionTimestamp"):
                has_dependents = bool(self._api.store.dependents(entry.uid))
                options = DeleteOptions(propagation="Foreground") if has_dependents else _BACKGROUND
                self._delete(table, entry, options)
        if not blocked or not self._api.store.dependents(uid):
            self._edit(where[0], owner, lambda meta: _drop_finalizer(meta, FOREGROUND_FINALIZER))

    def _orphan(self, table: Table, owner: Entry) -> None:
        for dependents_table, entry in self._api.store.dependents(owner.uid):
            kept = [uid for uid in entry.owners if uid != owner.uid]
            self._edit(dependents_table, entry, lambda meta, kept=kept: _keep_owners(meta, kept))  # type: ignore[misc]
        current = table.get(owner.namespace, owner.name)
        if current is not None:
            self._edit(table, current, lambda meta: _drop_finalizer(meta, ORPHAN_FINALIZER))

    # Containers ---------------------------------------------------------------------------------------------------

    def _empty_namespace(self, name: str) -> None:
        namespaces = self._api.store.table(_NAMESPACES)
        entry = namespaces.get("", name)
        if entry is None or not entry.load()["metadata"].get("deletionTimestamp"):
            return
        empty = True
        for table in self._api.store.tables():
            for content in table.select(Selection(name)):
                if not content.load()["metadata"].get("deletionTimestamp"):
                    self._delete(table, content, _BACKGROUND)
                empty &= table.get(name, content.name) is None
        if empty:
            namespace = self._api.resources.core("namespaces")
            finalize(self._api, namespace, name, {"spec": {"finalizers": []}}, WriteOptions.plain())

    def _empty_definition(self, key: tuple[str, str]) -> None:
        table = self._api.store.table(key)
        for entry in table.select(Selection()):
            if not entry.load()["metadata"].get("deletionTimestamp"):
                self._delete(table, entry, _BACKGROUND)
        definitions = self._api.store.table(CRDS)
        definition = definitions.get("", self._definitions.get(key, ""))
        if len(table) == 0 and definition is not None:
            del self._definitions[key]
            self._edit(definitions, definition, lambda meta: _drop_finalizer(meta, CLEANUP_FINALIZER))

    def _node_gone(self, name: str) -> None:
        """End the pods of a node that no longer exists: no kubelet will."""
        resource = self._api.resources.core("pods")
        table = self._api.table(resource)
        for entry in table.select(Selection()):
            pod = entry.load()
            if pod["spec"].get("nodeName") != name:
                continue
            if pod["status"].get("phase") not in ("Succeeded", "Failed"):
                message = f"node {name} no longer exists"
                pod["status"].update(phase="Failed", reason="NodeLost", message=message)
                disrupted(pod["status"], "DeletionByPodGC", message, stamp())
                options = WriteOptions.plain()
                self._api.update(resource, entry.namespace, entry.name, pod, options, status=True)
            self._api.delete(resource, entry.namespace, entry.name, _AT_ONCE)

    def _forget_events(self) -> None:
        table = self._api.store.table(_EVENTS)
        while self._events and self._events[0][0] <= time.monotonic():
            _, namespace, name, uid = self._events.popleft()
            entry = table.get(namespace, name)
            if entry is not None and entry.uid == uid:
                self._delete(table, entry, _BACKGROUND)

    # Steps --------------------------------------------------------------------------------------------------------

    def _delete(self, table: Table, entry: Entry, options: DeleteOptions) -> None:
        resource = self._api.resources.of_storage(table.key)
        if resource is not None:
            self._api.delete(resource, entry.namespace, entry.name, options)

    def _edit(self, table: Table, entry: Entry, change: Callable[[Obj], None]) -> None:
        resource = self._api.resources.of_storage(table.key)
        current = table.get(entry.namespace, entry.name)
        if resource is None or current is None or current.uid != entry.uid:
            return
        obj = current.load()
        change(obj["metadata"])
        self._api.amend(resource, current, obj)


def _keep_owners(meta: Obj, uids: list[str]) -> None:
    kept = [owner for owner in meta.get("ownerReferences") or [] if owner["uid"] in uids]
    meta["ownerReferences"] = kept
    if not kept:
        del meta["ownerReferences"]


def _drop_finalizer(meta: Obj, finalizer: str) -> None:
    kept = [item for item in meta.get("finalizers") or [] if item != finalizer]
    meta["finalizers"] = kept
    if not kept:
        del meta["finalizers"]
