"""The curves of a run: what TensorBoard's logs say becomes two figures."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("torch", reason="needs the [training] extra")
pytest.importorskip("matplotlib", reason="needs the [report] extra")

from tests.scripts import script
from torch.utils.tensorboard import SummaryWriter

from fermata.policy.errors import InputError

pytestmark = pytest.mark.training


@pytest.fixture(scope="module")
def curves_script() -> ModuleType:
    return script("training_curves")


def test_a_run_s_scalars_become_two_figures(curves_script: ModuleType, tmp_path: Path) -> None:
    folder = tmp_path / "run" / "tensorboard"
    fits, log = SummaryWriter(str(folder / "round1")), SummaryWriter(str(folder))
    for step in range(3):
        for name in ("round1/single tasks/loss", "round1/single tasks/held_out_loss", "round1-1/single tasks/loss"):
            fits.add_scalar(name, 1.0 / (step + 1), step)
        log.add_scalar("search/stages of several tasks", -float(step), step)
    fits.close()
    log.close()
    curves = curves_script.scalars(tmp_path / "run")
    assert list(curves_script.losses(curves)) == ["round1, single tasks, taught", "round1, single tasks, held out"]
    assert curves["search/stages of several tasks"] == [(0, 0.0), (1, -1.0), (2, -2.0)]
    loss, search = curves_script.main(tmp_path / "run", tmp_path / "out")
    assert loss.read_text().count("<svg") == search.read_text().count("<svg") == 1
    assert not list((tmp_path / "out").glob("*.png"))


def test_a_folder_without_logs_is_an_input_error(curves_script: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no logs"):
        curves_script.scalars(tmp_path)


def test_figures_are_not_overwritten_by_empty_ones(curves_script: ModuleType, tmp_path: Path) -> None:
    run, out = tmp_path / "run", tmp_path / "out"
    log = SummaryWriter(str(run / "tensorboard"))
    log.add_scalar("training/cost", 1.0, 1)  # as a graph policy's run has it
    log.flush()
    with pytest.raises(InputError, match="expected a run of the rollout teacher"):
        curves_script.main(run, out)
    assert not out.exists()
    log.add_scalar("round1/single tasks/loss", 1.0, 0)
    log.close()
    assert [path.name for path in curves_script.main(run, out)] == ["loss.svg"], "it searched for nothing"
