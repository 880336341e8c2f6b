"""What makes people trust an operator that holds work back: release, kill switch, pause, shadow, new models."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import shutil
import subprocess
import sys
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
from tests.processes import fermata

from fermata.operator.times import render
from fermata.policy import registry
from fermata.policy.features import SIZE
from fermata.policy.record import loads
from fermata.sim.kube.client import Client

pytestmark = pytest.mark.e2e

HOLDING = {"name": "sjf-hold:tau=1,split=2"}
LONG_S = 20.0


def _hold(cluster: Cluster, pool: str, *names: str, **spec: Any) -> None:
    """Have workflows held: one long job runs, they are long too, and one executor is free."""
    cluster.pool(pool, executors=2, policy=HOLDING, **spec)
    cluster.submit(f"{pool}-first", pool, [stage("a", LONG_S)])
    cluster.wait_for(f"{pool}-first", "Running", "True")
    for name in names:
        cluster.submit(name, pool, [stage("a", LONG_S), stage("b", LONG_S)])
    for name in names:
        cluster.wait_for(name, "Held", "True")


def _edit_pool(cluster: Cluster, pool: str, **spec: Any) -> None:
    cluster.objects.patch_cluster_custom_object(GROUP, VERSION, "executorpools", pool, {"spec": spec})


def test_a_stage_or_a_workflow_can_be_released(cluster: Cluster, kubeconfig: Path) -> None:
    at = ("--kubeconfig", str(kubeconfig))
    _hold(cluster, "released", "one")
    told = fermata("explain", "one", "b", *at)
    assert "fermata release one b" in told.stdout
    assert "alternative: started now" in told.stdout
    assert "HeldByPolicy, as last told: held: a stage of about 20 s" in told.stdout
    done = fermata("release", "one", "b", *at)
    assert (done.returncode, done.stdout) == (0, "stage b: released, it was held\n"), done.stderr
    wait_until(lambda: set(cluster.jobs("one")) == {"b"}, "stage b does not start")

    _hold(cluster, "let-go", "two", "three")
    assert fermata("release", "three", *at).returncode == 0
    cluster.wait_for("three", "Running", "True")
    assert cluster.jobs("two") == {}, "the one that came first and was not released started instead"

    bad = fermata("release", "two", "nothing", *at)
    assert (bad.returncode, bad.stderr.count("\n")) == (2, 1)
    assert "it has: a, b" in bad.stderr
    assert "no workflow 'nobody'" in fermata("release", "nobody", *at).stderr


def test_explain_goes_by_the_clock_of_the_api_server(cluster: Cluster, kubeconfig: Path) -> None:
    _hold(cluster, "by-their-clock", "punctual", maxHoldSeconds=1200)
    for hours in (-1, 1):
        set_ = f"import time; real = time.time; time.time = lambda: real() + {hours * 3600}"
        code = f"{set_}; from fermata.cli.main import run; run()"
        command = [sys.executable, "-c", code, "explain", "punctual", "a", "--kubeconfig", str(kubeconfig)]
        told = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
        assert re.search(r"0/2 tasks done, [0-9.]+ s after its arrival, of which held [0-9.]+ s\.", told), told
        assert "  starts in 20 min at the latest (maxHoldSeconds 1200)\n" in told


def test_the_kill_switch_of_a_pool_works_until_it_is_taken_off(
    cluster: Cluster, kubeconfig: Path, operator: OperatorProcess
) -> None:
    at = ("--kubeconfig", str(kubeconfig))
    _hold(cluster, "switched", "all-held")
    done = fermata("release-all", "switched", *at)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("pool switched: holds nothing any more")
    cluster.wait_for("all-held", "Running", "True")
    status = cluster.wait_for_pool("switched", "HoldingPaused", "True")
    assert condition_of(status, "HoldingPaused")["reason"] == "ReleasedByAnnotation"
    assert 'fermata_pool_holding_paused{pool="switched"} 1.0' in operator.get("/metrics")
    wait_until(lambda: "HoldingPaused" in dict(cluster.events("switched")), "no Event tells of the switch")
    assert fermata("release-all", "switched", "--undo", *at).returncode == 0
    cluster.wait_for_pool("switched", "HoldingPaused", "False")
    _edit_pool(cluster, "switched", executors=3)  # so that one is free again
    cluster.submit("held-again", "switched", [stage("a", LONG_S)])
    cluster.wait_for("held-again", "Held", "True")


def test_a_pool_that_cannot_be_switched_keeps_no_other_one_held(cluster: Cluster, kubeconfig: Path) -> None:
    for name in ("switch-a", "switch-b"):
        cluster.pool(name, executors=2, policy=HOLDING)
    done = fermata("release-all", "switch-a", "switch-of-nobody", "switch-b", "--kubeconfig", str(kubeconfig))
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert "no ExecutorPool 'switch-of-nobody'" in done.stderr
    assert [line.partition(":")[0] for line in done.stdout.splitlines()] == ["pool switch-a", "pool switch-b"]
    for name in ("switch-a", "switch-b"):
        pool = cluster.objects.get_cluster_custom_object(GROUP, VERSION, "executorpools", name)
        assert pool["metadata"]["annotations"] == {"fermata.dev/release": "*"}


def test_the_age_cap_ends_a_hold(cluster: Cluster) -> None:
    _hold(cluster, "aged", "old", maxWaitSeconds=2)
    row = stages_of(cluster.wait_for("old", "Running", "True"))["a"]
    assert row["heldSeconds"] + row["waitSeconds"] == pytest.approx(2.0, abs=1.0)


def test_lowering_the_cap_of_a_pool_ends_what_is_held_beyond_it(cluster: Cluster) -> None:
    _hold(cluster, "lowered", "too-long")
    _edit_pool(cluster, "lowered", maxHoldSeconds=0)
    cluster.wait_for("too-long", "Running", "True")


def test_a_pool_in_which_nothing_runs_holds_nothing(cluster: Cluster) -> None:
    cluster.pool("empty", executors=2, policy=HOLDING)
    cluster.submit("lonely", "empty", [stage("a", 0.3, estimateSeconds=4)])
    assert cluster.wait_for("lonely")["heldSeconds"] == pytest.approx(0.0, abs=0.05)


def test_an_idle_pool_that_may_hold_lets_the_follower_go_first(cluster: Cluster) -> None:
    cluster.pool("patient", executors=1, policy={"name": "hold-follower:delay=60,split=5"}, holdWhenIdle=True)
    cluster.submit("the-long", "patient", [stage("a", LONG_S)])
    cluster.wait_for("the-long", "Held", "True")
    assert cluster.jobs("the-long") == {}
    cluster.submit("the-short", "patient", [stage("a", 0.2)])
    assert cluster.wait_for("the-short")["heldSeconds"] == pytest.approx(0.0, abs=0.05)
    cluster.wait_for("the-long", "Running", "True")


def test_shadow_records_what_the_policy_would_have_done(cluster: Cluster, folder: Path) -> None:
    cluster.pool("shadowed", executors=2, mode="Shadow", policy=HOLDING, fallback="fifo")
    cluster.submit("shadowed-1", "shadowed", [stage("a", 4.0)])
    cluster.wait_for("shadowed-1", "Running", "True")
    cluster.submit("shadowed-2", "shadowed", [stage("a", 4.0)])
    cluster.wait_for("shadowed-2", "Running", "True")
    assert cluster.pool_status("shadowed")["policy"] == "fifo"
    records = [loads(line) for line in (folder / "decisions.jsonl").read_text().splitlines()]
    mine = [record for record in records if record.labels["pool"] == ["shadowed"]]
    by_role = {role: [record for record in mine if record.labels["role"] == [role]] for role in ("acted", "advised")}
    assert {record.policy for record in by_role["acted"]} == {"fifo"}
    assert {record.policy for record in by_role["advised"]} == {HOLDING["name"]}
    assert len(by_role["acted"]) == len(by_role["advised"])
    assert by_role["acted"][-1].steps != by_role["advised"][-1].steps


def _finished(name: str, pool: str, arrival_s: float, run_s: float) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a workflow that ran for some seconds, and its status."""
    spec = {"poolName": pool, "stages": [stage("a", run_s, estimateSeconds=round(run_s))]}
    meta = {"name": name}
    start, end = render(arrival_s), render(arrival_s + run_s)
    row = {
        "name": "a", "state": "Succeeded", "readyTime": start, "startTime": start, "completionTime": end,
        "runSeconds": run_s, "estimateSeconds": run_s, "parallelism": 1, "tasks": 1, "succeeded": 1,
    }  # fmt: skip
    condition = {"type": "Succeeded", "status": "True", "reason": "AllStagesSucceeded", "lastTransitionTime": end}
    status = {
        "conditions": [condition], "arrivalTime": start, "completionTime": end, "jctSeconds": run_s, "stages": [row],
    }  # fmt: skip
    return {"apiVersion": f"{GROUP}/{VERSION}", "kind": "Workflow", "metadata": meta, "spec": spec}, status


