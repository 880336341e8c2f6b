"""The scheduler: a pure function from a state and a policy to actions.

The simulator and the operator both call it, so a policy means the same thing in both and a recorded state replays to
the same answer. No clock, no I/O, no random state.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Protocol

from fermata.policy.action import WAIT, Action, any_startable, check
from fermata.policy.board import Board, board_of, state_of
from fermata.policy.guardrails import IDLE_POOL, PASSED, Guardrails, admit
from fermata.policy.state import ClusterState
from fermata.policy.transition import take


class Policy(Protocol):
    """Chooses one action at a time; must be deterministic and keep no memory between calls."""

    @property
    def name(self) -> str:
        """Name that the command line, reports and conditions use."""
        ...

    def choose(self, state: ClusterState) -> Action:
        """Return one legal action for a state in which at least one stage is startable."""
        ...


def corrects_estimates(policy: Policy) -> bool:
    """Tell whether a policy wants estimates corrected by what finished stages took (`fermata.policy.correction`).

    One that says nothing of it gets them as they are given.
    """
    return bool(getattr(policy, "corrects_estimates", False))


class BoardPolicy(ABC):
    """A policy made of kernels: it reads the board, so that nothing is copied between its actions."""

    @abstractmethod
    def act(self, board: Board) -> Action:
        """Return one legal action for a board on which at least one stage is startable; leaves the board unchanged."""

    def choose(self, state: ClusterState) -> Action:
        """Return one legal action for a state in which at least one stage is startable."""
        return self.act(board_of(state))

    def acting_on(self, board: Board) -> Callable[[], Action]:
        """Return what gives the actions of one decision, as `act` would, while legal actions are taken on the board.

        A policy overrides it that can prepare something for all of them.
        """
        return partial(self.act, board)


class Step(NamedTuple):
    """One admitted action, what the policy had proposed, and the guardrail that changed it."""

    action: Action
    proposed: Action
    override: int = PASSED  # see `fermata.policy.guardrails`


def _asking(policy: Policy, board: Board) -> Callable[[], Action]:
    """Return what gives the actions that a policy chooses on a board, one after the other."""
    if isinstance(policy, BoardPolicy):
        return policy.acting_on(board)
    return lambda: policy.choose(state_of(board))


def decide(state: ClusterState, policy: Policy, limits: Guardrails, fallback: Policy) -> tuple[Step, ...]:
    """Return what to do now: starts and holds in order, closed by a wait if something startable is left waiting.

    Args:
        state: what the scheduler sees; left unchanged.
        policy: asked again after each of its own actions, until it waits or nothing is startable.
        limits: guardrails that bound its waits.
        fallback: a work-conserving policy, asked where the guardrails forbid to wait at all.

    Raises:
        IllegalActionError: the policy answered with an action that the state does not allow.
    """
    if state.free == 0:
        return ()
    board = board_of(state)
    ask = _asking(policy, board)
    steps: list[Step] = []
    while any_startable(board):
        proposed = ask()
        action, override = admit(board, proposed, limits)
        if override == IDLE_POOL:
            action = _asking(fallback, board)()
        check(board, action)
        steps.append(Step(action, proposed, override))
        if action.kind == WAIT:
            break
        take(board, action)
    return tuple(steps)
