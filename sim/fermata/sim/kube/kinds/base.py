"""The questions that the generic API asks a kind, with the answers of a plain object."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fermata.sim.kube.patch import merge_key

if TYPE_CHECKING:
    from fermata.sim.kube.errors import Cause
    from fermata.sim.kube.resources import Obj


class Kind:
    """A plain object: no defaults, nothing to validate, everything may change."""

    #: Whether `metadata.generation` counts changes of the desired state.
    has_generation = True
    #: Whether PUT may leave out the resourceVersion and overwrite whatever is stored.
    unconditional_update = True
    #: Whether deletion waits for somebody (a kubelet) to stop what runs.
    graceful = False
    #: What a client is told that deletes without a word about dependents, of a kind whose dependents then stay.
    orphans = ""
    #: Whether strategic merge patch is understood; custom kinds have no merge keys.
    strategic = True

    def unknown_fields(self, obj: Obj) -> list[str]:
        """Remove the fields that the kind does not have and return their paths."""
        del obj
        return []

    def prepare_create(self, obj: Obj) -> None:
        """Set defaults on a new object."""

    def prepare_update(self, new: Obj, old: Obj) -> None:
        """Set defaults on a changed object."""

    def validate(self, obj: Obj, old: Obj | None) -> list[Cause]:
        """Return why the object cannot be stored; `old` is the version it replaces."""
        del obj, old
        return []

    def validate_status(self, obj: Obj, old: Obj) -> list[Cause]:
        """Return why a new status cannot be stored."""
        del obj, old
        return []

    def desired(self, obj: Obj) -> Obj:
        """Return the part of an object whose change raises the generation."""
        return {key: value for key, value in obj.items() if key not in ("metadata", "status")}

    def grace_s(self, obj: Obj) -> int:
        """Return how long a deletion waits for the object to stop, where none is asked for."""
        del obj
        return 0

    def list_keys(self, path: tuple[str, ...]) -> tuple[str, ...] | None:
        """Return the keys by which server-side apply merges the list at a path of field names.

        None for a list that is replaced as one value, () for a set of plain values.
        """
        if path == ("metadata", "finalizers"):
            return ()
        key = merge_key(path)
        return None if key is None else (key,)
