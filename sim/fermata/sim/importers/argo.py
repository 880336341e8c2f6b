"""Workflows of Argo that ran, as runs of a cluster.

Source: https://argo-workflows.readthedocs.io/en/latest/fields/#workflowstatus; how nodes hang together was read off
the controller (`workflow/controller/{dag,steps,operator,exit_handler}.go` of version 4.1).

What becomes of a Workflow:
- each pod that succeeded is a task. `status.nodes` is a graph of pods and of what holds them together (DAG, Steps,
  StepGroup, TaskGroup, Retry, Container): a pod depends on the pods that are reached against its edges by way of
  nodes that are none. An exit handler depends on the last pods of what it is for;
- pods of one fan-out (`withItems` and its kin: their names differ in a bracket at the end) with the same parents and
  children are one stage of so many tasks, any other pod is a stage of its own. Attempts that failed are left out;
- how long a pod ran is read off the pod. A node's own times begin when its pod is made, so they include what it waited
  for: they count only with `keep_incomplete`, where a pod is gone;
- skipped: what has not ended, or failed; what had no pods; and, without `keep_incomplete`, what waited for something
  that is no pod (a person, a time, a request), and what has a step beside one that it depends on, as daemons have.
  Nodes that Argo keeps in a database, or compresses by another way than gzip, cannot be read.
"""

from __future__ import annotations

import base64
import gzip
import re
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from pydantic import TypeAdapter

from fermata.sim.importers.cluster_objects import ArgoWorkflow, Node, Pod
from fermata.sim.importers.runs import NO_PODS, NOT_A_POD, RanStage, Run, UnfitError, family_of, reached
from fermata.sim.kube.pod_requests import Requests, most_of

_CRON, _NODE_NAME = "workflows.argoproj.io/cron-workflow", "workflows.argoproj.io/node-name"
_ON_EXIT = ".onExit"
_SKEW_S = 5.0  # that clocks of two nodes may differ, whole seconds of the API included
_WAITS = ("Suspend", "HTTP", "Plugin")  # of nodes that take time and no pod
# Which of a fan-out it is, `(2:item)`, and which attempt, `(0)`. An item may hold anything but what goes on after it.
_BRACKET = re.compile(r"(?:\(\d+(?::(?:(?!\)[.\[(]).)*?)?\))+$", re.DOTALL)
_NODES = TypeAdapter(dict[str, Node])


def argo_run(workflow: ArgoWorkflow, pods: Iterable[Pod], *, keep: bool) -> Run:
    """Return a Workflow as a run.

    Args:
        workflow: as it was last.
        pods: those that it owns, as far as there are any.
        keep: take nodes' own times where a pod is gone, and leave out waits for what is no pod.

    Raises:
        UnfitError: it can be none.
    """
    if not workflow.ended:
        raise UnfitError("has not ended")
    if workflow.status.phase != "Succeeded":
        raise UnfitError("failed")
    nodes = _nodes(workflow)
    if not keep and any(node.type in _WAITS and _length_s(node) for node in nodes.values()):
        raise UnfitError(NOT_A_POD)
    ran = {key: node for key, node in nodes.items() if node.is_pod_that_ran}
    if not ran:
        raise UnfitError("no pod of it succeeded")
    # Of a step that Argo began anew there may be two; one that did not succeed may be its only one all the same, as
    # where a sidecar was killed at its end.
    pod_of = {
        (pod.metadata.annotations or {}).get(_NODE_NAME): pod
        for pod in sorted(pods, key=lambda pod: pod.status.phase == "Succeeded")
    }
    spans_s, parents = _spans_s(ran, pod_of, keep=keep), _parents(nodes, ran)
    if not keep and any(spans_s[key][0] < spans_s[one][1] - _SKEW_S for key in ran for one in parents[key]):
        raise UnfitError("a step of it ran beside one that it depends on, as beside a daemon")
    meta = workflow.metadata
    template = workflow.spec.workflow_template_ref
    maker = meta.label(_CRON) or (template.name if template else None)
    requests = {key: pod_of[node.name].spec.requests for key, node in ran.items() if node.name in pod_of}
    return Run(meta, family_of(meta, maker), _stages(meta.name, ran, spans_s, parents, requests))


