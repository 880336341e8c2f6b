"""What users of a workflow engine expect on day one: retries, deadlines, failures, names, labels, caps, estimates."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from tests.operator_rig import (
    GROUP,
    VERSION,
    Cluster,
    OperatorProcess,
    condition_of,
    control_plane,
    stage,
    stages_of,
    wait_until,
)

from fermata.operator.times import parse

pytestmark = pytest.mark.e2e


def _annotated(row: dict[str, Any], **annotations: str) -> dict[str, Any]:
    """Return a stage whose pods carry more annotations for the embedded kubelet."""
    row["template"]["metadata"]["annotations"] |= {
        f"fermata.dev/sim-{key.replace('_', '-')}": text for key, text in annotations.items()
    }
    return row


def test_a_task_that_fails_is_tried_again_as_often_as_retries_allow(cluster: Cluster) -> None:
    cluster.pool("retrying", executors=2, policy={"name": "fifo"})
    cluster.submit("lucky", "retrying", [_annotated(stage("a", 0.2, retries=2), failures="2")])
    cluster.submit("unlucky", "retrying", [_annotated(stage("a", 0.2, retries=1), failures="2")])
    row = stages_of(cluster.wait_for("lucky"))["a"]
    assert (row["state"], row["failed"]) == ("Succeeded", 2)
    status = cluster.wait_for("unlucky", "Succeeded", "False")
    assert "BackoffLimitExceeded" in condition_of(status, "Succeeded")["message"]


def test_a_stage_keeps_to_its_deadline_which_waiting_does_not_use_up(cluster: Cluster) -> None:
    cluster.pool("timed", executors=1, policy={"name": "fifo"})
    cluster.submit("first", "timed", [stage("a", 2.5)])
    cluster.submit("patient", "timed", [stage("a", 0.3, activeDeadlineSeconds=2)])
    cluster.submit("overlong", "timed", [stage("a", 300.0, activeDeadlineSeconds=1)])
    row = stages_of(cluster.wait_for("patient"))["a"]
    assert row["waitSeconds"] > 2.0, "it waited for longer than its deadline and ran all the same"
    status = cluster.wait_for("overlong", "Succeeded", "False")
    assert condition_of(status, "Succeeded")["reason"] == "StageFailed"
    assert "DeadlineExceeded" in condition_of(status, "Succeeded")["message"]


def test_a_hold_does_not_use_up_a_stages_deadline(cluster: Cluster) -> None:
    cluster.pool("timed-hold", executors=2, policy={"name": "sjf-hold:tau=1,split=2"})
    cluster.submit("timed-long", "timed-hold", [stage("a", 5.5)])
    cluster.wait_for("timed-long", "Running", "True")
    # A Job's deadline counts from a whole second, and may be looked at a second before its pods are.
    cluster.submit("held-long", "timed-hold", [stage("a", 0.2, estimateSeconds=6, activeDeadlineSeconds=3)])
    row = stages_of(cluster.wait_for("held-long"))["a"]
    assert row["heldSeconds"] > 3.0


@pytest.mark.parametrize(
    ("on_failure", "states", "jobs"),
    [
        ("Stop", {"bad": "Failed", "never": "Skipped", "long": "Failed", "next": "Skipped"}, {"bad", "long"}),
        ("Finish", {"bad": "Failed", "never": "Skipped", "long": "Succeeded", "next": "Succeeded"},
         {"bad", "long", "next"}),
    ],
)  # fmt: skip
def test_a_failure_stops_the_others_or_lets_them_finish(
    cluster: Cluster, on_failure: str, states: dict[str, str], jobs: set[str]
) -> None:
    name = on_failure.lower()
    cluster.pool(name, executors=2, policy={"name": "fifo"})
    stages = [
        stage("bad", 0.3, exit_code=1),
        stage("never", 0.3, "bad"),
        stage("long", 2.0),
        stage("next", 0.3, "long"),
    ]
    cluster.submit(f"on-{name}", name, stages, onFailure=on_failure)
    status = cluster.wait_for(f"on-{name}", "Succeeded", "False")
    rows = stages_of(status)
    assert {key: row["state"] for key, row in rows.items()} == states
    assert set(cluster.jobs(f"on-{name}")) == jobs
    condition = condition_of(status, "Succeeded")
    assert condition["reason"] == "StageFailed"
    assert condition["message"].startswith("stage 'bad': JobFailed")
    wait_until(lambda: cluster.pool_status(name)["busy"] == 0, "its executors are not free again")
    if on_failure == "Stop":
        assert rows["long"]["reason"] == "Stopped"
        assert rows["long"]["runSeconds"] < 1.9


@pytest.mark.parametrize("by", ["failure", "hand"])
def test_what_is_stopped_keeps_its_executors_until_its_pods_have_ended(cluster: Cluster, by: str) -> None:
    pool, first, second = f"ending-{by}", f"ends-late-{by}", f"follows-{by}"
    # No kubelet ends a pod of a node that there is not: it takes as long as it is let.
    slow = stage("slow")
    slow["template"]["spec"]["nodeName"] = "none"
    cluster.pool(pool, executors=2, policy={"name": "fifo"})
    cluster.submit(first, pool, [slow, *([stage("bad", 1.0, exit_code=1)] if by == "failure" else [])])
    wait_until(lambda: len(_unfinished_pods(cluster, first, "slow")) == 1, "it has no pod")
    (pod,) = _unfinished_pods(cluster, first, "slow")
    cluster.submit(second, pool, [stage("a", 0.2, slots=2)])
    job = cluster.jobs(first)["slow"].metadata.name
    if by == "hand":
        cluster.batch.patch_namespaced_job(job, "default", {"spec": {"suspend": True}})
    wait_until(lambda: cluster.jobs(first)["slow"].status.terminating == 1, "its pod is not ended")
    if by == "failure":
        assert stages_of(cluster.wait_for(first, "Succeeded", "False"))["slow"]["reason"] == "Stopped"
    wait_until(lambda: cluster.pool_status(pool).get("busy") == 1, "it holds no executor")
    assert not cluster.jobs(second), "more is started than the pool has executors"
    cluster.core.delete_namespaced_pod(pod, "default", grace_period_seconds=0)
    cluster.wait_for(second)


def test_a_pod_that_ends_late_is_followed_by_none_before(cluster: Cluster) -> None:
    name = "ends-late"
    slow = stage("slow", retries=3)
    slow["template"]["spec"] |= {"nodeName": "none", "restartPolicy": "OnFailure"}  # as above
    cluster.pool(name, executors=1, policy={"name": "fifo"})
    cluster.submit(name, name, [slow])
    wait_until(lambda: len(_unfinished_pods(cluster, name, "slow")) == 1, "it has no pod")
    (pod,) = _unfinished_pods(cluster, name, "slow")
    cluster.core.delete_namespaced_pod(pod, "default")
    wait_until(lambda: cluster.jobs(name)["slow"].status.terminating == 1, "its pod is not ended")
    time.sleep(1.0)
    assert _unfinished_pods(cluster, name, "slow") == [pod]
    assert cluster.jobs(name)["slow"].status.active is None
    cluster.core.delete_namespaced_pod(pod, "default", grace_period_seconds=0)
    wait_until(lambda: len(_unfinished_pods(cluster, name, "slow")) == 1, "it has no other pod")


@pytest.mark.parametrize("deleted", ["workflow", "job", "job-alone"])
def test_pods_that_outlive_their_job_keep_their_executors(cluster: Cluster, deleted: str) -> None:
    pool, first, second = f"leaving-{deleted}", f"deleted-{deleted}", f"after-{deleted}"
    slow = stage("slow", slots=2)
    slow["template"]["spec"]["nodeName"] = "none"  # as above
    cluster.pool(pool, executors=3, policy={"name": "fifo"})
    cluster.submit(first, pool, [slow])
    wait_until(lambda: len(_unfinished_pods(cluster, first, "slow")) == 1, "it has no pod")
    (pod,) = _unfinished_pods(cluster, first, "slow")
    cluster.submit(second, pool, [stage("a", 0.2, slots=2)])
    if deleted == "workflow":
        cluster.objects.delete_namespaced_custom_object(
            GROUP, VERSION, "default", "workflows", first, propagation_policy="Background"
        )
    else:
        job, how = cluster.jobs(first)["slow"].metadata.name, "Orphan" if deleted == "job-alone" else "Background"
        cluster.batch.delete_namespaced_job(job, "default", propagation_policy=how)
    wait_until(lambda: not cluster.jobs(first), "its Job is not deleted")
    wait_until(lambda: cluster.pool_status(pool).get("busy") == 2, "it holds no executors")
    time.sleep(1.0)
    assert cluster.pool_status(pool)["busy"] == 2
    assert not cluster.jobs(second), "more is started than the pool has executors"
    cluster.core.delete_namespaced_pod(pod, "default", grace_period_seconds=0)
    cluster.wait_for(second)


@pytest.mark.slow
def test_a_stage_of_which_no_pod_is_ready_for_a_minute_says_so(cluster: Cluster) -> None:
    waiting = stage("a")
    waiting["template"]["spec"]["schedulingGates"] = [{"name": "example.com/never"}]
    cluster.pool("unready", executors=1, policy={"name": "fifo"})
    cluster.submit("unready", "unready", [waiting])
    wait_until(
        lambda: stages_of(cluster.status("unready")).get("a", {}).get("reason") == "NoPodReady", "it does not say so"
    )
    wait_until(lambda: "NoPodReady" in dict(cluster.events("unready")), "no Event says so")
    cluster.objects.delete_namespaced_custom_object(GROUP, VERSION, "default", "workflows", "unready")


def _unfinished_pods(cluster: Cluster, workflow: str, stage: str) -> list[str]:
    selector = f"{GROUP}/workflow={workflow},{GROUP}/stage={stage}"
    found = cluster.core.list_namespaced_pod("default", label_selector=selector).items
    return [pod.metadata.name for pod in found if pod.status.phase in ("Pending", "Running")]


def test_generated_names_labels_annotations_requests_and_the_index_reach_jobs_and_pods(cluster: Cluster) -> None:
    cluster.pool("named", executors=2, policy={"name": "fifo"})
    asked = {"requests": {"cpu": "50m", "memory": "20Mi"}, "limits": {"memory": "40Mi"}}
    task = stage("a", 0.3, tasks=2)
    task["template"]["spec"]["containers"][0] |= {"resources": asked, "env": [{"name": "OWN", "value": "1"}]}
    body = {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "Workflow",
        "metadata": {
            "generateName": "report-",
            "labels": {"team": "data", "fermata.dev/family": "report"},
            "annotations": {"cost-centre": "7"},
        },
        "spec": {"poolName": "named", "stages": [task]},
    }
    made = cluster.objects.create_namespaced_custom_object(GROUP, VERSION, "default", "workflows", body)
    name = made["metadata"]["name"]
    assert name.startswith("report-")
    cluster.wait_for(name)
    job = cluster.jobs(name)["a"]
    assert job.metadata.labels["team"] == "data"
    assert job.metadata.annotations["cost-centre"] == "7"
    pods = cluster.core.list_namespaced_pod("default", label_selector=f"team=data,fermata.dev/workflow={name}").items
    assert {pod.metadata.labels["batch.kubernetes.io/job-completion-index"] for pod in pods} == {"0", "1"}
    for pod in pods:
        (container,) = pod.spec.containers
        assert {"requests": container.resources.requests, "limits": container.resources.limits} == asked
        env = {entry.name: entry for entry in container.env}
        assert env["OWN"].value == "1"
        index = env["JOB_COMPLETION_INDEX"].value_from.field_ref.field_path
        assert index.endswith("['batch.kubernetes.io/job-completion-index']")


def test_a_task_of_several_slots_takes_them_together(cluster: Cluster, operator: OperatorProcess) -> None:
    cluster.pool("slotted", executors=3, policy={"name": "fifo"})
    cluster.submit("pair", "slotted", [stage("a", 1.5, slots=2)])
    cluster.wait_for("pair", "Running", "True")
    busy = 'fermata_pool_executors{pool="slotted",state="busy"} 2.0'  # at once, unlike the pool's status
    wait_until(lambda: busy in operator.get("/metrics"), "two slots are not busy")
    cluster.submit("other-pair", "slotted", [stage("a", 0.3, slots=2)])
    first, second = stages_of(cluster.wait_for("pair"))["a"], stages_of(cluster.wait_for("other-pair"))["a"]
    # Its executors are free with its pod, a moment before its Job is done.
    assert parse(second["startTime"]) - parse(first["startTime"]) >= 0.9, "only one slot was free"


def test_estimates_are_learned_told_and_learned_again_after_a_restart(tmp_path: Path) -> None:
    unknown = {key: value for key, value in stage("a", 0.5).items() if key != "estimateSeconds"}
    with control_plane(tmp_path) as kubeconfig:
        cluster, operators = Cluster(kubeconfig), [OperatorProcess(kubeconfig, tmp_path)]
        try:
            operators[0].wait_ready()
            cluster.pool("learning", executors=1, policy={"name": "sjf"})
            cluster.submit("etl-1", "learning", [unknown])
            row = stages_of(cluster.wait_for("etl-1"))["a"]
            assert (row["estimateSeconds"], row["estimateSource"]) == (
                60.0,
                "a guess, as nothing has finished in the pool yet",
            )
            cluster.submit("etl-2", "learning", [unknown])
            row = stages_of(cluster.wait_for("etl-2"))["a"]
            assert row["estimateSource"] == "median of 1 earlier run"
            assert 0.4 < row["estimateSeconds"] < 3.0, "what it took, with what Kubernetes adds to it"
            metric = 'fermata_estimate_ratio_count{pool="learning",source="learned"} 2.0'
            assert metric in operators[0].get("/metrics")
            operators[0].kill()
            operators.append(OperatorProcess(kubeconfig, tmp_path))
            operators[1].wait_ready()
            cluster.submit("etl-3", "learning", [unknown])
            row = stages_of(cluster.wait_for("etl-3"))["a"]
            assert row["estimateSource"].startswith("median of 2 earlier runs, half of them ")
            assert operators[1].stop() == 0
        finally:
            for process in operators:
                process.stop()
