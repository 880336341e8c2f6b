"""What an episode costs from some moment on, and how much of it an action is to blame for.

The cost rate at a time is the sum of the weights of the stays under way (`fermata.training.graph.objectives`); where
these are the jobs in the system and the weights 1, its integral is the sum of their JCTs. Costs fade with a time
constant: what happens long after an action says little of it and adds noise. Arrivals and completions are known exactly
afterwards, so the cost to go is known at every time, not only at decisions.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class CostToGo:
    """The faded cost from any time on.

    Args:
        begin_s: [stays]
        end_s: [stays]
        weight: [stays] what a second of each costs.
        fade_s: time constant of the fading.
    """

    def __init__(self, begin_s: Floats, end_s: Floats, weight: Floats, fade_s: float) -> None:
        times_s = np.concatenate([begin_s, end_s])
        order = np.argsort(times_s, kind="stable")
        self._times_s, self._fade_s = times_s[order], fade_s
        self._rate = np.cumsum(np.concatenate([weight, -weight])[order])  # after each event
        span_s = np.diff(self._times_s, append=self._times_s[-1:])
        kept = np.exp(-span_s / fade_s)
        step = self._rate * self._faded(span_s)
        to_go = np.zeros(len(step) + 1)
        for i in range(len(step) - 1, -1, -1):
            to_go[i] = step[i] + kept[i] * to_go[i + 1]
        self._to_go = to_go

    def _faded(self, span_s: Floats) -> Floats:
        """Return the integral of the fading over a span."""
        whole: Floats = -self._fade_s * np.expm1(-span_s / self._fade_s)
        return whole

    def at(self, time_s: Floats) -> Floats:
        """Return the integral over s > time of the cost rate times exp(-(s - time) / fade)."""
        following = np.searchsorted(self._times_s, time_s, side="right")
        rate = np.concatenate([[0.0], self._rate])[following]
        span_s = np.append(self._times_s, np.inf)[following] - time_s
        span_s = np.where(np.isinf(span_s), 0.0, span_s)
        cost: Floats = rate * self._faded(span_s) + np.exp(-span_s / self._fade_s) * self._to_go[following]
        return cost


def advantages(costs: list[CostToGo], times_s: list[Floats]) -> list[Floats]:
    """Return for each rollout how much less it costs, from each of its decisions on, than the others do from there on.

    All rollouts have the same arrivals, so what these do to the cost is in the mean of the others as well and cancels;
    so does an average reward that would be taken off every second. Leaving out the rollout itself keeps the baseline
    independent of its actions.

    Source: input-dependent baselines, H. Mao et al., Variance Reduction for Reinforcement Learning in Input-Driven
    Environments, ICLR 2019.
    """
    told: list[Floats] = []
    for own, time_s in enumerate(times_s):
        each = np.array([cost.at(time_s) for cost in costs])
        others = (each.sum(axis=0) - each[own]) / (len(costs) - 1)
        told.append(others - each[own])
    return told
