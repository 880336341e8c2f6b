"""What an operator serves at /metrics: true while it cannot act, and gone with what it was about."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import pytest
from tests.fault_rig import bench
from tests.operator_rig import GROUP, VERSION, Cluster, OperatorProcess, stage, wait_until

pytestmark = pytest.mark.e2e


def test_an_operator_that_cannot_read_jobs_does_not_say_that_it_acts(tmp_path: Path) -> None:
    leads = 'fermata_leader{lease="fermata-operator"}'
    with bench(tmp_path) as made:
        with made.fault(status=403, methods=frozenset({"GET"}), path="/jobs$"):
            operator = OperatorProcess(made.plane.kubeconfig, tmp_path)
            made.operators.append(operator)
            wait_until(lambda: "cannot list jobs" in operator.log.read_text(), "it may list Jobs")
            assert "lease fermata-operator is ours" in operator.log.read_text()
            assert f"{leads} 0.0" in operator.get("/metrics")
        operator.wait_ready()
        shown = operator.get("/metrics")
        assert f"{leads} 1.0" in shown
        assert f'fermata_build_info{{version="{version("fermata")}"}} 1.0' in shown


def test_names_of_pools_that_users_make_up_are_no_series_and_those_of_pools_end(
    cluster: Cluster, operator: OperatorProcess
) -> None:
    cluster.submit("astray", "made-up", [stage("a", 0.2)], activeDeadlineSeconds=1)
    cluster.wait_for("astray", "Succeeded", "False")
    cluster.pool("passing", executors=1, policy={"name": "fifo"})
    cluster.submit("brief", "passing", [stage("a", 0.2)])
    done = 'fermata_workflows_finished_total{pool="passing",result="succeeded"} 1.0'
    wait_until(lambda: done in operator.get("/metrics"), "what succeeded is not counted")
    assert "made-up" not in operator.get("/metrics")
    cluster.objects.delete_namespaced_custom_object(GROUP, VERSION, "default", "workflows", "brief")
    cluster.objects.delete_cluster_custom_object(GROUP, VERSION, "executorpools", "passing")
    wait_until(lambda: "passing" not in operator.get("/metrics"), "what is said of a pool that is gone stays")


def test_what_is_counted_of_a_pool_begins_at_zero(cluster: Cluster, operator: OperatorProcess) -> None:
    """Prometheus' `rate` sees nothing where a series begins with the first of what it counts."""
    cluster.pool("counted", executors=1, policy={"name": "fifo"})
    cluster.wait_for_pool("counted", "PolicyReady", "True")
    shown = operator.get("/metrics")
    for series in (
        'fermata_workflows_finished_total{pool="counted",result="failed"}',
        'fermata_workflow_completion_seconds_count{policy="fifo",pool="counted"}',
        'fermata_reconcile_failures_total{pool="counted"}',
    ):
        assert f"{series} 0.0\n" in shown
