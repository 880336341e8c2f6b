"""Tune the reservation rule: who is long (tau), what they leave free (phi), and in which order the queue stands.

The rule leaves cores idle for short jobs that have not come yet. It is tuned on sequences of one part of a log and
judged on others; a bound on the wait keeps it from buying slowdown with idleness.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fermata.policy.errors import InputError
from fermata.sim.files import Progress
from fermata.sim.hpc.experiment import Sequences, pooled, run_sequences
from fermata.sim.hpc.jobs import JobLog
from fermata.sim.hpc.policies import Policy, policy

BASES = ("saf+easy/skip", "p2q+easy/skip", "saf/skip", "p2q/skip")
SHARES = (0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.8)
QUANTILES = (0.5, 0.6, 0.7, 0.8, 0.9)


@dataclass(frozen=True)
class Tuned:
    """The best reservation found, what it and the yardstick got on the sequences it was tuned on."""

    policy: Policy
    bsld: float
    wait_s: float
    yardstick_wait_s: float
    tried: int


def try_reservations(
    log: JobLog,
    sequences: Sequences,
    *,
    yardstick: str = "saf+easy/skip",
    bases: Sequence[str] = BASES,
    kill_at_estimate: bool = False,
    progress: Progress | None = None,
) -> list[Tuned]:
    """Return every reservation of a grid with what it got.

    Args:
        log: the jobs.
        sequences: where to tune.
        yardstick: the policy whose wait is the measure.
        bases: the orders and backfilling rules to reserve on top of.
        kill_at_estimate: see `Rules`.
        progress: called with the share that is done, 0 to 1.
    """

    def means(name: str) -> tuple[Policy, float, float]:
        chosen = policy(name, kill_at_estimate=kill_at_estimate)
        found = pooled(run_sequences(log, chosen, sequences))[0]
        return chosen, found["bsld"], found["wait_s"]

    measure = means(yardstick)[2]
    thresholds = sorted({float(f"{np.quantile(log.estimate_s, share):.3g}") for share in QUANTILES})
    grid = [(base, over, share) for base in bases for over in thresholds for share in SHARES]
    tried = []
    for number, (base, over, share) in enumerate(grid):
        tried.append(Tuned(*means(f"{base}+reserve:over_s={over:g},share={share:g}"), measure, len(grid)))
        if progress is not None:
            progress((number + 1) / len(grid))
    return tried


def best_reservation(tried: Sequence[Tuned], max_wait_ratio: float = math.inf) -> Tuned:
    """Return the reservation with the least mean bsld among those that wait little enough.

    Args:
        tried: what `try_reservations` returns.
        max_wait_ratio: longest mean wait that is allowed, relative to the yardstick's.

    Raises:
        InputError: no reservation waits little enough.
    """
    # No bound is no product: the yardstick may never wait, and infinity times 0 is no number.
    allowed = [
        each for each in tried if max_wait_ratio == math.inf or each.wait_s <= max_wait_ratio * each.yardstick_wait_s
    ]
    if not allowed:
        least = min(tried, key=lambda each: each.wait_s)
        raise InputError(
            f"no reservation waits at most {max_wait_ratio:g} times as long as the yardstick, which waits "
            f"{least.yardstick_wait_s:.0f} s; the least waits {least.wait_s:.0f} s (max_wait_ratio is the bound)"
        )
    return min(allowed, key=lambda each: each.bsld)
