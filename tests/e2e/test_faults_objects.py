"""Objects that change or go behind the operator's back, on clocks that disagree; what was lost is counted."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.fault_rig import Bench, bench, busy_bench
from tests.operator_rig import GROUP, VERSION, Raw, condition_of, stage, stages_of, wait_until

pytestmark = pytest.mark.e2e
HOLDS = {"name": "sjf-hold:tau=1,split=2"}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with busy_bench(tmp_path_factory.mktemp("faults"), slots=6, nodes=3) as made:
        yield made


def workflow(bench: Bench, name: str) -> tuple[Any, ...]:
    del bench
    return GROUP, VERSION, "default", "workflows", name


def edit(bench: Bench, name: str, spec: Raw) -> None:
    bench.cluster.objects.patch_namespaced_custom_object(*workflow(bench, name), {"spec": spec})


def edit_pool(bench: Bench, name: str, spec: Raw) -> None:
    bench.cluster.objects.patch_cluster_custom_object(GROUP, VERSION, "executorpools", name, {"spec": spec})


def running_pods(bench: Bench, workflow: str) -> list[Any]:
    found = bench.cluster.core.list_namespaced_pod("default", label_selector=f"{GROUP}/workflow={workflow}").items
    return [pod for pod in found if pod.status.phase == "Running" and not pod.metadata.deletion_timestamp]


def peak_pods(bench: Bench, pool: str) -> int:
    found = bench.cluster.core.list_namespaced_pod("default", label_selector=f"{GROUP}/pool={pool}").items
    return sum(pod.status.phase in ("Running", "Pending") for pod in found)


def hold_one(bench: Bench, pool: str, seconds: float = 6.0) -> Raw:
    """Let one long workflow run in a pool and another be held, and return the status of that one."""
    bench.cluster.pool(pool, executors=2, policy=HOLDS, maxHoldSeconds=30)
    bench.cluster.submit(f"{pool}-runs", pool, [stage("a", seconds)])
    bench.cluster.wait_for(f"{pool}-runs", "Running", "True")
    bench.cluster.submit(f"{pool}-held", pool, [stage("a", 4.0)])
    return bench.cluster.wait_for(f"{pool}-held", "Held", "True")


def test_pods_deleted_and_evicted_behind_its_back(shared: Bench) -> None:
    shared.cluster.pool("pods", executors=4, policy={"name": "fifo"})
    shared.cluster.submit("bereft", "pods", [stage("a", 1.5, tasks=4, retries=4), stage("b", 0.3, "a")])
    wait_until(lambda: len(running_pods(shared, "bereft")) == 4, "its pods do not run")
    pods = running_pods(shared, "bereft")
    for pod in pods[:2]:
        shared.cluster.core.delete_namespaced_pod(pod.metadata.name, "default", grace_period_seconds=0)
    for pod in pods[2:]:
        eviction = {"metadata": {"name": pod.metadata.name}}
        shared.cluster.core.create_namespaced_pod_eviction(pod.metadata.name, "default", eviction)
    shared.check_nothing_lost(["bereft"], "ab", failures=True)
    assert shared.cluster.jobs("bereft")["a"].status.failed == 2, "an eviction is no failure"


def test_a_node_lost_with_its_pods_costs_no_retry(shared: Bench) -> None:
    shared.cluster.pool("nodes", executors=12, policy={"name": "fifo"})
    names = [f"node-{number}" for number in range(4)]
    for name in names:
        shared.cluster.submit(name, "nodes", [stage("a", 1.5, tasks=3), stage("b", 0.3, "a")])
    wait_until(lambda: all(len(running_pods(shared, name)) == 3 for name in names), "its pods do not run")
    lost = [pod for name in names for pod in running_pods(shared, name) if pod.spec.node_name == "local-3"]
    assert lost
    shared.cluster.core.delete_node("local-3")
    shared.check_nothing_lost(names, "ab", failures=True)
    assert sum(shared.pods.values()) >= 4 * 4 + len(lost)


def test_a_job_deleted_behind_its_back_fails_its_stage_alone(shared: Bench) -> None:
    shared.cluster.pool("jobs", executors=2, policy={"name": "fifo"})
    shared.cluster.submit("robbed", "jobs", [stage("a", 30.0), stage("b", 0.3, "a")])
    shared.cluster.submit("spared", "jobs", [stage("a", 1.0), stage("b", 0.3, "a")])
    wait_until(lambda: len(running_pods(shared, "robbed")) == 1, "it does not run")
    job = shared.cluster.jobs("robbed")["a"]
    shared.cluster.batch.delete_namespaced_job(job.metadata.name, "default", propagation_policy="Background")
    status = shared.cluster.wait_for("robbed", "Succeeded", "False")
    assert stages_of(status)["a"]["reason"] == "JobDeleted"
    shared.check_nothing_lost(["spared"], "ab")
    wait_until(lambda: shared.cluster.pool_status("jobs")["busy"] == 0, "an executor is leaked")


def test_a_job_whose_label_is_taken_off_gets_it_back_and_goes_on(shared: Bench) -> None:
    shared.cluster.pool("bare", executors=2, policy={"name": "fifo"})
    shared.cluster.submit("bared", "bare", [stage("a", 4.0), stage("b", 0.3, "a")])
    wait_until(lambda: len(running_pods(shared, "bared")) == 1, "it does not run")
    job, label = shared.cluster.jobs("bared")["a"].metadata, f"{GROUP}/pool"
    bare = shared.cluster.batch.patch_namespaced_job(job.name, "default", {"metadata": {"labels": {label: None}}})
    assert label not in bare.metadata.labels
    wait_until(lambda: label in shared.cluster.jobs("bared")["a"].metadata.labels, "it does not get its label back")
    shared.check_nothing_lost(["bared"], "ab")
    assert shared.jobs["bared", "a"] == 1


def test_jobs_tidied_up_as_soon_as_they_have_ended_fail_nothing(shared: Bench) -> None:
    shared.cluster.pool("tidy", executors=4, policy={"name": "fifo"})
    names = [f"tidy-{number}" for number in range(3)]
    for name in names:
        shared.cluster.submit(name, "tidy", [stage("a", 0.2), stage("b", 1.5, "a")])
    for name in names:
        wait_until(lambda name=name: "b" in shared.cluster.jobs(name), "its second stage does not start")
        job = shared.cluster.jobs(name)["a"].metadata.name
        shared.cluster.batch.delete_namespaced_job(job, "default", propagation_policy="Background")
    shared.check_nothing_lost(names, "ab")


def test_a_job_stopped_or_finished_behind_its_back(shared: Bench) -> None:
    shared.cluster.pool("meddled", executors=3, policy={"name": "fifo"})
    shared.cluster.submit("ended", "meddled", [stage("a", 100.0), stage("b", 0.3, "a")])
    shared.cluster.submit("broken", "meddled", [stage("a", 100.0), stage("b", 0.3, "a")])
    wait_until(lambda: running_pods(shared, "ended") and running_pods(shared, "broken"), "they do not run")
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    for name, kinds, counts in (
        (
            "ended",
            ("SuccessCriteriaMet", "Complete"),
            {"succeeded": 1, "completedIndexes": "0", "completionTime": stamp},
        ),
        ("broken", ("FailureTarget", "Failed"), {"failed": 1}),
    ):
        job = shared.cluster.jobs(name)["a"].metadata.name
        conditions = [{"type": kind, "status": "True", "reason": "ByHand", "message": "x"} for kind in kinds]
        shared.cluster.batch.patch_namespaced_job_status(
            job, "default", {"status": {**counts, "active": 0, "ready": 0, "conditions": conditions}}
        )
    assert stages_of(shared.cluster.wait_for("ended"))["b"]["state"] == "Succeeded"
    broken = shared.cluster.wait_for("broken", "Succeeded", "False")
    assert condition_of(broken, "Succeeded")["reason"] == "StageFailed"
    wait_until(lambda: shared.cluster.pool_status("meddled")["busy"] == 0, "an executor is leaked")


def test_a_held_workflow_edited_deleted_and_created_again(shared: Bench) -> None:
    before = hold_one(shared, "again")
    first_ready = stages_of(before)["a"]["readyTime"]
    edit(shared, "again-held", {"priority": 7})
    time.sleep(0.5)
    assert stages_of(shared.cluster.status("again-held"))["a"]["readyTime"] == first_ready, (
        "an edit makes it no younger"
    )
    shared.cluster.objects.delete_namespaced_custom_object(*workflow(shared, "again-held"))
    wait_until(lambda: shared.cluster.pool_status("again").get("held") == 0, "a deleted workflow is held")
    shared.cluster.submit("again-held", "again", [stage("a", 4.0), stage("z", 0.2, "a")])
    status = shared.cluster.wait_for("again-held", "Held", "True")
    assert stages_of(status)["a"]["readyTime"] > first_ready, "it is another object, with its own history"
    assert status["heldSeconds"] < 3
    edit(shared, "again-held", {"stages": [stage("a", 0.2), stage("z", 0.2, "a")]})
    done = shared.cluster.wait_for("again-held")
    assert {row["state"] for row in stages_of(done).values()} == {"Succeeded"}
    assert shared.jobs["again-held", "a"] == 1


def test_a_running_workflow_deleted_and_created_again_under_its_name(shared: Bench) -> None:
    shared.cluster.pool("twice", executors=1, policy={"name": "fifo"})
    shared.cluster.submit("twin", "twice", [stage("a", 60.0)])
    wait_until(lambda: len(running_pods(shared, "twin")) == 1, "it does not run")
    shared.cluster.objects.delete_namespaced_custom_object(*workflow(shared, "twin"))
    shared.cluster.submit("twin", "twice", [stage("a", 0.3)])
    shared.cluster.wait_for("twin")
    assert shared.jobs["twin", "a"] == 2
    wait_until(lambda: peak_pods(shared, "twice") == 0, "the first one's pods live on")


def test_a_pool_shrunk_grown_and_deleted_while_it_is_busy(shared: Bench) -> None:
    shared.cluster.pool("elastic", executors=4, policy={"name": "fifo"})
    names = shared.submit_busy("elastic", 6, 0.6, prefix="elastic-")
    wait_until(lambda: peak_pods(shared, "elastic") >= 4, "it is not busy")
    edit_pool(shared, "elastic", {"executors": 1})
    wait_until(lambda: peak_pods(shared, "elastic") <= 1, "it does not shrink")
    for _ in range(10):
        assert peak_pods(shared, "elastic") <= 1, "more run than the pool has executors"
        time.sleep(0.05)
    shared.cluster.objects.delete_cluster_custom_object(GROUP, VERSION, "executorpools", "elastic")
    time.sleep(1.0)
    for name in names:
        reason = condition_of(shared.cluster.status(name), "Accepted").get("reason")
        assert reason == "PoolNotFound" or condition_of(shared.cluster.status(name), "Succeeded")["status"] == "True"
    shared.cluster.pool("elastic", executors=8, policy={"name": "fifo"})
    shared.check_nothing_lost(names)


def threads_of(bench: Bench) -> int:
    told = Path(f"/proc/{bench.operators[0].process.pid}/status").read_text(encoding="utf-8")
    return int(next(line for line in told.splitlines() if line.startswith("Threads")).split()[1])


def test_pools_that_come_and_go_leave_no_policies_behind(shared: Bench) -> None:
    names = [f"passing-{number}" for number in range(6)]
    for name in names:
        shared.cluster.pool(name, executors=1)  # the shipped model decides, in a thread of its own
        shared.cluster.submit(name, name, [stage("a", 0.1)])
    shared.check_nothing_lost(names, "a")
    busy = threads_of(shared)
    for name in names:
        shared.cluster.objects.delete_cluster_custom_object(GROUP, VERSION, "executorpools", name)
    wait_until(lambda: threads_of(shared) <= busy - len(names), "their threads live on")
    shared.cluster.pool(names[0], executors=1)
    shared.cluster.submit("passing-again", names[0], [stage("a", 0.1)])
    shared.check_nothing_lost(["passing-again"], "a")
    assert shared.cluster.status("passing-again")["policy"] == shared.cluster.status(names[0])["policy"]


SKEWED = """
import sys, time
real, skew_s = time.time, float(sys.argv.pop(1))
time.time = lambda: real() + skew_s
from fermata.cli.main import run
run()
"""


@pytest.mark.parametrize("skew_s", [90.0, -90.0])
def test_an_operator_whose_clock_is_wrong(tmp_path: Path, skew_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "skewed.py"
    script.write_text(SKEWED, encoding="utf-8")
    started = subprocess.Popen

    def popen(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
        if "operator" in command:
            command = [sys.executable, str(script), str(skew_s), *command[3:]]
        return started(command, **options)

    with bench(tmp_path) as busy:
        monkeypatch.setattr(subprocess, "Popen", popen)
        busy.operator()
        busy.cluster.pool("skewed", executors=3, policy={"name": "sjf"})
        names = busy.submit_busy("skewed", 4)
        busy.check_nothing_lost(names)
        for name in names:
            status = busy.cluster.status(name)
            assert min(status["waitSeconds"], status["heldSeconds"], status["runSeconds"]) >= 0
            assert status["jctSeconds"] < 30, "the difference of the clocks is waited for, or counted"
        hold_one(busy, "held", 15.0)