async def _write_past(kubeconfig: Path, finished: list[tuple[dict[str, Any], dict[str, Any]]]) -> None:
    path = f"/apis/{GROUP}/{VERSION}/namespaces/default/workflows"
    async with Client.from_kubeconfig(kubeconfig) as client, asyncio.TaskGroup() as group:

        async def write(body: dict[str, Any], status: dict[str, Any]) -> None:
            await client.create(path, body)
            await client.patch(f"{path}/{body['metadata']['name']}/status", {"status": status})

        for body, status in finished:
            group.create_task(write(body, status))


def test_holding_that_costs_is_paused_from_what_the_api_remembers(tmp_path: Path) -> None:
    arrival_s = 1_800_000_000.0
    with control_plane(tmp_path) as kubeconfig:
        cluster = Cluster(kubeconfig)
        # A stream in which nothing short ever follows a long job: holding the second executor is for nothing.
        cluster.pool("wasteful", executors=2, policy=HOLDING)
        asyncio.run(
            _write_past(
                kubeconfig,
                [
                    _finished(f"past-{number}", "wasteful", arrival_s + 6.25 * number, 4.0 if number % 8 else 12.0)
                    for number in range(210)
                ],
            )
        )
        operator = OperatorProcess(kubeconfig, tmp_path)
        try:
            operator.wait_ready()
            status = cluster.wait_for_pool("wasteful", "HoldingPaused", "True")
            paused = condition_of(status, "HoldingPaused")
            assert paused["reason"] == "HoldingCosts"
            assert "by replay of" in paused["message"]
            assert status["holdSavingsPercent"] < -1
            assert status["policy"].endswith("without holds")
            for name in ("runs-1", "runs-2"):
                cluster.submit(name, "wasteful", [stage("a", 0.5, estimateSeconds=3)])
            assert cluster.wait_for("runs-2")["heldSeconds"] == 0.0, "nothing is held while holding is paused"
            assert operator.stop() == 0
            operator = OperatorProcess(kubeconfig, tmp_path)
            operator.wait_ready()
            assert condition_of(cluster.pool_status("wasteful"), "HoldingPaused")["status"] == "True"
            # Another policy has its own chance.
            _edit_pool(cluster, "wasteful", policy={"name": "sjf"})
            cluster.wait_for_pool("wasteful", "HoldingPaused", "False")
            assert operator.stop() == 0
        finally:
            operator.stop()


