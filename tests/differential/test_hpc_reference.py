"""The HPC engine against SchedInspector's published simulator, the DAG engine, and itself uncompiled."""

from __future__ import annotations

import csv
import json
import lzma
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.shared_data import require_shared

from fermata.policy.queue_features import FEATURE_NAMES, FEATURES
from fermata.policy.registry import load
from fermata.sim.hpc import JobLog, Schedule, policy, simulate
from fermata.sim.hpc.experiment import published_sequences
from fermata.sim.hpc.lublin import generate
from fermata.sim.hpc.metrics import figures
from fermata.sim.hpc.orders import order
from fermata.sim.hpc.queue_models import QueueModel
from fermata.sim.hpc.rules import PUBLISHED_BACKFILL, PUBLISHED_NO_BACKFILL
from fermata.sim.hpc.scoring import PARAMETERS
from fermata.sim.hpc.swf import Cleaning, read_log
from fermata.sim.simulate import simulate as simulate_dag
from fermata.sim.trace_builder import one_stage_trace

TRACES = ("lublin_256.swf", "lublin_256_new2", "SDSC-SP2-recon.swf", "CTC-SP2-recon.swf")
JOBS = 256


def published_log(trace: str) -> JobLog:
    name = trace.removesuffix(".swf")
    return read_log(require_shared("data", "swf", f"{name}.swf.xz"), Cleaning.SCHEDINSPECTOR).with_exact_estimates()


def published_run(log: JobLog, name: str, backfill: bool, start: int) -> Schedule:
    rules = PUBLISHED_BACKFILL if backfill else PUBLISHED_NO_BACKFILL
    return simulate(log.sequence(start, JOBS), order(name.lower()), rules)


@pytest.mark.parametrize("trace", TRACES)
def test_every_published_row_to_a_millionth(trace: str) -> None:
    table = require_shared("golden", "schedinspector", "schedinspector_base.csv")
    with table.open(encoding="utf-8") as lines:
        rows = [row for row in csv.DictReader(lines) if row["trace"] == trace]
    assert len(rows) == 600
    log = published_log(trace)
    for row in rows:
        ours = figures(published_run(log, row["policy"], row["backfill"] == "1", int(row["start_index"])))
        for theirs, key in (("bsld", "bsld"), ("wait", "wait_s"), ("mbsld", "mbsld"), ("util", "utilization")):
            assert ours[key] == pytest.approx(float(row[theirs]), rel=1e-6), (row, key)
    drawn = [int(row["start_index"]) for row in rows if (row["policy"], row["backfill"]) == ("SJF", "0")]
    assert published_sequences(log, 50, JOBS, 1).starts == tuple(drawn)


@pytest.mark.parametrize("trace", TRACES)
def test_every_published_start(trace: str) -> None:
    runs = json.loads(lzma.decompress(require_shared("golden", "schedinspector", "starts.json.xz").read_bytes()))[trace]
    log = published_log(trace)
    assert len(runs) == 12
    for run, sequences in runs.items():
        name, backfill = run.split("|")
        for start, expected in sequences.items():
            schedule = published_run(log, name, backfill == "bf1", int(start))
            ours = dict(zip(schedule.log.ids.tolist(), schedule.start_s.tolist(), strict=True))
            assert ours == dict(expected), (run, start)


# Work-conserving rules of the DAG engine: at every event, in the order of the policy, whatever fits is started. Its SJF
# goes by work, that is, by cores times run time.
@pytest.mark.parametrize(("here", "there"), [("fcfs/skip", "fifo"), ("saf/skip", "sjf"), ("lcfs/skip", "lcfs")])
@pytest.mark.parametrize("seed", [1, 2])
def test_the_dag_engine_starts_multi_slot_tasks_at_the_same_times(here: str, there: str, seed: int) -> None:
    random = np.random.default_rng(seed)
    drawn = generate(300, seed, machine_cores=64, load=2.0)
    # Distinct times: ties are broken by different rules, which is not what is compared here.
    submit = np.sort(random.uniform(0.0, drawn.submit_s[-1], len(drawn)))
    runtime = drawn.runtime_s + random.uniform(1.0, 2.0, len(drawn))
    log = JobLog("dag", 64, drawn.ids, submit, runtime, runtime, drawn.cores, drawn.user, drawn.partition)
    chosen = policy(here)
    ours = simulate(log, chosen.order, chosen.rules).start_s
    theirs = simulate_dag(one_stage_trace(submit, runtime, slots=log.cores), 64, load(there)).job_start_s
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-6)
    assert (ours > submit).mean() > 0.2, "jobs should wait, or nothing is compared"


