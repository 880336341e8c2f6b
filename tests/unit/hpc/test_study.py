"""SchedInspector's evaluation: its cases can be trained, what is there is kept, and the tables have them all."""

from __future__ import annotations

import lzma
import shutil
from pathlib import Path

import pytest
from tests.windows import fermata_hpc

from fermata.policy.errors import InputError
from fermata.sim.hpc import policy
from fermata.sim.hpc.experiment import draw_sequences
from fermata.sim.hpc.lublin import generate
from fermata.sim.hpc.report import markdown_table
from fermata.sim.hpc.study import CASES, LOGS, study_section
from fermata.sim.hpc.swf import swf_lines

pytestmark = pytest.mark.training
torch = pytest.importorskip("torch")

from fermata.sim.hpc.models import InspectorModel
from fermata.training.hpc.config import InspectorConfig
from fermata.training.hpc.export import export_inspector
from fermata.training.hpc.network import perceptron, theta_of


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an untrained inspector for every case."""
    made = tmp_path_factory.mktemp("study")
    torch.manual_seed(0)
    export_inspector(InspectorModel("picks", 8, 128.0, theta_of(perceptron(8, 2)), "sjf"), made / "first.onnx")
    for case in CASES:
        for name in case.runs:
            shutil.copy(made / "first.onnx", made / name)
    return made


def test_every_case_can_be_trained() -> None:
    assert len({case.name for case in CASES}) == len(CASES)
    for case in CASES:
        for settings in case.runs.values():
            assert policy(InspectorConfig.model_validate(settings).policy)
        assert case.log in LOGS


def test_what_is_there_is_not_trained_again(folder: Path, tmp_path: Path) -> None:
    before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    done = fermata_hpc("study", "--data", tmp_path, "--out", folder)
    assert (done.returncode, done.stdout) == (0, f"{sum(len(case.runs) for case in CASES)} inspectors in {folder}\n")
    assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} == before


def test_a_log_that_is_not_there_is_said_before_anything_is_trained(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "study").mkdir()
    for path in folder.glob("*.onnx"):
        if CASES[0].name not in path.name:  # of the first log one is missing, of the last all
            shutil.copy(path, tmp_path / "study")
    with (tmp_path / f"{CASES[0].log}.swf.xz").open("wb") as stream:
        stream.write(lzma.compress("\n".join(swf_lines(generate(2000, 1), "")).encode()))
    (tmp_path / "study" / f"{CASES[2].name}-seed0.onnx").unlink()
    done = fermata_hpc("study", "--data", tmp_path, "--out", tmp_path / "study")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"fermata: expected {CASES[2].log}.swf.xz in {tmp_path}\n"
    fermata_hpc("study", "--data", tmp_path, "--out", tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_the_tables_have_every_case_and_a_missing_one_is_named(folder: Path, tmp_path: Path) -> None:
    log = generate(300, 2, load=1.1)
    logs = {name: (log, draw_sequences(log, 3, 60, 1, part="test")) for name in LOGS}
    lines = list(study_section(folder, logs, markdown_table))
    rows = [line for line in lines if line.startswith("| ") and "---" not in line]
    # Nine of three logs on three, three of seeds and of utilisation, 4 rewards, 3 sets of features, 6 policies, 3
    # objectives and 8 features of what it learns; each table has a head.
    assert len(rows) == 9 + 3 + 3 + 4 + 3 + 6 + 3 + 8 + 8
    assert not any("nan" in row for row in rows)
    with pytest.raises(InputError, match=r"expected sjf-lublin_256-seed0\.onnx; fermata hpc study trains it"):
        list(study_section(tmp_path, logs, markdown_table))