def _nodes(workflow: ArgoWorkflow) -> dict[str, Node]:
    status = workflow.status
    if status.nodes:
        return status.nodes
    if status.offload_node_status_version:
        raise UnfitError("Argo keeps what it consists of in a database")
    if not status.compressed_nodes:
        raise UnfitError("no pod of it succeeded")
    try:
        return _NODES.validate_json(gzip.decompress(base64.b64decode(status.compressed_nodes)))
    except (ValueError, gzip.BadGzipFile, EOFError, zlib.error):
        raise UnfitError("what it consists of is compressed by another way than gzip") from None


def _length_s(node: Node) -> float:
    if node.started_at is None or node.finished_at is None:
        return 0.0
    return max(0.0, (node.finished_at - node.started_at).total_seconds())


def _spans_s(ran: dict[str, Node], pod_of: Mapping[str | None, Pod], *, keep: bool) -> dict[str, tuple[float, float]]:
    """Return from when to when each node ran, seconds since the epoch.

    Raises:
        UnfitError: that is not known.
    """
    spans_s = {}
    for key, node in ran.items():
        span_s = pod_of[node.name].span_s if node.name in pod_of else None
        if span_s is None and keep and node.finished_at is not None:
            span_s = node.finished_at.timestamp() - _length_s(node), node.finished_at.timestamp()
        if span_s is None:
            raise UnfitError(NO_PODS)
        spans_s[key] = span_s
    return spans_s


def _parents(nodes: dict[str, Node], ran: dict[str, Node]) -> dict[str, set[str]]:
    """Return which pods that ran each of them depends on, directly."""
    above: dict[str, set[str]] = defaultdict(set)
    for key, node in nodes.items():
        for child in node.children or ():
            above[child].add(key)
    parents = {key: reached(key, above, ran) for key in ran}
    for node in nodes.values():
        if node.name.endswith(_ON_EXIT):
            _after(node.name.removesuffix(_ON_EXIT), node.name, ran, parents)
    return parents


def _after(step: str, handler: str, ran: dict[str, Node], parents: dict[str, set[str]]) -> None:
    """Let a step's exit handler, which has no edge from the step's last pods, depend on these."""
    inside = {key for key, node in ran.items() if _is_of(node, handler)}
    before = {key for key, node in ran.items() if _is_of(node, step)} - inside
    last = before - {parent for key in before for parent in parents[key]}
    for key in inside:
        if not parents[key] & inside:
            parents[key] |= last


def _is_of(node: Node, step: str) -> bool:
    return node.name == step or node.name.startswith((f"{step}.", f"{step}[", f"{step}("))


def _stages(
    workflow: str,
    ran: dict[str, Node],
    spans_s: dict[str, tuple[float, float]],
    parents: dict[str, set[str]],
    requests: Mapping[str, Requests],
) -> list[RanStage]:
    """Return pods as stages: those of one fan-out together, if the same comes before and after them."""
    children: dict[str, set[str]] = defaultdict(set)
    for key, above in parents.items():
        for parent in above:
            children[parent].add(key)
    groups: dict[object, list[str]] = defaultdict(list)
    for key in sorted(ran, key=lambda key: spans_s[key]):
        groups[_short(workflow, ran[key]), frozenset(parents[key]), frozenset(children[key])].append(key)
    shorts = Counter(_short(workflow, ran[keys[0]]) for keys in groups.values())
    names: dict[str, str] = {}
    for keys in groups.values():
        short, full = _short(workflow, ran[keys[0]]), ran[keys[0]].name.removeprefix(workflow).lstrip(".")
        names |= dict.fromkeys(keys, short if shorts[short] == 1 else full)
    return [
        RanStage(
            name=names[keys[0]],
            kind=_short(workflow, ran[keys[0]]),
            durations_s=[spans_s[key][1] - spans_s[key][0] for key in keys],
            depends_on=sorted({names[parent] for parent in parents[keys[0]]}),
            end_s=max(spans_s[key][1] for key in keys),
            requests=most_of(requests[key] for key in keys if key in requests),
        )
        for keys in groups.values()
    ]


def _short(workflow: str, node: Node) -> str:
    """Return a node's name without the Workflow's, and without what tells it from others of its fan-out."""
    return _BRACKET.sub("", node.name).removeprefix(workflow).lstrip(".") or "main"
