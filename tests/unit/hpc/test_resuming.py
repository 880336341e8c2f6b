"""Trainings of rigid jobs that were ended: the same command goes on, and ends with the same file."""

from __future__ import annotations

import json
import lzma
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.processes import INTERRUPTED, interruptible
from tests.windows import fermata_hpc

from fermata.policy.errors import InputError
from fermata.sim.hpc import study, window_study
from fermata.sim.hpc.inspect import parameters
from fermata.sim.hpc.lublin import generate
from fermata.sim.hpc.models import InspectorModel
from fermata.sim.hpc.swf import swf_lines

pytestmark = pytest.mark.training
pytest.importorskip("torch")

from fermata.training import files
from fermata.training.hpc import runs
from fermata.training.hpc.config import InspectorConfig
from fermata.training.hpc.export import export_inspector
from fermata.training.hpc.inspectors import search_inspector
from fermata.training.hpc.queue import train_queue_policy
from fermata.training.hpc.runs import Kept, Trained, kept_beside
from fermata.training.hpc.search_config import InspectorSearchConfig, QueueConfig
from fermata.training.hpc.train import train_inspector
from fermata.training.hpc.window_config import WindowConfig
from fermata.training.hpc.window_train import train_window

LOG = generate(600, 3, load=1.1)
SEARCH: dict[str, Any] = {"generations": 12, "pairs": 1, "sequences": 2, "judged": 2, "jobs": 40}
Tell = Callable[[Any], None]


def ppo(kept: Kept | None, tell: Tell | None = None, **changes: Any) -> Any:
    tiny = {"epochs": 4, "trajectories": 4, "jobs": 40, "select_sequences": 3, "policy_steps": 3, "value_steps": 3}
    return train_inspector(LOG, InspectorConfig(**tiny | changes), part="all", on_epoch=tell, kept=kept)


def search(kept: Kept | None, tell: Tell | None = None) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        start = Path(folder, "start.onnx")  # imitating a rule takes seconds
        export_inspector(InspectorModel("starts", 11, 128.0, np.zeros(parameters(11)), "sjf"), start)
        config = InspectorSearchConfig(**SEARCH | {"generations": 3}, features=11, start=str(start))
        return search_inspector(LOG, config, part="all", on_generation=tell, kept=kept)


def queue(kept: Kept | None, tell: Tell | None = None) -> Any:
    config = QueueConfig(**SEARCH, estimates=("accuracy", "exact"))
    return train_queue_policy(LOG, config, part="all", on_generation=tell, kept=kept)


def window(kept: Kept | None, tell: Tell | None = None) -> Any:
    tiny = {"head": 4, "tail": 4, "iterations": 6, "sequences": 2, "copies": 2, "jobs": 60, "judged": 3}
    return train_window(LOG, WindowConfig(**tiny, epochs=2, minibatches=2), part="all", on_iteration=tell, kept=kept)


class KilledError(BaseException):
    """Stands for the end of the process."""


def untimed(rows: list[Any]) -> list[dict[str, Any]]:
    return [{name: value for name, value in vars(row).items() if name != "wall_s"} for row in rows]


def kill_at_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """End the process, as it were, once the state after a step is written."""
    write = files.write_bytes

    def killed(path: Path, content: bytes) -> None:
        write(path, content)
        if path.name == runs.STATE_FILE:
            raise KilledError

    monkeypatch.setattr(files, "write_bytes", killed)


