"""What the reconcilers of all pools share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from fermata.operator.cluster import Cluster
from fermata.operator.events import Events
from fermata.operator.metrics import Metrics
from fermata.operator.recorder import Recorder
from fermata.operator.store import Store


@dataclass(frozen=True, slots=True)
class Tools:
    """What all pools share."""

    store: Store
    cluster: Cluster
    events: Events
    metrics: Metrics
    recorder: Recorder
    now: Callable[[], float]
    wake: Callable[[str], None]
    pending: Callable[[str], bool]  # has a pool been woken since its reconciliation began?
    leads: Callable[[], bool]  # may this operator act now?
    # Raises a ClusterError unless all that was read before is still to be acted on.
    confirm: Callable[[], Awaitable[None]]
    namespace: str | None = None  # that it serves; None: all of them
