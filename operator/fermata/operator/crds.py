"""The CustomResourceDefinitions, generated from the models so that the two cannot drift apart.

`python -m fermata.operator.crds DIR` writes them; a test says when the files in `deploy/crds` are old. Pydantic writes
JSON Schema with references and `anyOf`; an API server wants a structural schema, so the generator flattens it.

Costs of the CEL rules are bounded by the `maxItems` and `maxLength` of the models. "Every parent exists" is left to the
operator: the API server estimates it at stages² x parents, which fits its budget only for workflows too small to be
useful.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel

from fermata.operator import resources
from fermata.operator.names import GROUP, MAX_LABEL, POOL, POOLS, VERSION, WORKFLOW, WORKFLOWS

_CONDITION = '.status.conditions[?(@.type=="{}")].{}'
_WORKFLOW_COLUMNS = (
    ("Succeeded", "string", _CONDITION.format("Succeeded", "status"), 0),
    ("Reason", "string", _CONDITION.format("Succeeded", "reason"), 0),
    ("Tasks", "string", ".status.progress", 0),
    ("Running", "integer", ".status.tasks.running", 0),
    # Holds that ended, and how long the present one lasts: the API server counts from a date, so nobody has to write.
    ("Held", "number", ".status.heldSeconds", 0),
    ("Held-Now", "date", ".status.heldSince", 0),
    ("JCT", "number", ".status.jctSeconds", 0),
    ("Age", "date", ".metadata.creationTimestamp", 0),
    ("Wait", "number", ".status.waitSeconds", 1),
    ("Slowdown", "number", ".status.slowdown", 1),
    ("Pool", "string", ".spec.poolName", 1),
    ("Policy", "string", ".status.policy", 1),
    ("Priority", "integer", ".spec.priority", 1),
)
_POOL_COLUMNS = (
    ("Executors", "integer", ".spec.executors", 0),
    ("Busy", "integer", ".status.busy", 0),
    ("Waiting", "integer", ".status.waiting", 0),
    ("Held", "integer", ".status.held", 0),
    ("Policy", "string", ".status.policy", 0),
    ("Mode", "string", ".spec.mode", 0),
    ("Ready", "string", _CONDITION.format("Ready", "status"), 0),
    ("Age", "date", ".metadata.creationTimestamp", 0),
    ("Saved-Percent", "number", ".status.holdSavingsPercent", 1),
    ("Holding-Paused", "string", _CONDITION.format("HoldingPaused", "status"), 1),
    ("Policy-Ready", "string", _CONDITION.format("PolicyReady", "status"), 1),
    ("Reason", "string", _CONDITION.format("PolicyReady", "reason"), 1),
)
# A pod template is Kubernetes' own business: only what a Job cannot do without is asked for here.
_TEMPLATE: dict[str, Any] = {
    "type": "object",
    "description": "The pod template of its tasks, passed on as it is but for labels, an annotation and, where tasks "
    "take turns, a gate.",
    "required": ["spec"],
    "properties": {
        "metadata": {
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": True,
            "properties": {
                "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                "annotations": {"type": "object", "additionalProperties": {"type": "string"}},
            },
        },
        "spec": {
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": True,
            "required": ["containers"],
            "properties": {
                "restartPolicy": {"type": "string", "enum": ["Never", "OnFailure"], "default": "Never"},
                "containers": {
                    "type": "array",
                    "minItems": 1,
                    "maxItems": 100,
                    "items": {
                        "type": "object",
                        "x-kubernetes-preserve-unknown-fields": True,
                        "required": ["name"],
                        "properties": {"name": {"type": "string", "minLength": 1, "maxLength": 63}},
                    },
                },
            },
        },
    },
}
# A pool's name is a label of its Jobs and pods, by which they are found again.
_POOL_METADATA: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": MAX_LABEL}},
}
_DROPPED = ("title", "$defs")


def structural(model: type[BaseModel]) -> dict[str, Any]:
    """Return a model's schema as an API server takes it: no references, no `anyOf`, no titles.

    Raises:
        ValueError: the model uses something that has no structural form.
    """
    raw = model.model_json_schema(by_alias=True)
    return _flat(raw, raw.get("$defs", {}))


def _flat(node: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    if "$ref" in node:
        target = definitions[node["$ref"].rpartition("/")[2]]
        node = {**target, **{key: value for key, value in node.items() if key != "$ref"}}
    if "anyOf" in node:
        options = [option for option in node["anyOf"] if option.get("type") != "null"]
        if len(options) != 1:
            raise ValueError(f"no structural form for anyOf: {node['anyOf']}")
        rest = {key: value for key, value in node.items() if key != "anyOf"}
        return _flat({**options[0], **rest}, definitions)
    flat = {key: value for key, value in node.items() if key not in _DROPPED and value is not None}
    if flat.get("additionalProperties") is False:
        del flat["additionalProperties"]
    if flat.get("type") == "number":
        flat.setdefault("format", "double")
    elif flat.get("type") == "integer":
        flat.setdefault("format", "int64")
    if "properties" in flat:
        flat["properties"] = {
            name: _TEMPLATE if name == "template" else _flat(value, definitions)
            for name, value in flat["properties"].items()
        }
    for key in ("items", "additionalProperties"):
        if isinstance(flat.get(key), dict):
            flat[key] = _flat(flat[key], definitions)
    if "const" in flat:
        flat["enum"] = [flat.pop("const")]
    return flat


def _definition(
    kind: str,
    plural: str,
    short: str,
    scope: str,
    spec: type[BaseModel],
    status: type[BaseModel],
    columns: tuple[tuple[str, str, str, int], ...],
) -> dict[str, Any]:
    """Return one CustomResourceDefinition."""
    schema = {
        "type": "object",
        "description": (spec.__doc__ or "").strip(),
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": _POOL_METADATA if kind == POOL else {"type": "object"},
            "spec": structural(spec),
            "status": structural(status),
        },
    }
    printed = [
        {"name": name, "type": kind_, "jsonPath": path, **({"priority": priority} if priority else {})}
        for name, kind_, path, priority in columns
    ]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}", "labels": {"app.kubernetes.io/name": "fermata"}},
        "spec": {
            "group": GROUP,
            "scope": scope,
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": plural,
                "singular": kind.lower(),
                "shortNames": [short],
                "categories": ["fermata"],
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": printed,
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


def manifests() -> list[dict[str, Any]]:
    """Return both CustomResourceDefinitions."""
    return [
        _definition(
            WORKFLOW,
            WORKFLOWS,
            "fwf",
            "Namespaced",
            resources.WorkflowSpec,
            resources.WorkflowStatus,
            _WORKFLOW_COLUMNS,
        ),
        _definition(
            POOL, POOLS, "fpool", "Cluster", resources.ExecutorPoolSpec, resources.ExecutorPoolStatus, _POOL_COLUMNS
        ),
    ]


def files() -> dict[str, str]:
    """Return the text of each file of `deploy/crds` by its name."""
    head = "# Generated by: python -m fermata.operator.crds deploy/crds\n"
    return {
        f"{manifest['metadata']['name']}.yaml": head + yaml.safe_dump(manifest, sort_keys=False, width=120)
        for manifest in manifests()
    }


def main() -> None:
    """Write the files into the directory that the command line names."""
    directory = Path(sys.argv[1] if len(sys.argv) > 1 else "deploy/crds")
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in files().items():
        (directory / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