@pytest.mark.parametrize("train", [ppo, search, queue, window])
def test_a_run_that_is_killed_at_every_step_is_as_one_that_was_not(
    train: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows: list[Any] = []
    whole = train(None, rows.append)
    kept = Kept(tmp_path / "state.pt")
    kill_at_every_step(monkeypatch)
    for _ in range({ppo: 4, search: 3, queue: 12, window: 6}[train]):
        with pytest.raises(KilledError):
            train(kept)
    told: list[Any] = []
    resumed = train(kept, told.append)
    assert resumed.metadata() == whole.metadata()
    np.testing.assert_array_equal(resumed.theta, whole.theta)
    assert untimed(told) == untimed(rows)
    assert kept.was_done


@pytest.mark.parametrize("command", ["study", "windows"])
def test_a_comparison_that_is_killed_goes_on_with_the_model_in_hand(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny: dict[str, Any] = {"trajectories": 2, "select_sequences": 2, "policy_steps": 2, "value_steps": 2, "jobs": 40}
    cases = (study.Case("one", "", options=tiny | {"epochs": 2}), study.Case("two", "", options=tiny | {"epochs": 1}))
    monkeypatch.setattr(study, "CASES", cases)
    monkeypatch.setattr(window_study, "CASES", (window_study.Case(4, 4), window_study.Case(8, 0)))
    monkeypatch.setattr(window_study, "TRAINING_JOBS", 600)
    log = tmp_path / f"{study.LUBLIN}.swf.xz"
    log.write_bytes(lzma.compress("\n".join(swf_lines(LOG, "")).encode()))
    options: list[str | Path] = ["--data", tmp_path]
    if command == "windows":
        settings = ("iterations=2", "sequences=1", "copies=1", "jobs=40", "judged=1", "minibatches=1")
        options = [word for each in settings for word in ("--set", each)]
    whole, out = tmp_path / "whole", tmp_path / "killed"
    assert fermata_hpc(command, "--out", whole, *options).returncode == 0
    with monkeypatch.context() as patch:
        kill_at_every_step(patch)
        for _ in range({"study": 3, "windows": 4}[command]):
            with pytest.raises(KilledError):
                fermata_hpc(command, "--out", out, *options)
        assert fermata_hpc(command, "--out", out, *options).returncode == 0  # every step was done once
    models = {path.name: path.read_bytes() for path in whole.glob("*.onnx")}
    assert len(models) == 2
    assert {path.name: path.read_bytes() for path in out.glob("*.onnx")} == models


def command(log: Path, out: Path, *settings: str) -> tuple[str, ...]:
    chosen = ("trajectories=2", "jobs=20", "select_sequences=2", "policy_steps=2", "value_steps=2", *settings)
    options = (word for each in chosen for word in ("--set", each))
    return ("train", "--log", str(log), "--part", "all", "--out", str(out), *options)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("hpc") / "drawn.swf"
    assert fermata_hpc("generate", "--jobs", "300", "--seed", "3", "--load", "1.2", "--out", path).returncode == 0
    return path


def begun(log: Path, out: Path, *settings: str) -> subprocess.Popen[str]:
    """Start a training, and wait until something of it is kept."""
    words = [sys.executable, "-m", "fermata.cli", "hpc", *command(log, out, *settings)]
    process = interruptible(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    state, deadline = out.with_name(f"{out.name}.run") / "state.pt", time.monotonic() + 100.0
    while not state.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    assert state.exists(), process.communicate()
    return process


def test_the_same_command_goes_on_after_a_kill_and_says_when_all_is_done(log: Path, tmp_path: Path) -> None:
    whole, out = tmp_path / "whole.onnx", tmp_path / "killed.onnx"
    assert fermata_hpc(*command(log, whole, "epochs=40")).returncode == 0
    process = begun(log, out, "epochs=40")
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    again = [fermata_hpc(*command(log, out, "epochs=40")) for _ in range(2)]
    assert out.read_bytes() == whole.read_bytes()
    judged = f"next: fermata hpc evaluate --log {log} --policy sjf --inspector {out}\n"
    told = f"was trained already (without the folder {out}.run it is trained anew)"
    assert again[1].stdout == f"{out} {told}; {judged}"
    rows = json.loads(fermata_hpc(*command(log, out, "epochs=40"), "--json").stdout)["rows"]
    assert [row["number"] for row in rows] == [*range(40)]
    out.unlink()
    assert fermata_hpc(*command(log, out, "epochs=40")).stdout == f"{out} written; {judged}"
    assert out.read_bytes() == whole.read_bytes()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_says_that_the_run_goes_on(number: signal.Signals, log: Path, tmp_path: Path) -> None:
    process = begun(log, tmp_path / "endless.onnx", "epochs=1000000")
    try:
        os.killpg(process.pid, number)
        _, stderr = process.communicate(timeout=100)
    finally:
        process.kill()
    assert process.returncode in INTERRUPTED
    assert stderr == "fermata: interrupted; the same command goes on where it was\n"


def test_another_run_beside_the_same_file_is_refused(log: Path, tmp_path: Path) -> None:
    out, other = tmp_path / "a.onnx", tmp_path / "other.swf"
    assert fermata_hpc(*command(log, out, "epochs=1")).returncode == 0
    before = out.read_bytes()
    assert fermata_hpc("generate", "--jobs", "300", "--seed", "4", "--load", "1.2", "--out", other).returncode == 0
    for field, wrong in (
        ("options.epochs", command(log, out, "epochs=2")),
        ("log", command(other, out, "epochs=1")),
        ("log", (*command(log, out, "epochs=1"), "--stretch", "1.1")),
        ("options.seed", (*command(log, out, "epochs=1"), "--seed", "1")),
    ):
        refused = fermata_hpc(*wrong)
        told = f"holds a run of another configuration ({field} is not the same); use another --out"
        assert (refused.returncode, refused.stderr) == (2, f"fermata: {out}.run: {told}\n")
    assert out.read_bytes() == before


def test_what_a_search_goes_on_from_is_part_of_its_run(tmp_path: Path) -> None:
    start = tmp_path / "start.onnx"
    digests = []
    for value in (0.0, 1.0):
        export_inspector(InspectorModel("starts", 8, 128.0, np.full(parameters(8), value), "sjf"), start)
        digests.append(Trained.of("search", LOG, "all", InspectorSearchConfig(start=str(start))).digest)
    assert digests[0] != digests[1]


@pytest.mark.parametrize("kind", ["", "window:"])
def test_a_model_that_is_the_measure_of_a_search_is_part_of_its_run(kind: str, tmp_path: Path) -> None:
    measure = tmp_path / "measure.onnx"
    config = QueueConfig(yardstick=f"{kind}{measure}")
    measure.write_bytes(b"one")
    with kept_beside(tmp_path / "a.onnx", Trained.of("queue", LOG, "all", config)) as kept:
        assert kept is not None
        kept.path.write_bytes(b"learned")
    measure.write_bytes(b"another")
    with (
        pytest.raises(InputError, match=r"\(options.yardstick_sha256 is not the same\)"),
        kept_beside(tmp_path / "a.onnx", Trained.of("queue", LOG, "all", config)),
    ):
        pass


def test_what_is_kept_is_this_runs_or_the_file_is_named(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "state.pt")
    whole = queue(kept)
    intact = kept.path.read_bytes()
    kept.path.write_bytes(intact[:-300])
    with pytest.raises(InputError, match=f"^{kept.path}: is damaged; delete it and train again$"):
        queue(kept)
    told = f"^{kept.path}: is of another network or another version; delete it and train again$"
    kept.path.write_bytes(intact)
    for other in (ppo, search, window):
        with pytest.raises(InputError, match=told):
            other(kept)
    kept.path.unlink()
    ppo(kept)
    with pytest.raises(InputError, match=told):
        ppo(kept, features=7)
    kept.path.unlink()
    np.testing.assert_array_equal(queue(kept).theta, whole.theta)


def test_what_never_learned_leaves_no_folder_and_others_are_left_alone(log: Path, tmp_path: Path) -> None:
    out, theirs = tmp_path / "a.onnx", tmp_path / "b.onnx.run" / "notes.txt"
    theirs.parent.mkdir()
    theirs.write_text("kept")
    for path in (out, tmp_path / "b.onnx"):
        refused = fermata_hpc(*command(log, path, "jobs=301"))
        assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [theirs]
    assert not out.with_name("a.onnx.run").exists()


def test_a_pipe_is_given_a_model_and_no_folder(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with kept_beside(tmp_path / "pipe", Trained.of("ppo", LOG, "all", InspectorConfig())) as kept:
        assert kept is None
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]


def test_one_process_at_a_time_trains_a_model(tmp_path: Path) -> None:
    trained = Trained.of("ppo", LOG, "all", InspectorConfig())
    with (
        kept_beside(tmp_path / "a.onnx", trained),
        pytest.raises(InputError, match=r"another training is at work here; use another --out$"),
        kept_beside(tmp_path / "a.onnx", trained),
    ):
        pass
    assert runs.STATE_FILE not in [path.name for path in tmp_path.rglob("*")]
