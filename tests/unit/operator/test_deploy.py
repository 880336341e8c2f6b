"""What ships in deploy/: complete, and with no more rights than the operator needs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from fermata.operator.metrics import Metrics

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"
CHART = DEPLOY / "helm/fermata"
MONITORING = DEPLOY / "overlays/monitoring"


def _files(folder: Path) -> Iterator[Path]:
    """Yield the manifests that a kustomization takes together."""
    for name in yaml.safe_load((folder / "kustomization.yaml").read_text())["resources"]:
        path = (folder / name).resolve()
        if path.is_dir():
            yield from _files(path)
        else:
            yield path


def _objects(folder: Path = DEPLOY) -> list[dict[str, Any]]:
    return [item for path in _files(folder) for item in yaml.safe_load_all(path.read_text())]


def test_the_kustomizations_list_every_manifest() -> None:
    listed = {path for folder in (DEPLOY, *DEPLOY.glob("overlays/*")) for path in _files(folder)}
    folders = [DEPLOY / "crds", DEPLOY / "base", *DEPLOY.glob("overlays/*")]
    present = {path for folder in folders for path in folder.glob("*.yaml") if path.name != "kustomization.yaml"}
    assert listed == present


def test_no_rule_has_a_wildcard_and_no_secret_is_read() -> None:
    roles = [item for item in _objects() if item["kind"] in ("Role", "ClusterRole")]
    rules = [rule for role in roles for rule in role["rules"]]
    assert rules
    for rule in rules:
        for key in ("apiGroups", "resources", "verbs"):
            assert "*" not in rule[key], rule
        assert "secrets" not in rule["resources"]
    written = {
        resource
        for rule in rules
        for resource in rule["resources"]
        if {"create", "patch", "update", "delete"} & set(rule["verbs"])
    }
    assert written == {
        "workflows", "workflows/status", "workflows/finalizers", "executorpools/status", "jobs", "events",
        "leases",
    }  # fmt: skip


def test_the_operator_runs_locked_down() -> None:
    (deployment,) = (item for item in _objects() if item["kind"] == "Deployment")
    assert deployment["spec"]["strategy"]["type"] == "Recreate"
    pod = deployment["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["securityContext"]["seccompProfile"]["type"] == "RuntimeDefault"
    (container,) = pod["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {"livenessProbe", "readinessProbe"} <= container.keys()
    assert container["resources"]["limits"]["memory"]


def test_the_network_policy_lets_in_what_asks_for_metrics_and_nothing_else() -> None:
    (policy,) = (item for item in _objects() if item["kind"] == "NetworkPolicy")
    (deployment,) = (item for item in _objects() if item["kind"] == "Deployment")
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert policy["spec"]["podSelector"]["matchLabels"].items() <= labels.items()
    assert set(policy["spec"]["policyTypes"]) == {"Ingress", "Egress"}
    ports = [port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]]
    assert ports == [port["containerPort"] for port in deployment["spec"]["template"]["spec"]["containers"][0]["ports"]]


# The chart ---------------------------------------------------------------------------------------------------------


def test_the_chart_has_the_rights_crds_alerts_and_dashboard_of_the_kustomization() -> None:
    rules = yaml.safe_load((CHART / "files/rules.yaml").read_text())
    assert rules == {item["metadata"]["name"]: item["rules"] for item in _objects() if item["kind"].endswith("Role")}
    for path in (DEPLOY / "crds").glob("*.fermata.dev.yaml"):
        assert (CHART / "crds" / path.name).read_text() == path.read_text(), "run: make crds"
    assert (CHART / "files/dashboard.json").read_text() == (MONITORING / "dashboard.json").read_text()
    alerts = yaml.safe_load((MONITORING / "rules.yaml").read_text())["spec"]
    assert yaml.safe_load((CHART / "files/alerts.yaml").read_text()) == alerts


def test_the_charts_values_keep_to_their_schema_and_every_one_is_used() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(values, schema)
    jsonschema.validate({**values, "global": {}}, schema)  # as a part of another chart
    assert values.keys() == schema["properties"].keys() - {"global"}
    templates = "".join(path.read_text() for path in (CHART / "templates").iterdir())
    assert {name for name in values if f".Values.{name}" not in templates} == set()
    assert set(re.findall(r"\.Values\.(\w+)", templates)) == values.keys()


@pytest.mark.parametrize(
    "wrong", [{"replicas": -1}, {"replica": 1}, {"metricsPort": 80}, {"image": {"tag": "x"}}, {"leaseSeconds": 0}]
)
def test_wrong_values_are_refused(wrong: dict[str, Any]) -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(wrong, schema)


def test_the_charts_pod_is_locked_down_as_the_other() -> None:
    text = (CHART / "templates/deployment.yaml").read_text()
    for line in ("runAsNonRoot: true", "readOnlyRootFilesystem: true", "allowPrivilegeEscalation: false",
                 "capabilities: {drop: [ALL]}", "seccompProfile: {type: RuntimeDefault}"):  # fmt: skip
        assert line in text


# Monitoring --------------------------------------------------------------------------------------------------------


def _asked() -> set[str]:
    rules = yaml.safe_load((MONITORING / "rules.yaml").read_text())["spec"]["groups"]
    expressions = [rule["expr"] for group in rules for rule in group["rules"]]
    dashboard = json.loads((MONITORING / "dashboard.json").read_text())
    expressions += [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    return {name for text in expressions for name in re.findall(r"\bfermata_\w+", text)}


def test_dashboard_and_alerts_ask_for_metrics_that_there_are() -> None:
    families = {family.name: family.type for family in Metrics().registry.collect()} | {"fermata_leader": "gauge"}
    suffixes = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"], "gauge": [""]}
    there = {name + suffix for name, kind in families.items() for suffix in suffixes[kind]}
    assert _asked() - there == set()
    assert len(_asked()) >= 15


def test_every_alert_says_what_to_do() -> None:
    rules = yaml.safe_load((MONITORING / "rules.yaml").read_text())["spec"]["groups"]
    for rule in (rule for group in rules for rule in group["rules"]):
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        assert rule["annotations"].keys() == {"summary", "description"}
