"""How many executors a pod is worth: what it requests of a resource, by how much of that one executor is."""

from __future__ import annotations

import math
from typing import NamedTuple

from fermata.policy.errors import InputError
from fermata.sim.kube.pod_requests import Requests
from fermata.sim.kube.quantity import MOST, parse_quantity
from fermata.sim.trace_builder import MAX_SLOTS

_LEAST = 1e-9  # Kubernetes' quantities have no smaller parts
_ROUNDING = 1e-9  # sums of a third of a core are no exact numbers


class ExecutorSize(NamedTuple):
    """What one executor is: so much of a resource, in its base unit (cores, bytes, devices)."""

    resource: str
    amount: float

    @classmethod
    def parse(cls, text: str, option: str) -> ExecutorSize:
        """Return what `RESOURCE=QUANTITY` says, as `nvidia.com/gpu=1` or `memory=4Gi`.

        Args:
            text: what was given.
            option: by which it was given.

        Raises:
            InputError: it says something else.
        """
        resource, _, quantity = text.partition("=")
        try:
            amount = parse_quantity(quantity)
        except ValueError:
            amount = 0.0
        if not resource or not _LEAST <= amount < MOST:
            raise InputError(f"{option} expects RESOURCE=QUANTITY, as nvidia.com/gpu=1 or memory=4Gi, not {text!r}")
        return cls(resource, amount)

    def slots(self, requests: Requests) -> int:
        """Return how many executors a pod takes, at least one."""
        worth = min(requests.get(self.resource, 0.0) / self.amount, MAX_SLOTS + 1)  # which a trace refuses
        return max(1, math.ceil(worth - _ROUNDING))
