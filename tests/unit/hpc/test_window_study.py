"""Deep Back-Filling's evaluation: the command trains what is missing, and the tables show what was measured."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from tests.windows import fermata_hpc

from fermata.policy.errors import InputError
from fermata.sim.hpc import policy, window_study
from fermata.sim.hpc.experiment import Sequences, pooled, run_sequences
from fermata.sim.hpc.lublin import generate
from fermata.sim.hpc.report import markdown_table
from fermata.sim.hpc.window_measure import Measured, habits
from fermata.sim.hpc.window_models import KEY, load_window_model, shortest_first
from fermata.sim.hpc.window_study import (
    AIMED_PAIR,
    CASES,
    MORE_SEED,
    SEEDS,
    SIZES,
    SPLITS,
    TRAINING_LOAD,
    queue_gates,
    windows_section,
)

pytestmark = pytest.mark.training
pytest.importorskip("torch")
onnx = pytest.importorskip("onnx")

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
    # What is aimed at is trained several times.
    assert [sum((case.head, case.tail) == shape for case in CASES) for shape in AIMED_PAIR] == [len(SEEDS)] * 2


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer and shorter windows than the paper's."""
    for name, value in (("WINDOWS", 4), ("WINDOW_JOBS", 400), ("MORE_WINDOWS", 8), ("LONGER", (1, 2))):
        monkeypatch.setattr(window_study, name, value)


def cells_of(lines: list[str], begin: str) -> list[list[str]]:
    """The cells of every row that begins so."""
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith(begin)]


@pytest.mark.usefixtures("few")
def test_the_section_shows_what_the_agents_do(folder: Path) -> None:
    log, drawn = generate(1600, 5, load=2.0), Sequences((0, 400, 800, 1200), 400)
    lines = list(windows_section(log, folder, markdown_table))
    agents = [policy(f"window:{folder}/window-{shape}-seed0.onnx") for shape in ("20+0", "10+10")]
    whole, parted = ([row["wait_s"] for row in run_sequences(log, each, drawn)] for each in agents)
    gap = 100.0 * (np.mean(parted) / np.mean(whole) - 1.0)
    assert gap < -5.0
    # The rule beside an agent is the same agent here.
    (row,), (rule,) = cells_of(lines, "| 20 | DBF |"), cells_of(lines, "| 20 | shortest first |")
    assert [row[2].split(" ± ")[0], row[6].split(" ± ")[0]] == [f"{np.mean(whole):.0f}", f"{np.mean(parted):.0f}"]
    assert row[-1].split(" ± ")[0] == f"{gap:+.0f}"
    assert rule[2:] == row[2:]
    stale, fwd = habits(log, load_window_model(f"{folder}/window-20+0-seed0.onnx"), drawn)
    assert row[4] == f"{100 * stale.mean():.1f} / {100 * fwd.mean():.1f}"
    # Three times the same training, window by window, and all that is put together.
    (training,) = cells_of(lines, "| DBF, seed 2 | these |")
    assert training[2:] == [row[2], row[6], row[-1]]
    (more,), (more_rule,) = cells_of(lines, "| DBF | 8 more |"), cells_of(lines, "| shortest first | 8 more |")
    assert more[2:] == more_rule[2:] != training[2:]
    more_log, more_drawn = generate(3200, MORE_SEED, load=TRAINING_LOAD), Sequences(tuple(range(0, 3200, 400)), 400)
    waits = [[row["wait_s"] for row in run_sequences(more_log, each, more_drawn)] for each in agents]
    changes = sorted(100.0 * (sum(waits[1][at : at + 4]) / sum(waits[0][at : at + 4]) - 1.0) for at in (0, 4))
    draws = f"{sum(change <= -40.0 for change in changes)} of 2 draws;"
    assert any(line.startswith("Taken 4 at a time") and line.endswith(draws) for line in lines)
    assert f"the median of their changes is {sum(changes) / 2:+.0f}%, the least {changes[1]:+.0f}%." in lines
    (window,) = cells_of(lines, "| 800 | ")
    assert window[3:5] == [f"{whole[2]:.0f}", f"{parted[2]:.0f}"]
    (two,) = cells_of(lines, "| 2 of 800 | ")
    longer = pooled(run_sequences(log, agents[0], Sequences((0, 800), 800)))[0]["wait_s"]
    assert two[1] == two[4] == f"{longer:.0f}"
    assert any(line.startswith("| 10 + 10 | 9 (9-9) | 7 (7-7) |") for line in lines)
    assert any(line.startswith("| 5 + 5 | 9 | 7 |") for line in lines)
    assert "nan" not in "".join(lines)