def test_a_model_is_changed_by_editing_the_pool(cluster: Cluster, tmp_path: Path) -> None:
    path = tmp_path / "policy.onnx"
    shutil.copy(registry.shipped_model(), path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    cluster.pool("edited", executors=2, policy={"name": "sjf"})
    cluster.wait_for_pool("edited", "PolicyReady", "True")
    cluster.submit("before", "edited", [stage("a", 0.3)])
    assert cluster.wait_for("before")["policy"] == "sjf"
    _edit_pool(cluster, "edited", policy={"name": None, "model": {"path": str(path), "sha256": "0" * 64}})
    status = cluster.wait_for_pool("edited", "PolicyReady", "False")
    assert condition_of(status, "PolicyReady")["reason"] == "ModelUnusable"
    assert digest in condition_of(status, "PolicyReady")["message"]
    cluster.submit("meanwhile", "edited", [stage("a", 0.3)])
    assert cluster.wait_for("meanwhile")["policy"] == "sjf"
    _edit_pool(cluster, "edited", policy={"model": {"path": str(path), "sha256": digest}})
    cluster.wait_for_pool("edited", "PolicyReady", "True")
    cluster.submit("after", "edited", [stage("a", 0.3)])
    assert cluster.wait_for("after")["policy"] == "policy"
    wait_until(lambda: cluster.pool_status("edited")["policy"] == "policy", "the pool does not name its new policy")


def test_a_state_that_a_model_was_not_taught_is_left_to_the_fallback(
    cluster: Cluster, operator: OperatorProcess, tmp_path: Path
) -> None:
    onnx = pytest.importorskip("onnx")
    model = onnx.load(str(registry.shipped_model()))
    (entry,) = [entry for entry in model.metadata_props if entry.key == "fermata"]
    taught = {"low": [-1e-6] * SIZE, "high": [1e-6] * SIZE}  # next to nothing
    entry.value = json.dumps(json.loads(entry.value) | {"envelope": taught})
    path = tmp_path / "narrow.onnx"
    onnx.save(model, str(path))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    cluster.pool("narrow", executors=2, policy={"model": {"path": str(path), "sha256": digest}}, fallback="srwf")
    cluster.wait_for_pool("narrow", "PolicyReady", "True")
    cluster.submit("strange", "narrow", [stage("a", 0.3)])
    assert cluster.wait_for("strange")["policy"] == "srwf"
    status = cluster.wait_for_pool("narrow", "PolicyReady", "False")
    assert condition_of(status, "PolicyReady")["reason"] == "OutOfDistribution"
    assert "log executors" in condition_of(status, "PolicyReady")["message"]
    assert 'fermata_fallbacks_total{pool="narrow",reason="OutOfDistribution"}' in operator.get("/metrics")
    wait_until(lambda: "PolicyFallback" in dict(cluster.events("narrow")), "no Event tells of the fallback")
