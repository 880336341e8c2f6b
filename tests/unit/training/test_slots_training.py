"""Scores for tasks of several executors on a trace of one's own: searched for, resumed, exported, and what decides."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.episodes import first_state, stage, started, trace_of
from tests.models import linear_model

pytest.importorskip("torch", reason="needs the [training] extra")

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from typer.testing import CliRunner

from fermata.cli.main import app
from fermata.policy.action import WAIT
from fermata.policy.decide import decide
from fermata.policy.errors import FermataError, InputError, ModelError
from fermata.policy.guardrails import NO_LIMITS
from fermata.policy.heuristics.sjf import SJF
from fermata.policy.model_file import load_model
from fermata.policy.onnx_policy import OnnxPolicy
from fermata.policy.reason import words_for_wait
from fermata.policy.registry import load, shipped_model
from fermata.policy.several_slots import WEIGHTS, WORDS
from fermata.policy.slot_features import NAMES
from fermata.policy.slot_scores import PART, SCHEMA, SHIPPED
from fermata.policy.weights import packed
from fermata.sim.explain import Workload, collect
from fermata.sim.network_file import read_network
from fermata.sim.scenarios import Scenario, scenario
from fermata.sim.simulate import simulate
from fermata.sim.trace import Trace
from fermata.sim.trace_io import write_trace
from fermata.training.files import CONFIG_FILE, write_note
from fermata.training.headroom import Effort, room_in
from fermata.training.own import own_trace
from fermata.training.search_run import STATE_FILE
from fermata.training.slots import train as trainer
from fermata.training.slots.config import OnTrace, ScoresConfig
from fermata.training.slots.episodes import log_ratios, played
from fermata.training.slots.export import export_beside, metadata_of

pytestmark = pytest.mark.training
EXECUTORS = 4


def wide(seed: int, jobs: int = 400) -> Trace:
    """Jobs of which every other takes one executor, and the others two or four."""
    trace = scenario("express_k2").with_(jobs=jobs, warm=0).generate(seed)
    slots = np.array([1, 2, 1, 4], np.int32)[np.arange(trace.stages) % 4]
    return replace(trace, stage_slots=slots, job_arrival_s=trace.job_arrival_s * 0.8)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("trace") / "wide.jsonl"
    write_trace(wide(5), path)
    return path


def tiny(file: Path, **changes: Any) -> ScoresConfig:
    given = {"name": "tiny", "method": "scores", "search": SEARCH, "processes": 1}
    config = ScoresConfig.model_validate(given | changes)
    return config.model_copy(update={"workloads": OnTrace(own=own_trace(str(file), (EXECUTORS, EXECUTORS)))})


SEARCH = {"generations": 3, "pairs": 2, "episodes": 2, "jobs": 200, "judged": 2, "judge_every": 2}


@pytest.fixture(scope="module")
def finished(file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("scores") / "run"
    trainer.train(tiny(file), run)
    return run


@pytest.fixture(scope="module")
def other(file: Path, tmp_path_factory: pytest.TempPathFactory) -> OnnxPolicy:
    """The shipped model with other scores: the longest first, and never a hold."""
    weights = trainer.shortest_first()
    weights[:2] *= -1.0
    return with_scores(weights, file, tmp_path_factory.mktemp("model") / "other.onnx")


def with_scores(weights: np.ndarray, file: Path, out: Path, model: Path | None = None) -> OnnxPolicy:
    export_beside(weights, metadata_of(tiny(file)), model or shipped_model(), out)
    policy = load_model(out)
    assert isinstance(policy, OnnxPolicy)
    return policy


class KilledError(Exception):
    pass


def test_a_run_that_was_killed_ends_with_the_same_weights_on_any_number_of_processes(
    finished: Path, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step, steps = trainer._step, []

    def dies_in_the_second(*args: Any) -> Any:
        steps.append(1)
        if len(steps) == 2:
            raise KilledError
        return step(*args)

    run = tmp_path / "run"
    monkeypatch.setattr(trainer, "_step", dies_in_the_second)
    with pytest.raises(KilledError):
        trainer.train(tiny(file), run)
    monkeypatch.setattr(trainer, "_step", step)
    with pytest.raises(InputError, match="not finished"):
        trainer.read_run(run)
    again = trainer.train(tiny(file, processes=2), run)
    np.testing.assert_array_equal(again, trainer.read_run(finished)[1])
    ours, theirs = (np.load(each / STATE_FILE)["centre"] for each in (run, finished))
    np.testing.assert_array_equal(ours, theirs)


def test_a_run_that_goes_on_logs_each_look_once(finished: Path, file: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    for _ in range(2):
        trainer.train(tiny(file), run)
    logged = EventAccumulator(str(run / "tensorboard")).Reload()
    assert [each.step for each in logged.Scalars("scores")] == [2, 3]


def test_a_damaged_state_is_named(finished: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    state = run / STATE_FILE
    whole = dict(np.load(state))
    for wrong in ({"centre": np.zeros(3)}, {"generation": np.array(4)}, {"kept": np.array(9)}):
        np.savez(state, **(whole | wrong))
        with pytest.raises(InputError, match=f"^{state}: is of another network or another version; delete it"):
            trainer.read_run(run)
    state.write_bytes(state.read_bytes()[:500])
    with pytest.raises(InputError, match=f"^{state}: is damaged; delete it and train again$"):
        trainer.read_run(run)


def test_a_folder_keeps_to_its_configuration(finished: Path, file: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    write_note(run / CONFIG_FILE, tiny(file, seed=2))
    trainer.train(tiny(file), run)
    assert trainer.read_run(run)[0].seed == 1
    with pytest.raises(InputError, match="holds a run of another configuration"):
        trainer.train(tiny(file, seed=2), run)
    with pytest.raises(InputError, match="is not a training run of scores"):
        trainer.read_run(tmp_path)


def test_a_search_lowers_what_it_is_judged_by(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Where the scores that ship are worse than none it begins at shortest first.
    longest = -trainer.shortest_first()
    longest[NAMES.index("one")] = 10.0
    monkeypatch.setattr(trainer, "SHIPPED", longest)
    write_trace(wide(5, 1000), tmp_path / "longer.jsonl")
    far = {"generations": 16, "pairs": 8, "sigma": 0.3, "rate": 0.1, "episodes": 6, "judged": 6}
    config = tiny(tmp_path / "longer.jsonl", search=SEARCH | far)
    best = trainer.train(config, tmp_path / "run")
    tried = np.array([trainer.shortest_first(), best])
    shortest, found = np.mean([played(config, "choose", i, tried) for i in range(6)], axis=0)
    state = np.load(tmp_path / "run" / STATE_FILE)
    assert found < shortest
    assert (state["least"], state["kept"] > 0) == (found, True)


def test_episodes_are_new_in_each_generation_and_the_same_for_all_candidates(file: Path) -> None:
    config, twice = tiny(file), np.array([SHIPPED, SHIPPED])
    one, again, next_one, chosen = (
        played(config, part, number, twice)
        for part, number in (("teach", 0), ("teach", 0), ("teach", 1), ("choose", 0))
    )
    assert one.tolist() == again.tolist()
    assert one[0] == one[1]
    assert len({one[0], next_one[0], chosen[0]}) == 3
    assert played(tiny(file, seed=2), "teach", 0, twice)[0] != one[0]


def test_shortest_first_is_as_long_as_srwf() -> None:
    # None of these jobs takes one executor, so no network is ever asked.
    several = replace(wide(3), stage_slots=np.array([2, 4, 2, 3], np.int32)[np.arange(400) % 4])
    assert log_ratios(several, EXECUTORS, trainer.shortest_first()[np.newaxis]).tolist() == [0.0]


@dataclass(frozen=True)
class Wide:
    """Draws `wide` jobs."""

    def draw(self, rng: np.random.Generator, jobs: int, executors: int) -> Trace:
        return wide(int(rng.integers(0, 1000)), jobs)


def test_own_scores_decide_wherever_a_model_is_played(other: OnnxPolicy, tmp_path: Path) -> None:
    # By the compiled loop, by the copy of a state that the operator takes, by what explains, and by what looks ahead.
    jobs = Scenario("wide", EXECUTORS, 300, 0, "SRWF", Wide())
    trace, shipped = jobs.generate(7), load("default")
    loop = simulate(trace, EXECUTORS, other)
    seen = simulate(trace, EXECUTORS, other, observer=lambda state, steps: None)
    mean_s = float(loop.job_jct_s.mean())
    assert loop.job_jct_s.tolist() == seen.job_jct_s.tolist()
    assert mean_s > 1.02 * simulate(trace, EXECUTORS, shipped).job_jct_s.mean()
    explained = collect(other, [Workload("wide", EXECUTORS, jobs.generate)], [7], NO_LIMITS, 100)
    assert explained.outcomes[0][0].avg_jct_s == pytest.approx(mean_s)
    few = Effort(futures=16, again=1, horizon=1)
    path = tmp_path / "other.onnx"
    path.write_bytes(other.content)
    found = room_in(jobs, jobs, 7, read_network(path), few, other.corrects_estimates)
    assert found.jct_s == pytest.approx(mean_s)


def test_a_hold_is_told_by_the_scores_that_made_it(file: Path, tmp_path: Path) -> None:
    held = first_state(trace_of(*((0.0, [stage("a", 10.0, slots=slots)]) for slots in (2, 1, 4))), EXECUTORS)
    held = started(held, 0, 1)
    patient, eager = np.full(WEIGHTS, 0.0), trainer.shortest_first()
    patient[NAMES.index("one")] = -1.0
    told = []
    for name, weights in (("patient", patient), ("eager", eager)):
        policy = with_scores(weights, file, tmp_path / f"{name}.onnx")
        steps = decide(held, policy, NO_LIMITS, SJF)
        told.append((steps[0].action.kind == WAIT, words_for_wait(policy, held, steps)))
    assert told[0][0]
    assert told[0][1] in WORDS
    assert told[1] == (False, "")


def test_networks_answer_as_before(other: OnnxPolicy) -> None:
    rows = np.random.default_rng(1).random((50, 53)).astype(np.float32)
    np.testing.assert_array_equal(other.costs(rows), load("default").costs(rows))
    trace = scenario("express_k2").with_(jobs=300, warm=0).generate(3)
    assert simulate(trace, 2, other).job_jct_s.tolist() == simulate(trace, 2, load("default")).job_jct_s.tolist()


def test_a_file_says_where_its_scores_come_from_and_keeps_what_else_it_said(
    other: OnnxPolicy, file: Path, tmp_path: Path
) -> None:
    part = other.metadata[PART]
    assert (part["config"], part["method"], part["trace_sha256"]) == (
        "tiny",
        "scores",
        own_trace(str(file), (4, 4)).sha256,
    )
    before = load("default").metadata
    assert {key: value for key, value in other.metadata.items() if key != PART} == dict(before)
    (tmp_path / "other.onnx").write_bytes(other.content)
    again = with_scores(SHIPPED, file, tmp_path / "again.onnx", tmp_path / "other.onnx")  # what it had is replaced
    np.testing.assert_allclose(again.slot_weights, SHIPPED, rtol=1e-6)


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ("x", "are of schema 'x'; this version reads"),
        ({"schema": "fermata.slot-scores/1"}, "are of schema 'fermata.slot-scores/1'; this version reads"),
        ({"schema": SCHEMA}, "expected 296 finite weights, found 0"),
        ({"schema": SCHEMA, "theta": 3}, "cannot be read"),
        ({"schema": SCHEMA, "theta": "?"}, "cannot be read"),
        ({"schema": SCHEMA, "theta": packed(np.full(WEIGHTS, np.nan))}, "expected 296 finite weights"),
        ({"schema": SCHEMA, "theta": packed(np.zeros(3))}, "expected 296 finite weights, found 3"),
    ],
)
def test_scores_that_cannot_be_used_make_a_model_unusable(part: Any, expected: str, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    with pytest.raises(ModelError, match=f"^{path}: .*{re.escape(expected)}"):
        linear_model(path, {}, metadata={PART: part})


def test_a_model_of_another_kind_has_no_such_scores(file: Path, tmp_path: Path) -> None:
    out = tmp_path / "model.onnx"
    out.write_text("old")
    with pytest.raises(ModelError, match=r"has no scores for tasks of several executors; expected a model as default"):
        export_beside(SHIPPED, metadata_of(tiny(file)), shipped_model("queue-swift"), out)
    assert out.read_text() == "old"


def run(*args: str) -> str:
    answer = CliRunner().invoke(app, [*args])
    assert answer.exit_code == 0, answer.output
    return answer.stdout


def test_the_command_line_trains_exports_and_evaluates(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = tmp_path / "tiny.yaml"
    config.write_text(json.dumps({"name": "tiny", "method": "scores", "search": SEARCH}))
    run("train", "--config", "tiny.yaml", "--trace", str(file), "--executors", "4", "--processes", "1", "--out", "run")
    assert "scores of its own" in run("export-onnx", "run", "--out", "mine.onnx")
    told = run("policy", "info", "mine.onnx")
    assert f"{PART}: " in told
    assert "theta" not in told
    where = ("--trace", str(file), "--executors", "4", "--seeds", "0-1", "--jobs", "1", "--json")
    assert "wide.jsonl" in json.loads(run("evaluate", "mine.onnx", *where))["scenarios"]
    run("export-onnx", "run", "--beside", "mine.onnx", "--out", "again.onnx")
    assert load_model("again.onnx").digest == load_model("mine.onnx").digest


def test_who_names_no_configuration_is_told_which_one_such_a_trace_gets(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[ScoresConfig] = []
    monkeypatch.setattr(trainer, "train", lambda config, out: asked.append(config))
    command = ["train", "--trace", str(file), "--executors", "4", "--out", str(tmp_path / "run")]
    answer = CliRunner().invoke(app, command)
    assert (answer.exit_code, [each.name for each in asked]) == (0, ["own-slots"])
    assert answer.stderr == (
        f"{file}: tasks take several executors there: scores for them are searched for (--config own-slots)\n"
    )
    assert CliRunner().invoke(app, [*command, "--config", "own-slots"]).stderr == ""


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--config", "own-slots"], "'own-slots' learns on a trace of one's own; expected --trace and --executors"),
        (["--config", "own-slots", "--trace", "NARROW", "--executors", "2"], "no task of the first half takes several"),
        (["--trace", "WIDE", "--executors", "4", "--ray", "local"], "'own-slots' is searched for by playing episodes"),
        (["--trace", "WIDE", "--executors", "4", "--device", "cuda"], "--device cuda: 'own-slots' is searched for by"),
        (["--trace", "WIDE", "--executors", "4", "--tpch-dir", "x"], "--tpch-dir is for configurations that allocate"),
        (["--trace", "WIDE", "--executors", "2"], "a task needs 4 slots, but the pool has 2"),
    ],
)
def test_what_does_not_go_together_is_told(
    options: list[str], expected: str, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "--ray" in options:
        pytest.importorskip("ray", reason="needs the [ray] extra")
    monkeypatch.chdir(tmp_path)
    write_trace(scenario("express_k2").with_(jobs=300, warm=0).generate(5), "NARROW")
    shutil.copy(file, "WIDE")
    answer = CliRunner().invoke(app, ["train", *options, "--out", "r"])
    assert isinstance(answer.exception, FermataError)
    assert expected in str(answer.exception)
    assert not Path("r").exists()


def test_an_unfinished_run_and_a_card_are_not_exported(finished: Path, file: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    write_note(run / CONFIG_FILE, tiny(file))
    for arguments, expected in (
        ([str(run)], "this run is not finished"),
        ([str(finished), "--card", str(tmp_path / "card.md")], "scores have no card"),
    ):
        answer = CliRunner().invoke(app, ["export-onnx", *arguments, "--out", str(tmp_path / "x.onnx")])
        assert isinstance(answer.exception, InputError)
        assert expected in str(answer.exception)
    assert not (tmp_path / "x.onnx").exists()
