"""What goes out in another format comes back the same through its importer."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree.ElementTree import parse

import numpy as np
import pytest

from fermata.policy.errors import InputError
from fermata.sim.exporters.graphml import write_graphml
from fermata.sim.exporters.swf import write_swf
from fermata.sim.exporters.wfformat import write_wfformat
from fermata.sim.importers.swf import read_swf
from fermata.sim.importers.wfcommons import read_wfcommons
from fermata.sim.metrics import job_shapes
from fermata.sim.scenarios import SCENARIOS
from fermata.sim.trace_builder import StageSpec, TraceBuilder, one_stage_trace


def test_rigid_jobs_go_through_swf_unchanged(tmp_path: Path) -> None:
    trace = one_stage_trace([0.0, 1.5, 7.0], [10.0, 0.25, 3.0], slots=[4, 1, 2], estimate_s=[20.0, 0.5, 3.0])
    write_swf(trace, tmp_path / "log.swf.gz", executors=6)
    imported = read_swf(tmp_path / "log.swf.gz")
    assert imported.executors == 6
    for name in ("job_arrival_s", "task_duration_s", "stage_slots", "stage_estimate_s"):
        np.testing.assert_array_equal(getattr(imported.trace, name), getattr(trace, name))


def test_swf_says_no_size_of_the_machine_that_nobody_told(tmp_path: Path) -> None:
    trace = one_stage_trace([0.0, 1.0], [10.0, 5.0], slots=[1, 4])
    write_swf(trace, tmp_path / "log.swf")
    assert "MaxProcs" not in (tmp_path / "log.swf").read_text()
    assert read_swf(tmp_path / "log.swf").executors is None
    with pytest.raises(InputError, match="a machine of 3 executors: a job takes 4 of them"):
        write_swf(trace, tmp_path / "log.swf", executors=3)


def test_swf_refuses_what_it_cannot_say(tmp_path: Path) -> None:
    for name in ("dag_pods", "dag_tasks", "mold_80"):
        with pytest.raises(InputError, match="only jobs of one stage with one task"):
            write_swf(SCENARIOS[name].with_(jobs=30).generate(1), tmp_path / "log.swf")
    builder = TraceBuilder()
    for name, stages in (("rigid", [StageSpec("a", [1.0])]), ("wide", [StageSpec("a", [1.0, 2.0])])):
        builder.add_job(name, 0.0, stages)
    builder.add_job("dag", 1.0, [StageSpec("a", [1.0]), StageSpec("b", [1.0], ["a"])])
    with pytest.raises(InputError, match="which 2 of 3 are not; the first is 'wide'"):
        write_swf(builder.finish(), tmp_path / "log.swf")
    with pytest.raises(InputError, match="no estimate of 0 s, which job 'j1' has: 0 is unknown there"):
        write_swf(one_stage_trace([0.0, 1.0], [0.0, 5.0], estimate_s=[0.0, 0.0]), tmp_path / "log.swf")
    assert not list(tmp_path.iterdir())


def test_a_dag_goes_through_wfformat_with_the_same_work_and_critical_path(tmp_path: Path) -> None:
    builder = TraceBuilder()
    builder.add_job(
        "d",
        0.0,
        [
            StageSpec("top", [1.0, 4.0]),
            StageSpec("end", [2.0, 0.5, 3.0], depends_on=["top"], slots=2),
        ],
    )
    trace = builder.finish()
    write_wfformat(trace, tmp_path / "run.json")
    document = json.loads((tmp_path / "run.json").read_text())
    tasks = {task["id"]: task for task in document["workflow"]["specification"]["tasks"]}
    assert tasks["end/1"]["parents"] == ["top/0", "top/1"]
    assert tasks["top/0"]["children"] == ["end/0", "end/1", "end/2"]
    back = read_wfcommons(tmp_path / "run.json").trace
    assert list(back.job_ids) == ["d"]
    assert (back.stages, len(back.parent)) == (5, 6)
    for ours, theirs in zip(job_shapes(back), job_shapes(trace), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_wfformat_refuses_what_it_cannot_say(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not 2 jobs; choose one with --job ID"):
        write_wfformat(one_stage_trace([0.0, 1.0], [1.0, 1.0]), tmp_path / "run.json")
    with pytest.raises(InputError, match="moldable"):
        write_wfformat(one_stage_trace([0.0], [1.0], serial_fraction=0.5), tmp_path / "run.json")
    builder = TraceBuilder()
    builder.add_job("wide", 0.0, [StageSpec("a", [1.0] * 3000), StageSpec("b", [1.0] * 3000, depends_on=["a"])])
    with pytest.raises(InputError, match="9000000 edges"):
        write_wfformat(builder.finish(), tmp_path / "run.json")


def test_wfformat_refuses_tasks_of_one_name(tmp_path: Path) -> None:
    builder = TraceBuilder()
    builder.add_job("j", 0.0, [StageSpec("a", [2.0, 2.0]), StageSpec("a/0", [3.0], ["a"])])
    with pytest.raises(InputError, match="two tasks would be called 'a/0'"):
        write_wfformat(builder.finish(), tmp_path / "run.json")
    assert not (tmp_path / "run.json").exists()


def test_graphml_refuses_names_that_xml_cannot_hold(tmp_path: Path) -> None:
    builder = TraceBuilder()
    builder.add_job("d", 0.0, [StageSpec("bell\a", [1.0])])
    with pytest.raises(InputError, match=r"the name 'bell\\x07' has the character '\\x07', which XML cannot hold"):
        write_graphml(builder.finish(), tmp_path / "run.graphml")
    assert not list(tmp_path.iterdir())


def test_graphml_says_everything_once_however_many_graphs_follow(tmp_path: Path) -> None:
    write_graphml(one_stage_trace([0.0, 1.0, 2.0], [5.0, 6.0, 7.0]), tmp_path / "jobs.graphml")
    document = parse(tmp_path / "jobs.graphml")
    for element in document.iter():
        keys = [data.get("key") for data in element.findall("{*}data")]
        assert len(keys) == len(set(keys))
