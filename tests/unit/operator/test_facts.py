"""What is kept of an object, worked by hand: when things began and ended, and what still runs."""

from __future__ import annotations

import math
from typing import Any

import pytest
from tests.unit.operator.objects import DONE, T0, job, job_fact_of, stage, workflow_fact_of

from fermata.operator import names
from fermata.operator.facts import JobFact, job_fact
from fermata.operator.pods import pod_fact
from fermata.operator.resources import StageStatus, WorkflowStatus
from fermata.operator.times import render


def _second(at_s: float) -> str:
    """Return a time as Kubernetes stamps it."""
    return f"{render(at_s)[:19]}Z"


def _ended(now_s: float, *conditions: dict[str, Any], before: JobFact | None = None, **spec: Any) -> JobFact:
    raw = job("w", "a", annotations={names.ANNOTATION_STOPPED: "Stopped"} if spec else None)
    return job_fact({**raw, "spec": raw["spec"] | spec, "status": {"conditions": list(conditions)}}, now_s, before)


def test_when_a_job_ended_is_known_best_when_that_is_first_seen() -> None:
    done = {"type": "Complete", "status": "True", "lastTransitionTime": _second(T0 + 5)}
    seen = _ended(T0 + 5.25, done)
    assert seen.end_s == T0 + 5.25
    assert _ended(T0 + 90.0, done, before=seen).end_s == T0 + 5.25
    assert _ended(T0 + 90.0, done).end_s == T0 + 5.5, "by another operator, from the stamp alone"


def test_a_job_ended_when_it_was_done_and_not_when_its_condition_says_so() -> None:
    raw = job("w", "a", outcome="Complete", end_s=T0 + 7.25)
    assert job_fact(raw, T0 + 90).end_s == T0 + 7.25
    raw["status"]["completionTime"] = _second(T0 + 5)
    assert job_fact(raw, T0 + 90).end_s == T0 + 5.5


def test_a_job_that_was_stopped_ended_when_it_was_suspended_and_goes_on_if_somebody_resumes_it() -> None:
    told = {"type": "Suspended", "status": "True", "lastTransitionTime": _second(T0 + 5)}
    stopped = _ended(T0 + 90, told, suspend=True)
    assert (stopped.stopped, stopped.end_s, stopped.goes_on) == ("Stopped", T0 + 5.5, False)
    resumed = _ended(T0 + 90, {**told, "status": "False"}, suspend=False)
    assert (resumed.stopped, resumed.end_s, resumed.goes_on, resumed.occupied) == ("", None, True, 1)


def test_a_condition_that_is_not_true_says_nothing() -> None:
    fact = _ended(T0 + 90, {"type": "Failed", "status": "False", "lastTransitionTime": _second(T0 + 5)})
    assert (fact.outcome, fact.ended, fact.end_s) == ("", False, None)


def test_short_tasks_that_succeed_one_after_another_are_not_amiss_though_none_is_ever_counted_as_ready() -> None:
    raw, fact = job("w", "a", tasks=9), None
    for succeeded in range(4):
        now_s = T0 + 40.0 * succeeded
        fact = job_fact({**raw, "status": {"active": 1, "ready": 0, "succeeded": succeeded}}, now_s, fact)
        assert not fact.amiss(now_s)
    assert fact is not None
    assert [fact.amiss(now_s + wait_s) for wait_s in (59.0, 60.0)] == ["", "NoPodReady"]
    again = job_fact({**raw, "status": {"active": 1, "ready": 0, "succeeded": 3}}, now_s + 300.0)
    assert not again.amiss(now_s + 300.0), "by another operator, which knows that some have succeeded, and not when"


def test_a_job_that_lacks_some_of_its_pods_for_a_minute_is_amiss_until_it_gets_on() -> None:
    raw, fact, reasons = job("w", "a", tasks=9, parallelism=4), None, []
    # A pod is refused; the others are ready, and all the same when they end; then none is; then all.
    seen = [(0, 3, 0), (59, 3, 0), (60, 3, 0), (70, 3, 1), (129, 3, 1), (130, 3, 1)]
    for after_s, ready, succeeded in [*seen, (140, 0, 1), (200, 0, 1), (210, 4, 1)]:
        status = {"active": 3, "ready": ready, "succeeded": succeeded}
        fact = job_fact({**raw, "status": status}, T0 + after_s, fact)
        reasons.append(fact.amiss(T0 + after_s))
    some, none = "PodsNotReady", "NoPodReady"
    assert reasons == ["", "", some, "", "", some, "", none, ""]
    last = {"active": 2, "ready": 2, "succeeded": 7}
    assert not job_fact({**raw, "status": last}, T0 + 400.0).amiss(T0 + 999.0), "two tasks are left"


