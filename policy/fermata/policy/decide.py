"""The scheduler: a pure function from a state and a policy to actions.

The simulator and the operator both call it, so a policy means the same thing in both and a recorded state replays to
the same answer. No clock, no I/O, no random state.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from fermata.policy.action import WAIT, Action, any_startable, check
from fermata.policy.guardrails import IDLE_POOL, PASSED, Guardrails, admit
from fermata.policy.state import ClusterState
from fermata.policy.transition import owned, take


class Policy(Protocol):
    """Chooses one action at a time; must be deterministic and keep no memory between calls."""

    @property
    def name(self) -> str:
        """Name that the command line, reports and conditions use."""
        ...

    def choose(self, state: ClusterState) -> Action:
        """Return one legal action for a state in which at least one stage is startable."""
        ...


class Step(NamedTuple):
    """One admitted action, what the policy had proposed, and the guardrail that changed it."""

    action: Action
    proposed: Action
    override: int = PASSED  # index into guardrails.OVERRIDE_NAMES


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
    view = owned(state)
    steps: list[Step] = []
    while any_startable(view):
        proposed = policy.choose(view)
        action, override = admit(view, proposed, limits)
        if override == IDLE_POOL:
            action = fallback.choose(view)
        check(view, action)
        steps.append(Step(action, proposed, override))
        if action.kind == WAIT:
            break
        view = take(view, action)
    return tuple(steps)
