"""What really ran, read back from the API: as a trace that simulates, and as a report next to its simulation."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.operator_rig import GROUP, VERSION, Cluster, OperatorProcess, control_plane, stage, stages_of
from tests.processes import fermata
from tests.real_plane import JOBS

from fermata.sim.trace_io import read_trace

pytestmark = pytest.mark.e2e

SHORTS = 8
WORKFLOWS = SHORTS + 3
POLICY = "sjf-hold:tau=1,split=2"


def unknown(name: str, seconds: float, **fields: Any) -> dict[str, Any]:
    """Return a stage whose length nobody says."""
    return {key: value for key, value in stage(name, seconds, **fields).items() if key != "estimateSeconds"}


def mixed(cluster: Cluster) -> None:
    """Submit a stage that is widened as it runs, and what no simulation can be set against."""
    cluster.pool("mixed", executors=4, policy={"name": "fifo"}, fallback="fifo")
    cluster.pool("single", executors=1, policy={"name": "fifo"}, fallback="fifo")
    cluster.submit("blocker", "mixed", [stage("a", 4.0, tasks=3)])
    cluster.wait_for("blocker", "Running", "True")
    # One task after another until the blocker ends, then what is left side by side.
    cluster.submit("wide-1", "mixed", [unknown("a", 1.0, tasks=8)])
    cluster.submit("shared", "mixed", [stage(name, 0.5) for name in "abc"], parallelism=1)
    cluster.submit("paused", "mixed", [stage("a", 0.3)], suspend=True)
    cluster.submit("capped", "mixed", [stage("a", 0.5, tasks=3, parallelism=1)])
    cluster.submit("alone", "single", [stage("a", 0.5)])
    # What is ready waits behind what is more urgent until its workflow's deadline.
    cluster.pool("hasty", executors=1, policy={"name": "fifo"}, fallback="fifo")
    cluster.submit("ended", "hasty", [stage("a", 1.0), stage("b", 0.3, "a")], activeDeadlineSeconds=5)
    cluster.wait_for("ended", "Running", "True")
    cluster.submit("urgent", "hasty", [stage("a", 8.0)], priority=10)
    cluster.submit("never", "hasty", [stage("a", 0.3)], activeDeadlineSeconds=2)


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Give a cluster in which a pool in mode Shadow and one in mode Enforce have run the same stream."""
    folder = tmp_path_factory.mktemp("report")
    with control_plane(folder) as path:
        operator = OperatorProcess(path, folder)
        try:
            operator.wait_ready()
            cluster = Cluster(path)
            cluster.pool("asked", executors=2, mode="Shadow", policy={"name": POLICY}, fallback="sjf")
            cluster.pool("acting", executors=2, policy={"name": POLICY}, fallback="sjf", maxHoldSeconds=30)
            mixed(cluster)
            for pool in ("asked", "acting"):
                cluster.submit(f"{pool}-long-1", pool, [stage("a", 4.0)])
                cluster.wait_for(f"{pool}-long-1", "Running", "True")
            for pool in ("asked", "acting"):
                cluster.submit(f"{pool}-long-2", pool, [stage("a", 4.0)])
                cluster.wait_for(f"{pool}-long-2", *(("Held", "True") if pool == "acting" else ("Running", "True")))
                for number in range(SHORTS):
                    cluster.submit(f"{pool}-short-{number}", pool, [stage("a", 0.3)])
                cluster.submit(f"{pool}-dag", pool, [stage("a", 0.3), stage("b", 0.3, "a", tasks=2)])
            for pool in ("asked", "acting"):
                for name in ("long-1", "long-2", "dag", *(f"short-{number}" for number in range(SHORTS))):
                    cluster.wait_for(f"{pool}-{name}")
            patch = {"spec": {"suspend": False}}
            cluster.objects.patch_namespaced_custom_object(GROUP, VERSION, "default", "workflows", "paused", patch)
            for name in ("blocker", "wide-1", "shared", "paused", "capped", "alone", "urgent"):
                cluster.wait_for(name)
            for name in ("ended", "never"):
                cluster.wait_for(name, "Succeeded", "False")
            cluster.submit("wide-2", "mixed", [unknown("a", 1.0, tasks=8)])
            cluster.wait_for("wide-2")
            cluster.submit("acting-endless", "acting", [stage("a", 300.0)])
            cluster.wait_for("acting-endless", "Running", "True")
            assert operator.stop() == 0  # what is reported is in the API, not in the operator
        finally:
            operator.stop()
        yield path


