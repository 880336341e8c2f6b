"""The demonstration's setting: the pools and the DAG of the examples that everybody can read, and a stream for them."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from fermata.policy import registry
from fermata.policy.errors import FermataError, InputError
from fermata.sim.demo import Stream, express

LEARNED = "learned"  # the pool that has a policy of its own to show


@dataclass(frozen=True, slots=True)
class Setup:
    """What runs where."""

    stream: Stream
    pools: list[dict[str, Any]]
    load: float
    seed: int

    @property
    def executors(self) -> dict[str, int]:
        """Pool -> executors, in the order of the manifests."""
        return {pool["metadata"]["name"]: pool["spec"]["executors"] for pool in self.pools}

    @property
    def policies(self) -> dict[str, str]:
        """Pool -> the name of its policy."""
        return {pool["metadata"]["name"]: pool["spec"]["policy"]["name"] for pool in self.pools}


def setup(workflows: int, load: float, seed: int, policy: str | None) -> Setup:
    """Return the setting.

    Args:
        workflows: single-stage workflows for each pool.
        load: their work over what the executors can do while they arrive.
        seed: of arrival times and order.
        policy: what the learned pool runs instead of its own.

    Raises:
        InputError: no built-in policy has that name, or it has no such parameter.
    """
    pools = list(yaml.safe_load_all(example("pools.yaml").read_text(encoding="utf-8")))
    if policy is not None:
        _check(policy)
        next(pool for pool in pools if pool["metadata"]["name"] == LEARNED)["spec"]["policy"] = {"name": policy}
    dag = yaml.safe_load(example("01-etl.yaml").read_text(encoding="utf-8"))
    sizes = {pool["metadata"]["name"]: pool["spec"]["executors"] for pool in pools}
    return Setup(express(sizes, workflows, load, seed, dag), pools, load, seed)


def _check(policy: str) -> None:
    if policy.partition(":")[0] not in registry.names():
        raise InputError(f"--policy {policy!r}: expected one of {', '.join(registry.names())}")
    registry.load(policy)


def example(name: str) -> Path:
    """Return an example's path: inside the installed package, or in the checkout it is run from.

    Raises:
        FermataError: it is in neither.
    """
    for folder in (Path(str(resources.files("fermata.cli"))) / "examples", Path(__file__).parents[4] / "examples"):
        if (folder / name).is_file():
            return folder / name
    raise FermataError(f"the example {name} is not installed with this package")
