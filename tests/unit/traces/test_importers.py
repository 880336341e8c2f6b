"""Foreign formats on tiny samples written for these tests, one rule of each importer at a time."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path

import networkx as nx
import numpy as np
import pytest

from fermata.policy.errors import InputError
from fermata.sim.importers import IMPORTERS, Imported, ImportOptions
from fermata.sim.importers.alibaba import read_alibaba
from fermata.sim.importers.graphml import read_graphml
from fermata.sim.importers.native import read_native
from fermata.sim.importers.swf import read_swf
from fermata.sim.importers.tpch import load_query, read_tpch
from fermata.sim.importers.wfcommons import read_wfcommons
from fermata.sim.trace import Trace

SWF = """; Version: 2.2
; MaxNodes: 4
; MaxProcs: 8
1  0 -1 100  4 -1 -1  4  200 -1 1 -1 -1 -1 -1 -1 -1 -1
2  5 -1  50 -1 -1 -1  2   -1 -1 1 -1 -1 -1 -1 -1 -1 -1
3  6 -1  -1  1 -1 -1  1   60 -1 0 -1 -1 -1 -1 -1 -1 -1
4  7 -1  10 -1 -1 -1 -1   20 -1 1 -1 -1 -1 -1 -1 -1 -1
5  8 -1   9  1 -1 -1  1   20 -1 3 -1 -1 -1 -1 -1 -1 -1
6  9 -1   0 -1 -1 -1  1   20 -1 5 -1 -1 -1 -1 -1 -1 -1
7 -1 -1  10  1 -1 -1  1   20 -1 1 -1 -1 -1 -1 -1 -1 -1
8  3 -1   7  1 -1 -1  1   20 -1 1
"""


def parents(trace: Trace, stage: str) -> list[str]:
    index = list(trace.stage_names).index(stage)
    return [trace.stage_names[p] for p in trace.parent[trace.parent_ptr[index] : trace.parent_ptr[index + 1]]]


def test_swf_jobs_take_their_processors_and_the_unknown_are_left_out_with_a_reason(tmp_path: Path) -> None:
    imported = read_swf(_file(tmp_path, "log.swf", SWF))
    trace = imported.trace
    assert list(trace.job_ids) == ["1", "8", "2"]
    assert trace.job_arrival_s.tolist() == [0.0, 3.0, 5.0]
    assert trace.task_duration_s.tolist() == [100.0, 7.0, 50.0]
    assert trace.stage_slots.tolist() == [4, 1, 2]
    assert trace.stage_estimate_s.tolist() == [200.0, 20.0, 50.0]
    assert imported.executors == 8
    assert imported.skipped == {
        "unknown run time": 1,
        "unknown number of processors": 1,
        "partial execution": 1,
        "cancelled before it started": 1,
        "unknown submit time": 1,
    }


def test_swf_jobs_wider_than_the_machine_are_left_out(tmp_path: Path) -> None:
    file = _file(tmp_path, "log.swf", SWF + "20 9 -1 10 9 -1 -1 9 20 -1 1\n")
    imported = read_swf(file)
    assert imported.skipped["wider than the machine"] == 1
    assert imported.trace.stage_slots.max() <= (imported.executors or 0)
    assert "20" in read_swf(file, ImportOptions(one_slot=True)).trace.job_ids


@pytest.mark.parametrize("header", ["", "; MaxProcs: 0\n; MaxNodes: 0\n"])
def test_where_a_swf_log_does_not_say_how_large_its_machine_is_no_job_is_too_wide(tmp_path: Path, header: str) -> None:
    jobs = SWF.replace("; MaxNodes: 4\n; MaxProcs: 8\n", header)
    imported = read_swf(_file(tmp_path, "log.swf", jobs + "20 9 -1 10 9000 -1 -1 9000 20 -1 1\n"))
    assert (list(imported.trace.job_ids), imported.trace.stage_slots.max()) == (["1", "8", "2", "20"], 9000)
    assert imported.executors is None


def test_a_swf_job_that_is_left_out_is_none_of_those_that_were_asked_for(tmp_path: Path) -> None:
    wide = "20 9 -1 10 9 -1 -1 9 20 -1 1\n"
    header, jobs = SWF[: SWF.index("1  0")], SWF[SWF.index("1  0") :]
    assert list(read_swf(_file(tmp_path, "log.swf", header + wide + jobs), ImportOptions(limit=1)).trace.job_ids) == [
        "1"
    ]


def test_the_size_of_a_swf_machine_may_stand_below_its_jobs(tmp_path: Path) -> None:
    """As in a log put together of two."""
    jobs = SWF.replace("; MaxNodes: 4\n; MaxProcs: 8\n", "")
    file = _file(tmp_path, "log.swf", jobs + "; MaxProcs: 3\n20 9 -1 10 4 -1 -1 4 20 -1 1\n")
    imported = read_swf(file)
    assert (list(imported.trace.job_ids), imported.trace.stage_slots.tolist()) == (["8", "2"], [1, 2])
    assert (imported.executors, imported.skipped["wider than the machine"]) == (3, 2)
    assert list(read_swf(file, ImportOptions(one_slot=True)).trace.job_ids) == ["1", "8", "2", "20"]
    at_the_end = read_swf(_file(tmp_path, "log.swf", jobs + "; MaxProcs: 3\n"))
    assert (list(at_the_end.trace.job_ids), at_the_end.skipped["wider than the machine"]) == (["8", "2"], 1)
    with pytest.raises(InputError, match=r"log.swf: no usable jobs \(no job fits into MaxProcs, 3\)"):
        read_swf(_file(tmp_path, "log.swf", "1 0 -1 10 4 -1 -1 4 20 -1 1\n; MaxProcs: 3\n"))


def test_swf_options(tmp_path: Path) -> None:
    file = _file(tmp_path, "log.swf", SWF)
    at_once = "9 10 -1 0 2 -1 -1 2 30 -1 1\n"  # what is known to have taken no time needs no filling in
    kept = read_swf(_file(tmp_path, "more.swf", SWF + at_once), ImportOptions(keep_incomplete=True)).trace
    assert list(zip(kept.job_ids, kept.task_duration_s.tolist(), kept.stage_slots.tolist(), strict=True)) == [
        ("1", 100.0, 4), ("8", 7.0, 1), ("2", 50.0, 2), ("3", 60.0, 1), ("4", 10.0, 1), ("9", 0.0, 2),
    ]  # fmt: skip
    assert read_swf(file, ImportOptions(exact_estimates=True)).trace.stage_estimate_s.tolist() == [100.0, 7.0, 50.0]
    assert read_swf(file, ImportOptions(one_slot=True)).trace.stage_slots.tolist() == [1, 1, 1]
    assert list(read_swf(file, ImportOptions(limit=1)).trace.job_ids) == ["1"]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("1 2 3", "expected a job line of 18 numbers, found 3 words"),
        ("4 0 -1 5 4 -1 -1 4 200 -1", "expected a job line of 18 numbers, found 10 words"),
        ("4 0 -1 5 4 -1 -1 4 200 -1 1 -1 -1 -1 -1 -1 -1 -1 -1", "expected a job line of 18 numbers, found 19 words"),
        ("1 0 -1 x 4 -1 -1 4 200 -1 1 -1 -1 -1 -1 -1 -1 -1", "expected 18 numbers"),
        ("1 0 -1 nan 4 -1 -1 4 200 -1 1 -1 -1 -1 -1 -1 -1 -1", "expected finite numbers"),
        ("9007199254740993 0 -1 5 4 -1 -1 4 200 -1 1 -1 -1 -1 -1 -1 -1 -1", "expected finite numbers of at most 1e.15"),
        ("4 0 -1 5 4 -1 -1 4 200 -1 1 -1 -1 -1 -1 1e300 -1 -1", "expected finite numbers of at most 1e.15"),
        ("4 0 -1 5 4 -1 -1 4 200 -1 1 -1 -1 -1 -1 -1e300 -1 -1", "expected finite numbers of at most 1e.15"),
        ("1 0 -1 5 4 -1 -1 4 200 -1 1 -1 -1 -1 -1 -1 -1 -1", "job id '1' is used twice"),
        ("4.5 0 -1 5 4 -1 -1 4 200 -1 1 -1 -1 -1 -1 -1 -1 -1", "expected a whole number in field 1, found 4.5"),
        ("4 0 -1 5 2.5 -1 -1 4 200 -1 1 -1 -1 -1 -1 -1 -1 -1", "expected a whole number in field 5, found 2.5"),
        ("4 0 -1 5 -1 -1 -1 .5 200 -1 1 -1 -1 -1 -1 -1 -1 -1", "expected a whole number in field 8, found .5"),
    ],
)
def test_a_bad_swf_line_is_refused_by_its_number(tmp_path: Path, line: str, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        read_swf(_file(tmp_path, "log.swf", SWF + line + "\n"))
    assert caught.value.line == 12


@pytest.mark.parametrize(("format_", "text"), [("swf", "; only a header\n"), ("alibaba", "")])
def test_a_file_with_nothing_in_it_is_refused(tmp_path: Path, format_: str, text: str) -> None:
    with pytest.raises(InputError, match=r"log: no usable jobs: there is nothing in it; expected at least one job"):
        IMPORTERS[format_].read(_file(tmp_path, "log", text), ImportOptions())


def test_a_task_name_with_a_number_out_of_all_bounds_is_a_name(tmp_path: Path) -> None:
    row = f"M{'9' * 5000},1,j_2,1,Terminated,1,2,1,1\n"
    assert read_alibaba(_file(tmp_path, "batch_task.csv", ALIBABA + row)).trace.stages == 6


def test_a_log_without_a_usable_job_is_refused_with_the_reasons(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no usable jobs \(1 skipped: unknown run time\)"):
        read_swf(_file(tmp_path, "log.swf", "3  6 -1  -1  1 -1 -1  1   60 -1 0\n"))


ALIBABA = """M1,2,j_1,1,Terminated,100,110,100,0.5
task_x,1,j_2,1,Terminated,90,95,100,0.5
R2_1,3,j_1,1,Terminated,110,130,100,0.5
J4_1_2_Stg3,,j_1,1,Terminated,130,131,100,0.5
MergeTask,1,j_1,1,Terminated,105,107,100,0.5
M1,1,j_3,1,Failed,100,110,100,0.5
M1,1,j_4,1,Terminated,120,0,100,0.5
R2_9,1,j_5,1,Terminated,140,150,100,0.5
"""


def test_alibaba_names_spell_out_the_dag(tmp_path: Path) -> None:
    imported = read_alibaba(_file(tmp_path, "batch_task.csv", ALIBABA))
    trace = imported.trace
    assert list(trace.job_ids) == ["j_2", "j_1"]
    assert trace.job_arrival_s.tolist() == [90.0, 100.0]
    assert parents(trace, "R2_1") == ["M1"]
    assert parents(trace, "J4_1_2_Stg3") == ["M1", "R2_1"]
    assert parents(trace, "MergeTask") == []
    assert np.diff(trace.task_ptr).tolist() == [1, 2, 3, 1, 1]
    assert trace.task_duration_s.tolist() == [5.0, 10.0, 10.0, 20.0, 20.0, 20.0, 1.0, 2.0]
    assert imported.skipped == {
        "a task did not terminate": 1,
        "a task has no valid times": 1,
        "a parent has no row": 1,
    }


@pytest.mark.parametrize("name", ["R2_1_Stg1", "R2_1_3b", "R2_1_", "R2_1__3"])
def test_a_part_of_an_alibaba_name_that_is_no_number_ends_the_list_of_parents(name: str, tmp_path: Path) -> None:
    row = "{},1,j,1,Terminated,100,110,100,0.5\n"
    rows = "".join(row.format(each) for each in ("M1", name, "R3_2"))
    trace = read_alibaba(_file(tmp_path, "batch_task.csv", rows)).trace
    assert parents(trace, name) == ["M1"]
    assert parents(trace, "R3_2") == [name]


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        (("M1_2", "R2_1"), "its tasks depend on each other in a circle"),
        (("M1", "M1"), "two rows have the same name"),
        (("M1", "R1"), "two rows have the same number"),
    ],
)
def test_alibaba_jobs_that_are_no_dag_are_left_out(tmp_path: Path, names: tuple[str, str], reason: str) -> None:
    rows = "".join(f"{name},1,bad,1,Terminated,1,2,1,1\n" for name in names)
    file = _file(tmp_path, "batch_task.csv", ALIBABA + rows)
    for options in (ImportOptions(), ImportOptions(keep_incomplete=True)):
        imported = read_alibaba(file, options)
        assert imported.skipped[reason] == 1
        assert "bad" not in imported.trace.job_ids


def test_alibaba_options_and_header(tmp_path: Path) -> None:
    header = "task_name,instance_num,job_name,task_type,status,start_time,end_time,plan_cpu,plan_mem\n"
    file = _file(tmp_path, "batch_task.csv", header + ALIBABA)
    kept = read_alibaba(file, ImportOptions(keep_incomplete=True)).trace
    assert list(kept.job_ids) == ["j_2", "j_1", "j_3", "j_4", "j_5"]
    assert kept.task_duration_s.tolist()[-2:] == [0.0, 10.0]
    assert read_alibaba(file, ImportOptions(limit=1)).trace.jobs == 1


def test_alibaba_columns_may_be_in_decimals_as_pandas_writes_them(tmp_path: Path) -> None:
    row = "M1,{0},j_1,1,Terminated,{1},{2},100.0,0.5\n"
    traces = [
        read_alibaba(_file(tmp_path, "batch_task.csv", row.format(*numbers))).trace
        for numbers in ((2, 100, 110), ("2.0", "100.0", "110.0"))
    ]
    assert [trace.task_duration_s.tolist() for trace in traces] == [[10.0, 10.0]] * 2
    assert [trace.job_arrival_s.tolist() for trace in traces] == [[100.0]] * 2


@pytest.mark.parametrize(
    "row", ['"{}",1,"j_1","1","Terminated",{},{},100.0,0.5\n', '"{}","1","j_1","1","Terminated","{}","{}","100","0"\n',
            "{}, 1, j_1, 1, Terminated, {}, {}, 100.0, 0.5\n"], ids=["R", "all", "spaces"]
)  # fmt: skip
def test_alibaba_columns_may_be_quoted_or_spaced_as_other_tools_write_them(tmp_path: Path, row: str) -> None:
    header = (
        '"task_name","instance_num","job_name","task_type","status","start_time","end_time","plan_cpu","plan_mem"\n'
    )
    rows = row.format("M1", 100, 110) + row.format("R2_1", 110, 130)
    imported = read_alibaba(_file(tmp_path, "batch_task.csv", header + rows))
    assert (imported.trace.job_ids, imported.skipped) == (["j_1"], {})
    assert parents(imported.trace, "R2_1") == ["M1"]
    assert imported.trace.task_duration_s.tolist() == [10.0, 20.0]


def test_alibaba_rows_of_a_job_may_be_apart_but_not_too_far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fermata.sim.importers.alibaba.OPEN_JOBS", 2)
    row = "M{},1,j_{},1,Terminated,{},200,100,0.5\n"
    near = "".join(row.format(*fields) for fields in ((1, 1, 10), (1, 2, 20), (2, 1, 12)))
    assert read_alibaba(_file(tmp_path, "near.csv", near)).trace.stages == 3
    far = "".join(row.format(*fields) for fields in ((1, 1, 10), (1, 2, 20), (1, 3, 30), (2, 1, 12)))
    with pytest.raises(InputError, match=r"far.csv:4: rows of job 'j_1' are more than 2 jobs apart; sort"):
        read_alibaba(_file(tmp_path, "far.csv", far))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("M1,1,j_9", "expected 9 columns"),
        ('"M1,1,j_9,1,Terminated,1,2,3,4', "expected columns separated by commas: unexpected end"),
        ("M1,one,j_9,1,Terminated,1,2,3,4", "instance_num must be a whole number, not 'one'"),
        (",1,j_9,1,Terminated,1,2,3,4", "expected a task_name and a job_name"),
        ("M1,99999999999999999999,j_9,1,Terminated,1,2,3,4", "instance_num must be between 1 and 10000000, or empty"),
        ("M1,-3,j_9,1,Terminated,1,2,3,4", "instance_num must be between 1 and 10000000, or empty, not -3"),
        (f"M1,1,j_9,1,Terminated,{'9' * 400},2,3,4", "start_time must be a whole number"),
    ],
)
def test_a_bad_alibaba_line_is_refused_by_its_number(tmp_path: Path, line: str, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        read_alibaba(_file(tmp_path, "batch_task.csv", ALIBABA + line + "\n"))
    assert caught.value.line == 9


def wf_1_5(**run: object) -> dict[str, object]:
    tasks = [{"name": "split", "id": "ID1", "parents": [], "children": ["ID2"]}]
    tasks.append({"name": "blast", "id": "ID2", "parents": ["ID1"], "children": []})
    runs = [{"id": "ID1", "runtimeInSeconds": 2.5}, {"id": "ID2", "runtimeInSeconds": 40, "coreCount": 1.5, **run}]
    workflow = {"specification": {"tasks": tasks}, "execution": {"tasks": runs}}
    return {"name": "blast-run", "schemaVersion": "1.5", "workflow": workflow}


WF_1_4 = {
    "name": "old",
    "schemaVersion": "1.4",
    "workflow": {
        "tasks": [
            {"name": "a_1", "id": "a", "runtimeInSeconds": 1.0, "cores": 2, "parents": []},
            {"name": "b_1", "id": "b", "runtimeInSeconds": 3.0, "parents": ["a_1", "a"]},
        ]
    },
}


def test_wfcommons_1_5_and_1_4(tmp_path: Path) -> None:
    trace = read_wfcommons(_file(tmp_path, "new.json", json.dumps(wf_1_5()))).trace
    assert list(trace.job_ids) == ["blast-run"]
    assert list(trace.stage_names) == ["ID1", "ID2"]
    assert parents(trace, "ID2") == ["ID1"]
    assert trace.task_duration_s.tolist() == [2.5, 40.0]
    assert trace.stage_slots.tolist() == [1, 2]
    old = read_wfcommons(_file(tmp_path, "old.json", json.dumps(WF_1_4))).trace
    assert parents(old, "b") == ["a"]
    assert old.stage_slots.tolist() == [2, 1]


def test_an_edge_that_only_the_parent_names_is_one(tmp_path: Path) -> None:
    tasks = [
        {"name": "a_1", "id": "a", "runtimeInSeconds": 1.0, "children": ["c", "b_1"]},
        {"name": "b_1", "id": "b", "runtimeInSeconds": 3.0, "children": ["c"]},
        {"name": "c_1", "id": "c", "runtimeInSeconds": 3.0, "parents": ["b"]},
    ]
    trace = read_wfcommons(_file(tmp_path, "run.json", json.dumps({"workflow": {"tasks": tasks}}))).trace
    assert parents(trace, "b") == ["a"]
    assert parents(trace, "c") == ["b", "a"]


def test_a_wfcommons_folder_is_one_job_a_file(tmp_path: Path) -> None:
    for name in ("x", "y", "z"):
        _file(tmp_path, f"{name}.json", json.dumps(WF_1_4))
    trace = read_wfcommons(tmp_path, ImportOptions(mean_gap_s=10.0, seed=3)).trace
    assert list(trace.job_ids) == ["x", "y", "z"]
    assert trace.job_arrival_s[0] == 0.0 < trace.job_arrival_s[1] < trace.job_arrival_s[2]
    assert read_wfcommons(tmp_path, ImportOptions(mean_gap_s=0.0)).trace.job_arrival_s.tolist() == [0.0] * 3


@pytest.mark.parametrize(("read", "suffix"), [(read_wfcommons, "json"), (read_graphml, "graphml")])
def test_a_folder_without_a_file_to_read_says_what_it_looked_for(
    tmp_path: Path, read: Callable[[Path], Imported], suffix: str
) -> None:
    _file(tmp_path, f"run.{suffix}.gz", "compressed")
    with pytest.raises(InputError, match=rf"no file in this folder ends in \.{suffix}; compressed ones"):
        read(tmp_path)


def test_a_mistake_in_a_wfcommons_folder_names_the_file(tmp_path: Path) -> None:
    _file(tmp_path, "x.json", json.dumps(WF_1_4))
    _file(tmp_path, "y.json", '{"workflow": {"tasks": [{"name": "a", "runtime": -1}]}}')
    with pytest.raises(InputError, match=r"y\.json: stage 'a': a time must be"):
        read_wfcommons(tmp_path)


def test_a_wfcommons_task_that_never_ran_is_left_out_or_takes_no_time(tmp_path: Path) -> None:
    file = _file(tmp_path, "cut.json", json.dumps(wf_1_5(runtimeInSeconds=None)))
    with pytest.raises(InputError, match="1 skipped: a task has no run time"):
        read_wfcommons(file)
    assert read_wfcommons(file, ImportOptions(keep_incomplete=True)).trace.task_duration_s.tolist() == [2.5, 0.0]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "broken JSON"),
        ("[]", "expected a JSON object"),
        ("{}", "no wfformat: missing 'workflow'"),
        ('{"workflow": {"tasks": [{"name": "a", "parents": ["b"], "runtime": 1}]}}', "'a': its parent .b. is none"),
        ('{"workflow": {"tasks": [{"name": "a", "runtime": "long"}]}}', "task 'a': runtime must be a finite number"),
        ('{"workflow": {"tasks": [{"name": "a", "cores": []}]}}', r"task 'a': cores must be a finite number, not \[\]"),
        ('{"workflow": {"tasks": [{"name": "a", "cores": 1e999}]}}', "task 'a': cores must be a finite number"),
        ('{"workflow": {"tasks": [{"name": "a", "runtime": -1}]}}', "must be a number of seconds, 0 to"),
        ('{"workflow": {"tasks": []}}', "at least one stage"),
        ('{"workflow": null}', "no wfformat: workflow must be an object, not null"),
        ('{"workflow": {"tasks": null}}', "no wfformat: tasks must be a list, not null"),
        ('{"workflow": {"tasks": [1]}}', "no wfformat: each of tasks must be an object, not 1"),
        ('{"workflow": {"tasks": [{"name": "a", "parents": "b"}]}}', 'parents of task .a. must be a list, not "b"'),
        ('{"workflow": {"tasks": [{"name": "a", "children": ["b"]}]}}', "task 'a': its child .b. is none of the tasks"),
        (
            '{"workflow": {"specification": {"tasks": []}, "execution": {"tasks": [{"id": "a"}, {"id": "a"}]}}}',
            "no wfformat: execution.tasks has 'a' twice",
        ),
        ('{"workflow": {"specification": []}}', r"no wfformat: specification must be an object, not \[\]"),
        ('{"workflow": {"tasks": [{"name": "\\ud800", "runtime": 1}]}}', "is no valid text: surrogates not allowed"),
    ],
)
def test_what_is_no_wfformat_is_refused(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        read_wfcommons(_file(tmp_path, "bad.json", text))


# As other programs write them: an attribute with a default, labels, a place, ids that are numbers.
GRAPHML = """<?xml version="1.0"?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
  <key id="k0" for="node" attr.name="duration_s" attr.type="double"/>
  <key id="k1" for="node" attr.name="label" attr.type="string"/>
  <key id="k2" for="node" attr.name="slots" attr.type="int"/>
  <key id="k3" for="graph" attr.name="name" attr.type="string"/>
  <key id="k4" for="graph" attr.name="arrival_s" attr.type="double"/>
  <key id="k5" for="node" attr.name="durations_s" attr.type="string"/>
  <graph id="G" edgedefault="directed">
    <node id="1"><data key="k0">2.5</data><data key="k1">load</data></node>
    <edge source="1" target="3"/>
    <node id="2"><data key="k0">1</data><data key="k2">4</data></node>
    <node id="3"><data key="k5">[4, 6.5]</data></node>
    <edge source="2" target="3"/>
  </graph>
  <graph edgedefault="directed">
    <data key="k3">nightly</data><data key="k4">7</data>
    <node id="1"><data key="k0">3</data></node>
  </graph>
  <graph edgedefault="directed"><node id="1"/></graph>
