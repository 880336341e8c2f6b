"""Give jobs weights, as their users would by priorities: to those with the most work, or to any.

As in `estimates`, weights are drawn from a seed of their own, so that the jobs stay those of the scenario's seed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fermata.policy.errors import InputError
from fermata.sim.trace import Trace
from fermata.sim.trace_jobs import job_work_s

LONG_SHARE, ANY_SHARE = 0.1, 0.2  # of the jobs
EXPECTED = "long=W or any=W"
_LEAST, _MOST = 2.0**-100, 2.0**100  # what the priorities of a cluster can make


@dataclass(frozen=True)
class Weights:
    """The weight of some jobs, where all others weigh 1, as the command line says it: `long=4`.

    Args:
        kind: `long`, the tenth of the jobs with the most work; or `any`, a fifth of them at random.
        weight: of these.

    Raises:
        InputError: no such kind, or a weight that no priority makes.
    """

    kind: str
    weight: float

    def __post_init__(self) -> None:
        """Check both."""
        if self.kind not in ("long", "any"):
            raise InputError(f"no weights {self.kind!r}; expected {EXPECTED}")
        if not _LEAST <= self.weight <= _MOST:
            raise InputError(f"a weight must be from 2^-100 to 2^100, not {self.weight:g}")

    def __call__(self, trace: Trace, seed: int) -> Trace:
        """Return the trace with these weights in the place of its own."""
        return replace(trace, job_weight=np.where(self._chosen(trace, seed), self.weight, 1.0))

    def _chosen(self, trace: Trace, seed: int) -> np.ndarray:
        if self.kind == "any":
            return np.random.default_rng([seed, 2]).random(trace.jobs) < ANY_SHARE
        chosen = np.zeros(trace.jobs, np.bool_)
        longest_first = np.argsort(-job_work_s(trace), kind="stable")
        chosen[longest_first[: round(LONG_SHARE * trace.jobs)]] = True
        return chosen


def read_weights(text: str) -> Weights:
    """Read `long=W` or `any=W`.

    Raises:
        InputError: it is neither.

    >>> read_weights("long=4")
    Weights(kind='long', weight=4.0)
    """
    kind, _, weight = text.partition("=")
    try:
        return Weights(kind, float(weight))
    except InputError as error:
        raise InputError(f"--weights {text}: {error}") from error
    except ValueError as error:
        raise InputError(f"--weights expects {EXPECTED}, not {text!r}") from error
