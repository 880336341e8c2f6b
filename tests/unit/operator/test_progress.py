"""Where a workflow is, read off its objects."""

from __future__ import annotations

import math
from typing import Any

import pytest
from tests.unit.operator.objects import T0, job_fact_of, stage, workflow, workflow_fact_of

from fermata.operator import names, reasons
from fermata.operator.estimates import Estimates
from fermata.operator.facts import JobFact, workflow_fact
from fermata.operator.progress import Refusal, WorkflowView
from fermata.operator.resources import MAX_EXECUTORS
from fermata.operator.times import render
from fermata.operator.view import view

DIAMOND = (stage("a"), stage("b", "a", tasks=4), stage("c", "a"), stage("d", "b", "c"))


def _view(
    *stages: dict[str, Any], jobs: dict[str, Any] | None = None, now_s: float = T0 + 100,
    started: dict[str, JobFact] | None = None, refused: dict[str, Refusal] | None = None, **fields: Any,
) -> WorkflowView:  # fmt: skip
    fact = workflow_fact_of("w", *stages, **fields)
    assert fact.spec is not None
    facts = {name: job_fact_of("w", name, now_s, **values) for name, values in (jobs or {}).items()}
    return view(fact, fact.spec, facts, refused or {}, started or {}, Estimates(), now_s)


def _phases(seen: WorkflowView) -> dict[str, str]:
    return {stage.spec.name: stage.phase for stage in seen.stages}


def test_a_new_workflow_has_its_sources_ready_since_its_arrival() -> None:
    seen = _view(*DIAMOND)
    assert _phases(seen) == {"a": "Ready", "b": "Pending", "c": "Pending", "d": "Pending"}
    assert seen.stages[0].ready_s == seen.arrival_s
    assert seen.stages[1].ready_s == math.inf
    assert [stage.path_s for stage in seen.stages] == [30.0, 20.0, 20.0, 10.0]
    assert (seen.work_s, seen.critical_path_s) == (70.0, 30.0)
    assert seen.width == pytest.approx(7 / 3)


def test_a_stage_is_ready_when_its_last_parent_has_succeeded() -> None:
    jobs = {
        "a": {"start_s": T0, "outcome": "Complete", "end_s": T0 + 5.25, "succeeded": 1},
        "b": {"start_s": T0 + 6, "tasks": 4, "parallelism": 2, "succeeded": 1},
        "c": {"start_s": T0 + 6, "outcome": "Complete", "end_s": T0 + 9.25, "succeeded": 1},
    }
    seen = _view(*DIAMOND, jobs=jobs)
    assert _phases(seen) == {"a": "Succeeded", "b": "Running", "c": "Succeeded", "d": "Pending"}
    b = seen.stages[1]
    assert (b.occupied, b.pending, b.succeeded) == (2, 1, 1)
    jobs["b"] |= {"outcome": "Complete", "end_s": T0 + 12.25, "succeeded": 4}
    d = _view(*DIAMOND, jobs=jobs).stages[3]
    assert (d.phase, d.ready_s) == ("Ready", T0 + 12.25)


def test_a_workflow_has_succeeded_with_its_last_stage() -> None:
    jobs = {
        name: {"start_s": T0 + i, "outcome": "Complete", "end_s": T0 + i + 3.25, "succeeded": 1}
        for i, name in enumerate("abcd")
    }
    seen = _view(*DIAMOND, jobs=jobs)
    assert seen.outcome is not None
    assert seen.outcome.succeeded
    assert seen.outcome.end_s == T0 + 6.25
    assert seen.run_s == pytest.approx(6.25)  # overlapping stages count once


def test_a_failed_stage_ends_the_workflow_when_the_rest_has_ended() -> None:
    jobs: dict[str, Any] = {
        "a": {"outcome": "Failed", "end_s": T0 + 5.25},
        "b": {"start_s": T0, "tasks": 4},
    }
    stages = (stage("a"), stage("b", tasks=4), stage("c", "a"), stage("d"))
    running = _view(*stages, jobs=jobs)
    assert (running.outcome, running.blocked) == (None, reasons.STAGE_FAILED)
    jobs["b"] |= {"outcome": "Complete", "end_s": T0 + 8.25, "succeeded": 4}
    done = _view(*stages, jobs=jobs)
    assert done.outcome is not None
    assert not done.outcome.succeeded
    assert done.outcome.reason == reasons.STAGE_FAILED
    assert done.outcome.end_s == T0 + 8.25


STOPPED = {"suspended": True, "annotations": {names.ANNOTATION_STOPPED: reasons.STOPPED}}


