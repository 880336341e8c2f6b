"""What ships in deploy/, taken by an API server: kustomize and Helm where they are at hand, the plain files always."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.kube_fixtures import LocalKube, any_kube, local_kube
from tests.operator_rig import rights, rights_within
from tests.real_plane import FRESH, JOBS, real_plane
from tests.unit.operator.test_deploy import CHART, DEPLOY, _objects

from fermata.sim.kube.client import Client
from fermata.sim.kube.errors import ApiError

__all__ = ["any_kube", "local_kube"]
pytestmark = pytest.mark.e2e

needs_kubectl = pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl")
needs_helm = pytest.mark.skipif(shutil.which("helm") is None, reason="needs helm")
ROOT = DEPLOY.parent
FOLDERS = [DEPLOY, *sorted(DEPLOY.glob("overlays/*"))]


def foreign(plural: str, kind: str) -> dict[str, Any]:
    """Return a definition that takes anything, for a kind of the Prometheus operator."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    group, names = "monitoring.coreos.com", {"plural": plural, "kind": kind}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": names,
            "versions": [version],
        },
    }


FOREIGN = [foreign("podmonitors", "PodMonitor"), foreign("prometheusrules", "PrometheusRule")]


async def created(kube: LocalKube, manifests: list[dict[str, Any]]) -> set[tuple[str, str]]:
    """Create objects, strictly, in a fresh control plane; return their kinds and names."""
    done: set[tuple[str, str]] = set()
    async with Client.from_kubeconfig(kube.kubeconfig) as client:
        for manifest in (*FOREIGN, *manifests):
            path = await collection(client, manifest)
            await client.request("POST", path, manifest, params={"fieldValidation": "Strict"})
            done.add((manifest["kind"], manifest["metadata"]["name"]))
    return done - {(item["kind"], item["metadata"]["name"]) for item in FOREIGN}


async def collection(client: Client, manifest: dict[str, Any]) -> str:
    """Return where an object is to be created; its kind may have been defined a moment ago."""
    version = manifest["apiVersion"]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    for _ in range(200):
        with contextlib.suppress(ApiError):
            served = (await client.get(root))["resources"]
            found = next((row for row in served if row["kind"] == manifest["kind"] and "/" not in row["name"]), None)
            if found:
                scope = f"/namespaces/{manifest['metadata']['namespace']}" if found["namespaced"] else ""
                return f"{root}{scope}/{found['name']}"
        await asyncio.sleep(0.05)
    raise AssertionError(f"{version} {manifest['kind']} is not served")


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_the_files_are_taken_strictly(folder: Path, any_kube: LocalKube) -> None:
    manifests = _objects(folder)
    assert len(asyncio.run(created(any_kube, manifests))) == len(manifests) >= 10


@needs_kubectl
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_kustomize_builds_what_an_api_server_takes(folder: Path, any_kube: LocalKube) -> None:
    built = subprocess.run(
        ["kubectl", "kustomize", str(folder)], capture_output=True, text=True, timeout=60, check=True
    ).stdout
    manifests = list(yaml.safe_load_all(built))
    order = ["CustomResourceDefinition", "Namespace"]
    manifests.sort(key=lambda item: order.index(item["kind"]) if item["kind"] in order else len(order))
    done = asyncio.run(created(any_kube, manifests))
    (deployment,) = (item for item in manifests if item["kind"] == "Deployment")
    assert deployment["spec"]["replicas"] == (2 if folder.name == "standby" else 1)
    assert ("ConfigMap", "fermata-dashboard") in done or folder.name != "monitoring"
    # A PodMonitor and annotations would have the pod scraped twice.
    assert ("annotations" in deployment["spec"]["template"]["metadata"]) == (folder.name != "monitoring")