@pytest.mark.training
@pytest.mark.parametrize("classes", [False, True], ids=["each its own length", "as long in classes"])
@pytest.mark.parametrize("seed", [1, 2])
def test_the_policy_over_the_queue_decides_the_same_on_a_clusters_state(
    seed: int, classes: bool, tmp_path: Path
) -> None:
    pytest.importorskip("torch")
    from fermata.training.hpc.export import export_queue_model

    random = np.random.default_rng(seed)
    drawn = generate(200, seed, machine_cores=64, load=1.5)
    submit = np.sort(random.uniform(0.0, drawn.submit_s[-1], len(drawn)))
    runtime = drawn.runtime_s + random.uniform(1.0, 2.0, len(drawn))
    if classes:  # what begins together then ends together, at times that are rounded
        runtime = np.exp(np.round(np.log(runtime)))
    log = JobLog("dag", 64, drawn.ids, submit, runtime, runtime, drawn.cores, drawn.user, drawn.partition)
    # Random weights, so that every feature counts; above zero unless the head is delayed, because the two simulators
    # bound the idleness of a whole machine differently.
    theta = random.normal(0.0, 0.3, PARAMETERS)
    theta[FEATURES], theta[FEATURE_NAMES.index("delays_head")] = 20.0, -60.0
    export_queue_model(QueueModel(theta.astype(np.float32).astype(np.float64)), tmp_path / "random.onnx")
    chosen = policy(str(tmp_path / "random.onnx"))
    ours = simulate(log, chosen.order, chosen.rules, None, chosen.model).start_s
    trace = one_stage_trace(submit, runtime, slots=log.cores)
    theirs = simulate_dag(trace, 64, load(tmp_path / "random.onnx")).job_start_s
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-6)
    easy = policy("saf+easy/skip")
    assert (ours != simulate(log, easy.order, easy.rules).start_s).mean() > 0.2, "another order than its base's"


PLAIN = """
import hashlib
from fermata.sim.hpc import policy, simulate
from fermata.sim.hpc.estimates import with_estimates
from fermata.sim.hpc.inspect import PICKS, REJECT_IF_BLOCKED, rule_inspector
from fermata.sim.hpc.lublin import generate
log = with_estimates(generate(120, 3, machine_cores=32, load=1.2), "lognormal:1", 1)
digest = hashlib.sha256()
names = ("sjf", "saf+easy/skip", "fcfs+conservative", "sjf+published", "wfp3/strict", "unicep+easy/skip",
         "multifactor+easy/skip", "p2q/skip+reserve:over_s=600,share=0.2")
for name in names:
    chosen = policy(name)
    for inspector in (None, rule_inspector(PICKS, REJECT_IF_BLOCKED)):
        digest.update(simulate(log, chosen.order, chosen.rules, inspector).start_s.tobytes())
queue = policy("queue-prompt")
digest.update(simulate(log, queue.order, queue.rules, None, queue.model).start_s.tobytes())
print(digest.hexdigest())
"""


def test_compiled_and_plain_python_give_the_same_schedules() -> None:
    told = [
        subprocess.run(
            [sys.executable, "-c", PLAIN],
            env={**os.environ, **extra},
            capture_output=True,
            text=True,
            check=True,
            timeout=200,
        ).stdout
        for extra in ({}, {"FERMATA_NO_JIT": "1"})
    ]
    assert len(told[0]) > 60
    assert told[0] == told[1]
