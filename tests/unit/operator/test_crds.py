"""The CRDs: current in deploy/, structural, and saying what the models say."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fermata.operator.crds import files, manifests, structural
from fermata.operator.reasons import MEANING
from fermata.operator.resources import WorkflowSpec

ROOT = Path(__file__).resolve().parents[3]


def test_the_files_in_deploy_are_current() -> None:
    folder = ROOT / "deploy" / "crds"
    assert {path.name: path.read_text() for path in folder.glob("*.fermata.dev.yaml")} == files(), (
        "run: python -m fermata.operator.crds deploy/crds"
    )


def _nodes(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield schema
    for child in schema.get("properties", {}).values():
        yield from _nodes(child)
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from _nodes(schema[key])


@pytest.mark.parametrize("manifest", manifests(), ids=lambda manifest: manifest["spec"]["names"]["kind"])
def test_schemas_are_structural_and_bounded(manifest: dict[str, Any]) -> None:
    (version,) = manifest["spec"]["versions"]
    for node in _nodes(version["schema"]["openAPIV3Schema"]):
        assert "type" in node, node
        assert not {"$ref", "anyOf", "title", "const", "$defs"} & node.keys(), node
        if node["type"] == "array":
            assert "maxItems" in node, node
        if node["type"] == "object" and "additionalProperties" in node:
            assert node["additionalProperties"] is not False


def test_names_columns_and_subresource() -> None:
    workflow, pool = manifests()
    assert workflow["spec"]["names"]["shortNames"] == ["fwf"]
    assert pool["spec"]["names"]["shortNames"] == ["fpool"]
    assert (workflow["spec"]["scope"], pool["spec"]["scope"]) == ("Namespaced", "Cluster")
    for manifest in (workflow, pool):
        (version,) = manifest["spec"]["versions"]
        assert version["subresources"] == {"status": {}}
    wide = {
        column["name"]
        for column in workflow["spec"]["versions"][0]["additionalPrinterColumns"]
        if column.get("priority")
    }
    assert {"Slowdown", "Policy", "Priority"} <= wide


def test_stages_are_a_list_map_by_name() -> None:
    stages = structural(WorkflowSpec)["properties"]["stages"]
    assert stages["x-kubernetes-list-map-keys"] == ["name"]
    assert "name" in stages["items"]["required"]
    assert stages["items"]["properties"]["template"]["required"] == ["spec"]


def test_every_reason_is_documented() -> None:
    from fermata.operator import reasons

    constants = {value for name, value in vars(reasons).items() if name.isupper() and isinstance(value, str)}
    assert constants == MEANING.keys()
