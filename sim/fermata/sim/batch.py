"""Many episodes at once under one network: a row of features for each, one run of the network for all.

`Batch.features` is the array that the kernels write and the network reads. An episode that has ended is replaced by
the next, so the batch stays full. This is how `fermata policy explain` asks networks of any kind for many decisions;
`simulate` compiles those that it can.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from fermata.policy._jit import kernel
from fermata.policy.features import ORDER, SIZE, FeatureRow
from fermata.policy.guardrails import NO_LIMITS
from fermata.policy.heuristics.kernel import Rule
from fermata.policy.learned import ACTIONS
from fermata.sim.engine import DECIDE
from fermata.sim.learned_loop import Manner, next_decision, take_cheapest
from fermata.sim.world import World


@kernel
def _step(world: World, manner: Manner, costs: NDArray[np.float64], x: FeatureRow) -> int:
    """Take the cheapest action, go to the next decision and write its features; returns what `advance` says."""
    waited = take_cheapest(world, manner, costs)
    return next_decision(world, manner.order, waited, x)


class Batch:
    """Episodes side by side.

    Args:
        episodes: worlds in which nothing has happened; taken as places become free.
        size: how many are under way at once, at the most.
        manner: how answers are taken.

    Attributes:
        features: [size, SIZE] float32, of each open decision; written in place.
        open: [size] whether the row is a decision.
    """

    def __init__(self, episodes: Iterator[World], size: int, manner: Manner) -> None:
        self.features = np.zeros((size, SIZE), np.float32)
        self.open = np.zeros(size, np.bool_)
        self._episodes, self._manner = episodes, manner
        self._worlds: list[World | None] = [None] * size
        for place in range(size):
            self._open_next(place)

    def _open_next(self, place: int) -> World | None:
        """Put the next episode that has a decision into a place; return the one that was there."""
        before = self._worlds[place]
        self._worlds[place], self.open[place] = None, False
        for world in self._episodes:
            if next_decision(world, self._manner.order, True, self.features[place]) == DECIDE:
                self._worlds[place], self.open[place] = world, True
                break
        return before

    def step(self, costs: NDArray[np.float64]) -> list[World]:
        """Answer every open decision and go to the next ones; return the episodes that have ended.

        Args:
            costs: [size, 3] of the rows of `features`; what stands in rows that are not open is ignored.
        """
        if costs.shape != (len(self.open), len(ACTIONS)):
            raise ValueError(f"expected costs of shape {(len(self.open), len(ACTIONS))}, got {costs.shape}")
        ended = []
        for place, world in enumerate(self._worlds):
            if world is None or _step(world, self._manner, costs[place], self.features[place]) == DECIDE:
                continue
            ended.append(world)
            self._open_next(place)
        return ended


def default_manner(margin: float, fallback: Rule) -> Manner:
    """Return how the shipped policies' answers are taken: no limits, shortest remaining work first as the head."""
    return Manner(ORDER, margin, NO_LIMITS, fallback)
