"""Where a run or a model cannot be written, or what an export reads is none, the command says so in one line."""

from __future__ import annotations

import io
import json
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs the [training] extra")

from fermata.cli.main import run
from fermata.sim.scenarios import scenario
from fermata.sim.trace_io import write_trace
from fermata.training.evaluate import Score

pytestmark = pytest.mark.training


@pytest.mark.parametrize("config", ["smoke", "graph-smoke"])
def test_a_folder_that_cannot_be_made(
    config: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file"
    file.write_text("not a folder")
    monkeypatch.setattr(sys, "argv", ["fermata", "train", "--config", config, "--out", str(file / "run")])
    with pytest.raises(SystemExit) as exit_:
        run()
    assert exit_.value.code == 2
    assert capsys.readouterr().err == f"fermata: {file / 'run'}: cannot make the folder: {file} is none\n"


@pytest.mark.parametrize("command", ["train", "ablate"])
def test_a_run_is_not_kept_on_standard_output(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("not a folder")
    for out, words in (("-", "expected the name of a folder"), ("file", "cannot make the folder: file is none")):
        line = told([command, "--config", "graph-smoke", "--out", out], monkeypatch, capsys)
        assert line == f"fermata: {out}: {words}\n"
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_an_empty_name_of_a_configuration_is_not_the_default_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As of a variable that is not set."""
    line = told(["train", "--config", "", "--out", tmp_path / "run"], monkeypatch, capsys)
    assert line.startswith("fermata: .: Is a directory; expected a YAML file or one of: default, ")
    assert not (tmp_path / "run").exists()


def told(
    arguments: list[object], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], code: int = 2
) -> str:
    monkeypatch.setattr(sys, "argv", ["fermata", *map(str, arguments)])
    with pytest.raises(SystemExit) as exit_:
        run()
    assert exit_.value.code == code
    return capsys.readouterr().err


@pytest.mark.parametrize("option", ["--out", "--card"])
def test_what_cannot_be_written_is_told_before_the_run_is_read(
    option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names = {"--out": tmp_path / "p.onnx", option: tmp_path / "none" / "file"}
    arguments = [each for pair in names.items() for each in pair]
    line = told(["export-onnx", tmp_path, *arguments], monkeypatch, capsys)
    assert line == f"fermata: {names[option]}: cannot write it: no such folder\n"


@pytest.mark.parametrize("config", ["smoke", "graph-smoke"])
@pytest.mark.parametrize("odd", ["--out", "--trace"])
def test_names_that_are_no_text_are_told_before_anything_is_begun(
    odd: str, config: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names = {"--out": tmp_path / "run", "--trace": tmp_path / "trace"}
    names[odd] = tmp_path / "\udcff"  # one byte, 0xff, as Python spells it
    write_trace(scenario("express_k2").with_(jobs=300, warm=0).generate(5), names["--trace"])
    arguments = [each for pair in names.items() for each in pair]
    assert isinstance(sys.stderr, io.TextIOWrapper)
    sys.stderr.reconfigure(errors="backslashreplace")  # as it is outside of tests
    line = told(["train", "--config", config, "--executors", "2", *arguments], monkeypatch, capsys)
    assert line == f"fermata: {tmp_path}/\\udcff: expected a name that is UTF-8 text\n"
    assert not names["--out"].exists()


def test_a_card_is_not_written_over_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tmp_path / "p.onnx"
    line = told(["export-onnx", tmp_path, "--out", model, "--card", model], monkeypatch, capsys)
    assert line == f"fermata: --out and --card name one file, '{model}'; expected two\n"
    assert not model.exists()


def test_a_model_whose_name_no_command_would_take_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    line = told(["export-onnx", tmp_path, "--out", tmp_path / "model.bin"], monkeypatch, capsys)
    assert line == "fermata: --out: expected a name that ends in .onnx, got 'model.bin'\n"


@pytest.mark.parametrize("content", [b"", b"\xff", b"[]", b"3", b"{}", b'{"method": "x"}', b'{"method": "evolution"}'])
def test_a_run_whose_configuration_is_none(
    content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.json").write_bytes(content)
    line = told(["export-onnx", tmp_path, "--out", tmp_path / "p.onnx"], monkeypatch, capsys)
    assert line.startswith(f"fermata: {tmp_path / 'config.json'}:")
    assert line.endswith(("not JSON: Expecting value\n", "expected UTF-8 text\n", "use another --out\n"))
    assert line.count("\n") == 1


@pytest.mark.parametrize("config", ["smoke", "graph-smoke"])
@pytest.mark.parametrize("content", ['{"model_type": "bert"}', '{"method": "x"}', "[1]"])
def test_another_program_s_configuration_is_left_alone(
    content: str, config: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.json").write_text(content)
    line = told(["train", "--config", config, "--out", tmp_path], monkeypatch, capsys)
    assert line.startswith(f"fermata: {tmp_path}")
    assert line.endswith("; use another --out\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", "config.json"]


TEACHER = """
name: tiny
seed: 1
workloads: {executors: [2, 2], load: [0.5, 0.6], dag_share: 0.0}
teacher: {futures: 1, horizon: [60, 100], library: 1000}
rounds: [{behaviour: tuned, rollouts: tuned, scenarios: 2, states: 5}]
fit: {hidden: [4, 4], epochs: 1}
"""
GRAPH = """
name: tiny
method: reinforce
seed: 1
iterations: 1
network: {width: 4, hidden: 4, rounds: 0}
workloads: {executors: [2, 2], load: [0.5, 0.6], dag_share: 0.0}
rollouts: {sequences: 1, repeats: 2, jobs: [8, 8], warm_jobs: 2}
selection: {episodes: 2, jobs: 8}
"""


@pytest.mark.parametrize("config", [TEACHER, GRAPH], ids=["teacher", "graph"])
def test_a_folder_where_nothing_was_learned_takes_the_corrected_configuration(
    config: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file, out = tmp_path / "tiny.yaml", tmp_path / "run"
    arguments = ["train", "--config", file, "--out", out, "--processes", 1]
    file.write_text(config.replace("0.5, 0.6", "1.e-12, 1.e-12"))  # jobs come later than any trace may say
    assert "arrival_s must be a number of seconds" in told(arguments, monkeypatch, capsys)
    file.write_text(config)
    told(arguments, monkeypatch, capsys, code=0)
    assert json.loads((out / "config.json").read_text())["workloads"]["load"] == [0.5, 0.6]
    file.write_text(config.replace("seed: 1", "seed: 2"))
    assert "holds a run of another configuration (seed is not the same)" in told(arguments, monkeypatch, capsys)


@pytest.mark.parametrize(
    "content", [b"\xff", b"[]", b'{"seeds": 1, "scenarios": 3}', b'{"seeds": [1], "scenarios": {"a": {"seeds": 1}}}']
)
def test_scores_that_are_none(
    content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scores = tmp_path / "scores.json"
    scores.write_bytes(content)
    line = told(["export-onnx", tmp_path, "--out", tmp_path / "p.onnx", "--scores", scores], monkeypatch, capsys)
    assert line.startswith(f"fermata: {scores}: ")
    assert line.endswith(("expected UTF-8 text\n", "expected the output of fermata evaluate --json\n"))


def test_scores_of_some_of_the_seeds_are_not_told_as_those_of_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scores, score = tmp_path / "scores.json", Score("a", "SJF", 1, 9.0, 1.0, 10.0, -10.0, 1.0, 0.0, 0.0, 0.0)
    played = {"seeds": [1, 2], "scenarios": {"a": asdict(score)}, "interrupted": True}
    scores.write_text(json.dumps(played), encoding="utf-8")
    line = told(["export-onnx", tmp_path, "--out", tmp_path / "p.onnx", "--scores", scores], monkeypatch, capsys)
    assert line == f"fermata: {scores}: was interrupted, so not all of its seeds were played; evaluate again\n"


@pytest.mark.parametrize("policy", ["default", "sjf-hold:tau=1"])
def test_scores_of_another_policy_are_not_kept_as_those_of_a_run(
    policy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scores, score = tmp_path / "scores.json", Score("a", "SJF", 1, 9.0, 1.0, 10.0, -10.0, 1.0, 0.0, 0.0, 0.0)
    scores.write_text(json.dumps({"policy": policy, "seeds": [1], "scenarios": {"a": asdict(score)}}), encoding="utf-8")
    line = told(["export-onnx", tmp_path, "--out", tmp_path / "p.onnx", "--scores", scores], monkeypatch, capsys)
    assert line == (
        f"fermata: {scores}: these are the scores of {policy!r}, not of a file that the run was exported to\n"
    )


def test_an_error_without_a_file_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise OSError("no such thing")

    monkeypatch.setattr("fermata.cli.main.app", broken)
    with pytest.raises(OSError, match="no such thing"):
        run()
