"""The job trace format by hand: what is read, what is refused, and with which words."""

from __future__ import annotations

import gzip
import lzma
import os
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.disk import files_end_at

from fermata.policy.errors import InputError
from fermata.sim.files import atomic_output, read_bytes
from fermata.sim.importers.alibaba import read_alibaba
from fermata.sim.importers.wfcommons import read_wfcommons
from fermata.sim.scenarios import SCENARIOS
from fermata.sim.trace import Trace, check_fits
from fermata.sim.trace_io import read_trace, write_trace

GOOD = '{"id": "ok", "arrival_s": 0, "stages": [{"name": "a", "duration_s": 1}]}'
DIAMOND = (
    '{"id": "d", "arrival_s": 2.5, "weight": 2, "stages": ['
    '{"name": "end", "depends_on": ["left", "right"], "durations_s": [1, 2, 6], "slots": 2},'
    '{"name": "left", "depends_on": ["top"], "duration_s": 4, "tasks": 2, "estimate_s": 5},'
    '{"name": "right", "depends_on": ["top"], "work_s": 8, "serial_fraction": 0.25},'
    '{"name": "top", "duration_s": 0.5}]}'
)


def read(tmp_path: Path, *lines: str) -> Trace:
    path = tmp_path / "trace.jsonl"
    path.write_text("\n".join(lines))
    return read_trace(path)


def test_a_job_becomes_the_arrays_that_were_worked_out_by_hand(tmp_path: Path) -> None:
    trace = read(tmp_path, DIAMOND)
    assert trace.job_ids == ["d"]
    assert trace.stage_names == ["end", "left", "right", "top"]
    assert trace.job_arrival_s.tolist() == [2.5]
    assert trace.job_weight.tolist() == [2.0]
    assert trace.job_stage_ptr.tolist() == [0, 4]
    assert trace.task_ptr.tolist() == [0, 3, 5, 6, 7]
    assert trace.task_duration_s.tolist() == [1.0, 2.0, 6.0, 4.0, 4.0, 8.0, 0.5]
    assert trace.stage_estimate_s.tolist() == [3.0, 5.0, 8.0, 0.5]
    assert trace.stage_slots.tolist() == [2, 1, 1, 1]
    assert trace.parent_ptr.tolist() == [0, 2, 3, 4, 4]
    assert trace.parent.tolist() == [1, 2, 3, 3]
    np.testing.assert_array_equal(trace.stage_serial_fraction, [np.nan, np.nan, 0.25, np.nan])


def test_jobs_are_sorted_by_arrival_and_ties_keep_their_order(tmp_path: Path) -> None:
    late = DIAMOND.replace('"d"', '"late"').replace("2.5", "9")
    trace = read(tmp_path, late, DIAMOND, DIAMOND.replace('"d"', '"tie"'), GOOD)
    assert trace.job_ids == ["ok", "d", "tie", "late"]
    assert trace.stage_names[:2] == ["a", "end"]
    assert trace.parent.tolist() == [2, 3, 4, 4, 6, 7, 8, 8, 10, 11, 12, 12]
    assert trace.stage_job.tolist() == [0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3]


def job(stages: str, rest: str = '"id": "x", "arrival_s": 1') -> str:
    return f'{{{rest}, "stages": [{stages}]}}'


def stage(rest: str) -> str:
    return job(f'{{"name": "a", {rest}}}')


