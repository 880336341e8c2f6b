"""What a pod requests of each resource in all, by what its containers do.

Source: https://kubernetes.io/docs/concepts/workloads/pods/sidecar-containers/#resource-sharing-within-containers, and
for resources of the whole pod https://kubernetes.io/docs/concepts/workloads/pods/pod-resources/ (their own requests
count in place of the containers').
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict
from pydantic.alias_generators import to_camel

from fermata.sim.kube.quantity import parse_quantity

Requests = Mapping[str, float]
_Quantity = Annotated[float, BeforeValidator(parse_quantity)]


class _Part(BaseModel):
    """A part of a pod's spec, as far as it is asked for."""

    model_config = ConfigDict(alias_generator=to_camel, extra="ignore")


class _Resources(_Part):
    requests: dict[str, _Quantity] | None = None
    limits: dict[str, _Quantity] | None = None


class _Container(_Part):
    resources: _Resources | None = None
    restart_policy: str | None = None

    @property
    def requests(self) -> Requests:
        """What it requests; a limit alone counts as a request, which a pod's template does not say."""
        if self.resources is None:
            return {}
        return (self.resources.limits or {}) | (self.resources.requests or {})


class PodSpec(_Part):
    """What a pod consists of."""

    containers: list[_Container] | None = None
    init_containers: list[_Container] | None = None
    resources: _Resources | None = None
    overhead: dict[str, _Quantity] | None = None

    @property
    def requests(self) -> Requests:
        """What the pod requests of each resource, in its base unit.

        Containers run side by side, those that begin it one by one, and sidecars beside whatever comes after them.
        """
        together: dict[str, float] = {}
        first: dict[str, float] = {}  # the most that one of those before needs, with the sidecars begun by then
        for container in self.init_containers or ():
            if container.restart_policy == "Always":
                _add(together, container.requests)
                _raise_to(first, together)
            else:
                _raise_to(first, _sum(together, container.requests))
        for container in self.containers or ():
            _add(together, container.requests)
        _raise_to(together, first)
        together |= (self.resources and self.resources.requests) or {}
        return _sum(together, self.overhead or {})


def most_of(requests: Iterable[Requests]) -> dict[str, float]:
    """Return the most that one of some pods requests, of each resource."""
    most: dict[str, float] = {}
    for each in requests:
        _raise_to(most, each)
    return most


def _add(total: dict[str, float], more: Requests) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0.0) + amount


def _sum(one: Requests, other: Requests) -> dict[str, float]:
    total = dict(one)
    _add(total, other)
    return total


def _raise_to(least: dict[str, float], other: Requests) -> None:
    for name, amount in other.items():
        least[name] = max(least.get(name, 0.0), amount)
