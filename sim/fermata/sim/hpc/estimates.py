"""What the scheduler believes of run times: the users' own estimates, the truth, or wrong on purpose."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from fermata.policy.errors import InputError
from fermata.sim.hpc.jobs import FloatArray, JobLog

# Users round up to such values. Source: Tsafrir, Etsion and Feitelson, "Modeling user runtime estimates", JSSPP 2005:
# a handful of round values carries most estimates.
_ROUND_S = np.array([300, 600, 900, 1800, 3600, 7200, 10800, 14400, 21600, 28800, 43200, 64800, 86400, 129600, 172800])
KINDS = "exact, user, factor:F, lognormal:SIGMA, round or accuracy"


def with_estimates(log: JobLog, kind: str, seed: int = 0) -> JobLog:
    """Return a log with other estimates.

    Args:
        log: the jobs.
        kind: `user` keeps the log's own; `exact` is the run time; `factor:F` multiplies it by a uniform number in 1 to
            F (the f-model of Mu'alem and Feitelson, TPDS 2001); `lognormal:SIGMA` by a lognormal number of median 1,
            too short as often as too long; `round` is the f-model with F = 5, rounded up to values that users type;
            `accuracy` divides it by a uniform number in 0 to 1 and rounds up likewise, to two days at most: jobs that
            die at once look like long ones (shares of estimates that are used were found to be about uniform by
            Mu'alem and Feitelson, and on the logs at hand).
        seed: of the noise; the same job gets the same estimate for the same seed.

    Raises:
        InputError: no such kind, or a parameter it cannot have.
    """
    name, _, text = kind.partition(":")
    random = np.random.default_rng(seed)
    if name == "user" and not text:
        return log
    if name == "exact" and not text:
        return log.with_exact_estimates()
    if name == "round" and not text:
        return replace(log, estimate_s=_rounded(log.runtime_s * random.uniform(1.0, 5.0, len(log))))
    if name == "accuracy" and not text:
        wanted = np.minimum(log.runtime_s / (1.0 - random.random(len(log))), _ROUND_S[-1])
        return replace(log, estimate_s=_rounded(np.maximum(wanted, log.runtime_s)))
    try:
        amount = float(text)
    except ValueError:
        amount = -1.0
    with np.errstate(over="ignore", invalid="ignore"):  # a new log says what is too long
        if name == "factor" and 1.0 <= amount < math.inf:
            return replace(log, estimate_s=log.runtime_s * random.uniform(1.0, amount, len(log)))
        if name == "lognormal" and 0.0 <= amount < math.inf:
            return replace(log, estimate_s=log.runtime_s * np.exp(amount * random.standard_normal(len(log))))
    raise InputError(f"estimates: expected {KINDS} (F at least 1, SIGMA at least 0), not {kind!r}")


def _rounded(wanted_s: FloatArray) -> FloatArray:
    """Return the next value that users type; what is longer than all of them stays."""
    place = np.searchsorted(_ROUND_S, wanted_s)
    return np.where(place < len(_ROUND_S), _ROUND_S[np.minimum(place, len(_ROUND_S) - 1)], wanted_s)
