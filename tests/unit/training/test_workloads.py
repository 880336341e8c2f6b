"""Scenarios drawn at random are ones that can be generated, of the kinds that were asked for."""

from __future__ import annotations

import numpy as np
import pytest

from fermata.sim.scenarios.cron import CronPods
from fermata.sim.scenarios.pairs import Pairs
from fermata.training.config import Workloads
from fermata.training.workloads import draw


@pytest.mark.parametrize(
    ("share", "name", "kind"), [("pair_share", "random-pairs", Pairs), ("cron_share", "random-cron", CronPods)]
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
