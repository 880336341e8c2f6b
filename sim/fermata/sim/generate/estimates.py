"""Make the scheduler's estimates wrong on purpose, in three ways that people's estimates are wrong; or right.

Each takes a trace and gives one with other estimates and the same durations, drawn from its own seed so that the jobs
stay those of the scenario's seed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from fermata.policy.errors import InputError
from fermata.sim.scenarios.base import check_share, check_sigma
from fermata.sim.trace import Trace
from fermata.sim.trace_jobs import mean_task_s
from fermata.sim.trace_stats import size_classes

_WITHOUT_AMOUNT = ("class-means", "exact")


def lognormal_noise(trace: Trace, sigma: float, seed: int) -> Trace:
    """Multiply each stage's estimate by exp(normal(0, sigma)): right by the median, off by a factor.

    Raises:
        InputError: sigma is outside [0, 10].
    """
    check_sigma("sigma", sigma)
    factor = _rng(seed).lognormal(0.0, sigma, trace.stages)
    return replace(trace, stage_estimate_s=trace.stage_estimate_s * factor)


def class_flips(trace: Trace, share: float, seed: int) -> Trace:
    """Take a share of the stages for the other class: a short one looks like the mean long one and the reverse.

    Raises:
        InputError: the share is outside [0, 1].
    """
    check_share("share", share)
    long, means = _classes(trace)
    flipped = _rng(seed).random(trace.stages) < share
    other_s = np.where(long, means[0], means[1])
    return replace(trace, stage_estimate_s=np.where(flipped, other_s, trace.stage_estimate_s))


def class_means(trace: Trace) -> Trace:
    """Let the scheduler know only whether a stage is short or long: its estimate is the mean of its class."""
    long, means = _classes(trace)
    return replace(trace, stage_estimate_s=np.where(long, means[1], means[0]))


def exact_estimates(trace: Trace) -> Trace:
    """Let the scheduler know beforehand: each stage's estimate is the mean of what its tasks will take.

    Nobody has such estimates; what a policy gains by them is what better estimates could be worth at most.
    """
    return replace(trace, stage_estimate_s=mean_task_s(trace))


def _rng(seed: int) -> np.random.Generator:
    """A stream of its own: a scenario draws its jobs with the same seed, and errors must not depend on the sizes."""
    return np.random.default_rng([seed, 1])


def _classes(trace: Trace) -> tuple[np.ndarray, tuple[float, float]]:
    """Which stages are long by the mean duration of a task, and the mean of that over short and over long stages."""
    mean_s = mean_task_s(trace)
    split = size_classes(mean_s)
    threshold_s = np.sort(mean_s)[min(trace.stages - 1, round(split.short_share * trace.stages))]
    # With one class only, every stage is short and both means are its own.
    long = (mean_s >= threshold_s) & (split.ratio > 1.0)
    return long, (split.short_mean_s, split.long_mean_s)


@dataclass(frozen=True)
class Noise:
    """A kind of wrong estimates by name, as the command line says it: `lognormal=0.7`.

    Raises:
        InputError: no such kind, or an amount that it does not take.
    """

    kind: str
    amount: float = 0.0

    def __post_init__(self) -> None:
        """Check both."""
        if self.kind not in NOISES:
            raise InputError(f"no noise {self.kind!r}; there are: {', '.join(NOISES)}")
        if self.kind == "lognormal":
            check_sigma("sigma", self.amount)
        elif self.kind == "class-flips":
            check_share("share", self.amount)

    def __call__(self, trace: Trace, seed: int) -> Trace:
        """Return the trace with other estimates."""
        return NOISES[self.kind](trace, self.amount, seed)


def read_noise(text: str) -> Noise:
    """Read `class-flips=SHARE`, `lognormal=SIGMA`, `class-means` or `exact`.

    Raises:
        InputError: it is neither, an amount is missing, or there is one that means nothing.

    >>> read_noise("lognormal=0.7")
    Noise(kind='lognormal', amount=0.7)
    """
    kind, equals, amount = text.partition("=")
    expected = InputError(f"--noise expects class-flips=SHARE, lognormal=SIGMA, class-means or exact, not {text!r}")
    if kind in NOISES and (kind in _WITHOUT_AMOUNT) == bool(equals):
        raise expected
    try:
        return Noise(kind, float(amount)) if equals else Noise(kind)
    except InputError as error:
        raise InputError(f"--noise {text}: {error}") from error
    except ValueError as error:
        raise expected from error


NOISES: dict[str, Callable[[Trace, float, int], Trace]] = {
    "class-flips": class_flips,
    "lognormal": lognormal_noise,
    "class-means": lambda trace, _amount, _seed: class_means(trace),
    "exact": lambda trace, _amount, _seed: exact_estimates(trace),
}
