"""The verbs on objects: create, read, update, patch, delete, with optimistic concurrency, status split, finalizers.

Everything here is synchronous, so a verb is one atomic step. It must not know HTTP: `server` translates.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from fermata.sim.kube import metadata, names
from fermata.sim.kube.apply import apply_patch, no_typed_patch
from fermata.sim.kube.builtin_types import clean
from fermata.sim.kube.clock import stamp
from fermata.sim.kube.errors import (
    STALE,
    ApiError,
    Cause,
    MistypedError,
    already_exists,
    bad_request,
    conflict,
    forbidden,
    invalid,
    invalid_options,
    not_found,
    required,
    unsupported_media_type,
)
from fermata.sim.kube.identity import check_identity, check_preconditions
from fermata.sim.kube.kinds import BUILTIN_KINDS, Kind
from fermata.sim.kube.patch import (
    APPLY_PATCH,
    JSON_PATCH,
    MERGE_PATCH,
    STRATEGIC_PATCH,
    json_patch,
    merge_patch,
    strategic_patch,
)
from fermata.sim.kube.resources import Resources
from fermata.sim.kube.store import Selection

if TYPE_CHECKING:
    from collections.abc import Callable

    from fermata.sim.kube.options import DeleteOptions, WriteOptions
    from fermata.sim.kube.resources import Obj, Resource
    from fermata.sim.kube.store import Entry, Store, Table

FOREGROUND_FINALIZER = "foregroundDeletion"
ORPHAN_FINALIZER = "orphan"
#: Namespaces that are never deleted.
_FOREVER = ("default", "kube-system", "kube-public")


class Api:
    """The verbs over one store.

    Args:
        store: where objects are kept.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self.resources = Resources()  #: the kinds that are served
        #: Behaviour of the custom kinds, by (group, version, plural).
        self.custom: dict[tuple[str, str, str], Kind] = {}
        self._plain = Kind()
        for resource in self.resources:
            self.table(resource)

    # Reading ------------------------------------------------------------------------------------------------------

    def table(self, resource: Resource) -> Table:
        """Return where objects of a kind are kept."""
        return self.store.table(resource.storage, resource.selectable)

    def kind(self, resource: Resource) -> Kind:
        """Return what a kind adds to the generic rules."""
        if resource.custom:
            return self.custom[resource.path]
        return BUILTIN_KINDS.get(resource.storage, self._plain)

    def entry(self, resource: Resource, namespace: str, name: str) -> Entry:
        """Return a stored object.

        Raises:
            ApiError: 404 where there is none.
        """
        entry = self.table(resource).get(namespace, name)
        if entry is None:
            raise not_found(resource, name)
        return entry

    # Writing ------------------------------------------------------------------------------------------------------

    def create(self, resource: Resource, namespace: str, obj: Obj, options: WriteOptions) -> Obj:
        """Store a new object and return it.

        Raises:
            ApiError: 404 without its namespace, 409 for a name that is taken, 422 for an invalid object.
        """
        check_identity(resource, obj, namespace, None)
        meta = obj["metadata"]
        if meta.get("resourceVersion"):
            raise ApiError(500, "", "resourceVersion should not be set on objects to be created")
        self._check_fields(resource, obj, options)
        if resource.namespaced:
            meta["namespace"] = namespace
            self._check_namespace(resource, namespace, str(meta.get("name") or meta.get("generateName") or ""))
        else:
            meta.pop("namespace", None)
        metadata.start(meta)
        kind, table = self.kind(resource), self.table(resource)
        name = str(meta.get("name") or "")
        if resource.has_status:
            obj.pop("status", None)
        if kind.has_generation:
            meta["generation"] = 1
        kind.prepare_create(obj)
        causes = self._metadata_causes(resource, meta, None)
        causes += kind.validate(obj, None)
        if causes:
            raise invalid(resource, name, causes)
        if options.admit is not None:
            options.admit(obj, None)
        if table.get(namespace, name) is not None:
            raise already_exists(resource, name)
        if not options.dry_run:
            stored = resource.to_storage(obj) if resource.to_storage else obj
            self.store.write(table, stored, None)
            meta["resourceVersion"] = stored["metadata"]["resourceVersion"]
        return obj

    def update(
        self, resource: Resource, namespace: str, name: str, obj: Obj, options: WriteOptions, *, status: bool = False
    ) -> Obj:
        """Replace an object, or its status only, and return it.

        Raises:
            ApiError: 404, 409 when based on another version than the stored one, 422 for an invalid object.
        """
        entry = self.entry(resource, namespace, name)
        check_identity(resource, obj, namespace, name)
        check_preconditions(resource, entry, obj["metadata"].get("uid") or None)
        if not obj["metadata"].get("resourceVersion") and not self.kind(resource).unconditional_update:
            cause = Cause("metadata.resourceVersion", "Invalid value: 0: must be specified for an update")
            raise invalid(resource, name, [cause])
        return self._replace(resource, entry, obj, options, status=status)

    def patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        patch_type: str,
        patch: Any,
        options: WriteOptions,
        *,
        status: bool = False,
    ) -> tuple[Obj, bool]:
        """Patch an object, or its status only; return it and whether it was created (server-side apply does).

        Raises:
            ApiError: 400 or 415 for a patch that is none, 404, 409, 422 for a result that is invalid.
        """
        if patch_type == APPLY_PATCH:
            return self._apply(resource, namespace, name, patch, options, status=status)
        functions: dict[str, Callable[[Any, Any], Any]] = {MERGE_PATCH: merge_patch, JSON_PATCH: json_patch}
        if self.kind(resource).strategic:
            functions[STRATEGIC_PATCH] = strategic_patch
        if patch_type not in functions:
            raise unsupported_media_type(
                f"the body of the request was in an unknown format - accepted media types include: "
                f"{', '.join(functions)}, {APPLY_PATCH}"
            )
        entry = self.entry(resource, namespace, name)
        obj = functions[patch_type](self._shown(resource, entry), patch)
        check_identity(resource, obj, namespace, name, patched=True)
        uid = obj["metadata"].get("uid")
        # A custom kind's status takes nothing from the metadata that come with it, not even to compare.
        if uid and uid != entry.uid and not (status and resource.custom):
            raise invalid(resource, name, [Cause("metadata.uid", f'Invalid value: "{uid}": field is immutable')])
        try:
            return self._replace(resource, entry, obj, options, status=status), False
        except MistypedError as error:
            raise invalid(resource, "", [Cause("patch", f"Invalid value: {error.message}")]) from error

    def _apply(
        self, resource: Resource, namespace: str, name: str, wanted: Any, options: WriteOptions, *, status: bool
    ) -> tuple[Obj, bool]:
        if not options.field_manager:
            raise invalid_options("PatchOptions", [required("fieldManager", "is required for apply patch")])
        if not isinstance(wanted, dict) or not wanted.get("apiVersion") or not wanted.get("kind"):
            raise bad_request("invalid object type: /, Kind=")
        check_identity(resource, wanted, namespace, name)
        if wanted["metadata"].get("managedFields") is not None:
            raise bad_request("metadata.managedFields must be nil")
        wanted["metadata"]["name"] = name
        entry = self.table(resource).get(namespace, name)
        if entry is None and status:
            raise not_found(resource, name)
        plain = copy.deepcopy(wanted)
        if unknown := clean(resource, plain) + self.kind(resource).unknown_fields(plain):
            raise no_typed_patch(resource, wanted, f".{unknown[0]}: field not declared in schema")
        merged = apply_patch(
            resource,
            None if entry is None else self._shown(resource, entry),
            wanted,
            manager=options.field_manager,
            status=status,
            force=options.force,
            list_keys=self.kind(resource).list_keys,
        )
        if entry is None:
            return self.create(resource, namespace, merged, options), True
        check_preconditions(resource, entry, merged["metadata"].get("uid") or None)
        return self._replace(resource, entry, merged, options, status=status), False

    def _replace(self, resource: Resource, entry: Entry, new: Obj, options: WriteOptions, *, status: bool) -> Obj:
        kind, old = self.kind(resource), self._shown(resource, entry)
        meta = new["metadata"]
        if meta.get("resourceVersion") and meta["resourceVersion"] != str(entry.rv):
            raise conflict(resource, entry.name, STALE)
        meta["resourceVersion"] = str(entry.rv)
        self._check_fields(resource, new, options)
        if status:
            changed = {"metadata": _status_metadata(new["metadata"], old["metadata"])}
            if not resource.custom or new.get("status") is not None:
                changed["status"] = new.get("status", {})
            new = {key: value for key, value in old.items() if key != "status"} | changed
            causes = kind.validate_status(new, old)
        else:
            metadata.keep(meta, old["metadata"])
            if resource.has_status:
                _keep_status(new, old)
            kind.prepare_update(new, old)
            if kind.has_generation and kind.desired(new) != kind.desired(old):
                meta["generation"] = int(old["metadata"].get("generation", 1)) + 1
            causes = self._metadata_causes(resource, meta, old["metadata"]) + kind.validate(new, old)
        if causes:
            raise invalid(resource, entry.name, causes)
        if options.admit is not None:
            options.admit(new, old)
        return self._settle(resource, entry, new, old, dry_run=options.dry_run)

    def _settle(self, resource: Resource, entry: Entry, new: Obj, old: Obj, *, dry_run: bool) -> Obj:
        """Store a changed object, or remove one whose deletion has nothing left to wait for."""
        if dry_run or new == old:
            return new
        table = self.table(resource)
        stored = resource.to_storage(new) if resource.to_storage else new
        if metadata.is_gone(new["metadata"]):
            self.store.remove(table, stored, entry)
        else:
            self.store.write(table, stored, entry)
        new["metadata"]["resourceVersion"] = stored["metadata"]["resourceVersion"]
        return new

    # Deleting -----------------------------------------------------------------------------------------------------

    def delete(self, resource: Resource, namespace: str, name: str, options: DeleteOptions) -> tuple[Obj, bool]:
        """Delete an object, or mark it where somebody must act first; return its last state and whether it is gone.

        Raises:
            ApiError: 404, or 409 when a precondition does not hold.
        """
        entry = self.entry(resource, namespace, name)
        check_preconditions(resource, entry, options.uid, options.resource_version)
        if resource.storage == ("", "namespaces") and name in _FOREVER:
            raise forbidden(resource, name, "this namespace may not be deleted")
        kind, obj = self.kind(resource), entry.load()
        old, meta = entry.load(), obj["metadata"]
        finalizers = list(meta.get("finalizers") or [])
        propagation = options.propagation
        if propagation is None and kind.orphans and FOREGROUND_FINALIZER not in finalizers:
            propagation = "Orphan"
        for finalizer, wanted in ((FOREGROUND_FINALIZER, "Foreground"), (ORPHAN_FINALIZER, "Orphan")):
            if propagation is not None:
                finalizers = [item for item in finalizers if item != finalizer]
                if propagation == wanted:
                    finalizers.append(finalizer)
        meta["finalizers"] = finalizers
        if resource.storage == ("", "namespaces"):
            finalizers_of_spec = obj.get("spec", {}).get("finalizers")
            if finalizers_of_spec:
                obj["status"] = {"phase": "Terminating"}
                return self._mark(resource, entry, obj, old, None, dry_run=options.dry_run), False
        grace_s = self._grace_s(kind, obj, options)
        if not finalizers and not grace_s:
            del meta["finalizers"]
            if not options.dry_run:
                self.store.remove(self.table(resource), obj, entry)
            return obj, True
        return self._mark(resource, entry, obj, old, grace_s, dry_run=options.dry_run), False

    def _mark(self, resource: Resource, entry: Entry, obj: Obj, old: Obj, grace_s: int | None, *, dry_run: bool) -> Obj:
        """Give an object its deletion time; a later deletion may only shorten the grace period."""
        meta = obj["metadata"]
        if not meta.get("finalizers"):
            meta.pop("finalizers", None)
        if not meta.get("deletionTimestamp"):
            meta["deletionTimestamp"] = stamp()
            meta["deletionGracePeriodSeconds"] = grace_s or 0
            if "generation" in meta:
                meta["generation"] += 1
        elif grace_s is not None:
            meta["deletionGracePeriodSeconds"] = min(grace_s, int(meta.get("deletionGracePeriodSeconds") or 0))
        if not dry_run and obj != old:
            self.store.write(self.table(resource), obj, entry)
        return obj

    @staticmethod
    def _grace_s(kind: Kind, obj: Obj, options: DeleteOptions) -> int:
        if not kind.graceful:
            return 0
        longest = kind.grace_s(obj)
        return longest if options.grace_s is None or longest == 0 else max(options.grace_s, 0)

    def delete_collection(self, resource: Resource, selection: Selection, options: DeleteOptions) -> list[Obj]:
        """Delete everything that matches, and return what it was."""
        chosen = self.table(resource).select(selection)
        return [self.delete(resource, entry.namespace, entry.name, options)[0] for entry in chosen]

    def amend(self, resource: Resource, entry: Entry, obj: Obj, *, dry_run: bool = False) -> Obj:
        """Store a change that the system itself makes, unchecked; removes what has nothing left to wait for."""
        return self._settle(resource, entry, obj, entry.load(), dry_run=dry_run)

    # Checks -------------------------------------------------------------------------------------------------------

    def _shown(self, resource: Resource, entry: Entry) -> Obj:
        obj = entry.load()
        return resource.from_storage(obj) if resource.from_storage else obj

    def _check_fields(self, resource: Resource, obj: Obj, options: WriteOptions) -> None:
        unknown = clean(resource, obj) + self.kind(resource).unknown_fields(obj)
        if not unknown or options.field_validation == "Ignore":
            return
        told = [f'unknown field "{path}"' for path in unknown]
        if options.field_validation == "Strict":
            as_a = f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}'
            raise MistypedError(400, "BadRequest", f"{as_a}: strict decoding error: {', '.join(told)}")
        options.warnings.extend(told)

    def _check_namespace(self, resource: Resource, namespace: str, name: str) -> None:
        spaces = self.resources.core("namespaces")
        entry = self.table(spaces).get("", namespace)
        if entry is None:
            raise not_found(spaces, namespace)
        if entry.load()["metadata"].get("deletionTimestamp"):
            why = f"unable to create new content in namespace {namespace} because it is being terminated"
            cause = Cause("metadata.namespace", f"namespace {namespace} is being terminated", "NamespaceTerminating")
            raise forbidden(resource, name, why, [cause])

    def _metadata_causes(self, resource: Resource, meta: Obj, old: Obj | None) -> list[Cause]:
        of_extensions = resource.custom or resource.group == "apiextensions.k8s.io"
        wrong_name = names.wrong_segment if resource.group.startswith("rbac.") else names.wrong_subdomain
        if resource.storage == ("", "namespaces"):
            wrong_name = names.wrong_label
        return metadata.validate(meta, wrong_name=wrong_name, any_finalizer=of_extensions, old=old)


def _keep_status(new: Obj, old: Obj) -> None:
    if "status" in old:
        new["status"] = old["status"]
    else:
        new.pop("status", None)


def _status_metadata(new: Obj, old: Obj) -> Obj:
    """Return an object's metadata after a write of its status: unchanged, but for who applied what."""
    owned = new.get("managedFields", old.get("managedFields"))
    rest = {key: value for key, value in old.items() if key != "managedFields"}
    return rest | {"managedFields": owned} if owned else rest
