"""An evolution strategy: pairs of mirrored perturbations, ranks instead of costs, Adam's step along their slope.

Source: Salimans et al., "Evolution strategies as a scalable alternative to reinforcement learning", 2017.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fermata.sim.trace import FloatArray


class Evolution:
    """Where a search is: its centre, and the moments of its steps.

    Args:
        centre: `[parameters]` where it begins.
        pairs: mirrored perturbations a generation.
        sigma: size of a perturbation.
        rate: Adam's step.
    """

    def __init__(self, centre: FloatArray, pairs: int, sigma: float, rate: float) -> None:
        self.centre = single(centre)
        self._pairs, self._sigma, self._rate = pairs, sigma, rate
        self._moment, self._spread = np.zeros(len(centre)), np.zeros(len(centre))
        self._noise = np.zeros((2 * pairs, len(centre)))
        self._generations = 0

    def candidates(self, random: np.random.Generator, searched: NDArray[np.bool_] | None = None) -> FloatArray:
        """Return what to measure next, `[2 * pairs, parameters]`; with `searched`, only those parameters differ."""
        half = random.standard_normal((self._pairs, len(self.centre)))
        if searched is not None:
            half *= searched
        self._noise = np.concatenate([half, -half])
        return np.asarray(self.centre + self._sigma * self._noise)

    def state(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return centre and moments, what `resume` takes, between two generations."""
        return self.centre, self._moment, self._spread

    def resume(self, centre: FloatArray, moment: FloatArray, spread: FloatArray, generations: int) -> None:
        """Go on where another search was after so many generations."""
        self.centre, self._moment, self._spread, self._generations = centre, moment, spread, generations

    def learn(self, costs: FloatArray, rate: float | None = None) -> None:
        """Move the centre, given what the candidates cost, `[2 * pairs]`, all on the same sequences.

        `rate`: of this step; by default as at the beginning.
        """
        step = self._rate if rate is None else rate
        slope = _ranks(costs) @ self._noise / (len(costs) * self._sigma)
        self._generations += 1
        self._moment = 0.9 * self._moment + 0.1 * slope
        self._spread = 0.99 * self._spread + 0.01 * slope**2
        correction = np.sqrt(1.0 - 0.99**self._generations) / (1.0 - 0.9**self._generations)
        self.centre = single(self.centre - step * correction * self._moment / (np.sqrt(self._spread) + 1e-8))


def _ranks(costs: FloatArray) -> FloatArray:
    """Return ranks from -0.5 to 0.5, `[costs]`; equal costs share the mean of theirs, so that they lead nowhere."""
    place, many = np.unique(costs, return_inverse=True, return_counts=True)[1:]
    shared = np.bincount(np.sort(place), np.linspace(-0.5, 0.5, len(costs))) / many
    return np.asarray(shared[place])


def single(theta: FloatArray) -> FloatArray:
    """Return weights rounded to what a file holds, so that what was measured is what is written."""
    return theta.astype(np.float32).astype(np.float64)
