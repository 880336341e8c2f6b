"""Why a stage is where it is, in a sentence with numbers: for its status, for Events and for `fermata explain`.

Pure: reads the state that a decision has left.
"""

from __future__ import annotations

from typing import NamedTuple

from fermata.operator import reasons
from fermata.policy.guardrails import Guardrails, room_to_hold
from fermata.policy.state import IDLE, ClusterState
from fermata.policy.wording import counted

_LONGEST_S = 365 * 24 * 3600.0  # what is longer is no limit that anybody set


class Why(NamedTuple):
    """A documented reason and a sentence."""

    reason: str
    message: str


PARALLELISM_REACHED = Why(reasons.PARALLELISM_REACHED, "the workflow runs as many tasks as spec.parallelism allows")


class Elsewhere(NamedTuple):
    """Executors of a pool that a policy does not see, by what has them."""

    unshown: int
    starting: int
    unseen: int
    leaving: int

    def __str__(self) -> str:
        told = (
            "under Jobs that no workflow shows",
            "for what is being started",
            "under Jobs that are not seen",
            "under pods of deleted Jobs",
        )
        return ", ".join(f"{executors} {what}" for executors, what in zip(self, told, strict=True) if executors)


def seconds(value: float) -> str:
    """Return a duration for people.

    >>> seconds(0.25), seconds(9.5), seconds(10), seconds(299)
    ('0.2 s', '9.5 s', '10 s', '299 s')
    >>> seconds(300), seconds(35999), seconds(36000)
    ('5 min', '600 min', '10 h')
    """
    if value < 10:
        return f"{value:.1f} s"
    if value < 300:
        return f"{value:.0f} s"
    return f"{value / 60:.0f} min" if value < 36000 else f"{value / 3600:.0f} h"


def next_free(state: ClusterState, elsewhere: Elsewhere) -> str:
    """Return when the next busy executor is expected to be free."""
    busy = state.executor_free_at_s[state.executor_stage != IDLE]
    if len(busy) == 0:
        return "when the next executor frees is not known" if any(elsewhere) else "no executor is busy"
    return f"the next executor frees in about {seconds(max(float(busy.min()) - state.now_s, 0.0))}"


def why_held(
    state: ClusterState, stage: int, elsewhere: Elsewhere, limits: Guardrails, until_s: float, argument: str
) -> Why:
    """Return why a stage that could start is left waiting.

    Args:
        state: after the decision.
        stage: its index there.
        elsewhere: executors of the pool that the state does not have.
        limits: of the pool.
        until_s: when the policy wants to be asked again at the latest.
        argument: what it weighed, in words; empty if it does not say (`fermata.policy.reason.words_for_wait`).
    """
    held_s, waited_s = float(state.stage_held_s[stage]), state.now_s - float(state.stage_ready_s[stage])
    room_s = room_to_hold(held_s, waited_s, limits.max_hold_s, limits.max_wait_s)
    most = "" if room_s > _LONGEST_S else f"; at most {seconds(max(room_s, 0.0))} more"
    ahead_s = max(until_s - state.now_s, 0.0)
    again = "" if ahead_s > _LONGEST_S else f"; decided again in {seconds(ahead_s)}"
    length = seconds(float(state.stage_estimate_s[stage]))
    because = f"; {argument}" if argument else ""
    text = f"held: a stage of about {length} a task; {next_free(state, elsewhere)}{most}{again}{because}"
    return Why(reasons.HELD_BY_POLICY, text)


def why_waiting(state: ClusterState, stage: int, elsewhere: Elsewhere) -> Why:
    """Return why a ready stage waits for which too few executors are free.

    Args:
        state: after the decision.
        stage: its index there.
        elsewhere: executors of the pool that the state does not have.
    """
    need = counted(int(state.stage_slots[stage]), "executor")
    others = len(state.ready_stages) - 1
    line = f"; {others} more ready" if others > 0 else ""
    free = f"{state.free} of {state.executors + sum(elsewhere)} free"
    if any(elsewhere):
        free += f", {elsewhere}"
    return Why(reasons.EXECUTORS_BUSY, f"needs {need}, {free}{line}; {next_free(state, elsewhere)}")
