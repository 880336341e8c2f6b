"""Workloads beyond the benchmark scenarios, by name: starting points to vary with `Scenario.with_`."""

from __future__ import annotations

from fermata.sim.generate.arrivals import Bursty, Periodic, Piecewise
from fermata.sim.generate.mix import Mix
from fermata.sim.generate.one_stage import OneStage
from fermata.sim.generate.several_slots import SeveralSlots
from fermata.sim.generate.sizes import BoundedPareto, Classes, Hyperexponential, Lognormal
from fermata.sim.scenarios import SCENARIOS, Scenario
from fermata.sim.scenarios.layered import JobClass, LayeredDags
from fermata.sim.scenarios.normal_longs import NormalLongs
from fermata.sim.scenarios.two_sizes import TwoSizes

_EXPRESS = Classes(shares=(0.9, 0.1), sizes_s=(10.0, 200.0))

# Jobs as the papers' mixed set has from TPC-H, whose data are not bundled: a few stages of a few short tasks.
_QUERIES = (JobClass(1.0, stages=(2, 6), tasks=(1, 6), median_task_s=8.0, stage_sigma=0.5, task_sigma=0.3),)

_ALL = (
    Scenario("synthetic", 4, 5000, 500, "SJF", TwoSizes(load=0.6, long_share=0.35)),
    Scenario("synthetic-normal", 4, 5000, 500, "SJF", NormalLongs(load=0.6, long_share=0.35)),
    Scenario("lognormal", 4, 5000, 500, "SJF", OneStage(sizes=Lognormal(60.0, 1.5))),
    Scenario("pareto", 4, 5000, 500, "SJF", OneStage(sizes=BoundedPareto())),
    Scenario("hyperexponential", 4, 5000, 500, "SJF", OneStage(sizes=Hyperexponential())),
    Scenario("classes", 4, 5000, 500, "SJF", OneStage(sizes=Classes())),
    Scenario("bursty", 4, 5000, 500, "SJF", OneStage(arrivals=Bursty(), sizes=_EXPRESS)),
    Scenario("periodic", 4, 5000, 500, "SJF", OneStage(arrivals=Periodic(), sizes=_EXPRESS)),
    Scenario("piecewise", 4, 5000, 500, "SJF", OneStage(arrivals=Piecewise(), sizes=_EXPRESS)),
    Scenario("gpus", 16, 5000, 500, "SJF", SeveralSlots()),
    Scenario("layered", 10, 1000, 100, "SRWF", SCENARIOS["dag_tasks"].with_(assumed_work_s=None).recipe),
    Scenario("mixed", 10, 1000, 100, "SRWF", Mix(TwoSizes(0.6, 0.35), LayeredDags(0.6, _QUERIES), alpha=0.5, load=0.6)),
    Scenario("mix", 10, 1000, 100, "SRWF", Mix(TwoSizes(0.7, 0.1), SCENARIOS["dag_tasks"].recipe, alpha=0.3)),
)

GENERATORS: dict[str, Scenario] = {each.name: each for each in _ALL}
