"""`fermata compare` as a person runs it: a page, files, numbers, exit codes, one-line errors, Ctrl-C."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from tests.processes import INTERRUPTED, interruptible
from tests.processes import fermata as in_process

from fermata.cli.main import run
from fermata.cli.options import policy_names
from fermata.policy.errors import InputError
from fermata.policy.registry import shipped_model
from fermata.sim.compare.run import Sample, Workload, run_units, units_of
from fermata.sim.compare.sources import TraceSource
from fermata.sim.experiment import Setting
from fermata.sim.scenarios import scenario
from fermata.sim.trace_builder import one_stage_trace
from fermata.sim.trace_io import write_trace
from fermata.sim.trace_stats import trace_stats

FIGURE_ONE = Path(__file__).resolve().parents[3] / "examples" / "figure1.jsonl"
COMMAND = [sys.executable, "-m", "fermata.cli", "compare"]
SMALL = ["--set", "jobs=60", "--warmup", "5"]


def fermata(*arguments: str | Path | int) -> subprocess.CompletedProcess[str]:
    return in_process("compare", *arguments)


def test_the_same_numbers_and_page_on_any_number_of_processes(tmp_path: Path) -> None:
    found = []
    for processes in (1, 2):
        out = tmp_path / f"r{processes}.html"
        arguments = ["--scenario", "express_k2", "dag_pods", "--policies", "sjf,sjf-hold:tau=60,split=30,srwf"]
        done = fermata(
            *arguments, "--seeds", "4-6", *SMALL, "--sweep-seeds", 2, "--out", out, "--json", "--jobs", processes
        )
        assert (done.returncode, done.stderr) == (0, "")
        numbers = json.loads(done.stdout)
        for workload in numbers["workloads"].values():
            for figures in workload["policies"].values():
                assert figures.pop("wall_s") > 0.0
                assert all(row.pop("wall_s") > 0.0 for row in figures["per_seed"])
        found.append((numbers["workloads"], out.read_text().partition("Provenance")[0]))
    assert found[0] == found[1]
    workloads, page = found[0]
    assert list(workloads) == ["express_k2", "dag_pods"]
    assert page.count("parameters are at the end of the page") == 2
    express = workloads["express_k2"]
    assert express["seeds"] == [4, 5, 6]
    held = express["policies"]["sjf-hold:tau=60,split=30"]
    assert held["held_s"] > 0.0
    assert held["holds"]["count"] > 0
    change = held["against_base"]
    assert (change["over"], change["values"]) == ("seed", 3)
    base = express["policies"]["sjf"]
    assert change["seconds"]["mean"] == pytest.approx(held["avg_jct_s"] - base["avg_jct_s"])
    assert change["seconds"]["low"] <= change["seconds"]["mean"] <= change["seconds"]["high"]
    assert express["bound"]["mean_jct_s"] > 0.0
    assert base["above_bound_pct"] > 0.0
    assert express["sweeps"]["load"]["value"] == [0.3, 0.45, 0.6, 0.7, 0.8, 0.9]
    assert len(express["sweeps"]["ratio"]["avg_held_s"]["srwf"][0]) == 2
    assert list(workloads["dag_pods"]["sweeps"]) == ["load"]
    assert "Held time against size ratio needs a scenario with a parameter for the size of long jobs." in page


def test_a_load_is_a_share_of_the_pool_that_was_asked_for(tmp_path: Path) -> None:
    arguments = ["--scenario", "express_k2", "--seeds", "4", "--executors", 4, *SMALL, "--policies", "sjf"]
    done = fermata(*arguments, "--sweep-seeds", 1, "--out", tmp_path / "r.html", "--json")
    sweep = json.loads(done.stdout)["workloads"]["express_k2"]["sweeps"]["load"]
    mean_work_s = 0.9 * 10.0 + 0.1 * 200.0
    offered = [rate * mean_work_s / 4 for rate in sweep["arrivals_per_s"]]
    assert offered == pytest.approx(sweep["value"], rel=0.25)


@pytest.mark.parametrize("begins_s", [0.0, 1.7e9])
def test_a_trace_at_another_load_offers_that_load_whenever_its_clock_began(begins_s: float) -> None:
    """By hand: of two jobs of 6 s the second comes 20 s after the first at a load of 0.3 of one executor."""
    jobs = TraceSource("two", one_stage_trace([begins_s, begins_s + 0.5], [6.0, 6.0]), 1)
    traces = {each.value: each.source.runs(0, [Setting("fifo", 1)])[0].episode.trace for each in jobs.variations()}
    assert traces[0.3].job_arrival_s.tolist() == [begins_s, begins_s + 20.0]
    for value, trace in traces.items():
        assert trace_stats(trace, 1).load == pytest.approx(value)


def test_a_single_value_has_no_interval_in_the_numbers(tmp_path: Path) -> None:
    trace = tmp_path / "t.jsonl"
    write_trace(scenario("express_k2").with_(jobs=1, warm=0).generate(4), trace)
    arguments = ["--trace", trace, "--executors", 2, "--policies", "sjf,fifo", "--no-sweeps"]
    done = fermata(*arguments, "--out", tmp_path / "r.html", "--json")
    (workload,) = json.loads(done.stdout)["workloads"].values()
    fifo = workload["policies"]["fifo"]
    assert set(fifo["ci95"].values()) == {None}
    change = fifo["against_base"]
    assert change["values"] == 1
    assert change["percent"] == {"mean": 0.0, "t95": None, "low": None, "high": None}


def test_sweeps_leave_out_the_warm_up_that_was_asked_for(tmp_path: Path) -> None:
    trace = tmp_path / "t.jsonl"
    write_trace(scenario("express_k2").with_(jobs=60).generate(4), trace)
    means = []
    for warm in (0, 20):
        arguments = ["--trace", trace, "--executors", 2, "--policies", "sjf", "--warmup", warm]
        done = fermata(*arguments, "--out", tmp_path / "r.html", "--json")
        assert (done.returncode, done.stderr) == (0, "")
        (workload,) = json.loads(done.stdout)["workloads"].values()
        means.append(workload["sweeps"]["load"]["avg_jct_s"]["sjf"])
    assert means[0] != means[1]


def test_the_figures_of_one_policy_are_those_of_simulate(tmp_path: Path) -> None:
    common = ["--scenario", "dag_pods", "--seeds", "4-5", *SMALL, "--json"]
    done = fermata(*common, "--policies", "srwf", "--no-sweeps", "--out", tmp_path / "r.html")
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)["workloads"]["dag_pods"]["policies"]["srwf"]
    expected = json.loads(in_process("simulate", *common, "--policy", "srwf").stdout)
    for name in expected.keys() - {"wall_s", "per_seed"}:
        assert found[name] == expected[name], name
    assert "JCT against load" not in (tmp_path / "r.html").read_text()


@pytest.mark.parametrize(("policies", "jobs"), [("sjf", 2), ("sjf,fifo", 1)])
def test_a_page_without_intervals_speaks_of_none(policies: str, jobs: int, tmp_path: Path) -> None:
    trace, out = tmp_path / "t.jsonl", tmp_path / "r.html"
    trace.write_text("".join(FIGURE_ONE.read_text().splitlines(keepends=True)[:jobs]))
    done = fermata("--trace", trace, "--executors", 1, "--policies", policies, "--out", out)
    assert (done.returncode, done.stderr) == (0, "")
    page = out.read_text().partition("Provenance")[0]
    assert "One schedule of each policy: other arrivals may give other figures." in page
    assert "interval" not in page
    assert f"{jobs} job{'s' * (jobs > 1)} on 1 executor." in page


def test_a_trace_with_figures_as_files(tmp_path: Path) -> None:
    trace, folder = tmp_path / "t.jsonl.xz", tmp_path / "figures"
    write_trace(scenario("express_k2").with_(jobs=80).generate(9), trace)
    done = fermata(
        "--trace", trace, "--executors", 2, "--policies", "fifo,sjf,sjf-hold:tau=60", "--base", "sjf",
        "--out", tmp_path / "r.html", "--figures", folder,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    names = {path.name for path in folder.iterdir()}
    assert {"gantt.svg", "gantt.png", "jct-cdf.svg", "jct-load.png", "queue-utilisation.svg"} <= names
    page = (tmp_path / "r.html").read_text()
    assert "against sjf" in page
    assert "t.jsonl.xz, sha256" in page
    assert "fermata compare --trace" in page
    assert "other arrivals may differ by more than its intervals say" in page
    for words in ("sjf-hold:tau=60", "base", "report:", "figures:"):
        assert words in done.stdout


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--out", "t.jsonl"], "--trace and --out name one file, 't.jsonl'; expected two"),
        (["--figures", "t.jsonl/figures"], "t.jsonl/figures: cannot make the folder: t.jsonl is none"),
        (["--figures", "t.jsonl"], "t.jsonl: cannot make the folder: t.jsonl is none"),
    ],
)
def test_what_cannot_be_written_is_told_before_anything_has_run(
    options: list[str], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_trace(scenario("express_k2").with_(jobs=80).generate(9), "t.jsonl")
    before = Path("t.jsonl").read_bytes()
    done = fermata("--trace", "t.jsonl", "--executors", 2, "--policies", "fifo,sjf", *options)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"fermata: {told}\n")
    assert [path.name for path in tmp_path.iterdir()] == ["t.jsonl"]
    assert Path("t.jsonl").read_bytes() == before


def test_what_is_done_of_a_long_trace_is_told_within_it() -> None:
    trace = scenario("express_k2").with_(jobs=400, warm=0).generate(9)
    settings = [Setting(name, 2) for name in ("fifo", "default")]
    units = units_of([Workload(TraceSource("t", trace, 2), settings, [0])], 0)
    told: list[float] = []
    ((_, sample),) = run_units(units, 1, told.append)
    assert isinstance(sample, Sample)
    assert told == sorted(told)
    assert any(0.5 < share < 1.0 for share in told), "within the second policy"
    assert max(told) <= 1.0


def test_a_trace_through_a_pipe_is_read_once(tmp_path: Path) -> None:
    pipe, kept, out = tmp_path / "pipe", tmp_path / "t.jsonl", tmp_path / "r.html"
    write_trace(scenario("express_k2").with_(jobs=80).generate(9), kept)
    os.mkfifo(pipe)
    arguments = ["--executors", 2, "--policies", "fifo,sjf", "--no-sweeps", "--out", out, "--json"]
    threading.Thread(target=lambda: pipe.write_bytes(kept.read_bytes()), daemon=True).start()
    told = [json.loads(fermata("--trace", trace, *arguments).stdout) for trace in (pipe, kept)]
    figures = [each["workloads"][name]["policies"] for each, name in zip(told, ("pipe", "t.jsonl"), strict=True)]
    assert figures[0]["sjf"]["avg_jct_s"] == figures[1]["sjf"]["avg_jct_s"]
    assert ["trace" in each["provenance"] for each in told] == [False, True]


def test_a_model_says_what_it_learned(tmp_path: Path) -> None:
    out, model = tmp_path / "r.html", tmp_path / "run" / "policy.onnx"
    model.parent.mkdir()
    shutil.copy(shipped_model(), model)
    arguments = ["--scenario", "express_k2", "--policies", f"sjf,{model}", "--seeds", "4-5", *SMALL, "--no-sweeps"]
    for option, learned in (("--explain", True), ("--no-explain", False)):
        done = fermata(*arguments, "--out", out, option, "--figures", tmp_path / option)
        assert (done.returncode, done.stderr) == (0, "")
        assert (f"What {model} learned" in out.read_text()) == learned, "as the tables call it"
        names = {path.name for path in (tmp_path / option).iterdir()}
        assert any(name.endswith("-run-policy-onnx-learned-importance.svg") for name in names) == learned


@pytest.mark.parametrize("lengths_s", [[9.0, 0.0, 0.0], [0.0, 5.0] * 40])
def test_jobs_that_take_no_time_have_no_percentage(tmp_path: Path, lengths_s: list[float]) -> None:
    trace, out = tmp_path / "z.jsonl", tmp_path / "z.html"
    with trace.open("w") as lines:
        for i, length_s in enumerate(lengths_s):
            stages = [{"name": "a", "duration_s": length_s}]
            lines.write(json.dumps({"id": f"j{i}", "arrival_s": float(i // 3), "stages": stages}) + "\n")
    done = fermata("--trace", trace, "--executors", 1, "--policies", "sjf,fifo", "--out", out, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    json.loads(done.stdout, parse_constant=pytest.fail)  # NaN is no JSON
    assert not re.search(r"\bnan\b", out.read_text().lower())


@pytest.mark.parametrize(("first_s", "warmup", "of"), [(0, 0, "z.jsonl"), (3, 1, "z.jsonl after the warm-up")])
def test_a_trace_in_which_nothing_takes_time_is_refused(tmp_path: Path, first_s: int, warmup: int, of: str) -> None:
    trace, out = tmp_path / "z.jsonl", tmp_path / "z.html"
    lengths = enumerate((first_s, 0))
    lines = [{"id": f"j{i}", "arrival_s": 5 * i, "stages": [{"name": "a", "duration_s": s}]} for i, s in lengths]
    trace.write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = fermata("--trace", trace, "--executors", 1, "--policies", "sjf,fifo", "--warmup", warmup, "--out", out)
    assert (done.returncode, f"no job of {of} takes any time: nothing to compare" in done.stderr) == (2, True)
    assert "Warning" not in done.stderr
    assert not out.exists()


def test_jobs_of_no_length_that_wait_are_compared(tmp_path: Path) -> None:
    trace, out = tmp_path / "z.jsonl", tmp_path / "z.html"
    lines = [{"id": f"j{i}", "arrival_s": i, "stages": [{"name": "a", "duration_s": 3 - 3 * i}]} for i in (0, 1)]
    trace.write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = fermata("--trace", trace, "--executors", 1, "--policies", "sjf", "--warmup", 1, "--no-sweeps", "--out", out)
    assert (done.returncode, done.stderr) == (0, "")
    assert "<strong>2.00</strong>" in out.read_text()


def test_milliseconds_are_told_at_the_terminal_as_on_the_page(tmp_path: Path) -> None:
    trace, out = tmp_path / "ms.jsonl", tmp_path / "ms.html"
    lines = [{"id": f"j{i}", "arrival_s": 0, "stages": [{"name": "a", "duration_s": 0.002}]} for i in (1, 2)]
    trace.write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = fermata("--trace", trace, "--executors", 1, "--policies", "sjf", "--no-sweeps", "--out", out)
    told = "ms.jsonl sjf 0.00300 base 0.00100 0.00000 0.00200 0.00398"
    assert done.stdout.splitlines()[1].split() == told.split()
    assert "<strong>0.00300</strong>" in out.read_text()


def test_a_clock_as_late_as_a_trace_may_have_is_drawn_in_silence(tmp_path: Path) -> None:
    trace, out = tmp_path / "late.jsonl", tmp_path / "late.html"
    lines = [{"id": f"j{i}", "arrival_s": 1e15 - i, "stages": [{"name": "a", "duration_s": 5}]} for i in (9, 7, 0)]
    trace.write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = fermata("--trace", trace, "--executors", 1, "--policies", "sjf,fifo", "--no-sweeps", "--out", out)
    assert (done.returncode, done.stderr) == (0, "")


def test_one_job_has_no_interval(tmp_path: Path) -> None:
    trace, out = tmp_path / "one.jsonl", tmp_path / "r.html"
    trace.write_text('{"id":"z","arrival_s":0,"stages":[{"name":"a","duration_s":3}]}\n')
    done = fermata("--trace", trace, "--executors", 1, "--policies", "sjf,hold-follower:delay=4", "--out", out)
    assert (done.returncode, "±" in done.stdout, "±" in out.read_text()) == (0, False, False)


def test_two_jobs_are_enough(tmp_path: Path) -> None:
    out = tmp_path / "r.html"
    done = fermata("--trace", FIGURE_ONE, "--executors", 1, "--policies", "fifo,hold-follower:delay=4", "--out", out)
    assert (done.returncode, done.stderr) == (0, "")
    assert "21.00" in out.read_text()
    assert "15.00" in out.read_text()


def test_policies_may_have_parameters_between_commas() -> None:
    assert policy_names("sjf, sjf-hold:tau=60,split=10 ,default") == ["sjf", "sjf-hold:tau=60,split=10", "default"]
    assert policy_names("a=b.onnx,sjf") == ["a=b.onnx", "sjf"]
    for text, message in (("", "expected names"), (",", "expected names"), ("sjf,sjf", "'sjf' is there twice")):
        with pytest.raises(InputError, match=message):
            policy_names(text)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--policies", "sjf"], "expected either --trace FILE or --scenario NAME..."),
        (["--policies", "sjf", "--scenario", "syn_60", "--trace", "x"], "expected either --trace FILE or --scenario"),
        (["--policies", "sjf", "--scenario", "syn_60"], "--scenario needs --seeds A-B"),
        (["--policies", "sjf", "--scenario", "syn_60", "nope", "--seeds", "1"], "no scenario 'nope'; there are: fig1,"),
        (["--policies", "nope", "--scenario", "syn_60", "--seeds", "1"], "no policy 'nope'; expected one of"),
        (["--policies", "sjf,no.onnx", "--scenario", "syn_60", "--seeds", "1"], "no.onnx: cannot be read"),
        (["--policies", "sjf,fifo", "--base", "lcfs", "--scenario", "syn_60", "--seeds", "1"], "--base: expected one"),
        (["--policies", "sjf", "--scenario", "syn_60", "--seeds", "5-1"], "seeds: 1 is below 5"),
        (["--policies", "sjf", "--scenario", "tpch_a", "--seeds", "1"], "--scenario tpch_a needs --tpch-dir"),
        (["--policies", "decima-fair", "--scenario", "tpch_a,syn_60", "--seeds", "1"], "'decima-fair' is only of tpch"),
        (["--policies", "sjf", "--scenario", "syn_60", "--seeds", "1", "--set", "loda=1"], "did you mean 'load'"),
        (["--policies", "sjf", "--scenario", "syn_60", "--seeds", "1", "--out", "/no/x.html"], "/no/x.html: cannot"),
        (["--policies", "sjf", "--scenario", "syn_60", "--seeds", "1", "--out", "."], ".: cannot write it: is"),
        (["--policies", "sjf", "--scenario", "syn_60", "--seeds", "1", "--out", "-"], "-: standard output has"),
        (["--policies", "sjf", "--scenario", "syn_60", "--seeds", "1", "--jobs", "0"], "--jobs: expected 1 or more"),
        (["--policies", "sjf", "--trace", "no.jsonl", "--executors", "1"], "no.jsonl: cannot read it"),
        (["--policies", "sjf", "--trace", "no.jsonl"], "--trace needs --executors K"),
        (["--policies", "sjf", "--trace", "x", "--executors", "1", "--seeds", "1"], "belong to --scenario"),
        (["--policies", "sjf", "--trace", str(FIGURE_ONE), "--executors", "1", "--warmup", "2"], "a warm-up of 2 jobs"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_two(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["fermata", "compare", *arguments])
    with pytest.raises(SystemExit) as exit_:
        run()
    out, err = capsys.readouterr()
    assert (exit_.value.code, out) == (2, "")
    assert err.count("\n") == 1
    assert message in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("processes", [1, 2])
def test_an_interrupt_reports_on_the_seeds_that_are_done(tmp_path: Path, processes: int) -> None:
    out = tmp_path / "r.html"
    command = [*COMMAND, "--scenario", "express_k2", "--policies", "sjf,fifo", "--seeds", "0-9999", "--no-sweeps"]
    command += ["--set", "jobs=300", "--warmup", "0", "--json", "--out", str(out), "--jobs", str(processes)]
    screen, terminal = pty.openpty()
    # Its own process group, which Ctrl-C at a terminal signals as a whole.
    process = interruptible(
        command,
        stdout=subprocess.PIPE,
        stderr=terminal,
        start_new_session=True,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "100"},
    )
    os.close(terminal)
    try:
        shown = _until_seen(screen, r"episodes .* [1-9]\d*% .*\d:\d\d:\d\d", process)
        os.killpg(process.pid, signal.SIGINT)
        drain = threading.Thread(target=_read_all, args=(screen, shown))
        drain.start()
        text, _ = process.communicate(timeout=120)
        drain.join(timeout=60)
    finally:
        process.kill()
        os.close(screen)
    assert process.returncode in INTERRUPTED
    numbers = json.loads(text)
    done = numbers["workloads"]["express_k2"]["seeds"]
    assert numbers["interrupted"] is True
    assert done == list(range(len(done)))
    assert 0 < len(done) < 10_000
    assert f"interrupted after {len(done)} of 10000 episodes" in "".join(shown)
    assert f"Interrupted after {len(done)} of 10000 episodes" in out.read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["r.html"]


def _until_seen(screen: int, pattern: str, process: subprocess.Popen[str]) -> list[str]:
    """Read what a terminal shows until a progress bar says that some of the work is done."""
    shown: list[str] = []
    deadline = time.monotonic() + 200.0
    while time.monotonic() < deadline and process.poll() is None:
        if select.select([screen], [], [], 0.1)[0]:
            shown.append(os.read(screen, 65536).decode(errors="replace"))
            if re.search(pattern, re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", "".join(shown))):
                return shown
    pytest.fail(f"no progress was shown (exit code {process.poll()}): {''.join(shown)[-500:]}")


def _read_all(screen: int, shown: list[str]) -> None:
    """Read until the other side of the terminal is closed, so that it never blocks the program."""
    with contextlib.suppress(OSError):
        while data := os.read(screen, 65536):
            shown.append(data.decode(errors="replace"))
