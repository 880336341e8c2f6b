"""`scripts/random_workloads_own.py`: a workload plays other seeds with the scores that its own trace taught."""

from __future__ import annotations

import numpy as np
import pytest
from tests.scripts import script

pytest.importorskip("torch", reason="needs the [training] extra")

from fermata.policy.slot_scores import SHIPPED
from fermata.training.graph.config import read_any
from fermata.training.slots.config import ScoresConfig, Search
from fermata.training.slots.train import shortest_first

own = script("random_workloads_own")
SMALL = Search(generations=0, pairs=1, episodes=1, jobs=100, judged=2)
TWO_EXECUTORS, ONE_EXECUTOR = 3012, 3253  # numbers of workloads
SEEDS = range(610_000, 610_002)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    config = read_any("own-slots")
    assert isinstance(config, ScoresConfig)
    monkeypatch.setattr(own, "read_any", lambda name: config.model_copy(update={"search": SMALL}))
    monkeypatch.setattr(own, "JOBS", 400)


def test_what_is_taught_is_the_better_beginning_where_nothing_is_searched() -> None:
    weights = own.taught(1, TWO_EXECUTORS)
    assert any(np.array_equal(weights, each) for each in (SHIPPED, shortest_first()))
    found = own.play(1, SEEDS, TWO_EXECUTORS)
    assert found.kept in ("shipped", "shortest first")
    assert (found.kept == "shipped") == (found.apart.mean == 0.0 == found.apart.ci95)
    assert (found.kept == "shipped") == (found.own == found.shipped)


def test_other_scores_are_played_with(monkeypatch: pytest.MonkeyPatch) -> None:
    longest = -shortest_first()
    monkeypatch.setattr(own, "taught", lambda *_: np.where(longest == -10.0, 10.0, longest))
    found = own.play(1, SEEDS, TWO_EXECUTORS)
    assert found.kept == "own"
    assert found.apart.mean > 5.0
    assert found.own.mean > found.shipped.mean


def test_a_lone_executor_has_nothing_to_teach() -> None:
    assert own.taught(1, ONE_EXECUTOR) is None
    assert own.play(1, SEEDS, ONE_EXECUTOR) is None
