"""Partial dependence of the hold: how often a model would wait if only the next completion, or the queue, were another.

The states are those in which a long job is the shortest that waits, while most arrivals are short: there the optimal
policy is known to have a threshold in both (hold while the next completion is further than tau0 + tau1 per waiting
long). What follows from the changed number is changed with it; else the model would be asked about states that no pool
can be in.

Source: Friedman, "Greedy function approximation", Annals of Statistics 2001, section 8.2 (partial dependence).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fermata.policy.features import FEATURES
from fermata.policy.learned import START_HEAD, WAIT_FOR_EVENT
from fermata.policy.onnx_policy import OnnxPolicy
from fermata.sim.explain.states import MOST_SHIFT, FeatureRows, States, picks, possible_by
from fermata.sim.metrics import Interval
from fermata.sim.trace import FloatArray

NEXT = (0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0)  # next completion over the head's remaining work
LONGS = (1, 2, 3, 4, 6, 8, 12)  # jobs of the head's size that wait, itself included
CURVES_OF_LONGS, CURVES_OF_NEXT = (1, 2, 4, 8), (0.05, 0.1, 0.2, 0.5)
_AT = {name: column for column, name in enumerate(FEATURES)}
_BEFORE_NEXT = (
    "arrivals of under half a unit",
    "arrivals of up to 2 units",
    "arrivals of under half a unit due",
    "earliness of arrivals of under half a unit due",
)
_MOST = 4000  # states


@dataclass(frozen=True)
class Curve:
    """Partial dependence along one number, the other fixed."""

    fixed: float
    at: FloatArray  # [points]
    held: tuple[Interval, ...]  # [points] share of the states in which it would wait
    saves: tuple[Interval, ...]  # [points] by how much waiting looks cheaper than the head, mean JCTs, at most 1


@dataclass(frozen=True)
class Dependence:
    """Both dependences; no curves where no state is of the kind."""

    states: int
    on_next: tuple[Curve, ...] = ()  # along NEXT, for some numbers of longs
    on_longs: tuple[Curve, ...] = ()  # along LONGS, for some next completions


def with_next(rows: FeatureRows, ratio: float) -> FeatureRows:
    """Return states whose next completion is `ratio` times the head's remaining work away."""
    changed = rows.copy()
    before = np.expm1(rows[:, _AT["next completion / unit"]].astype(np.float64))
    scale = ratio / np.maximum(before, 1e-6)
    changed[:, _AT["next completion / unit"]] = np.log1p(ratio)
    for later in ("second completion / unit", "third completion / unit", "mean remaining of busy executors / unit"):
        moved = np.maximum(rows[:, _AT[later]], np.log1p(ratio))
        # What is later stays where the next one did not pass it; a mean of estimates may be before what is expected.
        changed[:, _AT[later]] = np.where(ratio > before * (1.0 + 1e-6), moved, rows[:, _AT[later]])
    for rate in _BEFORE_NEXT:
        column = _AT[f"{rate} before the next completion"]
        changed[:, column] = np.log1p(np.expm1(rows[:, column]) * scale)
    # Where the next completion was now, these say nothing of what it is divided by.
    task = np.maximum(rows[:, _AT["head's task / unit"]], 1e-6)
    changed[:, _AT["next completion / head's task"]] = np.log1p(ratio / task)
    other = np.expm1(rows[:, _AT["alternative / unit"]].astype(np.float64))
    exists = rows[:, _AT["alternative exists"]] > 0.5
    column = _AT["next completion / alternative"]
    changed[exists, column] = np.log1p(ratio / np.maximum(other[exists], 1.0))
    return changed


def with_longs(rows: FeatureRows, number: int) -> FeatureRows:
    """Return states in which so many jobs of the head's size wait, the head included."""
    changed = rows.copy()
    count, work = _AT["waiting jobs up to 2 units"], _AT["waiting work up to 2 units"]
    before = np.maximum(np.expm1(rows[:, count].astype(np.float64)), 1.0)
    changed[:, count] = np.log1p(number)
    every = _AT["waiting jobs"]
    changed[:, every] = np.log1p(np.maximum(np.expm1(rows[:, every]) + number - before, number))
    changed[:, work] = np.log1p(np.expm1(rows[:, work]) * number / before)
    exists = rows[:, _AT["alternative exists"]] > 0.5
    changed[exists, _AT["jobs before the alternative"]] = np.log1p(number)
    active = _AT["active jobs per executor"]
    executors = np.exp(rows[:, _AT["log executors"]].astype(np.float64))
    per_executor = np.expm1(rows[:, active]) + (number - before) / executors
    changed[:, active] = np.log1p(np.maximum(per_executor, 0.0))
    return changed


def a_long_is_the_head(states: States) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """Return in which states costs decide whether to wait for the next completion, and most arrivals are short.

    Short: under half the head.
    """
    mostly_short: np.ndarray[tuple[int, ...], np.dtype[np.bool_]] = (
        states.rows[:, _AT["share of arrivals under half a unit"]] > 0.5
    )
    return mostly_short & states.may_wait_for_next & ~states.scored


def dependence(policy: OnnxPolicy, states: States) -> Dependence:
    """Return the partial dependences of a model's holds.

    Raises:
        ModelError: the model fails or answers NaN.
    """
    where = np.flatnonzero(a_long_is_the_head(states))
    if not len(where):
        return Dependence(0)
    where = where[np.unique(np.linspace(0, len(where) - 1, _MOST).round().astype(int))]
    rows = states.rows[where]
    on_next = [
        _curve(policy, states, where, longs, NEXT, [with_next(with_longs(rows, longs), each) for each in NEXT])
        for longs in CURVES_OF_LONGS
    ]
    on_longs = [
        _curve(policy, states, where, ratio, LONGS, [with_longs(with_next(rows, ratio), each) for each in LONGS])
        for ratio in CURVES_OF_NEXT
    ]
    return Dependence(len(where), tuple(on_next), tuple(on_longs))


def _curve(
    policy: OnnxPolicy,
    states: States,
    where: np.ndarray[tuple[int, ...], np.dtype[np.intp]],
    fixed: float,
    at: tuple[float, ...] | tuple[int, ...],
    points: list[FeatureRows],
) -> Curve:
    held: list[Interval] = []
    saves: list[Interval] = []
    for rows in points:
        costs = policy.costs(rows)
        for found, values in (
            (held, (picks(rows, costs, policy.margin, possible_by(rows)) == WAIT_FOR_EVENT).astype(np.float64)),
            (saves, np.clip(costs[:, START_HEAD] - costs[:, WAIT_FOR_EVENT], -MOST_SHIFT, MOST_SHIFT)),
        ):
            every = np.full(len(states.rows), np.nan)
            every[where] = values
            found.append(states.over_seeds(every))
    return Curve(float(fixed), np.array(at, np.float64), tuple(held), tuple(saves))
