"""What `fermata explain` says of a workflow, by the objects that the API holds."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.operator.objects import T0, Raw, stage, workflow, workflow_fact_of

from fermata.cli.clusters import expect_stage
from fermata.operator import reasons
from fermata.operator.explain import explain
from fermata.operator.facts import pool_fact
from fermata.operator.times import render
from fermata.policy.errors import InputError


def _condition(kind: str, status: str, reason: str, message: str = "") -> Raw:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": render(T0),
    }


def _explained(status: Raw, now_s: float = T0 + 100.0, pool_status: Raw | None = None, **pool: Any) -> list[str]:
    fact = workflow_fact_of("w", stage("a", estimateSeconds=900), status={"arrivalTime": render(T0), **status})
    raw = {"metadata": {"name": "pool", "uid": "p"}, "spec": {"executors": 2, **pool}, "status": pool_status or {}}
    return explain(fact, pool_fact(raw), None, now_s)


@pytest.mark.parametrize(
    ("status", "reason", "verb"), [("True", "x", "succeeded"), ("False", "StageFailed", "failed (StageFailed: why)")]
)
def test_how_a_workflow_ended_comes_before_that_it_was_not_accepted_any_more(
    status: str, reason: str, verb: str
) -> None:
    conditions = [
        _condition("Accepted", "False", "PoolNotFound", "no ExecutorPool is named 'pool'"),
        _condition("Succeeded", status, reason, "why"),
    ]
    split = {"jctSeconds": 3.0, "waitSeconds": 1.0, "heldSeconds": 0.0, "runSeconds": 2.0, "slowdown": 1.0}
    told = f"Workflow default/w: {verb}. JCT 3.0 s = wait 1.0 + held 0.0 + run 2.0; slowdown 1.00."
    assert _explained({"conditions": conditions, **split})[0] == told


def test_of_a_workflow_that_somebody_else_ended_no_times_are_made_up() -> None:
    (told, *_) = _explained({"conditions": [_condition("Succeeded", "True", "ByHand")]})
    assert told == "Workflow default/w: succeeded; its status does not say how long it took."


def test_a_suspended_stage_that_is_released_is_not_said_to_start() -> None:
    fact = workflow_fact_of("w", stage("a"), status={
        "conditions": [_condition("Accepted", "True", "Valid"), _condition("Succeeded", "Unknown", "Suspended")],
        "stages": [{"name": "a", "state": "Waiting", "reason": "Suspended"}],
    }, annotations={"fermata.dev/release": "*"}, suspend=True)  # fmt: skip
    told = explain(fact, "", None, T0)
    assert told[-1] == "  released: it is not held any more"


def test_why_the_stages_of_a_workflow_are_not_told_is_told() -> None:
    told = _explained({"conditions": [_condition("Accepted", "True", "Valid", "etcd has no room for them.")]})
    assert told[-1] == "  etcd has no room for them."


@pytest.mark.parametrize(
    ("reason", "message", "told"),
    [
        ("JobSuspended", "", "Somebody suspended the stage's Job; it goes on when it is resumed."),
        ("JobUnseen", "its Job is not seen: Forbidden: no", "its Job is not seen: Forbidden: no"),
    ],
)
def test_what_is_amiss_with_a_running_stage_is_told(reason: str, message: str, told: str) -> None:
    row = {"name": "a", "state": "Running", "reason": reason, "message": message, "startTime": render(T0)}
    lines = _explained({"conditions": [_condition("Accepted", "True", "Valid")], "stages": [row]})
    assert lines[-1] == f"  {reason}: {told}"


@pytest.mark.parametrize(
    ("limits", "told"),
    [
        ({"maxHoldSeconds": 600}, "starts in 9 min at the latest (maxHoldSeconds 600)"),
        ({"maxWaitSeconds": 130}, "starts in 40 s at the latest (maxWaitSeconds 130)"),
        ({"maxHoldSeconds": 600, "maxWaitSeconds": 130}, "starts in 40 s at the latest (maxWaitSeconds 130)"),
        ({"maxHoldSeconds": 60, "maxWaitSeconds": 3600}, "starts in 10 s at the latest (maxHoldSeconds 60)"),
        ({}, None),
    ],
)
def test_a_held_stage_starts_when_the_first_limit_is_reached(limits: dict[str, int], told: str | None) -> None:
    row = {
        "name": "a",
        "state": "Held",
        "reason": "HeldByPolicy",
        "readyTime": render(T0 + 10.0),
        "heldSeconds": 20.0,
        "heldSince": render(T0 + 70.0),
    }
    conditions = [_condition("Accepted", "True", "Valid"), _condition("Succeeded", "Unknown", "Held")]
    lines = _explained({"conditions": conditions, "stages": [row]}, **limits)
    assert [line.strip() for line in lines if "at the latest" in line] == ([told] if told else [])


def test_a_stage_that_is_held_between_its_tasks_is_told_of_as_one_before_them() -> None:
    row = {
        "name": "a", "state": "Running", "reason": "HeldByPolicy", "tasks": 5, "succeeded": 2, "estimateSeconds": 60,
        "startTime": render(T0 + 1.0), "readyTime": render(T0), "heldSince": render(T0 + 70.0), "heldSeconds": 20.0,
    }  # fmt: skip
    accepted = [_condition("Accepted", "True", "Valid")]
    fact = workflow_fact_of("w", stage("a", tasks=5), status={"conditions": accepted, "stages": [row]})
    pool = {"metadata": {"name": "pool"}, "spec": {"executors": 2, "maxHoldSeconds": 600}, "status": {"executors": 2}}
    told = explain(fact, pool_fact(pool), None, T0 + 100.0)
    at = told.index(f"  HeldByPolicy: {reasons.MEANING[reasons.HELD_BY_POLICY]}")
    assert told[at + 1 : at + 5] == [
        "  held for 50 s so far",
        "  alternative: started now it would be done in about 120 s, and its executors busy until then",
        "  starts in 9 min at the latest (maxHoldSeconds 600)",
        "  to start it: fermata release w a -n default",
    ]
    waits = {**row, "reason": "ExecutorsBusy", "heldSince": None, "message": "needs 1 executor, 0 of 2 free"}
    told = _explained({"conditions": accepted, "stages": [waits]})
    assert "  ExecutorsBusy, as last told: needs 1 executor, 0 of 2 free" in told
    assert not any("held for" in line for line in told)


def test_of_a_committed_hold_its_end_is_told() -> None:
    row = {"name": "a", "state": "Held", "heldSince": render(T0 + 70.0), "holdUntil": render(T0 + 145.0)}
    told = _explained({"conditions": [_condition("Accepted", "True", "Valid")], "stages": [row]})
    at = told.index("  held for 30 s so far")
    assert told[at + 1] == "  committed to for 45 s more"


@pytest.mark.parametrize(
    ("fields", "told"),
    [({}, "60 s"), ({"parallelism": 3}, "120 s"), ({"parallelism": 2}, "240 s"), ({"parallelism": 1}, "240 s")],
)
def test_the_alternative_is_as_wide_as_its_workflow_may_be(fields: Raw, told: str) -> None:
    held = {"name": "a", "state": "Held", "tasks": 4, "estimateSeconds": 60}
    rows = [held, {"name": "b", "state": "Running", "active": 1}]
    accepted = {"conditions": [_condition("Accepted", "True", "Valid")], "stages": rows}
    fact = workflow_fact_of("w", stage("a", tasks=4), stage("b"), status=accepted, **fields)
    pool = {"metadata": {"name": "pool"}, "spec": {"executors": 9}, "status": {"executors": 9, "busy": 1}}
    lines = explain(fact, pool_fact(pool), "a", T0)
    assert [line for line in lines if f"started now it would be done in about {told}, " in line]


READY = _condition("Ready", "True", "Open", "takes workflows")


@pytest.mark.parametrize(
    ("status", "told"),
    [
        ({}, "Pool pool: the operator has not seen it yet."),
        (
            {"conditions": [_condition("Ready", "False", "InvalidSpec", "expected one")]},
            "Pool pool: takes no workflows: InvalidSpec: expected one.",
        ),
        (
            {"conditions": [READY], "busy": 1, "executors": 2, "waiting": 1, "policy": "sjf", "mode": "Enforce"},
            "Pool pool: 1 of 2 executors busy, 1 stage waiting, 0 held; policy sjf, mode Enforce.",
        ),
    ],
)
def test_of_a_pool_is_told_what_the_operator_has_said_of_it(status: Raw, told: str) -> None:
    assert _explained({}, pool_status=status)[1] == told


def test_a_misspelt_stage_of_many_is_answered_with_the_most_similar_ones() -> None:
    few, many = workflow("w", stage("a"), stage("b")), workflow("w", *(stage(f"stage-{i}") for i in range(500)))
    expect_stage(many, "stage-7", "default/w")
    with pytest.raises(InputError, match=r"^workflow default/w has no stage 'c'; it has: a, b$"):
        expect_stage(few, "c", "default/w")
    with pytest.raises(InputError, match=r"it has: (stage-471|stage-417)(, stage-[0-9]+){9} and 490 more$"):
        expect_stage(many, "stage-4711", "default/w")