def test_what_ran_is_exported_as_a_trace_that_simulates(kubeconfig: Path, tmp_path: Path) -> None:
    out = tmp_path / "ran.jsonl"
    done = fermata(
        "trace", "export", "--from-cluster", "--pool", "acting", "--kubeconfig", str(kubeconfig), "-o", str(out)
    )
    assert done.returncode == 0, done.stderr
    assert "use --executors 2" in done.stderr
    assert "1 workflow left out: not finished" in done.stderr
    trace = read_trace(out, executors=2)
    assert trace.jobs == WORKFLOWS
    assert trace.job_arrival_s[0] == 0.0
    assert trace.job_ids[0] == "default/acting-long-1"
    # A real Job says so up to a second after its pods.
    assert 3.5 < trace.task_duration_s[0] < 6.5
    assert trace.tasks == 2 + SHORTS + 3
    assert len(trace.parent) == 1
    assert trace.stage_estimate_s[0] == 4.0


def test_a_report_has_the_cluster_next_to_its_simulation(kubeconfig: Path, tmp_path: Path) -> None:
    found = {}
    for pool in ("asked", "acting"):
        out = tmp_path / f"{pool}.html"
        done = fermata(
            "report", "--from-cluster", "--pool", pool, "--out", str(out), "--kubeconfig", str(kubeconfig), "--json"
        )
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)
        assert (told["workflows"], told["unfinished"]) == (WORKFLOWS, int(pool == "acting"))
        found[pool] = {row["name"]: row for row in told["runs"]}
        page = out.read_text()
        assert "Everything called “simulated”" in page
        assert f"simulated {POLICY}" in page
    real, base, held = (found["asked"][name] for name in ("cluster", "simulated sjf", f"simulated {POLICY}"))
    assert [row["simulated"] for row in (real, base, held)] == [False, True, True]
    # Both longs started at once, so the shorts waited for 4 s; the policy would have held the second long.
    assert real["avg_jct_s"] == pytest.approx(base["avg_jct_s"], rel=0.25), "the simulation is about the same stream"
    assert held["change_percent"] < -20
    assert (real["avg_held_s"], base["avg_held_s"]) == (pytest.approx(0.0, abs=0.05), 0.0)
    # Where the policy acted, the cluster did what its simulation does.
    real, held = found["acting"]["cluster"], found["acting"][f"simulated {POLICY}"]
    assert real["avg_held_s"] == pytest.approx(held["avg_held_s"], abs=0.2)
    assert real["avg_jct_s"] == pytest.approx(held["avg_jct_s"], rel=0.35)


def test_what_cannot_be_reported_is_told_in_one_line(kubeconfig: Path, tmp_path: Path) -> None:
    at = ("--kubeconfig", str(kubeconfig))
    for arguments, said in (
        (("report", *at), "fermata compare"),
        (("report", "--from-cluster", *at), "--pool: expected one of acting, asked, hasty, mixed, single"),
        (("report", "--from-cluster", "--pool", "none", *at), "no ExecutorPool 'none'"),
        (("report", "--from-cluster", "--pool", "asked", "--policies", "what", *at), "no policy 'what'"),
        (("trace", "export", "-o", str(tmp_path / "x"), *at), "either a FILE or --from-cluster"),
    ):
        done = fermata(*arguments)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
        assert said in done.stderr


def test_a_stage_that_was_widened_as_it_ran_is_learned_as_it_was(kubeconfig: Path, tmp_path: Path) -> None:
    cluster = Cluster(kubeconfig)
    first, second = (stages_of(cluster.status(f"wide-{run}"))["a"] for run in (1, 2))
    assert first["parallelism"] > 1, "it was to be widened"
    assert first["runSeconds"] > 4.0
    # A real Job says so up to a second after its pods, and so much later begins the pod that follows one.
    assert 0.95 < first["taskSeconds"] < (2.35 if JOBS else 1.65)
    assert second["estimateSeconds"] == first["taskSeconds"]
    out = tmp_path / "ran.jsonl"
    at = ("--kubeconfig", str(kubeconfig))
    done = fermata("trace", "export", "--from-cluster", "--pool", "mixed", "-o", str(out), *at)
    assert done.returncode == 0, done.stderr
    assert "2 workflows had a parallelism set" in done.stderr
    assert "1 workflow suspended for a while, or not accepted" in done.stderr
    trace = read_trace(out, executors=4)
    job = trace.job_ids.index("default/wide-1")
    task = trace.task_ptr[trace.job_stage_ptr[job]]
    assert trace.task_duration_s[task] == pytest.approx(first["taskSeconds"], abs=1e-6)


