"""Which of several networks is kept: the one that schedules random scenarios best, of which none was trained on.

The loss does not tell. A network with the lowest one may wait too long in a corner of the states, and a pool that waits
too long never leaves that corner; only an episode shows it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fermata.policy.learned import Network
from fermata.training.config import TrainConfig
from fermata.training.own import only_for
from fermata.training.play import Case, case_of, log_ratio
from fermata.training.workloads import draw

# What is lost counts for more than what is gained: people forgive a smaller gain, and not a queue that grew.
_LOSS_COUNTS = 3.0
# Far from the numbers of rounds, so that no unit of labels draws the same scenarios.
_STREAM = 1_000_000


class Verdict(NamedTuple):
    """How a network does on the held-out episodes, against the base; below zero is better."""

    mean_log_ratio: float
    worst_pct: float
    cost: float  # the mean, in which an episode that got slower counts three times: lower is better

    @property
    def mean_pct(self) -> float:
        """The mean as a change in percent."""
        return 100.0 * math.expm1(self.mean_log_ratio)


def held_out_cases(config: TrainConfig) -> list[Case]:
    """Draw the episodes; they follow from the configuration."""
    rng = np.random.default_rng([config.seed, _STREAM])
    ranges = only_for(config.workloads, 0)
    cases = [
        case_of(draw(rng, ranges, config.fit.case_jobs, "choose"), int(rng.integers(0, 2**31)))
        for _ in range(config.fit.cases)
    ]
    # A trace chooses what it teaches, also where jobs of another kind, which it does not teach, have come in by then.
    return cases if ranges.own is None else [case._replace(kind=ranges.own.kind) for case in cases]


def judge(network: Network, cases: list[Case]) -> Verdict:
    """Run a network on the held-out episodes."""
    ratios = [log_ratio(network, case) for case in cases]
    mean = float(np.mean(ratios))
    lost = float(np.maximum(ratios, 0.0).mean())
    return Verdict(mean, 100.0 * math.expm1(max(ratios)), mean + (_LOSS_COUNTS - 1.0) * lost)
