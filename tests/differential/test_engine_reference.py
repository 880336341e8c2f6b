"""The engine against the benchmark's reference figures, and compiled code against plain Python."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.shared_data import require_shared, scenarios

from fermata.policy.registry import load
from fermata.sim.experiment import Setting, run_seeds
from fermata.sim.scenarios import scenario
from fermata.sim.simulate import simulate
from fermata.sim.trace_io import read_trace

SEEDS = range(1000, 1005)
# The references are printed with four decimals.
HALF_LAST_DIGIT_S = 0.5e-4

ONE_STAGE = ["syn_60", "syn_80", "norm50", "norm200", "express_k2", "express_k2_80", "express_k4", "k8s_poisson"]
EXACT = [(name, policy) for name in [*ONE_STAGE, "k8s_cron", "pairs_k1_30"] for policy in ("FIFO", "SJF")]
EXACT += [(name, policy) for name in ("dag_pods", "dag_tasks", "dag_wide") for policy in ("FIFO", "SJF", "SRWF")]


def assert_printed_as(figures_s: list[float], reference_s: list[float]) -> None:
    """To 1e-6 relative, or to the last digit that the reference prints where that is less."""
    np.testing.assert_allclose(figures_s, reference_s, rtol=1e-6, atol=HALF_LAST_DIGIT_S)


@pytest.mark.parametrize(("name", "policy"), EXACT)
def test_work_conserving_references(name: str, policy: str) -> None:
    chosen = scenario(name)
    setting = Setting(policy.lower(), chosen.executors, chosen.warm)
    figures_s = [run.figures["avg_jct_s"] for run in run_seeds(chosen, SEEDS, setting)]
    assert_printed_as(figures_s, scenarios()[name]["per_seed_1000_1004"][policy])


@pytest.mark.parametrize("name", ["express_k2", "k8s_poisson", "dag_pods", "dag_wide"])
def test_given_traces_give_the_references_too(name: str) -> None:
    chosen, base = scenario(name), scenarios()[name]["base"]
    figures_s = []
    for seed in SEEDS:
        trace = read_trace(require_shared("scenarios", "traces", f"{name}-{seed}.jsonl.xz"))
        figures_s.append(simulate(trace, chosen.executors, load(base.lower())).job_jct_s[chosen.warm :].mean())
    assert_printed_as(figures_s, scenarios()[name]["per_seed_1000_1004"][base])


def test_greedy_sjf_on_moldable_jobs() -> None:
    chosen = scenario("mold_80")
    runs = run_seeds(chosen, SEEDS, Setting("sjf", chosen.executors, chosen.warm))
    expected = scenarios()["mold_80"]["per_seed_1000_1004"]["SJF_greedy"]
    assert_printed_as([run.figures["avg_jct_s"] for run in runs], expected)


def test_holding_a_long_job_for_its_follower() -> None:
    chosen, reference = scenario("pairs_k1_30"), scenarios()["pairs_k1_30"]
    delay_s = reference["tuned_parameters"]["hold_until_follower"]
    runs = run_seeds(chosen, SEEDS, Setting(f"hold-follower:delay={delay_s}", 1, chosen.warm))
    figures_s = [run.figures["avg_jct_s"] for run in runs]
    assert_printed_as(figures_s, reference["per_seed_1000_1004"]["hold_until_follower"])


@pytest.mark.parametrize(("name", "policy"), [("dag_wide", "srwf"), ("express_k2_80", "sjf"), ("k8s_cron", "fifo")])
def test_means_over_all_development_seeds(name: str, policy: str) -> None:
    chosen, reference = scenario(name), scenarios()[name]["mean_jct_s"][policy.upper()]
    figures = [
        run.figures["avg_jct_s"]
        for run in run_seeds(chosen, range(1000, 1020), Setting(policy, chosen.executors, chosen.warm))
    ]
    assert np.mean(figures) == pytest.approx(reference["mean"], abs=0.5e-3 + 1e-9)


@pytest.mark.parametrize("name", ["dag_pods", "dag_wide", "dag_tasks"])
@pytest.mark.parametrize(("policy", "label"), [("fair", "Fair"), ("weighted-fair", "WFair_inv"), ("sjf-cp", "SJF_CP")])
def test_dag_references_over_all_development_seeds(name: str, policy: str, label: str) -> None:
    chosen, reference = scenario(name), scenarios()[name]["mean_jct_s"][label]
    runs = run_seeds(chosen, range(1000, 1020), Setting(policy, chosen.executors, chosen.warm))
    assert np.mean([run.figures["avg_jct_s"] for run in runs]) == pytest.approx(reference["mean"], abs=0.5e-3 + 1e-9)


@pytest.mark.parametrize(
    ("name", "split_s"), [("express_k2", 45.0), ("express_k2_80", 45.0), ("syn_60", 22.0), ("k8s_poisson", 300.0)]
)
def test_the_tuned_hold_switch_family(name: str, split_s: float) -> None:
    chosen, reference = scenario(name), scenarios()[name]
    last, tau, per_long, most, theta, per_short = reference["tuned_parameters"]["hold_switch"]
    policy = (
        f"sjf-hold:last={last},split={split_s},tau={tau},tau_per_long={per_long},max_longs={most},"
        f"theta={theta},theta_per_short={per_short}"
    )
    runs = list(run_seeds(chosen, range(1000, 1020), Setting(policy, chosen.executors, chosen.warm)))
    figures_s = [run.figures["avg_jct_s"] for run in runs]
    mean_s = reference["mean_jct_s"]["hold_switch"]["mean"]
    assert np.mean(figures_s) == pytest.approx(mean_s, abs=0.5e-3 + 1e-9)
    if "hold_switch" in reference["per_seed_1000_1004"]:
        assert_printed_as(figures_s[:5], reference["per_seed_1000_1004"]["hold_switch"])


EPISODES = """
import hashlib, json
import numpy as np
from tests.episodes import any_legal_action, log_of, random_trace
from tests.spark_workloads import random_workload
from fermata.sim.spark.episode import peer_episode, policy_episode
from fermata.sim.spark.peers import PEERS
from fermata.policy._jit import COMPILED
from fermata.policy.guardrails import Guardrails
from fermata.policy.registry import HEURISTICS, load
from fermata.sim.simulate import simulate
policies = [load(name) for name in [*sorted(HEURISTICS), "sjf-hold:tau=2,split=4", "hold-follower:delay=2"]]
digest = hashlib.sha256()
for seed in range(60):
    executors = 1 + seed % 5
    trace = random_trace(seed, executors)
    limits = Guardrails(max_hold_s=4.0) if seed % 3 == 0 else Guardrails()
    for policy in [policies[seed % len(policies)], any_legal_action(seed)]:
        episode = simulate(trace, executors, policy, limits=limits, sticky=seed % 2 == 1)
        digest.update(repr(log_of(episode)).encode())
for seed in range(12):
    jobs = random_workload(seed)
    for policy in [*PEERS, "srwf", "srwf-equal-share"]:
        waves = jobs.waves(1 + seed % 4, np.random.default_rng(seed).integers(0, 2**32, 50, np.uint32))
        run = peer_episode if policy in PEERS else policy_episode
        _, world = run(jobs, waves, policy if policy in PEERS else load(policy))
        digest.update(repr([world.task_start_ms.tolist(), world.task_end_ms.tolist()]).encode())
print(json.dumps([COMPILED, digest.hexdigest()]))
"""


def test_compiled_code_gives_the_same_log_as_plain_python() -> None:
    answers = []
    for no_jit in ("", "1"):
        done = subprocess.run(
            [sys.executable, "-c", EPISODES],
            check=True,
            capture_output=True,
            text=True,
            cwd=Path(__file__).resolve().parents[2],
            env={**os.environ, "FERMATA_NO_JIT": no_jit},
        )
        answers.append(json.loads(done.stdout))
    (compiled, log), (plain, other) = answers
    assert (compiled, plain) == (True, False)
    assert log == other
