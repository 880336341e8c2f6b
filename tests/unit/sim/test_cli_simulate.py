"""`fermata simulate` as a person runs it: figures, files, exit codes, one-line errors, Ctrl-C."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.processes import INTERRUPTED, interruptible
from tests.processes import fermata as in_process

from fermata.cli.main import run
from fermata.policy.record import loads
from fermata.sim.experiment import Run, run_seeds
from fermata.sim.scenarios import scenario
from fermata.sim.trace_io import write_trace

KEYS = [
    "avg_jct_s",
    "p50_jct_s",
    "p95_jct_s",
    "p99_jct_s",
    "makespan_s",
    "avg_wait_s",
    "avg_bounded_slowdown",
    "max_bounded_slowdown",
    "utilization",
    "held_s",
    "jobs",
    "decisions",
    "events",
    "wall_s",
]
FIGURE_ONE = Path(__file__).resolve().parents[3] / "examples" / "figure1.jsonl"
COMMAND = [sys.executable, "-m", "fermata.cli", "simulate"]


def fermata(*arguments: str | Path | float, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return in_process("simulate", *arguments, stdin=stdin)


@pytest.mark.parametrize(("policy", "avg_jct_s"), [("fifo", 21.0), ("hold-follower:delay=4", 15.0), ("default", 21.0)])
def test_figure_one(policy: str, avg_jct_s: float) -> None:
    done = fermata("--trace", FIGURE_ONE, "--executors", 1, "--policy", policy, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    figures = json.loads(done.stdout)
    assert list(figures) == KEYS
    assert figures["avg_jct_s"] == avg_jct_s
    assert figures["jobs"] == 2


@pytest.mark.parametrize(
    ("policy", "avg_jct_s"), [("sjf", 34.714), ("sjf-hold:split=20,tau=10", 18.571), ("default", 34.714)]
)
def test_the_last_executor(policy: str, avg_jct_s: float) -> None:
    trace = FIGURE_ONE.with_name("last-executor.jsonl")
    done = fermata("--trace", trace, "--executors", 2, "--policy", policy, "--json")
    assert json.loads(done.stdout)["avg_jct_s"] == pytest.approx(avg_jct_s, abs=0.001)


def test_each_seed_has_failures_of_its_own_and_they_are_counted_and_marked(tmp_path: Path) -> None:
    out = tmp_path / "jobs.csv"
    arguments = ["--scenario", "express_k2", "--set", "jobs=300", "--warmup", 50, "--policy", "sjf", "--fail", 0.2]
    arguments += ["--retries", 0]
    several = json.loads(fermata(*arguments, "--seeds", "3-6", "--json").stdout)
    counts = [seed["failed_jobs"] for seed in several["per_seed"]]
    assert len(set(counts)) > 1
    assert several["failed_jobs"] == sum(counts)
    assert "failed_jobs" not in several["ci95"]
    single = json.loads(fermata(*arguments, "--seeds", "4", "--json", "--per-job", out).stdout)
    assert single["failed_jobs"] == counts[1]
    rows = list(csv.DictReader(out.open()))
    assert sum(int(row["failed"]) for row in rows[50:]) == counts[1]
    assert "of these failed" in fermata(*arguments, "--seeds", "4").stdout


def test_a_table_for_people() -> None:
    done = fermata("--trace", "-", "--executors", 1, "--policy", "fifo", stdin=FIGURE_ONE.read_text())
    assert done.returncode == 0
    for words in ("JCT, mean", "21.0000", "held, all jobs", "utilisation", "fifo on -, 1 executor\n"):
        assert words in done.stdout


def test_several_seeds_with_the_times_of_every_job(tmp_path: Path) -> None:
    out = tmp_path / "jobs.csv"
    arguments = ["--scenario", "dag_pods", "--seeds", "4-6", "--set", "jobs=40", "--warmup", "5", "--policy", "srwf"]
    done = fermata(*arguments, "--jobs", 2, "--json", "--per-job", out)
    assert (done.returncode, done.stderr) == (0, "")
    figures = json.loads(done.stdout)
    assert list(figures) == [*KEYS, "per_seed", "ci95"]
    assert [row["seed"] for row in figures["per_seed"]] == [4, 5, 6]
    assert figures["jobs"] == 3 * 35
    with out.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert list(rows[0]) == ["id", "arrival_s", "start_s", "completion_s", "jct_s", "held_s"]
    assert [row["id"] for row in rows[38:42]] == ["4/j38", "4/j39", "5/j0", "5/j1"]
    mean_s = sum(float(row["jct_s"]) for row in rows[5:40]) / 35.0
    assert mean_s == pytest.approx(figures["per_seed"][0]["avg_jct_s"])
    one = fermata(*arguments[:2], "--seeds", "4", *arguments[4:], "--json")
    expected = {key: value for key, value in figures["per_seed"][0].items() if key not in ("seed", "wall_s")}
    assert {key: value for key, value in json.loads(one.stdout).items() if key != "wall_s"} == expected


def test_a_scenario_is_the_trace_that_it_generates(tmp_path: Path) -> None:
    out = tmp_path / "t.jsonl.xz"
    write_trace(scenario("express_k2").with_(jobs=50).generate(9), out)
    common = ["--policy", "sjf", "--warmup", "0", "--json"]
    one = fermata("--scenario", "express_k2", "--seeds", "9", "--set", "jobs=50", "--executors", 3, *common)
    other = fermata("--trace", out, "--executors", 3, *common)
    figures, expected = json.loads(one.stdout), json.loads(other.stdout)
    del figures["wall_s"], expected["wall_s"]
    assert figures == expected


def test_wrong_estimates_are_those_of_the_trace_that_is_generated_with_them(tmp_path: Path) -> None:
    out = tmp_path / "t.jsonl"
    make = ["--scenario", "express_k2", "--jobs", 200, "--set", "load=0.95", "--seed", 7]
    assert in_process("trace", "generate", *make, "--noise", "class-flips=0.5", "--out", out).returncode == 0
    common = ["--policy", "sjf", "--warmup", "0", "--json"]
    scenario_ = ["--scenario", "express_k2", "--seeds", "7", "--set", "jobs=200", "--set", "load=0.95"]
    right, wrong, read = (
        json.loads(fermata(*each, *common).stdout) | {"wall_s": 0.0}
        for each in (scenario_, [*scenario_, "--noise", "class-flips=0.5"], ["--trace", out, "--executors", 2])
    )
    assert wrong == read
    assert wrong["avg_jct_s"] != right["avg_jct_s"]


def test_recorded_decisions_and_per_job_times_of_one_episode(tmp_path: Path) -> None:
    record, per_job = tmp_path / "r.jsonl", tmp_path / "j.csv"
    arguments = ["--trace", FIGURE_ONE, "--executors", 1, "--policy", "hold-follower:delay=4"]
    done = fermata(*arguments, "--record", record, "--per-job", per_job, "--max-hold", 1.5, "--json")
    assert done.returncode == 0
    assert per_job.read_text().splitlines() == [
        "id,arrival_s,start_s,completion_s,jct_s,held_s",
        "long,0.0,1.5,21.5,21.5,1.5",
        "short,2.0,21.5,25.5,23.5,0.0",
    ]
    records = [loads(line) for line in record.read_text().splitlines()]
    assert [each.state.now_s for each in records] == [0.0, 1.5, 21.5]
    assert records[0].labels == {"jobs": ["long"], "stages": ["long/run"]}
    assert records[0].limits.max_hold_s == 1.5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--policy", "sjf"], "expected either --trace FILE or --scenario NAME"),
        (["--policy", "sjf", "--scenario", "nope", "--seeds", "1"], "no scenario 'nope'; there are: fig1,"),
        (["--policy", "sjf", "--scenario", "syn_60"], "--scenario syn_60 needs --seeds A-B"),
        (["--policy", "sjf", "--scenario", "syn_60", "--seeds", "5-1"], "seeds: 1 is below 5"),
        (["--policy", "sjf", "--scenario", "syn_60", "--seeds", "x"], "seeds: expected A-B or one number, got 'x'"),
        (["--policy", "sjf", "--scenario", "syn_60", "--seeds", "9" * 5000], "seeds: expected A-B or one number"),
        (["--policy", "sjf", "--scenario", "syn_60", "--seeds", "1", "--set", "jobs"], "--set expects key=number"),
        (["--policy", "sjf", "--scenario", "syn_60", "--seeds", "1", "--set", f"jobs={'[' * 99999}"], "--set expects"),
        (
            ["--policy", "fair", "--scenario", "tpch_a", "--seeds", "4294967296", "--tpch-dir", "."],
            "seed: expected at most 4,294,967,295 for Decima's sequences, got 4294967296",
        ),
        (["--policy", "sjf", "--scenario", "syn_60", "--seeds", "1-2", "--record", "r"], "--record is for one episode"),
        (
            ["--policy", "sjf", "--scenario", "syn_60", "--seeds", "1", "--noise", "x"],
            "--noise x: no noise 'x'; there are: class",
        ),
        (["--policy", "sjf", "--scenario", "syn_60", "--seeds", "1", "--noise", "lognormal"], "--noise expects"),
        (["--policy", "sjf", "--scenario", "syn_60", "--seeds", "1", "--noise", "exact=3"], "not 'exact=3'"),
        (["--policy", "sjf", "--scenario", "syn_60", "--seeds", "1", "--noise", "class-means="], "--noise expects"),
        (
            ["--policy", "sjf", "--scenario", "syn_60", "--seeds", "1", "--noise", "class-flips=2"],
            "--noise class-flips=2: share must be in [0, 1]",
        ),
        (["--policy", "nope", "--scenario", "syn_60", "--seeds", "1"], "no policy 'nope'; expected one of"),
        (["--policy", "fifo:x=1", "--scenario", "syn_60", "--seeds", "1"], "policy 'fifo' has no parameter 'x'"),
        (["--policy", "no.onnx", "--scenario", "syn_60", "--seeds", "1"], "no.onnx: cannot be read"),
        (["--policy", "sjf", "--trace", "no.jsonl", "--executors", "1"], "no.jsonl: cannot read it"),
        (
            ["--policy", "sjf", "--scenario", "k8s_cron", "--seeds", "1", "--set", "jobs=1"],
            "k8s_cron: seed 1 draws no job; expected jobs above 1",
        ),
        (["--policy", "sjf", "--trace", "no.jsonl"], "--trace needs --executors K"),
        (["--policy", "sjf", "--trace", "-", "--executors", "1"], "<stdin>:1: no jobs"),
        (["--policy", "sjf", "--trace", "-", "--executors", "0"], "--executors: expected 1 to 100,000, got 0"),
        (
            ["--policy", "sjf", "--trace", "-", "--executors", "100001"],
            "--executors: expected 1 to 100,000, got 1",
        ),
        (
            ["--policy", "sjf", "--scenario", "fig1", "--seeds", "1", "--set", "executors=99999999999"],
            "executors must be at most 100,000, not 99999999999",
        ),
        (
            ["--policy", "sjf", "--scenario", "dag_pods", "--seeds", "0-99999999999"],
            "seeds: expected at most 1,000,000, got 100,000,000,000 (0-99999999999)",
        ),
        (["--policy", "sjf", "--trace", "-", "--executors", "1", "--seeds", "1"], "belong to --scenario"),
        (["--policy", "sjf", "--trace", "-", "--executors", "1", "--retries", "3"], "--retries is of --fail"),
        (
            ["--policy", "sjf", "--trace", "-", "--executors", "1", "--record", "-", "--json"],
            "--record: standard output has the figures",
        ),
        (
            ["--policy", "sjf", "--trace", "-", "--executors", "1", "--per-job", "same", "--record", "./same"],
            "--per-job and --record name one file",
        ),
        (
            ["--policy", "sjf", "--trace", "same", "--executors", "1", "--record", "./same"],
            "--trace and --record name one file",
        ),
        (["--policy", "sjf", "--trace", "-", "--executors", "1", "--max-hold", "nan"], "--max-hold: expected 0 s"),
        (["--policy", "sjf", "--trace", str(FIGURE_ONE), "--executors", "1", "--warmup", "2"], "a warm-up of 2 jobs"),
        (
            ["--policy", "sjf", "--trace", str(FIGURE_ONE), "--executors", "1", "--per-job", "/no/x"],
            "/no/x: cannot write",
        ),
    ],
)
def test_bad_input_is_one_line_and_exit_code_two(
    arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["fermata", "simulate", *arguments])
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO())))
    with pytest.raises(SystemExit) as exit_:
        run()
    out, err = capsys.readouterr()
    assert (exit_.value.code, out) == (2, "")
    assert err.startswith("fermata: ")
    assert message in err
    assert err.count("\n") == 1


def test_more_slots_than_executors_names_file_and_line(tmp_path: Path) -> None:
    trace = tmp_path / "t.jsonl"
    wide = '{"id": "wide", "arrival_s": 0.0, "stages": [{"name": "a", "duration_s": 1.0, "slots": 3}]}\n'
    trace.write_text(FIGURE_ONE.read_text() + wide)
    done = fermata("--trace", trace, "--executors", 2, "--policy", "sjf")
    assert done.returncode == 2
    assert done.stderr.startswith(f"fermata: {trace}:3: job 'wide', stage 'a'")


@pytest.mark.parametrize("arguments", [(), ("--json",)])
def test_standard_output_that_cannot_be_written_is_one_line(arguments: tuple[str, ...]) -> None:
    command = [*COMMAND, "--trace", str(FIGURE_ONE), "--executors", "1", "--policy", "fifo", *arguments]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=240, check=False)
    assert (done.returncode, done.stderr) == (2, "fermata: <stdout>: No space left on device\n")


@pytest.mark.parametrize("processes", ["1", "2"])
def test_an_interrupt_keeps_what_is_done(processes: str, tmp_path: Path) -> None:
    out = tmp_path / "jobs.csv"
    arguments = ["--scenario", "syn_60", "--seeds", "0-999999", "--set", "jobs=2000", "--policy", "sjf", "--json"]
    figures, stderr = _interrupted(tmp_path, [*arguments, "--jobs", processes, "--per-job", str(out)])
    done = len(figures["per_seed"])
    assert figures["interrupted"] is True
    assert [row["seed"] for row in figures["per_seed"]] == list(range(done))
    assert stderr == f"fermata: interrupted after {done} of 1000000 seeds; the figures are of these\n"
    assert len(out.read_text().splitlines()) == 1 + 2000 * done


def test_stopped_after_one_seed_it_claims_no_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*arguments: Any) -> Generator[Run, None, None]:
        yield next(run_seeds(*arguments))
        raise KeyboardInterrupt

    monkeypatch.setattr("fermata.sim.experiment.run_seeds", stopped)
    asked = ["--policy", "sjf", "--scenario", "syn_60", "--seeds", "1-3", "--warmup", "0"]
    shown, told = fermata(*asked), fermata(*asked, "--json")
    assert (shown.returncode, told.returncode) == (130, 130)
    assert "1 seed\n" in shown.stdout
    assert "±" not in shown.stdout
    assert set(json.loads(told.stdout)["ci95"].values()) == {None}


def test_an_interrupt_in_one_episode_keeps_its_jobs_and_decisions(tmp_path: Path) -> None:
    record, out = tmp_path / "r.jsonl", tmp_path / "jobs.csv"
    arguments = ["--scenario", "syn_60", "--seeds", "0", "--set", "jobs=1000000", "--policy", "sjf", "--json"]
    arguments += ["--warmup", "10", "--record", str(record), "--per-job", str(out)]
    figures, stderr = _interrupted(tmp_path, arguments, at_least=1_000_000)
    jobs = figures["jobs"] + 10
    assert figures["interrupted"] is True
    assert stderr == f"fermata: interrupted after {jobs} of 1000000 jobs; the figures are of these\n"
    assert len(out.read_text().splitlines()) == 1 + jobs
    records = record.read_text().splitlines()
    assert loads(records[-1]).state.now_s >= loads(records[0]).state.now_s
    assert len(records) >= jobs


def _interrupted(folder: Path, arguments: Sequence[str], at_least: int = 1) -> tuple[dict[str, Any], str]:
    """Interrupt a simulation once it has written so many bytes; return its figures and what it said."""
    pipe = subprocess.PIPE
    process = interruptible([*COMMAND, *arguments], stdout=pipe, stderr=pipe, start_new_session=True)
    try:
        _wait_for_rows(folder, process, at_least)
        os.killpg(process.pid, signal.SIGINT)
        stdout, stderr = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode in INTERRUPTED
    return json.loads(stdout), stderr


def _wait_for_rows(folder: Path, process: subprocess.Popen[str], at_least: int) -> None:
    """Until so many bytes have been written to the output that is still under its temporary name."""
    deadline = time.monotonic() + 200.0
    while time.monotonic() < deadline and process.poll() is None:
        if any(path.stat().st_size >= at_least for path in folder.iterdir()):
            return
        time.sleep(0.05)
    pytest.fail(f"nothing was simulated (exit code {process.poll()})")