@needs_kubectl
def test_kubectl_applies_it_twice(any_kube: LocalKube, tmp_path: Path) -> None:
    environment = {**os.environ, "KUBECONFIG": str(any_kube.kubeconfig), "HOME": str(tmp_path)}
    for word in ("serverside-applied", "serverside-applied"):
        told = subprocess.run(
            ["kubectl", "apply", "--server-side", "-k", str(DEPLOY)],
            env=environment, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert told.returncode == 0, told.stderr
        assert told.stdout.count(word) == len(_objects())


@needs_kubectl
def test_the_operator_is_taken_away_as_the_page_says_and_workflows_stay(any_kube: LocalKube, tmp_path: Path) -> None:
    if any_kube.is_real and not JOBS:
        pytest.skip("namespaces do not end without controllers")
    environment = {**os.environ, "KUBECONFIG": str(any_kube.kubeconfig), "HOME": str(tmp_path)}

    def run(command: str) -> str:
        told = subprocess.run(
            ["bash", "-c", command], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False
        )
        assert told.returncode == 0, told.stderr
        return told.stdout

    (taking,) = re.findall(r"^ {4}(kubectl delete .*)$", (ROOT / "docs/deploying.md").read_text(), re.MULTILINE)
    mine = "kubectl get clusterroles,clusterrolebindings,namespaces -l app.kubernetes.io/name=fermata -o name"
    run("kubectl apply --server-side -k deploy && kubectl apply -f examples/pools.yaml -f examples/01-etl.yaml")
    assert run(mine)
    run(taking)
    assert run(mine) == ""
    left = run("kubectl get fwf,fpool -o name").split()
    assert [name.partition("/")[2] for name in left] == ["etl", "fifo", "learned", "sjf"]


@needs_kubectl
def test_crds_that_helm_made_are_upgraded_as_the_page_says(any_kube: LocalKube, tmp_path: Path) -> None:
    """Helm applies them as the field manager `helm`, and the API server keeps others off its fields."""
    environment = {**os.environ, "KUBECONFIG": str(any_kube.kubeconfig), "HOME": str(tmp_path)}

    def run(*command: str) -> str:
        told = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False
        )
        assert told.returncode == 0, told.stderr
        return told.stdout

    today = (CHART / "crds/workflows.fermata.dev.yaml").read_text(encoding="utf-8")
    column, earlier = "name: Succeeded", tmp_path / "earlier.yaml"
    assert column in today
    earlier.write_text(today.replace(column, "name: Done"), encoding="utf-8")
    run("kubectl", "apply", "--server-side", "--field-manager=helm", "-f", str(earlier))
    (page,) = re.findall(r"`(kubectl apply [^`]* deploy/crds)`", (ROOT / "docs/deploying.md").read_text())
    (notes,) = re.findall(r"^ +(kubectl apply .* deploy/crds)$", (CHART / "templates/NOTES.txt").read_text(), re.M)
    assert notes == page
    run(*page.split())
    assert column in run("kubectl", "get", "crd", "workflows.fermata.dev", "-o", "yaml")


@needs_kubectl
@pytest.mark.skipif(not (FRESH and JOBS), reason="only a real control plane with its controllers runs Deployments")
def test_the_operators_pod_is_admitted(tmp_path: Path) -> None:
    """Its namespace enforces the restricted Pod Security Standard."""
    with real_plane(tmp_path) as plane:
        environment = {**os.environ, "KUBECONFIG": str(plane.kubeconfig), "HOME": str(tmp_path)}
        apply = ["kubectl", "apply", "--server-side", "-k", str(DEPLOY)]
        subprocess.run(apply, env=environment, check=True, capture_output=True, timeout=60)
        available = [
            "kubectl",
            "-n",
            "fermata",
            "wait",
            "deployment/fermata",
            "--for=condition=Available",
            "--timeout=60s",
        ]
        told = subprocess.run(available, env=environment, capture_output=True, text=True, timeout=90, check=False)
        assert told.returncode == 0, told.stderr