A = '{"name": "a", "duration_s": 1}'
BAD = {
    "broken": ('{"id": "x", ', "broken JSON"),
    "cut": (GOOD[:40], "broken JSON"),
    "over several lines": (
        '{"id": "x", "stages": [',
        "broken JSON: Expecting value at column 24; expected one JSON object a line, for each job",
    ),
    "unfinished": ('{"id": "x', "broken JSON: Unterminated string starting at column 8; expected"),
    "two on a line": (GOOD + GOOD, "broken JSON"),
    "deep": ("[" * 100_000, "nested too deeply"),
    "not an object": ("[1, 2]", "expected a JSON object that describes a job, not a list"),
    "null": ("null", "not null"),
    "unknown key": (job(A, '"id": "x", "arival_s": 1'), "unknown key 'arival_s'; did you mean 'arrival_s'?"),
    "far key": (job(A, '"id": "x", "arrival_s": 1, "zzz": 1'), "unknown key 'zzz'; known keys of a job: id,"),
    "stage key": (stage('"duration_s": 1, "task": 2'), "stage 'a': unknown key 'task'; did you mean 'tasks'?"),
    "key twice": (job(A, '"id": "x", "id": "y", "arrival_s": 1'), "key 'id' is given twice"),
    "no id": (job(A, '"arrival_s": 1'), "the job has no 'id'"),
    "no arrival": (job(A, '"id": "x"'), "job 'x' has no 'arrival_s'"),
    "no stages key": ('{"id": "x", "arrival_s": 1}', "job 'x' has no 'stages'"),
    "no stages": (job(""), "at least one stage"),
    "stages object": ('{"id": "x", "arrival_s": 1, "stages": {}}', "stages must be a list, not an object"),
    "stage no object": (job("7"), "stage 1 must be a JSON object, not 7"),
    "id number": (job(A, '"id": 7, "arrival_s": 1'), "id must be a string, not 7"),
    "id empty": (job(A, '"id": " ", "arrival_s": 1'), "id must not be empty"),
    "id twice": (GOOD, "job id 'ok' is used twice"),
    "arrival text": (job(A, '"id": "x", "arrival_s": "soon"'), "arrival_s must be a number, not the string 'soon'"),
    "arrival true": (job(A, '"id": "x", "arrival_s": true'), "arrival_s must be a number, not true or false"),
    "arrival below 0": (
        job(A, '"id": "x", "arrival_s": -1'),
        "arrival_s must be a number of seconds, 0 to 1e+15",
    ),
    "arrival too large": (job(A, '"id": "x", "arrival_s": 2e15'), "arrival_s must be a number of seconds, 0 to 1e+15"),
    "arrival NaN": (job(A, '"id": "x", "arrival_s": NaN'), "NaN is not a finite number"),
    "arrival huge": (job(A, '"id": "x", "arrival_s": 1e999'), "arrival_s must be a finite number"),
    "arrival digits": (job(A, f'"id": "x", "arrival_s": 1{"0" * 400}'), "arrival_s must be a finite number"),
    "more digits": (job(A, f'"id": "x", "arrival_s": 1{"0" * 9000}'), "too many digits"),
    "weight 0": (job(A, '"id": "x", "arrival_s": 1, "weight": 0'), "weight must be a number above 0 and at most 1e+15"),
    "weight null": (job(A, '"id": "x", "arrival_s": 1, "weight": null'), "weight must be a number, not null"),
    "name missing": (job('{"duration_s": 1}'), "stage 1 has no 'name'"),
    "name empty": (job('{"name": "", "duration_s": 1}'), "the name of stage 1 must not be empty"),
    "name list": (job('{"name": [], "duration_s": 1}'), "the name of stage 1 must be a string"),
    "name twice": (job(f"{A}, {A}"), "stage name 'a' is used twice in one job"),
    "no time": (stage('"tasks": 1'), "expected exactly one of duration_s, durations_s or work_s, found none"),
    "two times": (stage('"duration_s": 1, "work_s": 1'), "found duration_s and work_s"),
    "negative": (stage('"duration_s": -0.1'), "stage 'a': duration_s must be 0 s or more, not -0.1"),
    "infinite": (stage('"duration_s": Infinity'), "Infinity is not a finite number"),
    "one negative": (stage('"durations_s": [1, -1]'), "durations_s must be 0 s or more"),
    "one text": (stage('"durations_s": [1, "1"]'), "durations_s must be a number, not the string '1'"),
    "durations number": (stage('"durations_s": 1'), "durations_s must be a list of numbers, not 1"),
    "durations empty": (stage('"durations_s": []'), "durations_s must hold at least one number"),
    "tasks mismatch": (stage('"tasks": 3, "durations_s": [1, 1]'), "tasks is 3, but durations_s holds 2"),
    "tasks 0": (stage('"tasks": 0, "duration_s": 1'), "tasks must be between 1 and"),
    "tasks endless": (stage('"tasks": 99999999999, "duration_s": 1'), "tasks must be between 1 and"),
    "tasks 1.5": (stage('"tasks": 1.5, "duration_s": 1'), "tasks must be a whole number, not 1.5"),
    "slots 0": (stage('"slots": 0, "duration_s": 1'), "slots must be between 1 and"),
    "slots text": (stage('"slots": "2", "duration_s": 1'), "slots must be a whole number"),
    "slots endless": (stage('"slots": 4294967297, "duration_s": 1'), "slots must be between 1 and"),
    "serial alone": (stage('"duration_s": 1, "serial_fraction": 0.5'), "serial_fraction goes with work_s"),
    "serial missing": (stage('"work_s": 1'), "work_s needs serial_fraction"),
    "serial 1.5": (stage('"work_s": 1, "serial_fraction": 1.5'), "serial_fraction must be in [0, 1], not 1.5"),
    "moldable tasks": (stage('"work_s": 1, "serial_fraction": 0, "tasks": 2'), "has exactly 1 task and 1 slot"),
    "moldable slots": (stage('"work_s": 1, "serial_fraction": 0, "slots": 2'), "has exactly 1 task and 1 slot"),
    "estimate below 0": (
        stage('"duration_s": 1, "estimate_s": -1'),
        "estimate_s must be a number of seconds, 0 to 1e+15",
    ),
    "estimate null": (stage('"duration_s": 1, "estimate_s": null'), "estimate_s must be a number, not null"),
    "parents text": (stage('"duration_s": 1, "depends_on": "b"'), "depends_on must be a list of stage names"),
    "parent number": (stage('"duration_s": 1, "depends_on": [1]'), "depends_on must be a list of stage names"),
    "parent unknown": (stage('"duration_s": 1, "depends_on": ["b"]'), "depends on 'b', which is no stage of this job"),
    "own parent": (stage('"duration_s": 1, "depends_on": ["a"]'), "the stages form a cycle: a -> a"),
    "parent twice": (
        job(f'{A}, {{"name": "b", "duration_s": 1, "depends_on": ["a", "a"]}}'),
        "stage 'b' names a parent twice",
    ),
    "cycle": (
        job(
            '{"name": "in", "duration_s": 1}, {"name": "a", "duration_s": 1, "depends_on": ["in", "c"]},'
            '{"name": "b", "duration_s": 1, "depends_on": ["a"]}, {"name": "c", "duration_s": 1, "depends_on": ["b"]},'
            '{"name": "out", "duration_s": 1, "depends_on": ["c"]}'
        ),
        "the stages form a cycle: a -> b -> c -> a",
    ),
    "long cycle": (
        job(", ".join(f'{{"name": "{i}", "duration_s": 1, "depends_on": ["{(i - 1) % 3000}"]}}' for i in range(3000))),
        "-> 9 and 2990 more",
    ),
}


