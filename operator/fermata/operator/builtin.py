"""Built-in policies, as a pool names them: what its `spec.fallback` becomes, and which names there are not.

Knows no cluster, so that `fermata validate` says the same as the operator.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fermata.operator import reasons
from fermata.operator.validate import Problem
from fermata.policy import registry
from fermata.policy.decide import Policy
from fermata.policy.errors import FermataError, InputError
from fermata.policy.heuristics.base import Heuristic
from fermata.policy.heuristics.sjf import SJF


class UnusablePolicyError(FermataError):
    """A policy that cannot decide, with the reason for the condition."""

    def __init__(self, reason: str, message: str) -> None:
        self.reason, self.message = reason, message
        super().__init__(message)


def load_named(name: str) -> Policy:
    """Return the policy that a pool names.

    Raises:
        InputError: no such policy or parameter.
        ModelError: its model cannot be run.
    """
    return registry.load(name, or_file="a model of your own in spec.policy.model")


def load_fallback(name: str) -> Policy:
    """Return the work-conserving policy that decides where a pool's own cannot.

    Raises:
        UnusablePolicyError: it is not a built-in heuristic.
    """
    if name.partition(":")[0] not in registry.HEURISTICS:
        known = ", ".join(sorted(registry.HEURISTICS))
        raise UnusablePolicyError(reasons.POLICY_UNKNOWN, f"spec.fallback {name!r}: expected one of {known}")
    try:
        policy = registry.load(name)
    except InputError as error:
        raise UnusablePolicyError(reasons.POLICY_UNKNOWN, f"spec.fallback: {error}") from error
    if not isinstance(policy, Heuristic):
        raise UnusablePolicyError(reasons.POLICY_UNKNOWN, f"spec.fallback {name!r}: expected a heuristic")
    return without_holds(policy)


def fallback_of(name: str) -> tuple[Policy, str]:
    """Return the fallback of a pool, `sjf` where the one that it names is none, and what is wrong with that one."""
    try:
        return load_fallback(name), ""
    except UnusablePolicyError as error:
        return SJF, f"{error}; {SJF.name} is the fallback"


def without_holds(policy: Heuristic) -> Heuristic:
    """Return a heuristic that has the order of another one and never holds: itself, if it never does."""
    eager = policy.eager()
    return policy if policy.rule == eager.rule else eager


def policy_problems(spec: Any) -> list[Problem]:
    """Return which policies a pool names that there are not: the operator would go on with others.

    Args:
        spec: of an ExecutorPool, as a user wrote it.
    """
    if not isinstance(spec, Mapping):
        return []
    policy, fallback, problems = spec.get("policy"), spec.get("fallback"), []
    name = policy.get("name") if isinstance(policy, Mapping) else None
    if isinstance(name, str) and name not in registry.LEARNED:
        try:
            load_named(name)
        except FermataError as error:
            problems.append(Problem(reasons.POLICY_UNKNOWN, f"spec.policy.name: {error}", ("spec", "policy", "name")))
    if isinstance(fallback, str):
        try:
            load_fallback(fallback)
        except UnusablePolicyError as error:
            problems.append(Problem(reasons.FALLBACK_UNKNOWN, error.message, ("spec", "fallback")))
    return problems
