"""The network that allocates executors: its arithmetic, what it can express, which actions it may take, its files."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.episodes import expect_the_steps_of_decide
from tests.spark_workloads import random_workload

from fermata.policy.action import LEGAL, WAIT, problem_of
from fermata.policy.allocation import (
    ANSWERS,
    FEATURES,
    FULL,
    HIDDEN,
    LAYER,
    LINEAR,
    PARAMETERS,
    SIZE,
    allocator,
    answer_row,
    choose_allocation,
    describe,
)
from fermata.policy.heuristics.shares import SRWF_WORK_SHARE
from fermata.policy.rows import peek
from fermata.policy.state import IDLE
from fermata.sim.scenarios import scenario
from fermata.sim.spark.protocol import run_to_question
from fermata.sim.spark.view import question, run_allocation, run_policy, take
from fermata.sim.spark.world import NONE, new_spark_world, spark_tables
from fermata.sim.world import new_world, tables_of

PLACE = {name: number for number, name in enumerate(FEATURES)}


def weights(seed: int = 0, scale: float = 0.5) -> np.ndarray:
    """Weights of a network that does all sorts of things, waiting among them."""
    theta = scale * np.random.default_rng(seed).standard_normal(PARAMETERS)
    theta[FULL] = 1.0
    return theta.astype(np.float32).astype(np.float64)


def work_share(grain_s: float) -> np.ndarray:
    """Weights of `srwf-work-share`: the least work first, an executor for each `grain_s` of it, never waiting."""
    theta = np.zeros(PARAMETERS)
    linear = theta[:LINEAR].reshape(SIZE + 1, ANSWERS)
    linear[PLACE["log_work_s"]] = -3.0, 3.0
    linear[PLACE["path_share"], 0], linear[PLACE["wait"], 0] = 1e-6, -1e6
    linear[SIZE, 1] = -math.log(grain_s)
    theta[FULL] = 1e5
    return theta


class Game:
    """An episode of the Spark model that is asked question by question."""

    def __init__(self, seed: int, executors: int = 5) -> None:
        jobs = random_workload(seed)
        # Estimates of their own, so that no two jobs tie.
        estimate_s = np.random.default_rng(seed).uniform(1.0, 3.0, jobs.trace.stages)
        jobs = replace(jobs, trace=replace(jobs.trace, stage_estimate_s=estimate_s))
        self.tables = spark_tables(jobs.trace, 2000, asks_idle=True)
        self.waves = jobs.waves(executors, seed=seed)
        self.world = new_spark_world(self.tables, self.waves)
        self.shown = new_world(tables_of(jobs.trace, executors), executors)

    def next(self) -> bool:
        if not run_to_question(self.tables, self.waves, self.world):
            return False
        question(self.tables, self.world, self.shown)
        return True

    def allocator(self, theta: np.ndarray, *, may_wait: bool = True):
        return allocator(theta, may_wait, len(self.tables.job_arrival_ms), len(self.tables.stage_job))

    def take(self, kind: int, stage: int, cap: int) -> None:
        take(self.tables, self.waves, self.world, self.shown, kind, stage, cap)


def test_a_row_is_answered_by_a_linear_path_and_a_layer() -> None:
    theta = weights()
    x = np.random.default_rng(1).uniform(-1.0, 2.0, SIZE)
    x[3] = 0.0
    with_constant = np.append(x, 1.0)
    units = np.maximum(with_constant @ theta[LINEAR:LAYER].reshape(SIZE + 1, HIDDEN), 0.0)
    expected = with_constant @ theta[:LINEAR].reshape(SIZE + 1, ANSWERS)
    expected = expected + units @ theta[LAYER:FULL].reshape(HIDDEN, ANSWERS)
    answer = np.empty(ANSWERS)
    answer_row(theta, x, np.empty(HIDDEN), answer)
    np.testing.assert_allclose(answer, expected, rtol=1e-12)


@pytest.mark.parametrize("seed", range(6))
def test_weights_exist_that_are_the_tuned_heuristic(seed: int) -> None:
    ours, theirs = Game(seed), Game(seed)
    run_allocation(ours.tables, ours.waves, ours.world, ours.shown, ours.allocator(work_share(7.0)))
    heuristic = SRWF_WORK_SHARE.with_parameters({"grain": 7.0})
    run_policy(theirs.tables, theirs.waves, theirs.world, theirs.shown, heuristic)
    assert ours.world.job_completion_ms.tolist() == theirs.world.job_completion_ms.tolist()
    assert (ours.world.job_completion_ms != NONE).all()


@pytest.mark.parametrize("seed", range(4))
def test_whatever_its_weights_its_actions_are_legal_and_episodes_end(seed: int) -> None:
    game, waits = Game(seed), 0
    to = game.allocator(weights(seed))
    while game.next():
        board = game.shown.board
        kind, stage, cap, until_s = choose_allocation(board, to)
        if kind == WAIT:
            waits += 1
        else:
            assert problem_of(board, kind, stage, cap, until_s) == LEGAL
        game.take(kind, stage, cap)
    assert (game.world.job_completion_ms != NONE).all()
    assert waits > 0


def test_one_that_may_not_wait_starts_whatever_can_start() -> None:
    game, theta = Game(3), weights(3)
    theta[PLACE["wait"] * ANSWERS] = 1e6
    to = game.allocator(theta, may_wait=False)
    decided = 0
    while game.next():
        kind, stage, cap, _ = choose_allocation(game.shown.board, to)
        startable = describe(game.shown.board, to) - 1
        assert (kind == WAIT) == (startable == 0)
        decided += startable > 0
        game.take(kind, stage, cap)
    assert decided > 10


def test_the_order_of_the_stages_does_not_matter_and_features_stay_small() -> None:
    game, seen = Game(5), 0
    to = game.allocator(weights(5))
    while game.next():
        board = game.shown.board
        action = choose_allocation(board, to)
        ready = int(peek(board.pool).ready)
        assert (np.abs(to.rows[: describe(board, to)]) < 10.0).all()
        before = [board.ready[i] for i in range(ready)]
        for place, stage in enumerate(reversed(before)):
            board.ready[place] = stage
        assert choose_allocation(board, to) == action
        seen += ready > 1
        game.take(*action[:3])
    assert seen > 3


def test_rows_say_what_they_are() -> None:
    game = Game(1)
    assert game.next()
    board, to = game.shown.board, game.allocator(weights())
    count = describe(board, to)
    rows = to.rows[:count]
    assert to.stages[count - 1] == IDLE
    assert rows[:, PLACE["wait"]].tolist() == [0.0] * (count - 1) + [1.0]
    # At the first arrival all five executors are outside of any job.
    np.testing.assert_allclose(rows[:, PLACE["executors"]], math.log(5) / 4.0)
    assert rows[:, PLACE["free"]].tolist() == [1.0] * count
    assert not rows[:, [PLACE["source"], PLACE["any_source"], PLACE["held"]]].any()
    assert rows[:-1, PLACE["path_share"]].max() == 1.0


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("torch", reason="needs the [training] extra")
    from fermata.training.spark.config import AllocationConfig
    from fermata.training.spark.export import TOLERANCE, export_onnx, metadata_of

    config = AllocationConfig(
        name="test", method="evolution", published=({"setting": "tpch_e1", "episodes": 1, "judged": 1},)
    )
    out = tmp_path_factory.mktemp("allocation") / "spark.onnx"
    assert export_onnx(weights(), metadata_of(config), out) < TOLERANCE
    return out


class TestFiles:
    def test_a_file_decides_as_the_kernel(self, file: Path) -> None:
        from fermata.policy.model_file import load_model

        policy = load_model(file)
        game = Game(2)
        to, decisions = game.allocator(weights()), 0
        while game.next():
            board = game.shown.board
            action = choose_allocation(board, to)
            if peek(board.pool).ready:
                assert policy.act(board) == action
                decisions += 1
            game.take(*action[:3])
        assert decisions > 5

    def test_the_simulator_asks_about_its_own_state(self, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        from fermata.policy.model_file import load_model

        drawn, policy = scenario("dag_wide").with_(jobs=30), load_model(file)
        expect_the_steps_of_decide(drawn.generate(2), drawn.executors, policy, monkeypatch)

    def test_combined_each_network_answers_as_alone(self, file: Path, tmp_path: Path) -> None:
        import onnx

        from fermata.policy.allocation_policy import CombinedPolicy
        from fermata.policy.features import SIZE as HOLD_SIZE
        from fermata.policy.model_file import load_model
        from fermata.policy.registry import shipped_model
        from fermata.training.spark.export import combine

        hold = without_allocation(shipped_model(), tmp_path / "hold.onnx")
        combine(hold, file, tmp_path / "both.onnx")
        both, alone = load_model(tmp_path / "both.onnx"), load_model(hold)
        assert isinstance(both, CombinedPolicy)
        x = np.random.default_rng(0).standard_normal((7, HOLD_SIZE)).astype(np.float32)
        np.testing.assert_array_equal(both.costs(x), alone.costs(x))
        np.testing.assert_array_equal(both.allocation.theta, weights())
        assert both.metadata["scores"] == alone.metadata["scores"]
        whole, part = onnx.load(str(tmp_path / "both.onnx")), onnx.load(str(hold))
        onnx.checker.check_model(whole, full_check=True)
        assert [*whole.opset_import] == [*part.opset_import]  # once, though two networks need it

    def test_one_that_contradicts_itself_is_refused(self, file: Path, tmp_path: Path) -> None:
        import onnx

        from fermata.policy.errors import ModelError
        from fermata.policy.model_file import load_model

        model = onnx.load(str(file))
        entry = model.metadata_props[0]
        said = json.loads(entry.value)
        for change, complaint in (
            ({"theta": said["theta"][:-16]}, "finite weights"),
            ({"theta": "A" * len(said["theta"])}, "differ by"),
            ({"theta": "!"}, "cannot be read"),
            ({"features": said["features"][::-1]}, "other features"),
            ({"action_space": "paper"}, "action space 'paper'"),
        ):
            entry.value = json.dumps(said | change)
            (tmp_path / "bad.onnx").write_bytes(model.SerializeToString())
            with pytest.raises(ModelError, match=complaint):
                load_model(tmp_path / "bad.onnx")


def without_allocation(model: Path, out: Path) -> Path:
    """Write the part of a combined file that says when to hold."""
    import onnx

    whole = onnx.load(str(model))
    inputs = [each.name for each in whole.graph.input if each.name == "features"]
    part = onnx.utils.Extractor(whole).extract_model(inputs, ["cost"])
    entry = part.metadata_props.add()
    said = json.loads(next(each.value for each in whole.metadata_props if each.key == "fermata"))
    said.pop("allocation", None)
    entry.key, entry.value = "fermata", json.dumps(said)
    out.write_bytes(part.SerializeToString())
    return out
