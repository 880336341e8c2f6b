"""What the choices depend on where tasks take several executors and scores decide, not a model's costs.

As of features: what is read of a stage is dealt out anew among all stages that could be started in the states of a
workload, and the share of the choices that change is told: another stage, or a wait instead of a start.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fermata.policy.several_slots import UNITS
from fermata.policy.slot_features import NAMES, SIZE
from fermata.sim.explain.importance import DEALS, Importance, deal
from fermata.sim.explain.states import States, something_runs
from fermata.sim.metrics import Interval
from fermata.sim.trace import FloatArray

_WAIT = -1
_UNKNOWN = Interval(float("nan"), float("nan"))


def scores(rows: FloatArray, weights: FloatArray) -> FloatArray:
    """Return the scores [stages] of what is read of them [stages, SIZE]: as in `fermata.policy.several_slots`."""
    units = weights[SIZE:].reshape(UNITS, SIZE + 1)
    return np.asarray(rows @ weights[:SIZE] + np.maximum(rows @ units[:, :SIZE].T, 0.0) @ units[:, SIZE])


def permuted_scores(states: States, weights: FloatArray) -> list[Importance]:
    """Return the importance of all that is read of stages, the most important first; none where no scores decided.

    Args:
        states: of a model.
        weights: [WEIGHTS] of its scores.
    """
    where = np.flatnonzero(states.scored)
    if not len(where):
        return []
    rows, many = np.concatenate([states.choices[i] for i in where]), np.array([len(states.choices[i]) for i in where])
    runs, workload = something_runs(states.rows[where]), np.repeat(states.workload[where], many)
    before, random, found = chosen(scores(rows, weights), many, runs), np.random.default_rng(0), []
    deals = [deal(workload, random) for _ in range(DEALS)]
    for column, name in enumerate(NAMES[:-1]):  # the last is the constant
        changed = np.full(len(states.rows), np.nan)
        changed[where] = 0.0
        for dealt in deals:
            others = rows.copy()
            others[:, column] = rows[dealt, column]
            changed[where] += (chosen(scores(others, weights), many, runs) != before) / DEALS
        found.append(Importance(name, (), False, states.over_seeds(changed), _UNKNOWN))
    return sorted(found, key=lambda each: -each.changed.mean)


def chosen(of_stages: FloatArray, many: NDArray[np.int64], runs: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Return which of all stages is started in each state [states], or that none is."""
    first = np.cumsum(many) - many
    most = np.maximum.reduceat(of_stages, first)
    best = np.where(of_stages == np.repeat(most, many), np.arange(len(of_stages)), len(of_stages))
    return np.where(runs & (most <= 0.0), _WAIT, np.minimum.reduceat(best, first))
