"""Tables of jobs: which column is what, what is left out, and what cannot be read."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.traces.test_cli_trace import fermata

from fermata.policy.errors import InputError
from fermata.sim.importers import Imported, ImportOptions
from fermata.sim.importers.base import AsItRan
from fermata.sim.importers.cells import moment_of, seconds_of
from fermata.sim.importers.tables import DEFAULT_NAMES, columns_of, read_table, values_of
from fermata.sim.trace_io import read_trace

# As Helios' log is: some rows of it have no times, and some jobs no GPU.
GPUS = """job_id,user,gpu_num,state,submit_time,duration
7,ann,8,COMPLETED,2020-09-01 00:10:00,3600
8,bob,1,FAILED,2020-09-01 00:10:30,30.5
9,ann,0,COMPLETED,2020-09-01 00:11:00,5
10,ann,2,COMPLETED,2020-09-01 00:00:00,120
11,bob,1,CANCELLED,2020-09-01 00:12:00,
"""
COLUMNS = {"id": "job_id", "arrival": "submit_time", "duration": "duration", "slots": "gpu_num"}
SACCT = """JobIDRaw|Submit|Start|End|Elapsed|AllocCPUS|Timelimit|State|Partition
1|2026-11-30T08:00:00|2026-11-30T08:00:10|2026-11-30T09:00:10|01:00:00|4|1-00:00:00|COMPLETED|gpu
2|2026-11-30T08:00:05|2026-11-30T09:00:10|2026-11-30T09:01:40|00:01:30|8|UNLIMITED|COMPLETED|gpu
3|2026-11-30T08:00:06|Unknown|Unknown|00:00:00|0|00:10:00|CANCELLED by 7|gpu
4|2026-11-30T08:00:07|2026-11-30T08:00:07|2026-11-30T08:00:08|00:00:01|1|00:10:00|COMPLETED|login
"""


def imported(folder: Path, text: str, options: ImportOptions) -> Imported:
    path = folder / "jobs.csv"
    path.write_text(text, encoding="utf-8")
    return read_table(path, options)


def jobs(found: Imported) -> list[tuple[str, float, float, int]]:
    """Return id, arrival, duration and slots of each job, all of which have one task."""
    trace = found.trace
    columns = (trace.job_arrival_s.tolist(), trace.task_duration_s.tolist(), trace.stage_slots.tolist())
    return list(zip(trace.job_ids, *columns, strict=True))


def test_a_row_is_a_job_of_the_columns_that_are_named(tmp_path: Path) -> None:
    found = imported(tmp_path, GPUS, ImportOptions(columns=COLUMNS))
    assert jobs(found) == [("10", 0.0, 120.0, 2), ("7", 600.0, 3600.0, 8), ("8", 630.0, 30.5, 1)]
    assert found.skipped == {"takes no executor": 1, "unknown duration": 1}
    assert found.as_it_ran is None
    assert found.trace.stage_estimate_s.tolist() == [120.0, 3600.0, 30.5]


def test_what_is_not_known_is_filled_in_on_request_and_all_may_take_one_slot(tmp_path: Path) -> None:
    text = GPUS.replace("7,ann,8", "7,ann,")
    kept = imported(tmp_path, text, ImportOptions(columns=COLUMNS, keep_incomplete=True))
    assert [job[2:] for job in jobs(kept)] == [(120.0, 2), (3600.0, 1), (30.5, 1), (0.0, 1)]
    assert imported(tmp_path, text, ImportOptions(columns=COLUMNS)).skipped["unknown number of executors"] == 1
    narrow = imported(tmp_path, GPUS, ImportOptions(columns=COLUMNS, one_slot=True))
    assert narrow.trace.stage_slots.tolist() == [1, 1, 1]


def test_only_rows_with_one_of_the_values_of_each_column_are_of_the_table(tmp_path: Path) -> None:
    wanted = values_of(["state=COMPLETED", "state=FAILED", "user=ann"], "--where")
    found = imported(tmp_path, GPUS, ImportOptions(columns=COLUMNS, where=wanted))
    assert (list(found.trace.job_ids), found.skipped) == (["10", "7"], {"takes no executor": 1})
    where = values_of(["state=over", "state=done", "user=ann"], "--where")
    with pytest.raises(InputError, match=r"jobs.csv: no row has state=done or over and user=ann"):
        imported(tmp_path, GPUS, ImportOptions(columns=COLUMNS, where=where))
    where = values_of(["state=CANCELLED"], "--where")
    with pytest.raises(InputError, match=r"no usable jobs \(1 skipped: unknown duration\)"):
        imported(tmp_path, GPUS, ImportOptions(columns=COLUMNS, where=where))


def test_what_sacct_prints_is_such_a_table(tmp_path: Path) -> None:
    columns = {"id": "JobIDRaw", "arrival": "Submit", "start": "Start", "end": "End", "slots": "AllocCPUS"}
    options = ImportOptions(columns=columns | {"estimate": "Timelimit"}, where={"Partition": frozenset({"gpu"})})
    found = imported(tmp_path, SACCT, options)
    assert jobs(found) == [("1", 0.0, 3600.0, 4), ("2", 5.0, 90.0, 8)]
    assert found.skipped == {"unknown duration": 1}
    assert found.trace.stage_estimate_s.tolist() == [86400.0, 90.0]  # without a limit the time that it took
    assert found.as_it_ran == AsItRan((3610.0 + 3695.0) / 2, 8, executors=True)
    exact = imported(tmp_path, SACCT, ImportOptions(columns=options.columns, where=options.where, exact_estimates=True))
    assert exact.trace.stage_estimate_s.tolist() == [3600.0, 90.0]
    elapsed = columns_of(["arrival=Submit", "duration=Elapsed"], "--column")
    assert imported(tmp_path, SACCT, ImportOptions(columns=elapsed)).trace.task_duration_s.tolist() == [
        3600.0, 90.0, 0.0, 1.0,
    ]  # fmt: skip


def test_a_family_is_known_by_its_runs_that_had_ended(tmp_path: Path) -> None:
    text = (
        "arrival_s,duration_s,start_s,family\n"
        "0,10,0,a\n5,30,10,a\n10,7,10,a\n11,100,11,b\n39,1,39,a\n41,1,41,a\n300,1,300,\n300,1,300,c\n"
    )
    found = imported(tmp_path, text, ImportOptions())
    # A guess; the same; the first of a; the mean of what had ended, 10; medians of 10 and 7, then of 30, too; means.
    ended = (10 + 30 + 7 + 100 + 1 + 1) / 6
    assert found.trace.stage_estimate_s.tolist() == [60.0, 60.0, 10.0, 10.0, 8.5, 10.0 - 1.5, ended, ended]


def test_a_run_whose_estimate_somebody_gave_is_learned_from_all_the_same(tmp_path: Path) -> None:
    text = "arrival_s,duration_s,estimate_s,family\n0,36,864,a\n50,36,864,a\n100,36,UNLIMITED,a\n200,,9,a\n300,5,,a\n"
    kept = imported(tmp_path, text, ImportOptions(keep_incomplete=True)).trace
    assert kept.stage_estimate_s.tolist() == [864.0, 864.0, 36.0, 9.0, 36.0]


def test_a_run_is_known_from_its_end_on_whatever_it_took(tmp_path: Path) -> None:
    text = "arrival_s,start_s,duration_s,end_s,family\n0,0,100,5000,a\n200,200,100,6000,a\n5500,5500,1,,a\n"
    found = imported(tmp_path, text, ImportOptions())
    assert found.trace.stage_estimate_s.tolist() == [60.0, 60.0, 100.0]
    assert found.as_it_ran == AsItRan((5000 + 5800 + 1) / 3, 2, executors=True)


def test_how_jobs_did_is_told_of_those_that_are_known_to_have_started(tmp_path: Path) -> None:
    text = "arrival_s,start_s,duration_s,slots\n0,5,10,4\n1,,10,2\n2,6,10,2\n9,8,10,1\n"
    found = imported(tmp_path, text, ImportOptions())
    assert (found.as_it_ran, found.skipped) == (
        AsItRan(14.5, 6, executors=True, jobs=2),
        {"started before it arrived": 1},
    )
    narrow = imported(tmp_path, text, ImportOptions(one_slot=True)).as_it_ran
    assert narrow is not None
    assert narrow.at_once == 2


def test_the_header_is_read_as_rows_are(tmp_path: Path) -> None:
    spaced = '"arrival_s", "duration_s"\n0, 5\n'
    assert jobs(imported(tmp_path, spaced, ImportOptions())) == [("2", 0.0, 5.0, 1)]
    german = 'Auftrag;"Start, UTC";"Dauer, s"\na;0;5\n'
    columns = {"id": "Auftrag", "arrival": "Start, UTC", "duration": "Dauer, s"}
    assert jobs(imported(tmp_path, german, ImportOptions(columns=columns))) == [("a", 0.0, 5.0, 1)]


def test_a_row_without_an_id_cannot_have_that_of_another(tmp_path: Path) -> None:
    found = imported(tmp_path, "id,arrival_s,duration_s\n3,0,1\n,1,1\n", ImportOptions())
    assert list(found.trace.job_ids) == ["3", "line 3"]


def test_without_names_columns_are_called_as_in_job_traces(tmp_path: Path) -> None:
    header = ",".join(DEFAULT_NAMES.values())
    found = imported(tmp_path, f"{header}\n3,4,3,7,2,0.5,9,2.5,j,f\n1,1,1,2,1,3,1,1,k,f\n", ImportOptions())
    trace = found.trace
    assert (trace.job_ids, trace.job_arrival_s.tolist()) == (["k", "j"], [0.0, 2.0])
    assert (trace.job_weight.tolist(), trace.stage_slots.tolist()) == ([1.0, 2.5], [3, 1])
    assert np.diff(trace.task_ptr).tolist() == [1, 2]
    assert trace.stage_estimate_s.tolist() == [1.0, 9.0]


@pytest.mark.parametrize("apart", [",", "|", ";", "\t"])
def test_columns_may_be_apart_by_several_signs_and_cells_be_quoted(tmp_path: Path, apart: str) -> None:
    rows = [["arrival_s", "duration_s", "id"], ["0", "5", f'"a {apart} job"'], ["1", "6", '"two\nlines"'], ["", "", ""]]
    text = "\r\n".join(apart.join(row) for row in rows)
    assert jobs(imported(tmp_path, "\ufeff" + text, ImportOptions())) == [
        (f"a {apart} job", 0.0, 5.0, 1), ("two\nlines", 1.0, 6.0, 1),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("", None, "there is nothing in it; expected a header line"),
        ("a,b\n1,2\n", 1, "no column says when jobs arrived; expected --column arrival=NAME; there are: a, b"),
        ("arrival_s,end_s\n1,2\n", 1, "no column says how long jobs took; expected --column duration=NAME, or start="),
        ("arrival_s,duration_s,id,id\n1,2,3,4\n", 1, "it has several columns 'id'"),
        ("arrival_s,duration_s\n1,2\n3\n", 3, "expected 2 columns as in the header, found 1"),
        ('arrival_s,duration_s,id\n1,2,"a\n3,4,b\n5,6,c"\n', 2, "a quote that is never closed takes in whole lines"),
        ("arrival_s\rduration_s\r1\r2\r", 1, "expected a header line: new-line character seen in unquoted field"),
        ("x" * 140_000, 1, "expected a header line: field larger than field limit"),
        ("arrival_s,duration_s\n1,2\n\n3,4,5\n", 4, "expected 2 columns as in the header, found 3"),
        (
            "arrival_s,duration_s\nsoon,2\n",
            2,
            r"'arrival_s' \(arrival\) must be a number of seconds, or a date as 2026",
        ),
        (
            "arrival_s,duration_s\n1,long\n",
            2,
            r"'duration_s' \(duration\) must be a number of seconds, or a time as 1-02",
        ),
        ("arrival_s,duration_s\n1,1e16\n", 2, r"'duration_s' \(duration\) must be a number of seconds, or a time"),
        ("arrival_s,duration_s\n1,inf\n", 2, r"'duration_s' \(duration\) must be a number of seconds, or a time"),
        ("arrival_s,duration_s\n1,2\n2026-11-30,4\n", 3, "must be a number of seconds, as times above are, not '2026"),
        ("arrival_s,duration_s\n2026-11-30,4\n1,2\n", 3, "must be a date, as times above are, not '1'"),
        ("arrival_s,duration_s,slots\n1,2,many\n", 2, r"column 'slots' \(slots\) must be a number of at most 1e\+15"),
        ("arrival_s,duration_s,slots\n1,2,1e14\n", 2, "slots must be between 1 and"),
        ("arrival_s,duration_s,tasks\n1,2,1.5\n", 2, r"column 'tasks' \(tasks\) must be a whole number, not '1.5'"),
        ("arrival_s,duration_s,weight\n1,2,0\n", 2, "weight"),
        ("arrival_s,duration_s,id\n1,2,a\n3,4,a\n", 3, "job id 'a' is used twice"),
        ('arrival_s,duration_s\n1,2\n3,"4\n', 3, "expected columns as in the header: unexpected end of data"),
        ("arrival_s,duration_s\n1," + "9" * 400 + ":00\n", 2, "a time must be a number of seconds, 0 to"),
    ],
)
def test_what_cannot_be_read_is_told_by_its_line(tmp_path: Path, text: str, line: int | None, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        imported(tmp_path, text, ImportOptions())
    assert (caught.value.file, caught.value.line) == (str(tmp_path / "jobs.csv"), line)


def test_rows_that_end_before_they_start_or_have_no_task_are_left_out(tmp_path: Path) -> None:
    text = "arrival_s,start_s,end_s,tasks\n0,5,4,1\n0,1,2,0\n,1,2,1\n0,1,2,1\n"
    found = imported(tmp_path, text, ImportOptions())
    assert (jobs(found), found.skipped) == (
        [("5", 0.0, 1.0, 1)],
        {"ended before it started": 1, "has no task": 1, "unknown arrival": 1},
    )


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (["id"], "--column expects KEY=NAME with a KEY of arrival, duration, start, end, tasks, slots, .* not 'id'"),
        (["id=a", "id=b"], "--column says twice where id is: 'a' and 'b'; expected one column"),
    ],
)
def test_columns_are_named_once_each(texts: list[str], words: str) -> None:
    with pytest.raises(InputError, match=words):
        columns_of(texts, "--column")


def test_a_column_that_is_not_there_is_told(tmp_path: Path) -> None:
    for options in (ImportOptions(columns={"slots": "gpus"}), ImportOptions(where={"gpus": frozenset({"1"})})):
        with pytest.raises(InputError, match="it has no column 'gpus'; there are: arrival_s, duration_s"):
            imported(tmp_path, "arrival_s,duration_s\n0,1\n", options)


def test_a_limit_counts_what_is_kept(tmp_path: Path) -> None:
    found = imported(tmp_path, GPUS.replace("7,ann,8", "7,ann,0"), ImportOptions(columns=COLUMNS, limit=1))
    assert (jobs(found), found.skipped) == ([("8", 0.0, 30.5, 1)], {"takes no executor": 1})


@given(st.floats(0.0, 1e9).map(lambda value: round(value, 3)))
def test_a_time_in_days_hours_and_minutes_is_that_number_of_seconds(seconds: float) -> None:
    minutes, rest = divmod(seconds, 60.0)
    hours, minutes = divmod(int(minutes), 60)
    days, hours = divmod(hours, 24)
    assert seconds_of(f"{days}-{hours:02d}:{minutes:02d}:{rest:06.3f}", "t") == pytest.approx(seconds, abs=1e-6)
    assert seconds_of(repr(seconds), "t") == seconds


def test_dates_are_in_utc_unless_they_say_otherwise() -> None:
    same = {moment_of(word, "t") for word in ("2026-11-30T08:00:00", "2026-11-30 08:00:00Z", "2026-11-30 09:00+01:00")}
    assert len(same) == 1
    # Many a number could be read as a date: as hours of a day, and as a day of the year 1512.
    numbers = ("20261130", "20201130.08", "1512010112345.0")
    assert [moment_of(number, "t") for number in numbers] == [(float(number), False) for number in numbers]


def test_the_command_imports_a_compressed_table_and_says_how_it_ran(tmp_path: Path) -> None:
    table, out = tmp_path / "jobs.csv.gz", tmp_path / "jobs.jsonl"
    with gzip.open(table, "wt", encoding="utf-8") as stream:
        stream.write(SACCT)
    columns = [f"--column={each}" for each in ("arrival=Submit", "start=Start", "end=End", "slots=AllocCPUS")]
    done = fermata("import", "csv", table, *columns, "--where", "Partition=gpu", "--out", out)
    assert done.returncode == 0
    assert done.stderr.splitlines() == [
        f"2 jobs, 2 tasks written to {out}",
        "as they ran, the mean JCT was 3,652 s, and they took at most 8 executors at one time",
        "1 job left out: unknown duration",
    ]
    assert read_trace(out).stage_slots.tolist() == [4, 8]
    assert json.loads(out.read_text().splitlines()[0])["id"] == "2"
