"""Lists as `kubectl get` shows them: the server picks the columns and fills in the cells."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fermata.sim.kube import jsonpath
from fermata.sim.kube.clock import human_duration, now, parse

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from fermata.sim.kube.resources import Obj

Cell = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its name, its type in the table's header, and how a cell is read from an object.

    Args:
        priority: 0 is always shown, 1 with `-o wide` only.
    """

    name: str
    type: str
    cell: Callable[[Obj], Cell]
    priority: int = 0
    format: str = ""
    description: str = ""

    def header(self) -> Obj:
        """Return the column's definition."""
        return {
            "name": self.name,
            "type": self.type,
            "format": self.format,
            "description": self.description or self.name,
            "priority": self.priority,
        }


def table(columns: Sequence[Column], objects: Sequence[Obj], meta: Obj, *, whole: bool) -> Obj:
    """Return a Table of objects.

    Args:
        columns: what to show.
        objects: one row each.
        meta: the list's metadata.
        whole: put whole objects into the rows, rather than their metadata.
    """
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": meta,
        "columnDefinitions": [column.header() for column in columns],
        "rows": [
            {"cells": [column.cell(obj) for column in columns], "object": obj if whole else partial(obj)}
            for obj in objects
        ],
    }


def partial(obj: Obj) -> Obj:
    """Return an object's metadata alone."""
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": obj["metadata"]}


def custom_columns(printer_columns: Sequence[Obj]) -> list[Column]:
    """Return the columns of a custom kind: the name, those of its definition, and the age where it defines none."""
    columns = [_NAME]
    for spec in printer_columns:
        read = _custom_cell(jsonpath.parse(spec["jsonPath"]), spec["type"])
        columns.append(
            Column(
                spec["name"],
                spec["type"],
                read,
                int(spec.get("priority") or 0),
                spec.get("format") or "",
                spec.get("description") or "",
            )
        )
    return columns if printer_columns else [*columns, _AGE]


def _custom_cell(steps: list[Callable[[Any], Any]], type_: str) -> Callable[[Obj], Cell]:
    def cell(obj: Obj) -> Cell:
        values = jsonpath.read(steps, obj)
        if not values or values[0] is None:
            return None
        value = values[0]
        if type_ == "date":
            return _since(value, now())
        if type_ == "integer":
            return int(value) if isinstance(value, (int, float)) else None
        if type_ == "number":
            return float(value) if isinstance(value, (int, float)) else None
        if type_ == "boolean":
            return value if isinstance(value, bool) else None
        if len(values) > 1:
            return ",".join(map(_plain, values))
        return _plain(value)

    return cell


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))


def _since(text: Any, at: datetime) -> str:
    try:
        return human_duration((at - parse(str(text))).total_seconds())
    except ValueError:
        return "<invalid>"


def _age(obj: Obj) -> str:
    return _since(obj["metadata"].get("creationTimestamp", ""), now())


def _at(*path: str, default: Cell = "<none>") -> Callable[[Obj], Cell]:
    def cell(obj: Obj) -> Cell:
        value: Any = obj
        for part in path:
            value = value.get(part) if isinstance(value, dict) else None
        return default if value is None else value

    return cell


def _pod_ready(pod: Obj) -> str:
    statuses = pod.get("status", {}).get("containerStatuses") or []
    return f"{sum(bool(item.get('ready')) for item in statuses)}/{len(pod['spec']['containers'])}"


def _pod_status(pod: Obj) -> str:
    status = pod.get("status", {})
    reason = str(status.get("reason") or status.get("phase") or "Unknown")
    if pod["metadata"].get("deletionTimestamp"):
        return "Terminating"
    for item in status.get("conditions") or []:
        if item.get("type") == "PodScheduled" and item.get("reason") == "SchedulingGated":
            return "SchedulingGated"
    for item in status.get("containerStatuses") or []:
        state = item.get("state") or {}
        if (state.get("waiting") or {}).get("reason"):
            reason = state["waiting"]["reason"]
        elif state.get("terminated"):
            ended = state["terminated"]
            reason = ended.get("reason") or f"ExitCode:{ended.get('exitCode')}"
    return reason


def _pod_restarts(pod: Obj) -> str:
    statuses = pod.get("status", {}).get("containerStatuses") or []
    return str(sum(int(item.get("restartCount") or 0) for item in statuses))


def _job_status(job: Obj) -> str:
    true = [item["type"] for item in job.get("status", {}).get("conditions") or [] if item.get("status") == "True"]
    for known in ("Complete", "Failed"):
        if known in true:
            return known
    if job["metadata"].get("deletionTimestamp"):
        return "Terminating"
    if "Suspended" in true:
        return "Suspended"
    return "FailureTarget" if "FailureTarget" in true else "Running"


def _job_completions(job: Obj) -> str:
    done, wanted = job.get("status", {}).get("succeeded") or 0, job["spec"].get("completions")
    if wanted is not None:
        return f"{done}/{wanted}"
    parallelism = job["spec"].get("parallelism") or 0
    return f"{done}/1 of {parallelism}" if parallelism > 1 else f"{done}/1"


