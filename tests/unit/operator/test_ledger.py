"""Accounts of what is held."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.operator.objects import T0, job_fact_of, stage, workflow_fact_of

from fermata.operator.estimates import Estimates
from fermata.operator.ledger import Account, Ledger
from fermata.operator.times import render
from fermata.operator.view import view


@pytest.mark.parametrize(("ended_s", "over_s"), [(T0 + 10, T0 + 10), (T0 + 90, T0 + 60)])
def test_a_committed_hold_was_until_it_was_ended_or_until_its_end(ended_s: float, over_s: float) -> None:
    ledger = Ledger()
    account = ledger.accounts["uid"] = Account(hold_until_s={"a": T0 + 60})
    account.end_hold("a", ended_s)
    assert (account.hold_until_s, account.over_s) == ({}, {"a": over_s})
    assert ledger.committed() == []
    assert ledger.stage_holds(T0 + 100)["uid", "a"].until_s == over_s


def test_what_is_stopped_has_no_hold_that_is_over_either() -> None:
    account = Account(over_s={"a": T0})
    account.stop(T0 + 1)
    assert not account.over_s


@pytest.mark.parametrize(("outcome", "held_s"), [("Complete", 5.0 + 20.0), ("Failed", 5.0 + 30.0)])
def test_what_was_held_between_its_tasks_and_ended_while_no_operator_ran_was_held_until_its_last_task(
    outcome: str, held_s: float
) -> None:
    row = {"name": "a", "state": "Running", "startTime": render(T0), "heldSeconds": 5.0, "heldSince": render(T0 + 20)}
    fact = workflow_fact_of("w", stage("a", tasks=2), status={"stages": [row]})
    assert fact.spec is not None
    ended = job_fact_of("w", "a", T0 + 60, tasks=2, outcome=outcome, end_s=T0 + 50.25, succeeded=2)
    job = replace(ended, gated=True, task_s=10.25)
    ledger = Ledger()
    account = ledger.open(fact)
    seen = view(fact, fact.spec, {"a": job}, {}, {}, Estimates(), T0 + 60)
    ledger.catch_up(seen, T0 + 60)
    assert account.stages["a"].since_s is None
    assert account.stages["a"].settled_s == pytest.approx(held_s, abs=0.3)
