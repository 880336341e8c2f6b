"""Training of an allocation on TPC-H: it learns, resumes, exports, and is what the command line runs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from tests.shared_data import require_shared

pytest.importorskip("torch", reason="needs the [training] extra")

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from typer.testing import CliRunner

from fermata.cli.main import app
from fermata.policy.allocation import ANSWERS, DECIMA_FEATURES, FEATURES, LAYER, LINEAR, SIZE
from fermata.policy.errors import InputError, ModelError
from fermata.policy.model_file import load_model
from fermata.training.files import CONFIG_FILE, write_note
from fermata.training.graph.config import read_any
from fermata.training.search_run import STATE_FILE
from fermata.training.spark import train as trainer
from fermata.training.spark.config import AllocationConfig
from fermata.training.spark.episodes import first_seed, judged_cases, log_ratios, training_cases

TPCH = str(require_shared("data", "tpch"))
pytestmark = pytest.mark.training


def tiny(**changes: object) -> AllocationConfig:
    given = {
        "name": "tiny",
        "method": "evolution",
        "published": [{"setting": "tpch_e1", "episodes": 1, "jobs": 4, "judged": 1}],
        "varied": {"episodes": 1, "jobs": 3},
        "search": {"generations": 3, "pairs": 2, "judge_every": 2},
        "processes": 1,
    }
    return AllocationConfig.model_validate(given | changes)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("allocation") / "run"
    trainer.train(tiny(), run, TPCH)
    return run


class KilledError(Exception):
    pass


def test_a_run_that_was_killed_ends_with_the_same_weights(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step, steps = trainer._step, []

    def dies_in_the_second(*args: object) -> object:
        steps.append(1)
        if len(steps) == 2:
            raise KilledError
        return step(*args)

    monkeypatch.setattr(trainer, "_step", dies_in_the_second)
    with pytest.raises(KilledError):
        trainer.train(tiny(), tmp_path / "run", TPCH)
    monkeypatch.setattr(trainer, "_step", step)
    with pytest.raises(InputError, match="not finished"):
        trainer.read_run(tmp_path / "run")
    again = trainer.train(tiny(), tmp_path / "run", TPCH)
    np.testing.assert_array_equal(again, trainer.read_run(finished)[1])
    ours, theirs = (np.load(run / "search.npz")["centre"] for run in (tmp_path / "run", finished))
    np.testing.assert_array_equal(ours, theirs)


def test_a_run_that_goes_on_logs_each_step_once(finished: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    for _ in range(2):
        trainer.train(tiny(), run, TPCH)
    logged = EventAccumulator(str(run / "tensorboard")).Reload()
    assert [each.step for each in logged.Scalars("centre/tpch_e1")] == [0, 2, 3]


def test_a_damaged_state_is_named(finished: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    state = run / STATE_FILE
    whole = dict(np.load(state))
    state.write_bytes(state.read_bytes()[:500])
    with pytest.raises(InputError, match=f"^{state}: is damaged; delete it and train again$"):
        trainer.read_run(run)
    short = {name: np.zeros(()) if value.ndim == 0 else np.zeros(3) for name, value in whole.items()}
    for other in (short, whole | {"generation": np.array(4)}):  # of a longer search, it would never be at its end
        np.savez(state, **other)
        told = f"^{state}: is of another network or another version; delete it and train again$"
        with pytest.raises(InputError, match=told):
            trainer.read_run(run)


def test_a_search_lowers_what_it_is_judged_by(tmp_path: Path) -> None:
    published = [{"setting": "tpch_c", "episodes": 2, "jobs": 8, "judged": 2}]
    config = tiny(published=published, varied={"episodes": 0}, search={"generations": 4, "pairs": 4, "judge_every": 1})
    cases = judged_cases(config, TPCH)
    first = np.where(trainer.searched(config), trainer.first_weights(config.seed), 0.0)
    best = trainer.train(config, tmp_path / "run", TPCH)
    assert log_ratios(cases, best, True)["tpch_c"] < log_ratios(cases, first, True)["tpch_c"]


def test_episodes_are_the_same_for_all_candidates_and_new_in_each_generation() -> None:
    one, again, other = (training_cases(tiny(), TPCH, generation) for generation in (0, 0, 1))
    assert [each.base_jct_s for each in one] == [each.base_jct_s for each in again]
    assert not {each.base_jct_s for each in one} & {each.base_jct_s for each in other}
    assert [each.kind for each in one] == ["tpch_e1", "varied"]


def test_no_two_seeds_of_a_search_meet_the_same_episodes() -> None:
    assert [first_seed(1, generation) for generation in (0, 1, 149)] == [200_000, 201_000, 349_000], "as it shipped"
    begins = sorted(first_seed(run, 0) for run in (0, 1, 2, 3, 2**32 - 1))
    assert np.diff(begins).min() > first_seed(1, 1_000_000) - first_seed(1, 0)
    other = training_cases(tiny(seed=0), TPCH, 100), training_cases(tiny(seed=2), TPCH, 0)
    published = [training_cases(tiny(), TPCH, generation) for generation in (0, 100)]
    assert len({each.base_jct_s for cases in (*other, *published) for each in cases}) == 8


def test_what_decima_does_not_read_has_no_weight(tmp_path: Path) -> None:
    config = tiny(inputs="decima", action_space="none", search={"generations": 1, "pairs": 1, "judge_every": 1})
    theta = trainer.train(config, tmp_path / "run", TPCH)
    unread = [number for number, name in enumerate(FEATURES) if name not in DECIMA_FEATURES]
    assert not theta[:LINEAR].reshape(SIZE + 1, ANSWERS)[unread].any()
    assert not theta[LINEAR:LAYER].reshape(SIZE + 1, -1)[unread].any()
    assert theta[LINEAR:LAYER].reshape(SIZE + 1, -1)[FEATURES.index("source")].all()


@pytest.mark.parametrize("name", ["spark-default", "spark-decima"])
def test_shipped_configurations(name: str) -> None:
    config = read_any(name)
    assert isinstance(config, AllocationConfig)
    assert (config.inputs, config.action_space) == (("full", "wait") if name == "spark-default" else ("decima", "none"))


def test_the_command_line_trains_exports_and_simulates(finished: Path, tmp_path: Path) -> None:
    def run(*args: str) -> str:
        answer = CliRunner().invoke(app, [*args])
        assert answer.exit_code == 0, answer.output
        return answer.stdout

    config = tmp_path / "tiny.yaml"
    config.write_text(tiny().model_dump_json(), encoding="utf-8")  # JSON is YAML, too
    run("train", "--config", str(config), "--out", str(finished), "--tpch-dir", TPCH)
    out = tmp_path / "tiny.onnx"
    run("export-onnx", str(finished), "--out", str(out))
    np.testing.assert_array_equal(load_model(out).theta, trainer.read_run(finished)[1])
    setting = ("--scenario", "tpch_c", "--tpch-dir", TPCH, "--seeds", "1-1", "--json")
    told = json.loads(run("simulate", *setting, "--policy", str(out)))
    assert told["jobs"] == 50
    assert told["avg_jct_s"] < json.loads(run("simulate", *setting, "--policy", "spark-fair"))["avg_jct_s"]


def test_what_finds_no_model_to_stand_beside_leaves_the_file_that_was_there(finished: Path, tmp_path: Path) -> None:
    out = tmp_path / "model.onnx"
    out.write_text("old")
    command = ["export-onnx", str(finished), "--out", str(out), "--beside", str(tmp_path / "none.onnx")]
    assert isinstance(CliRunner().invoke(app, command).exception, ModelError)
    assert out.read_text() == "old"


def test_a_folder_where_nothing_was_searched_takes_another_configuration(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    write_note(run / CONFIG_FILE, tiny(seed=2))
    trainer.train(tiny(), run, TPCH)
    assert trainer.read_run(run)[0].seed == 1
    with pytest.raises(InputError, match="holds a run of another configuration"):
        trainer.train(tiny(seed=2), run, TPCH)


@pytest.mark.parametrize("missing", ["*", "80g/task_duration_22.npy"])
def test_without_all_of_the_data_no_run_is_begun(missing: str, tmp_path: Path) -> None:
    for file in Path(TPCH).glob("*/*.npy"):
        link = tmp_path / "data" / file.relative_to(TPCH)
        if not link.match(missing):
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(file)
    with pytest.raises(InputError, match=r"npy: cannot read .*: No such file"):
        trainer.train(tiny(), tmp_path / "run", str(tmp_path / "data"))
    assert not (tmp_path / "run").exists()


def test_no_name_at_all_is_no_folder_of_data(tmp_path: Path) -> None:
    asked = ["train", "--config", "spark-default", "--tpch-dir", "", "--out", str(tmp_path / "run")]
    answer = CliRunner().invoke(app, asked)
    assert (answer.exit_code, list(tmp_path.iterdir())) == (2, [])
    assert "expected a name, got ''" in answer.stderr


def test_training_without_the_data_is_an_input_error(tmp_path: Path) -> None:
    answer = CliRunner().invoke(app, ["train", "--config", "spark-default", "--out", str(tmp_path / "run")])
    assert isinstance(answer.exception, InputError)
    assert "--tpch-dir" in str(answer.exception)
