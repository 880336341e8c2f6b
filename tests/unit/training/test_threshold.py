"""The experts for DAGs: what they say, and that a search for one can be interrupted."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs the [training] extra")

from fermata.policy.features import FEATURES, SIZE
from fermata.policy.learned import BOUND, START_ALTERNATIVE, START_HEAD, WAIT_FOR_EVENT, Network, expert_for
from fermata.training.config import Search, TrainConfig, read_config
from fermata.training.network import CostNetwork
from fermata.training.play import seen_states
from fermata.training.search_episodes import SEARCHED, numbered_case
from fermata.training.threshold import (
    NO_SUCH,
    PARTS,
    START,
    WIDTH,
    FloatArray,
    Task,
    expert_of,
    finished_expert,
    judged_pct,
    search_threshold,
    under_margin,
)

pytestmark = pytest.mark.training

FREE = FEATURES.index("free share")


def rule(constant: float) -> FloatArray:
    """A rule that says the same everywhere."""
    centre = np.zeros((PARTS, WIDTH))
    centre[0, -1] = constant
    return centre


def test_it_says_what_its_weights_say() -> None:
    rng = np.random.default_rng(0)
    centre, mean, scale = rng.normal(size=(PARTS, WIDTH)), rng.normal(size=SIZE), rng.uniform(0.5, 2.0, SIZE)
    centre[:, FREE] = 0.0
    missing = [FEATURES.index(name) for name in NO_SUCH]
    mean[missing] = 6.0
    x = mean + scale * rng.uniform(-3.0, 3.0, (200, SIZE))
    mean[FREE], x[:, FREE] = 0.5, 0.9
    with torch.no_grad():
        costs = expert_of(centre, mean, scale)(torch.from_numpy(x).float()).double().numpy()
    assert (costs[:, START_HEAD] == 0.0).all()
    assert (costs[:, START_ALTERNATIVE] > 1.0).all()
    above = np.maximum(x[:, missing] - 7.0, 0.0)
    assert 0.1 < (above > 0.0).mean() < 0.9
    a, b, c = ((x - mean) @ w[:SIZE] + above @ w[SIZE:-1] + w[-1] for w in centre)
    score = a + np.maximum(b, 0.0) - np.maximum(c, 0.0)
    np.testing.assert_allclose(costs[:, WAIT_FOR_EVENT], 0.1 * score, rtol=1e-3, atol=1e-3)


def test_an_idle_pool_never_waits() -> None:
    x = np.zeros((2, SIZE))
    x[:, FREE] = 0.5, 1.0
    with torch.no_grad():
        expert = expert_of(rule(-10.0), np.zeros(SIZE), np.ones(SIZE))
        waits = expert(torch.from_numpy(x).float())[:, WAIT_FOR_EVENT]
    assert waits[0] < 0.0 < waits[1]


def task_of(index: int, generations: int, scenarios: int = 8, population: int = 4) -> Task:
    generated = (generations, generations)
    search = Search(scenarios=scenarios, jobs=150, batch=2, population=population, generations=generated)
    config = read_config("smoke").model_copy(update={"search": search, "processes": 1})
    return Task(config, index, CostNetwork((4, 4)))


@pytest.mark.parametrize("index", SEARCHED)
def test_a_search_goes_on_where_it_was(index: int, tmp_path: Path) -> None:
    seen: list[int] = []

    def see(history: np.ndarray) -> None:
        seen.append(len(history))

    short = search_threshold(task_of(index, 2, 3), tmp_path, see)
    assert finished_expert(task_of(index, 4, 3), tmp_path) is None
    longer = search_threshold(task_of(index, 4, 3), tmp_path, see)
    assert seen == [0, 1, 2, 2, 3, 4]
    task_of(index, 4, 3).path(tmp_path).unlink()
    at_once = search_threshold(task_of(index, 4, 3), tmp_path, lambda _: None)
    read_again = finished_expert(task_of(index, 4, 3), tmp_path)
    assert read_again is not None
    for one, other, third in zip(longer.parameters(), at_once.parameters(), read_again.parameters(), strict=True):
        assert torch.equal(one, other)
        assert torch.equal(one, third)
    assert not torch.equal(short.layers[0].weight, longer.layers[0].weight)


def test_a_search_moves_to_where_episodes_cost_least(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def cost(network: Network, config: TrainConfig, index: int, numbers: list[int]) -> float:
        assert len(set(numbers)) == config.search.batch  # type: ignore[union-attr]
        assert set(numbers) <= set(range(8))
        tried.append(float(network.bias1[index, 0] - first))  # the constant of the rule's first part, from its start
        return abs(tried[-1] - 1.5)

    monkeypatch.setattr("fermata.training.threshold.Workers", lambda _: ThreadPoolExecutor(1))
    monkeypatch.setattr("fermata.training.threshold.cost_of", cost)
    tried: list[float] = []
    told: list[FloatArray] = []
    first = search_threshold(task_of(1, 0), tmp_path, told.append).layers[0].bias[0].item()
    found = search_threshold(task_of(1, 12, population=40), tmp_path, told.append)
    history, generations = told[-1], np.reshape(tried, (12, 40))
    np.testing.assert_allclose(history, np.abs(generations[:, 0] - 1.5))  # told of is the centre
    assert history[0] == pytest.approx(1.5, abs=1e-6)
    assert history[-1] < 0.1
    assert found.layers[0].bias[0].item() - first == pytest.approx(1.5, abs=0.1)
    # It looks around by what the configuration says at first, and ever less.
    around = generations.std(axis=1)
    assert 0.2 < around[0] < 0.4
    assert around[-1] < 0.7 * around[0]
    # By seven tenths to the mean of the best quarter.
    best = generations[0][np.argsort(np.abs(generations[0] - 1.5))[:10]]
    assert generations[1, 0] == pytest.approx(0.7 * best.mean(), abs=1e-5)


def test_what_was_seen_is_within_bounds(tmp_path: Path) -> None:
    task = task_of(1, 0)
    expert = search_threshold(task, tmp_path, lambda _: None)
    network = CostNetwork((4, 4))
    network.experts[1] = expert
    compiled = network.compiled(0.0)
    x = np.concatenate([seen_states(compiled, numbered_case(task.config, 1, number), 200) for number in range(8)])
    mine = x[[expert_for(row) == 1 for row in x]]
    assert len(mine) > 50
    beyond = np.abs((mine - expert.mean.numpy()) / expert.scale.numpy()).max()
    assert 3.0 < beyond < 1.001 * BOUND


def test_no_generations_leave_the_rule_that_a_search_begins_with(tmp_path: Path) -> None:
    task = task_of(1, 0)
    assert finished_expert(task, tmp_path) is None
    found, again = search_threshold(task, tmp_path, lambda _: None), finished_expert(task, tmp_path)
    assert again is not None
    assert torch.equal(found.layers[0].weight, again.layers[0].weight)
    before_next, during_task = START[1].weights[1]
    x = found.mean.repeat(2, 1)
    x[:, FEATURES.index("log executors")], x[:, FEATURES.index("log free executors")] = float(np.log(4.0)), 0.0
    x[:, FEATURES.index("waiting jobs")] = float(np.log(2.0))
    for row, shorts in enumerate((0.5, 8.0)):
        x[row, FEATURES.index(before_next)] = x[row, FEATURES.index(during_task)] = float(np.log1p(shorts))
    with torch.no_grad():
        waits = found(x)[:, WAIT_FOR_EVENT] < -task.config.margin
    assert waits.tolist() == [False, True]


def test_what_holds_too_much_is_judged_worse() -> None:
    task, wide = task_of(1, 1), np.full(SIZE, 1e9)
    judged = [judged_pct(task, expert_of(rule(each), np.zeros(SIZE), wide), 3) for each in (10.0, -10.0)]
    # What never holds is not quite the base: a job that runs comes first among jobs of about the same work.
    assert abs(judged[0][0]) < 1.0
    assert judged[1][0] > 2.0
    assert judged[1][1] >= judged[1][0]


def test_a_rule_decides_the_same_under_another_margin() -> None:
    centre = np.random.default_rng(1).normal(size=(PARTS, WIDTH))
    expert, other = (expert_of(centre, np.zeros(SIZE), np.ones(SIZE)) for _ in range(2))
    other = under_margin(other, 0.05, 0.02)
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(200, SIZE))).float()
    with torch.no_grad():
        waits = [(each(x)[:, WAIT_FOR_EVENT] < -margin).numpy() for each, margin in ((expert, 0.05), (other, 0.02))]
    assert 0.1 < waits[0].mean() < 0.9
    np.testing.assert_array_equal(*waits)
