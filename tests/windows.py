"""Rigid jobs: small logs, window agents whose weights are written by hand, and the command."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
from tests.processes import fermata

from fermata.sim.hpc import JobLog
from fermata.sim.hpc.window import FEATURE_NAMES, FEATURES, HIDDEN, PARAMETERS, SingleArray

_FIRST, _SECOND = HIDDEN


def theta_of(fwd: float = -1000.0, **weights: float) -> SingleArray:
    """Weights of an agent that scores a job by a weighted sum of its features, and Fwd by a number.

    Args:
        fwd: score of Fwd.
        weights: by name of the feature; their sum must not reach 1000 either way.
    """
    theta = np.zeros(PARAMETERS, dtype=np.float32)
    into_first = theta[: FEATURES * _FIRST].reshape(FEATURES, _FIRST)
    for name, weight in weights.items():
        into_first[FEATURE_NAMES.index(name), 0] = weight
    place = FEATURES * _FIRST
    theta[place] = 1000.0  # keeps the unit in its linear range
    into_first[FEATURE_NAMES.index("fwd"), 1] = 1.0
    place += _FIRST
    into_second = theta[place : place + _FIRST * _SECOND].reshape(_FIRST, _SECOND)
    into_second[0, 0] = into_second[1, 1] = 1.0
    place += _FIRST * _SECOND + _SECOND
    theta[place], theta[place + 1] = 1.0, 1000.0 + fwd
    theta[-1] = -1000.0
    # The common features are in Fwd's row too: its first unit is 1000, so that its score is 1000 + (1000 + fwd) - 1000.
    theta[place + 1] -= 1000.0
    return theta


def log_of(*rows: tuple[float, float, int], machine: int = 4) -> JobLog:
    """A log of (submission, run time, cores)."""
    submit, runtime, cores = (np.array(column, dtype=float) for column in zip(*rows, strict=True))
    none = np.zeros(len(rows), dtype=np.int64)
    ids = np.arange(1, len(rows) + 1)
    return JobLog("hand", machine, ids, submit, runtime, runtime, cores.astype(np.int64), none, none)


def fermata_hpc(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run `fermata hpc` in this process."""
    return fermata("hpc", *arguments)


def random_theta(seed: int) -> SingleArray:
    """Weights of an agent that decides by nothing in particular."""
    return np.random.default_rng(seed).normal(0.0, 1.0, PARAMETERS).astype(np.float32)
