"""What `fermata explain` says of a workflow, by the objects that the API holds."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.operator.objects import T0, Raw, stage, workflow_fact_of

from fermata.operator.explain import explain
from fermata.operator.facts import pool_fact
from fermata.operator.times import render


def _condition(kind: str, status: str, reason: str, message: str = "") -> Raw:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": render(T0),
    }


def _explained(status: Raw, now_s: float = T0 + 100.0, **pool: Any) -> list[str]:
    fact = workflow_fact_of("w", stage("a", estimateSeconds=900), status={"arrivalTime": render(T0), **status})
    raw = {"metadata": {"name": "pool", "uid": "p"}, "spec": {"executors": 2, **pool}}
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
