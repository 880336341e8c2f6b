"""Bounds and optimal policies against the benchmark's reference values, and compiled code against plain Python."""

from __future__ import annotations

import json
import lzma
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from tests.shared_data import require_shared, scenarios

from fermata.policy.theory import bounds, optimal
from fermata.policy.theory.chain import TwoClasses, lattice_chain
from fermata.policy.theory.iteration import Family, solve
from fermata.policy.theory.replay import replay_jct_s

SEEDS = range(1000, 1020)


def _sample(name: str, scenario: dict[str, Any], seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return arrivals and sizes by the recipe that the scenario file gives in words."""
    rng, jobs = np.random.default_rng(seed), scenario["jobs"]
    gap, share, *sizes = scenario["parameters"]["par"]
    arrival, short = np.cumsum(rng.exponential(gap, jobs)), rng.random(jobs) < share
    if name == "k8s_poisson":
        short_s, long_s = 20.0 * np.exp(rng.normal(0.0, 0.6, jobs)), 1800.0 * np.exp(rng.normal(-0.125, 0.5, jobs))
    elif name.startswith("norm"):
        short_s, long_s = sizes[0], np.maximum(1.0, rng.normal(sizes[1], sizes[1] / 6.0, jobs))
    else:
        short_s, long_s = sizes
    return arrival, np.where(short, short_s, long_s)


ONE_STAGE = ["syn_60", "syn_80", "norm50", "norm200", "express_k2", "express_k2_80", "express_k4", "k8s_poisson"]


@pytest.mark.parametrize("name", ONE_STAGE)
def test_bounds_of_one_stage_scenarios(name: str) -> None:
    scenario = scenarios()[name]
    executors, warm = scenario["executors"], scenario["warm"]
    rows = []
    for seed in SEEDS:
        arrival, size = _sample(name, scenario, seed)
        rows.append(
            [
                bounds.srpt_jct_s(arrival, size, executors)[warm:].mean(),
                bounds.mean_busy_time_jct_s(arrival, size, executors)[warm:].mean(),
            ]
        )
    srpt, rigorous = np.mean(rows, axis=0)
    assert srpt == pytest.approx(scenario["mean_jct_s"]["SRPTk_preemptive"]["mean"], abs=6e-4)
    assert rigorous == pytest.approx(scenario["mean_jct_s"]["LB_rigorous"]["mean"], abs=6e-4)


def _trace(name: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return arrivals and work of a job trace; every job's tasks one after another."""
    arrival, work = [], []
    with lzma.open(require_shared("scenarios", "traces", f"{name}-{seed}.jsonl.xz"), "rt") as lines:
        for line in lines:
            job = json.loads(line)
            arrival.append(job["arrival_s"])
            stages = job["stages"]
            work.append(sum(sum(stage.get("durations_s", [stage.get("duration_s", 0.0)])) for stage in stages))
    return np.array(arrival), np.array(work)


@pytest.mark.parametrize("name", ["pairs_k1_30", "k8s_cron"])
def test_bounds_of_given_traces(name: str) -> None:
    scenario = scenarios()[name]
    executors, warm, base = scenario["executors"], scenario["warm"], scenario["per_seed_1000_1004"][scenario["base"]]
    for which, reference in ((bounds.srpt_jct_s, "SRPTk_preemptive"), (bounds.mean_busy_time_jct_s, "LB_rigorous")):
        change = []
        for seed, base_s in zip(range(1000, 1005), base, strict=True):
            arrival, size = _trace(name, seed)
            change.append(100.0 * (which(arrival, size, executors)[warm:].mean() / base_s - 1.0))
        _assert_drawn_from(change, scenario["mean_jct_s"][reference])


@pytest.mark.parametrize("name", ["dag_tasks", "dag_pods", "dag_wide"])
def test_pooled_bound_of_dag_scenarios(name: str) -> None:
    scenario = scenarios()[name]
    change = []
    for seed, base_s in zip(range(1000, 1005), scenario["per_seed_1000_1004"]["SRWF"], strict=True):
        arrival, work = _trace(name, seed)
        jct_s = bounds.pooled_srpt_jct_s(arrival, work, scenario["executors"])
        change.append(100.0 * (jct_s[scenario["warm"] :].mean() / base_s - 1.0))
    _assert_drawn_from(change, scenario["mean_jct_s"]["LB_pooled_SRPT"])


def _assert_drawn_from(change_pct: list[float], reference: dict[str, float]) -> None:
    """Five seeds of the twenty whose mean and interval are given: within three standard errors of a mean of five."""
    spread = reference["vs_base_ci95"] / 2.093 * np.sqrt(20.0)  # Student's t, 19 degrees of freedom
    assert abs(np.mean(change_pct) - reference["vs_base_pct"]) < 3.0 * spread / np.sqrt(5.0)


@pytest.mark.parametrize("name", ["syn_60", "syn_80", "express_k2", "express_k2_80", "express_k4"])
def test_replayed_sjf_is_the_reference_sjf(name: str) -> None:
    scenario = scenarios()[name]
    gap, share, short_s, long_s = scenario["parameters"]["par"]
    load = (share * short_s + (1.0 - share) * long_s) / gap / scenario["executors"]
    classes = TwoClasses(scenario["executors"], share, short_s, long_s, load)
    sjf = solve(lattice_chain(classes, 10.0), Family.SJF, tolerance=0.9)  # its choices do not depend on the values
    for seed, reference in zip(range(1000, 1005), scenario["per_seed_1000_1004"]["SJF"], strict=True):
        arrival, size = _sample(name, scenario, seed)
        jct_s = replay_jct_s(sjf, arrival, size == long_s)
        assert jct_s[scenario["warm"] :].mean() == pytest.approx(reference, abs=6e-5)


@pytest.mark.parametrize(
    ("name", "slot_s"),
    [
        ("k1_p.95_10_200_rho.6", 2.5),
        ("k2_p.75_10_50_rho.8", 2.5),
        ("k2_p.9_10_50_rho.8", 2.5),
        ("k3_p.75_10_50_rho.67", 5.0),
        pytest.param("k5_p.25_10_50_rho.8", 5.0, marks=pytest.mark.slow),
        pytest.param("k3_p.9_10_200_rho.7", 5.0, marks=[pytest.mark.slow, pytest.mark.timeout(1800)]),
    ],
)
def test_optimal_policies(name: str, slot_s: float) -> None:
    reference = scenarios()["_optimal"][name]
    classes = optimal.case(name)
    coarse, fine = (optimal.solve_families(lattice_chain(classes, s), 3e-4, quiet=True) for s in (2 * slot_s, slot_s))
    mean_s = [optimal.extrapolated_mean_jct_s(*pair) for pair in zip(fine, coarse, strict=True)]
    assert mean_s[Family.SJF] == pytest.approx(reference["sjf"], rel=0.005)
    replayed = optimal.replay_families(fine, jobs=20_000, warm=500, seeds=range(1000, 1020))
    for family, key in ((Family.WORK_CONSERVING, "wcopt_pct"), (Family.IDLING, "opt_pct")):
        # One executor: SJF is the best work-conserving rule, so the reference does not name it.
        expected_pct = reference.get(key, 0.0)
        change_pct, ci95 = replayed.against_sjf_pct(family)
        assert 100.0 * (mean_s[family] / mean_s[Family.SJF] - 1.0) == pytest.approx(expected_pct, abs=0.3)
        assert change_pct == pytest.approx(expected_pct, abs=0.2 + ci95)


PLAIN = """
import numpy as np
from fermata.policy.theory import bounds, optimal
from fermata.policy.theory.chain import TwoClasses, lattice_chain
classes = TwoClasses(2, 0.7, 10.0, 20.0, 0.6)
solutions = optimal.solve_families(lattice_chain(classes, 10.0, caps=(5, 5)), 1e-2, quiet=True)
arrival_s, is_long = optimal.sample(classes, 200, 1)
size_s = np.where(is_long, 20.0, 10.0)
figures = [solution.mean_jct_s.hex() for solution in solutions]
figures += [float(mean).hex() for mean in optimal.replay_families(solutions, 200, 20, range(2)).mean_jct_s.ravel()]
for which in (bounds.srpt_jct_s, bounds.mean_busy_time_jct_s):
    figures.append(float(which(arrival_s, size_s, 2).sum()).hex())
print(figures)
"""


def test_compiled_code_answers_as_plain_python() -> None:
    answers = [
        subprocess.run(
            [sys.executable, "-c", PLAIN],
            check=True,
            capture_output=True,
            text=True,
            env={**os.environ, "FERMATA_NO_JIT": no_jit},
        ).stdout
        for no_jit in ("", "1")
    ]
    assert answers[0] == answers[1]
    assert answers[0].startswith("['0x")
