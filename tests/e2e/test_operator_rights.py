"""What the operator asks of the API server in a run of all that it can do, held against the rights that ship.

The run itself shows that nothing lacks; the comparison shows that nothing is too much.
"""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

import pytest
from kubernetes.client.exceptions import ApiException
from tests.fault_rig import OPERATOR_USER, Bench, bench
from tests.operator_rig import (
    GROUP,
    VERSION,
    Cluster,
    OperatorProcess,
    Raw,
    control_plane,
    operators_own,
    rights,
    rights_within,
    stage,
    wait_until,
)
from tests.real_plane import FRESH, REAL

from fermata.policy import registry

pytestmark = pytest.mark.e2e

#: Rights that no request shows: the API server itself asks for them when owner references are written.
UNSEEN = {("update", "fermata.dev", "workflows/finalizers", "")}
Right = tuple[str, str, str, str]


def granted() -> set[Right]:
    """Return (verb, group, resource, namespace or empty for everywhere) of every rule."""
    found: set[Right] = set()
    for manifest in rights():
        for rule in manifest.get("rules") or []:
            found |= {
                (verb, group, resource, manifest["metadata"].get("namespace", ""))
                for group in rule["apiGroups"]
                for resource in rule["resources"]
                for verb in rule["verbs"]
            }
    return found


def everything(bench: Bench) -> None:
    """Let the operator do what it can do."""
    cluster = bench.cluster
    model = registry.shipped_model().read_bytes()
    data = {"policy.onnx": base64.b64encode(model).decode()}
    cluster.core.create_namespaced_config_map("fermata", {"metadata": {"name": "model"}, "binaryData": data})
    source = {"namespace": "fermata", "name": "model", "key": "policy.onnx"}
    digest = hashlib.sha256(model).hexdigest()
    cluster.pool("learned", executors=2, policy={"model": {"configMap": source, "sha256": digest}})
    cluster.wait_for_pool("learned", "PolicyReady", "True")
    cluster.pool("plain", executors=4, policy={"name": "fifo"}, namespaceSelector={"matchLabels": {}})
    cluster.submit("dag", "learned", [stage("a", 0.3), stage("b", 0.2, "a")], ttlSecondsAfterFinished=1)
    cluster.submit("wide", "plain", [stage("a", 0.4, tasks=6)])
    cluster.submit("narrow", "plain", [stage("a", 0.4, tasks=2)])
    cluster.pool("own", executors=1, policy={"name": "fifo"})
    cluster.submit("late", "own", [stage("a", 60.0)], activeDeadlineSeconds=5)  # stopped in the middle of its run
    cluster.wait_for("wide")
    cluster.wait_for("narrow")
    cluster.wait_for("late", "Succeeded", "False")
    wait_until(lambda: not [job for job in bench.objects("workflows") if job["metadata"]["name"] == "dag"], "kept")


def test_the_rights_that_ship_are_those_that_are_used(tmp_path: Path) -> None:
    with bench(tmp_path) as busy:
        first = busy.operator()
        everything(busy)
        # A start whose answer is lost, and of which no watch tells in time, is tried again and found by its name.
        late = busy.fault(delay_s=4.0, methods=frozenset({"WATCH"}), path="/jobs$")
        with late, busy.fault(lost="after", methods=frozenset({"POST"}), path="/jobs$", times=1):
            busy.cluster.submit("unsure", "plain", [stage("a", 0.2)])
            wait_until(lambda: bool(busy.cluster.jobs("unsure")), "its Job was not created")
            wait_until(lambda: busy.asked("get", "jobs"), "the Job was not looked for")
        busy.cluster.wait_for("unsure")
        first.kill()
        busy.operator()
        calls = busy.inside(lambda: dict(busy.plane.server.calls))
    asked = {key[1:] for key in calls if key[0] == OPERATOR_USER and not key[3].startswith("/")}
    allowed = granted()
    too_much = {
        (verb, group, resource, namespace)
        for verb, group, resource, namespace in asked
        if not {(verb, group, resource, namespace), (verb, group, resource, "")} & allowed
    }
    assert not too_much, "asked for, and not granted"
    unused = {
        (verb, group, resource, namespace)
        for verb, group, resource, namespace in allowed
        if not any(
            (verb, group, resource) == call[:3] and namespace in ("", call[3]) for call in asked
        )
    }  # fmt: skip
    assert unused == UNSEEN, "granted, and never asked for"


@pytest.mark.skipif(REAL and not FRESH, reason="a cluster that others use may have granted more")
def test_an_operator_of_one_namespace_needs_few_rights_in_the_whole_cluster(tmp_path: Path) -> None:
    given = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}, *rights_within("team")]
    with control_plane(tmp_path, given=given) as kubeconfig:
        cluster, own = Cluster(kubeconfig), Cluster(operators_own(kubeconfig))
        cluster.pool("own", executors=2, policy={"name": "fifo"}, namespaceSelector={"matchLabels": {}})
        cluster.pool("foreign", executors=2, namespaceSelector={"matchLabels": {"team": "other"}})
        operator = OperatorProcess(kubeconfig, tmp_path, "--namespace", "team")
        try:
            operator.wait_ready()
            stages = [stage("a", 0.2), stage("b", 0.2, "a")]
            cluster.submit("others", "own", stages)
            cluster.submit("theirs", "own", stages, namespace="team", ttlSecondsAfterFinished=3)
            cluster.wait_for("theirs", namespace="team")
            cluster.wait_for_pool("own", "Ready", "True")
            wait_until(lambda: bool(cluster.events("own")), "no Event tells of the pool")
            wait_until(lambda: not workflows(cluster, "team"), "the workflow is kept")
        finally:
            operator.stop()
        assert cluster.status("others") == {}
        assert cluster.pool_status("foreign") == {}, "its status is for the operator of the other namespace to write"
        assert cluster.jobs("others") == {}
        for read in (
            lambda: workflows(own, "default"),
            lambda: own.batch.list_namespaced_job("default"),
            lambda: own.core.list_namespaced_pod("default"),
            lambda: own.core.list_namespaced_config_map("default"),
        ):
            with pytest.raises(ApiException, match="Forbidden"):
                read()
    log = operator.log.read_text()
    assert "Forbidden" not in log
    assert "deciding for 1 pool on " in log, "the other one is for the operator of the other namespace to decide in"


def workflows(cluster: Cluster, namespace: str) -> list[Raw]:
    """Return the workflows of a namespace."""
    found: list[Raw] = cluster.objects.list_namespaced_custom_object(GROUP, VERSION, namespace, "workflows")["items"]
    return found