def test_a_stage_that_was_stopped_for_another_is_not_the_reason_of_the_failure() -> None:
    jobs: dict[str, Any] = {"a": {"end_s": T0 + 9, **STOPPED}, "b": {"outcome": "Failed", "end_s": T0 + 5.25}}
    seen = _view(stage("a"), stage("b"), stage("c", "a"), jobs=jobs)
    assert _phases(seen) == {"a": "Failed", "b": "Failed", "c": "Pending"}
    assert seen.stages[0].reason == reasons.STOPPED
    assert seen.outcome is not None
    assert seen.outcome.message.startswith("stage 'b': JobFailed")
    assert "more" not in seen.outcome.message


def test_with_finish_a_failure_ends_the_workflow_after_what_does_not_depend_on_it() -> None:
    stages = (stage("a"), stage("b", "a"), stage("c"), stage("d", "c"))
    jobs: dict[str, Any] = {"a": {"outcome": "Failed", "end_s": T0 + 5.25}, "c": {"start_s": T0}}
    seen = _view(*stages, jobs=jobs, onFailure="Finish")
    assert (seen.blocked, seen.outcome) == ("", None)
    assert [found.pending for found in seen.stages] == [0, 0, 0, 1], "b will never start"
    jobs["c"] = {"outcome": "Complete", "end_s": T0 + 7.25, "succeeded": 1}
    seen = _view(*stages, jobs=jobs, onFailure="Finish")
    assert _phases(seen)["d"] == "Ready"
    assert (seen.blocked, seen.outcome) == ("", None)
    jobs["d"] = {"start_s": T0 + 8, "outcome": "Failed", "end_s": T0 + 9.25}
    seen = _view(*stages, jobs=jobs, onFailure="Finish")
    assert seen.outcome is not None
    assert (seen.outcome.succeeded, seen.outcome.end_s) == (False, T0 + 9.25)
    assert seen.outcome.message.startswith("stage 'a'")
    assert seen.outcome.message.endswith("(and 1 more failed)")


def test_a_job_that_somebody_else_suspended_goes_on_later() -> None:
    seen = _view(stage("a"), jobs={"a": {"suspended": True}})
    assert (seen.stages[0].phase, seen.stages[0].reason) == ("Running", reasons.JOB_SUSPENDED)
    assert (seen.stages[0].occupied, seen.outcome) == (0, None)


DELETED = {"a": Refusal(reasons.JOB_DELETED, "it was deleted")}


def test_a_started_stage_whose_job_is_gone_has_failed_and_never_starts_again() -> None:
    seen_before = {"a": job_fact_of("w", "a")}
    for known in ({"started": seen_before}, {"status": {"stages": [{"name": "a", "state": "Running"}]}}):
        seen = _view(stage("a"), **known)  # type: ignore[arg-type]
        assert (seen.stages[0].phase, seen.missing, seen.outcome) == ("Running", {"a": (1, 1)}, None), "it may be there"
        seen = _view(stage("a"), **known, refused=DELETED)  # type: ignore[arg-type]
        assert (seen.stages[0].phase, seen.stages[0].reason) == ("Failed", reasons.JOB_DELETED)
        assert seen.missing == {}
        assert seen.outcome is not None


def test_jobs_that_go_with_their_workflow_are_no_failure() -> None:
    raw = workflow("w", stage("a"), stage("b"), status={"stages": [{"name": "a", "state": "Running"}]})
    raw["metadata"] |= {"deletionTimestamp": render(T0), "finalizers": ["foregroundDeletion"]}
    fact = workflow_fact(raw, T0)
    assert fact.spec is not None
    seen = view(fact, fact.spec, {}, {}, {"b": job_fact_of("w", "b")}, Estimates(), T0 + 5)
    assert _phases(seen) == {"a": "Running", "b": "Running"}
    assert (seen.outcome, seen.blocked, seen.missing) == (None, reasons.SUSPENDED, {})


def test_a_job_that_was_found_deleted_when_its_workflow_went_is_no_failure_either() -> None:
    raw = workflow("w", stage("a"), status={"stages": [{"name": "a", "state": "Running"}]})
    raw["metadata"] |= {"deletionTimestamp": render(T0), "finalizers": ["foregroundDeletion"]}
    fact = workflow_fact(raw, T0)
    assert fact.spec is not None
    seen = view(fact, fact.spec, {}, DELETED, {}, Estimates(), T0 + 5)
    assert (_phases(seen), seen.outcome) == ({"a": "Running"}, None)