def _job_duration(job: Obj) -> str:
    status = job.get("status", {})
    if not status.get("startTime"):
        return ""
    end = parse(status["completionTime"]) if status.get("completionTime") else now()
    return _since(status["startTime"], end)


def _node_status(node: Obj) -> str:
    conditions = node.get("status", {}).get("conditions") or []
    ready = any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)
    parts = ["Ready" if ready else "NotReady"] + (["SchedulingDisabled"] if node["spec"].get("unschedulable") else [])
    return ",".join(parts)


def _event_object(event: Obj) -> str:
    target = event.get("involvedObject") or event.get("regarding") or {}
    return f"{str(target.get('kind', '')).lower()}/{target.get('name', '')}"


def _event_last(event: Obj) -> str:
    for field in ("lastTimestamp", "deprecatedLastTimestamp", "eventTime", "firstTimestamp"):
        if event.get(field):
            return _since(event[field], now())
    return _age(event)


def _selector(job: Obj) -> str:
    labels = (job["spec"].get("selector") or {}).get("matchLabels") or {}
    return ",".join(f"{key}={value}" for key, value in labels.items()) or "<none>"


def _containers(field: str) -> Callable[[Obj], Cell]:
    return lambda job: ",".join(str(item.get(field)) for item in job["spec"]["template"]["spec"]["containers"])


def _condition(type_: str) -> Callable[[Obj], Cell]:
    def cell(obj: Obj) -> Cell:
        conditions = obj.get("status", {}).get("conditions") or []
        return next((item["status"] for item in conditions if item["type"] == type_), "")

    return cell


_NAME = Column("Name", "string", lambda obj: obj["metadata"]["name"], format="name")
_AGE = Column("Age", "string", _age)
PLAIN_COLUMNS = [_NAME, Column("Created At", "date", _at("metadata", "creationTimestamp", default=""))]

#: Columns of the built-in kinds, by storage key.
#: Source: `k8s.io/kubernetes/pkg/printers/internalversion/printers.go`.
BUILTIN_COLUMNS: dict[tuple[str, str], list[Column]] = {
    ("", "namespaces"): [_NAME, Column("Status", "string", _at("status", "phase")), _AGE],
    ("", "pods"): [
        _NAME,
        Column("Ready", "string", _pod_ready),
        Column("Status", "string", _pod_status),
        Column("Restarts", "string", _pod_restarts),
        _AGE,
        Column("IP", "string", _at("status", "podIP"), 1),
        Column("Node", "string", _at("spec", "nodeName"), 1),
        Column("Nominated Node", "string", _at("status", "nominatedNodeName"), 1),
        Column("Readiness Gates", "string", lambda _: "<none>", 1),
    ],
    ("batch", "jobs"): [
        _NAME,
        Column("Status", "string", _job_status),
        Column("Completions", "string", _job_completions),
        Column("Duration", "string", _job_duration),
        _AGE,
        Column("Containers", "string", _containers("name"), 1),
        Column("Images", "string", _containers("image"), 1),
        Column("Selector", "string", _selector, 1),
    ],
    ("", "nodes"): [
        _NAME,
        Column("Status", "string", _node_status),
        Column("Roles", "string", lambda _: "<none>"),
        _AGE,
        Column("Version", "string", _at("status", "nodeInfo", "kubeletVersion", default="")),
        Column("Slots", "string", _at("status", "allocatable", "pods"), 1),
    ],
    ("", "events"): [
        Column("Last Seen", "string", _event_last),
        Column("Type", "string", _at("type", default="")),
        Column("Reason", "string", _at("reason", default="")),
        Column("Object", "string", _event_object),
        Column("Source", "string", _at("source", "component", default=""), 1),
        Column("Message", "string", lambda event: str(event.get("message") or event.get("note") or "").strip()),
        Column("Count", "string", _at("count", default=""), 1),
        Column("Name", "string", _NAME.cell, 1, "name"),
    ],
    ("", "configmaps"): [
        _NAME,
        Column("Data", "string", lambda obj: len(obj.get("data") or ()) + len(obj.get("binaryData") or ())),
        _AGE,
    ],
    ("", "secrets"): [
        _NAME,
        Column("Type", "string", _at("type")),
        Column("Data", "string", lambda obj: len(obj.get("data") or ())),
        _AGE,
    ],
    ("", "services"): [
        _NAME,
        Column("Type", "string", _at("spec", "type", default="ClusterIP")),
        Column("Cluster-IP", "string", _at("spec", "clusterIP")),
        _AGE,
    ],
    ("", "serviceaccounts"): [_NAME, _AGE],
    ("apps", "deployments"): [
        _NAME,
        Column("Ready", "string", lambda obj: f"{_at('status', 'readyReplicas', default=0)(obj)}/"
                                              f"{_at('spec', 'replicas', default=1)(obj)}"),
        _AGE,
    ],
    ("coordination.k8s.io", "leases"): [_NAME, Column("Holder", "string", _at("spec", "holderIdentity")), _AGE],
    ("apiextensions.k8s.io", "customresourcedefinitions"): [
        _NAME,
        PLAIN_COLUMNS[1],
        Column("Established", "string", _condition("Established"), 1),
    ],
}  # fmt: skip
