"""Every workload that has a name: the benchmark scenarios, and the other kinds."""

from __future__ import annotations

from fermata.policy.errors import InputError
from fermata.sim.generate import GENERATORS
from fermata.sim.scenarios import SCENARIOS, Scenario

WORKLOADS: dict[str, Scenario] = SCENARIOS | GENERATORS


def workload(name: str) -> Scenario:
    """The workload of this name.

    Raises:
        InputError: there is none; the message lists all names.
    """
    try:
        return WORKLOADS[name]
    except KeyError:
        raise InputError(f"no scenario {name!r}; there are: {', '.join(WORKLOADS)}") from None


def workloads(name: str) -> list[Scenario]:
    """Return the workload of this name; of `all` every benchmark scenario but the example of two jobs.

    Nothing of that one is random.

    Raises:
        InputError: there is none; the message lists all names.
    """
    return [each for each in SCENARIOS.values() if each.name != "fig1"] if name == "all" else [workload(name)]
