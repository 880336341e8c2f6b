"""Inspectors: what they see, how they are trained, and that a file answers as its weights do."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from fermata.policy.errors import InputError, ModelError
from fermata.sim.hpc import JobLog, policy, simulate
from fermata.sim.hpc.experiment import draw_sequences, pooled, run_sequence, run_sequences
from fermata.sim.hpc.inspect import (
    FEATURES,
    PICKS,
    REJECT_IF_BLOCKED,
    SAMPLE,
    UNITS,
    logits,
    parameters,
    rule_inspector,
    seed_sampling,
)
from fermata.sim.hpc.lublin import generate
from fermata.sim.hpc.models import InspectorModel, load_model
from fermata.sim.hpc.policies import spelled
from fermata.sim.hpc.tune import try_reservations

pytestmark = pytest.mark.training
torch = pytest.importorskip("torch")

from fermata.training.hpc import inspectors
from fermata.training.hpc.config import InspectorConfig
from fermata.training.hpc.export import export_inspector
from fermata.training.hpc.inspectors import search_inspector
from fermata.training.hpc.network import perceptron, theta_of
from fermata.training.hpc.ppo import estimate_advantages
from fermata.training.hpc.rollouts import Batch, collect, cost, reward
from fermata.training.hpc.search_config import InspectorSearchConfig
from fermata.training.hpc.train import train_inspector


def model_of(features: int, seed: int = 0, scope: str = "picks") -> InspectorModel:
    torch.manual_seed(seed)
    return InspectorModel(scope, features, 128.0, theta_of(perceptron(features, 2)))


@pytest.mark.parametrize("features", [7, 8, FEATURES])
def test_the_kernels_network_is_torchs(features: int) -> None:
    network = perceptron(features, 2)
    theta = theta_of(network)
    assert len(theta) == parameters(features)
    seen = np.random.default_rng(1).random((32, features))
    ours = np.array([logits(theta, row, features, np.zeros(UNITS)) for row in seen])
    np.testing.assert_allclose(ours, network(torch.tensor(seen).float()).detach().numpy(), atol=1e-5)


def test_the_published_features_of_one_pick_by_hand() -> None:
    # At 600 s: 1 runs on 3 of 4 cores to 10000; 2 (4 cores, 50 s) is the pick; 3 (1 core, 5 s), 4 (1 core, 1 h) wait.
    zeros = np.zeros(4, dtype=np.int64)
    submit, run = np.array([0.0, 300.0, 600.0, 600.0]), np.array([10_000.0, 50.0, 5.0, 3600.0])
    cores = np.array([3, 4, 1, 1])
    log = JobLog("hand", 4, np.arange(1, 5), submit, run, run, cores, zeros, zeros)
    chosen = policy("fcfs")
    # One path through the network carries the fifth feature, whether the pick fits: it is rejected if it does not.
    theta = np.zeros(parameters(8))
    for place in (4, 9 * 32, 9 * 32 + 33 * 16):
        theta[place] = 1.0
    theta[[-10, -1]] = -100.0, 50.0
    inspector = replace(model_of(8), theta=theta).inspector(log, SAMPLE, record=1000)
    seed_sampling(1)
    simulate(log, chosen.order, chosen.rules, inspector)
    first_at_600 = next(row for row in inspector.seen if row[0] == pytest.approx(300.0 / 43_200.0))
    delay = (600 / 50 + 600 / 10 + 600 / 3600) / (60 * 128)
    overtaking = 2 / 128
    np.testing.assert_allclose(
        first_at_600, [300 / 43_200, 50 / 10_000, 1.0, 0.25, 0.0, 1 / 72, delay, overtaking], atol=1e-12
    )


def test_the_last_feature_counts_the_submissions_of_an_hour() -> None:
    # Four jobs that fit side by side; the submissions of the last hour, the job's own among them: 1, 2, 3, 2.
    zeros, one = np.zeros(4, dtype=np.int64), np.ones(4)
    submit = np.array([0.0, 600.0, 3599.0, 4200.0])
    log = JobLog("hand", 4, np.arange(1, 5), submit, 9e4 * one, 9e4 * one, one.astype(np.int64), zeros, zeros)
    theta = np.zeros(parameters(FEATURES))
    theta[-2] = 50.0
    inspector = replace(model_of(FEATURES, scope="starts"), theta=theta).inspector(log, SAMPLE, record=10)
    chosen = policy("saf+easy/skip")
    schedule = simulate(log, chosen.order, chosen.rules, inspector)
    assert schedule.inspections == 4
    np.testing.assert_allclose(inspector.seen[:4, FEATURES - 1], np.log1p([1.0, 2.0, 3.0, 2.0]) / 4.0)


@pytest.mark.parametrize("name", ["fcfs/skip", "fcfs+easy/skip", "fcfs+conservative/skip"])
def test_who_has_started_at_this_instant_waits_no_more(name: str) -> None:
    # 1 takes half of the machine. At 1 s a job comes that needs all of it, and three that start beside 1.
    zeros, cores = np.zeros(5, dtype=np.int64), np.array([4, 8, 1, 1, 1])
    submit, run = np.array([0.0, 1.0, 1.0, 1.0, 1.0]), np.array([9000.0, 9000.0, 10.0, 20.0, 30.0])
    log = JobLog("hand", 8, np.arange(1, 6), submit, run, run, cores, zeros, zeros)
    theta = np.zeros(parameters(FEATURES))
    theta[-2] = 50.0
    inspector = replace(model_of(FEATURES, scope="starts"), theta=theta).inspector(log, SAMPLE, record=10)
    chosen = policy(name)
    schedule = simulate(log, chosen.order, chosen.rules, inspector)
    assert schedule.inspections == 4
    waiting = np.expm1(6.0 * inspector.seen[:4, 11])
    head = 1.0 if name == "fcfs/skip" else 0.0  # where others overtake it by a rule it is not in the queue meanwhile
    np.testing.assert_allclose(waiting, [1.0, 3.0 + head, 2.0 + head, 1.0 + head])


def test_rejections_stop_at_the_limit_in_training_too() -> None:
    log, chosen = generate(150, 4, load=1.0), policy("sjf")
    theta = np.zeros(parameters(8))
    theta[-1] = 50.0
    inspector = replace(model_of(8), theta=theta).inspector(log, SAMPLE, record=20_000)
    seed_sampling(1)
    schedule = simulate(log, chosen.order, chosen.rules, inspector)
    assert np.isfinite(schedule.start_s).all()
    so_far = inspector.seen[: schedule.inspections, 5]
    assert so_far.max() == 71 / 72, "rejected for the 72nd time, and not inspected again"


@pytest.mark.parametrize("scope", ["picks", "starts"])
@pytest.mark.parametrize("name", ["sjf", "saf+easy/skip", "fcfs+conservative", "sjf/skip"])
def test_an_inspector_that_accepts_everything_changes_nothing(scope: str, name: str) -> None:
    log, chosen = generate(300, 6, load=1.2), policy(name)
    theta = np.zeros(parameters(FEATURES))
    theta[-2] = 1.0
    inspector = replace(model_of(FEATURES, scope=scope), theta=theta).inspector(log)
    inspected = simulate(log, chosen.order, chosen.rules, inspector)
    np.testing.assert_array_equal(inspected.start_s, simulate(log, chosen.order, chosen.rules).start_s)
    assert inspected.inspections > 0
    assert inspected.rejections == 0


def test_rejecting_blocked_picks_beats_committing_to_them() -> None:
    log, chosen = generate(4000, 8, load=1.05), policy("sjf")
    sequences = draw_sequences(log, 20, 256, 1, part="all")
    base = pooled(run_sequences(log, chosen, sequences))[0]
    ruled = pooled(run_sequences(log, chosen, sequences, rule_inspector(PICKS, REJECT_IF_BLOCKED)))[0]
    assert ruled["bsld"] < 0.7 * base["bsld"]
    assert ruled["wait_s"] < base["wait_s"]


def test_a_limit_that_never_binds_undoes_commitment_altogether() -> None:
    log, chosen, strict = generate(600, 8, load=1.05), policy("sjf"), policy("sjf/strict")
    free = simulate(log, chosen.order, chosen.rules, rule_inspector(PICKS, REJECT_IF_BLOCKED, 10_000))
    np.testing.assert_array_equal(free.start_s, simulate(log, strict.order, strict.rules).start_s)
    bounded = simulate(log, chosen.order, chosen.rules, rule_inspector(PICKS, REJECT_IF_BLOCKED))
    assert bounded.wait_s.mean() > free.wait_s.mean()


@pytest.mark.parametrize("limit", [1, 100])
def test_a_model_states_its_own_limit(limit: int) -> None:
    log, chosen = generate(150, 4, load=1.0), policy("sjf")
    theta = np.zeros(parameters(8))
    theta[-1] = 50.0
    inspector = replace(model_of(8), theta=theta, max_rejections=limit).inspector(log, SAMPLE, record=20_000)
    seed_sampling(1)
    schedule = simulate(log, chosen.order, chosen.rules, inspector)
    assert inspector.seen[: schedule.inspections, 5].max() == (limit - 1) / limit


def test_a_part_shorter_than_the_tests_sequences_is_trained_on() -> None:
    log = generate(120, 1, load=1.5)
    picks = InspectorConfig(jobs=60, epochs=1, trajectories=2, select_sequences=2)
    assert np.isfinite(train_inspector(log, picks, part="all").theta).all()
    starts = InspectorSearchConfig(jobs=60, generations=0, judged=2, max_wait_ratio=9.0)
    assert np.isfinite(search_inspector(log, starts, part="all").theta).all()


def test_the_same_seed_gives_the_same_trajectories() -> None:
    log, config = generate(600, 1), InspectorConfig(jobs=100)
    starts = np.array([10, 200, 400])

    def once(seed: int) -> Batch:
        none = {"bsld": 1.0, "wait_s": 1.0}
        return collect(log, policy("sjf"), starts, model_of(8), config, lambda start: none, seed)

    first, again, other = once(5), once(5), once(6)
    np.testing.assert_array_equal(first.acted, again.acted)
    np.testing.assert_array_equal(first.seen, again.seen)
    assert len(first.acted) != len(other.acted) or (first.acted != other.acted).any()
    assert first.ends[-1] == len(first.acted)
    chances = torch.log_softmax(_network_of(model_of(8))(torch.from_numpy(first.seen)), 1)
    took = chances.gather(1, torch.from_numpy(first.acted).unsqueeze(1)).squeeze(1).detach().numpy()
    np.testing.assert_allclose(first.log_chance, took, atol=1e-5)


def _network_of(model: InspectorModel) -> torch.nn.Sequential:
    network = perceptron(model.features, 2)
    torch.nn.utils.vector_to_parameters(torch.from_numpy(model.theta).float(), network.parameters())
    return network


def test_rewards_by_hand() -> None:
    assert reward(200.0, 50.0, "percentage") == 0.75
    assert reward(50.0, 200.0, "percentage") == -0.75
    assert reward(200.0, 50.0, "native") == 150.0
    assert [reward(2.0, 1.0, "winloss"), reward(1.0, 1.0, "winloss"), reward(1.0, 2.0, "winloss")] == [1.0, 0.0, -1.0]
    assert reward(200.0, 50.0, "logarithm") == pytest.approx(np.log(4.0))
    found, base = {"bsld": 10.0, "wait_s": 200.0}, {"bsld": 20.0, "wait_s": 100.0}
    assert cost(found, base, InspectorConfig(wait_price=0.5)) == 10.0 + 0.5 * 20.0 * 2.0


def test_advantages_of_two_trajectories_by_hand() -> None:
    none: list[dict[str, float]] = []
    ends, rewards = np.array([2, 3]), np.array([1.0, -1.0], dtype=np.float32)
    batch = Batch(
        np.zeros((3, 1), np.float32), np.zeros(3, np.int64), np.zeros(3, np.float32), ends, rewards, none, none
    )
    values = np.array([0.5, 0.25, 0.0], dtype=np.float32)
    advantages, returns = estimate_advantages(values, batch, 0.5)
    assert returns.tolist() == [1.0, 1.0, -1.0]
    np.testing.assert_allclose(advantages, [(0.25 - 0.5) + 0.5 * 0.75, 0.75, -1.0])


def blocked_rounds(seed: int) -> JobLog:
    """Rounds of a job on three of four cores, one that needs all and blocks what comes, and ten short ones."""
    random, rows = np.random.default_rng(seed), []
    for at in 20_000.0 * np.arange(100):
        rows += [(at, 5000.0, 3), (at + 10.0, 1000.0, 4)]
        rows += [(at + 300.0 * n + random.uniform(20, 250), random.uniform(50, 90), 1) for n in range(10)]
    submit, run, cores = (np.array(column) for column in zip(*rows, strict=True))
    zeros = np.zeros(len(rows), dtype=np.int64)
    return JobLog("rounds", 4, np.arange(len(rows)), submit, run, run, cores.astype(np.int64), zeros, zeros)


def test_ppo_finds_that_commitment_hurts() -> None:
    # What a single seed comes to depends on how a processor rounds, so two of three are enough.
    log, fresh, found_it = blocked_rounds(1), blocked_rounds(2), 0
    sequences = draw_sequences(fresh, 20, 120, 3, part="all")
    base = pooled(run_sequences(fresh, policy("sjf"), sequences))[0]
    for seed in range(3):
        config = InspectorConfig(
            epochs=12, trajectories=40, jobs=48, policy_rate=3e-3, value_rate=3e-3, policy_steps=30, value_steps=30,
            select_sequences=10, seed=seed,
        )  # fmt: skip
        model = train_inspector(log, config, part="all")
        found = pooled(run_sequences(fresh, policy("sjf"), sequences, model.inspector(fresh)))[0]
        found_it += found["bsld"] < 0.3 * base["bsld"]
        if found_it == 2:
            return
    pytest.fail(f"{found_it} of three seeds found it")


def test_training_is_the_same_for_the_same_seed() -> None:
    log = generate(600, 2, load=1.1)
    config = InspectorConfig(epochs=2, trajectories=4, jobs=40, policy_steps=3, value_steps=3, select_sequences=0)
    first, again = (train_inspector(log, config, part="all").theta for _ in range(2))
    np.testing.assert_array_equal(first, again)
    other = train_inspector(log, config.model_copy(update={"seed": 1}), part="all").theta
    assert np.abs(first - other).max() > 0.01


@pytest.mark.slow
def test_search_holds_long_jobs_where_that_pays() -> None:
    log, fresh = generate(4000, 11, load=1.06), generate(4000, 12, load=1.06)
    config = InspectorSearchConfig(generations=3, pairs=2, sequences=15, judged=45, max_wait_ratio=1.2)
    told: list[int] = []
    model = search_inspector(log, config, part="all", on_generation=lambda row: told.append(row.number))
    sequences = draw_sequences(fresh, 30, 256, 3, part="all")
    base = pooled(run_sequences(fresh, policy(config.policy), sequences))[0]
    found = pooled(run_sequences(fresh, policy(config.policy), sequences, model.inspector(fresh)))[0]
    assert told == [0, 3]
    assert found["bsld"] < 0.8 * base["bsld"]
    assert found["wait_s"] < 1.5 * base["wait_s"]


def test_an_exported_inspector_decides_as_before(tmp_path: Path) -> None:
    model = replace(
        model_of(FEATURES, 3, "starts"), policy="sjf", trained_on="x", objective="bsld", seed=7, max_rejections=300
    )
    export_inspector(model, tmp_path / "a.onnx")
    loaded = load_model(tmp_path / "a.onnx")
    assert {**vars(loaded), "theta": ...} == {**vars(model), "theta": ...}
    np.testing.assert_allclose(loaded.theta, model.theta, atol=1e-7)
    log = generate(300, 5, load=1.2)
    ours, theirs = (run_sequence(log, policy("sjf"), 0, 300, 0, each.inspector(log)) for each in (model, loaded))
    np.testing.assert_array_equal(ours.start_s, theirs.start_s)


def test_a_widened_inspector_decides_as_before() -> None:
    theta = np.random.default_rng(0).normal(0.0, 1.0, parameters(20))
    narrow = replace(model_of(20, scope="starts"), theta=theta)
    log, chosen = generate(300, 5, load=1.2), policy("saf+easy/skip")
    wide = narrow.widened(FEATURES)
    ours, theirs = (run_sequence(log, chosen, 0, 300, 0, each.inspector(log)) for each in (narrow, wide))
    assert (wide.features, len(wide.theta)) == (FEATURES, parameters(FEATURES))
    assert 0 < ours.rejections < ours.inspections
    np.testing.assert_array_equal(ours.start_s, theirs.start_s)
    with pytest.raises(ModelError, match="an inspector of 20 features cannot go on with 8"):
        narrow.widened(8)


def test_a_search_goes_on_from_an_inspector_of_fewer_features(tmp_path: Path) -> None:
    start, log = model_of(8, 3, "starts"), generate(600, 2, load=1.1)
    export_inspector(start, tmp_path / "start.onnx")
    config = InspectorSearchConfig(start=str(tmp_path / "start.onnx"), generations=0, judged=4, jobs=60)
    found = search_inspector(log, config, part="all")
    np.testing.assert_allclose(found.theta, start.widened(FEATURES).theta, atol=1e-7)


def test_a_search_wants_a_scheduler_that_can_be_inspected() -> None:
    config = InspectorSearchConfig(policy="queue-prompt", generations=0, judged=4)
    with pytest.raises(InputError, match="queue-prompt holds jobs by itself"):
        search_inspector(generate(600, 2), config, part="all")


def test_costs_below_zero_have_no_logarithm() -> None:
    with pytest.raises(ValidationError, match="logarithm is for objectives that are lowered, not for utilization"):
        InspectorConfig(objective="utilization", reward="logarithm")
    assert InspectorConfig(objective="wait", reward="logarithm").reward == "logarithm"


def test_a_file_that_is_no_inspector_is_refused(tmp_path: Path) -> None:
    import onnx

    good = tmp_path / "good.onnx"
    export_inspector(model_of(8), good)
    (tmp_path / "junk.onnx").write_bytes(b"junk")
    for name, complaint, change in (
        ("none.onnx", "cannot be read", None),
        ("junk.onnx", "not an ONNX model", None),
        ("bare.onnx", "no inspector; expected one", lambda said: None),
        ("scope.onnx", "expected a scope of picks or starts", lambda said: said | {"scope": "all"}),
        (
            "limit.onnx",
            "expected a limit of 1 to 1000000000 rejections, found 0",
            lambda said: said | {"max_rejections": 0},
        ),
        (
            "text.onnx",
            "text.onnx: expected a whole number for max_rejections, found '72'",
            lambda said: said | {"max_rejections": "72"},
        ),
        ("list.onnx", r"expected text for scope, found \['picks'\]", lambda said: said | {"scope": ["picks"]}),
        ("scale.onnx", "expected a number for queue_scale, found None", lambda said: said | {"queue_scale": None}),
        ("zero.onnx", "expected a queue_scale above 0, found 0.0", lambda said: said | {"queue_scale": 0.0}),
        ("nan.onnx", "expected a queue_scale above 0, found nan", lambda said: said | {"queue_scale": float("nan")}),
        ("short.onnx", "finite weights, found", lambda said: said | {"features": 9}),
        ("deep.onnx", "deep.onnx: its description cannot be read", lambda said: "[" * 100_000),
        ("other.onnx", "different answers", lambda said: said | json.loads(model_of(8, 5).metadata())),
    ):
        if change is not None:
            exported = onnx.load(str(good))
            said = change(json.loads(exported.metadata_props[0].value))
            if said is None:
                del exported.metadata_props[:]
            else:
                exported.metadata_props[0].value = said if isinstance(said, str) else json.dumps(said)
            onnx.save(exported, str(tmp_path / name))
        with pytest.raises(ModelError, match=complaint):
            load_model(tmp_path / name)


@pytest.mark.parametrize(
    ("inspected", "scope", "base"),
    [
        ("saf+easy/skip", "starts", "saf+easy/skip"),
        ("lcfs+conservative/strict", "starts", "lcfs+conservative/strict"),
        ("sjf+reserve:over_s=9,share=0.5", "starts", "sjf/commit"),
        ("published-sjf-backfill", "starts", "sjf+published/commit"),
        ("sjf+easy/skip", "picks", "sjf/strict"),
    ],
)
def test_the_rule_that_is_imitated_is_one_of_the_inspected_policy(
    inspected: str, scope: str, base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[tuple[str, tuple[str, ...]]]()

    def tried(*given: Any, yardstick: str, bases: tuple[str, ...]) -> Any:
        asked.append((yardstick, bases))
        return try_reservations(*given, yardstick=yardstick, bases=bases)

    monkeypatch.setattr(inspectors, "try_reservations", tried)
    monkeypatch.setattr(inspectors, "_TUNED_ON", 4)
    sizes = {"jobs": 50, "generations": 0, "sequences": 2, "judged": 2}
    bound = 1.06 if scope == "starts" else 1e9
    config = InspectorSearchConfig(
        policy=inspected, scope=scope, yardstick="queue-prompt", max_wait_ratio=bound, **sizes
    )
    search_inspector(generate(900, 3, load=1.1), config, part="all")
    # A rule on starts may wait as long as its own policy does: many wait longer than any yardstick.
    assert asked == [(base if scope == "starts" else "queue-prompt", (base,))]


def test_a_policy_is_spelled_as_it_is_read() -> None:
    for text in ("sjf", "multifactor:age=2000,max_age_s=1e6+easy/skip", "saf+conservative/strict", "published-sjf"):
        of = policy(text)
        again = policy(spelled(of.order, of.rules.start, of.rules.backfill))
        assert (again.order, again.rules.start, again.rules.backfill) == (of.order, of.rules.start, of.rules.backfill)
