"""What ships in deploy/: complete, and with no more rights than the operator needs."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jsonschema
import pytest
import yaml
from prometheus_client import ProcessCollector
from tests.operator_rig import OF_CLUSTER

from fermata.operator.metrics import Metrics
from fermata.operator.options import Options
from fermata.operator.runtime import Operator

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


def test_users_get_workflows_with_kubernetes_own_roles_and_pools_only_to_look_at() -> None:
    roles = {item["metadata"]["name"]: item for item in _objects() if item["kind"] == "ClusterRole"}
    chart = (CHART / "templates/users.yaml").read_text()
    for part, resources in (("view", {"workflows", "executorpools"}), ("edit", {"workflows"})):
        role, label = roles[f"fermata-{part}"], "rbac.authorization.k8s.io/aggregate-to-"
        assert role["metadata"]["labels"][f"{label}{part}"] == "true"
        assert {each for rule in role["rules"] for each in rule["resources"]} == resources
        assert f"{label}{{{{ . }}}}" in chart
    assert {verb for rule in roles["fermata-view"]["rules"] for verb in rule["verbs"]} == {"get", "list", "watch"}


def test_the_operator_runs_locked_down() -> None:
    (deployment,) = (item for item in _objects() if item["kind"] == "Deployment")
    assert deployment["spec"]["strategy"]["type"] == "Recreate"
    pod = deployment["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["securityContext"]["seccompProfile"]["type"] == "RuntimeDefault"
    assert pod["automountServiceAccountToken"] is True  # it cannot do without, whatever its account says of others
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
    objects = [*_objects(), *_objects(DEPLOY / "overlays/turns")]
    assert rules == {item["metadata"]["name"]: item["rules"] for item in objects if item["kind"].endswith("Role")}
    for path in (DEPLOY / "crds").glob("*.fermata.dev.yaml"):
        assert (CHART / "crds" / path.name).read_text() == path.read_text(), "run: make crds"
    assert (CHART / "files/dashboard.json").read_text() == (MONITORING / "dashboard.json").read_text()
    alerts = yaml.safe_load((MONITORING / "rules.yaml").read_text())["spec"]
    assert yaml.safe_load((CHART / "files/alerts.yaml").read_text()) == alerts


def test_the_chart_tells_what_lies_in_no_namespace() -> None:
    """With `watchNamespace` it grants that in the whole cluster, and the rest in one namespace."""
    crds = [item["spec"] for item in _objects(DEPLOY / "crds")]
    plurals = {"namespaces", *(spec["names"]["plural"] for spec in crds if spec["scope"] == "Cluster")}
    (role,) = (item for item in _objects() if (item["kind"], item["metadata"]["name"]) == ("ClusterRole", "fermata"))
    rules = [set(rule["resources"]) for rule in role["rules"]]
    of_cluster = {resource for rule in rules for resource in rule if resource.partition("/")[0] in plurals}
    assert all(rule <= of_cluster or not rule & of_cluster for rule in rules), "split the rule"
    (told,) = re.findall(r"\$ofCluster := list (.*?) }}", (CHART / "templates/rbac.yaml").read_text())
    assert set(re.findall(r'"(.*?)"', told)) == of_cluster == OF_CLUSTER


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


def test_two_operators_of_the_chart_are_spread_over_nodes_as_those_of_the_overlay() -> None:
    (patch,) = yaml.safe_load((DEPLOY / "overlays/standby/kustomization.yaml").read_text())["patches"]
    (rule,) = next(op["value"] for op in yaml.safe_load(patch["patch"]) if op["path"].endswith("SpreadConstraints"))
    rule.pop("labelSelector")
    text = (CHART / "templates/deployment.yaml").read_text()
    for key, value in rule.items():
        assert f"{key}: {value}" in text


def test_the_chart_is_scraped_by_the_annotations_of_the_kustomization() -> None:
    (deployment,) = (item for item in _objects() if item["kind"] == "Deployment")
    text = (CHART / "templates/deployment.yaml").read_text()
    for name in deployment["spec"]["template"]["metadata"]["annotations"]:
        assert f'"{name}"' in text


def test_the_chart_is_of_this_version_and_what_is_said_of_its_image_is_true() -> None:
    version = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text())["project"]["version"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (version, version)
    page = (DEPLOY.parent / "docs/deploying.md").read_text()
    assert f"`fermata:{version}`" in page, "what the chart takes without a tag"
    # What is built by the page's first line is what its other lines deploy.
    assert "docker build -f deploy/Dockerfile -t fermata:latest" in page
    (told,) = re.findall(r"helm install [^`]*", page)
    assert "image.tag=latest" in told


def test_the_image_knows_its_user_so_that_the_operator_has_no_part_in_the_group_of_root() -> None:
    # The manifests name no user, for OpenShift's sake. Of the image's a kubelet passes on the number and not the group.
    lines = (DEPLOY / "Dockerfile").read_text().splitlines()
    (user,) = [line for line in lines if line.startswith("USER ")]
    uid, gid = user.removeprefix("USER ").split(":")
    known = [line for line in lines if re.search(rf":x:{uid}:{gid}:\S* >> /etc/passwd\b", line)]
    assert known
    assert lines.index(known[0]) < lines.index(user)


def test_the_charts_notes_name_the_lease_that_it_gives_rights_to() -> None:
    texts = [(CHART / "templates" / name).read_text() for name in ("rbac.yaml", "NOTES.txt")]
    rights, notes = (re.findall(r"\$lease := (.*?) *-?}}", text) for text in texts)
    assert rights == notes != []


def _over(values: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """Return values as Helm makes them of the chart's and a user's: maps are merged, and a null takes its key out."""
    merged = dict(values)
    for key, value in given.items():
        deeper = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = _over(merged[key], value) if deeper else value
    return {key: value for key, value in merged.items() if value is not None}


@pytest.mark.parametrize(
    "wrong",
    [
        {"replicas": -1},
        {"replica": 1},
        {"metricsPort": 80},
        {"image": {"tag": 1.1}},
        {"leaseSeconds": 0},
        {"leaseSeconds": 601},
        {"watchNamespace": "A_b"},
        {"metricsHost": ""},
        # What nothing could be made of, or an operator that does not start.
        {"image": None},
        {"image": {"repository": None}},
        {"leaseSeconds": None},
        {"metricsHost": None},
        {"metricsPort": None},
        {"serviceAccount": None},
        {"networkPolicy": None},
        {"podMonitor": None},
        {"alerts": None},
        {"dashboard": None},
        # A rule for no ports is one for all of them.
        {"networkPolicy": {"apiServerPorts": None}},
        {"networkPolicy": {"apiServerPorts": []}},
    ],
    ids=str,
)
def test_wrong_values_are_refused(wrong: dict[str, Any]) -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(_over(values, wrong), schema)


def test_the_chart_quotes_names_since_one_of_digits_is_a_number_to_yaml() -> None:
    whole = re.compile(r"^\s*(?:- )?(?:name|namespace|serviceAccountName|\S*/instance): {{ ([^}]*) }}$", re.MULTILINE)
    told = [value for path in (CHART / "templates").iterdir() for value in whole.findall(path.read_text())]
    assert told
    assert [value for value in told if not value.endswith("| quote")] == []


def test_the_charts_pod_is_locked_down_as_the_other() -> None:
    text = (CHART / "templates/deployment.yaml").read_text()
    for line in ("runAsNonRoot: true", "readOnlyRootFilesystem: true", "allowPrivilegeEscalation: false",
                 "capabilities: {drop: [ALL]}", "seccompProfile: {type: RuntimeDefault}",
                 "automountServiceAccountToken: true"):  # fmt: skip
        assert line in text


# Monitoring --------------------------------------------------------------------------------------------------------


TARGET = {"pod", "job", "instance", "namespace"}  # what Prometheus adds to every sample


class Asked(NamedTuple):
    """An expression, and the texts that Prometheus or Grafana writes with the labels of its result."""

    where: str
    expression: str
    texts: str

    @property
    def kept(self) -> set[str] | None:
        """Labels that its result has; None: all that its metrics have."""
        groups = re.findall(r"\bby \(([^)]*)\)", self.expression)
        return {label for group in groups for label in re.split(r", *", group)} if groups else None


def _asked() -> list[Asked]:
    groups = yaml.safe_load((MONITORING / "rules.yaml").read_text())["spec"]["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    told = [re.findall(r"{{ \$labels\.(\w+) }}", "".join(rule["annotations"].values())) for rule in rules]
    asked = [Asked(rule["alert"], rule["expr"], " ".join(labels)) for rule, labels in zip(rules, told, strict=True)]
    panels = json.loads((MONITORING / "dashboard.json").read_text())["panels"]
    for panel in panels:
        for target in panel["targets"]:
            legend = " ".join(re.findall(r"{{(\w+)}}", target["legendFormat"]))
            asked.append(Asked(panel["title"], target["expr"], legend))
    return asked


def _exposed() -> dict[str, set[str]]:
    """Return name -> labels of all that an operator's /metrics can hold."""
    found: dict[str, set[str]] = {each.name: set() for each in ProcessCollector(registry=None).collect()}
    for family in Metrics().families():
        if family.kind == "histogram":
            found |= {f"{family.name}_{part}": {*family.labels} for part in ("sum", "count")}
            found[f"{family.name}_bucket"] = {*family.labels, "le"}
        else:
            found[family.name] = {*family.labels}
    return found


