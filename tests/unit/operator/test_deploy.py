"""What ships in deploy/: complete, and with no more rights than the operator needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"


def _objects() -> list[dict[str, Any]]:
    listed = yaml.safe_load((DEPLOY / "kustomization.yaml").read_text())["resources"]
    return [item for name in listed for item in yaml.safe_load_all((DEPLOY / name).read_text())]


def test_the_kustomization_lists_every_manifest() -> None:
    listed = set(yaml.safe_load((DEPLOY / "kustomization.yaml").read_text())["resources"])
    present = {str(path.relative_to(DEPLOY)) for path in (*DEPLOY.glob("*.yaml"), *DEPLOY.glob("crds/*.yaml"))}
    assert listed == present - {"kustomization.yaml"}


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
