"""Several networks fitted at a time are the same ones, and end together."""

import math
import os
import signal
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from tests.processes import sigint_handled

torch = pytest.importorskip("torch", reason="needs the [training] extra")

from fermata.policy.features import SEVERAL, SIZE
from fermata.training.config import Fit
from fermata.training.fit import Labels, OnEpoch, fit, fit_each

pytestmark = pytest.mark.training

SEEDS = [3, 1003, 2003, 3003]
SHORT = Fit(hidden=(8, 8), epochs=4, batch=64)
ENDLESS = Fit(hidden=(4, 4), epochs=1_000_000, patience=1_000_000)


def labels() -> Labels:
    """Return labels of single tasks and of DAGs of them."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=(3000, SIZE))
    x[:, SEVERAL] = np.where(np.arange(len(x)) % 3, -1.0, 1.0)
    y = np.stack([np.zeros(len(x)), 0.3 * x[:, 0], -0.2 * x[:, 1]], axis=1)
    return Labels(x, y, np.arange(len(x)) // 100)


def counting(seen: list[tuple[float, ...]]) -> OnEpoch:
    """Return what notes all that it is told."""
    return lambda *row: seen.append(row)


@pytest.fixture(scope="module")
def alone() -> list[tuple[dict[str, torch.Tensor], list[tuple[float, ...]]]]:
    """The networks of SEEDS, each fitted alone, and what was told meanwhile."""
    told: list[list[tuple[float, ...]]] = [[] for _ in SEEDS]
    fitted = [fit(labels(), SHORT, seed, counting(rows)) for seed, rows in zip(SEEDS, told, strict=True)]
    return [(network.state_dict(), rows) for network, rows in zip(fitted, told, strict=True)]


@pytest.mark.parametrize("at_once", [1, 2, 5])
def test_each_is_what_a_fit_alone_returns(
    at_once: int, alone: list[tuple[dict[str, torch.Tensor], list[tuple[float, ...]]]]
) -> None:
    told: list[list[tuple[float, ...]]] = [[] for _ in SEEDS]
    networks = fit_each(
        labels(), SHORT, [(seed, counting(rows)) for seed, rows in zip(SEEDS, told, strict=True)], at_once=at_once
    )
    for (wanted, told_alone), network, rows in zip(alone, networks, told, strict=True):
        found = network.state_dict()
        assert wanted.keys() == found.keys()
        assert all(torch.equal(wanted[name], found[name]) for name in wanted)
        assert rows == told_alone


def _break() -> None:
    raise ZeroDivisionError


def _interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


@pytest.fixture(autouse=True)
def _interruptible() -> Iterator[None]:
    """Let SIGINT interrupt, also where whoever started the tests ignores it, as shells do for what is behind `&`."""
    with sigint_handled():
        yield


@pytest.mark.parametrize(("end", "error"), [(_break, ZeroDivisionError), (_interrupt, KeyboardInterrupt)])
def test_an_error_or_an_interrupt_ends_all_of_them(end: Callable[[], None], error: type[BaseException]) -> None:
    begun: set[int] = set()

    def watching(index: int) -> OnEpoch:
        def on_epoch(expert: int, epoch: int, train_loss: float, held_loss: float) -> None:
            assert math.isfinite(train_loss + held_loss)
            assert epoch < 5000, "it goes on"
            begun.add(index)
            if index == 1 and len(begun) == 2:
                end()

        return on_epoch

    with pytest.raises(error):
        fit_each(labels(), ENDLESS, [(seed, watching(seed)) for seed in range(4)], at_once=2)
    assert 3 not in begun
