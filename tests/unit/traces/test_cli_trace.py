"""`fermata trace` as a person runs it: exit codes, files and one-line errors."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.processes import fermata as in_process
from tests.processes import interruptible
from tests.unit.traces.test_import_kubernetes import job, ran

from fermata.cli.options import MOST_JOBS
from fermata.sim.scenarios import SCENARIOS
from fermata.sim.scenarios.base import MAX_JOBS
from fermata.sim.trace_builder import one_stage_trace
from fermata.sim.trace_io import job_lines, read_trace, write_trace

# The program with 200 MB to spare once its code is there.
LIMITED = """
import resource
import fermata.cli.trace, fermata.sim.generate, fermata.sim.trace_io
from fermata.cli.main import run
size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize() + 200_000_000
resource.setrlimit(resource.RLIMIT_AS, (size, size))
run()
"""
SWF = "; MaxProcs: 8\n1 0 -1 100 4 -1 -1 4 200 -1 1\n2 5 -1 -1 2 -1 -1 2 -1 -1 1\n"


def fermata(*arguments: str | Path | int, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return in_process("trace", *arguments, stdin=stdin)


def test_a_generated_scenario_is_the_one_of_the_library(tmp_path: Path) -> None:
    out = tmp_path / "t.jsonl.xz"
    done = fermata(
        "generate", "--scenario", "dag_pods", "--seed", "5", "--jobs", "40", "--set", "load=0.5", "--out", out
    )
    assert (done.returncode, done.stderr) == (0, "")
    expected = SCENARIOS["dag_pods"].with_(jobs=40, load=0.5).generate(5)
    assert list(job_lines(read_trace(out))) == list(job_lines(expected))


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["pairs_k1_30", "--jobs", "3"], "2 jobs written, not 3: pairs_k1_30 makes no such number of them\n"),
        (["fig1", "--set", "jobs=1"], "2 jobs written, not 1: fig1 makes no such number of them\n"),
        (["pairs_k1_30", "--jobs", "4"], ""),
        (["fig1"], ""),
    ],
)
def test_another_number_of_jobs_than_was_asked_for_is_told(arguments: list[str], told: str) -> None:
    done = fermata("generate", "--scenario", *arguments, "--out", "-")
    assert (done.returncode, done.stderr) == (0, told)
    assert len(done.stdout.splitlines()) == (4 if "4" in arguments else 2)


def test_a_trace_goes_through_a_pipe() -> None:
    made = fermata("generate", "--kind", "bursty", "--jobs", "50", "--noise", "lognormal=0.5", "--out", "-")
    assert made.returncode == 0
    stats = json.loads(fermata("stats", "-", "--executors", "4", "--json", stdin=made.stdout).stdout)
    assert (stats["jobs"], stats["tasks"]) == (50, 50)
    assert stats["estimate_error"] > 0.2
    assert stats["load"] > 0.0


def test_stats_of_times_of_next_to_nothing_are_json_and_silent(tmp_path: Path) -> None:
    """What is too large to be a number is null in JSON; nothing is warned of, and nothing overflows."""
    jobs = (("a", 0.0, 1e-310, 1e15), ("b", 1e-310, 1e15, 1e-310))
    lines = [
        {"id": name, "arrival_s": at, "stages": [{"name": "s", "duration_s": takes_s, "estimate_s": told_s}]}
        for name, at, takes_s, told_s in jobs
    ]
    tiny = tmp_path / "tiny.jsonl"
    tiny.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    done = fermata("stats", tiny, "--executors", "2", "--json")
    stats = json.loads(done.stdout, parse_constant=pytest.fail)
    assert (stats["load"], stats["sizes"]["ratio"], stats["estimate_ratio"], done.stderr) == (None, None, None, "")
    done = fermata("stats", tiny, "--executors", "2")
    assert (done.returncode, done.stderr) == (0, "")


def test_stats_for_people_say_what_matters(tmp_path: Path) -> None:
    out = tmp_path / "t.jsonl"
    fermata("generate", "--scenario", "express_k2", "--out", out)
    shown = fermata("stats", out, "--executors", "2").stdout
    for words in ("5,000, 5,000, 5,000", "load on 2 executors", "short (10 s), long 200 s, ratio 1:20", "1 is Poisson"):
        assert words in shown


def test_stats_tell_no_load_of_executors_that_a_task_does_not_fit_into(tmp_path: Path) -> None:
    trace = tmp_path / "t.jsonl"
    write_trace(one_stage_trace([0.0, 10.0], [5.0, 5.0], slots=[1, 8]), trace)
    assert (
        json.loads(fermata("stats", trace, "--executors", "8", "--json").stdout)["load"] == 0.28125
    )  # 45 / 2 / 10 / 8
    done = fermata("stats", trace, "--executors", "7")
    told = f"{trace}:2: job 'j1', stage 's0': a task needs 8 slots, but the pool has 7 executors"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"fermata: {told}\n")


@pytest.mark.parametrize(
    ("estimates_s", "ratio", "told"),
    [
        ((0, 0, 0), None, "estimates            none: no stage has an estimate above 0 and takes any time"),
        ((0, 10, 5), 1.5, "a factor of 1.41; of 2 of the stages: in the others one of the two is 0"),
        ((5, 10, 5), 1.0, "a factor of 1.39"),
    ],
)
def test_stats_say_where_there_is_no_estimate(
    tmp_path: Path, estimates_s: tuple[int, ...], ratio: float | None, told: str
) -> None:
    path = tmp_path / "t.jsonl"
    write_trace(one_stage_trace([0.0, 1.0, 2.0], [5.0] * 3, estimate_s=estimates_s), path)
    stats = json.loads(fermata("stats", path, "--json").stdout)
    assert stats["estimate_ratio"] == ratio
    assert stats["estimated_stages"] == sum(each > 0 for each in estimates_s)
    assert fermata("stats", path).stdout.splitlines()[-1].endswith(told)


@pytest.mark.parametrize(("jobs", "told"), [(40, "unknown of so few gaps; "), (41, "0.00 (1 is Poisson); ")])
def test_a_clockwork_is_told_from_too_few_jobs(tmp_path: Path, jobs: int, told: str) -> None:
    path = tmp_path / "t.jsonl"
    write_trace(one_stage_trace(range(jobs), [5.0] * jobs), path)
    (line,) = (line for line in fermata("stats", path).stdout.splitlines() if line.startswith("burstiness"))
    assert line.removeprefix("burstiness").strip().startswith(told)


def test_stats_tell_long_times_in_full_and_no_load_of_jobs_of_one_instant(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    write_trace(one_stage_trace([7.0] * 3, [20_570.25, 20_570.25, 1_234_567.0]), path)
    told = dict(line.split("  ", 1) for line in fermata("stats", path, "--executors", "2").stdout.splitlines())
    told = {name: shown.strip() for name, shown in told.items()}
    assert told["work"] == "1,275,708 executor-seconds"
    assert told["task duration"] == "mean 425,236 s, p50 20,570, p95 1,113,167, max 1,234,567"
    assert told["size classes"] == "66.7% short (20,570 s), long 1,234,567 s, ratio 1:60"
    assert told["burstiness"] == told["load on 2 executors"] == "unknown: no two jobs arrive apart"
    assert json.loads(fermata("stats", path, "--executors", "2", "--json").stdout)["load"] is None


def test_an_import_says_what_it_left_out(tmp_path: Path) -> None:
    (tmp_path / "log.swf").write_text(SWF)
    done = fermata("import", "swf", tmp_path / "log.swf", "--out", tmp_path / "t.jsonl")
    assert done.returncode == 0
    assert "1 job left out: unknown run time" in done.stderr
    assert "--executors 8" in done.stderr
    assert read_trace(tmp_path / "t.jsonl").stage_slots.tolist() == [4]
    back = fermata("export", tmp_path / "t.jsonl", "--format", "swf", "--out", "-")
    assert "no MaxProcs in the header" in back.stderr
    sized = fermata("export", tmp_path / "t.jsonl", "--format", "swf", "--out", "-", "--executors", 8)
    assert ("; MaxProcs: 8" in sized.stdout, sized.stderr) == (True, "")
    refused = fermata("export", tmp_path / "t.jsonl", "--out", "-", "--executors", 8)
    assert (refused.returncode, "not for jsonl" in refused.stderr) == (2, True)
    assert back.stdout.splitlines()[-1].split()[:5] == ["1", "0", "-1", "100", "4"]


def test_what_kubectl_printed_comes_through_a_pipe() -> None:
    printed = json.dumps({"kind": "List", "items": [*ran("a", 0, 3, 9), *ran("b", 5, 6, 8), job("gone", 7)]})
    done = fermata("import", "kubernetes", "-", "--out", "-", stdin=printed)
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == ["team/a", "team/b"]
    assert done.stderr == (
        "2 jobs, 2 tasks written to -\n"
        "as they ran, the mean JCT was 6 s, and at most 2 tasks ran at one time\n"
        "1 job left out: not all of its pods are in the file (--keep-incomplete fills in how long they may have run)\n"
    )


def test_one_job_is_exported(tmp_path: Path) -> None:
    out = tmp_path / "t.jsonl"
    fermata("generate", "--scenario", "dag_pods", "--jobs", "5", "--out", out)
    done = fermata("export", out, "--job", "j3", "--format", "wfcommons", "--out", tmp_path / "j3.json")
    assert done.returncode == 0
    assert json.loads((tmp_path / "j3.json").read_text())["name"] == "j3"


def test_an_export_says_what_it_left_out(tmp_path: Path) -> None:
    trace = tmp_path / "t.jsonl"
    tasks: dict[str, object] = {"name": "a", "tasks": 2, "durations_s": [1.0, 3.0]}
    for extra, weight, told in (
        ({}, 1.0, ""),
        ({"estimate_s": 9.0}, 1.0, "estimates left out: the format has none\n"),
        ({}, 2.0, "weights of jobs left out: the format has none\n"),
    ):
        job = {"id": "j", "arrival_s": 0.0, "weight": weight, "stages": [tasks | extra]}
        trace.write_text(json.dumps(job) + "\n")
        done = fermata("export", trace, "--format", "wfcommons", "--out", tmp_path / "run.json")
        assert (done.returncode, done.stderr) == (0, told)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["stats", "none.jsonl"], "none.jsonl: cannot read it: No such file or directory"),
        (
            ["import", "parquet", "x", "--out", "y"],
            "no format 'parquet'; there are: alibaba, csv, graphml, jsonl, kubernetes, swf, tpch, wfcommons",
        ),
        (["import", "swf", "x", "--column", "id=a", "--out", "-"], "--column does not apply to swf"),
        (["import", "alibaba", "x", "--where", "a=b", "--out", "-"], "--where does not apply to alibaba"),
        (
            ["import", "csv", "x", "--column", "gpus=a", "--out", "-"],
            "--column expects KEY=NAME with a KEY of arrival,",
        ),
        (["import", "csv", "x", "--where", "state", "--out", "-"], "--where expects NAME=VALUE, as state=COMPLETED,"),
        (["import", "tpch", ".", "--mean-gap-s", "inf", "--out", "-"], "--mean-gap-s: expected 0 to 1e+15 s, got inf"),
        (
            ["import", "tpch", ".", "--sequence", "decima", "--seed", "4294967296", "--out", "-"],
            "seed: expected at most 4,294,967,295 for Decima's sequences, got 4294967296",
        ),
        (["export", "x", "--pool", "p", "--out", "-"], "--pool and --kubeconfig go with --from-cluster"),
        (["export", "x", "--kubeconfig", "k", "--out", "-"], "--pool and --kubeconfig go with --from-cluster"),
        (["import", "swf", "x", "--jobs", "5", "--out", "-"], "--jobs does not apply to swf"),
        (["import", "swf", "x", "--out", "./x"], "FILE and --out name one file, './x'; expected two"),
        (["export", "x", "--out", "./x"], "FILE and --out name one file, './x'; expected two"),
        (["import", "jsonl", "x", "--keep-incomplete", "--out", "-"], "--keep-incomplete does not apply to jsonl"),
        (["generate", "--out", "-"], "expected either --scenario NAME or --kind NAME"),
        (["generate", "--scenario", "syn", "--out", "-"], "no scenario 'syn'; there are: fig1,"),
        (["generate", "--kind", "odd", "--out", "-"], "no kind 'odd'; there are: synthetic,"),
        (["generate", "--kind", "bursty", "--set", "load", "--out", "-"], "--set expects key=number"),
        (["generate", "--kind", "bursty", "--jobs", "99999999999", "--out", "-"], "jobs must be at most 10,000,000"),
        (["generate", "--kind", "bursty", "--noise", "odd=1", "--out", "-"], "no noise 'odd'"),
        (["generate", "--kind", "bursty", "--noise", "lognormal=x", "--out", "-"], "--noise expects class-flips=SHARE"),
        (["generate", "--scenario", "fig1", "--out", "/nowhere/t.jsonl"], "/nowhere/t.jsonl: cannot write it"),
        (
            ["generate", "--scenario", "fig1", "--out", "/dev/null/t.jsonl"],
            "/dev/null/t.jsonl: cannot write it: no such",
        ),
        # What is read is not even looked for by then.
        (
            ["import", "swf", "none.swf", "--out", "/nowhere/t.jsonl"],
            "/nowhere/t.jsonl: cannot write it: no such folder",
        ),
        (["export", "none.jsonl", "--out", "/nowhere/t.swf"], "/nowhere/t.swf: cannot write it: no such folder"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(arguments: list[str], words: str) -> None:
    done = fermata(*arguments)
    assert done.returncode == 2
    assert words in done.stderr
    assert done.stdout == ""
    assert len(done.stderr.strip().splitlines()) == 1


def test_more_jobs_than_any_trace_has_are_not_begun_to_be_sampled() -> None:
    assert MOST_JOBS == MAX_JOBS
    done = fermata("import", "tpch", ".", "--jobs", MAX_JOBS + 1, "--out", "-")
    assert (done.returncode, done.stdout) == (2, "")
    assert "Invalid value for '--jobs'" in done.stderr


def test_too_little_memory_is_one_line(tmp_path: Path) -> None:
    arguments = ["generate", "--scenario", "express_k2", "--jobs", "10000000", "--out", str(tmp_path / "t.jsonl")]
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, "trace", *arguments], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("fermata: out of memory: Unable to allocate 76.3 MiB")
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "closed", "name"),
    [("stats -", "<&-", "<stdin>"), ("generate --scenario fig1 --out -", ">&-", "<stdout>")],
)
def test_a_standard_stream_that_is_closed_is_one_line(arguments: str, closed: str, name: str) -> None:
    command = ["sh", "-c", f'"$0" -m fermata.cli trace {arguments} {closed}', sys.executable]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (2, f"fermata: {name}: it is closed\n")


def test_a_bad_trace_names_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text('{"id": "a", "arrival_s": 0, "stages": [{"name": "x", "duration_s": 1}]}\n{}\n')
    done = fermata("stats", tmp_path / "t.jsonl")
    assert (done.returncode, done.stderr) == (2, f"fermata: {tmp_path}/t.jsonl:2: the job has no 'id'\n")


def test_the_list_shows_every_workload() -> None:
    shown = fermata("list").stdout
    assert all(f"  {name}: " in shown for name in SCENARIOS)
    assert "load=0.6" in shown


def test_an_interrupt_says_so_and_leaves_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "fermata.cli", "trace", "generate", "--scenario", "express_k2"]
    process = interruptible(
        [*command, "--jobs", "1000000", "--out", str(tmp_path / "t.jsonl")],
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + 100.0
        while not list(tmp_path.iterdir()) and time.monotonic() < deadline:
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGINT)
        _, stderr = process.communicate(timeout=100)
    finally:
        process.kill()
    assert (process.returncode, stderr) == (130, "fermata: interrupted\n")
    assert list(tmp_path.iterdir()) == []
