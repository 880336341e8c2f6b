"""How a write or a deletion is to be done, as the options of a request say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from fermata.sim.kube.resources import Obj


@dataclass(slots=True)
class WriteOptions:
    """How a write is to be done.

    Args:
        dry_run: answer as if, and store nothing.
        field_validation: what to do with fields that the kind does not have: `Ignore`, `Warn` or `Strict`.
        field_manager: who writes; needed by server-side apply.
        force: take over fields that another manager applied.
        warnings: filled with what the client should be told.
        admit: asked with (new, old or None) before an object is stored; raises an ApiError to refuse it.
    """

    dry_run: bool
    field_validation: str
    field_manager: str
    force: bool
    warnings: list[str]
    admit: Callable[[Obj, Obj | None], None] | None = None

    @classmethod
    def plain(cls) -> WriteOptions:
        """Return the options of a write that asks for nothing special."""
        return cls(False, "Ignore", "", False, [])


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """How a deletion is to be done; None leaves it to the kind."""

    propagation: str | None = None
    grace_s: int | None = None
    uid: str | None = None
    resource_version: str | None = None
    dry_run: bool = False
