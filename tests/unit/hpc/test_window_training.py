"""Training of window agents: rewards and advantages by hand, the same network twice, a file, and the whole command."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.windows import fermata_hpc, random_theta

from fermata.policy.errors import InputError, ModelError
from fermata.policy.registry import shipped_model
from fermata.sim.hpc.lublin import generate
from fermata.sim.hpc.window import FEATURES, FWD_ROW, HIDDEN, score
from fermata.sim.hpc.window_models import WindowModel, load_window_model

pytestmark = pytest.mark.training
torch = pytest.importorskip("torch")

from fermata.training.hpc.export import export_window_model
from fermata.training.hpc.window_config import WindowConfig
from fermata.training.hpc.window_ppo import Standard, WindowLearner, WindowNetwork, log_sum
from fermata.training.hpc.window_rollouts import (
    Batch,
    RunningMaxima,
    collect,
    estimate_advantages,
    prepare,
    waits,
    without_arrivals,
)
from fermata.training.hpc.window_train import Iteration, train_window

TINY = WindowConfig(head=4, tail=4, iterations=2, sequences=2, copies=2, jobs=60, judged=3, minibatches=2)


def batch_of(rewards: list[float], passed: list[float], ends: list[int], at: list[float] | None = None) -> Batch:
    """A batch of which only the rewards and the times matter."""
    many = len(rewards)
    none = np.zeros(many, dtype=np.int64)
    single = np.zeros(many, dtype=np.float32)
    rows = np.zeros((many, FEATURES), dtype=np.float32)
    times = np.array(at or [0.0] * many)
    return Batch(
        rows, none, none, single, np.array(rewards), np.array(passed), times, np.array(ends), np.zeros(len(ends))
    )


def same_units() -> Standard:
    """Features as they are."""
    return Standard(np.zeros(FEATURES, dtype=np.float32), np.ones(FEATURES, dtype=np.float32))


def test_fewer_decisions_than_minibatches_leave_the_weights_numbers() -> None:
    config = TINY.model_copy(update={"minibatches": 1000, "epochs": 1, "jobs": 2, "sequences": 1, "judged": 1})
    episodes = prepare(generate(300, 5, load=1.2), [0], 30)
    learner = WindowLearner(config, same_units())
    batch = collect(episodes, WindowModel(4, 4, learner.theta(), "", 0), config, RunningMaxima(), 1)
    assert 0 < len(batch.sizes) < 1000
    told = learner.update(batch, 1.0)
    assert np.isfinite(learner.theta()).all()
    assert np.isfinite(told["kl"])


def test_a_reward_is_relative_to_the_largest_step_so_far() -> None:
    maxima = RunningMaxima()
    # 100 job-seconds and 8 core-seconds are the largest so far; three quarters are for waiting.
    first = maxima.rewards(np.array([100.0, 50.0, 0.0]), np.array([0.0, 8.0, 4.0]), 0.25)
    assert first.tolist() == [-0.75, -0.375 - 0.25, -0.125]
    # A larger wait is the new measure, and stays it; the largest idleness is the old one.
    assert maxima.rewards(np.array([400.0, 100.0]), np.array([0.0, 0.0]), 0.25).tolist() == [-0.75, -0.1875]
    assert maxima.rewards(np.array([100.0]), np.array([8.0]), 0.25).tolist() == [-0.1875 - 0.25]


def test_advantages_discount_time_and_end_with_the_episode() -> None:
    # A day halves what follows; the trace reaches as far as the discount does.
    day = 86_400.0
    horizon = trace = day / np.log(2.0)
    batch = batch_of([-1.0, -2.0, -4.0], [day, 0.0, day], [2, 3])
    values = np.array([10.0, 20.0, 30.0])
    # Second: -2 - 20 = -22, its episode's last. First: -1 + 20 / 2 - 10 = -1, and a quarter of -22. Third: -4 - 30.
    np.testing.assert_allclose(estimate_advantages(values, batch, horizon, trace), [-1.0 - 5.5, -22.0, -34.0])


def test_what_all_runs_of_an_episode_have_in_common_is_no_merit() -> None:
    hour = 3600.0
    at = [0.0, 1.0, hour, 2.0, hour, 5.0, 9 * hour]
    batch = batch_of([0.0] * 7, [0.0] * 7, [3, 5, 6, 7], at)
    gains = without_arrivals(np.array([1.0, 3.0, 10.0, 8.0, 4.0, 7.0, 5.0]), batch, 2)
    # The second run had 8 in the first hour and 4 in the second, the first one 2 on average and 10; the last two runs
    # share no hour.
    assert gains.tolist() == [1.0 - 8.0, 3.0 - 8.0, 10.0 - 4.0, 8.0 - 2.0, 4.0 - 10.0, 7.0, 5.0]
    assert without_arrivals(gains, batch, 1) is gains


def test_chances_of_ragged_decisions_are_a_softmax_each() -> None:
    scores = torch.tensor([1.0, 2.0, 3.0, -5.0, 80.0, 81.0])
    found = log_sum(scores, torch.tensor([0, 0, 0, 1, 2, 2]), 3)
    wanted = [torch.logsumexp(part, 0) for part in (scores[:3], scores[3:4], scores[4:])]
    torch.testing.assert_close(found, torch.stack(wanted))


def test_the_kernels_network_is_torchs_and_weights_come_back() -> None:
    theta, network, units = random_theta(3), WindowNetwork(), np.zeros(sum(HIDDEN), dtype=np.float32)
    network.load(theta)
    rows = np.random.default_rng(1).random((32, FEATURES)).astype(np.float32)
    theirs = network(torch.from_numpy(rows)).detach().numpy()
    np.testing.assert_allclose([score(theta, row, units) for row in rows], theirs, atol=1e-4)
    assert (network.theta() == theta).all()


def test_units_are_those_of_jobs_and_fold_into_the_weights() -> None:
    random = np.random.default_rng(2)
    rows = random.normal(5.0, 3.0, (500, FEATURES)).astype(np.float32)
    rows[:, FWD_ROW] = 0.0
    rows[:, 1] = 7.0
    fwd = np.full((40, FEATURES), 90.0, dtype=np.float32)
    fwd[:, FWD_ROW] = 1.0
    standard = Standard.of(np.concatenate([fwd, rows]))
    # Rows of Fwd do not count; its mark, and what is always the same, stay as they are.
    units = standard.apply(rows)
    varied = np.setdiff1d(np.arange(FEATURES), [1, FWD_ROW])
    np.testing.assert_allclose(units[:, varied].mean(axis=0), 0.0, atol=1e-5)
    np.testing.assert_allclose(units[:, varied].std(axis=0), 1.0, atol=1e-5)
    assert (units[:, 1] == 7.0).all()
    assert (standard.apply(fwd)[:, FWD_ROW] == 1.0).all()
    theta, room = random_theta(8), np.zeros(sum(HIDDEN), dtype=np.float32)
    np.testing.assert_allclose(
        [score(standard.fold(theta), row, room) for row in rows], [score(theta, row, room) for row in units], atol=1e-2
    )


def test_training_begins_with_any_job_and_little_fwd() -> None:
    learner = WindowLearner(WindowConfig(fwd_bias=-4.0), same_units())
    rows = torch.rand(200, FEATURES)
    rows[:, FWD_ROW] = 0.0
    jobs = learner.policy(rows).detach()
    rows[:, FWD_ROW] = 1.0
    fwd = learner.policy(rows).detach()
    assert jobs.std() < 0.1
    assert (fwd - jobs).mean() == pytest.approx(-4.0, abs=0.2)


def test_recorded_chances_are_those_of_the_network_that_is_updated() -> None:
    episodes = prepare(generate(300, 5, load=1.2), [0, 100], 60)
    anything = WindowModel(TINY.head, TINY.tail, WindowLearner(TINY, same_units()).theta())
    learner = WindowLearner(TINY, Standard.of(collect(episodes, anything, TINY, RunningMaxima(), 6).rows))
    model = WindowModel(TINY.head, TINY.tail, learner.theta())
    batch = collect(episodes, model, TINY, RunningMaxima(), 7)
    owner = torch.from_numpy(np.repeat(np.arange(len(batch.sizes)), batch.sizes))
    scores = learner.policy(torch.from_numpy(learner.standard.apply(batch.rows))).detach()
    taken = torch.from_numpy(np.cumsum(batch.sizes) - batch.sizes + batch.acted)
    chances = scores[taken] - log_sum(scores, owner, len(batch.sizes))
    np.testing.assert_allclose(chances.numpy(), batch.log_chance, atol=1e-4)
    assert len(batch.ends) == 4
    assert batch.rewards.min() == -1.0
    assert batch.passed.min() >= 0.0


def test_ppo_learns_to_start_the_short_ones_first() -> None:
    log = generate(4000, 6, load=1.2)
    config = WindowConfig(
        head=20, tail=20, iterations=25, sequences=4, copies=4, jobs=250, judged=10, policy_rate=5e-3, minibatches=4
    )
    told: list[Iteration] = []
    best = train_window(log, config, part="all", on_iteration=told.append)
    begun = WindowModel(20, 20, WindowLearner(config, same_units()).theta())
    unseen = prepare(generate(4000, 16, load=1.2), range(0, 3000, 250), 250)
    assert waits(unseen, best).mean() < 0.9 * waits(unseen, begun).mean()
    assert [each.number for each in told] == [*range(1, 26)]
    assert min(each.judged_wait_s for each in told) == told[-1].judged_wait_s


def test_training_is_the_same_for_the_same_seed() -> None:
    log = generate(1000, 2, load=1.1)
    first, again = (train_window(log, TINY, part="all") for _ in range(2))
    assert (first.theta == again.theta).all()
    assert (first.head, first.tail, first.trained_on) == (4, 4, log.name)
    assert [number for number, _ in first.curve] == [0, 2]
    with pytest.raises(InputError, match="expected at least 60"):
        train_window(log.sequence(0, 59), TINY, part="all")


def test_a_file_answers_as_the_weights_do_or_is_refused(tmp_path: Path) -> None:
    import onnx

    model = WindowModel(3, 2, random_theta(4), "x", 9, ((0, 12.5), (5, 11.0)))
    export_window_model(model, tmp_path / "agent.onnx")
    read = load_window_model(str(tmp_path / "agent.onnx"))
    assert (read.theta == model.theta).all()
    assert {**vars(read), "theta": ...} == {**vars(model), "theta": ...}
    with pytest.raises(ModelError, match="expected 1217 finite weights"):
        export_window_model(replace(model, theta=model.theta * np.float32(np.nan)), tmp_path / "none.onnx")
    damaged = onnx.load(str(tmp_path / "agent.onnx"))
    damaged.metadata_props[0].value = damaged.metadata_props[0].value.replace('"head": 3', '"head": "3"')
    onnx.save(damaged, str(tmp_path / "text.onnx"))
    with pytest.raises(ModelError, match="expected a whole number for head, found '3'"):
        load_window_model(str(tmp_path / "text.onnx"))
    damaged.metadata_props[0].value = damaged.metadata_props[0].value.replace('"head": "3"', f'"head": {10**30}')
    onnx.save(damaged, str(tmp_path / "endless.onnx"))
    with pytest.raises(ModelError, match="expected a window of 1 to 10000 jobs and as many"):
        load_window_model(str(tmp_path / "endless.onnx"))
    with pytest.raises(ModelError, match="no window agent"):
        load_window_model(str(shipped_model("queue-prompt")))
    good, usable = np.frombuffer((tmp_path / "agent.onnx").read_bytes(), np.uint8), 0
    rng = np.random.default_rng(1)
    for at in rng.integers(0, len(good), 300):
        spoilt = good.copy()
        spoilt[at] = rng.integers(0, 256)
        (tmp_path / f"spoilt-{at}.onnx").write_bytes(spoilt.tobytes())
        try:
            load_window_model(str(tmp_path / f"spoilt-{at}.onnx"))
            usable += 1
        except ModelError:
            pass
    assert 0 < usable < 300


def test_the_command_trains_an_agent_that_evaluate_takes(tmp_path: Path) -> None:
    log, out = tmp_path / "log.swf", tmp_path / "agent.onnx"
    assert fermata_hpc("generate", "--jobs", "500", "--out", log).returncode == 0
    sizes = ("head=4", "tail=4", "iterations=2", "sequences=2", "copies=2", "jobs=60", "judged=2")
    chosen = [part for size in sizes for part in ("--set", size)]
    train = ("train", "--log", log, "--method", "window", "--part", "all", "--out", out)
    told = json.loads(fermata_hpc(*train, "--json", *chosen).stdout)
    assert [row["number"] for row in told["rows"]] == [1, 2]
    evaluate = ("evaluate", "--log", log, "--sequences", "2", "--jobs", "50", "--json")
    policies = json.loads(fermata_hpc(*evaluate, "--policy", f"window:{out}").stdout)["policies"]
    assert policies[0]["policy"] == f"window:{out}"
    assert policies[0]["wait_s"] > 0.0
    wrong = fermata_hpc(*train, "--set", "head=0")
    assert wrong.returncode != 0
    assert "--set head" in wrong.stderr
