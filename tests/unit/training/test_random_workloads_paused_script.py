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
from fermata.sim.scenarios import Scenario, scenario
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


def times_of_pauses(workload: Scenario, own: Policy) -> list[float]:
    trace = workload.generate(1)
    past = paused.past_jobs(trace, simulate(trace, workload.executors, own).job_jct_s)
    return list(paused.pauses(past, Situation(own, SJF, SJF, NO_LIMITS, workload.executors, sticky=False)))


def test_what_is_paid_for_by_workflows_of_later_blocks_is_seen() -> None:
    # It holds more the longer the queue is, so what it holds is never made up for. A replay that began with an empty
    # pool would see what each hold saves in its block.
    crowded = scenario("express_k4").with_(jobs=700, warm=0, load=0.9, long_share=0.1)
    own = load("sjf-hold:tau=20,last=3,tau_per_long=-5")
    trace = crowded.generate(1)
    ours_s, base_s = (simulate(trace, crowded.executors, policy).job_jct_s.mean() for policy in (own, SJF))
    assert ours_s > 1.5 * base_s
    assert times_of_pauses(crowded, own)


def test_jobs_are_remembered_as_they_ran() -> None:
    trace = DAGS.generate(1)
    ran = simulate(trace, DAGS.executors, SJF)
    past = paused.past_jobs(trace, ran.job_jct_s)
    assert [job.jct_s for job in past] == ran.job_jct_s.tolist()
    completion_s = replay(past, DAGS.executors, SJF, NO_LIMITS, SJF, sticky=False)
    assert completion_s - trace.job_arrival_s == pytest.approx(ran.job_jct_s)


def test_who_costs_is_paused_once_three_blocks_say_so() -> None:
    trace = TASKS.generate(1)
    costs, saves = (times_of_pauses(TASKS, load(policy)) for policy in (HOLDS_FOR_NOTHING, "sjf"))
    third = WARM + ENOUGH_BLOCKS * BLOCK + TAIL
    assert costs == [pytest.approx(trace.job_arrival_s[third - 1])]
    assert saves == []


def test_a_workload_is_told_with_the_share_of_its_jobs_that_met_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paused, "draw", lambda *_: TASKS)
    found = paused.play(HOLDS_FOR_NOTHING, False, paused.AGAIN[:1], 1)
    assert found.alone > found.weighed > 0.0
    assert found.paused == pytest.approx(1.0 - (WARM + ENOUGH_BLOCKS * BLOCK + TAIL - 1) / 400)
    assert np.isfinite(found).all()
