"""Everything that is to be said of one model, in numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fermata.policy.errors import InputError
from fermata.policy.features import FEATURES
from fermata.policy.graph_policy import GraphPolicy
from fermata.policy.guardrails import NO_LIMITS, Guardrails
from fermata.policy.learned import ACTIONS
from fermata.policy.onnx_policy import OnnxPolicy
from fermata.sim.explain.dependence import Curve, Dependence, dependence
from fermata.sim.explain.distributions import Distribution, distributions
from fermata.sim.explain.graph import collect_graphs, dependence_on_next, permuted_inputs
from fermata.sim.explain.importance import Importance, jct_without, permuted
from fermata.sim.explain.scored import permuted_scores
from fermata.sim.explain.states import States, Workload, collect, interval, places_of
from fermata.sim.json_values import only_finite
from fermata.sim.metrics import Interval

STATES = 500  # of an episode
_QUARTILES = (25, 50, 75)


@dataclass(frozen=True)
class Behaviour:
    """What a model does in one workload; means over seeds."""

    name: str
    decisions: int
    shares: tuple[Interval, ...]  # [3] of the decisions, by action
    avg_jct_s: Interval
    avg_held_s: Interval


@dataclass(frozen=True)
class Explanation:
    """What a model learned."""

    name: str
    digest: str
    states: States
    behaviour: tuple[Behaviour, ...]
    importance: tuple[Importance, ...]  # features, the most important first, then groups, likewise
    distributions: tuple[Distribution, ...]  # the most telling first
    dependence: Dependence
    scored: tuple[Importance, ...] = ()  # what scores depend on where tasks take several executors, likewise

    @property
    def features(self) -> list[Importance]:
        """The importance of single features."""
        return [each for each in self.importance if not each.group]

    @property
    def groups(self) -> list[Importance]:
        """The importance of groups."""
        return [each for each in self.importance if each.group]

    def as_dict(self) -> dict[str, Any]:
        """Return all numbers as one JSON object; what is unknown is null."""
        found = {
            "model": self.name,
            "sha256": self.digest,
            "seeds": list(self.states.seeds),
            "states": len(self.states.rows),
            "held_states": int(self.states.held.sum()),
            "scenarios": {each.name: _behaviour(each) for each in self.behaviour},
            "importance": [_importance(each) for each in self.features],
            "groups": [_importance(each) for each in self.groups],
            "scored_states": int(self.states.scored.sum()),
            "scored": [_importance(each) for each in self.scored],
            "distributions": [_distribution(each) for each in self.distributions],
            "dependence": {
                "states": self.dependence.states,
                "on_next_completion": [_curve(each, "waiting_longs") for each in self.dependence.on_next],
                "on_waiting_longs": [_curve(each, "next_completion") for each in self.dependence.on_longs],
            },
        }
        known: dict[str, Any] = only_finite(found)
        return known


def explain_graph(
    policy: GraphPolicy,
    workloads: Sequence[Workload],
    seeds: Sequence[int],
    *,
    limits: Guardrails = NO_LIMITS,
    most: int = STATES,
    progress: Callable[[float], object] = lambda _: None,
) -> Explanation:
    """Say the same of a graph policy, as far as it has a meaning; see `fermata.sim.explain.graph`.

    Raises:
        InputError: nothing to explain from, or a warm-up that leaves no job.
        ModelError: the model fails or answers NaN.
        StuckError: it waits although nothing will happen any more.
    """
    if not workloads or not seeds or most < 1:
        raise InputError("expected at least one workload, one seed and one state of each episode")
    found = collect_graphs(policy, workloads, seeds, limits, most, lambda share: progress(0.5 * share))
    return Explanation(
        name=policy.name,
        digest=policy.digest,
        states=found.states,
        behaviour=tuple(_behaviours(found.states)),
        importance=tuple(permuted_inputs(policy, found, lambda share: progress(0.5 + 0.5 * share))),
        distributions=tuple(distributions(found.states)),
        dependence=dependence_on_next(policy, found),
    )


def explain(
    policy: OnnxPolicy,
    workloads: Sequence[Workload],
    seeds: Sequence[int],
    *,
    limits: Guardrails = NO_LIMITS,
    most: int = STATES,
    top: int = 6,
    progress: Callable[[float], object] = lambda _: None,
) -> Explanation:
    """Say what a model learned, from what it does and answers in episodes.

    Args:
        policy: the model.
        workloads: where it decides.
        seeds: of the episodes, the same for each workload; intervals are over them.
        limits: on its holding.
        most: states that are kept of each episode.
        top: how many features, beside the groups, are taken from it in whole episodes; 0: none, and no group either.
        progress: told the share of the work that is done, 0 to 1.

    Raises:
        InputError: nothing to explain from, or a warm-up that leaves no job.
        ModelError: the model fails or answers NaN.
        StuckError: it waits although nothing will happen any more.
    """
    if not workloads or not seeds or most < 1 or top < 0:
        raise InputError("expected at least one workload, one seed and one state of each episode")
    runs = 1 + (min(top, len(FEATURES)) + 1 if top else 0)
    states = collect(policy, workloads, seeds, limits, most, lambda share: progress(0.8 * share / runs))
    tested = permuted(policy, states, lambda share: progress((0.8 + 0.2 * share) / runs))
    tested.sort(key=lambda each: (each.group, -each.changed.mean, -each.shift.mean))
    if top:
        places = places_of(workloads, seeds)
        single = [each for each in tested if not each.group][:top]
        tried = [*single, *(each for each in tested if each.group)]
        for done, each in enumerate(tried, 1):
            change = jct_without(policy, places, states, each.columns, limits)
            tested[tested.index(each)] = replace(each, jct_percent=change)
            progress((1 + (runs - 1) * done / len(tried)) / runs)
    return Explanation(
        name=policy.name,
        digest=policy.digest,
        states=states,
        behaviour=tuple(_behaviours(states)),
        importance=tuple(tested),
        distributions=tuple(distributions(states)),
        dependence=dependence(policy, states),
        scored=tuple(permuted_scores(states, np.array(policy.slot_weights))),
    )


def _behaviours(states: States) -> list[Behaviour]:
    found = []
    for number, name in enumerate(states.workloads):
        taken = states.taken[number]  # [seeds, 3]
        shares = taken / taken.sum(axis=1, keepdims=True)
        outcomes = np.array(states.outcomes[number])
        found.append(
            Behaviour(
                name=name,
                decisions=int(taken.sum()),
                shares=tuple(interval(shares[:, [action]].T) for action in range(len(ACTIONS))),
                avg_jct_s=interval(outcomes[:, [0]].T),
                avg_held_s=interval(outcomes[:, [1]].T),
            )
        )
    return found


def _behaviour(found: Behaviour) -> dict[str, Any]:
    return {
        "decisions": found.decisions,
        "actions": {name: share._asdict() for name, share in zip(ACTIONS, found.shares, strict=True)},
        "avg_jct_s": found.avg_jct_s._asdict(),
        "avg_held_s": found.avg_held_s._asdict(),
    }


def _importance(found: Importance) -> dict[str, Any]:
    return {
        "name": found.name,
        "features": [FEATURES[column] for column in found.columns],
        "changed_decisions": found.changed._asdict(),
        "shift_mean_jct": found.shift._asdict(),
        "jct_percent_without": None if found.jct_percent is None else found.jct_percent._asdict(),
    }


def _distribution(found: Distribution) -> dict[str, Any]:
    rows = {"all": found.every, "held": found.held}
    quartiles = {name: np.percentile(values, _QUARTILES).tolist() for name, values in rows.items()}
    return {"feature": found.name, "distance": found.distance, "quartiles": quartiles}


def _curve(found: Curve, fixed: str) -> dict[str, Any]:
    return {
        fixed: found.fixed,
        "at": found.at.tolist(),
        "held": [each._asdict() for each in found.held],
        "saves_mean_jct": [each._asdict() for each in found.saves],
    }