@pytest.mark.parametrize(("line", "words"), BAD.values(), ids=BAD.keys())
def test_a_bad_line_is_refused_with_its_number_and_what_was_expected(tmp_path: Path, line: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        read(tmp_path, GOOD, "", line, GOOD.replace("ok", "later"))
    assert caught.value.line == 3
    assert words in str(caught.value)
    assert str(caught.value).startswith(f"{tmp_path}/trace.jsonl:3: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "\n \n"])
def test_an_empty_file_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError, match="no jobs"):
        read(tmp_path, text)


def test_text_that_is_not_utf8_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_bytes(GOOD.encode() + b"\n" + GOOD.replace("ok", "\xfc").encode("latin-1"))
    with pytest.raises(InputError, match=r"trace.jsonl:2: not UTF-8 .*; expected text, plain or compressed by xz"):
        read_trace(path)


@pytest.mark.parametrize("suffix", [".xz", ".gz"])
def test_compressed_files_are_read_and_damaged_ones_refused(tmp_path: Path, suffix: str) -> None:
    compress = {".xz": lzma.compress, ".gz": gzip.compress}[suffix]
    path = tmp_path / f"trace.jsonl{suffix}"
    whole = compress("\n".join([GOOD, DIAMOND]).encode())
    path.write_bytes(whole)
    assert read_trace(path).job_ids == ["ok", "d"]
    for damaged in (whole[:-9], b"plain text", whole[:30] + b"\0\0\0\0" + whole[34:]):
        path.write_bytes(damaged)
        with pytest.raises(InputError, match="damaged or cut short"):
            read_trace(path)


@pytest.mark.parametrize("compress", [bytes, lzma.compress, gzip.compress])
def test_what_no_name_tells_is_told_by_the_first_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compress: Callable[[bytes], bytes]
) -> None:
    whole = compress(f"{GOOD}\n{DIAMOND}\nnot json\n".encode())
    (tmp_path / "trace").write_bytes(whole)
    reads, writes = os.pipe()
    os.write(writes, whole)
    os.close(writes)
    monkeypatch.setattr(sys, "stdin", os.fdopen(reads))
    for path, shown in ((str(tmp_path / "trace"), f"{tmp_path}/trace"), ("-", "<stdin>")):
        with pytest.raises(InputError) as caught:
            read_trace(path)
        assert str(caught.value).startswith(f"{shown}:3: broken JSON")


