"""Pools that have executors given back after each task: pods wait at a gate until it is their turn."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.operator_rig import (
    Cluster,
    OperatorProcess,
    Starts,
    condition_of,
    control_plane,
    give_rights,
    rights_to_turns,
    stage,
    stages_of,
    wait_until,
)
from tests.processes import fermata

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Give a cluster whose operator may let pods through their gates."""
    folder = tmp_path_factory.mktemp("turns")
    with control_plane(folder, given=rights_to_turns()) as path:
        operator = OperatorProcess(path, folder)
        try:
            operator.wait_ready()
            yield path
        finally:
            operator.stop()


@pytest.fixture
def cluster(kubeconfig: Path) -> Cluster:
    return Cluster(kubeconfig)


@pytest.mark.parametrize("give_back", ["Stage", "Task"])
def test_what_is_short_comes_between_the_tasks_of_a_wide_stage(cluster: Cluster, give_back: str) -> None:
    pool, starts = f"turns-{give_back.lower()}", Starts(cluster)
    cluster.pool(pool, executors=2, policy={"name": "srwf"}, giveBack=give_back)
    cluster.submit(f"wide-{pool}", pool, [stage("a", 2.0, tasks=6)])
    cluster.wait_for(f"wide-{pool}", "Running", "True")
    cluster.submit(f"short-{pool}", pool, [stage("a", 0.3)])
    short = cluster.wait_for(f"short-{pool}")
    wide = cluster.wait_for(f"wide-{pool}")
    starts.stop()
    row = stages_of(wide)["a"]
    assert (short["completionTime"] < wide["completionTime"]) == (give_back == "Task")
    assert starts.most[pool] == 2
    assert (row["succeeded"], row["failed"]) == (6, 0)
    if give_back == "Task":  # else with what a Job controller takes from one task to the next
        assert row["taskSeconds"] == pytest.approx(2.0, abs=0.7)


def test_what_is_held_between_its_tasks_is_explained_and_can_be_released(cluster: Cluster, kubeconfig: Path) -> None:
    at = ("--kubeconfig", str(kubeconfig))
    policy = {"name": "sjf-hold:tau=1,split=2"}
    cluster.pool("turns-held", executors=2, policy=policy, giveBack="Task", maxHoldSeconds=300)
    assert fermata("release-all", "turns-held", *at).returncode == 0
    cluster.submit("long-held", "turns-held", [stage("a", 60.0)])
    cluster.wait_for("long-held", "Running", "True")
    cluster.submit("wide-held", "turns-held", [stage("a", 2.0, tasks=3)])
    cluster.wait_for("wide-held", "Running", "True")
    assert fermata("release-all", "turns-held", "--undo", *at).returncode == 0
    cluster.wait_for("wide-held", "Held", "True")
    assert cluster.status("wide-held")["policy"] == policy["name"]
    told = fermata("explain", "wide-held", *at).stdout
    for line in ("held for", "alternative: started now", "at the latest (maxHoldSeconds 300)", "to start it: fermata"):
        assert line in told
    assert fermata("release", "wide-held", "a", *at).stdout == "stage a: released, it was held\n"
    assert stages_of(cluster.wait_for("wide-held"))["a"]["succeeded"] == 3


def test_between_its_tasks_a_workflow_waits_and_says_so(cluster: Cluster) -> None:
    cluster.pool("turns-gap", executors=1, policy={"name": "srwf"}, giveBack="Task")
    cluster.submit("wide-gap", "turns-gap", [stage("a", 1.0, tasks=3)])
    cluster.wait_for("wide-gap", "Running", "True")
    cluster.submit("short-gap", "turns-gap", [stage("a", 2.0, estimateSeconds=1)])
    wait_until(
        lambda: (
            stages_of(cluster.status("wide-gap"))["a"]["reason"] == "WaitingForTurn"
            or stages_of(cluster.status("wide-gap"))["a"]["reason"] == "ExecutorsBusy"
        ),
        lambda: str(cluster.status("wide-gap")),
    )
    assert condition_of(cluster.status("wide-gap"), "Running")["reason"] == "Waiting"
    status = cluster.wait_for("wide-gap")
    parts = [status[f"{part}Seconds"] for part in ("wait", "held", "run")]
    assert sum(parts) == pytest.approx(status["jctSeconds"], abs=0.002)
    assert status["waitSeconds"] > 1.5, "the short one ran for two seconds meanwhile"
    assert stages_of(status)["a"]["taskSeconds"] == pytest.approx(1.0, abs=0.6)


def test_a_task_that_fails_waits_for_another_turn(cluster: Cluster) -> None:
    cluster.pool("turns-retry", executors=1, policy={"name": "fifo"}, giveBack="Task")
    again = stage("a", 0.3, tasks=2, retries=3)
    again["template"]["metadata"]["annotations"] |= {"fermata.dev/sim-failures": "1"}
    cluster.submit("again", "turns-retry", [again])
    row = stages_of(cluster.wait_for("again"))["a"]
    assert (row["succeeded"], row["failed"]) == (2, 2)


def test_a_failure_stops_what_waits_for_its_turn(cluster: Cluster) -> None:
    cluster.pool("turns-stop", executors=2, policy={"name": "fifo"}, giveBack="Task")
    cluster.submit("stop", "turns-stop", [stage("a", 1.0, tasks=9), stage("b", 0.3, exit_code=1)])
    status = cluster.wait_for("stop", "Succeeded", "False")
    assert condition_of(status, "Succeeded")["reason"] == "StageFailed"
    wait_until(lambda: cluster.pool_status("turns-stop")["busy"] == 0, lambda: str(cluster.pool_status("turns-stop")))


def test_without_the_right_nothing_passes_its_gate_and_a_killed_operator_goes_on_once_it_has_it(tmp_path: Path) -> None:
    with control_plane(tmp_path) as kubeconfig:
        operator, cluster = OperatorProcess(kubeconfig, tmp_path), Cluster(kubeconfig)
        try:
            operator.wait_ready()
            starts = Starts(cluster)
            cluster.pool("gated", executors=2, policy={"name": "srwf"}, giveBack="Task")
            cluster.submit("wide", "gated", [stage("a", 1.0, tasks=5)])
            wait_until(
                lambda: "ChangeRetrying" in condition_of(cluster.status("wide"), "Succeeded").get("reason", ""),
                lambda: str(cluster.status("wide")),
            )
            told = condition_of(cluster.status("wide"), "Succeeded")["message"]
            assert "pods stay at their gates" in told
            assert "patch" in told
            assert starts.most["gated"] == 0
            give_rights(kubeconfig, rights_to_turns())
            wait_until(lambda: stages_of(cluster.status("wide"))["a"]["succeeded"] > 0, "no task has ended")
            operator.kill()
            operator = OperatorProcess(kubeconfig, tmp_path)
            operator.wait_ready()
            row = stages_of(cluster.wait_for("wide"))["a"]
            starts.stop()
            assert (row["succeeded"], row["failed"], row["parallelism"]) == (5, 0, 2)
            assert starts.most["gated"] == 2
            assert max(starts.pods.values()) == 1, "no task ran twice"
            assert "Traceback" not in operator.log.read_text()
        finally:
            operator.stop()
