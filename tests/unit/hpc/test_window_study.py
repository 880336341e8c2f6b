"""Deep Back-Filling's evaluation: the command trains what is missing, and the tables show what was measured."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

from fermata.policy.errors import InputError
from fermata.sim.hpc import policy
from fermata.sim.hpc.experiment import Sequences, pooled, run_sequences
from fermata.sim.hpc.lublin import generate
from fermata.sim.hpc.report import markdown_table
from fermata.sim.hpc.window_models import KEY, load_window_model, shortest_first
from fermata.sim.hpc.window_study import CASES, SIZES, SPLITS, stale_shares, windows_section

pytestmark = pytest.mark.training
pytest.importorskip("torch")

from fermata.training.hpc.export import export_window_model


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of all cases, each the same rule with another window: one export, and other descriptions of it."""
    folder = tmp_path_factory.mktemp("windows")
    export_window_model(shortest_first(1, 0), folder / "rule.onnx")
    model = onnx.load(folder / "rule.onnx")
    (said,) = (entry for entry in model.metadata_props if entry.key == KEY)
    for case in CASES:
        shape = {"head": case.head, "tail": case.tail, "seed": case.seed, "curve": [[0, 9.0], [5, 7.0]]}
        said.value = json.dumps(json.loads(said.value) | shape)
        onnx.save(model, folder / f"{case.name}.onnx")
    return folder


def test_cases_are_the_windows_of_the_tables_and_none_twice() -> None:
    shapes = {(case.head, case.tail) for case in CASES}
    assert shapes == {(size, 0) for size, _ in SIZES} | {split for _, split in SIZES} | set(SPLITS)
    assert all(sum(split) == size for size, split in SIZES)
    assert all(sum(split) == 20 for split in SPLITS)
    assert len({case.name for case in CASES}) == len(CASES)


def test_the_section_shows_what_the_agents_do(folder: Path) -> None:
    log = generate(10_000, 5, load=1.06)
    lines = list(windows_section(log, folder, markdown_table))
    drawn = Sequences(tuple(range(0, 10_000, 1000)), 1000)
    (row,) = (line for line in lines if line.startswith("| 20 | DBF |"))
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    for cell, shape in ((cells[2], "20+0"), (cells[6], "10+10")):
        means = pooled(run_sequences(log, policy(f"window:{folder}/window-{shape}-seed0.onnx"), drawn))[0]
        assert cell.split(" ± ")[0] == f"{means['wait_s']:.0f}"
    # The rule beside it is the same agent here.
    (rule,) = (line for line in lines if line.startswith("| 20 | shortest first |"))
    assert rule.replace("shortest first", "DBF") == row
    assert any(line.startswith("| 10 + 10 | 0 | 9 | 7 |") for line in lines)
    shares = stale_shares(log, load_window_model(f"{folder}/window-20+0-seed0.onnx"), drawn)
    assert cells[4] == f"{100 * shares.mean():.1f}"
    assert 0.0 < shares.max() < 1.0
    assert np.all(stale_shares(log, shortest_first(1000, 0), drawn) == 0.0)


def test_without_a_folder_the_policies_stand_alone_and_a_missing_agent_is_named(tmp_path: Path) -> None:
    log = generate(10_000, 5, load=1.06)
    alone = "\n".join(windows_section(log, None, markdown_table))
    assert "SJF skip" in alone
    assert "DBF" not in alone
    with pytest.raises(InputError, match=r"expected window-10\+0-seed0\.onnx in .*; fermata hpc windows trains"):
        list(windows_section(log, tmp_path, markdown_table))


def test_the_command_goes_on_where_it_was(folder: Path) -> None:
    missing = folder / f"{CASES[-1].name}.onnx"
    others = {path: path.read_bytes() for path in folder.glob("window-*.onnx") if path != missing}
    missing.unlink()
    tiny = ("iterations=1", "sequences=1", "copies=1", "jobs=40", "judged=1", "minibatches=1")
    settings = [part for each in tiny for part in ("--set", each)]
    command = [sys.executable, "-m", "fermata.cli", "hpc", "windows", "--out", str(folder), *settings]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0
    assert f"{len(CASES)} of {len(CASES)}: {CASES[-1].name}" in done.stderr
    load_window_model.cache_clear()
    assert load_window_model(str(missing)).curve[-1][0] == 1
    assert {path: path.read_bytes() for path in others} == others
