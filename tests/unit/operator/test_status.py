"""What is written to a status, and when it has to be written again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.operator.objects import T0, job_fact_of, stage, workflow_fact_of

from fermata.operator import names, reasons, status
from fermata.operator.crds import manifests
from fermata.operator.estimates import Estimates
from fermata.operator.facts import pool_fact
from fermata.operator.holding import Pause
from fermata.operator.ledger import Account, Ledger, Meter
from fermata.operator.progress import WorkflowView
from fermata.operator.resources import WorkflowStatus
from fermata.operator.seat import Verdict
from fermata.operator.split import split
from fermata.operator.times import render
from fermata.operator.validate import Problem
from fermata.operator.view import view
from fermata.operator.why import Why
from fermata.policy.earlier_runs import Estimate
from fermata.sim.kube.schema import validate

HELD = Why(reasons.HELD_BY_POLICY, "held: the next executor frees in about 12 s")


def _view(*stages: dict[str, Any], now_s: float = T0 + 30, jobs: Any = None, **fields: Any) -> WorkflowView:
    fact = workflow_fact_of("w", *stages, now_s=T0, **fields)
    assert fact.spec is not None
    facts = {key: job_fact_of("w", key, now_s, **values) for key, values in (jobs or {}).items()}
    return view(fact, fact.spec, facts, {}, {}, Estimates(), now_s)


def _status(
    seen: WorkflowView, account: Account | None = None, held: Any = None, now_s: float = T0 + 30
) -> dict[str, Any]:
    return status.workflow_status(seen, account or Account(), held or {}, {}, "sjf", now_s)


@given(st.floats(-1e6, 1e6), st.floats(0, 1e6), st.floats(-1e6, 1e6))
def test_the_parts_of_a_jct_are_exactly_the_whole(whole_s: float, held_s: float, run_s: float) -> None:
    parts = split(whole_s, held_s, run_s)
    assert parts.wait_ms + parts.held_ms + parts.run_ms == parts.jct_ms
    assert min(parts) >= 0
    assert all(isinstance(part, int) for part in parts), "whole milliseconds, of which a sum is exact"
    assert abs(parts.jct_ms / 1000 - max(whole_s, 0.0)) <= 0.00051, "a clock that was set back makes nothing negative"


def test_slowdown_is_bounded_below() -> None:
    assert split(30.0, 0.0, 5.0).slowdown == 3.0
    assert split(5.0, 0.0, 5.0).slowdown == 1.0
    assert split(60.0, 0.0, 20.0).slowdown == 3.0


@pytest.mark.parametrize(
    ("at_start", "told", "source"),
    [("0.501500", 0.502, "median of 2 earlier runs"), ("0.600000", 0.6, "as known at its start")],
)
def test_a_finished_stage_tells_where_its_estimate_came_from(at_start: str, told: float, source: str) -> None:
    annotations = {names.ANNOTATION_ESTIMATE: at_start}
    done = {"start_s": T0, "outcome": "Complete", "end_s": T0 + 1, "succeeded": 1, "annotations": annotations}
    row = {"name": "a", "state": "Running", "estimateSeconds": 0.502, "estimateSource": "median of 2 earlier runs"}
    (found,) = _status(_view(stage("a"), jobs={"a": done}, status={"stages": [row]}))["stages"]
    assert (found["estimateSeconds"], found["estimateSource"]) == (told, source)


def test_what_a_stage_that_runs_is_expected_to_take_is_what_is_known_now() -> None:
    row = {"name": "a", "state": "Running", "estimateSeconds": 0.5, "estimateSource": "median of 2 earlier runs"}
    fields = {"status": {"stages": [row]}}
    run = {"annotations": {names.ANNOTATION_ESTIMATE: "0.500000"}}
    seen = _view(stage("a"), jobs={"a": run}, **fields)
    assert _rows(_status(seen), "estimateSeconds", "estimateSource") == [(10.0, "estimateSeconds")]
    (begun,) = seen.stages
    known = replace(begun, estimate=Estimate(0.61239, "median of 9 earlier runs", (0.25, 12.3456)))
    told = _rows(_status(replace(seen, stages=(known,))), "estimateSeconds", "estimateSource")
    assert told == [(0.612, "median of 9 earlier runs, half of them 0.25 to 12.3 s")]
    # A status that says nothing of it, of a stage whose Job says nothing either.
    ended = {"outcome": "Complete", "end_s": T0 + 1, "succeeded": 1}
    bare = _view(stage("a"), jobs={"a": ended}, status={"stages": [{"name": "a", "state": "Running"}]})
    assert _rows(_status(bare), "estimateSeconds", "estimateSource") == [(10.0, "estimateSeconds")]


def test_a_finished_workflow_tells_its_split() -> None:
    jobs = {"a": {"start_s": T0 + 7.5, "outcome": "Complete", "end_s": T0 + 20.25, "succeeded": 1, "held_s": 4.5}}
    account = Account(held=Meter(4.5))
    written = _status(_view(stage("a"), jobs=jobs), account)
    assert written["jctSeconds"] == pytest.approx(20.25)
    assert (written["waitSeconds"], written["heldSeconds"], written["runSeconds"]) == (3.0, 4.5, 12.75)
    assert written["slowdown"] == pytest.approx(20.25 / 12.75, abs=1e-3)
    (row,) = written["stages"]
    assert (row["state"], row["heldSeconds"], row["runSeconds"]) == ("Succeeded", 4.5, 12.75)
    assert {condition["type"]: condition["status"] for condition in written["conditions"]} == {
        "Accepted": "True", "Running": "False", "Held": "False", "Succeeded": "True",
    }  # fmt: skip


def _at(seconds: float) -> str:
    return render(T0 + seconds)


def _rows(written: dict[str, Any], *fields: str) -> list[tuple[Any, ...]]:
    """Some fields of the row of each stage."""
    return [tuple(row[field] for field in fields) for row in written["stages"]]


def _mixed() -> tuple[WorkflowView, Account]:
    """A workflow of which one stage is done, one runs, two are ready and one has a parent that runs; and its account.

    For how long the first two had been held before they started their Jobs say, whatever the meters do.
    """
    done = {"start_s": T0 + 7.5, "outcome": "Complete", "end_s": T0 + 20.25, "succeeded": 1, "held_s": 4.5}
    runs = {"start_s": T0 + 10, "tasks": 4, "parallelism": 2, "succeeded": 1, "failed": 3, "held_s": 2.0}
    since_arrival = {"annotations": {names.ANNOTATION_READY: _at(0)}}
    some = [stage("done"), stage("runs", tasks=4), stage("held"), stage("waits"), stage("later", "runs")]
    seen = _view(*some, jobs={"done": done | since_arrival, "runs": runs | since_arrival})
    account = Account(
        stages={"done": Meter(9.0, T0 + 1), "runs": Meter(9.0, T0 + 1), "held": Meter(1.23456, T0 + 25)},
        hold_until_s=dict.fromkeys(("done", "runs", "held"), T0 + 60),
    )
    return seen, account


def test_each_stage_says_where_it_is() -> None:
    seen, account = _mixed()
    waits = {"waits": Why(reasons.STARTING, "is being started")}
    written = status.workflow_status(seen, account, {"held": HELD}, waits, "sjf", T0 + 30)
    assert _rows(written, "name", "state", "reason", "message") == [
        ("done", "Succeeded", "", ""),
        ("runs", "Running", "", ""),
        ("held", "Held", *HELD),
        ("waits", "Waiting", *waits["waits"]),
        ("later", "Pending", "ParentsRunning", ""),
    ]
    assert _rows(written, "readyTime", "startTime", "completionTime", "heldSince", "holdUntil") == [
        (_at(0), _at(7.5), _at(20.25), None, None),
        (_at(0), _at(10), None, None, None),
        (_at(0), None, None, _at(25), _at(60)),
        (_at(0), None, None, None, None),
        (None, None, None, None, None),
    ]
    assert _rows(written, "waitSeconds", "heldSeconds", "runSeconds") == [
        (3.0, 4.5, 12.75),
        (8.0, 2.0, None),
        (None, 1.235, None),
        (None, 0.0, None),
        (None, 0.0, None),
    ]
    assert _rows(written, "parallelism", "tasks", "active", "succeeded", "failed") == [
        (1, 1, 0, 1, 0),
        (2, 4, 2, 1, 3),
        (None, 1, 0, 0, 0),
        (None, 1, 0, 0, 0),
        (None, 1, 0, 0, 0),
    ]
    made = [names.job_name("w", "uid-w", name) for name in ("done", "runs")]
    assert [row["jobName"] for row in written["stages"]] == [*made, None, None, None]
    assert written["tasks"] == {"total": 8, "running": 2, "succeeded": 2, "failed": 3}


@pytest.mark.parametrize(
    ("fields", "jobs", "told"),
    [
        ({}, {}, ("Waiting", "ExecutorsBusy", "")),  # what is decided on in a moment
        ({"suspend": True}, {}, ("Waiting", "Suspended", "")),
        ({}, {"b": {"outcome": "Failed", "end_s": T0 + 5}}, ("Skipped", "NotStarted")),
        ({}, {"a": {"outcome": "Failed", "end_s": T0 + 5}}, ("Failed", "JobFailed", "Test")),
        ({}, {"a": {"suspended": True}}, ("Running", "JobSuspended", "")),
    ],
)
def test_a_stage_says_why_it_is_where_it_is(fields: Any, jobs: Any, told: tuple[str, ...]) -> None:
    written = _status(_view(stage("a"), stage("b"), jobs=jobs, **fields))
    assert _rows(written, "state", "reason", "message")[0][: len(told)] == told


@pytest.mark.parametrize(
    ("reason", "before", "generation", "message"),
    [
        (HELD.reason, HELD._replace(message="12 s"), 1, "12 s"),  # its numbers change all the time
        (HELD.reason, HELD._replace(message="12 s"), 0, "now"),  # that was before an edit
        (HELD.reason, HELD._replace(message=""), 1, "now"),
        (HELD.reason, Why(reasons.EXECUTORS_BUSY, "12 s"), 1, "now"),
        (reasons.START_RETRYING, Why(reasons.START_RETRYING, "no quota"), 1, "now"),  # what the API server said last
    ],
)
def test_why_a_stage_waits_is_told_once_for_each_reason(
    reason: str, before: Why, generation: int, message: str
) -> None:
    row = {"name": "a", "state": "Held", "reason": before.reason, "message": before.message}
    told = {"observedGeneration": generation, "stages": [row]}
    written = _status(_view(stage("a"), status=told), held={"a": Why(reason, "now")})
    assert written["stages"][0]["message"] == message


def test_what_is_known_of_a_job_that_is_not_seen_is_what_was_seen_or_told_of_it_last() -> None:
    row = {"name": "a", "state": "Running", "startTime": _at(0), "parallelism": 2, "succeeded": 3, "failed": 1}
    seen = _view(stage("a", tasks=9), status={"stages": [row]})
    account = Account(started={"a": job_fact_of("w", "a", tasks=9, parallelism=5)})
    fields = ("parallelism", "active", "succeeded", "failed")
    assert _rows(_status(seen), *fields) == [(2, 0, 3, 1)]
    assert _rows(_status(seen, account), *fields) == [(5, 0, 3, 1)], "it was widened since then"
    back = _view(stage("a", tasks=9), jobs={"a": {"tasks": 9, "parallelism": 5}}, status={"stages": [row]})
    assert _rows(_status(back), *fields) == [(5, 5, 0, 0)], "it knows better"


def test_a_stage_of_a_rejected_workflow_is_held_no_more_and_what_runs_goes_on() -> None:
    seen, account = _mixed()
    first = _status(seen, account, {"held": HELD})
    account.stop(T0 + 40)
    fact = workflow_fact_of("w", stage("a"), status=status.merge_patch(first))
    written = status.rejected_status(fact, account, Problem(reasons.CYCLE, "a -> a"), T0 + 40)
    assert [written["stages"][i] for i in (0, 1, 4)] == [first["stages"][i] for i in (0, 1, 4)]
    rows = _rows(written, "state", "reason", "message", "heldSince", "holdUntil", "heldSeconds")
    assert rows[2:4] == [("Waiting", "Rejected", "", None, None, held_s) for held_s in (16.235, 0.0)]


def test_a_held_workflow_says_since_when_and_why() -> None:
    account = Account(held=Meter(1.5, T0 + 25), stages={"a": Meter(1.5, T0 + 25)})
    written = _status(_view(stage("a")), account, {"a": HELD})
    (row,) = written["stages"]
    assert (row["state"], row["reason"], row["message"]) == ("Held", HELD.reason, HELD.message)
    assert row["heldSince"] == written["heldSince"] == "2027-01-15T08:00:25.000000Z"
    held = next(condition for condition in written["conditions"] if condition["type"] == "Held")
    assert (held["status"], held["message"]) == ("True", HELD.message)


def _told(written: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """Status and reason of each condition."""
    return {row["type"]: (row["status"], row["reason"]) for row in written["conditions"]}


@pytest.mark.parametrize(
    ("jobs", "fields", "held", "activity"),
    [
        ({}, {}, False, "Waiting"),
        ({}, {}, True, "Held"),
        ({}, {"suspend": True}, False, "Suspended"),
        ({"a": {}}, {}, True, "Running"),
        ({"a": {}}, {"suspend": True}, False, "Running"),
        ({"a": {"suspended": True}}, {}, True, "Suspended"),
        ({"a": {"suspended": True, "active": 1}}, {}, False, "Running"),  # its pods are being ended
        ({"a": {"suspended": True}, "b": {}}, {}, False, "Running"),
        ({"a": {"tasks": 2, "succeeded": 2}}, {}, False, "Running"),  # its Job has not ended yet
    ],
)
def test_a_workflow_says_what_it_does(jobs: Any, fields: Any, held: bool, activity: str) -> None:
    written = _status(_view(stage("a"), stage("b"), jobs=jobs, **fields), held={"b": HELD} if held else {})
    assert _told(written) == {
        "Accepted": ("True", "Valid"),
        "Running": (str(activity == "Running"), activity),
        "Held": ("True", "HeldByPolicy") if activity == "Held" else ("False", activity),
        "Succeeded": ("Unknown", activity),
    }
    assert (written["suspendedTime"] is not None) == ("suspended" in str(jobs) or "suspend" in fields)


def test_a_workflow_that_has_ended_does_nothing() -> None:
    jobs = {"a": {"outcome": "Failed", "end_s": T0 + 9}}
    told = _told(_status(_view(stage("a"), jobs=jobs)))
    assert told == dict.fromkeys(("Running", "Held"), ("False", "Finished")) | {
        "Accepted": ("True", "Valid"),
        "Succeeded": ("False", "StageFailed"),
    }


def test_time_alone_changes_no_status() -> None:
    account = Account(held=Meter(1.5, T0 + 25), stages={"a": Meter(1.5, T0 + 25)})
    first = _status(_view(stage("a")), account, {"a": HELD})
    again = _view(stage("a"), now_s=T0 + 90, status=first)
    later = Why(HELD.reason, "held: the next executor frees in about 2 s")
    assert not status.changed(first, _status(again, account, {"a": later}, now_s=T0 + 90))


def test_an_estimate_alone_is_no_news() -> None:
    def row(**fields: Any) -> dict[str, Any]:
        return {"stages": [{"name": "a", "estimateSeconds": 1.0, "estimateSource": "guess", **fields}]}

    assert not status.changed(row(), row(estimateSeconds=2.0, estimateSource="median of 2 earlier runs"))
    assert status.changed(row(), row(active=1))


def test_transition_times_change_with_the_status_alone() -> None:
    first = _status(_view(stage("a")))
    jobs = {"a": {"start_s": T0 + 31}}
    second = _status(_view(stage("a"), now_s=T0 + 32, jobs=jobs, status=first), now_s=T0 + 32)
    times = {
        condition["type"]: (before["lastTransitionTime"] == condition["lastTransitionTime"])
        for before, condition in zip(first["conditions"], second["conditions"], strict=True)
    }
    assert times == {"Accepted": True, "Running": False, "Held": True, "Succeeded": True}


def test_a_status_reads_back_as_it_was_written() -> None:
    jobs = {"a": {"start_s": T0 + 1, "outcome": "Complete", "end_s": T0 + 2.5, "succeeded": 1}}
    written = status.merge_patch(_status(_view(stage("a"), stage("b", "a"), jobs=jobs)))
    read = WorkflowStatus.model_validate(written).model_dump(by_alias=True)
    assert not status.changed(written, read)


def test_a_rejected_workflow_keeps_what_it_did_before() -> None:
    jobs = {"a": {"start_s": T0 + 1, "outcome": "Complete", "end_s": T0 + 2.5, "succeeded": 1}}
    first = _status(_view(stage("a"), stage("b", "a"), jobs=jobs))
    fact = workflow_fact_of("w", stage("a"), stage("b", "a"), status=status.merge_patch(first))
    written = status.rejected_status(fact, Account(), Problem(reasons.CYCLE, "a -> a"), T0 + 40)
    accepted = next(condition for condition in written["conditions"] if condition["type"] == "Accepted")
    assert (accepted["status"], accepted["reason"], accepted["message"]) == ("False", "Cycle", "a -> a")
    assert _told(written)["Running"] == _told(written)["Held"] == ("False", "Rejected")
    assert written["stages"][0] == first["stages"][0]
    assert written["arrivalTime"] == first["arrivalTime"]


def test_a_rejected_workflow_of_which_something_runs_goes_on_saying_so() -> None:
    first = _status(_view(stage("a"), jobs={"a": {}}))
    fact = workflow_fact_of("w", stage("a"), status=status.merge_patch(first))
    written = status.rejected_status(fact, Account(), Problem(reasons.CYCLE, "a -> a"), T0 + 40)
    before, after = ({row["type"]: row for row in body["conditions"]} for body in (first, written))
    assert [after[kind] for kind in ("Running", "Held")] == [before[kind] for kind in ("Running", "Held")]


def test_a_message_that_is_too_long_is_cut_before_the_whole_status_is_refused() -> None:
    problem = Problem(reasons.JOB_REJECTED, "x" * 40_000)
    written = status.rejected_status(workflow_fact_of("w", stage("a")), Account(), problem, T0)
    (workflows, _) = manifests()
    structure = workflows["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]
    assert list(validate(written, structure)) == []


def test_nulls_are_removals_at_the_top_and_left_out_in_lists() -> None:
    body = {"a": None, "b": [{"c": None, "d": 1}], "e": {"f": None}}
    assert status.merge_patch(body) == {"a": None, "b": [{"d": 1}], "e": {"f": None}}
    assert not status.changed({"b": [{"d": 1}]}, {"a": None, "b": [{"c": None, "d": 1}]})


def test_a_meter_counts_only_while_it_is_on() -> None:
    meter = Meter()
    assert meter.turn(on=True, now_s=10.0)
    assert not meter.turn(on=True, now_s=11.0)
    assert meter.total(12.0) == 2.0
    assert meter.turn(on=False, now_s=13.0)
    assert meter.total(99.0) == 3.0
    assert meter.turn(on=True, now_s=20.0)
    assert meter.total(21.0) == 4.0


def test_a_meter_does_not_run_backwards_with_the_clock() -> None:
    assert Meter(3.0, 10.0).total(9.0) == 3.0


@pytest.mark.parametrize(("held", "told"), [(Meter(), {}), (Meter(3.0), {"w": 3.0}), (Meter(0.0, T0), {"w": 5.0})])
def test_a_workflow_has_held_seconds_once_it_was_held_or_is(held: Meter, told: dict[str, float]) -> None:
    ledger = Ledger()
    ledger.accounts["w"] = Account(held)
    assert ledger.workflow_held_s(T0 + 5) == told


def test_an_account_counts_while_any_of_its_meters_does() -> None:
    off, on = Meter(3.0), Meter(0.0, T0)
    assert not Account(held=off, stages={"a": off}).counting
    assert Account(held=on).counting
    # One stage runs, so the workflow is not held; another stage is.
    assert Account(held=off, stages={"a": off, "b": on}).counting


def test_an_account_that_is_stopped_holds_nothing_any_more() -> None:
    account = Account(Meter(1.0, T0), {"a": Meter(2.0, T0 + 1)}, {"a": T0 + 60})
    account.stop(T0 + 5)
    assert account == Account(Meter(6.0), {"a": Meter(6.0)})


def test_a_new_ledger_goes_on_where_the_status_stopped() -> None:
    account = Account(held=Meter(1.5, T0 + 25), stages={"a": Meter(1.0, T0 + 26)}, hold_until_s={"a": T0 + 60})
    written = _status(_view(stage("a")), account, {"a": HELD})
    ledger = Ledger()
    read = ledger.open(workflow_fact_of("w", stage("a"), status=written))
    assert (read.held, read.stages, read.hold_until_s) == (account.held, account.stages, account.hold_until_s)
    assert ledger.workflow_held_s(T0 + 30) == {"uid-w": 6.5}
    assert ledger.stage_holds(T0 + 30)["uid-w", "a"] == (5.0, T0 + 60)


@pytest.mark.parametrize("ended", [{}, {"outcome": "Complete", "succeeded": 1, "end_s": T0 + 40}])
def test_a_start_that_nobody_wrote_down_ends_the_hold_when_it_happened(ended: dict[str, Any]) -> None:
    account = Account(held=Meter(0.0, T0 + 25), stages={"a": Meter(0.0, T0 + 25)})
    written = _status(_view(stage("a")), account, {"a": HELD})
    seen = _view(stage("a"), now_s=T0 + 50, jobs={"a": {"start_s": T0 + 28, **ended}}, status=written)
    ledger = Ledger()
    read = ledger.open(seen.fact)
    ledger.catch_up(seen, T0 + 999.0)
    assert read.held == Meter(3.0, None)
    assert read.started.keys() == {"a"}
    assert read.stages == {}


def test_of_several_starts_that_nobody_wrote_down_the_first_ends_the_hold() -> None:
    held = {"heldSeconds": 2.0, "heldSince": render(T0 + 25)}
    starts = {"before": T0 + 20, "late": T0 + 40, "first": T0 + 28}
    seen = _view(
        *(stage(name) for name in starts),
        now_s=T0 + 50,
        jobs={name: {"start_s": start_s, "outcome": "Complete", "end_s": T0 + 45} for name, start_s in starts.items()},
        status=held,
    )
    ledger = Ledger()
    read = ledger.open(seen.fact)
    ledger.catch_up(seen, T0 + 999.0)
    assert read.held == Meter(5.0, None)
    assert read.started.keys() == starts.keys()


def test_the_job_of_a_stage_that_an_edit_took_out_is_not_forgotten() -> None:
    seen = _view(stage("a"), jobs={"gone": {"start_s": T0 + 10}})
    ledger = Ledger()
    read = ledger.open(seen.fact)
    ledger.catch_up(seen, T0 + 999.0)
    assert [read.started["gone"].stage, read.held] == ["gone", Meter()]


def test_a_hold_ends_where_it_began_if_a_stage_runs_of_which_nobody_knows_since_when() -> None:
    row = {"name": "a", "state": "Running"}
    seen = _view(stage("a"), status={"stages": [row], "heldSeconds": 2.0, "heldSince": "2027-01-15T08:00:25Z"})
    ledger = Ledger()
    read = ledger.open(seen.fact)
    ledger.catch_up(seen, T0 + 999.0)
    assert read.held == Meter(2.0, None)


def test_a_stage_says_what_a_task_of_it_took_whatever_caps_it_had() -> None:
    lanes = {names.ANNOTATION_LANES: "1@0.000 12@12.000"}
    run = {"tasks": 24, "parallelism": 13, "start_s": T0 + 1.25, "annotations": lanes}
    ended = run | {"outcome": "Complete", "succeeded": 24, "end_s": T0 + 14.25}
    assert _status(_view(stage("a", tasks=24), jobs={"a": run}))["stages"][0]["taskSeconds"] is None
    written = _status(_view(stage("a", tasks=24), stage("b", "a"), jobs={"a": ended}))
    (row, _) = written["stages"]
    assert (row["runSeconds"], row["parallelism"], row["taskSeconds"]) == (13.0, 13, 1.0)
    # Its Job is gone, the status is what is left; one of an older version says nothing, and goes on so.
    kept = _status(_view(stage("a", tasks=24), stage("b", "a"), status=written))
    assert kept["stages"][0]["taskSeconds"] == 1.0
    del row["taskSeconds"]
    assert _status(_view(stage("a", tasks=24), stage("b", "a"), status=written))["stages"][0]["taskSeconds"] is None


def test_a_workflow_that_was_ever_suspended_says_so() -> None:
    assert _status(_view(stage("a")))["suspendedTime"] is None
    paused = _status(_view(stage("a"), suspend=True))
    assert paused["suspendedTime"] == "2027-01-15T08:00:30.000000Z"
    done = {"a": {"start_s": T0 + 50, "outcome": "Complete", "end_s": T0 + 60, "succeeded": 1}}
    assert (
        _status(_view(stage("a"), status=paused, jobs=done), now_s=T0 + 60)["suspendedTime"]
        == (paused["suspendedTime"])
    )
    by_hand = _status(_view(stage("a"), jobs={"a": {"suspended": True}}))  # its Job, by somebody else
    assert by_hand["suspendedTime"] is not None


def _policy_of(first_s: float, second_s: float, *, before: str = "", second: str = "second") -> str:
    """Return what is told of a running workflow whose stages were started by two policies, then."""
    jobs = {
        name: {"start_s": T0 + start_s, "annotations": {names.ANNOTATION_POLICY: policy}}
        for name, policy, start_s in (("a", "first", first_s), ("b", second, second_s))
    }
    told: str = _status(_view(stage("a"), stage("b"), jobs=jobs, status={"policy": before}))["policy"]
    return told


def test_the_policy_that_a_workflow_names_is_the_one_that_started_something_last() -> None:
    assert [_policy_of(1.0, 2.0), _policy_of(2.0, 1.0)] == ["second", "first"]
    assert _policy_of(1.0, 2.0, before="third") == "second"


@pytest.mark.parametrize(
    ("fields", "asked", "before", "told"),
    [
        ({}, "sjf", "former", "sjf"),
        ({}, "", "former", "former"),  # nobody was asked: the pool is gone
        ({}, "", "", ""),
        ({"suspend": True}, "sjf", "former", "first"),
    ],
)
def test_a_workflow_that_may_start_something_names_the_policy_that_is_asked(
    fields: Any, asked: str, before: str, told: str
) -> None:
    annotations = {names.ANNOTATION_POLICY: "first"}
    seen = _view(stage("a"), stage("b"), jobs={"a": {"annotations": annotations}}, status={"policy": before}, **fields)
    assert status.workflow_status(seen, Account(), {}, {}, asked, T0 + 30)["policy"] == told


def test_a_job_without_the_name_of_a_policy_hides_none() -> None:
    assert _policy_of(1.0, 2.0, second="") == "first"
    assert _status(_view(stage("a"), suspend=True))["policy"] == "sjf", "there is no other"


def test_a_workflow_whose_jobs_are_gone_goes_on_naming_its_policy() -> None:
    done = {"name": "a", "state": "Succeeded", "startTime": render(T0), "completionTime": render(T0 + 1), "tasks": 1}
    gone = _view(stage("a"), status={"policy": "former", "stages": [done]})
    assert (_status(gone)["policy"], _status(_view(stage("a")))["policy"]) == ("former", "sjf")


def test_a_stage_whose_job_is_gone_goes_on_telling_how_many_tasks_failed() -> None:
    row = {"name": "a", "state": "Failed", "startTime": render(T0), "completionTime": render(T0 + 9)}
    written = _status(_view(stage("a", tasks=5), status={"stages": [row | {"tasks": 5, "succeeded": 2, "failed": 3}]}))
    assert (written["stages"][0]["failed"], written["tasks"]["failed"]) == (3, 3)
    assert (written["stages"][0]["succeeded"], written["progress"]) == (2, "2/5")


def test_why_a_stage_waits_is_cut_before_the_whole_status_is_refused() -> None:
    long = Why(reasons.START_RETRYING, "x" * 40_000)
    written = status.workflow_status(_view(stage("a")), Account(), {}, {"a": long}, "sjf", T0)
    (workflows, _) = manifests()
    structure = workflows["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]
    assert list(validate(status.merge_patch(written)["stages"], structure["properties"]["stages"])) == []
    assert written["stages"][0]["message"].startswith("xxx")


@pytest.mark.parametrize(("saved", "told"), [(0.12349, 12.3), (-0.0449, -4.5), (0.0, 0.0), (None, None)])
def test_a_pool_tells_what_holding_saves_in_tenths_of_a_percent(saved: float | None, told: float | None) -> None:
    fact = pool_fact({"metadata": {"name": "p", "uid": "p"}, "spec": {"executors": 2}})
    ready, paused = Verdict(True, reasons.POLICY_LOADED, "passed"), Pause(False, reasons.HOLDING_ALLOWED, "")
    body = status.pool_status(fact, ready, "sjf", {"busy": 1}, None, paused, saved, T0)
    assert body["holdSavingsPercent"] == told
    assert (body["executors"], body["mode"], body["busy"]) == (2, "Enforce", 1)
