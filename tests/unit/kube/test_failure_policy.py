"""podFailurePolicy: the first rule that fits says what a pod's failure means."""

from __future__ import annotations

from typing import Any

import pytest

from fermata.sim.kube.failure_policy import disrupted, judge

POLICY = {
    "rules": [
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]},
        {"action": "FailJob", "onExitCodes": {"containerName": "main", "operator": "In", "values": [42]}},
        {"action": "Ignore", "onExitCodes": {"operator": "NotIn", "values": [1, 42]}},
    ]
}


def ended(code: int, name: str = "main") -> dict[str, Any]:
    return {"containerStatuses": [{"name": name, "state": {"terminated": {"exitCode": code}}}]}


@pytest.mark.parametrize(
    ("status", "action"),
    [(ended(42), "FailJob"), (ended(42, "side"), "Count"), (ended(1), "Count"), (ended(7), "Ignore"), ({}, "Count")],
)
def test_exit_codes(status: dict[str, Any], action: str) -> None:
    assert judge(POLICY, status, "ns/p").action == action
    assert judge(None, status, "ns/p") == ("Count", "")


def test_the_rule_that_fits_is_told() -> None:
    message = "Container main for pod ns/p failed with exit code 42 matching FailJob rule at index 1"
    assert judge(POLICY, ended(42), "ns/p").message == message


def test_a_pod_that_was_taken_away() -> None:
    status = ended(42)
    disrupted(status, "DeletionByPodGC", "gone", "2026-01-01T00:00:00Z")
    message = "Pod ns/p has condition DisruptionTarget matching Ignore rule at index 0"
    assert judge(POLICY, status, "ns/p") == ("Ignore", message)