</graphml>
"""


def test_graphs_of_other_programs_are_jobs(tmp_path: Path) -> None:
    imported = read_graphml(_file(tmp_path, "etl.graphml", GRAPHML))
    trace = imported.trace
    assert imported.skipped == {"a node has no duration_s, durations_s or work_s": 1}
    assert list(trace.job_ids) == ["etl", "nightly"]
    assert trace.job_arrival_s.tolist() == [0.0, 7.0]
    assert list(trace.stage_names) == ["1", "2", "3", "1"]
    assert parents(trace, "3") == ["1", "2"]
    assert trace.task_duration_s.tolist() == [2.5, 1.0, 4.0, 6.5, 3.0]
    assert trace.stage_slots.tolist() == [1, 4, 1, 1]
    filled = read_graphml(tmp_path / "etl.graphml", ImportOptions(keep_incomplete=True, one_slot=True, mean_gap_s=0.0))
    assert sorted(filled.trace.job_ids) == ["etl", "etl-3", "nightly"]
    assert filled.trace.stage_slots.tolist() == [1] * 5


def test_igraph_writes_whole_numbers_as_doubles(tmp_path: Path) -> None:
    text = GRAPHML.replace('"slots" attr.type="int"', '"slots" attr.type="double"')
    assert read_graphml(_file(tmp_path, "etl.graphml", text)).trace.stage_slots.tolist() == [1, 4, 1, 1]
    half = _file(tmp_path, "half.graphml", text.replace(">4<", ">4.5<"))
    with pytest.raises(InputError, match=r"stage '2': slots must be a whole number, not 4\.5"):
        read_graphml(half)


def test_a_folder_of_graphs_made_in_python_is_a_stream_of_jobs(tmp_path: Path) -> None:
    graphs = [nx.gn_graph(6, seed=seed).reverse() for seed in range(3)]
    for number, graph in enumerate(graphs):
        nx.set_node_attributes(graph, 2.0, "duration_s")
        nx.set_node_attributes(graph, 3, "tasks")
        nx.write_graphml(graph, tmp_path / f"g{number}.graphml")
    trace = read_graphml(tmp_path, ImportOptions(mean_gap_s=10.0, seed=3)).trace
    assert list(trace.job_ids) == ["g0", "g1", "g2"]
    assert trace.job_arrival_s[0] == 0.0 < trace.job_arrival_s[1] < trace.job_arrival_s[2]
    assert trace.tasks == 3 * trace.stages
    owner = np.repeat(np.arange(trace.stages), np.diff(trace.parent_ptr))
    for job, graph in enumerate(graphs):
        first, after = trace.job_stage_ptr[job], trace.job_stage_ptr[job + 1]
        edges = [(a - first, b - first) for a, b in zip(trace.parent, owner, strict=True) if first <= b < after]
        assert sorted(edges) == sorted(graph.edges)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("<graphml", "<<"), "no XML: not well-formed"),
        (
            ('version="1.0"', 'version="1.0" encoding="UTF-9"'),
            "no GraphML that networkx can read: unknown encoding: UTF-9",
        ),
        (('edgedefault="directed"', 'edgedefault="undirected"'), "graph 1: the edges have no direction"),
        (('source="1" target="3"', 'source="3" target="2"'), "graph 1: the stages form a cycle: 2 -> 3 -> 2"),
        (("2.5", "long"), "no GraphML that networkx can read: node 1: could not convert string to float: 'long'"),
        (("2.5", "-1"), "graph 1: stage '1': duration_s must be 0 s or more, not -1.0"),
        (("[4, 6.5]", "4 6.5"), "stage '3': durations_s must be a list of numbers as JSON has it, not '4 6.5'"),
        (("[4, 6.5]", "[" * 100_000), "stage '3': durations_s must be a list of numbers as JSON has it"),
        (('"slots" attr.type="int"', '"slots" attr.type="string"'), "graph 1: stage '2': slots must be a whole number"),
        (('"slots" attr.type="int"', '"slots" attr.type="integral"'), "no GraphML that networkx can read: 'integral'"),
        (('<node id="1"/>', ""), "graph 3: a job needs at least one stage"),
        (
            ('<node id="1"/>', '<node id="1"/><node id="1"/>'),
            "no GraphML that networkx can read: node 1 is there twice",
        ),
        (
            (' xmlns="http://graphml', ' xmlns="http://other'),
            "its outermost element is '{http://other.graphdrawing.org/",
        ),
    ],
)
def test_what_is_no_graph_of_a_job_is_refused(tmp_path: Path, change: tuple[str, str], words: str) -> None:
    file = _file(tmp_path, "bad.graphml", GRAPHML.replace(*change))
    with pytest.raises(InputError, match=rf"bad\.graphml: .*{words}"):
        read_graphml(file)


def tpch_folder(tmp_path: Path, recorded: object, adjacency: object = ((0, 1), (0, 0))) -> Path:
    (tmp_path / "2g").mkdir(exist_ok=True)
    np.save(tmp_path / "2g" / "adj_mat_1.npy", np.asarray(adjacency, dtype=np.float64))
    array = np.empty((), dtype=object)
    array[()] = recorded
    np.save(tmp_path / "2g" / "task_duration_1.npy", array, allow_pickle=True)
    return tmp_path


STAGE_0 = {
    "first_wave": {4: [70, 300], 2: [70]},
    "fresh_durations": {4: [300, 70], 2: []},
    "rest_wave": {4: [40], 2: [50, 60]},
}
STAGE_1 = {"first_wave": {2: [9]}, "fresh_durations": {2: []}, "rest_wave": {2: []}}


def test_a_tpch_query_is_read_with_its_waves(tmp_path: Path) -> None:
    query = load_query(tpch_folder(tmp_path, {0: STAGE_0, 1: STAGE_1}), "2g", 1)
    assert query.name == "tpch-2g-1"
    assert query.parents == ((), (0,))
    first, second = query.stages
    assert (first.tasks, second.tasks) == (3, 1)
    # Both first tasks on 4 executors were fresh, so the wave of 2 executors stands in.
    assert {count: list(wave) for count, wave in first.first_wave.items()} == {2: [70], 4: [70]}
    assert first.mean_rest_ms == 50.0
    assert second.mean_rest_ms == 9.0


class Trap:
    """Runs code when unpickled by a loader that lets it."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> object:
        return Path.touch, (self.marker,)


