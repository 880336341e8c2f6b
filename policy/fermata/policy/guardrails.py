"""Bounds on deliberate idling that hold whatever a policy answers.

A policy proposes; `admit` lets a start pass and bounds a wait or a hold: no stage is held or waits longer than its
caps, and an idle pool never waits without a wake-up time (or never at all).
"""

from __future__ import annotations

import math
from typing import NamedTuple

from fermata.policy._jit import inlined, jit
from fermata.policy.action import START, Action, startable
from fermata.policy.state import ClusterState

PASSED, CAPPED, IDLE_POOL, AGED = 0, 1, 2, 3
OVERRIDE_NAMES = ("Passed", "WaitShortened", "PoolIdle", "HoldCapReached")


class Guardrails(NamedTuple):
    """Limits in seconds; the defaults allow everything but an idle pool that waits for nothing."""

    max_hold_s: float = math.inf  # cumulative held time of one stage
    max_wait_s: float = math.inf  # time since a stage became ready (the age cap)
    hold_when_idle: bool = True  # may a timed wait leave the whole pool idle


@inlined
def room_to_hold(state: ClusterState, stage: int, max_hold_s: float, max_wait_s: float) -> float:
    """Return for how many more seconds `stage` may be held; zero or less means that it is due now."""
    held = max_hold_s - state.stage_held_s[stage]
    return float(min(held, max_wait_s - (state.now_s - state.stage_ready_s[stage])))


@jit
def most_overdue(state: ClusterState, max_hold_s: float, max_wait_s: float) -> tuple[int, float]:
    """Return the startable stage with the least room to hold (ties: lowest index) and that room; (-1, inf) if none."""
    worst, least = -1, math.inf
    for i in range(len(state.ready_stages)):
        stage = state.ready_stages[i]
        if state.stage_cap[stage] > 0 or not startable(state, stage):
            continue
        room = room_to_hold(state, stage, max_hold_s, max_wait_s)
        if room < least or (room == least and worst >= 0 and stage < worst):
            worst, least = stage, room
    return worst, least


@inlined
def full_cap(state: ClusterState, stage: int) -> int:
    """Return the highest cap that the free executors can serve at once."""
    if not math.isnan(state.stage_serial_fraction[stage]):
        return int(min(state.free, state.stage_max_cap[stage]))
    tasks = min(state.free // state.stage_slots[stage], state.stage_pending[stage])
    return int(min(state.stage_running[stage] + tasks, state.stage_max_cap[stage]))


@jit
def bound(
    state: ClusterState, kind: int, stage: int, cap: int, until_s: float, limits: Guardrails
) -> tuple[int, int, int, float, int]:
    """Return the admitted (kind, stage, cap, until_s) and why it differs from what was asked.

    IDLE_POOL means that the caller must ask its work-conserving fallback instead.
    """
    if kind == START:
        return kind, stage, cap, until_s, PASSED
    if state.free == len(state.executor_stage) and (math.isinf(until_s) or not limits.hold_when_idle):
        return kind, stage, cap, until_s, IDLE_POOL
    if math.isinf(limits.max_hold_s) and math.isinf(limits.max_wait_s):
        return kind, stage, cap, until_s, PASSED
    due, room = most_overdue(state, limits.max_hold_s, limits.max_wait_s)
    # A room below the clock's resolution would ask for a wake-up at now: it is due.
    if due >= 0 and not state.now_s + room > state.now_s:
        return START, due, full_cap(state, due), math.inf, AGED
    if state.now_s + room < until_s:
        return kind, stage, cap, state.now_s + room, CAPPED
    return kind, stage, cap, until_s, PASSED


def admit(state: ClusterState, action: Action, limits: Guardrails) -> tuple[Action, int]:
    """Return the action that the guardrails let pass, and an override code (index into OVERRIDE_NAMES)."""
    kind, stage, cap, until_s, why = bound(state, action.kind, action.stage, action.cap, action.until_s, limits)
    return Action(kind, stage, cap, until_s), why
