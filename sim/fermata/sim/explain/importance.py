"""How much a model's decisions owe to each feature, and what they would be worth without it.

Two questions with two answers. Permutation: a feature's values are dealt out anew among the states of a workload; how
many decisions change, and by how much the estimates do. And in the loop: the feature is held at its median while
whole episodes run, and what that does to the mean JCT is what knowing the feature is worth. Features that follow from
each other can stand in for one another, so the groups of `fermata.policy.reason` are put to the same test.

Nothing is exchanged between workloads: few executors with the queue of many is a state that no pool can be in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fermata.policy.features import FEATURES
from fermata.policy.guardrails import Guardrails
from fermata.policy.learned import START_HEAD, WAIT_FOR_EVENT
from fermata.policy.onnx_policy import OnnxPolicy
from fermata.policy.reason import GROUPS
from fermata.sim.explain.states import MOST_SHIFT, FeatureRows, Place, States, interval, picks, run_places
from fermata.sim.metrics import Interval
from fermata.sim.trace import FloatArray

DEALS = 3  # permutations of each feature, averaged


@dataclass(frozen=True)
class Importance:
    """What one feature, or a group of them, is to a model; half widths are NaN where there is one seed."""

    name: str
    columns: tuple[int, ...]
    group: bool
    changed: Interval  # share of the decisions that change
    shift: Interval  # mean absolute change of what waiting costs relative to the head, mean JCTs, each at most 1
    jct_percent: Interval | None = None  # change of the mean JCT without it; None: not tried


def subjects() -> list[tuple[str, tuple[int, ...], bool]]:
    """Return what is put to the test: every feature and every group, as (name, columns, is a group)."""
    features = [(name, (column,), False) for column, name in enumerate(FEATURES)]
    return features + [(group.name, tuple(group.columns), True) for group in GROUPS]


def permuted(
    policy: OnnxPolicy, states: States, progress: Callable[[float], object] = lambda _: None
) -> list[Importance]:
    """Return the importance of every feature and group by permutation, without the JCTs; the groups come last."""
    rng = np.random.default_rng(0)
    deals = [deal(states.workload, rng) for _ in range(DEALS)]
    tried = subjects()
    found = []
    for done, (name, columns, group) in enumerate(tried, 1):
        changed, shift = np.zeros(len(states.rows)), np.zeros(len(states.rows))
        for dealt in deals:
            rows = states.rows.copy()
            rows[:, columns] = states.rows[dealt][:, columns]
            now, then = _answers(policy, states, rows)
            changed += then / DEALS
            shift += now / DEALS
        shift[~states.may_wait | states.scored] = np.nan
        found.append(Importance(name, columns, group, states.over_seeds(changed), states.over_seeds(shift)))
        progress(done / len(tried))
    return found


def deal(workload: NDArray[np.intp], rng: np.random.Generator) -> NDArray[np.intp]:
    """Return a permutation of states, or of what stands in them, that leaves each in its workload [states]."""
    dealt = np.arange(len(workload))
    for number in np.unique(workload):
        where = np.flatnonzero(workload == number)
        dealt[where] = rng.permutation(where)
    return dealt


def _answers(policy: OnnxPolicy, states: States, rows: FeatureRows) -> tuple[FloatArray, FloatArray]:
    """Return, by state, the absolute change of the wait's cost relative to the head's, and whether the action changes.

    What is possible does not change: that is the state's, not the model's.
    """
    costs = policy.costs(rows)
    waits = [each[:, WAIT_FOR_EVENT] - each[:, START_HEAD] for each in (costs, states.costs)]
    changed = picks(states.rows, costs, policy.margin, states.possible) != states.picked
    return np.minimum(np.abs(waits[0] - waits[1]), MOST_SHIFT), changed.astype(np.float64)


def typical_rows(states: States) -> FeatureRows:
    """Return the median features [workloads, SIZE] of the states in which something runs; of all, where nothing does.

    Medians, since the mean of yes and no, or of a few and never, is something that a model has not been taught.
    """
    found = []
    for number in range(len(states.workloads)):
        of_it = states.workload == number
        busy = of_it & states.may_wait_for_next
        found.append(np.median(states.rows[busy if busy.any() else of_it], axis=0))
    return np.array(found, np.float32)


def jct_without(
    policy: OnnxPolicy, places: Sequence[Place], states: States, columns: Sequence[int], limits: Guardrails
) -> Interval:
    """Return the change of the mean JCT, in percent, where a model reads the medians of some features instead.

    Raises:
        ModelError, StuckError: as `run_places`.
    """
    medians = typical_rows(states)[[each.workload for each in places]]

    def change(where: NDArray[np.intp], rows: FeatureRows) -> None:
        rows[:, columns] = medians[np.ix_(where, np.array(columns))]

    outcomes = run_places(policy, places, limits, change=change)
    changes = np.full((len(states.workloads), len(states.seeds)), np.nan)
    for each, outcome in zip(places, outcomes, strict=True):
        before_s = states.outcomes[each.workload][each.seed].avg_jct_s
        changes[each.workload, each.seed] = 100.0 * (outcome.avg_jct_s / before_s - 1.0)
    return interval(changes)
