"""Scenarios drawn at random are ones that can be generated, of the kinds that were asked for."""

from __future__ import annotations

import numpy as np
import pytest

from fermata.sim.generate.one_stage import OneStage
from fermata.sim.scenarios.cron import CronPods
from fermata.sim.scenarios.pairs import Pairs
from fermata.training.config import Workloads
from fermata.training.workloads import draw


@pytest.mark.parametrize(
    ("share", "name", "kind"),
    [
        ("pair_share", "random-pairs", Pairs),
        ("cron_share", "random-cron", CronPods),
        ("any_share", "random-any", OneStage),
    ],
)
def test_a_share_of_one_is_all_of_that_kind(share: str, name: str, kind: type) -> None:
    ranges = Workloads().model_copy(update={"dag_share": 0.0, share: 1.0})
    for seed in range(40):
        drawn = draw(np.random.default_rng(seed), ranges, 300)
        assert drawn.name == name
        assert isinstance(drawn.recipe, kind)
        assert drawn.generate(seed).jobs > 100


def test_batches_on_a_schedule_bring_the_load_that_was_drawn() -> None:
    ranges = Workloads().model_copy(update={"dag_share": 0.0, "cron_share": 1.0, "load": (0.7, 0.7)})
    loads = []
    for seed in range(40):
        drawn = draw(np.random.default_rng(seed), ranges, 4000)
        trace = drawn.generate(seed)
        loads.append(trace.task_duration_s.sum() / np.ptp(trace.job_arrival_s) / drawn.executors)
    assert np.mean(loads) == pytest.approx(0.7, abs=0.03)
    assert max(loads) < 1.0


def test_sizes_and_arrivals_are_of_every_kind() -> None:
    ranges = Workloads().model_copy(update={"dag_share": 0.0, "any_share": 1.0})
    recipes = [draw(np.random.default_rng(seed), ranges, 300).recipe for seed in range(40)]
    for part, kinds in (("sizes", 4), ("arrivals", 3)):
        assert len({type(getattr(recipe, part)) for recipe in recipes}) == kinds


@pytest.mark.parametrize(("spread", "at_most_4"), [("uniform", 0.25), ("log-uniform", np.log(4.5) / np.log(16))])
def test_pools_are_drawn_by_their_number_or_its_logarithm(spread: str, at_most_4: float) -> None:
    ranges = Workloads().model_copy(update={"executors": (1, 16), "executors_spread": spread})
    drawn = np.array([draw(np.random.default_rng(seed), ranges, 300).executors for seed in range(2000)])
    assert {1, 16} <= set(drawn) <= set(range(1, 17))
    assert np.mean(drawn <= 4) == pytest.approx(at_most_4, abs=0.04)
