"""podFailurePolicy: the first rule that fits says what a pod's failure means."""

from __future__ import annotations

from typing import Any

import pytest

from fermata.sim.kube.failure_policy import action_of, disrupted

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
    assert action_of(POLICY, status) == action
    assert action_of(None, status) == "Count"


def test_a_pod_that_was_taken_away() -> None:
    status = ended(42)
    disrupted(status, "DeletionByPodGC", "gone", "2026-01-01T00:00:00Z")
    assert action_of(POLICY, status) == "Ignore"