@needs_helm
@pytest.mark.parametrize(
    "values",
    [
        {},
        {"replicas": 2, "watchNamespace": "team", "modelNamespaces": ["default"]},
        {"watchNamespace": "1234", "serviceAccount": {"existing": "1e3"}, "priorityClassName": "true"},
        {"podMonitor": {"enabled": True}, "alerts": {"enabled": True}, "dashboard": {"enabled": True}},
        {"modelNamespaces": None, "podAnnotations": None, "resources": None, "image": {"tag": None}},
        {
            "extraArgs": ["--record=/records/decisions.jsonl"],
            "extraVolumes": [{"name": "records", "persistentVolumeClaim": {"claimName": "records"}}],
            "extraVolumeMounts": [{"name": "records", "mountPath": "/records"}],
        },
        {"extraArgs": None, "extraVolumes": None, "extraVolumeMounts": None},
        {"turns": True, "watchNamespace": "team"},
    ],
)
def test_the_chart_renders_what_an_api_server_takes(
    values: dict[str, Any], any_kube: LocalKube, tmp_path: Path
) -> None:
    file = values_file(values, tmp_path)
    subprocess.run(["helm", "lint", "--strict", str(CHART), "-f", str(file)], timeout=60, check=True)
    manifests = rendered(values, tmp_path, "--namespace", "default", "--include-crds")
    if watched := values.get("watchNamespace"):
        manifests.insert(0, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": watched}})
    (pod,) = (item["spec"]["template"]["spec"] for item in manifests if item["kind"] == "Deployment")
    (container,) = pod["containers"]
    for extra, items in (
        ("extraArgs", container["args"]),
        ("extraVolumes", pod["volumes"]),
        ("extraVolumeMounts", container["volumeMounts"]),
    ):
        assert all(each in items for each in values.get(extra) or [])
    assert len(asyncio.run(created(any_kube, manifests))) == len(
        {(item["kind"], item["metadata"]["name"]) for item in manifests}
    )


@needs_helm
@pytest.mark.parametrize("watched", ["", "team", "default", "fermata"])
def test_the_chart_grants_what_the_tests_of_the_operator_give_it(watched: str, tmp_path: Path) -> None:
    shipped = rights_within(watched) if watched else rights()
    assert granted(rendered({"watchNamespace": watched, "userRoles": False}, tmp_path)) == granted(shipped)


@needs_helm
@pytest.mark.parametrize("watched", ["", "team"])
def test_with_turns_the_chart_grants_what_the_overlay_does_and_where_jobs_are_made(
    watched: str, tmp_path: Path
) -> None:
    without, given = (granted(rendered({"watchNamespace": watched, "turns": on}, tmp_path)) for on in (False, True))
    roles = {item["metadata"]["name"]: item for item in _objects(DEPLOY / "overlays/turns") if "rules" in item}
    overlay = roles["fermata-turns"]["rules"]
    place = ("Role", watched, "fermata") if watched else ("ClusterRole", "", "fermata")
    assert given == without | {place: [*without[place], *overlay]}


@needs_helm
@needs_kubectl
def test_helm_installs_upgrades_goes_back_and_takes_away_as_the_page_says(any_kube: LocalKube, tmp_path: Path) -> None:
    environment = {**os.environ, "KUBECONFIG": str(any_kube.kubeconfig), "HOME": str(tmp_path)}

    def run(command: str) -> str:
        told = subprocess.run(
            command.split(), cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False
        )
        assert told.returncode == 0, told.stderr
        return told.stdout

    def may_patch_pods() -> bool:
        role = json.loads(run("kubectl get clusterrole fermata -o json"))
        return any("pods" in rule["resources"] and "patch" in rule["verbs"] for rule in role["rules"])

    page = (ROOT / "docs/deploying.md").read_text(encoding="utf-8")
    (install,) = re.findall(r"`(helm install [^`]*)` \|", page)
    (uninstall,) = re.findall(r"`(helm uninstall [^`]*)`", page)
    run(install)
    run("kubectl apply -f examples/pools.yaml -f examples/01-etl.yaml")
    assert not may_patch_pods()
    run("helm upgrade fermata deploy/helm/fermata --namespace fermata --reuse-values --set turns=true")
    assert may_patch_pods()
    run("helm rollback fermata 1 --namespace fermata")
    assert not may_patch_pods()
    run(uninstall)
    mine = (
        "get clusterroles,clusterrolebindings,deployments,serviceaccounts -l app.kubernetes.io/name=fermata -A -o name"
    )
    assert run(f"kubectl {mine}") == ""
    left = run("kubectl get fwf,fpool -o name").split()
    assert [name.partition("/")[2] for name in left] == ["etl", "fifo", "learned", "sjf"]


def values_file(values: dict[str, Any], folder: Path) -> Path:
    """Write values as JSON: Helm reads numbers in YAML, such as 1e3, where PyYAML writes text."""
    file = folder / "values.yaml"
    file.write_text(json.dumps(values), encoding="utf-8")
    return file


def rendered(values: dict[str, Any], folder: Path, *arguments: str) -> list[dict[str, Any]]:
    """Return the chart's objects."""
    file = values_file(values, folder)
    command = ["helm", "template", "fermata", str(CHART), "-f", str(file), *(arguments or ("--namespace", "fermata"))]
    built = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    return [item for item in yaml.safe_load_all(built) if item]


def granted(manifests: Iterable[dict[str, Any]]) -> dict[tuple[str, str, str], Any]:
    """Return what roles may, and whose they are, by kind, namespace and name."""
    return {
        (item["kind"], item["metadata"].get("namespace", ""), item["metadata"]["name"]): item.get("rules")
        or (item["roleRef"], item["subjects"])
        for item in manifests
        if item and item["apiVersion"].startswith("rbac.")
    }
