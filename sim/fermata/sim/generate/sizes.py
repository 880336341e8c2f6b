"""How long jobs take: a few distributions, each with its mean, so that a load can be set without sampling."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from fermata.policy.errors import InputError
from fermata.sim.trace import FloatArray


class Sizes(Protocol):
    """A distribution of sizes in seconds."""

    @property
    def mean_s(self) -> float:
        """Its mean in seconds."""
        ...

    def draw(self, rng: np.random.Generator, jobs: int) -> FloatArray:
        """[jobs] sizes in seconds, above 0."""
        ...


@dataclass(frozen=True)
class Lognormal:
    """Sizes with a given mean whose logarithm is normal with spread `sigma`."""

    mean_s: float = 60.0
    sigma: float = 1.0

    def __post_init__(self) -> None:
        if not self.mean_s > 0.0:
            raise InputError(f"mean_s must be above 0 s, not {self.mean_s!r}")

    def draw(self, rng: np.random.Generator, jobs: int) -> FloatArray:
        """Draw all sizes at once."""
        return rng.lognormal(math.log(self.mean_s) - self.sigma**2 / 2.0, self.sigma, jobs)


@dataclass(frozen=True)
class BoundedPareto:
    """Heavy-tailed sizes between two bounds: most short, most work in the long ones.

    Source: Harchol-Balter, "Performance Modeling and Design of Computer Systems", section 20.3.
    """

    alpha: float = 1.1
    least_s: float = 5.0
    most_s: float = 5000.0

    def __post_init__(self) -> None:
        if not (self.alpha > 0.0 and 0.0 < self.least_s < self.most_s):
            raise InputError("a bounded Pareto needs alpha > 0 and 0 < least_s < most_s")

    @property
    def mean_s(self) -> float:
        """Its mean in seconds."""
        ratio = self.least_s / self.most_s
        if self.alpha == 1.0:
            return -self.least_s * math.log(ratio) / (1.0 - ratio)
        tail: float = (1.0 - ratio ** (self.alpha - 1.0)) / (1.0 - ratio**self.alpha)
        return self.alpha / (self.alpha - 1.0) * self.least_s * tail

    def draw(self, rng: np.random.Generator, jobs: int) -> FloatArray:
        """Draw all sizes at once, by inversion."""
        below = rng.random(jobs) * (1.0 - (self.least_s / self.most_s) ** self.alpha)
        sizes: FloatArray = self.least_s * (1.0 - below) ** (-1.0 / self.alpha)
        return sizes


@dataclass(frozen=True)
class Hyperexponential:
    """Exponential sizes in classes: with probability `shares[i]` the mean is `means_s[i]`."""

    shares: tuple[float, ...] = (0.9, 0.1)
    means_s: tuple[float, ...] = (10.0, 200.0)

    def __post_init__(self) -> None:
        _check_classes(self.shares, self.means_s)

    @property
    def mean_s(self) -> float:
        """Its mean in seconds."""
        return math.fsum(share * mean for share, mean in zip(self.shares, self.means_s, strict=True))

    def draw(self, rng: np.random.Generator, jobs: int) -> FloatArray:
        """Draw all classes, then all sizes."""
        means: FloatArray = np.asarray(self.means_s)[rng.choice(len(self.shares), jobs, p=self.shares)]
        return rng.exponential(means)


@dataclass(frozen=True)
class Classes:
    """Fixed sizes: with probability `shares[i]` exactly `sizes_s[i]`."""

    shares: tuple[float, ...] = (0.6, 0.3, 0.08, 0.02)
    sizes_s: tuple[float, ...] = (5.0, 20.0, 100.0, 500.0)

    def __post_init__(self) -> None:
        _check_classes(self.shares, self.sizes_s)

    @property
    def mean_s(self) -> float:
        """Its mean in seconds."""
        return math.fsum(share * size for share, size in zip(self.shares, self.sizes_s, strict=True))

    def draw(self, rng: np.random.Generator, jobs: int) -> FloatArray:
        """Draw all classes at once."""
        return np.asarray(self.sizes_s)[rng.choice(len(self.shares), jobs, p=self.shares)]


def _check_classes(shares: tuple[float, ...], sizes_s: tuple[float, ...]) -> None:
    if len(shares) != len(sizes_s) or min(shares) < 0.0 or not math.isclose(math.fsum(shares), 1.0):
        raise InputError(f"classes need as many sizes as shares, which must add to 1: {shares}, {sizes_s}")
    if min(sizes_s) <= 0.0:
        raise InputError(f"sizes must be above 0 s: {sizes_s}")
