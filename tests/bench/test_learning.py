"""What a network takes to learn, on the processor (one thread) and on a GPU where there is one: side by side."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture
from tests.rollouts import try_futures_to_the_end

torch = pytest.importorskip("torch", reason="needs the [training] extra")

from fermata.policy.features import SIZE
from fermata.training import teacher
from fermata.training.collect import Unit as Labelled
from fermata.training.collect import label_unit
from fermata.training.config import Fit, read_config
from fermata.training.device import chosen
from fermata.training.fit import Labels, fit_expert
from fermata.training.graph.config import GraphConfig, read_any
from fermata.training.graph.rollouts import Decisions, Unit, run_unit, weights_of
from fermata.training.graph.train import Progressed
from fermata.training.graph.update import METHODS

DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")),
]
LABELS = 200_000
UNITS = 30  # scenarios whose decisions are labelled


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(False)


@pytest.fixture(scope="module")
def experience() -> tuple[GraphConfig, Decisions]:
    """An iteration's decisions about DAGs."""
    config = read_any("graph-dag")
    assert isinstance(config, GraphConfig)
    begun = Progressed.begin(config, chosen("cpu"))
    return config, run_unit(Unit(config, 1, tuple(range(config.rollouts.sequences)), weights_of(begun.network)))


@pytest.mark.slow
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("method", ["reinforce", "ppo"])
def test_an_update(
    benchmark: BenchmarkFixture, experience: tuple[GraphConfig, Decisions], method: str, device: str
) -> None:
    config, decisions = experience
    begun = Progressed.begin(config, chosen(device))
    begun.network.normalise(decisions.graph)

    def learner() -> tuple[tuple[object, ...], dict[str, object]]:
        at = copy.deepcopy(begun)
        return (at.network, at.optimiser, decisions, config, 1), {}

    benchmark.pedantic(METHODS[method], setup=learner, rounds=5, warmup_rounds=1)
    benchmark.extra_info |= {"decisions": len(decisions.row), "stages": len(decisions.graph.stage_x)}


@pytest.mark.slow
@pytest.mark.parametrize("device", DEVICES)
def test_two_passes_over_labels(benchmark: BenchmarkFixture, device: str) -> None:
    random = np.random.default_rng(1)
    labels = Labels(random.normal(size=(LABELS, SIZE)), random.normal(size=(LABELS, 3)), np.arange(LABELS) // 100)
    settings: Fit = read_config("default").fit.model_copy(update={"epochs": 2})
    there = chosen(device)
    benchmark.pedantic(lambda: fit_expert(labels, settings, 1, device=there), rounds=3, warmup_rounds=1)
    benchmark.extra_info["labels"] = LABELS
    if benchmark.stats:  # none with --benchmark-disable
        benchmark.extra_info["labels a second"] = round(2 * LABELS / benchmark.stats.stats.min)


@pytest.mark.slow
@pytest.mark.parametrize("rollouts", ["while something depends on it", "to the end"])
def test_labels(
    benchmark: BenchmarkFixture,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
    rollouts: str,
) -> None:
    if rollouts == "to the end":
        # What interpreted code calls: a kernel that others call is in their code.
        monkeypatch.setattr(teacher, "try_futures", try_futures_to_the_end)
    config = read_config("default")

    def label() -> None:
        folder = tmp_path_factory.mktemp("labels")
        for number in range(UNITS):
            label_unit(config, Labelled(0, number), None, folder)

    benchmark.pedantic(label, rounds=3, warmup_rounds=1)
    benchmark.extra_info |= {"scenarios": UNITS}
