"""`scripts/random_workloads_paused.py`: what is replayed is what ran, and who costs is paused from a block's end on."""

from __future__ import annotations

import numpy as np
import pytest
from tests.scripts import script

from fermata.operator.hindsight import replay
from fermata.operator.holding import BLOCK, ENOUGH_BLOCKS, TAIL, WARM, Situation
from fermata.policy.decide import Policy
from fermata.policy.guardrails import NO_LIMITS
from fermata.policy.heuristics.sjf import SJF
from fermata.policy.registry import load
from fermata.sim.scenarios import scenario
from fermata.sim.simulate import simulate

paused = script("random_workloads_paused")
DAGS, TASKS = scenario("dag_pods").with_(jobs=200), scenario("syn_80").with_(jobs=400, warm=40)
HOLDS_FOR_NOTHING = "sjf-hold:split=1,tau=0"


def jct_s(policy: Policy) -> float:
    return float(simulate(TASKS.generate(1), TASKS.executors, policy).job_jct_s.mean())


def test_the_other_policy_acts_between_the_times() -> None:
    own = load(HOLDS_FOR_NOTHING)
    never, always, for_a_while = (
        jct_s(paused.Pausing(own, SJF, times_s)) for times_s in ([], [-1.0], [-1.0, 1000.0, 5000.0])
    )
    assert never == pytest.approx(jct_s(own))
    assert always == pytest.approx(jct_s(SJF))
    assert always < for_a_while < never


def test_jobs_are_remembered_as_they_ran() -> None:
    trace = DAGS.generate(1)
    completion_s = replay(paused.past_jobs(trace), DAGS.executors, SJF, NO_LIMITS, SJF, sticky=False)
    ran = simulate(trace, DAGS.executors, SJF)
    assert completion_s - trace.job_arrival_s == pytest.approx(ran.job_jct_s)


def test_who_costs_is_paused_once_three_blocks_say_so() -> None:
    trace = TASKS.generate(1)
    costs, saves = (
        paused.pauses(
            paused.past_jobs(trace), Situation(load(policy), SJF, SJF, NO_LIMITS, TASKS.executors, sticky=False)
        )
        for policy in (HOLDS_FOR_NOTHING, "sjf")
    )
    third = WARM + ENOUGH_BLOCKS * BLOCK + TAIL
    assert costs == [pytest.approx(trace.job_arrival_s[third - 1])]
    assert saves == []


def test_a_workload_is_told_with_the_share_of_its_jobs_that_met_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paused, "draw", lambda *_: TASKS)
    found = paused.play(HOLDS_FOR_NOTHING, False, 1)
    assert found.alone > found.weighed > 0.0
    assert found.paused == pytest.approx(1.0 - (WARM + ENOUGH_BLOCKS * BLOCK + TAIL - 1) / 400)
    assert np.isfinite(found).all()
