"""The operator killed with SIGKILL while stages are held and running: nothing is lost and nothing starts twice."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from tests.operator_rig import (
    GROUP,
    VERSION,
    Cluster,
    OperatorProcess,
    Starts,
    control_plane,
    stage,
    stages_of,
    wait_until,
)

pytestmark = pytest.mark.e2e

DOWN_S = 1.5


def test_killed_while_stages_are_held_and_running(tmp_path: Path) -> None:
    with control_plane(tmp_path) as kubeconfig:
        cluster = Cluster(kubeconfig)
        starts = Starts(cluster)
        operators = [OperatorProcess(kubeconfig, tmp_path)]
        try:
            operators[0].wait_ready()
            cluster.pool("killed", executors=2, policy={"name": "sjf-hold:tau=1,split=2"})
            cluster.pool("busy", executors=2, policy={"name": "sjf"})
            cluster.submit("runs", "killed", [stage("a", 6.0), stage("b", 0.3, "a")])
            for number in range(4):
                cluster.submit(f"busy-{number}", "busy", [stage("a", 0.5, tasks=2), stage("b", 0.5, "a")])
            cluster.wait_for("runs", "Running", "True")
            cluster.submit("held", "killed", [stage("a", 0.3, estimateSeconds=6), stage("b", 0.3, "a")])
            before = stages_of(cluster.wait_for("held", "Held", "True"))["a"]
            assert before["state"] == "Held"
            leaving = _keep_pod(cluster, "leaves", "leaving")
            operators[0].kill()
            _delete(cluster, "leaves")
            time.sleep(DOWN_S)
            operators.append(OperatorProcess(kubeconfig, tmp_path))
            operators[1].wait_ready()
            names = ["runs", "held", *(f"busy-{number}" for number in range(4))]
            cluster.submit("next", "leaving", [stage("a", 0.3, slots=2)])
            final = {name: cluster.wait_for(name) for name in names}
            assert cluster.pool_status("leaving")["busy"] == 2, "pods of a Job that it never saw have not ended"
            assert not cluster.jobs("next"), "more is started than the pool has executors"
            cluster.core.patch_namespaced_pod(leaving, "default", {"metadata": {"finalizers": None}})
            final["next"] = cluster.wait_for("next")
            assert operators[1].stop() == 0
        finally:
            for operator in operators:
                operator.stop()
            starts.stop()
        after = stages_of(final["held"])["a"]
        assert after["readyTime"] == before["readyTime"]
        assert after["heldSeconds"] >= DOWN_S, "the hold went on while no operator ran"
        expected = {(name, stage_) for name in names for stage_ in ("a", "b")} | {("leaves", "a"), ("next", "a")}
        assert set(starts.jobs) == expected
        assert set(starts.jobs.values()) == {1}, "a stage was started twice"
        assert set(starts.pods.values()) == {1}, "a task was started twice"
        for name, status in final.items():
            parts = [round(status[key] * 1000) for key in ("waitSeconds", "heldSeconds", "runSeconds")]
            assert sum(parts) == round(status["jctSeconds"] * 1000), name


def _keep_pod(cluster: Cluster, name: str, pool: str) -> str:
    """Have a pod of two executors, in a pool of three, and keep it from going, as a grace period would."""
    cluster.pool(pool, executors=3, policy={"name": "sjf"})
    task = stage("a", 0.3, slots=2)
    task["template"]["spec"]["nodeSelector"] = {"fermata.dev/node": "none"}  # no kubelet ends what no node takes
    cluster.submit(name, pool, [task])
    selector = f"{GROUP}/workflow={name}"
    wait_until(lambda: bool(cluster.core.list_namespaced_pod("default", label_selector=selector).items), "no pod")
    (pod,) = cluster.core.list_namespaced_pod("default", label_selector=selector).items
    cluster.core.patch_namespaced_pod(pod.metadata.name, "default", {"metadata": {"finalizers": ["fermata.dev/test"]}})
    return str(pod.metadata.name)


def _delete(cluster: Cluster, name: str) -> None:
    """Delete a workflow with its Jobs, and wait until these are gone."""
    options = {"propagation_policy": "Background"}
    cluster.objects.delete_namespaced_custom_object(GROUP, VERSION, "default", "workflows", name, **options)
    wait_until(lambda: not cluster.jobs(name), "its Job is not deleted")
