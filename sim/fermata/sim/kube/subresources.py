"""The subresources that are verbs of their own: a pod's binding and eviction, and a namespace's finalizers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fermata.sim.kube.budgets import check_budgets
from fermata.sim.kube.clock import stamp
from fermata.sim.kube.errors import conflict, invalid, required
from fermata.sim.kube.failure_policy import disrupted
from fermata.sim.kube.identity import check_preconditions
from fermata.sim.kube.store import Selection

if TYPE_CHECKING:
    from fermata.sim.kube.api import Api
    from fermata.sim.kube.options import DeleteOptions, WriteOptions
    from fermata.sim.kube.resources import Obj, Resource


def bind(api: Api, resource: Resource, namespace: str, name: str, binding: Obj, *, dry_run: bool) -> None:
    """Assign a pod to a node.

    Raises:
        ApiError: 409 when it is assigned or gated, 422 without a target.
    """
    entry = api.entry(resource, namespace, name)
    node = (binding.get("target") or {}).get("name")
    if not node:
        raise invalid(resource, name, [required("target.name")])
    uid = (binding.get("metadata") or {}).get("uid")
    check_preconditions(resource, entry, uid or None)
    pod = entry.load()
    if pod["metadata"].get("deletionTimestamp"):
        raise conflict(resource, name, f"pod {name} is being deleted, cannot be assigned to a host")
    if pod["spec"].get("nodeName"):
        raise conflict(resource, name, f"pod {name} is already assigned to node {pod['spec']['nodeName']!r}")
    if pod["spec"].get("schedulingGates"):
        raise conflict(resource, name, f"pod {name} has non-empty .spec.schedulingGates")
    pod["spec"]["nodeName"] = node
    scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": stamp()}
    conditions = pod["status"].get("conditions") or []
    pod["status"]["conditions"] = [item for item in conditions if item["type"] != "PodScheduled"] + [scheduled]
    api.amend(resource, entry, pod, dry_run=dry_run)


def evict(api: Api, resource: Resource, namespace: str, name: str, options: DeleteOptions) -> None:
    """Delete a pod, and let its status say that it was taken away.

    Raises:
        ApiError: 404, 409 when a precondition does not hold, 429 when a disruption budget does not allow it.
    """
    entry = api.entry(resource, namespace, name)
    check_preconditions(resource, entry, options.uid, options.resource_version)
    pod = entry.load()
    budgets = api.resources.find("policy", "v1", "poddisruptionbudgets")
    if budgets is not None:
        check_budgets(
            pod,
            [budget.load() for budget in api.table(budgets).select(Selection(namespace))],
            [other.load() for other in api.table(resource).select(Selection(namespace))],
        )
    if not options.dry_run and pod["status"].get("phase") not in ("Succeeded", "Failed"):
        disrupted(pod["status"], "EvictionByEvictionAPI", "Eviction API: evicting", stamp())
        api.amend(resource, entry, pod)
    api.delete(resource, namespace, name, options)


def finalize(api: Api, resource: Resource, name: str, obj: Obj, options: WriteOptions) -> Obj:
    """Replace a namespace's own finalizers; with none left, a terminating namespace is gone."""
    entry = api.entry(resource, "", name)
    new = entry.load()
    new["spec"] = {"finalizers": (obj.get("spec") or {}).get("finalizers") or []}
    if options.dry_run:
        return new
    meta = new["metadata"]
    if meta.get("deletionTimestamp") and not new["spec"]["finalizers"] and not meta.get("finalizers"):
        api.store.remove(api.table(resource), new, entry)
        return new
    return api.amend(resource, entry, new)
