"""Scenarios by name, of the benchmark and beyond, at a load of their own."""

from __future__ import annotations

from fermata.policy.errors import InputError
from fermata.sim.scenarios import Scenario
from fermata.sim.workloads import workload
from fermata.training.evaluate import base_of


def named(name: str, jobs: int | None = None) -> Scenario:
    """Return a benchmark scenario or a generated one, by name or at a load of its own (`mixed@0.8`).

    Args:
        name: of the scenario, and after an @ its load.
        jobs: of an episode, as large a part of which is warm-up; by default the scenario's own.

    Raises:
        InputError: there is no such scenario, or the load is not one.
    """
    known, _, load = name.partition("@")
    found = workload(known)
    try:
        if load:
            found = found.with_(load=float(load))
    except ValueError:
        raise InputError(f"expected a load after the @ of {name!r}, got {load!r}") from None
    return found if jobs is None else found.with_(jobs=jobs, warm=found.warm * jobs // found.jobs)


def base_named(name: str) -> str:
    """Return the built-in policy that a scenario is compared with."""
    return base_of(name.partition("@")[0])
