"""What people can do who have Kubernetes' own roles in a namespace, with what `users.yaml` adds to these."""

from __future__ import annotations

import contextlib
from functools import partial
from pathlib import Path

import kubernetes.client
import kubernetes.utils
import pytest
import yaml
from kubernetes.client.exceptions import ApiException
from tests.operator_rig import DEPLOY, GROUP, VERSION, Cluster, Raw, stage, wait_until
from tests.processes import fermata

pytestmark = pytest.mark.e2e

TEAM = "team"
NIGHTLY = DEPLOY.parent / "examples/03-nightly"


def _aggregated(*names: str) -> Raw:
    """Return Kubernetes' role of the last of these names, for a control plane that comes without it."""
    labels = [{"matchLabels": {f"rbac.authorization.k8s.io/aggregate-to-{name}": "true"}} for name in names]
    api = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole"}
    return {**api, "metadata": {"name": names[-1]}, "aggregationRule": {"clusterRoleSelectors": labels}}


def _as(role: str, kubeconfig: Path, cluster: Cluster) -> Path:
    """Return a kubeconfig of somebody who has a role in a namespace, which is the context's."""
    bound = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}
    who = [{"kind": "ServiceAccount", "name": role, "namespace": TEAM}]
    cluster.core.create_namespaced_service_account(TEAM, {"metadata": {"name": role}})
    roles = kubernetes.client.RbacAuthorizationV1Api(cluster.client)
    roles.create_namespaced_role_binding(TEAM, {"metadata": {"name": role}, "roleRef": bound, "subjects": who})
    return _of_account(role, TEAM, kubeconfig, cluster)


def _of_account(account: str, namespace: str, kubeconfig: Path, cluster: Cluster) -> Path:
    """Return a kubeconfig of a service account, whose namespace is the context's."""
    lasts = {"spec": {"expirationSeconds": 7200}}
    made = cluster.core.create_namespaced_service_account_token(account, namespace, lasts)
    config = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))
    config["users"] = [{"name": user["name"], "user": {"token": made.status.token}} for user in config["users"]]
    config["contexts"][0]["context"]["namespace"] = namespace
    path = kubeconfig.with_name(f"kubeconfig-{account}")
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    return path


def _may_create(theirs: Cluster, namespace: str) -> bool:
    """Return whether somebody may create workflows by now: rights come about some time after their roles."""
    asked = {"namespace": namespace, "group": GROUP, "verb": "create", "resource": "workflows"}
    reviews = kubernetes.client.AuthorizationV1Api(theirs.client)
    answer = reviews.create_self_subject_access_review({"spec": {"resourceAttributes": asked}})
    return bool(answer.status.allowed)


def test_who_has_kubernetes_own_roles_can_use_workflows_and_no_more(cluster: Cluster, kubeconfig: Path) -> None:
    cluster.core.create_namespace({"metadata": {"name": TEAM}})
    added = yaml.safe_load_all((DEPLOY / "base/users.yaml").read_text(encoding="utf-8"))
    for role in (_aggregated("view"), _aggregated("view", "edit"), *added):
        with contextlib.suppress(kubernetes.utils.FailToCreateError):  # it is there
            kubernetes.utils.create_from_dict(cluster.client, role)
    viewer, editor = (_as(role, kubeconfig, cluster) for role in ("view", "edit"))
    cluster.pool("users", executors=2, policy={"name": "sjf-hold:tau=1,split=2"})
    theirs = Cluster(editor)

    wait_until(partial(_may_create, theirs, TEAM), "whoever may edit may not submit")
    theirs.submit("first", "users", [stage("a", 20.0)], namespace=TEAM)
    cluster.wait_for("first", "Running", "True", namespace=TEAM)
    theirs.submit("second", "users", [stage("a", 20.0)], namespace=TEAM)
    cluster.wait_for("second", "Held", "True", namespace=TEAM)
    told = fermata("explain", "second", "--kubeconfig", str(viewer))
    assert told.stdout.splitlines()[1] == "Pool users: you may not see it (it takes the ClusterRole fermata-view)."
    assert ("HeldByPolicy" in told.stdout, "alternative" in told.stdout) == (True, False)
    refused = fermata("release", "second", "--kubeconfig", str(viewer))
    assert (refused.returncode, refused.stderr.count("\n"), "Forbidden" in refused.stderr) == (2, 1, True)
    assert fermata("release", "second", "--kubeconfig", str(editor)).stdout == "stage a: released, it was held\n"
    cluster.wait_for("second", "Running", "True", namespace=TEAM)
    for write in (
        partial(theirs.objects.patch_namespaced_custom_object_status, GROUP, VERSION, TEAM, "workflows", "second", {}),
        partial(theirs.objects.patch_cluster_custom_object, GROUP, VERSION, "executorpools", "users", {}),
        partial(theirs.submit, "third", "users", [stage("a")]),  # in another namespace
    ):
        with pytest.raises(ApiException) as forbidden:
            write()
        assert forbidden.value.status == 403


def test_the_cron_job_of_the_example_may_create_its_workflow_and_no_more(cluster: Cluster, kubeconfig: Path) -> None:
    cron_job, *rights = yaml.safe_load_all((NIGHTLY / "cronjob.yaml").read_text(encoding="utf-8"))
    for each in rights:
        each["metadata"]["namespace"] = "default"  # as its kustomization says
        kubernetes.utils.create_from_dict(cluster.client, each)
    account = cron_job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["serviceAccountName"]
    theirs = Cluster(_of_account(account, "default", kubeconfig, cluster))
    workflow = yaml.safe_load((NIGHTLY / "workflow.yaml").read_text(encoding="utf-8"))
    workflow["spec"]["poolName"] = "nightly"
    cluster.pool("nightly", executors=4)
    wait_until(partial(_may_create, theirs, "default"), "the account may not create workflows")
    done = theirs.objects.create_namespaced_custom_object(GROUP, VERSION, "default", "workflows", workflow)
    made = done["metadata"]["name"]
    with pytest.raises(ApiException) as forbidden:
        theirs.objects.delete_namespaced_custom_object(GROUP, VERSION, "default", "workflows", made)
    assert forbidden.value.status == 403
    cluster.wait_for(made)
