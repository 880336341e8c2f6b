"""The operator over real HTTP: workflows go all the way, and what a person asks is in their status."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from tests.operator_rig import (
    Cluster,
    OperatorProcess,
    condition_of,
    control_plane,
    operators_own,
    stage,
    stages_of,
    wait_until,
)
from tests.real_plane import JOBS

from fermata.operator.times import parse
from fermata.policy import registry
from fermata.policy.record import loads, replay

pytestmark = pytest.mark.e2e


def test_a_dag_runs_in_order_and_its_jct_is_wait_plus_held_plus_run(cluster: Cluster) -> None:
    cluster.pool("dag", executors=2, policy={"name": "sjf"})
    stages = [
        stage("extract"),
        stage("a", 0.5, "extract"),
        stage("b", 0.5, "extract", tasks=3),
        stage("load", 0.5, "a", "b"),
    ]
    cluster.submit("etl", "dag", stages)
    status = cluster.wait_for("etl")
    rows = stages_of(status)
    assert {row["state"] for row in rows.values()} == {"Succeeded"}
    for child, parents in {"a": ["extract"], "b": ["extract"], "load": ["a", "b"]}.items():
        for parent in parents:
            assert parse(rows[child]["startTime"]) >= parse(rows[parent]["completionTime"])
    parts = [round(status[key] * 1000) for key in ("waitSeconds", "heldSeconds", "runSeconds")]
    assert sum(parts) == round(status["jctSeconds"] * 1000)
    assert status["runSeconds"] >= 1.9  # three levels, the middle one in two waves
    assert status["progress"] == "6/6"
    jobs = cluster.jobs("etl")
    assert {name: job.spec.completions for name, job in jobs.items()} == {"extract": 1, "a": 1, "b": 3, "load": 1}
    assert all(job.spec.completion_mode == "Indexed" for job in jobs.values())
    assert all(job.spec.parallelism <= 2 for job in jobs.values())
    assert all(job.metadata.owner_references[0].kind == "Workflow" for job in jobs.values())
    told = {reason for reason, _ in cluster.events("etl")}
    assert {"StageStarted", "StageSucceeded", "AllStagesSucceeded"} <= told


def test_a_bad_workflow_is_told_why_and_harms_no_neighbour(cluster: Cluster) -> None:
    cluster.pool("mixed", executors=1, policy={"name": "fifo"})
    cluster.submit("circle", "mixed", [stage("a", 0.2, "b"), stage("b", 0.2, "a")])
    cluster.submit("orphan", "mixed", [stage("a", 0.2, "nobody")])
    cluster.submit("wide", "mixed", [stage("a", 0.2, slots=2)])
    cluster.submit("homeless", "nowhere", [stage("a", 0.2)])
    cluster.submit("good", "mixed", [stage("a", 0.2)])
    expected = {"circle": "Cycle", "orphan": "UnknownParent", "wide": "TooManySlots", "homeless": "PoolNotFound"}
    for name, reason in expected.items():
        status = cluster.wait_for(name, "Accepted", "False")
        assert condition_of(status, "Accepted")["reason"] == reason
        wait_until(lambda name=name, reason=reason: reason in dict(cluster.events(name)), f"no Event tells of {name}")
        assert cluster.jobs(name) == {}
    assert (
        "a -> b" in condition_of(cluster.status("circle"), "Accepted")["message"]
        or "b -> a" in condition_of(cluster.status("circle"), "Accepted")["message"]
    )
    cluster.wait_for("good")


def test_a_bad_workflow_of_the_longest_names_is_told_why(cluster: Cluster) -> None:
    cluster.pool("long-names", executors=1, policy={"name": "fifo"})
    names, name = [f"{index:063d}" for index in range(1000)], f"{'w' * 199}.x"
    cluster.submit(name, "long-names", [stage(one, 0.2, names[index - 1]) for index, one in enumerate(names)])
    accepted = condition_of(cluster.wait_for(name, "Accepted", "False"), "Accepted")
    assert accepted["reason"] == "Cycle"
    assert accepted["message"].endswith(" and 990 more")
    wait_until(lambda: "Cycle" in dict(cluster.events(name)), "no Event tells of it")


def test_a_misspelt_field_of_a_pod_template_is_refused_and_not_left_out(cluster: Cluster) -> None:
    misspelt = stage("b", 0.2, "a")
    (container,) = misspelt["template"]["spec"]["containers"]
    container["comand"] = container.pop("command")
    cluster.pool("literate", executors=1, policy={"name": "fifo"})
    cluster.submit("misspelt", "literate", [stage("a", 0.2), misspelt])
    row = stages_of(cluster.wait_for("misspelt", "Succeeded", "False"))["b"]
    assert (row["state"], row["reason"]) == ("Failed", "JobRejected")
    assert 'unknown field "spec.template.spec.containers[0].comand"' in row["message"]


def test_a_workflow_is_accepted_when_its_pool_appears(cluster: Cluster) -> None:
    cluster.submit("early", "late-pool", [stage("a", 0.2)])
    cluster.wait_for("early", "Accepted", "False")
    cluster.pool("late-pool", executors=1, policy={"name": "fifo"})
    cluster.wait_for("early")


def test_a_failed_stage_fails_its_workflow_alone(cluster: Cluster) -> None:
    cluster.pool("failing", executors=2, policy={"name": "fifo"})
    cluster.submit("broken", "failing", [stage("a", 0.2, exit_code=3), stage("b", 0.2, "a")])
    cluster.submit("whole", "failing", [stage("a", 0.2)])
    status = cluster.wait_for("broken", "Succeeded", "False")
    assert condition_of(status, "Succeeded")["reason"] == "StageFailed"
    assert {name: row["state"] for name, row in stages_of(status).items()} == {"a": "Failed", "b": "Skipped"}
    assert set(cluster.jobs("broken")) == {"a"}
    cluster.wait_for("whole")


def test_a_policy_that_holds_is_obeyed_and_explained(cluster: Cluster) -> None:
    cluster.pool("holding", executors=2, policy={"name": "sjf-hold:tau=1,split=2"})
    cluster.submit("first-long", "holding", [stage("a", 4.0)])
    cluster.wait_for("first-long", "Running", "True")
    cluster.submit("second-long", "holding", [stage("a", 0.3, estimateSeconds=4)])
    held = cluster.wait_for("second-long", "Held", "True")
    assert stages_of(held)["a"]["state"] == "Held"
    assert condition_of(held, "Held")["reason"] == "HeldByPolicy"
    wait_until(lambda: cluster.row("second-long")["Held-Now"] in ("1s", "2s", "3s"), "the first hold is not counted")
    assert (cluster.row("second-long")["Held"], cluster.row("first-long")["Held-Now"]) == (0, None)
    cluster.submit("short", "holding", [stage("a", 0.3)])
    cluster.wait_for("short")
    assert cluster.jobs("second-long") == {}, "a short job went by while the long one was held"
    status = cluster.wait_for("second-long")
    assert status["heldSeconds"] >= 1.0
    shown = cluster.row("second-long")
    assert (shown["Held"], shown["Held-Now"]) == (pytest.approx(status["heldSeconds"]), None)
    assert stages_of(status)["a"]["heldSeconds"] == pytest.approx(status["heldSeconds"], abs=0.05)
    messages = [text for reason, text in cluster.events("second-long") if reason == "StageHeld"]
    assert messages, "no Event says that it was held"
    assert "next executor frees in about" in messages[0]


def test_a_hold_ends_at_the_pools_cap(cluster: Cluster) -> None:
    cluster.pool("capped", executors=2, policy={"name": "sjf-hold:tau=1,split=2"}, maxHoldSeconds=1)
    cluster.submit("long-1", "capped", [stage("a", 6.0)])
    cluster.wait_for("long-1", "Running", "True")
    cluster.submit("long-2", "capped", [stage("a", 6.0)])
    cluster.wait_for("long-2", "Running", "True")
    assert stages_of(cluster.status("long-2"))["a"]["heldSeconds"] == pytest.approx(1.0, abs=0.5)
    assert condition_of(cluster.status("long-1"), "Running")["status"] == "True"


@pytest.mark.parametrize(("name", "content"), [("missing", None), ("corrupt", b"this is not a model")])
def test_an_unusable_model_falls_back_and_says_so(
    cluster: Cluster, operator: OperatorProcess, tmp_path: Path, name: str, content: bytes | None
) -> None:
    path = tmp_path / "policy.onnx"
    if content is not None:
        path.write_bytes(content)
    cluster.pool(name, executors=1, policy={"model": {"path": str(path), "sha256": "0" * 64}})
    cluster.submit(f"with-{name}", name, [stage("a", 0.2)])
    status = cluster.wait_for(f"with-{name}")
    pool = cluster.wait_for_pool(name, "PolicyReady", "False")
    assert condition_of(pool, "PolicyReady")["reason"] == "ModelUnusable"
    assert str(path) in condition_of(pool, "PolicyReady")["message"]
    assert pool["policy"] == status["policy"] == "sjf"
    wait_until(lambda: "PolicyFallback" in dict(cluster.events(name)), "no Event tells of the fallback")
    assert f'fermata_fallbacks_total{{pool="{name}",reason="ModelUnusable"}}' in operator.get("/metrics")


def test_a_fallback_that_nobody_knows_is_told(cluster: Cluster) -> None:
    cluster.pool("no-fallback", executors=1, policy={"name": "fifo"}, fallback="default")
    told = condition_of(cluster.wait_for_pool("no-fallback", "PolicyReady", "True"), "PolicyReady")
    assert told["reason"] == "FallbackUnknown"
    assert "spec.fallback 'default': expected one of" in told["message"]
    wait_until(lambda: "FallbackUnknown" in dict(cluster.events("no-fallback")), "no Event tells of it")


def test_modes_off_and_shadow_leave_the_acting_to_the_fallback(cluster: Cluster, operator: OperatorProcess) -> None:
    pools = ("off", "shadow")
    for pool in pools:
        policy = {"name": "sjf-hold:tau=1,split=2"}
        cluster.pool(pool, executors=2, mode=pool.capitalize(), policy=policy, fallback="fifo")
        cluster.submit(f"{pool}-1", pool, [stage("a", 6.0)])
    for pool in pools:
        cluster.wait_for(f"{pool}-1", "Running", "True")
        cluster.submit(f"{pool}-2", pool, [stage("a", 0.3, estimateSeconds=6)])
    for pool in pools:
        assert cluster.wait_for(f"{pool}-2")["heldSeconds"] == pytest.approx(0.0, abs=0.05)
        assert condition_of(cluster.status(f"{pool}-1"), "Running")["status"] == "True", "there was nothing to hold for"
    metrics = operator.get("/metrics")
    differed = dict(re.findall(r'fermata_shadow_disagreements_total{pool="(off|shadow)"} (.*)', metrics))
    assert (float(differed["off"]), float(differed["shadow"]) > 0.0) == (0.0, True)


def suspend(cluster: Cluster, name: str, on: bool) -> None:
    body = {"spec": {"suspend": on}}
    cluster.objects.patch_namespaced_custom_object("fermata.dev", "v1alpha1", "default", "workflows", name, body)


def test_suspend_starts_nothing_and_resuming_does(cluster: Cluster) -> None:
    cluster.pool("pausing", executors=1, policy={"name": "fifo"})
    cluster.submit("paused", "pausing", [stage("a", 0.2)], suspend=True)
    cluster.submit("other", "pausing", [stage("a", 0.2)])
    cluster.wait_for("other")
    status = cluster.status("paused")
    assert condition_of(status, "Succeeded")["reason"] == "Suspended"
    assert cluster.jobs("paused") == {}
    suspend(cluster, "paused", False)
    cluster.wait_for("paused")


def test_suspend_lets_what_runs_end_and_starts_nothing_more(cluster: Cluster) -> None:
    cluster.pool("halting", executors=1, policy={"name": "fifo"})
    cluster.submit("halted", "halting", [stage("a", 1.5), stage("b", 0.2, "a")])
    cluster.wait_for("halted", "Running", "True")
    suspend(cluster, "halted", True)
    cluster.submit("next", "halting", [stage("a", 0.2)])
    cluster.wait_for("next")  # it had to wait for the executor that the suspended one still used
    wait_until(
        lambda: condition_of(cluster.status("halted"), "Succeeded")["reason"] == "Suspended", "it does not say so"
    )
    assert set(cluster.jobs("halted")) == {"a"}
    suspend(cluster, "halted", False)
    assert cluster.wait_for("halted")["heldSeconds"] == pytest.approx(0.0, abs=0.05)


def test_a_workflow_whose_jobs_somebody_suspended_says_so(cluster: Cluster) -> None:
    cluster.pool("gripping", executors=1, policy={"name": "fifo"})
    cluster.submit("gripped", "gripping", [stage("a", 60.0), stage("b", 0.2, "a")])
    cluster.wait_for("gripped", "Running", "True")
    job = cluster.jobs("gripped")["a"].metadata.name
    cluster.batch.patch_namespaced_job(job, "default", {"spec": {"suspend": True}})
    status = cluster.wait_for("gripped", "Running", "False")
    assert [condition_of(status, kind)["reason"] for kind in ("Running", "Held", "Succeeded")] == ["Suspended"] * 3
    assert (stages_of(status)["a"]["state"], stages_of(status)["a"]["reason"]) == ("Running", "JobSuspended")
    cluster.batch.patch_namespaced_job(job, "default", {"spec": {"suspend": False}})
    cluster.wait_for("gripped", "Running", "True")


def test_a_deadline_stops_what_runs(cluster: Cluster) -> None:
    cluster.pool("strict", executors=2, policy={"name": "fifo"})
    cluster.submit("endless", "strict", [stage("a", 300.0), stage("b", 0.2, "a")], activeDeadlineSeconds=2)
    status = cluster.wait_for("endless", "Succeeded", "False")
    assert condition_of(status, "Succeeded")["reason"] == "DeadlineExceeded"
    assert status["jctSeconds"] >= 2.0
    cluster.wait_for_pool("strict", "Ready", "True")
    wait_until(lambda: cluster.pool_status("strict")["busy"] == 0, "its executor is not free again")


def test_a_workflow_keeps_to_its_own_parallelism(cluster: Cluster) -> None:
    cluster.pool("roomy", executors=8, policy={"name": "fifo"})
    cluster.submit("narrow", "roomy", [stage("a", 0.4, tasks=3), stage("b", 0.4, tasks=3)], parallelism=2)
    status = cluster.wait_for("narrow")
    assert sum(job.spec.parallelism for job in cluster.jobs("narrow").values()) <= 4
    assert status["runSeconds"] >= 1.1  # six tasks, two at once


def test_a_finished_workflow_is_deleted_after_its_time_to_live(cluster: Cluster) -> None:
    cluster.pool("tidy", executors=1, policy={"name": "fifo"})
    cluster.submit("ephemeral", "tidy", [stage("a", 0.2)], ttlSecondsAfterFinished=1)

    def names() -> list[str]:
        found = cluster.objects.list_namespaced_custom_object("fermata.dev", "v1alpha1", "default", "workflows")
        return [item["metadata"]["name"] for item in found["items"]]

    wait_until(lambda: "ephemeral" in names(), "it was never there")
    wait_until(lambda: "ephemeral" not in names(), "it is still there")
    wait_until(lambda: cluster.jobs("ephemeral") == {}, "its Job is still there")


def test_recorded_decisions_replay_to_the_same_answers(cluster: Cluster, folder: Path) -> None:
    cluster.pool("recorded", executors=2, policy={"name": "sjf"})
    for number in range(3):
        cluster.submit(f"recorded-{number}", "recorded", [stage("a", 0.3, tasks=2), stage("b", 0.3, "a")])
    for number in range(3):
        cluster.wait_for(f"recorded-{number}")
    lines = (folder / "decisions.jsonl").read_text().splitlines()
    records = [record for record in map(loads, lines) if record.labels["pool"] == ["recorded"]]
    assert len(records) >= 3
    for record in records:
        names = [label.partition("/")[2] for label in record.labels["stages"]]
        assert {(names[parent], names[child]) for parent, child in record.edges or ()} == {("a", "b")}
        fallback = registry.load(record.labels["fallback"][0])
        assert replay(record, registry.load(record.policy), fallback) == record.steps


@pytest.mark.skipif(bool(JOBS), reason="the embedded control plane answers as a proxy would, a real one does not")
def test_a_server_behind_a_proxy_is_reached_through_it_alone(tmp_path: Path) -> None:
    with control_plane(tmp_path) as kubeconfig:
        config = yaml.safe_load(operators_own(kubeconfig).read_text(encoding="utf-8"))
        of_cluster = config["clusters"][0]["cluster"]
        of_cluster.update({"proxy-url": of_cluster["server"], "server": "http://nowhere.invalid"})
        operators_own(kubeconfig).write_text(yaml.safe_dump(config), encoding="utf-8")
        operator, cluster = OperatorProcess(kubeconfig, tmp_path), Cluster(kubeconfig)
        try:
            operator.wait_ready()
            cluster.pool("p", executors=1, policy={"name": "fifo"})
            cluster.submit("w", "p", [stage("a", 0.2)])
            cluster.wait_for("w")
        finally:
            assert operator.stop() == 0
        told = operator.log.read_text(encoding="utf-8")
        assert "nowhere.invalid" in told
        assert " E " not in told, told
