"""What really ran, read back from the API: as a trace that simulates, and as a report next to its simulation."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.operator_rig import Cluster, OperatorProcess, control_plane, stage
from tests.processes import fermata

from fermata.sim.trace_io import read_trace

pytestmark = pytest.mark.e2e

SHORTS = 8
WORKFLOWS = SHORTS + 3
POLICY = "sjf-hold:tau=1,split=2"


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
    assert "1 workflows left out: not finished" in done.stderr
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
        (("report", "--from-cluster", *at), "--pool: expected one of acting, asked"),
        (("report", "--from-cluster", "--pool", "none", *at), "no ExecutorPool 'none'"),
        (("report", "--from-cluster", "--pool", "asked", "--policies", "what", *at), "no policy 'what'"),
        (("trace", "export", "-o", str(tmp_path / "x"), *at), "either a FILE or --from-cluster"),
    ):
        done = fermata(*arguments)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
        assert said in done.stderr
