"""What a real control plane's admission says no to: told, waited for, and started once it may be."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import kubernetes
import pytest
from tests.operator_rig import Cluster, OperatorProcess, control_plane, stage, stages_of, wait_until
from tests.real_plane import FRESH, JOBS

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not (FRESH and JOBS), reason="needs KUBEBUILDER_ASSETS with controllers: it forbids all Jobs"),
]

RULE = {"apiGroups": ["batch"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["jobs"]}
POD = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "none"}]}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("admission")
    with control_plane(folder) as path:
        operator = OperatorProcess(path, folder)
        try:
            operator.wait_ready()
            cluster = Cluster(path)
            cluster.pool("small", executors=1, policy={"name": "fifo"})
            yield cluster
        finally:
            operator.kill()


def waits_for(cluster: Cluster, name: str, said: str) -> None:
    """Wait until the stage says why it is not started, and check that it is not."""

    def told() -> str:
        return str(stages_of(cluster.status(name)).get("a", {}).get("message", ""))

    wait_until(lambda: said in told(), lambda: f"nothing about {said!r} in {told()!r}")
    assert told().startswith("not started, tried again: ")
    assert not cluster.jobs(name)


def test_a_validating_admission_policy(cluster: Cluster) -> None:
    api = kubernetes.client.AdmissionregistrationV1Api(cluster.objects.api_client)
    policy: dict[str, Any] = {
        "metadata": {"name": "never"},
        "spec": {
            "matchConstraints": {"resourceRules": [RULE]},
            "validations": [{"expression": "false", "message": "not on Sundays"}],
        },
    }
    binding = {"metadata": {"name": "never"}, "spec": {"policyName": "never", "validationActions": ["Deny"]}}
    api.create_validating_admission_policy(policy)
    api.create_validating_admission_policy_binding(binding)
    batch = kubernetes.client.BatchV1Api(cluster.objects.api_client)

    def acts() -> bool:
        """Return whether the API server has taken the policy up, which takes it a while."""
        body = {"metadata": {"generateName": "probe-"}, "spec": {"template": {"spec": POD}}}
        try:
            batch.create_namespaced_job("default", body, dry_run="All")
        except kubernetes.client.ApiException as refused:
            return refused.status == 422
        return False

    wait_until(acts, "the policy is never taken up")
    cluster.submit("forbidden", "small", [stage("a", 0.2)])
    waits_for(cluster, "forbidden", "denied request: not on Sundays")
    api.delete_validating_admission_policy_binding("never")
    cluster.wait_for("forbidden")


def test_a_quota_that_is_used_up(cluster: Cluster) -> None:
    core = kubernetes.client.CoreV1Api(cluster.objects.api_client)
    quota = {"metadata": {"name": "none"}, "spec": {"hard": {"count/jobs.batch": "0"}}}
    core.create_namespaced_resource_quota("default", quota)
    wait_until(
        lambda: bool(core.read_namespaced_resource_quota("none", "default").status.hard), "the quota is never looked at"
    )
    cluster.submit("dear", "small", [stage("a", 0.2)])
    waits_for(cluster, "dear", "exceeded quota: none")
    core.delete_namespaced_resource_quota("none", "default")
    cluster.wait_for("dear")