def test_what_no_simulation_answers_for_is_not_counted(kubeconfig: Path, tmp_path: Path) -> None:
    at = ("--kubeconfig", str(kubeconfig), "--out", str(tmp_path / "report.html"))
    done = fermata("report", "--from-cluster", "--pool", "mixed", "--json", *at)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["workflows"], told["shared_cap"], told["suspended"]) == (4, 1, 1)
    real, base = told["runs"][:2]
    # A stage that its own parallelism bounds is simulated with it, and what was widened with the tasks that it had.
    assert real["avg_jct_s"] == pytest.approx(base["avg_jct_s"], rel=0.25)
    page = (tmp_path / "report.html").read_text()
    for words in ("1 workflow with a parallelism over stages side by side", "1 workflow suspended for a while"):
        assert words in page


def test_a_workflow_that_its_deadline_ended_is_not_set_against_one_without(kubeconfig: Path, tmp_path: Path) -> None:
    at = ("--kubeconfig", str(kubeconfig), "--out", str(tmp_path / "report.html"))
    done = fermata("report", "--from-cluster", "--pool", "hasty", "--json", *at)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["workflows"], told["deadline"], told["unfinished"]) == (1, 1, 0)
    assert (told["unrun"], told["untold"], told["unfit"]) == (1, 0, 0)
    # Of the 5 s that "ended" took the simulator knows one.
    real, base = told["runs"]
    assert real["avg_jct_s"] == pytest.approx(base["avg_jct_s"], rel=0.25)
    page = (tmp_path / "report.html").read_text()
    assert "1 workflow ended by a deadline" in page
    assert "Left out: 1 workflow of which nothing ever ran." in page
    done = fermata("report", "--from-cluster", "--pool", "hasty", *at)
    assert "left out: 1 workflow of which nothing ever ran" in done.stdout
    done = fermata("trace", "export", "--from-cluster", "--pool", "hasty", "-o", str(tmp_path / "x"), *at[:2])
    assert "1 workflow left out: of which nothing ever ran" in done.stderr


def test_a_workflow_that_somebody_else_ended_is_left_out_and_one_that_became_a_circle_harms_no_other(
    kubeconfig: Path, tmp_path: Path
) -> None:
    cluster, at = Cluster(kubeconfig), ("--kubeconfig", str(kubeconfig))
    cluster.pool("patched", executors=1)
    row = {"name": "a", "state": "Succeeded", "tasks": 1, "runSeconds": 2.0, "startTime": "2030-01-01T00:00:00Z"}
    ended = {"type": "Succeeded", "status": "True", "reason": "ByHand", "lastTransitionTime": row["startTime"]}
    told = {"conditions": [ended], "stages": [row], "arrivalTime": row["startTime"]}
    for name, status in (("by-operator", {**told, "jctSeconds": 2.0, "runSeconds": 2.0}), ("by-hand", told)):
        cluster.submit(name, "patched", [stage("a", 2.0)])
        plural, patch = "workflows", {"status": status}
        cluster.objects.patch_namespaced_custom_object_status(GROUP, VERSION, "default", plural, name, patch)
    cluster.submit("circle", "patched", [stage("a", 2.0, "b"), stage("b", 2.0, "a")], parallelism=1)
    rows = [row, {**row, "name": "b"}]
    patch = {"status": {**told, "stages": rows, "jctSeconds": 4.0, "runSeconds": 4.0}}
    cluster.objects.patch_namespaced_custom_object_status(GROUP, VERSION, "default", plural, "circle", patch)
    page = tmp_path / "report.html"
    done = fermata("report", "--from-cluster", "--pool", "patched", "--json", "--out", str(page), *at)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["workflows"], found["shared_cap"], found["untold"], found["unrun"]) == (1, 1, 1, 0)
    assert found["runs"][0]["avg_jct_s"] == 2.0
    assert "Left out: 1 workflow finished with a status that does not say" in page.read_text()
    done = fermata("trace", "export", "--from-cluster", "--pool", "patched", "-o", str(tmp_path / "x"), *at)
    assert "2 finished workflows of pool patched" in done.stderr
    cluster.objects.delete_cluster_custom_object(GROUP, VERSION, "executorpools", "patched")  # others list pools


def test_one_workflow_has_no_interval(kubeconfig: Path, tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    at = ("--pool", "single", "--kubeconfig", str(kubeconfig), "--out", str(out))
    done = fermata("report", "--from-cluster", *at)
    assert done.returncode == 0, done.stderr
    assert "1 workflow of pool single" in done.stdout
    assert "±" not in done.stdout
    assert "±" not in out.read_text()
    told = json.loads(fermata("report", "--from-cluster", "--json", *at).stdout)
    assert [row["change_percent_ci95"] for row in told["runs"]] == [None, 0.0]
