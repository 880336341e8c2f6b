"""The results page: every section is there, measured, with models of a folder in it and what was aimed at on top."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from fermata.policy.errors import InputError
from fermata.policy.registry import shipped_model
from fermata.sim.files import atomic_output
from fermata.sim.hpc import report, window_study
from fermata.sim.hpc.lublin import generate
from fermata.sim.hpc.models import InspectorModel
from fermata.sim.hpc.queue_models import SHIPPED
from fermata.sim.hpc.study import LOGS
from fermata.sim.hpc.swf import swf_lines

pytestmark = pytest.mark.training
torch = pytest.importorskip("torch")

from fermata.training.hpc.export import export_inspector
from fermata.training.hpc.network import perceptron, theta_of


def test_what_lacks_is_said_before_anything_is_measured(tmp_path: Path) -> None:
    for name in LOGS:
        (tmp_path / f"{name}.swf.xz").touch()
    for study, windows, told in (
        (tmp_path, None, "fermata hpc study trains it"),
        (None, tmp_path, "fermata hpc windows trains them"),
    ):
        with pytest.raises(InputError, match=told):
            report.results_page(tmp_path, None, study, windows, pytest.fail)
    (tmp_path / f"{LOGS[-1]}.swf.xz").unlink()
    with pytest.raises(InputError, match=f"^expected {LOGS[-1]}.swf.xz in "):
        report.results_page(tmp_path, None, None, None, pytest.fail)


@pytest.mark.parametrize("name", ["sjf", "saf+easy", "published-sjf", "reject-blocked", "reject-blocked freely"])
def test_an_inspector_is_not_taken_for_a_policy_of_the_page(name: str, tmp_path: Path) -> None:
    for file in (f"{name}.onnx", *(f"{each}.swf.xz" for each in LOGS)):
        (tmp_path / file).touch()
    with pytest.raises(InputError, match="this is the name of a policy; give it another one"):
        report.results_page(tmp_path, tmp_path, None, None, pytest.fail)


@pytest.mark.slow
def test_the_page_has_every_section_and_what_was_aimed_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, few in (("COUNT", 3), ("JOBS", 30), ("WAIT_RATIOS", (9.0,)), ("WINDOWS", 3), ("WINDOW_JOBS", 50)):
        monkeypatch.setattr(window_study if name.startswith("WINDOW") else report, name, few)
    for number, name in enumerate(LOGS):
        with atomic_output(tmp_path / f"{name}.swf.xz") as stream:
            stream.write("".join(f"{line}\n" for line in swf_lines(generate(300, number, load=1.1), "test")).encode())
    models = tmp_path / "models"
    models.mkdir()
    shutil.copy(shipped_model("queue-even"), models / "queue-mine.onnx")
    torch.manual_seed(0)
    inspector = InspectorModel("picks", 8, 128.0, theta_of(perceptron(8, 2)), "sjf", "x", max_rejections=300)
    export_inspector(inspector, models / "mine.onnx")
    page = report.results_page(tmp_path, models, None, None, lambda text: None)
    heads = [line for line in page.splitlines() if line.startswith("## ")]
    assert [head.split(",")[0] for head in heads[:4]] == ["## What was aimed at", *(f"## {name}" for name in LOGS)]
    assert len(heads) == 1 + 3 + 3
    assert page.count("| inspector `mine` of picks on `sjf`, 300 rejections at most, carried over from x |") == 3
    # A row a log and a row of each of the six wrong estimates.
    for name in SHIPPED:
        assert page.count(f"**policy over the queue** `{name}`, carried over from lublin-model |") == 3 + 6
    assert page.count("**policy over the queue** `queue-mine.onnx`, carried over from lublin-model |") == 3 + 6
    aims = page.partition("## What was aimed at")[2].partition("## lublin_256")[0]
    rows = [line for line in aims.splitlines() if line.startswith("| ")][2:]
    # Seven of Lublin's log; a front on two draws of each log; reservations on two draws of two logs, and slowdown alone
    # on one of each; utilisation on three logs and the windows; six kinds of wrong estimates; the windows' wait and the
    # utilisation of whoever waits least there. All is carried over.
    assert len(rows) == 7 + 6 + (4 + 2) + 4 + 6 + 2
    assert all(row.endswith((" yes |", " **no** |")) for row in rows)
    assert "nan" not in page
