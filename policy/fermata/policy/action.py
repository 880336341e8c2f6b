"""What a scheduler may do, and what makes an action legal.

Three kinds: start a ready stage with a parallelism cap (or raise the cap of one that runs); hold one stage until a
committed time; wait until the next event, with an optional wake-up. A wait leaves every free executor idle.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from fermata.policy._jit import inlined, jit
from fermata.policy.errors import FermataError
from fermata.policy.state import ClusterState

START, HOLD, WAIT = 0, 1, 2
KIND_NAMES = ("start", "hold", "wait")


class Action(NamedTuple):
    """One step of a decision.

    `stage` and `cap` matter to START (cap in tasks; of a moldable stage in executors), `stage` and `until_s` to HOLD,
    `until_s` to WAIT (+inf: until the next event, whatever it is).
    """

    kind: int
    stage: int = -1
    cap: int = 0
    until_s: float = math.inf

    def __str__(self) -> str:
        if self.kind == START:
            return f"start stage {self.stage} with cap {self.cap}"
        until = "the next event" if math.isinf(self.until_s) else f"{self.until_s:g} s"
        return f"hold stage {self.stage} until {until}" if self.kind == HOLD else f"wait until {until}"


class IllegalActionError(FermataError):
    """A policy answered with an action that this state does not allow; says which and why."""


# Why an action is illegal: codes, so that the compiled engine can return them.
LEGAL = 0
_PROBLEMS = (
    "",
    "no such kind of action",
    "no such stage",
    "the stage is not ready or has no task left to start",
    "too few executors are free",
    "the cap is not above what already runs, or above the stage's limit",
    "the wake-up time is not in the future, or is NaN",
    "nothing runs, so the wait needs a wake-up time",
    "the stage has been started, so it cannot be held",
    "the stage is held until a committed time",
)


@inlined
def startable(state: ClusterState, stage: int) -> bool:
    """Tell whether START of `stage` is legal for some cap now."""
    if state.stage_pending[stage] <= 0 or not state.stage_ready_s[stage] <= state.now_s:
        return False
    if state.free < state.stage_slots[stage] or state.stage_running[stage] >= state.stage_max_cap[stage]:
        return False
    return not state.stage_hold_until_s[stage] > state.now_s


@jit
def any_startable(state: ClusterState) -> bool:
    """Tell whether there is anything to decide."""
    if state.free > 0:
        for i in range(len(state.ready_stages)):
            if startable(state, state.ready_stages[i]):
                return True
    return False


@jit
def problem_of(state: ClusterState, kind: int, stage: int, cap: int, until_s: float) -> int:
    """Return LEGAL, or the code of what is wrong with an action in this state."""
    if kind == WAIT:
        if not until_s > state.now_s:
            return 6
        return 7 if math.isinf(until_s) and state.free == len(state.executor_stage) else LEGAL
    if kind != START and kind != HOLD:
        return 1
    if stage < 0 or stage >= len(state.stage_job):
        return 2
    if state.stage_pending[stage] <= 0 or not state.stage_ready_s[stage] <= state.now_s:
        return 3
    if kind == HOLD:
        if state.stage_cap[stage] > 0:
            return 8
        return LEGAL if until_s > state.now_s and not math.isinf(until_s) else 6
    if state.stage_hold_until_s[stage] > state.now_s:
        return 9
    if state.free < state.stage_slots[stage]:
        return 4
    return LEGAL if state.stage_running[stage] < cap <= state.stage_max_cap[stage] else 5


def check(state: ClusterState, action: Action) -> None:
    """Raise `IllegalActionError`, with the whole story, unless `action` is legal in `state`."""
    problem = problem_of(state, action.kind, action.stage, action.cap, action.until_s)
    if problem != LEGAL:
        stage = ""
        if action.kind != WAIT and 0 <= action.stage < len(state.stage_job):
            s = action.stage
            stage = (
                f"; stage {s}: pending {state.stage_pending[s]}, running {state.stage_running[s]}, "
                f"slots {state.stage_slots[s]}, cap {state.stage_cap[s]} of {state.stage_max_cap[s]}, "
                f"ready since {state.stage_ready_s[s]:g} s"
            )
        raise IllegalActionError(
            f"cannot {action} at {state.now_s:g} s: {_PROBLEMS[problem]} "
            f"({state.free} of {state.executors} executors free{stage})"
        )
