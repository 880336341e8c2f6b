"""The benchmark scenarios by name: every claim of the project is made on one of these, or on a variation of one."""

from __future__ import annotations

from fermata.policy.errors import InputError
from fermata.sim.scenarios.base import Recipe, Scenario
from fermata.sim.scenarios.cron import CronPods
from fermata.sim.scenarios.figure_one import FigureOne
from fermata.sim.scenarios.layered import JobClass, LayeredDags
from fermata.sim.scenarios.normal_longs import NormalLongs
from fermata.sim.scenarios.pairs import Pairs
from fermata.sim.scenarios.pods import LognormalPods
from fermata.sim.scenarios.two_sizes import TwoSizes

__all__ = ["SCENARIOS", "JobClass", "Recipe", "Scenario", "scenario"]

_ANALYTICS = (
    JobClass(0.8, stages=(1, 3), tasks=(1, 5), median_task_s=3.0, stage_sigma=0.5, task_sigma=0.3),
    JobClass(0.2, stages=(5, 15), tasks=(5, 50), median_task_s=4.0, stage_sigma=0.6, task_sigma=0.3),
)
_CHAINS_OF_PODS = (
    JobClass(0.95, stages=(1, 2), tasks=(1, 1), median_task_s=5.0, stage_sigma=0.3, task_sigma=0.2),
    JobClass(0.05, stages=(3, 6), tasks=(1, 1), median_task_s=250.0, stage_sigma=0.5, task_sigma=0.2),
)
_WIDE = (
    JobClass(0.9, stages=(1, 2), tasks=(1, 2), median_task_s=5.0, stage_sigma=0.3, task_sigma=0.2),
    JobClass(0.1, stages=(2, 4), tasks=(5, 20), median_task_s=100.0, stage_sigma=0.3, task_sigma=0.2),
)

_ALL = (
    Scenario("fig1", 1, 2, 0, "FIFO", FigureOne()),
    Scenario("pairs_k1_30", 1, 4000, 200, "SJF", Pairs(load=0.3)),
    Scenario("syn_60", 4, 5000, 500, "SJF", TwoSizes(load=0.6, long_share=0.35)),
    Scenario("syn_80", 3, 5000, 500, "SJF", TwoSizes(load=0.8, long_share=0.35)),
    Scenario("norm50", 3, 5000, 500, "SJF", NormalLongs(load=0.8, long_share=0.35)),
    Scenario("norm200", 3, 5000, 500, "SJF", NormalLongs(load=0.7, long_share=0.1, long_s=200.0)),
    Scenario("express_k2", 2, 5000, 500, "SJF", TwoSizes(load=0.6, long_share=0.1, long_s=200.0)),
    Scenario("express_k2_80", 2, 5000, 500, "SJF", TwoSizes(load=0.8, long_share=0.1, long_s=200.0)),
    Scenario("express_k4", 4, 5000, 500, "SJF", TwoSizes(load=0.7, long_share=0.05, long_s=200.0)),
    Scenario("k8s_poisson", 4, 5000, 500, "SJF", LognormalPods(load=0.7)),
    Scenario("k8s_cron", 4, 5000, 500, "SJF", CronPods(load=0.6)),
    Scenario("mold_80", 4, 5000, 500, "tuned_parallelism", TwoSizes(load=0.75, long_share=0.5, serial_fraction=0.1)),
    Scenario("dag_tasks", 10, 1000, 100, "SRWF", LayeredDags(0.7, _ANALYTICS, 191.42639218116892)),
    Scenario("dag_pods", 4, 1500, 150, "SRWF", LayeredDags(0.7, _CHAINS_OF_PODS, 66.85021557497396)),
    Scenario("dag_wide", 10, 1000, 100, "SRWF", LayeredDags(0.7, _WIDE, 315.9136896001366)),
)

SCENARIOS: dict[str, Scenario] = {each.name: each for each in _ALL}


def scenario(name: str) -> Scenario:
    """The scenario of this name.

    Raises:
        InputError: there is none; the message lists all names.
    """
    try:
        return SCENARIOS[name]
    except KeyError:
        raise InputError(f"no scenario {name!r}; there are: {', '.join(SCENARIOS)}") from None
