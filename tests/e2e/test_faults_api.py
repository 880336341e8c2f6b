"""The API server on a bad day: gone, slow, full, contradicting; what was lost is counted, and is nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fault_rig import Bench, bench, busy_bench
from tests.kube_fixtures import PlaneThread
from tests.operator_rig import Cluster, OperatorProcess, condition_of, stage, stages_of, wait_until
from tests.real_plane import free_port

from fermata.operator.crds import manifests
from fermata.sim.kube import Options

pytestmark = pytest.mark.e2e
WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with busy_bench(tmp_path_factory.mktemp("faults")) as made:
        yield made


def begin(bench: Bench, pool: str, count: int = 6) -> list[str]:
    bench.cluster.pool(pool, executors=3, policy={"name": "sjf"})
    return bench.submit_busy(pool, count, prefix=f"{pool}-")


@pytest.mark.parametrize("down_s", [3.0, pytest.param(60.0, marks=pytest.mark.slow)])
def test_an_outage_in_a_busy_run(tmp_path: Path, down_s: float) -> None:
    with bench(tmp_path) as busy:
        # Under three seconds the lease would outlast the outage, and the way back from its loss not be tried.
        operator = busy.operator("--lease-seconds", "2")
        names = begin(busy, "outage", 8)
        wait_until(lambda: sum(busy.jobs.values()) >= 4, "nothing runs")
        busy.wait(busy.plane.interrupt())
        time.sleep(down_s)
        busy.wait(busy.plane.resume())
        busy.check_nothing_lost(names)
        assert "lease fermata-operator is lost" in operator.log.read_text()
        assert operator.stop() == 0


def test_a_control_plane_that_is_begun_anew_at_the_same_address(tmp_path: Path) -> None:
    options = Options(slots=4, port=free_port())
    with PlaneThread(options, tmp_path / "first", manifests()) as kube:
        operator, cluster = OperatorProcess(kube.kubeconfig, tmp_path), Cluster(kube.kubeconfig)
        operator.wait_ready()
        cluster.pool("anew", executors=2, policy={"name": "fifo"})
        cluster.submit("before", "anew", [stage("a", 100.0)])
        cluster.wait_for("before", "Running", "True")
        for number in range(200):  # versions that the next one will not have for long
            cluster.core.create_namespaced_config_map("default", {"metadata": {"name": f"m{number}"}})
    try:
        with PlaneThread(options, tmp_path / "second", manifests()) as kube:
            cluster = Cluster(kube.kubeconfig)
            cluster.pool("anew", executors=2, policy={"name": "fifo"})
            cluster.submit("after", "anew", [stage("a", 0.2, tasks=2), stage("b", 0.2, "a")])
            cluster.wait_for("after")
            wait_until(lambda: cluster.pool_status("anew").get("busy") == 0, "what went with the first one counts")
    finally:
        operator.stop()


def test_crds_that_are_older_than_the_operator_are_told_of_and_nothing_stops(tmp_path: Path) -> None:
    older = manifests()
    workflow, pool = (
        made["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"] for made in older
    )
    del workflow["policy"], workflow["stages"]["items"]["properties"]["readyTime"], pool["mode"]
    with PlaneThread(Options(slots=4), tmp_path / "kube", older) as kube:
        operator, cluster = OperatorProcess(kube.kubeconfig, tmp_path), Cluster(kube.kubeconfig)
        try:
            cluster.pool("old", executors=2, policy={"name": "fifo"})
            cluster.wait_for_pool("old", "Ready", "True")
            for name in ("first", "second"):
                cluster.submit(name, "old", [stage("a", 0.2), stage("b", 0.2, "a")])
                cluster.wait_for(name)
        finally:
            assert operator.stop() == 0
    told = [line.partition("the API server drops ")[2] for line in operator.log.read_text().splitlines()]
    why = "the CRDs (deploy/crds) are not those of this operator"
    assert sorted(filter(None, told)) == [
        f"status.mode of executorpools: {why}",
        f"status.policy, status.stages[].readyTime of workflows: {why}",
    ]


def test_crds_that_are_newer_than_the_operator_are_told_of_and_nothing_stops(tmp_path: Path) -> None:
    newer = manifests()
    workflow, pool = (
        made["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"] for made in newer
    )
    # An API server fills defaults in, also of what was stored before.
    pool["reserve"] = workflow["stages"]["items"]["properties"]["weight"] = {"type": "integer", "default": 1}
    with PlaneThread(Options(slots=4), tmp_path / "kube", newer) as kube:
        operator, cluster = OperatorProcess(kube.kubeconfig, tmp_path), Cluster(kube.kubeconfig)
        try:
            cluster.pool("ahead", executors=2, policy={"name": "fifo"})
            cluster.wait_for_pool("ahead", "Ready", "True")
            cluster.submit("ahead-done", "ahead", [stage("a", 0.2), stage("b", 0.2, "a")])
            cluster.submit("ahead-late", "ahead", [stage("a", 300.0)], activeDeadlineSeconds=3)
            cluster.wait_for("ahead-done")
            status = cluster.wait_for("ahead-late", "Succeeded", "False")
            assert condition_of(status, "Succeeded")["reason"] == "DeadlineExceeded"
        finally:
            assert operator.stop() == 0
    told = [line.partition(": unknown to this operator")[0] for line in operator.log.read_text().splitlines()]
    unknown = [line.split()[-2:] for line in told if "spec." in line]
    assert unknown == [["ExecutorPool:", "spec.reserve"], ["Workflow:", "spec.stages[].weight"]]


def test_to_read_everything_takes_longer_than_the_lease_lasts(tmp_path: Path) -> None:
    with bench(tmp_path) as busy:
        names = begin(busy, "large", 2)
        with busy.fault(delay_s=0.8, methods=frozenset({"GET"}), path="/(executorpools|workflows|pods|jobs)$"):
            pair = [OperatorProcess(busy.plane.kubeconfig, tmp_path, "--lease-seconds", "2", pod=pod) for pod in "ab"]
            busy.operators += pair
            wait_until(lambda: any("deciding" in each.log.read_text() for each in pair), "nobody reads to the end")
        busy.check_nothing_lost(names)
        told = [each.log.read_text() for each in pair]
        assert sum("is ours" in log for log in told) == 1, "they take the lease from each other"
        assert not any("is lost" in log for log in told)


@pytest.mark.parametrize("forget", [False, True], ids=["closed", "expired"])
def test_watches_that_end(shared: Bench, forget: bool) -> None:
    names = begin(shared, f"watch-{str(forget).lower()}")
    for _ in range(8):
        time.sleep(0.2)
        shared.close_watches(forget=forget)
    shared.check_nothing_lost(names)


def test_kopf_asks_for_nothing_that_could_end_the_operator(tmp_path: Path) -> None:
    with bench(tmp_path) as busy, busy.fault(status=409, path="/customresourcedefinitions"):
        operator = busy.operator()
        busy.close_watches()
        busy.check_nothing_lost(begin(busy, "kopf", 1))
        assert operator.process.poll() is None, operator.log.read_text()
        assert busy.asked("watch", "customresourcedefinitions") == 0


def test_watches_that_are_late(shared: Bench) -> None:
    with shared.fault(delay_s=0.7, methods=frozenset({"WATCH"})):
        shared.check_nothing_lost(begin(shared, "late", 3))


@pytest.mark.parametrize("status", [409, 429, pytest.param(500, marks=pytest.mark.slow)])
def test_every_write_is_refused_for_a_while(shared: Bench, status: int) -> None:
    with shared.fault(status=status, methods=WRITES, path="/(jobs|workflows|executorpools|events)") as fault:
        names = begin(shared, f"all-{status}")
        wait_until(lambda: fault.hits >= 10, "no write was refused")
    shared.check_nothing_lost(names)


def test_jobs_that_are_taken_late_in_one_namespace_keep_no_other_waiting(shared: Bench) -> None:
    shared.cluster.core.create_namespace({"metadata": {"name": "webhook"}})
    shared.cluster.pool("hooked", executors=4, policy={"name": "fifo"})
    with shared.fault(delay_s=6.0, methods=frozenset({"POST"}), path="/namespaces/webhook/jobs$"):
        shared.cluster.submit("alone", "hooked", [stage("a", 0.2), stage("b", 0.2)], "webhook", parallelism=1)
        shared.cluster.submit("late", "hooked", [stage("a", 60.0)], "webhook", activeDeadlineSeconds=2)
        time.sleep(0.5)
        names = shared.submit_busy("hooked", 3, 0.2, prefix="hooked-")
        shared.check_nothing_lost(names)
        assert shared.jobs["alone", "a"] == shared.jobs["late", "a"] == 0, "they were waited for"
        wait_until(lambda: shared.jobs["alone", "b"] == shared.jobs["late", "a"] == 1, "they are never taken")
    first, second = (stages_of(shared.cluster.wait_for("alone", namespace="webhook"))[name] for name in "ab")
    assert second["startTime"] >= first["completionTime"], "a Job under way was not counted"
    failed = shared.cluster.wait_for("late", "Succeeded", "False", namespace="webhook")
    assert condition_of(failed, "Succeeded")["reason"] == "DeadlineExceeded"
    assert stages_of(failed)["a"]["reason"] == "DeadlineExceeded", "what came after the deadline was not stopped"


def test_why_a_job_is_not_taken_is_told(shared: Bench) -> None:
    shared.cluster.pool("quota", executors=1, policy={"name": "fifo"})
    with shared.fault(status=403, methods=frozenset({"POST"}), path="/jobs$"):
        shared.cluster.submit("refused", "quota", [stage("a", 0.2)])
        told = "not started, tried again: Unknown: injected fault"
        wait_until(lambda: stages_of(shared.cluster.status("refused")).get("a", {}).get("message") == told, "no reason")
        wait_until(lambda: ("StageWaiting", f"stage a {told}") in shared.cluster.events("refused"), "no Event")
    shared.check_nothing_lost(["refused"], "a")


@pytest.mark.slow  # half of the answers are waited for twice and more, so a loaded machine takes minutes
@pytest.mark.parametrize("status", [409, 429, 500])
def test_half_of_the_writes_are_refused(shared: Bench, status: int) -> None:
    with shared.fault(status=status, methods=WRITES, share=0.5, path="/(jobs|workflows|executorpools|events)") as fault:
        shared.check_nothing_lost(begin(shared, f"half-{status}", 4))
    assert fault.hits > 10


@pytest.mark.parametrize("lost", ["before", "after"])
def test_answers_that_never_come(shared: Bench, lost: str) -> None:
    with shared.fault(lost=lost, methods=WRITES, share=0.4, path="/(jobs|workflows|executorpools|events)") as fault:
        shared.check_nothing_lost(begin(shared, f"lost-{lost}", 4))
    assert fault.hits > 5


def test_a_slow_api_server(shared: Bench) -> None:
    with shared.fault(delay_s=0.4, methods=WRITES):
        shared.check_nothing_lost(begin(shared, "slow", 4))


def test_everything_at_once_from_the_start(tmp_path: Path) -> None:
    with (
        bench(tmp_path) as busy,
        busy.fault(status=500, share=0.2, path="/(apis|api)/"),
        busy.fault(status=429, share=0.1, path="/(apis|api)/"),
        busy.fault(lost="after", share=0.1, methods=WRITES),
        busy.fault(delay_s=0.3, methods=frozenset({"WATCH"}), share=0.5),
    ):
        operator = busy.operator()
        busy.check_nothing_lost(begin(busy, "storm", 5))
        assert operator.process.poll() is None