def test_what_ran_of_a_stage_whose_job_was_deleted_counts_as_run() -> None:
    row = {"readyTime": render(T0), "startTime": render(T0 + 10), "heldSeconds": 4.0}
    seen = _view(stage("a"), status={"stages": [{"name": "a", "state": "Running", **row}]}, refused=DELETED)
    (gone,) = seen.stages
    assert (gone.reason, gone.start_s, gone.held_s) == (reasons.JOB_DELETED, T0 + 10, 4.0)
    assert seen.run_s == 90.0


def test_a_finished_stage_whose_job_is_gone_is_still_finished() -> None:
    status = {
        "stages": [{"name": "a", "state": "Succeeded", "startTime": render(T0 + 1), "completionTime": render(T0 + 4)}]
    }
    seen = _view(stage("a"), stage("b", "a"), status=status)
    assert _phases(seen) == {"a": "Succeeded", "b": "Ready"}
    assert seen.stages[1].ready_s == T0 + 4


def test_an_end_that_was_written_stays_and_none_is_before_its_start() -> None:
    jobs = {"a": {"start_s": T0 + 1, "outcome": "Complete", "end_s": T0 + 5.25, "succeeded": 1}}
    row = {"name": "a", "state": "Succeeded", "completionTime": render(T0 + 5.125)}
    assert _view(stage("a"), jobs=jobs).stages[0].end_s == T0 + 5.25
    assert _view(stage("a"), jobs=jobs, status={"stages": [row]}).stages[0].end_s == T0 + 5.125
    for outcome in ("Complete", "Failed"):
        jobs["a"] |= {"outcome": outcome, "end_s": T0 + 0.25}
        assert _view(stage("a"), jobs=jobs).stages[0].end_s == T0 + 1


def test_a_stage_whose_end_an_earlier_operator_saw_has_not_ended_after_its_child_was_ready() -> None:
    jobs = {
        "a": {"start_s": T0, "outcome": "Complete", "end_s": T0 + 30, "succeeded": 1},  # stamped in whole seconds
        "b": {"start_s": T0 + 30.25, "held_s": 0.125},
        "c": {"start_s": T0 + 30.75},
    }
    a, b, *_ = _view(*DIAMOND, jobs=jobs).stages
    assert (a.end_s, b.ready_s, b.start_s) == (T0 + 30.125, T0 + 30.125, T0 + 30.25)
    soon = _view(*DIAMOND, jobs={**jobs, "b": {"start_s": T0 + 30.0625}}, now_s=T0 + 31.125)  # within that second
    assert soon.stages[0].end_s == T0 + 30.0625
    jobs["b"] |= {"start_s": T0 + 29}  # it was ready without its parent, which an edit gave it
    assert _view(*DIAMOND, jobs=jobs).stages[0].end_s == T0 + 30.5


def test_a_stage_of_which_only_the_status_is_left_has_as_many_tasks_as_it_ran() -> None:
    row = {"name": "a", "state": "Succeeded", "startTime": render(T0 + 1), "completionTime": render(T0 + 4), "tasks": 3}
    assert _view(stage("a", tasks=9), stage("b", "a"), status={"stages": [row]}).tasks == 3 + 1


def test_a_stage_that_failed_has_no_tasks_left_to_run() -> None:
    seen = _view(stage("a", tasks=4), jobs={"a": {"tasks": 4, "succeeded": 1, "outcome": "Failed", "end_s": T0 + 5.25}})
    assert (seen.stages[0].succeeded, seen.stages[0].pending) == (1, 0)


