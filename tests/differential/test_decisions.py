"""Decisions of the operator, in plain Python, against those of the compiled kernels on the same states.

In plain Python a decision sorts the ready stages once and reads only the rows that it looks at; compiled, it looks at
all of them again for every action. Both must say the same.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from fermata.policy import registry
from fermata.policy._jit import COMPILED
from fermata.policy.decide import decide
from fermata.policy.guardrails import Guardrails
from fermata.policy.heuristics.sjf import SJF
from fermata.policy.state import IDLE, ClusterState, free_executor_list

STATES = 40
LIMITS = (Guardrails(), Guardrails(30.0, 200.0, hold_when_idle=False))
NOW_S = 100.0


def state_of(seed: int) -> ClusterState:
    """Return a state with many ties, wide tasks, caps, committed holds and stages that run in part."""
    draw = np.random.default_rng(seed)
    executors, jobs = int(draw.integers(1, 12)), int(draw.integers(1, 30))
    stage_job = np.repeat(np.arange(jobs, dtype=np.int32), draw.integers(1, 5, jobs))
    stages = len(stage_job)
    estimate_s = draw.choice([1.0, 2.0, 5.0, 40.0], stages)
    slots = draw.choice([1, 1, 1, 2, 3], stages).astype(np.int32)
    tasks = draw.integers(1, 5, stages).astype(np.int32)
    running = np.zeros(stages, np.int32)
    executor_stage = np.full(executors, IDLE, np.int32)
    at = 0
    for stage in draw.permutation(stages)[: int(draw.integers(0, 6))]:
        if at + slots[stage] <= executors:
            executor_stage[at : at + slots[stage]] = stage
            running[stage], at = 1, at + int(slots[stage])
    busy = executor_stage != IDLE
    executor_job = np.where(busy, stage_job[executor_stage], IDLE).astype(np.int32)
    pending = (tasks - running).astype(np.int32)
    ready_s = np.where(draw.random(stages) < 0.6, draw.choice([10.0, 50.0, NOW_S], stages), math.inf)
    hold_until_s = np.where(draw.random(stages) < 0.1, NOW_S + 5.0, -math.inf)
    work_s = np.bincount(stage_job, estimate_s * tasks * slots, jobs)
    path_s = estimate_s * draw.choice([1.0, 2.0], stages)
    critical_s = np.zeros(jobs)
    np.maximum.at(critical_s, stage_job, path_s)
    return ClusterState(
        now_s=NOW_S,
        free=int((~busy).sum()),
        executor_free_at_s=np.where(busy, NOW_S + draw.choice([-1.0, 0.5, 3.0, 60.0], executors), -math.inf),
        executor_stage=executor_stage,
        executor_job=executor_job,
        job_arrival_s=np.sort(draw.choice([5.0, 10.0, 20.0], jobs)),
        job_weight=draw.choice([1.0, 1.0, 8.0], jobs),
        job_work_s=work_s,
        job_remaining_work_s=work_s * draw.choice([0.5, 1.0], jobs),
        job_critical_path_s=critical_s,
        job_width=np.maximum(work_s / critical_s, 1.0),
        job_running=np.bincount(executor_job[busy], minlength=jobs).astype(np.int32),
        job_held_s=np.zeros(jobs),
        stage_job=stage_job,
        stage_pending=pending,
        stage_running=running,
        stage_estimate_s=estimate_s,
        stage_slots=slots,
        stage_serial_fraction=np.full(stages, math.nan),
        stage_cap=running.copy(),
        stage_max_cap=draw.integers(1, 5, stages).astype(np.int32),
        stage_ready_s=ready_s,
        stage_held_s=np.where(ready_s < NOW_S, draw.choice([0.0, 29.0, 31.0], stages), 0.0),
        stage_hold_until_s=hold_until_s,
        stage_path_s=path_s,
        free_executors=free_executor_list(executor_stage),
        active_jobs=np.arange(jobs, dtype=np.int32),
        ready_stages=draw.permutation(np.flatnonzero((ready_s < math.inf) & (pending > 0))).astype(np.int32),
        recent_arrival_s=np.sort(draw.uniform(0.0, NOW_S, jobs)),
        recent_work_s=work_s,
        recent_weight=draw.choice([0.5, 1.0, 8.0], jobs),
    )


def decisions() -> list[Any]:
    """Return all steps of every built-in policy on every state."""
    found = []
    for name in registry.names():
        policy = registry.load(name)
        for seed in range(STATES):
            for limits in LIMITS:
                steps = decide(state_of(seed), policy, limits, SJF)
                found.append([name, seed, [[repr(float(part)) for part in (*s.action, s.override)] for s in steps]])
    return found


def test_plain_and_compiled_decisions_are_the_same() -> None:
    code = (
        "import json; from tests.differential.test_decisions import COMPILED, decisions;"
        "print(json.dumps([COMPILED, decisions()]))"
    )
    run = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).resolve().parents[2],
        env={**os.environ, "FERMATA_NO_JIT": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    mode, plain = json.loads(run.stdout)
    compiled = decisions()
    assert (mode, COMPILED) == (False, True)
    assert plain == compiled
    starts = [step for _, _, steps in compiled for step in steps]
    assert sum(len(steps) > 2 for _, _, steps in compiled) > 100, "too few decisions of several actions"
    assert {step[0] for step in starts} == {"0.0", "1.0", "2.0"}, "not every kind of action occurs"
