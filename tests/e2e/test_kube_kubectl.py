"""kubectl, unchanged and without special flags: the embedded control plane, and a real one where there is one."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from tests.e2e.test_kube_conformance import WIDGET_CRD, WIDGETS, job, pod, widget
from tests.kube_fixtures import LocalKube, any_kube, local_kube

from fermata.sim.importers.kubernetes import read_kubernetes

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["any_kube", "local_kube"]
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl"),
]


class Kubectl:
    def __init__(self, kube: LocalKube, home: Path) -> None:
        self._environment = {**os.environ, "KUBECONFIG": str(kube.kubeconfig), "HOME": str(home)}

    def __call__(self, *arguments: str, given: Any = None, fails: bool = False) -> str:
        done = subprocess.run(
            ["kubectl", *arguments],
            input=None if given is None else json.dumps(given),
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (done.returncode != 0) == fails, done.stdout + done.stderr
        return done.stdout + done.stderr


@pytest.fixture
def kubectl(any_kube: LocalKube, tmp_path: Path) -> Kubectl:
    return Kubectl(any_kube, tmp_path)


def typed(obj: dict[str, Any], api_version: str, kind: str) -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": kind, **obj}


def test_a_job_from_apply_to_delete(kubectl: Kubectl, any_kube: LocalKube) -> None:
    manifest = typed(job("j", {"fermata.dev/sim-seconds": "0.05"}, completions=2), "batch/v1", "Job")
    assert "created" in kubectl("apply", "-f", "-", given=manifest)
    assert "unchanged" in kubectl("apply", "-f", "-", given=manifest)
    assert "condition met" in kubectl("wait", "--for=condition=complete", "job/j", "--timeout=20s")
    row = kubectl("get", "job", "j", "--no-headers").split()
    assert row[:3] == ["j", "Complete", "2/2"]
    assert kubectl("get", "pods", "--no-headers").count("Completed") == 2
    described = kubectl("describe", "job", "j")
    assert "2 Succeeded" in described
    assert "SuccessfulCreate" in described
    if not any_kube.is_real:  # whose API server asks kubelets by TLS
        assert "simulated" in kubectl("logs", "job/j")
    kubectl("delete", "job", "j")
    kubectl("wait", "--for=delete", "pod", "--all", "--timeout=20s")
    assert "No resources found" in kubectl("get", "jobs,pods")


def test_what_ran_becomes_a_trace(kubectl: Kubectl, tmp_path: Path) -> None:
    """A Job on its own is imported as what its pods took, out of a list and of what a watch printed."""
    for name, seconds in (("brief", "0.05"), ("long", "2.2")):
        manifest = typed(
            job(name, {"fermata.dev/sim-seconds": seconds}, completions=2, parallelism=2), "batch/v1", "Job"
        )
        kubectl("apply", "-f", "-", given=manifest)
        kubectl("wait", "--for=condition=complete", f"job/{name}", "--timeout=20s")
    printed = tmp_path / "printed.json"
    printed.write_text(kubectl("get", "jobs,pods", "-o", "json"))
    listed = read_kubernetes(printed)
    assert (list(listed.trace.job_ids), listed.skipped) == (["default/brief", "default/long"], {})
    assert listed.trace.task_ptr.tolist() == [0, 2, 4]
    assert (listed.trace.task_duration_s[2:] >= 2.0).all()  # times of the API are whole seconds
    assert listed.as_it_ran
    assert (listed.as_it_ran.mean_jct_s >= 1.0, listed.as_it_ran.at_once) == (True, 2)
    printed.write_text(
        "".join(kubectl("get", kind, "--watch", "-o", "json", "--request-timeout=2s") for kind in ("jobs", "pods"))
    )
    assert read_kubernetes(printed).trace.task_duration_s.tolist() == listed.trace.task_duration_s.tolist()
    kubectl("delete", "job", "brief", "long")
    kubectl("wait", "--for=delete", "pod", "--all", "--timeout=20s")


def test_a_custom_kind(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", given=WIDGET_CRD)
    kubectl("wait", "--for=condition=Established", f"crd/{WIDGETS}", "--timeout=10s")
    assert "created" in kubectl("apply", "-f", "-", given=widget("w"))
    assert "configured" in kubectl("apply", "-f", "-", given=widget("w", size=5))
    assert kubectl("get", "cfw").splitlines()[0].split() == ["NAME", "SIZE", "OK", "AGE"]
    assert "DETAIL" in kubectl("get", "cfw", "-o", "wide")
    refused = kubectl("apply", "-f", "-", given=widget("x", size=500, color="green"), fails=True)
    assert 'spec.color: Unsupported value: "green"' in refused
    assert 'unknown field "spec.sise"' in kubectl("apply", "-f", "-", given=widget("x", sise=5), fails=True)
    assert "size\t<integer>" in kubectl("explain", "widgets.spec")
    kubectl("patch", "cfw", "w", "--type=merge", "-p", '{"spec":{"size":6}}')
    kubectl("label", "cfw", "w", "team=a")
    kubectl("annotate", "cfw", "w", "note=b")
    found = json.loads(kubectl("get", "cfw", "-l", "team=a", "-o", "json"))["items"][0]
    assert (found["spec"]["size"], found["metadata"]["annotations"]["note"]) == (6, "b")
    assert "Events:" in kubectl("describe", "cfw", "w")
    kubectl("delete", "crd", WIDGETS)
    kubectl("get", "cfw", fails=True)


def test_a_list_is_applied_object_by_object(kubectl: Kubectl) -> None:
    items = [typed({"metadata": {"name": name}, "data": {"x": "1"}}, "v1", "ConfigMap") for name in ("one", "two")]
    listed = {"apiVersion": "v1", "kind": "List", "items": items}
    assert kubectl("apply", "-f", "-", given=listed).count(" created") == 2
    assert kubectl("apply", "-f", "-", given=listed).count(" unchanged") == 2
    items[1]["dota"] = {}
    assert 'unknown field "dota"' in kubectl("apply", "-f", "-", given=listed, fails=True)


def test_unknown_and_mistyped_fields_of_builtins_are_refused(kubectl: Kubectl) -> None:
    wrong = typed(job("j", paralelism=2), "batch/v1", "Job")
    assert 'unknown field "spec.paralelism"' in kubectl("apply", "-f", "-", given=wrong, fails=True)
    mistyped = typed(pod("p", containers="main"), "v1", "Pod")
    told = kubectl("create", "-f", "-", given=mistyped, fails=True)
    assert "cannot unmarshal string into" in told
    assert "spec.containers of type" in told


def test_built_in_kinds_are_explained_and_their_lists_are_merged(kubectl: Kubectl) -> None:
    assert "parallelism\t<integer>" in kubectl("explain", "job.spec")
    assert "containers\t<[]Container>" in kubectl("explain", "pod.spec")
    assert "preferredDuringSchedulingIgnoredDuringExecution" in kubectl("explain", "--recursive", "pod.spec.affinity")
    containers = [{"name": "a", "image": "x:1", "env": [{"name": "K", "value": "1"}]}, {"name": "b", "image": "x:1"}]
    template = {"metadata": {"labels": {"app": "d"}}, "spec": {"containers": containers}}
    spec = {"selector": {"matchLabels": {"app": "d"}}, "template": template}
    deployment = typed({"metadata": {"name": "d"}, "spec": spec}, "apps/v1", "Deployment")
    kubectl("apply", "-f", "-", given=deployment)
    # Somebody else's addition to a merged list stays when what was applied changes.
    other = {"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "y:1"}]}}}}
    kubectl("patch", "deployment", "d", "-p", json.dumps(other))
    containers[0]["image"] = "x:2"
    kubectl("apply", "-f", "-", given=deployment)
    found = json.loads(kubectl("get", "deployment", "d", "-o", "json"))["spec"]["template"]["spec"]["containers"]
    assert {item["name"]: item["image"] for item in found} == {"a": "x:2", "b": "x:1", "c": "y:1"}
    assert next(item for item in found if item["name"] == "a")["env"] == [{"name": "K", "value": "1"}]


def test_server_side_apply(kubectl: Kubectl) -> None:
    config = typed({"metadata": {"name": "c"}, "data": {"x": "1"}}, "v1", "ConfigMap")
    assert "serverside-applied" in kubectl("apply", "--server-side", "-f", "-", given=config)
    other = {**config, "data": {"x": "2"}}
    refused = kubectl("apply", "--server-side", "--field-manager=other", "-f", "-", given=other, fails=True)
    assert 'conflict with "kubectl"' in refused
    kubectl("apply", "--server-side", "--field-manager=other", "--force-conflicts", "-f", "-", given=other)
    assert kubectl("get", "cm", "c", "-o", "jsonpath={.data.x}") == "2"


def test_following_pods(kubectl: Kubectl, any_kube: LocalKube, tmp_path: Path) -> None:
    environment = {**os.environ, "KUBECONFIG": str(any_kube.kubeconfig), "HOME": str(tmp_path)}
    with subprocess.Popen(
        ["kubectl", "get", "pods", "-w"], env=environment, stdout=subprocess.PIPE, text=True
    ) as watch:
        assert watch.stdout is not None
        kubectl("create", "-f", "-", given=typed(pod("p", {"fermata.dev/sim-seconds": "0.1"}), "v1", "Pod"))
        for line in watch.stdout:
            if "Completed" in line:
                break
        watch.terminate()
    assert line.startswith("p ")


def test_namespaces_and_what_is_served(kubectl: Kubectl, any_kube: LocalKube) -> None:
    kubectl("create", "-f", "-", given=typed({"metadata": {"name": "team"}}, "v1", "Namespace"))
    config = typed({"metadata": {"name": "c"}, "data": {"x": "1"}}, "v1", "ConfigMap")
    kubectl("-n", "team", "create", "-f", "-", given=config)
    kubectl("delete", "namespace", "team")
    assert "NotFound" in kubectl("get", "namespace", "team", fails=True)
    assert "jobs" in kubectl("api-resources")
    assert ("+fermata" in kubectl("version")) is not any_kube.is_real
    assert "local-" in kubectl("get", "nodes")


def test_imperative_commands_whose_bodies_are_protobuf(kubectl: Kubectl) -> None:
    kubectl("create", "namespace", "team")
    kubectl("-n", "team", "create", "serviceaccount", "robot")
    kubectl("-n", "team", "create", "role", "reader", "--verb=get,list", "--resource=pods,jobs.batch")
    kubectl("-n", "team", "create", "rolebinding", "robot", "--role=reader", "--serviceaccount=team:robot")
    robot = "--as=system:serviceaccount:team:robot"
    assert kubectl("-n", "team", "auth", "can-i", "list", "jobs.batch", robot).strip() == "yes"
    assert kubectl("-n", "team", "auth", "can-i", "delete", "pods", robot, fails=True).strip() == "no"
    assert "forbidden" in kubectl("-n", "team", "delete", "pod", "x", robot, fails=True)
    token = kubectl("-n", "team", "create", "token", "robot").strip()
    kubectl("-n", "team", "get", "pods", f"--token={token}")
    kubectl("create", "configmap", "c", "--from-literal=a=b")
    assert kubectl("get", "cm", "c", "-o", "jsonpath={.data.a}") == "b"
    kubectl("run", "p", "--image=busybox", "--env=A=b", "--labels=x=y", "--restart=Never")
    kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/p", "--timeout=20s")
    kubectl("create", "job", "j", "--image=busybox", "--", "true")
    assert "condition met" in kubectl("wait", "--for=condition=complete", "job/j", "--timeout=20s")
