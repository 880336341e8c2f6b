"""Orders of the queue by name: who is first. A new order is one function and one line in the registry.

An order whose keys never change while a job waits is sorted once, in numpy; the others are evaluated in the compiled
kernel at every decision, which knows them by number. Smaller keys go first; ties go to the earlier submission.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fermata.policy.errors import InputError
from fermata.sim.hpc.jobs import FloatArray, JobLog

STATIC, WFP3, UNICEP, MULTIFACTOR = 0, 1, 2, 3
DAY_S = 86_400.0


def _fcfs(jobs: JobLog) -> tuple[FloatArray, ...]:
    """First come, first served."""
    return (jobs.submit_s,)


def _lcfs(jobs: JobLog) -> tuple[FloatArray, ...]:
    """Last come, first served."""
    return (-jobs.submit_s,)


def _sjf(jobs: JobLog) -> tuple[FloatArray, ...]:
    """Shortest estimate first, then fewer cores."""
    return (jobs.estimate_s, jobs.cores.astype(np.float64))


def _smallest(jobs: JobLog) -> tuple[FloatArray, ...]:
    """Fewest cores first, then first come."""
    return (jobs.cores.astype(np.float64), jobs.submit_s)


def _saf(jobs: JobLog) -> tuple[FloatArray, ...]:
    """Smallest estimated area (cores times estimate) first."""
    return (jobs.estimate_s * jobs.cores,)


def _srf(jobs: JobLog) -> tuple[FloatArray, ...]:
    """Smallest ratio of estimate to cores first."""
    return (jobs.estimate_s / jobs.cores,)


def _f1(jobs: JobLog) -> tuple[FloatArray, ...]:
    """F1: log10(estimate) * cores + 870 * log10(submit time since the log began).

    Source: Carastan-Santos and de Camargo, "Obtaining dynamic scheduling policies with simulation and machine
    learning", SC 2017; zeros count as 0.1 as in SchedInspector's code.
    """
    estimate = np.where(jobs.estimate_s > 0.0, jobs.estimate_s, 0.1)
    submit = np.where(jobs.submit_s > 0.0, jobs.submit_s, 0.1)
    return (np.log10(estimate) * jobs.cores + 870.0 * np.log10(submit),)


def _p2q(jobs: JobLog) -> tuple[FloatArray, ...]:
    """Smallest estimate squared times cores first."""
    return (jobs.estimate_s**2 * jobs.cores,)


@dataclass(frozen=True)
class Order:
    """An order of the queue: `keys` of a static one, or the number by which the kernel knows it."""

    name: str
    about: str
    keys: Callable[[JobLog], tuple[FloatArray, ...]] | None = None
    kind: int = STATIC
    parameters: dict[str, float] = field(default_factory=dict)

    def ranks(self, jobs: JobLog) -> NDArray[np.int64]:
        """Return the place of every job in this order, `[jobs]`; of dynamic orders the place of arrival."""
        if self.keys is None:
            return np.arange(len(jobs))
        order = np.lexsort(self.keys(jobs)[::-1])  # stable: ties stay in the order of submission
        ranks = np.empty(len(jobs), dtype=np.int64)
        ranks[order] = np.arange(len(jobs))
        return ranks

    def with_parameters(self, values: dict[str, float]) -> Order:
        """Return this order with some parameters changed.

        Raises:
            InputError: it has no such parameter, or a value it cannot have.
        """
        for key, value in values.items():
            if key not in self.parameters:
                known = ", ".join(self.parameters) or "none"
                raise InputError(f"{self.name} has no parameter {key!r}; it has: {known}")
            if not 0.0 <= value < math.inf:
                raise InputError(f"{self.name}: {key} must be a finite number, 0 or more, not {value:g}")
            if key in _DIVISORS and not value:
                raise InputError(f"{self.name}: {key} must be above 0")
        return Order(self.name, self.about, self.keys, self.kind, self.parameters | values)


def _static(name: str, keys: Callable[[JobLog], tuple[FloatArray, ...]]) -> Order:
    return Order(name, str(keys.__doc__).splitlines()[0].rstrip("."), keys)


# Slurm's priority/multifactor: a sum of weights times factors in 0 to 1, each factor computed from what the simulated
# machine has seen. Source: https://slurm.schedmd.com/priority_multifactor.html and classic_fair_share.html there.
# age: wait / max_age_s, at most 1. fairshare: 2^-(usage share / equal share / dampening), usage decaying by half in
# half_life_s. size: share of the machine asked for, or what is left of it with favor_small. partition: partitions in
# the order of their numbers, the last one 1.
_SLURM = {
    "age": 1000.0,
    "fairshare": 1000.0,
    "size": 1000.0,
    "partition": 0.0,
    "max_age_s": 7 * DAY_S,
    "half_life_s": 7 * DAY_S,
    "favor_small": 1.0,
    "dampening": 1.0,
}
_DIVISORS = ("max_age_s", "half_life_s", "dampening")

ORDERS: dict[str, Order] = {
    order.name: order
    for order in (
        _static("fcfs", _fcfs),
        _static("lcfs", _lcfs),
        _static("sjf", _sjf),
        _static("smallest", _smallest),
        _static("saf", _saf),
        _static("srf", _srf),
        _static("f1", _f1),
        _static("p2q", _p2q),
        Order("wfp3", "Largest (wait / estimate)^3 times cores first", kind=WFP3),
        Order("unicep", "Largest wait / (log2(cores) times estimate) first", kind=UNICEP),
        Order("multifactor", "Slurm's multifactor priority, largest first", kind=MULTIFACTOR, parameters=_SLURM),
    )
}


def order(text: str) -> Order:
    """Return the order that `name` or `name:parameter=value,...` means.

    Raises:
        InputError: there is no such order or parameter.
    """
    name, _, rest = text.partition(":")
    if name not in ORDERS:
        raise InputError(f"no order {name!r}; expected one of {', '.join(ORDERS)}")
    values: dict[str, float] = {}
    for part in filter(None, rest.split(",")):
        key, _, number = part.partition("=")
        if key in values:
            raise InputError(f"{name}: {key!r} is there twice")
        try:
            values[key] = float(number)
        except ValueError:
            raise InputError(f"{name}: expected parameter=number, not {part!r}") from None
    return ORDERS[name].with_parameters(values)