@pytest.mark.parametrize("asked", _asked(), ids=lambda asked: asked.where)
def test_dashboard_and_alerts_ask_for_metrics_and_labels_that_there_are(asked: Asked) -> None:
    exposed = _exposed()
    metrics = re.findall(r"\b((?:fermata|process)_\w+)(?:{([^}]*)})?", asked.expression)
    assert metrics, asked.expression
    for name, selector in metrics:
        assert name in exposed
        labels = exposed[name] | TARGET
        assert set(re.findall(r"(\w+) *(?:=~|!~|!=|=)", selector)) <= labels
        assert (asked.kept or set()) <= labels
        assert set(asked.texts.split()) <= (labels if asked.kept is None else asked.kept)


def test_the_dashboards_pools_are_those_of_a_metric() -> None:
    variables = json.loads((MONITORING / "dashboard.json").read_text())["templating"]["list"]
    ((name, label),) = (
        re.findall(r"\((\w+), (\w+)\)", each["query"])[0] for each in variables if each["name"] == "pool"
    )
    assert label in _exposed()[name]


def test_the_lease_is_told_apart_from_others() -> None:
    """An operator for each namespace has a Lease of its own, so that several of them may act."""
    for namespace, name in ((None, "fermata-operator"), ("team", "fermata-operator-team")):
        registry = Operator(Options(namespace=namespace))._metrics.registry
        assert registry.get_sample_value("fermata_leader", {"lease": name}) == 0.0
    for rule in ("FermataNobodyActs", "FermataTwoAct"):
        assert "by (lease)" in next(asked.expression for asked in _asked() if asked.where == rule)


def test_every_alert_says_what_to_do() -> None:
    rules = yaml.safe_load((MONITORING / "rules.yaml").read_text())["spec"]["groups"]
    for rule in (rule for group in rules for rule in group["rules"]):
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        assert rule["annotations"].keys() == {"summary", "description"}
