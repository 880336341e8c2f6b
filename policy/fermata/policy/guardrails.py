"""Bounds on deliberate idling that hold whatever a policy answers.

A policy proposes; `admit` lets a start pass and bounds a wait or a hold: no stage is held or waits longer than its
caps, and an idle pool never waits without a wake-up time (or never at all).
"""

from __future__ import annotations

import math
from typing import NamedTuple

from fermata.policy._jit import inlined, kernel
from fermata.policy.action import START, Action, startable
from fermata.policy.board import Board

# What was done with what a policy answered: let pass, a wait shortened, a wait refused as the pool is idle, what was
# held or waited for too long started instead.
PASSED, CAPPED, IDLE_POOL, AGED = 0, 1, 2, 3


class Guardrails(NamedTuple):
    """Limits in seconds; the defaults allow everything but an idle pool that waits for nothing."""

    max_hold_s: float = math.inf  # cumulative held time of one stage
    max_wait_s: float = math.inf  # time since a stage became ready (the age cap)
    hold_when_idle: bool = True  # may a timed wait leave the whole pool idle


NO_LIMITS = Guardrails()


@inlined
def room_to_hold(held_s: float, waited_s: float, max_hold_s: float, max_wait_s: float) -> float:
    """Return for how many more seconds a stage may be held; zero or less means that it is due now."""
    return min(max_hold_s - held_s, max_wait_s - waited_s)


@kernel
def most_overdue(board: Board, max_hold_s: float, max_wait_s: float) -> tuple[int, float]:
    """Return the stage that rests, startable, with the least room to hold, and that room; (-1, inf) if none.

    Ties go to the lowest index. A stage that runs does not rest, whatever is left of it.
    """
    worst, least = -1, math.inf
    now_s = board.pool[0].now_s
    for i in range(board.pool[0].ready):
        stage = board.ready[i]
        row = board.stages[stage]
        if row.running > 0 or not startable(board, stage):
            continue
        room = room_to_hold(row.held_s, now_s - row.ready_s, max_hold_s, max_wait_s)
        if room < least or (room == least and stage < worst):
            worst, least = stage, room
    return worst, least


@inlined
def full_cap(board: Board, stage: int) -> int:
    """Return the highest cap that the free executors can serve at once."""
    row, free = board.stages[stage], board.pool[0].free
    if not math.isnan(row.serial_fraction):
        return int(min(free, row.max_cap))
    return int(min(row.running + min(free // row.slots, row.pending), row.max_cap))


@inlined
def divided_cap(board: Board, stage: int) -> int:
    """Return the highest cap that can be served at once; of a moldable stage the pool over the ready stages."""
    full = full_cap(board, stage)
    if math.isnan(board.stages[stage].serial_fraction):
        return full
    return min(full, max(1, len(board.executors) // max(1, board.pool[0].ready)))


@kernel
def bound(
    board: Board, kind: int, stage: int, cap: int, until_s: float, limits: Guardrails
) -> tuple[int, int, int, float, int]:
    """Return the admitted (kind, stage, cap, until_s) and why it differs from what was asked.

    IDLE_POOL means that the caller must ask its work-conserving fallback instead.
    """
    if kind == START:
        return kind, stage, cap, until_s, PASSED
    if board.pool[0].free == len(board.executors) and (math.isinf(until_s) or not limits.hold_when_idle):
        return kind, stage, cap, until_s, IDLE_POOL
    if math.isinf(limits.max_hold_s) and math.isinf(limits.max_wait_s):
        return kind, stage, cap, until_s, PASSED
    now_s = board.pool[0].now_s
    due, room = most_overdue(board, limits.max_hold_s, limits.max_wait_s)
    # A room below the clock's resolution would ask for a wake-up at now: it is due.
    if due >= 0 and not now_s + room > now_s:
        return START, due, full_cap(board, due), math.inf, AGED
    if now_s + room < until_s:
        return kind, stage, cap, now_s + room, CAPPED
    return kind, stage, cap, until_s, PASSED


def admit(board: Board, action: Action, limits: Guardrails) -> tuple[Action, int]:
    """Return the action that the guardrails let pass, and what was done with it (PASSED, CAPPED, IDLE_POOL or AGED)."""
    kind, stage, cap, until_s, why = bound(board, action.kind, action.stage, action.cap, action.until_s, limits)
    return Action(kind, stage, cap, until_s), why