@pytest.mark.parametrize("kind", ["w", "w:gz", "w:xz"])
def test_an_archive_of_files_is_refused_rather_than_taken_for_its_first_line(tmp_path: Path, kind: str) -> None:
    (tmp_path / "batch_task.csv").write_text("M1,1,j_1,1,Terminated,10,20,100,0.3\n")
    archive = tmp_path / "batch_task.tar"
    with tarfile.open(archive, kind) as tar:
        tar.add(tmp_path / "batch_task.csv", "batch_task.csv")
    with pytest.raises(InputError, match=r"batch_task.tar: a tar archive; expected a file of it"):
        read_alibaba(archive)
    with pytest.raises(InputError, match=r"batch_task.tar: a tar archive"):
        read_wfcommons(archive)


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        read_trace(tmp_path / "none.jsonl")
    with pytest.raises(InputError, match="Is a directory"):
        read_trace(tmp_path)


def test_no_name_is_none_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for opened in (lambda: read_trace(""), lambda: read_bytes(""), atomic_output("").__enter__):
        with pytest.raises(InputError, match=r"^expected the name of a file, got ''$"):
            opened()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("folder", [".", "/"])
def test_a_folder_is_no_output(folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"^[./]: cannot write it: is a folder$"), atomic_output(folder):
        pytest.fail("it was opened")


def test_a_task_that_fits_nowhere_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text(f"{GOOD}\n{DIAMOND}\n")
    words = "job 'd', stage 'end': a task needs 2 slots, but the pool has 1 executor"
    with pytest.raises(InputError) as caught:
        read_trace(path, executors=1)
    assert str(caught.value) == f"{path}:2: {words}"
    trace = read_trace(path, executors=2)
    check_fits(trace, 2)
    with pytest.raises(InputError) as caught:
        check_fits(trace, 1, "t.jsonl")
    assert str(caught.value) == f"t.jsonl: {words}"


def test_progress_goes_from_nothing_to_everything(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text("".join(GOOD.replace("ok", f"j{job}") + "\n" for job in range(9000)))
    shares: list[float] = []
    read_trace(path, progress=shares.append)
    assert shares == sorted(shares)
    assert 0.0 < shares[0] < shares[-1] <= 1.0


def test_equal_traces_give_equal_files_and_nothing_else_is_left(tmp_path: Path) -> None:
    trace = read(tmp_path, GOOD, DIAMOND)
    for suffix in ("", ".gz", ".xz"):
        first, second = tmp_path / f"first.jsonl{suffix}", tmp_path / f"second.jsonl{suffix}"
        write_trace(trace, first)
        write_trace(trace, second)
        assert first.read_bytes() == second.read_bytes()
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_an_interrupted_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = read(tmp_path, GOOD, DIAMOND)
    path = tmp_path / "kept.jsonl"
    path.write_text("old")

    def interrupted(_: Trace) -> object:
        yield GOOD
        raise KeyboardInterrupt

    monkeypatch.setattr("fermata.sim.trace_io.job_lines", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_trace(trace, path)
    assert path.read_text() == "old"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["kept.jsonl", "trace.jsonl"]


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_pipe_is_written_to_and_stays_one(suffix: str, tmp_path: Path) -> None:
    trace = read(tmp_path, GOOD, DIAMOND)
    write_trace(trace, tmp_path / f"file{suffix}")
    pipe = tmp_path / f"pipe{suffix}"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_trace(trace, pipe)
        assert os.read(reader, 65_536) == (tmp_path / f"file{suffix}").read_bytes()
    finally:
        os.close(reader)
    assert pipe.is_fifo()


@pytest.mark.parametrize("suffix", ["", ".gz", ".xz"])
def test_a_full_disk_is_told_with_the_file_and_leaves_the_old_one(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"kept.jsonl{suffix}"
    path.write_text("old")
    trace = SCENARIOS["dag_pods"].with_(jobs=2000).generate(1)
    with files_end_at(20_000), pytest.raises(InputError, match=f"^{path}: cannot write it: File too large$"):
        write_trace(trace, path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_cannot_be_made_is_told_by_its_own_name(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 300)  # nor can what is written beside it; as on a disk that is read-only
    with pytest.raises(InputError, match=f"^{path}: cannot write it: File name too long$"):
        write_trace(read(tmp_path, GOOD), path)


def test_a_folder_that_is_missing_or_in_the_way_is_refused(tmp_path: Path) -> None:
    trace = read(tmp_path, GOOD)
    with pytest.raises(InputError, match="cannot write it"):
        write_trace(trace, tmp_path / "none" / "trace.jsonl")
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match="cannot write it"):
        write_trace(trace, tmp_path / "folder")
