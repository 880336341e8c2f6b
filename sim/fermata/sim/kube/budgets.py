"""PodDisruptionBudgets: whether a pod may be evicted now.

Counted anew at each eviction, from the pods as they are; no status is kept.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from fermata.sim.kube.errors import ApiError
from fermata.sim.kube.selectors import selects

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fermata.sim.kube.resources import Obj


def check_budgets(pod: Obj, budgets: Sequence[Obj], pods: Sequence[Obj]) -> None:
    """Refuse an eviction that a budget does not allow.

    A pod that has ended may always go, and one that is not ready may, as under `unhealthyPodEvictionPolicy`'s default,
    where enough others are healthy.

    Args:
        pod: to be evicted.
        budgets: of its namespace.
        pods: of its namespace.

    Raises:
        ApiError: 429 as the API server answers, 500 where two budgets select the pod.
    """
    if pod["status"].get("phase") in ("Pending", "Succeeded", "Failed"):
        return
    mine = [budget for budget in budgets if _selects(budget, pod)]
    if len(mine) > 1:
        raise ApiError(500, "InternalError", "This pod has more than one PodDisruptionBudget, which is not supported.")
    for budget in mine:
        covered = [other for other in pods if _selects(budget, other) and _is_alive(other)]
        healthy = sum(_is_ready(other) for other in covered)
        wanted = _wanted(budget["spec"], len(covered))
        if healthy - _is_ready(pod) < wanted:
            name = budget["metadata"]["name"]
            why = f"The disruption budget {name} needs {wanted} healthy pods and has {healthy} currently"
            causes = [{"reason": "DisruptionBudget", "message": why}]
            message = "Cannot evict pod as it would violate the pod's disruption budget."
            raise ApiError(429, "TooManyRequests", message, {"causes": causes})


def _selects(budget: Obj, pod: Obj) -> bool:
    return selects(budget["spec"].get("selector"), pod["metadata"].get("labels"))


def _wanted(spec: Obj, covered: int) -> int:
    """Return how many pods must stay healthy."""
    if spec.get("maxUnavailable") is not None:
        return max(covered - _count(spec["maxUnavailable"], covered), 0)
    return _count(spec.get("minAvailable", 1), covered)


def _count(value: Any, covered: int) -> int:
    """Return a number that may be a percentage, which is rounded up."""
    if isinstance(value, str):
        return math.ceil(float(value.rstrip("%")) * covered / 100)
    return int(value)


def _is_alive(pod: Obj) -> bool:
    return pod["status"].get("phase") not in ("Succeeded", "Failed")


def _is_ready(pod: Obj) -> bool:
    conditions = pod["status"].get("conditions") or []
    return not pod["metadata"].get("deletionTimestamp") and any(
        item["type"] == "Ready" and item["status"] == "True" for item in conditions
    )