def test_a_duration_file_cannot_run_code(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    folder = tpch_folder(tmp_path, {0: Trap(marker)})
    with pytest.raises(InputError, match="durations do not need"):
        load_query(folder, "2g", 1)
    assert not marker.exists()
    np.load(folder / "2g" / "task_duration_1.npy", allow_pickle=True)
    assert marker.exists(), "the trap must work on a loader that is not careful"


@pytest.mark.parametrize(
    "recorded", [[1, 2], {0: STAGE_0}, {0: {"first_wave": {}}, 1: STAGE_1}, {0: {**STAGE_0, "first_wave": {}}, 1: 5}]
)
def test_other_pickles_are_refused(tmp_path: Path, recorded: object) -> None:
    with pytest.raises(InputError, match=r"task_duration_1\.npy"):
        load_query(tpch_folder(tmp_path, recorded), "2g", 1)


def test_damaged_or_missing_tpch_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read the adjacency matrix"):
        read_tpch(tmp_path)
    folder = tpch_folder(tmp_path, {0: STAGE_0, 1: STAGE_1}, adjacency=(1.0, 2.0))
    with pytest.raises(InputError, match="square adjacency matrix"):
        load_query(folder, "2g", 1)
    file = tpch_folder(tmp_path, {0: STAGE_0, 1: STAGE_1}) / "2g" / "task_duration_1.npy"
    for damaged in (file.read_bytes()[:-20], b"", pickle.dumps({})):
        file.write_bytes(damaged)
        with pytest.raises(InputError, match="cannot read the task durations"):
            load_query(folder, "2g", 1)


def test_the_own_format_can_be_cut(tmp_path: Path) -> None:
    line = (
        '{{"id": "{}", "arrival_s": {}, "stages": [{{"name": "a", "duration_s": 4, "slots": 2, "estimate_s": 9}}]}}\n'
    )
    file = _file(tmp_path, "t.jsonl", line.format("late", 5) + line.format("soon", 1))
    trace = read_native(file, ImportOptions(limit=1, exact_estimates=True, one_slot=True)).trace
    assert list(trace.job_ids) == ["soon"]
    assert (trace.stage_estimate_s.tolist(), trace.stage_slots.tolist()) == ([4.0], [1])


def test_the_registry_names_every_importer_as_it_is_listed() -> None:
    assert list(IMPORTERS) == sorted(IMPORTERS) == [each.name for each in IMPORTERS.values()]


def _file(tmp_path: Path, name: str, text: str) -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path
