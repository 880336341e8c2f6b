"""Accounts of what is held."""

from __future__ import annotations

import pytest
from tests.unit.operator.objects import T0

from fermata.operator.ledger import Account, Ledger


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
