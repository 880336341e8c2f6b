"""Files of a training run: whole or not there, and a damaged one is told by name, with what to do."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from tests.disk import files_end_at

torch = pytest.importorskip("torch", reason="needs the [training] extra")

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from fermata.policy.errors import InputError
from fermata.training import files
from fermata.training.config import TrainConfig, read_config
from fermata.training.curves import Curves
from fermata.training.threshold import State
from fermata.training.train import read_run, train

pytestmark = pytest.mark.training

LARGE = np.random.default_rng(1).random(20_000)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("training") / "run"
    train(config(), run)
    return run


def config() -> TrainConfig:
    smoke = read_config("smoke")
    fit = smoke.fit.model_copy(update={"tries": 2, "kept": 2, "epochs": 2})
    assert smoke.search is not None
    search = smoke.search.model_copy(update={"generations": (1, 0)})
    return smoke.model_copy(update={"fit": fit, "search": search, "processes": 1})


def same(one: dict[str, object], other: dict[str, object]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one.values(), other.values(), strict=True))


def write_weights(path: Path) -> None:
    files.write_weights(path, {"w": torch.from_numpy(LARGE)})


def write_arrays(path: Path) -> None:
    files.write_arrays(path, {"x": LARGE, "y": LARGE[:3]})


@pytest.mark.parametrize("write", [write_weights, write_arrays])
def test_a_full_disk_leaves_what_was_there(write: object, tmp_path: Path) -> None:
    assert callable(write)
    path = tmp_path / "file"
    path.write_text("old")
    with files_end_at(10_000), pytest.raises(InputError, match=f"^{path}: cannot write it: File too large$"):
        write(path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
    write(path)
    assert path.stat().st_size > 20_000
    assert list(tmp_path.iterdir()) == [path]


def test_a_point_of_a_curve_is_written_at_once_or_the_file_is_named(tmp_path: Path) -> None:
    Curves(tmp_path).add_scalar("loss", 0.5, 1)
    curves = Curves(tmp_path, purge_step=2)
    curves.add_scalar("loss", 0.25, 2)
    read = EventAccumulator(str(tmp_path / "tensorboard")).Reload().Scalars("loss")
    assert [(each.step, each.value) for each in read] == [(1, 0.5), (2, 0.25)]
    file = max((tmp_path / "tensorboard").iterdir())  # one, unless a second began in between
    with (
        files_end_at(file.stat().st_size),
        pytest.raises(InputError, match=f"^{re.escape(str(file))}: cannot write it: File too large$"),
    ):
        curves.add_scalar("loss", 0.125, 3)


def test_a_model_that_fails_its_check_leaves_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_text("old")
    with pytest.raises(ZeroDivisionError), files.draft_of(path, b"new") as draft:
        draft.stat().st_size // 0
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_leaves_the_model_that_was_there(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_text("old")
    with (
        files_end_at(10_000),
        pytest.raises(InputError, match=r"draft\.onnx: cannot write it: File too large$"),
        files.draft_of(path, LARGE.tobytes()),
    ):
        pass
    with (
        ExitStack() as later,
        pytest.raises(InputError, match=f"^{path}: cannot write it: File too large$"),
        files.draft_of(path, LARGE.tobytes()),
    ):
        later.enter_context(files_end_at(10_000))
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_an_export_that_is_killed_leaves_nothing_beside_the_model(tmp_path: Path) -> None:
    out = tmp_path / "model.onnx"
    killed = "import os, sys, pathlib\nfrom fermata.training.files import draft_of\n"
    killed += "with draft_of(pathlib.Path(sys.argv[1]), b'model'): os.kill(os.getpid(), 9)"
    (tmp_path / "tmp").mkdir()
    environment = os.environ | {"TMPDIR": str(tmp_path / "tmp")}
    subprocess.run([sys.executable, "-c", killed, str(out)], env=environment, check=False)
    assert list((tmp_path / "tmp").rglob("draft.onnx")), "it was at work"
    assert [path.name for path in tmp_path.iterdir()] == ["tmp"]


def test_a_model_goes_into_a_pipe_that_stays_one(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE) as reader:
        with files.draft_of(pipe, b"new") as draft:
            assert draft.read_bytes() == b"new"
        assert pipe.is_fifo()
        assert reader.communicate(timeout=20)[0] == b"new"
    assert list(tmp_path.iterdir()) == [pipe]


@pytest.mark.parametrize("kind", ["weights", "arrays"])
def test_what_is_read_is_what_was_written_or_an_error(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    small = {"x": np.arange(40.0), "y": np.ones((2, 3))}
    if kind == "arrays":
        files.write_arrays(path, small)
    else:
        files.write_weights(path, {name: torch.from_numpy(value) for name, value in small.items()})
    whole, random = path.read_bytes(), np.random.default_rng(2)
    harms = [whole[:length] for length in range(0, len(whole), 7)]
    for place in random.integers(0, len(whole), 300):
        harms += [
            whole[:place] + bytes([whole[place] ^ int(random.integers(1, 256))]) + whole[place + 1 :],
            whole[:place] + whole[place + int(random.integers(1, 400)) :],
        ]
    refused = 0
    for harmed in harms:
        path.write_bytes(harmed)
        try:
            read = files.read_arrays(path, ("x", "y")) if kind == "arrays" else files.read_weights(path)
        except InputError:
            refused += 1
            continue
        # Not every byte of an archive says something.
        for name, value in small.items():
            np.testing.assert_array_equal(np.asarray(read[name]), value)
    assert refused > 0.7 * len(harms)


@pytest.mark.parametrize("name", ["network-1.pt", "kept.pt", "threshold-1.npz"])
def test_a_damaged_file_is_deleted_and_made_again(name: str, finished: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    damaged = run / name
    damaged.write_bytes(damaged.read_bytes()[:50])
    told = f"^{damaged}: is damaged; delete it and train again$"
    with pytest.raises(InputError, match=told):
        read_run(run)
    with pytest.raises(InputError, match=told):
        train(config(), run)
    damaged.unlink()
    with pytest.raises(InputError, match="fermata train"):
        read_run(run)
    train(config(), run)
    assert same(read_run(run)[1].state_dict(), read_run(finished)[1].state_dict())


@pytest.mark.parametrize("left", [b'{"name": ', None])
def test_what_was_learned_under_a_configuration_that_nobody_knows_is_given_to_no_other(
    left: bytes | None, finished: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    (run / "config.json").unlink()
    if left is not None:
        (run / "config.json").write_bytes(left)
    told = (
        f"^{run}: holds what a run has learned, and no config.json that says of which configuration; use another --out$"
    )
    with pytest.raises(InputError, match=told):
        train(config().model_copy(update={"seed": 2}), run)


def test_what_lies_deeper_in_a_folder_was_not_learned_there(tmp_path: Path) -> None:
    for name in ("data/x.npz", "mine/network.pt"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).touch()
    files.claim(tmp_path, config(), lambda noted: True)
    assert files.read_note(tmp_path / "config.json", type(config())).digest == config().digest


@pytest.mark.parametrize("left", [b"", b'{"name": "graph-smoke", "meth', b"\xff"])
def test_a_configuration_that_was_cut_short_is_of_no_other_kind_of_run(left: bytes, tmp_path: Path) -> None:
    note = tmp_path / "config.json"
    note.write_bytes(left)
    with pytest.raises(InputError, match=f"^{note}: is damaged; delete it and train again$"):
        files.claim(tmp_path, config(), lambda noted: b'"method"' in noted)


class KilledError(BaseException):
    """Stands for the end of the process."""


@pytest.mark.parametrize(("name", "times"), [("kept.pt", 1), ("threshold-1.npz", 2)])
def test_a_run_killed_between_its_files_gives_the_same_network(
    name: str, times: int, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, seen, write = tmp_path / "run", list[str](), files.write_bytes
    shutil.copytree(finished / "labels", run / "labels")
    shutil.copy(finished / "config.json", run)

    def killed(path: Path, content: bytes) -> None:
        seen.append(path.name)
        if seen.count(name) == times:
            raise KilledError
        write(path, content)

    monkeypatch.setattr(files, "write_bytes", killed)
    with pytest.raises(KilledError):
        train(config(), run)
    monkeypatch.undo()
    with pytest.raises(InputError, match="not finished"):
        read_run(run)
    train(config(), run)
    assert same(read_run(run)[1].state_dict(), read_run(finished)[1].state_dict())


def wrong_weights(path: Path) -> None:
    files.write_weights(path, {"0": [{"w": torch.zeros(3)}]})


def no_list(path: Path) -> None:
    files.write_weights(path, {"0": torch.zeros(3)})


def no_weights(path: Path) -> None:
    files.write_weights(path, {"0": []})


def wrong_search(path: Path) -> None:
    files.write_arrays(path, {name: np.zeros(7) for name in State._fields})


def wrong_labels(path: Path) -> None:
    files.write_arrays(path, {"x": np.zeros((5, 3)), "y": np.zeros((5, 3))})


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("network-1.pt", wrong_weights),
        ("kept.pt", wrong_weights),
        ("kept.pt", no_weights),
        ("kept.pt", no_list),
        ("labels/labels-0-00001.npz", wrong_labels),
        ("threshold-1.npz", wrong_search),
    ],
)
def test_a_file_of_another_run_is_named(name: str, write: object, finished: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    if name.startswith("labels"):
        (run / "network-1.pt").unlink()
    assert callable(write)
    write(run / name)
    told = f"^{run / name}: is of another network or another version; delete it and train again$"
    with pytest.raises(InputError, match=told):
        train(config(), run)


def test_one_process_at_a_time_trains_in_a_folder(finished: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    with (
        files.locked(run),
        pytest.raises(InputError, match=f"^{run}: another training is at work here; use another --out$"),
    ):
        train(config(), run)
    train(config(), run)


def test_what_a_killed_process_had_half_written_is_gone(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with files.locked(run):
        files.write_arrays(run / "whole.npz", {"x": LARGE})
        (run / "labels").mkdir()
        killed = "import sys; from fermata.training.files import *\nwith atomic_output(sys.argv[1]): os._exit(1)"
        for name in ("network.pt", "labels/labels-0-00000.npz"):
            subprocess.run([sys.executable, "-c", "import os;" + killed, str(run / name)], check=False)
    assert len(list(run.rglob("*.npz.*"))) == len(list(run.glob(".network.pt.*"))) == 1
    with files.locked(run):
        assert {path.name for path in run.rglob("*")} == {".lock", "whole.npz", "labels"}


def test_hidden_files_of_others_in_the_folder_of_a_run_are_left_alone(tmp_path: Path) -> None:
    others = [tmp_path / name for name in (".env.template", ".bashrc.20250101", "app/.model.defaults")]
    (tmp_path / "app").mkdir()
    for path in others:
        path.write_text("kept")
    with files.locked(tmp_path):
        assert [path.read_text() for path in others] == ["kept"] * 3


def test_labels_of_an_earlier_round_are_made_again(finished: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    (run / "network-1.pt").unlink()
    damaged = run / "labels" / "labels-0-00002.npz"
    before = damaged.read_bytes()
    damaged.write_bytes(before[:500])
    with pytest.raises(InputError, match=f"^{damaged}: is damaged"):
        train(config(), run)
    damaged.unlink()
    train(config(), run)
    assert damaged.read_bytes() == before
    assert same(read_run(run)[1].state_dict(), read_run(finished)[1].state_dict())
