"""What a real control plane's admission says no to, or changes: told, waited for, and started once it may be."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import kubernetes
import pytest
from tests.operator_rig import GROUP, VERSION, Cluster, condition_of, stage, stages_of, wait_until
from tests.real_plane import FRESH, JOBS

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not (FRESH and JOBS), reason="needs KUBEBUILDER_ASSETS with controllers: it forbids all Jobs"),
]

RULE = {"apiGroups": ["batch"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["jobs"]}
POD = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "none"}]}


def waits_for(cluster: Cluster, name: str, said: str) -> None:
    """Wait until the stage says why it is not started, and check that it is not."""

    def told() -> str:
        return str(stages_of(cluster.status(name)).get("a", {}).get("message", ""))

    wait_until(lambda: said in told(), lambda: f"nothing about {said!r} in {told()!r}")
    assert told().startswith("not started, tried again: ")
    assert not cluster.jobs(name)


def test_a_validating_admission_policy(cluster: Cluster) -> None:
    cluster.pool("forbidden", executors=1, policy={"name": "fifo"})
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

    try:
        wait_until(acts, "the policy is never taken up")
        cluster.submit("forbidden", "forbidden", [stage("a", 0.2)])
        waits_for(cluster, "forbidden", "denied request: not on Sundays")
    finally:  # other tests want their Jobs
        api.delete_validating_admission_policy_binding("never")
    cluster.wait_for("forbidden")


def test_a_quota_that_is_used_up(cluster: Cluster) -> None:
    cluster.pool("dear", executors=1, policy={"name": "fifo"})
    core = kubernetes.client.CoreV1Api(cluster.objects.api_client)
    quota = {"metadata": {"name": "none"}, "spec": {"hard": {"count/jobs.batch": "0"}}}
    core.create_namespaced_resource_quota("default", quota)
    try:
        wait_until(
            lambda: bool(core.read_namespaced_resource_quota("none", "default").status.hard),
            "the quota is never looked at",
        )
        cluster.submit("dear", "dear", [stage("a", 0.2)])
        waits_for(cluster, "dear", "exceeded quota: none")
    finally:
        core.delete_namespaced_resource_quota("none", "default")
    cluster.wait_for("dear")


@pytest.mark.slow
def test_a_quota_that_lets_a_stage_have_some_of_its_pods(cluster: Cluster) -> None:
    cluster.pool("few-pods", executors=3, policy={"name": "fifo"})
    core, crowded = cluster.core, "crowded"  # where no other test's pods end meanwhile
    core.create_namespace({"metadata": {"name": crowded}})
    core.create_namespaced_resource_quota(crowded, {"metadata": {"name": "few"}, "spec": {"hard": {"pods": "2"}}})
    wait_until(
        lambda: bool(core.read_namespaced_resource_quota("few", crowded).status.hard), "the quota is never looked at"
    )
    cluster.submit("few-pods", "few-pods", [stage("a", 900.0, tasks=3)], namespace=crowded)
    wait_until(
        lambda: condition_of(cluster.status("few-pods", crowded), "Succeeded").get("reason") == "PodsNotReady",
        "it does not say so",
    )
    (row,) = stages_of(cluster.status("few-pods", crowded)).values()
    assert (row["state"], row["reason"], row["active"]) == ("Running", "PodsNotReady", 3)
    wait_until(lambda: "PodsNotReady" in dict(cluster.events("few-pods")), "no Event says so")
    cluster.objects.delete_namespaced_custom_object(GROUP, VERSION, crowded, "workflows", "few-pods")


@contextlib.contextmanager
def mutating(cluster: Cluster, name: str, pool: str, operations: list[str], spec: str) -> Iterator[None]:
    """Have a policy set fields of all Jobs of a pool, from when it acts."""
    group, labels = ("admissionregistration.k8s.io", "v1"), {f"{GROUP}/pool": pool}
    policy = {
        "apiVersion": "/".join(group),
        "kind": "MutatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            "matchConstraints": {
                "objectSelector": {"matchLabels": labels},
                "resourceRules": [RULE | {"operations": operations}],
            },
            "reinvocationPolicy": "Never",
            "mutations": [
                {
                    "patchType": "ApplyConfiguration",
                    "applyConfiguration": {"expression": f"Object{{spec: Object.spec{{{spec}}}}}"},
                }
            ],
        },
    }
    binding = {
        "apiVersion": "/".join(group),
        "kind": "MutatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {"policyName": name},
    }
    try:
        cluster.objects.create_cluster_custom_object(*group, "mutatingadmissionpolicies", policy)
    except kubernetes.client.ApiException as refused:
        if refused.status != 404:
            raise
        pytest.skip("this API server has no MutatingAdmissionPolicy")
    bindings = "mutatingadmissionpolicybindings"
    cluster.objects.create_cluster_custom_object(*group, bindings, binding)
    body = {
        "metadata": {"generateName": "probe-", "labels": labels},
        "spec": {"parallelism": 4, "template": {"spec": POD}},
    }

    def acts() -> bool:
        try:
            made = cluster.batch.create_namespaced_job("default", body, dry_run="All")
        except kubernetes.client.ApiException as refused:
            return refused.status == 422
        return bool(made.spec.parallelism != 4)

    try:
        wait_until(acts, "the policy is never taken up")
        yield
    finally:
        cluster.objects.delete_cluster_custom_object(*group, bindings, name)


def test_a_mutating_policy_that_keeps_jobs_narrow(cluster: Cluster) -> None:
    cluster.pool("narrowed", executors=4, policy={"name": "fifo"})
    with mutating(cluster, "narrow", "narrowed", ["CREATE", "UPDATE"], "parallelism: 1"):
        cluster.submit("kept-narrow", "narrowed", [stage("a", 600.0, tasks=9)])
        wait_until(lambda: bool(cluster.jobs("kept-narrow")), "it is not started")
        cluster.submit("beside-narrow", "narrowed", [stage("a", 0.2)])
        cluster.wait_for("beside-narrow")  # though what is first in line might have all executors that are free
        wait_until(
            lambda: stages_of(cluster.status("kept-narrow"))["a"].get("reason") == "ChangeRetrying",
            "it does not say so",
        )


def test_a_mutating_policy_that_makes_jobs_invalid(cluster: Cluster) -> None:
    cluster.pool("spoilt", executors=1, policy={"name": "fifo"})
    with mutating(cluster, "spoil", "spoilt", ["CREATE"], "parallelism: -1"):
        cluster.submit("spoilt", "spoilt", [stage("a", 0.2)])
        waits_for(cluster, "spoilt", "spec.parallelism: Invalid value: -1")
    cluster.wait_for("spoilt")
