"""Training of the policy over the queue: the search, its beginning, and that a file answers as its weights do."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from fermata.policy.errors import InputError, ModelError
from fermata.policy.queue_features import FEATURES
from fermata.sim.hpc import Rules, Start, policy, simulate
from fermata.sim.hpc.experiment import draw_sequences, pooled, run_sequences
from fermata.sim.hpc.lublin import generate
from fermata.sim.hpc.orders import order
from fermata.sim.hpc.policies import Policy
from fermata.sim.hpc.queue_models import QueueModel, load_queue_model
from fermata.sim.hpc.scoring import HIDDEN_UNITS, PARAMETERS, score

pytestmark = pytest.mark.training
torch = pytest.importorskip("torch")

from fermata.training.hpc.evolution import Evolution
from fermata.training.hpc.export import export_inspector, export_queue_model
from fermata.training.hpc.network import QueueNetwork, perceptron, theta_of
from fermata.training.hpc.queue import queue_run, rule, shortest_first, train_queue_policy
from fermata.training.hpc.search import Generation, Measured, episodes, measure
from fermata.training.hpc.search_config import InspectorSearchConfig, QueueConfig, SearchConfig


def random_model(seed: int) -> QueueModel:
    return QueueModel(np.random.default_rng(seed).normal(0.0, 1.0, PARAMETERS), "x", 2.0, 7)


def test_the_search_finds_the_bottom_of_a_bowl() -> None:
    bottom = np.array([1.0, -2.0, 0.5])
    random, search = np.random.default_rng(0), Evolution(np.zeros(3), 6, 0.1, 0.05)
    for _ in range(200):
        search.learn(((search.candidates(random) - bottom) ** 2).sum(axis=1))
    assert np.abs(search.centre - bottom).max() < 0.1


def test_equal_costs_lead_nowhere() -> None:
    begun = np.array([0.5, -0.5, 0.25])
    random, search = np.random.default_rng(0), Evolution(begun, 12, 0.1, 0.05)
    search.candidates(random)
    search.learn(np.full(24, 3.0))
    assert search.centre.tolist() == begun.tolist()
    searches = [Evolution(begun, 3, 0.1, 0.05) for _ in range(2)]
    for each, swapped in zip(searches, (slice(None), [0, 2, 1, 3, 4, 5]), strict=True):
        half = each.candidates(np.random.default_rng(1))[swapped]  # the second and the third cost the same
        each._noise = (half - begun) / 0.1
        each.learn(np.array([1.0, 2.0, 2.0, 3.0, 4.0, 5.0]))
    assert searches[0].centre.tolist() == pytest.approx(searches[1].centre.tolist(), abs=1e-6)
    assert searches[0].centre.tolist() != begun.tolist()


@pytest.mark.parametrize("kind", [QueueConfig, InspectorSearchConfig])
def test_perturbations_that_overflow_are_refused(kind: type[SearchConfig]) -> None:
    with pytest.raises(ValidationError, match="less than or equal to 1000"):
        kind(sigma=1e300)  # scores would be no numbers, and no job would ever start


def test_the_kernels_network_is_torchs() -> None:
    model = random_model(3)
    seen, hidden = np.random.default_rng(1).random((32, FEATURES)), np.zeros(HIDDEN_UNITS)
    ours = [score(model.theta, row, hidden) for row in seen]
    theirs = QueueNetwork(model.theta)(torch.tensor(seen).float()).detach().numpy()
    np.testing.assert_allclose(ours, theirs, atol=1e-4)


def test_the_beginning_of_the_search_holds_long_jobs_back() -> None:
    log = generate(6000, 8, load=1.06)
    sequences = draw_sequences(log, 20, 256, 1, part="all")
    begun = Policy("rule", order("saf"), Rules(start=Start.SKIP), QueueModel(rule(0)))
    base, found = (pooled(run_sequences(log, each, sequences))[0] for each in (policy("saf+easy/skip"), begun))
    assert found["bsld"] < 0.3 * base["bsld"]
    assert base["wait_s"] < found["wait_s"] < 2.0 * base["wait_s"]


def test_the_other_beginning_is_shortest_first() -> None:
    log = generate(3000, 8, load=1.06)
    begun = Policy("sjf", order("saf"), Rules(start=Start.SKIP), QueueModel(shortest_first(0)))
    chosen = [policy("sjf/skip"), begun]
    plain, found = (simulate(log, each.order, each.rules, None, each.model) for each in chosen)
    np.testing.assert_array_equal(found.start_s, plain.start_s)
    config = QueueConfig(generations=0, judged=5, jobs=100, start="sjf")
    np.testing.assert_array_equal(train_queue_policy(log, config, part="all").theta, shortest_first(0))
    with pytest.raises(InputError, match=r"start: no policy over the queue 'sfj'; .* or sjf for shortest first"):
        train_queue_policy(log, config.model_copy(update={"start": "sfj"}), part="all")


def test_training_is_the_same_for_the_same_seed_and_not_worse_than_its_beginning() -> None:
    log = generate(2000, 2, load=1.1)
    config = QueueConfig(generations=10, pairs=2, sequences=5, judged=10, jobs=100)
    told: list[float] = []
    first = train_queue_policy(log, config, part="all", on_generation=lambda row: told.append(row.cost))
    again = train_queue_policy(log, config, part="all")
    np.testing.assert_array_equal(first.theta, again.theta)
    assert len(told) == 2
    assert told[1] <= told[0]
    assert (first.trained_on, first.wait_price) == (log.name, 4.0)


def test_the_last_generations_are_judged_too() -> None:
    log = generate(2000, 2, load=1.1)
    told: list[Generation] = []
    config = QueueConfig(generations=13, pairs=2, sequences=5, judged=10, jobs=100)
    train_queue_policy(log, config, part="all", on_generation=told.append)
    assert [row.number for row in told] == [0, 10, 13]


def test_what_stands_idle_has_its_price() -> None:
    config = QueueConfig(wait_price=2.0, idle_price=0.5)
    assert Measured(np.e, 1.5, 3.0).cost(config) == pytest.approx(1.0 + 3.0 + 1.5)
    assert Measured(np.e, 1.5, -3.0).cost(config) == pytest.approx(1.0 + 3.0), "nothing is paid for more than that"


def test_measured_figures_are_those_of_the_schedules() -> None:
    log = generate(2000, 2, load=1.1)
    config, theta = QueueConfig(jobs=100), rule(0)
    chosen = draw_sequences(log, 10, 100, 1, part="all")
    prepared = episodes(log, chosen.starts, policy("saf/skip"), config, np.random.default_rng(0))
    found = measure(prepared, queue_run, theta)
    begun = Policy("rule", order("saf"), Rules(start=Start.SKIP), QueueModel(theta))
    base, ruled = (pooled(run_sequences(log, each, chosen))[0] for each in (policy("saf+easy/skip"), begun))
    lost = 100.0 * (base["utilization"] - ruled["utilization"])
    assert found == pytest.approx((ruled["bsld"], ruled["wait_s"] / base["wait_s"], lost))


def test_a_learned_yardstick_is_measured_as_it_schedules() -> None:
    log, config = generate(2000, 2, load=1.1), QueueConfig(jobs=100, yardstick="queue-prompt")
    chosen = draw_sequences(log, 3, 100, 1, part="all")
    prepared = episodes(log, chosen.starts, policy("saf/skip"), config, np.random.default_rng(0))
    alone = [row["wait_s"] for row in run_sequences(log, policy("queue-prompt"), chosen)]
    assert [each.yardstick_wait_s for each in prepared] == pytest.approx(alone)


def test_every_episode_draws_its_own_estimates() -> None:
    log = generate(500, 2)
    config = QueueConfig(jobs=100, estimates=("exact", "lognormal:0.7"))
    cuts = [each.log for each in episodes(log, [3] * 12, policy("saf/skip"), config, np.random.default_rng(0))]
    exact = [bool((cut.estimate_s == cut.runtime_s).all()) for cut in cuts]
    assert 0 < sum(exact) < len(cuts)
    noisy = [cut.estimate_s for cut, each in zip(cuts, exact, strict=True) if not each]
    assert all((first != second).any() for first, second in pairwise(noisy))


def test_an_exported_policy_decides_as_before_and_a_false_one_is_refused(tmp_path: Path) -> None:
    import onnx

    model, good = random_model(5), tmp_path / "good.onnx"
    export_queue_model(model, good)
    loaded = load_queue_model(str(good))
    log, chosen = generate(200, 5, load=1.2), policy(str(good))
    ours, theirs = (simulate(log, chosen.order, chosen.rules, None, each).start_s for each in (model, loaded))
    np.testing.assert_array_equal(ours, theirs)
    export_inspector_of(tmp_path / "inspector.onnx")
    for name, complaint, change in (
        ("other.onnx", "different answers", json.loads(random_model(6).metadata())),
        ("features.onnx", "reads other features", {"features": ["log_estimate"]}),
        ("short.onnx", "finite weights, found 0", {"theta": ""}),
        ("text.onnx", "expected a number for wait_price, found 'low'", {"wait_price": "low"}),
    ):
        exported = onnx.load(str(good))
        exported.metadata_props[0].value = json.dumps(json.loads(exported.metadata_props[0].value) | change)
        onnx.save(exported, str(tmp_path / name))
        with pytest.raises(ModelError, match=complaint):
            load_queue_model(str(tmp_path / name))
    with pytest.raises(ModelError, match="has no 'fermata' metadata"):
        load_queue_model(str(tmp_path / "inspector.onnx"))


def export_inspector_of(path: Path) -> None:
    from fermata.sim.hpc.models import InspectorModel

    torch.manual_seed(0)
    export_inspector(InspectorModel("picks", 8, 128.0, theta_of(perceptron(8, 2))), path)
