"""What a scheduler may do, and what makes an action legal.

Three kinds: start a ready stage with a parallelism cap (or raise the cap of one that runs); hold a stage that could
start now until a committed time; wait until the next event, with an optional wake-up. A wait leaves every free executor
idle.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from fermata.policy._jit import inlined, kernel
from fermata.policy.board import Board, state_of
from fermata.policy.errors import FermataError

START, HOLD, WAIT = 0, 1, 2


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
def startable(board: Board, stage: int) -> bool:
    """Tell whether START of `stage` is legal for some cap now."""
    row, pool = board.stages[stage], board.pool[0]
    if row.pending <= 0 or pool.free < row.slots or row.running >= row.max_cap:
        return False
    return row.ready_s <= pool.now_s and not row.hold_until_s > pool.now_s


@kernel
def any_startable(board: Board) -> bool:
    """Tell whether there is anything to decide."""
    if board.pool[0].free > 0:
        for i in range(board.pool[0].ready):
            if startable(board, board.ready[i]):
                return True
    return False


@kernel
def problem_of(board: Board, kind: int, stage: int, cap: int, until_s: float) -> int:
    """Return LEGAL, or the code of what is wrong with an action in this state."""
    now_s, free = board.pool[0].now_s, board.pool[0].free
    if kind == WAIT:
        if not until_s > now_s:
            return 6
        return 7 if math.isinf(until_s) and free == len(board.executors) else LEGAL
    if kind != START and kind != HOLD:
        return 1
    if stage < 0 or stage >= len(board.stages):
        return 2
    row = board.stages[stage]
    if row.pending <= 0 or not row.ready_s <= now_s:
        return 3
    if row.hold_until_s > now_s:
        return 9
    if free < row.slots:
        return 4
    if kind == START:
        return LEGAL if row.running < cap <= row.max_cap else 5
    if row.cap > 0:
        return 8
    return LEGAL if until_s > now_s and not math.isinf(until_s) else 6


def check(board: Board, action: Action) -> None:
    """Raise `IllegalActionError`, with the whole story, unless `action` is legal on this board."""
    problem = problem_of(board, action.kind, action.stage, action.cap, action.until_s)
    if problem != LEGAL:
        state = state_of(board)
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