@pytest.mark.parametrize(
    ("job", "slots", "occupied", "succeeded", "pending"),
    [
        (None, 2, 0, 0, 4),
        ({"parallelism": 2, "succeeded": 1}, 2, 2, 1, 1),
        ({"annotations": {names.ANNOTATION_SLOTS: "3"}}, 3, 1, 0, 3),  # as it was when it began
        ({"parallelism": 4, "succeeded": 3, "active": 3}, 2, 3, 3, 0),  # those that are being ended hold theirs, too
        ({"parallelism": 2**31 - 1, "tasks": 2**31 - 1}, 2, MAX_EXECUTORS // 2, 0, MAX_EXECUTORS // 2),
        ({"active": 2, "suspended": True}, 2, 2, 0, 2),
        ({"active": 2, "suspended": True, "annotations": {names.ANNOTATION_STOPPED: "Stopped"}}, 2, 0, 0, 0),
        ({"outcome": "Complete", "succeeded": 1}, 2, 0, 4, 0),  # which counts how many there were
    ],
)
def test_the_tasks_of_a_stage_are_done_or_hold_executors_or_may_still_be_started(
    job: dict[str, Any] | None, slots: int, occupied: int, succeeded: int, pending: int
) -> None:
    (found,) = _view(stage("a", tasks=4, slots=2), jobs={"a": {"tasks": 4, **job}} if job else {}).stages
    assert (found.slots, found.occupied, found.succeeded, found.pending) == (slots, occupied, succeeded, pending)


@pytest.mark.parametrize(("parallelism", "room"), [(None, 6), (5, 3), (2, 0), (1, 0)])
def test_more_of_a_workflow_may_run_as_far_as_its_parallelism_goes(parallelism: int | None, room: int) -> None:
    jobs = {"a": {"tasks": 4, "parallelism": 1}, "gone": {}}  # an edit took the other one out
    assert _view(stage("a", tasks=4), stage("b", tasks=2), jobs=jobs, parallelism=parallelism).room == room


def test_run_time_is_when_anything_ran_however_it_overlapped() -> None:
    spans = {"a": (0, 10), "b": (2, 5), "c": (6, 8), "d": (12, 15), "gone": (14, 16), "e": (15, None)}
    jobs = {
        name: {"start_s": T0 + start} | ({"outcome": "Complete", "end_s": T0 + end + 0.25} if end else {})
        for name, (start, end) in spans.items()
    }
    seen = _view(*(stage(name) for name in "abcde"), jobs=jobs)
    assert (seen.start_s, seen.run_s) == (T0, 10.25 + 4.25), "of what goes on nothing is known yet"


def test_a_stage_that_does_not_get_on_for_a_reason_of_its_own_says_that_one() -> None:
    seen = _view(stage("a"), stage("b"), stage("c"), jobs={"a": {"suspended": True}, "b": {}, "c": {}})
    told = {stage.spec.name: (stage.reason, stage.message) for stage in seen.unchanged({"a": "x", "b": "y"}).stages}
    assert told == {"a": (reasons.JOB_SUSPENDED, ""), "b": (reasons.CHANGE_RETRYING, "y"), "c": ("", "")}


def test_the_first_failure_is_the_one_that_is_told_and_the_others_are_counted() -> None:
    jobs = {name: {"outcome": "Failed", "end_s": T0 + end_s} for name, end_s in (("a", 9.25), ("b", 5.25), ("c", 7.25))}
    seen = _view(stage("a"), stage("b"), stage("c"), jobs=jobs)
    assert seen.outcome is not None
    assert seen.outcome.message == "stage 'b': JobFailed: Test (and 2 more failed)"


def test_a_stage_that_an_edit_took_out_and_whose_job_is_gone_keeps_no_workflow_from_its_end() -> None:
    jobs = {"a": {"outcome": "Complete", "end_s": T0 + 5.25, "succeeded": 1}}
    started = {"gone": job_fact_of("w", "gone")}
    seen = _view(stage("a"), jobs=jobs, started=started)
    assert (seen.outcome, list(seen.missing)) == (None, ["gone"]), "it may be there"
    seen = _view(stage("a"), jobs=jobs, started=started, refused={"gone": DELETED["a"]})
    assert seen.missing == {}
    assert seen.outcome is not None
    assert seen.outcome.succeeded


def test_a_workflow_that_is_being_deleted_has_succeeded_all_the_same_if_it_has() -> None:
    raw = workflow("w", stage("a"))
    raw["metadata"] |= {"deletionTimestamp": render(T0), "finalizers": ["foregroundDeletion"]}
    fact = workflow_fact(raw, T0)
    assert fact.spec is not None
    for outcome, told in (("Complete", True), ("Failed", False)):
        jobs = {"a": job_fact_of("w", "a", T0 + 5, outcome=outcome, end_s=T0 + 4.25)}
        assert (view(fact, fact.spec, jobs, {}, {}, Estimates(), T0 + 5).outcome is not None) is told


def test_a_refused_stage_fails_its_workflow() -> None:
    seen = _view(stage("a"), refused={"a": Refusal(reasons.JOB_REJECTED, "bad image")})
    assert seen.outcome is not None
    assert "bad image" in seen.outcome.message


def test_nothing_starts_of_a_suspended_or_expired_workflow() -> None:
    assert _view(stage("a"), suspend=True).blocked == reasons.SUSPENDED
    assert _view(stage("a"), activeDeadlineSeconds=200).blocked == ""
    late = _view(stage("a"), activeDeadlineSeconds=100)
    assert late.blocked == reasons.DEADLINE_EXCEEDED
    assert late.outcome is not None
    assert late.outcome.reason == reasons.DEADLINE_EXCEEDED


def test_what_had_failed_by_its_deadline_did_not_end_by_it_however_late_that_is_seen() -> None:
    failed = {"a": {"outcome": "Failed", "end_s": T0 + 50.25}}
    seen = _view(stage("a"), jobs=failed, now_s=T0 + 200, activeDeadlineSeconds=100)
    assert seen.outcome is not None
    assert (seen.outcome.reason, seen.outcome.end_s) == (reasons.STAGE_FAILED, T0 + 50.25)
    with_more = _view(
        stage("a"), stage("b"), jobs=failed, now_s=T0 + 200, activeDeadlineSeconds=100, onFailure="Finish"
    )
    assert with_more.outcome is not None
    assert (with_more.outcome.reason, with_more.outcome.end_s) == (reasons.DEADLINE_EXCEEDED, T0 + 200)
    # What is stopped for it ends at a time that the API cuts to the second: half a second too early, perhaps.
    row = {"name": "a", "state": "Failed", "reason": reasons.DEADLINE_EXCEEDED, "completionTime": render(T0 + 99.5)}
    stopped = _view(stage("a"), status={"stages": [row]}, now_s=T0 + 200, activeDeadlineSeconds=100)
    assert stopped.outcome is not None
    assert stopped.outcome.reason == reasons.DEADLINE_EXCEEDED


def test_what_fails_by_itself_after_its_deadline_or_beside_what_was_stopped_for_it_ended_by_it() -> None:
    late = {"a": {"outcome": "Failed", "end_s": T0 + 150.25}}
    seen = _view(stage("a"), jobs=late, now_s=T0 + 200, activeDeadlineSeconds=100)
    assert seen.outcome is not None
    assert seen.outcome.reason == reasons.DEADLINE_EXCEEDED
    row = {"name": "b", "state": "Failed", "reason": reasons.DEADLINE_EXCEEDED, "completionTime": render(T0 + 99.5)}
    early = {"a": {"outcome": "Failed", "end_s": T0 + 50.25}}
    beside = _view(
        stage("a"), stage("b"), jobs=early, status={"stages": [row]}, now_s=T0 + 200, activeDeadlineSeconds=100
    )
    assert beside.outcome is not None
    assert beside.outcome.reason == reasons.DEADLINE_EXCEEDED


def test_a_workflow_goes_on_until_the_last_of_what_was_started_has_ended() -> None:
    assert _view(stage("a")).goes_on_until_s == math.inf
    ended = {
        name: {"start_s": T0, "outcome": "Complete", "end_s": T0 + s + 0.25, "succeeded": 1}
        for name, s in (("a", 9), ("b", 5))
    }
    assert _view(stage("a"), stage("b"), stage("c"), jobs=ended).goes_on_until_s == T0 + 9.25
    assert _view(stage("a"), stage("b"), stage("c"), jobs=ended | {"c": {"start_s": T0}}).goes_on_until_s == math.inf


def test_an_arrival_is_known_better_than_to_the_second() -> None:
    assert workflow_fact_of("w", stage("a"), arrival_s=T0, now_s=T0 + 0.4).arrival_s == T0 + 0.4
    assert workflow_fact_of("w", stage("a"), arrival_s=T0, now_s=T0 + 90).arrival_s == T0 + 0.5
    written = {"arrivalTime": render(T0 + 0.4)}
    assert workflow_fact_of("w", stage("a"), now_s=T0 + 90, status=written).arrival_s == T0 + 0.4


@pytest.mark.parametrize(
    ("ready_s", "arrival_s"), [(0.125, 0.125), (0.75, 0.5), (-0.25, 0.5), (-3600.0, 0.5), (3600.0, 0.5)]
)
def test_an_arrival_that_an_earlier_operator_saw_is_not_after_a_stage_was_ready(
    ready_s: float, arrival_s: float
) -> None:
    fact = workflow_fact_of("w", stage("a"), stage("b"), arrival_s=T0, now_s=T0 + 90)
    assert fact.spec is not None
    begun = job_fact_of("w", "a", T0 + 90, start_s=T0 + ready_s + 0.25, held_s=0.25)
    seen = view(fact, fact.spec, {"a": begun}, {}, {}, Estimates(), T0 + 90)
    assert seen.arrival_s == T0 + arrival_s
    assert seen.stages[1].ready_s == T0 + arrival_s
