"""`scripts/random_workloads.py` draws the same workloads each time, of every kind, and sees who is behind."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.scripts import script

from fermata.sim.trace_jobs import job_work_s

random_workloads = script("random_workloads")


def test_a_number_always_draws_the_same_workload_and_others_draw_others() -> None:
    drawn = [random_workloads.draw(number, 24) for number in range(60)]
    assert drawn == [random_workloads.draw(number, 24) for number in range(60)]
    assert len(set(map(str, drawn))) == 60
    assert {type(each.recipe).__name__ for each in drawn} == {"OneStage", "LayeredDags", "Mix"}
    assert all(1 <= each.executors <= 24 and each.with_(jobs=20, warm=0).generate(1).jobs for each in drawn)


def test_tasks_of_some_jobs_take_several_executors_at_the_same_load() -> None:
    workload = random_workloads.draw(0, 24).with_(jobs=400, warm=20)
    plain = workload.generate(1)
    for among in ("any", "short", "long"):
        wide = random_workloads.Wide(0, 0.5, among)
        drawn = wide.widen(plain, workload.executors, 1)
        assert (wide.widen(plain, workload.executors, 1).stage_slots == drawn.stage_slots).all()
        assert 1 < drawn.stage_slots.max() <= workload.executors
        work_s, span_s = job_work_s(drawn).sum(), drawn.job_arrival_s[-1]
        assert work_s / span_s == pytest.approx(job_work_s(plain).sum() / plain.job_arrival_s[-1])
        limit_s = np.quantile(job_work_s(plain), 0.9)
        several = job_work_s(plain)[drawn.stage_job[drawn.stage_slots > 1]]
        assert {"any": True, "short": (several < limit_s).all(), "long": (several >= limit_s).all()}[among]


def test_a_policy_is_compared_with_the_better_of_the_simple_ones() -> None:
    workload = random_workloads.draw(2, 24).with_(jobs=200, warm=20)
    changes = {name: random_workloads.change_pct(name, workload, range(2)).mean for name in ("sjf", "srwf", "fifo")}
    assert min(changes["sjf"], changes["srwf"]) == 0.0
    assert changes["fifo"] > 10.0


def test_what_chance_can_make_is_not_told_as_behind() -> None:
    again = [(math.nan, math.nan), (3.0, 4.0), (-2.0, 1.0), (3.0, 2.0)]
    behind = [random_workloads.Played(1, 4, 2.0, random_workloads.Interval(*each)).behind for each in again]
    assert behind == [0.0, 0.0, 0.0, 3.0]
