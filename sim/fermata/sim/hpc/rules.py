"""What a scheduler of rigid jobs is configured with: order of the queue, start semantics, backfilling, reservations.

Only names and numbers live here; `orders.py` has the orders, `kernel.py` what they do.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from fermata.policy.errors import InputError


class Start(IntEnum):
    """What a picked job that does not fit means for the jobs behind it."""

    COMMIT = 0  # SchedInspector: it stays picked until it starts, whatever arrives meanwhile
    STRICT = 1  # the head of the order, taken anew at every event, blocks the rest
    SKIP = 2  # nothing: at every event whatever fits is started, in the order of the queue


class Backfill(IntEnum):
    """Which jobs may overtake one that does not fit."""

    NONE = 0
    EASY = 1  # whoever does not delay the first one: done before the shadow time, or in the extra cores
    CONSERVATIVE = 2  # whoever delays nobody before it: every job has a reservation, planned anew at every event
    # The rule of SchedInspector's published code, simpler than EASY in four ways: its shadow time is taken once, when
    # the head is picked, and not renewed when jobs end early; a job may not use the extra cores; it must end strictly
    # before the shadow time; and candidates come first come first served, whatever the order of the queue is.
    PUBLISHED = 3


@dataclass(frozen=True)
class Rules:
    """How jobs are started; see the enumerations for the choices.

    Args:
        start: start semantics.
        backfill: who may overtake; with `Start.SKIP` and `Backfill.NONE` everybody may.
        reserve_over_s: tau; jobs whose estimate is longer are long (seconds, infinity: none is).
        reserve_share: phi in 0 to 1; the share of the machine that a long job must leave free when it starts. On an
            idle machine it may start all the same.
        kill_at_estimate: a job that runs longer than its estimate is ended there.
        one_event_at_a_time: of several events at one instant the scheduler sees the first only, then decides; arrivals
            come before ends. For comparison with SchedInspector's published code, which decides so by accident; other
            simulators, and ours, decide when all events of an instant have happened.
    """

    start: Start = Start.COMMIT
    backfill: Backfill = Backfill.NONE
    reserve_over_s: float = float("inf")
    reserve_share: float = 0.0
    kill_at_estimate: bool = False
    one_event_at_a_time: bool = False

    def __post_init__(self) -> None:
        if not 0.0 <= self.reserve_share <= 1.0:
            raise InputError(f"reserve_share: expected 0 to 1, got {self.reserve_share:g}")
        if not self.reserve_over_s >= 0.0:
            raise InputError(f"reserve_over_s: expected 0 s or more, got {self.reserve_over_s:g}")
        if self.backfill is Backfill.PUBLISHED and self.start is not Start.COMMIT:
            raise InputError("the published backfill rule is defined for the commit semantics only")


# As SchedInspector's published simulator decides; only for comparison with it.
PUBLISHED_NO_BACKFILL = Rules(one_event_at_a_time=True)
PUBLISHED_BACKFILL = Rules(backfill=Backfill.PUBLISHED, one_event_at_a_time=True)
