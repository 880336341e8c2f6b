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

BASES = ("saf+easy/skip", "p2q+easy/skip", "sjf/skip", "saf/skip", "p2q/skip")
SHARES = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
QUANTILES = (0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95)


@dataclass(frozen=True)
class Tuned:
    """The best reservation found, what it and the yardstick got on the sequences it was tuned on."""

    policy: Policy
    bsld: float
    wait_s: float
    yardstick_wait_s: float
    tried: int


def tune_reservation(
    log: JobLog,
    sequences: Sequences,
    *,
    max_wait_ratio: float = math.inf,
    yardstick: str = "saf+easy/skip",
    bases: Sequence[str] = BASES,
    kill_at_estimate: bool = False,
    progress: Progress | None = None,
) -> Tuned:
    """Return the reservation with the least mean bsld among those that wait little enough.

    Args:
        log: the jobs.
        sequences: where to tune.
        max_wait_ratio: longest mean wait that is allowed, relative to the yardstick's.
        yardstick: the policy whose wait is the measure.
        bases: the orders and backfilling rules to reserve on top of.
        kill_at_estimate: see `Rules`.
        progress: called with the share that is done, 0 to 1.

    Raises:
        InputError: no reservation waits little enough.
    """
    allowed = pooled(run_sequences(log, policy(yardstick, kill_at_estimate=kill_at_estimate), sequences))[0]["wait_s"]
    thresholds = sorted({float(f"{np.quantile(log.estimate_s, share):.3g}") for share in QUANTILES})
    grid = [(base, over, share) for base in bases for over in thresholds for share in SHARES]
    best: Tuned | None = None
    for number, (base, over, share) in enumerate(grid):
        name = f"{base}+reserve:over_s={over:g},share={share:g}"
        chosen = policy(name, kill_at_estimate=kill_at_estimate)
        means = pooled(run_sequences(log, chosen, sequences))[0]
        if means["wait_s"] <= max_wait_ratio * allowed and (best is None or means["bsld"] < best.bsld):
            best = Tuned(chosen, means["bsld"], means["wait_s"], allowed, len(grid))
        if progress is not None:
            progress((number + 1) / len(grid))
    if best is None:
        raise InputError(f"no reservation waits at most {max_wait_ratio:g} times as long as {yardstick}")
    return best
