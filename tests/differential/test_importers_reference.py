"""Importers against published data and what published simulators made of it."""

from __future__ import annotations

import json
import lzma

import numpy as np
import pytest
from tests.shared_data import require_shared

from fermata.policy.errors import InputError
from fermata.sim.importers import IMPORTERS, ImportOptions
from fermata.sim.importers.tpch import QUERIES, SIZES, TpchStage, decima_sequence, load_query, spark_sequence
from fermata.sim.metrics import job_shapes
from fermata.sim.trace_jobs import task_counts


@pytest.mark.parametrize(
    ("log", "processors"),
    [("lublin_256", 256), ("lublin_256_new2", 256), ("CTC-SP2-recon", 338), ("SDSC-SP2-recon", 128)],
)
def test_a_log_keeps_every_job_of_the_file(log: str, processors: int) -> None:
    path = require_shared("data", "swf", f"{log}.swf.xz")
    imported = IMPORTERS["swf"].read(path, ImportOptions())
    with lzma.open(path, "rt") as stream:
        rows = np.loadtxt(stream, comments=";")
    assert imported.executors == processors
    assert imported.skipped == {}
    by_arrival = rows[np.argsort(rows[:, 1], kind="stable")]
    assert [int(job) for job in imported.trace.job_ids] == by_arrival[:, 0].astype(int).tolist()
    np.testing.assert_array_equal(imported.trace.job_arrival_s, by_arrival[:, 1])
    np.testing.assert_array_equal(imported.trace.task_duration_s, by_arrival[:, 3])
    np.testing.assert_array_equal(imported.trace.stage_slots, by_arrival[:, 4])


def mean_ms(stage: TpchStage) -> float:
    """Mean over all recorded durations: what Decima's agent believes before a task of the stage has ended."""
    waves = (stage.first_wave, stage.rest_wave, stage.fresh)
    return float(np.mean([duration for wave in waves for each in wave.values() for duration in each]))


def test_tpch_queries_have_the_published_shape() -> None:
    folder = require_shared("data", "tpch")
    published = json.loads(require_shared("golden", "decima", "tpch_stats.json").read_text())
    assert len(published) == len(SIZES) * QUERIES
    for name, shape in published.items():
        size, _, number = name.partition("-")
        query = load_query(folder, size, int(number))
        assert len(query.stages) == shape["stages"], name
        assert sum(map(len, query.parents)) == shape["edges"], name
        assert sum(stage.tasks for stage in query.stages) == shape["tasks"], name
        work_s = sum(stage.tasks * mean_ms(stage) for stage in query.stages) / 1000.0
        assert work_s == pytest.approx(shape["work_s"], rel=1e-9), name


@pytest.mark.parametrize("log", ["d_A", "d_Adet", "d_C"])
def test_decima_sequences_are_those_of_its_logs(log: str) -> None:
    for run in json.loads(require_shared("golden", "decima", f"{log}.json").read_text())["res"]:
        drawn = decima_sequence(run["seed"], len(run["jobs"]))
        logged = sorted((arrival, name) for arrival, name, _ in run["jobs"])
        assert sorted((each.arrival_ms, f"tpch-{each.size}-{each.number}") for each in drawn) == logged


@pytest.mark.parametrize("log", ["s_E1_fair", "s_E2_fair"])
def test_its_successor_s_sequences_are_those_of_its_logs(log: str) -> None:
    for run in json.loads(require_shared("golden", "decima", f"{log}.json").read_text())["res"]:
        drawn = spark_sequence(run["seed"], len(run["jobs"]))
        logged = sorted((arrival, name) for arrival, name, _ in run["jobs"])
        assert [(each.arrival_ms, f"tpch-{each.size}-{each.number}") for each in drawn] == logged


def test_a_sampled_trace_has_as_many_tasks_as_the_log_counts() -> None:
    folder = require_shared("data", "tpch")
    run = json.loads(require_shared("golden", "decima", "s_E1_fair.json").read_text())["res"][0]
    trace = IMPORTERS["tpch"].read(folder, ImportOptions(seed=run["seed"], jobs=run["njobs"])).trace
    assert trace.tasks == task_counts(trace).sum() == run["events"]["TASK_FINISHED"]
    assert (job_shapes(trace).width > 1.0).all()


def test_the_importer_follows_either_way_of_drawing_jobs() -> None:
    folder = require_shared("data", "tpch")
    sampled = IMPORTERS["tpch"].read(folder, ImportOptions(seed=3, jobs=20, sequence="decima")).trace
    expected = [f"{index}-tpch-{each.size}-{each.number}" for index, each in enumerate(decima_sequence(3, 20))]
    assert list(sampled.job_ids) == expected
    with pytest.raises(InputError, match="no sequence 'odd'; there are: decima, spark"):
        IMPORTERS["tpch"].read(folder, ImportOptions(sequence="odd"))