def test_one_policy_must_wait_less_and_keep_the_machine_as_busy() -> None:
    def measured(label: str, wait_s: float, queue: float, used: float) -> Measured:
        keys = ("wait_s", "queue_length", "utilization")
        return Measured(
            label, {key: np.full(2, each) for key, each in zip(keys, (wait_s, queue, used), strict=True)}, ()
        )

    rules = [measured("SAF EASY", 110.0, 11.0, 0.75), measured("SJF skip", 100.0, 10.0, 0.80)]
    idle, busy = measured("idle", 90.0, 9.0, 0.77), measured("busy", 98.0, 9.8, 0.795)
    below, kept = queue_gates("policy", rules, [idle, busy])
    assert below.row == ["policy: below SJF skip (100 s / 10.00)", "98 s / 9.80 (busy)", "yes"]
    assert kept.row == ["its utilisation: within a point", "+4.5 of SAF EASY, -0.5 of SJF skip", "yes"]
    below, kept = queue_gates("policy", rules, [idle])
    assert [below.met, kept.met, kept.figure] == [True, False, "+2.0 of SAF EASY, -3.0 of SJF skip"]
    below, _ = queue_gates("policy", rules, [measured("long queue", 98.0, 10.1, 0.80)])
    assert not below.met


@pytest.mark.usefixtures("few")
def test_without_a_folder_the_policies_stand_alone_and_one_without_agents_is_refused(tmp_path: Path) -> None:
    log = generate(1600, 5, load=1.06)
    alone = "\n".join(windows_section(log, None, markdown_table))
    assert "SJF skip" in alone
    assert "DBF" not in alone
    with pytest.raises(InputError, match=r"expected window-10\+0-seed0\.onnx and others in .*windows trains them"):
        list(windows_section(log, tmp_path, markdown_table))


@pytest.mark.usefixtures("few")
def test_what_is_not_trained_yet_is_named_and_left_out(folder: Path, tmp_path: Path) -> None:
    for name in ("20+0-seed0", "20+0-seed1", "10+10-seed1", "5+5-seed0"):
        shutil.copy(folder / f"window-{name}.onnx", tmp_path)
    lines = list(windows_section(generate(1600, 5, load=1.06), tmp_path, markdown_table))
    (missing,) = (line for line in lines if line.startswith("Not trained yet, and left out: "))
    assert missing.count("`window-") == len(CASES) - 3
    assert "`window-20+0-seed0`" in missing  # no pair without the other of its seed
    assert [row[0] for row in cells_of(lines, "| DBF, seed ")] == ["DBF, seed 1"] * 2
    assert cells_of(lines, "| 20 | DBF |")
    assert not cells_of(lines, "| 10 | DBF |")
    assert cells_of(lines, "| 10 | shortest first |")


def test_the_command_goes_on_where_it_was(folder: Path) -> None:
    missing = folder / f"{CASES[-1].name}.onnx"
    others = {path: path.read_bytes() for path in folder.glob("window-*.onnx") if path != missing}
    missing.unlink()
    tiny = ("iterations=1", "sequences=1", "copies=1", "jobs=40", "judged=1", "minibatches=1")
    settings = [part for each in tiny for part in ("--set", each)]
    command = ("windows", "--out", folder, *settings)
    done = fermata_hpc(*command)
    assert done.returncode == 0
    assert f"{len(CASES)} of {len(CASES)}: {CASES[-1].name}" in done.stderr
    load_window_model.cache_clear()
    assert load_window_model(str(missing)).curve[-1][0] == 1
    assert {path: path.read_bytes() for path in others} == others
    # Agents of other settings beside these would be compared with them.
    refused = fermata_hpc(*command[:-2])
    assert refused.returncode == 2
    assert "has agents trained with --set" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1


def test_agents_that_are_begun_keep_their_settings(tmp_path: Path) -> None:
    begun = tmp_path / f"{CASES[0].name}.onnx.run"
    begun.mkdir()
    noted = tmp_path / "settings.json"
    noted.write_text('{"iterations": 3}')
    refused = fermata_hpc("windows", "--out", tmp_path, "--set", "iterations=1")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "has agents trained with --set" in refused.stderr
    assert noted.read_text() == '{"iterations": 3}'


def test_what_is_no_folder_is_told_first(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    for out, told in ((str(file), f"cannot make the folder: {file} is none"), ("-", "expected the name of a folder")):
        refused = fermata_hpc("windows", "--out", out)
        assert (refused.returncode, refused.stdout, refused.stderr) == (2, "", f"fermata: {out}: {told}\n")
