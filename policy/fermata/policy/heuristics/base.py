"""A heuristic as a policy: a name, a rule for the compiled kernel, and the parameters that a user may set."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fermata.policy._jit import COMPILED
from fermata.policy.action import Action
from fermata.policy.board import Board
from fermata.policy.decide import BoardPolicy
from fermata.policy.errors import InputError
from fermata.policy.heuristics.kernel import (
    EQUAL_SHARE,
    MAX_COUNT,
    MAX_EXPONENT,
    MEANING,
    NEVER,
    WORK_SHARE,
    InOrder,
    Rule,
    changes_with_starts,
    choose,
    choose_with,
)

WITHOUT_HOLDS = " without holds"  # ends the name of what has the order of another heuristic and never holds


@dataclass(frozen=True)
class Heuristic(BoardPolicy):
    """A rule with a name; `parameters` maps a user's parameter to the field of the rule that it sets."""

    name: str
    summary: str
    rule: Rule
    parameters: Mapping[str, str] = field(default_factory=dict)

    def act(self, board: Board) -> Action:
        """Return the rule's action for a board with something startable."""
        return Action(*choose(board, self.rule))

    def acting_on(self, board: Board) -> Callable[[], Action]:
        """Return what gives the actions of one decision: in plain Python the stages are sorted once for all of them."""
        rule = self.rule
        if COMPILED or changes_with_starts(rule) or rule.fill in (WORK_SHARE, EQUAL_SHARE):
            return super().acting_on(board)
        stages = InOrder(board, rule)
        return lambda: Action(*choose_with(board, rule, stages.first()))

    def eager(self) -> Heuristic:
        """Return the work-conserving heuristic of the same order."""
        rule = self.rule._replace(hold=NEVER)
        if rule.fill in (WORK_SHARE, EQUAL_SHARE):
            rule = rule._replace(spare=1)  # to leave them idle is to hold what could have them
        return Heuristic(f"{self.name}{WITHOUT_HOLDS}", self.summary, rule)

    def settings(self) -> dict[str, dict[str, str]]:
        """Return of each parameter its `value`, as it is written behind the name, and its `meaning`."""
        told = {}
        for key, target in sorted(self.parameters.items()):
            value = getattr(self.rule, target)
            text = str(value) if isinstance(value, int) else _shortest(value)
            told[key] = {"value": text, "meaning": MEANING[target]}
        return told

    def with_parameters(self, values: Mapping[str, float]) -> Heuristic:
        """Return the heuristic with some parameters set.

        Raises:
            InputError: it has no such parameter, one that must be whole is not, or one is too large to count with.
        """
        changes: dict[str, Any] = {}
        for key, value in values.items():
            if key not in self.parameters:
                known = ", ".join(sorted(self.parameters)) or "none"
                raise InputError(f"policy {self.name!r} has no parameter {key!r}; it has: {known}")
            target = self.parameters[key]
            kind = type(getattr(self.rule, target))
            if kind is int and not float(value).is_integer():
                raise InputError(f"policy {self.name!r}: parameter {key!r} is a whole number, got {value:g}")
            most = MAX_EXPONENT if target == "exponent" else MAX_COUNT if kind is int else math.inf
            if abs(value) > most:
                raise InputError(
                    f"policy {self.name!r}: parameter {key!r} is from -{most:g} to {most:g}, got {value:g}"
                )
            changes[target] = kind(value)
        text = ",".join(f"{key}={_shortest(value)}" for key, value in values.items())
        name = f"{self.name}:{text}" if text else self.name
        return Heuristic(name, self.summary, self.rule._replace(**changes), self.parameters)


def _shortest(value: float) -> str:
    """Return the shortest text that is this number and no other: the name of a policy says which one it is.

    >>> _shortest(2.0), _shortest(0.1), _shortest(1.2345678)
    ('2', '0.1', '1.2345678')
    """
    return text if float(text := f"{value:g}") == value else repr(value)
