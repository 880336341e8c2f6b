"""What a task is expected to take."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.operator.objects import DONE, stage, workflow, workflow_fact_of

from fermata.operator.estimates import UNKNOWN_S, Estimates, family_of
from fermata.operator.facts import WorkflowFact, meta_of
from fermata.operator.resources import StageSpec


def _finished(name: str, run_s: float, tasks: int = 1, cap: int = 1, **fields: Any) -> WorkflowFact:
    status = {
        **DONE,
        "stages": [{"name": "a", "state": "Succeeded", "tasks": tasks, "parallelism": cap, "runSeconds": run_s}],
    }
    return workflow_fact_of(name, stage("a"), status=status, **fields)


def _stage(**fields: Any) -> StageSpec:
    return StageSpec.model_validate(stage("a") | {"estimateSeconds": None} | fields)


def test_what_the_user_says_comes_first() -> None:
    assert Estimates().of(meta_of(workflow("w", stage("a"))), _stage(estimateSeconds=7)) == (7.0, "estimateSeconds")


def test_then_the_family_then_the_pool_then_a_guess() -> None:
    estimates, meta = Estimates(), meta_of(workflow("etl-4", stage("a")))
    assert estimates.of(meta, _stage()) == (UNKNOWN_S, "unknown")
    estimates.learn(_finished("other", 30.0))
    assert estimates.of(meta, _stage()).seconds == 30.0
    for number, run_s in enumerate((4.0, 5.0, 90.0)):
        estimates.learn(_finished(f"etl-{number}", run_s))
    assert estimates.of(meta, _stage()).seconds == 5.0  # the median, which one slow run does not move


def test_waves_are_counted_and_a_workflow_teaches_once() -> None:
    estimates, meta = Estimates(), meta_of(workflow("etl-9", stage("a")))
    for _ in range(3):
        estimates.learn(_finished("etl-1", 30.0, tasks=5, cap=2))
    estimates.learn(_finished("etl-2", 20.0))
    assert estimates.of(meta, _stage()).seconds == pytest.approx(15.0)  # of 10 and 20


def test_an_unfinished_workflow_teaches_nothing() -> None:
    estimates = Estimates()
    estimates.learn(
        workflow_fact_of(
            "etl-1", stage("a"), status={"stages": [{"name": "a", "state": "Succeeded", "runSeconds": 3.0}]}
        )
    )
    assert estimates.of(meta_of(workflow("etl-2", stage("a"))), _stage()).source == "unknown"


@pytest.mark.parametrize(
    ("name", "labels", "family"),
    [
        ("etl-20261", {}, "etl"),
        ("etl-x7k2p", {}, "etl"),
        ("etl", {}, "etl"),
        ("etl-1", {"fermata.dev/family": "night"}, "night"),
    ],
)
def test_families(name: str, labels: dict[str, str], family: str) -> None:
    assert family_of(meta_of(workflow(name, stage("a"), labels=labels))) == family
