"""Labels count by how sure their scenario's are."""

import numpy as np
import pytest
from numpy.typing import NDArray

torch = pytest.importorskip("torch", reason="needs the [training] extra")

from fermata.policy.features import SIZE
from fermata.training.config import Fit
from fermata.training.fit import Labels, fit, weighed

pytestmark = pytest.mark.training

SCENARIOS, EACH = 40, 200
FLOOR = 0.03


def states() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return features of single tasks, and the scenario of each."""
    x = np.zeros((SCENARIOS * EACH, SIZE))
    x[:, :2] = np.random.default_rng(3).normal(size=(len(x), 2))
    return x, np.repeat(np.arange(SCENARIOS), EACH)


def noisy(spread: NDArray[np.float64]) -> Labels:
    """Return labels of which each scenario's are off by so much: [SCENARIOS]."""
    x, scenario = states()
    rng = np.random.default_rng(4)
    y = np.stack([np.zeros(len(x)), 0.2 * x[:, 0], -0.1 * x[:, 1]], axis=1)
    y[:, 1:] += spread[scenario][:, None] * rng.normal(size=(len(x), 2))
    y[rng.random(len(x)) < 0.3, 1] = np.nan
    return Labels(x, y, scenario)


def test_the_surer_a_scenario_the_more_it_counts() -> None:
    spread = np.where(np.arange(SCENARIOS) % 2, 0.1, 1.0)
    labels = weighed(noisy(spread), Fit(hidden=(8, 8), epochs=12, batch=256, floor=FLOOR), seed=1)
    assert labels.weight is not None
    assert labels.weight.mean() == pytest.approx(1.0)
    weight = labels.weight.reshape(SCENARIOS, EACH)
    assert (weight == weight[:, :1]).all()
    wanted = 1.0 / (spread**2 + FLOOR)  # a fit cannot miss by less than labels are off
    np.testing.assert_allclose(weight[:, 0], wanted / wanted.mean(), rtol=0.35)


def test_without_a_floor_all_labels_count_alike() -> None:
    labels = noisy(np.ones(SCENARIOS))
    assert weighed(labels, Fit(hidden=(4, 4), epochs=1), seed=1) is labels


def test_where_there_are_no_labels_there_is_nothing_to_weigh() -> None:
    labels = noisy(np.ones(SCENARIOS))
    none = labels.where(labels.scenario < 0)
    assert weighed(none, Fit(hidden=(4, 4), epochs=1, floor=FLOOR), seed=1) is none


def test_a_scenario_of_which_nothing_was_labelled_takes_nothing_from_the_others() -> None:
    labels = noisy(np.full(SCENARIOS, 0.1))
    some = labels.where((labels.scenario > 3) & (labels.scenario != 7))
    weight = weighed(some, Fit(hidden=(4, 4), epochs=2, floor=FLOOR), seed=1).weight
    assert weight is not None
    assert np.isfinite(weight).all()
    assert weight.mean() == pytest.approx(1.0)


def test_where_labels_differ_a_fit_goes_by_those_that_count() -> None:
    x, scenario = states()
    says = (np.arange(len(x)) % 4 == 0).astype(float)  # a quarter of each scenario's labels
    y = np.stack([np.zeros(len(x)), says, np.full(len(x), np.nan)], axis=1)
    config = Fit(hidden=(8, 8), epochs=60, batch=256, weight_decay=1.0)
    alike, weighted = (fit(Labels(x, y, scenario, weight), config, seed=1) for weight in (None, 1.0 + 8.0 * says))
    with torch.no_grad():
        costs = [float(network(torch.from_numpy(x).float())[:, 1].mean()) for network in (alike, weighted)]
    assert costs == pytest.approx([0.25, 9 / 12], abs=0.06)


def test_weights_that_are_all_one_change_nothing() -> None:
    labels = noisy(np.full(SCENARIOS, 0.5))
    config = Fit(hidden=(8, 8), epochs=3)
    ones = Labels(labels.x, labels.y, labels.scenario, np.ones(len(labels.x)))
    for one, other in zip(fit(labels, config, 1).parameters(), fit(ones, config, 1).parameters(), strict=True):
        assert torch.equal(one, other)


def test_some_of_the_labels_keep_their_weights() -> None:
    labels = Labels(np.zeros((4, SIZE)), np.zeros((4, 3)), np.arange(4), np.array([0.5, 1.0, 2.0, 4.0]))
    some = labels.where(np.array([False, True, False, True]))
    assert (some.scenario.tolist(), some.weight) == ([1, 3], pytest.approx([1.0, 4.0]))
