"""`fermata hpc` as a person runs it: figures, files and one-line errors."""

from __future__ import annotations

import contextlib
import csv
import importlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.windows import fermata_hpc

from fermata.policy.errors import InputError
from fermata.policy.registry import shipped_model
from fermata.sim.hpc.inspect import parameters
from fermata.sim.hpc.models import InspectorModel


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("hpc") / "drawn.swf.xz"
    done = fermata_hpc("generate", "--jobs", "400", "--seed", "3", "--load", "1.1", "--out", path)
    assert (done.returncode, done.stderr) == (0, "")
    return path


@pytest.fixture(scope="module")
def inspector(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An inspector to go on from: a search that begins with none imitates a rule first, which takes seconds."""
    pytest.importorskip("torch")
    from fermata.training.hpc.export import export_inspector

    path = tmp_path_factory.mktemp("inspector") / "start.onnx"
    export_inspector(InspectorModel("starts", 8, 128.0, np.zeros(parameters(8)), "sjf"), path)
    return path


def test_a_log_on_standard_output_is_one(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "fermata.cli", "hpc", "generate", "--jobs", "30", "--out", "-"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stderr) == (0, "30 jobs written to -\n")
    (tmp_path / "log.swf").write_text(done.stdout)
    told = fermata_hpc("simulate", "--log", tmp_path / "log.swf", "--policy", "sjf", "--json")
    assert json.loads(told.stdout)["jobs"] == 30


def test_simulate_writes_the_jobs_it_counts(log: Path, tmp_path: Path) -> None:
    out = tmp_path / "jobs.csv"
    done = fermata_hpc("simulate", "--log", log, "--policy", "saf+easy/skip", "--per-job", out, "--json")
    told = json.loads(done.stdout)
    rows = list(csv.DictReader(out.open(encoding="utf-8")))
    assert len(rows) == told["jobs"] == 400
    assert sum(float(row["wait_s"]) for row in rows) / 400 == pytest.approx(told["wait_s"])
    assert all(float(row["start_s"]) >= float(row["submit_s"]) for row in rows)


@pytest.mark.parametrize("command", ["simulate", "evaluate"])
def test_what_is_left_out_of_a_log_is_said_with_why(command: str, tmp_path: Path) -> None:
    lines = [f"{number} {number} -1 9 {cores} -1 -1 -1 9 -1 1" for number, cores in enumerate((1, 3, 2, 4, 5, 5), 1)]
    (tmp_path / "log.swf").write_text("\n".join(("; MaxProcs: 4", *lines, "9 9 -1 9 1 -1 -1 -1 9 -1 3")))
    options = {"evaluate": ("--part", "all", "--jobs", "2"), "simulate": ("--jobs", "4")}[command]
    done = fermata_hpc(command, "--log", tmp_path / "log.swf", "--policy", "sjf", *options)
    told = "2 jobs left out: wider than the machine\n1 job left out: partial execution\n"
    assert (done.returncode, done.stderr) == (0, told)


def test_what_is_of_no_job_has_a_dash(log: Path) -> None:
    done = fermata_hpc("simulate", "--log", log, "--policy", "sjf", "--jobs", "1")
    assert done.returncode == 0
    assert "nan" not in done.stdout
    assert "wait, long wide jobs (s)" in done.stdout


def test_evaluate_compares_on_the_same_sequences(log: Path) -> None:
    command = (
        "evaluate",
        "--log",
        log,
        "--sequences",
        "10",
        "--jobs",
        "100",
        "--policy",
        "sjf",
        "--policy",
        "sjf/skip",
    )
    long = ("--policy", "multifactor+conservative/strict", "--inspector", "reject-blocked:1000")
    told = json.loads(fermata_hpc(*command, "--json").stdout)
    assert [row["policy"] for row in told["policies"]] == ["sjf", "sjf/skip"]
    committed, free = told["policies"]
    assert committed["bsld"] > free["bsld"] > 1.0
    assert committed["ci95"]["wait_s"] > 0.0
    assert min(told["starts"]) >= 80, "the first fifth is for training"
    shown = fermata_hpc(*command, *long).stdout
    assert "bsld" in shown
    assert "wait" in shown
    assert f"{free['bsld']:.2f} ± {free['ci95']['bsld']:.2f}" in shown
    assert "multifactor+conservative/strict & reject-blocked:1000" in shown
    assert "…" not in shown
    assert committed["wait_s"] >= 1000.0
    assert f"{committed['wait_s']:,.0f} ± {committed['ci95']['wait_s']:,.0f}" in shown, "as in fermata hpc simulate"


@pytest.mark.training
def test_inspectors_of_several_folders_are_told_apart(log: Path, inspector: Path, tmp_path: Path) -> None:
    other = tmp_path / inspector.name
    shutil.copy(inspector, other)
    command = ("evaluate", "--log", log, "--policy", "sjf", "--sequences", "2", "--jobs", "40", "--json")
    beside = [word for each in (inspector, other, "reject-blocked") for word in ("--inspector", each)]
    told = json.loads(fermata_hpc(*command, *beside).stdout)
    names = ["sjf", f"sjf & {inspector}", f"sjf & {other}", "sjf & reject-blocked"]
    assert [row["policy"] for row in told["policies"]] == names


def test_progress_is_told_sequence_by_sequence(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shares: list[float] = []
    module = importlib.import_module("fermata.cli.hpc.evaluate")
    monkeypatch.setattr(module, "progress_bar", lambda _: contextlib.nullcontext(shares.append))
    command = ("evaluate", "--log", log, "--policy", "sjf", "--policy", "saf", "--sequences", "2", "--jobs", "40")
    assert fermata_hpc(*command).returncode == 0
    assert shares == [0.25, 0.5, 0.75, 1.0]


def test_tune_names_a_policy_that_evaluate_takes(log: Path) -> None:
    tuned = json.loads(fermata_hpc("tune", "--log", log, "--sequences", "3", "--jobs", "40", "--json").stdout)
    done = fermata_hpc(
        "evaluate", "--log", log, "--sequences", "3", "--jobs", "40", "--policy", tuned["policy"], "--json"
    )  # fmt: skip
    assert json.loads(done.stdout)["policies"][0]["bsld"] == pytest.approx(tuned["test"]["bsld"])


def test_one_sequence_has_no_interval_and_is_json_all_the_same(log: Path) -> None:
    done = fermata_hpc("tune", "--log", log, "--sequences", "1", "--jobs", "40", "--json")
    assert json.loads(done.stdout, parse_constant=pytest.fail)["ci95"] == {"bsld": None, "wait_s": None}


@pytest.mark.parametrize("command", [("tune",), ("evaluate", "--policy", "sjf")])
def test_one_sequence_has_no_interval_in_what_people_read(log: Path, command: tuple[str, ...]) -> None:
    shown = fermata_hpc(*command, "--log", log, "--sequences", "1", "--jobs", "40").stdout
    assert "bsld" in shown
    assert "±" not in shown
    assert "nan" not in shown


@pytest.mark.training
def test_a_trained_inspector_is_put_beside_its_scheduler(log: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    out, other = tmp_path / "tiny.onnx", tmp_path / "saf.onnx"
    settings = ("epochs=1", "trajectories=2", "jobs=20", "select_sequences=0", "policy_steps=1", "value_steps=1")
    tiny = ("train", "--log", log, *(word for each in settings for word in ("--set", each)))
    done = fermata_hpc(*tiny, "--out", other, "--set", 'policy="saf"')
    assert done.returncode == 0, done.stderr
    assert f"--policy saf --inspector {other}" in done.stdout
    row = json.loads(fermata_hpc(*tiny, "--out", out, "--json").stdout)["rows"][0]
    assert row["selected"] is None, "no sequences choose, and NaN is no JSON"
    folder = fermata_hpc(*tiny, "--out", tmp_path)
    assert (folder.returncode, folder.stderr) == (2, f"fermata: {tmp_path}: cannot write it: is a folder\n")
    command = ("evaluate", "--log", log, "--policy", "sjf", "--sequences", "3", "--jobs", "50", "--json")
    told = json.loads(fermata_hpc(*command, "--inspector", out, "--inspector", "reject-blocked").stdout)
    assert [row["policy"] for row in told["policies"]] == ["sjf", "sjf & tiny.onnx", "sjf & reject-blocked"]
    for wrong, told in (
        ("epochs=0", "epochs: Input should be greater than or equal to 1, got 0"),
        ("clip=Infinity", "clip: Input should be a finite number, got inf"),
        ("seed=99999999999999999999", "seed: Input should be less than 4294967296, got 99999999999999999999"),
        ("reward=native", """expects key=number, key=[...] or key="text", of which a shell takes the quotes"""),
        ("epoch=1", "epoch: no such key; there are: "),
    ):
        bad = fermata_hpc("train", "--log", log, "--out", out, "--set", wrong)
        assert (bad.returncode, bad.stderr.count("\n")) == (2, 1)
        assert bad.stderr.startswith(f"fermata: --set {told}")
    assert bad.stderr.rstrip().split(": ")[-1].split(", ")[:4] == ["policy", "scope", "features", "objective"]


@pytest.mark.training
@pytest.mark.parametrize(("options", "policy"), [((), "saf+easy/skip"), (("--policy", "saf"), "saf")])
def test_a_search_inspects_the_default_of_its_own_configuration(
    log: Path, inspector: Path, options: tuple[str, ...], policy: str, tmp_path: Path
) -> None:
    out = tmp_path / "tiny.onnx"
    settings = ("generations=0", "judged=2", "jobs=20", f'start="{inspector}"')
    tiny = ("train", "--log", log, "--method", "search", *(word for each in settings for word in ("--set", each)))
    done = fermata_hpc(*tiny, *options, "--out", out)
    assert done.returncode == 0, done.stderr
    assert f"--policy {policy} --inspector {out}" in done.stdout


@pytest.mark.training
def test_a_policy_over_the_queue_is_trained_and_evaluated(log: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    out = tmp_path / "tiny one.onnx"
    settings = ("generations=1", "pairs=1", "sequences=2", "judged=2", "jobs=20")
    options = [word for each in settings for word in ("--set", each)]
    given = ("--log", log, "--estimates", "exact", "--stretch", "1.5")
    done = fermata_hpc("train", *given, "--method", "queue", "--out", out, *options)
    assert done.returncode == 0, done.stderr
    judged = f"--log {log} --estimates exact --stretch 1.5 --policy '{out}'"
    assert done.stdout == f"{out} written; next: fermata hpc evaluate {judged}\n"
    unnamed = fermata_hpc("train", *given, "--method", "queue", "--out", tmp_path / "tiny", *options)
    assert unnamed.stderr == "fermata: --out: expected a name that ends in .onnx, got 'tiny'\n"
    command = ("evaluate", "--log", log, "--policy", str(out), "--policy", "queue-swift", "--sequences", "3", "--json")
    told = json.loads(fermata_hpc(*command, "--jobs", "50").stdout)
    assert [row["policy"] for row in told["policies"]] == [str(out), "queue-swift"]
    assert all(row["bsld"] >= 1.0 for row in told["policies"])


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("simulate", "--policy", "window:"), "'window:' names no file; expected window:FILE.onnx"),
        (("simulate", "--policy", "window"), "'window' names no file; expected window:FILE.onnx"),
        (("evaluate", "--policy", "foo"), "no order 'foo'; expected one of fcfs, lcfs"),
        (
            ("evaluate", "--policy", "queue-lazy"),
            "no policy over the queue 'queue-lazy'; expected one of queue-full, queue-swift",
        ),
        (("simulate", "--policy", "sjf", "--per-job", "-"), "--per-job: standard output has the figures; expected the"),
        # The log is not even read by then.
        (
            ("simulate", "--log", "/no", "--policy", "sjf", "--per-job", "/no/x"),
            "/no/x: cannot write it: no such folder",
        ),
        (("train", "--method", "queue", "--policy", "sjf", "--out", "x.onnx"), "--method queue decides alone"),
        (("train", "--method", "window", "--policy", "sjf", "--out", "x.onnx"), "--method window decides alone"),
        (("evaluate", "--policy", "none.onnx"), "none.onnx: cannot be read: No such file"),
        (("evaluate", "--policy", "sjf+lazy"), "no backfill 'lazy'; expected one of none, easy"),
        (("evaluate", "--policy", "sjf/lazy"), "no start 'lazy'; expected one of commit, strict, skip"),
        (("evaluate", "--policy", "sjf+reserve:over_s=1"), "expected +reserve:over_s=SECONDS,share=0..1"),
        (("evaluate", "--policy", "sjf+reserve:over_s=1,over_s=2"), "over_s=2': 'over_s' is there twice"),
        (("evaluate", "--policy", "sjf+reserve:over_s=1,share=.2,share=.4"), "share=.4': 'share' is there twice"),
        (("evaluate", "--policy", "multifactor:age=1,age=2"), "multifactor: 'age' is there twice"),
        (("evaluate", "--policy", "multifactor:nice=1"), "multifactor has no parameter 'nice'"),
        (("evaluate", "--policy", "sjf", "--estimates", "factor"), "estimates: expected exact, user, factor:F"),
        (("evaluate", "--policy", "sjf", "--jobs", "1000"), "test of drawn has 320 jobs; expected at least 1000"),
        (
            ("evaluate", "--policy", "sjf", "--inspector", f"reject-blocked:{10**20}"),
            "expected a whole number of rejections, 1 to 1000000000",
        ),
        (
            ("evaluate", "--policy", "sjf", "--policy", "queue-even", "--inspector", "reject-blocked"),
            "--inspector: queue-even holds jobs by itself",
        ),
        (("simulate", "--policy", "sjf", "--start", "399", "--jobs", "2"), "cannot take 2 from index 399"),
        (("simulate", "--policy", "sjf", "--start", "401"), "drawn has 400 jobs; cannot take 1 from index 401"),
        (("simulate", "--policy", "sjf/skip+published"), "expected one of commit, strict, skip"),
        (("simulate", "--policy", "sjf", "--cleaning", "none"), "--cleaning: expected archive or schedinspector"),
        (("simulate", "--policy", "sjf", "--stretch", "0"), "expected a number above 0 by which jobs take"),
        (("simulate", "--policy", "sjf", "--stretch", "1e308"), "drawn: expected times of at most 1e+15 s"),
    ],
)
def test_a_wrong_input_exits_two_with_one_line(log: Path, arguments: tuple[str, ...], complaint: str) -> None:
    if arguments[0] == "train":
        pytest.importorskip("torch", reason="needs the [training] extra")
    done = fermata_hpc(arguments[0], "--log", log, *arguments[1:])
    assert (done.returncode, done.stdout) == (2, "")
    assert complaint in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_log_is_not_written_over(log: Path) -> None:
    before = log.read_bytes()
    done = fermata_hpc("simulate", "--log", log, "--policy", "sjf", "--per-job", log)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"fermata: --log and --per-job name one file, '{log}'; expected two\n"
    assert log.read_bytes() == before


def test_a_model_is_not_written_over_and_a_page_takes_the_place_of_no_log(log: Path, tmp_path: Path) -> None:
    model = tmp_path / "mine.onnx"
    shutil.copy(shipped_model("queue-even"), model)
    before = model.read_bytes()
    for policy in (str(model), f"window:{model}"):
        done = fermata_hpc("simulate", "--log", log, "--policy", policy, "--per-job", model)
        told = f"fermata: --policy and --per-job name one file, '{model}'; expected two\n"
        assert (done.returncode, done.stderr) == (2, told)
    done = fermata_hpc("report", "--data", tmp_path, "--out", tmp_path / "lublin_256.swf.xz")
    told = "fermata: --out: expected the name of a page, such as results.md, got 'lublin_256.swf.xz'\n"
    assert (done.returncode, done.stderr) == (2, told)
    pytest.importorskip("torch", reason="needs the [training] extra")
    for name in ("start", "yardstick"):
        options = ("--method", "queue", "--set", f'{name}="{model}"', "--out", model)
        done = fermata_hpc("train", "--log", log, *options)
        told = f"fermata: --out and {name} name one file, '{model}'; expected two\n"
        assert (done.returncode, done.stderr) == (2, told)
    assert model.read_bytes() == before


@pytest.mark.parametrize("option", ["--jobs=99999999999999999999", "--load=1e-308"])
def test_what_cannot_be_drawn_is_told_and_nothing_is_written(option: str, tmp_path: Path) -> None:
    done = fermata_hpc("generate", option, "--out", tmp_path / "log.swf")
    assert (done.returncode, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr
    assert "Warning" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_page_is_not_measured_from_or_for_a_folder_that_is_not_there(tmp_path: Path) -> None:
    for missing in ("--data", "--inspectors", "--study", "--windows"):
        done = fermata_hpc("report", "--data", tmp_path, missing, tmp_path / "none", "--out", tmp_path / "page.md")
        assert (done.returncode, done.stderr) == (2, f"fermata: {tmp_path / 'none'}: no such folder\n")
    for out, why in (
        (tmp_path / "none" / "page.md", "cannot write it: no such folder"),
        (tmp_path, "cannot write it: is a folder"),
        ("-", "standard output has the figures; expected the name of a file"),
    ):
        done = fermata_hpc("report", "--data", tmp_path, "--out", out)
        assert (done.returncode, done.stderr) == (2, f"fermata: {out}: {why}\n")


@pytest.mark.training
@pytest.mark.parametrize("own", ["head=5", "tail=0", "seed=9"])
def test_what_names_an_agents_file_cannot_be_set(own: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.setitem(sys.modules, "fermata.training.hpc.export", None)  # torch, whose import takes seconds
    done = fermata_hpc("windows", "--out", tmp_path / "agents", "--set", own)
    assert (done.returncode, done.stderr) == (2, f"fermata: --set {own.partition('=')[0]}: every agent has its own\n")
    assert not (tmp_path / "agents").exists()


@pytest.mark.training
def test_agents_are_not_trained_to_be_judged_on_too_short_a_log(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    monkeypatch.setitem(sys.modules, "fermata.training.hpc.export", None)
    done = fermata_hpc("windows", "--out", tmp_path / "agents", "--log", log)
    assert (done.returncode, done.stderr) == (2, "fermata: drawn has 400 jobs; cannot take 10000 from index 0\n")
    assert not (tmp_path / "agents").exists()


@pytest.mark.training
def test_a_folder_without_agents_keeps_to_no_settings(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from fermata.cli.hpc.windows import _keep_to

    for iterations in (1, 2):  # the first was ended before it had trained one
        _keep_to({"iterations": iterations}, tmp_path / "settings.json")
    (tmp_path / "window-10+0-seed0.onnx").touch()
    with pytest.raises(InputError, match=r"trained with --set .*2.*, not .*1"):
        _keep_to({"iterations": 1}, tmp_path / "settings.json")


@pytest.mark.training
@pytest.mark.parametrize(
    ("method", "setting"),
    [
        ("ppo", "accept_bias=1e39"),
        ("ppo", "policy_rate=1e30"),
        ("search", "rate=2"),
        ("queue", "rate=1e308"),
        ("window", "fwd_bias=1e39"),
    ],
)
def test_a_number_that_no_network_can_take_is_named(log: Path, method: str, setting: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    done = fermata_hpc("train", "--log", log, "--method", method, "--set", setting, "--out", tmp_path / "model.onnx")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"fermata: --set {setting.partition('=')[0]}: ")
    assert done.stderr.count("\n") == 1