def test_a_job_that_fails_keeps_the_executors_of_pods_that_have_not_ended_and_no_others() -> None:
    # Its pods may take their grace period, of minutes perhaps; until then it has not failed, and nothing follows them.
    raw = job("w", "a", tasks=9, parallelism=4)
    target = {"type": "FailureTarget", "status": "True", "reason": "BackoffLimitExceeded"}
    status = {"active": 0, "terminating": 3, "ready": 0, "failed": 1, "conditions": [target]}
    fact = job_fact({**raw, "status": status}, T0 + 5)
    assert (fact.occupied, fact.begins_more, fact.ended) == (3, False, False)
    assert not fact.amiss(T0 + 300), "that none is ready is as it should be"
    assert job_fact({**raw, "status": {**status, "terminating": 1}}, T0 + 9, fact).occupied == 1


def test_what_others_wrote_into_a_job_fits_into_the_status_of_its_workflow() -> None:
    # An API server refuses a status with longer texts, and the workflow would never be told to have ended.
    annotations = {names.ANNOTATION_POLICY: "p" * 5000, names.ANNOTATION_STOPPED: "s" * 5000}
    fact = job_fact(job("w", "a", suspended=True, annotations=annotations), T0)
    WorkflowStatus(policy=fact.policy)
    assert StageStatus(name="a", state="Failed", reason=fact.stopped).reason.startswith("sss")


@pytest.mark.parametrize(("said", "slots"), [("100000", 100_000), ("100001", None), ("999999", None), ("0", None)])
def test_slots_of_a_job_that_no_pool_has_are_nonsense(said: str, slots: int | None) -> None:
    # A task that fits into no pool would else be rounded down to none that holds executors.
    assert job_fact_of("w", "a", annotations={names.ANNOTATION_SLOTS: said}).slots == slots


def test_a_job_that_is_being_deleted_does_not_go_on() -> None:
    raw = job("w", "a")
    assert job_fact(raw, T0).goes_on
    raw["metadata"]["deletionTimestamp"] = _second(T0)
    assert not job_fact(raw, T0).goes_on


@pytest.mark.parametrize(("parallelism", "succeeded", "occupied"), [(0, 0, 0), (None, 0, 1), (4, 1, 2), (2, 9, 0)])
def test_a_job_holds_as_many_executors_as_it_may_have_and_has_tasks_left_for(
    parallelism: int | None, succeeded: int, occupied: int
) -> None:
    raw = job("w", "a", tasks=3, succeeded=succeeded)
    raw["spec"]["parallelism"] = parallelism
    assert job_fact(raw, T0).occupied == occupied


def test_a_job_that_is_stopped_deleted_or_narrowed_holds_executors_until_its_pods_have_ended() -> None:
    raw = job("w", "a", tasks=3)
    raw["status"] |= {"active": 1, "terminating": 2}
    for change in ({"suspend": True}, {"parallelism": 0}, {"parallelism": 3}):
        assert job_fact({**raw, "spec": {**raw["spec"], **change}}, T0).occupied == 3
    raw["metadata"]["deletionTimestamp"] = _second(T0)
    assert job_fact(raw, T0).occupied == 3
    raw["status"] |= {"active": 0, "terminating": 0}
    assert job_fact(raw, T0).occupied == 0


def test_when_a_pod_began_is_known_best_when_that_is_first_seen_and_one_that_is_pending_has_its_executor() -> None:
    raw = {"metadata": {"uid": "p"}, "status": {"phase": "Pending", "startTime": _second(T0 + 5)}}
    seen = pod_fact(raw, T0 + 5.25)
    assert (seen.start_s, seen.running) == (T0 + 5.25, True)
    assert pod_fact(raw, T0 + 90.0, seen).start_s == T0 + 5.25
    assert pod_fact(raw, T0 + 90.0).start_s == T0 + 5.5
    assert not pod_fact({**raw, "status": {"phase": "Succeeded"}}, T0 + 90.0, seen).running


def test_a_finished_workflow_that_does_not_say_when_it_ended_is_not_deleted_by_its_time_to_live() -> None:
    assert workflow_fact_of("w", stage("a"), status=DONE, ttlSecondsAfterFinished=0).expiry_s == math.inf
    ended = DONE | {"completionTime": render(T0 + 5)}
    assert workflow_fact_of("w", stage("a"), status=ended, ttlSecondsAfterFinished=60).expiry_s == T0 + 65
    assert workflow_fact_of("w", stage("a"), status=ended).expiry_s == math.inf


def test_stages_are_released_by_name_whatever_stands_between_them() -> None:
    released = workflow_fact_of(
        "w", stage("a"), stage("b"), stage("c"), annotations={names.ANNOTATION_RELEASE: "a , c,other"}
    ).released
    assert released == {"a", "c"}
