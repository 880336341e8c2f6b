"""A Job's podFailurePolicy: what the failure of one pod means for the Job.

Pure. On exit codes and on pod conditions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from fermata.sim.kube.errors import Cause

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fermata.sim.kube.resources import Obj

Action = Literal["Ignore", "Count", "FailIndex", "FailJob"]
_ACTIONS = ("Count", "FailIndex", "FailJob", "Ignore")
#: The condition of pods that were taken away: evicted, preempted, or lost with their node.
DISRUPTION = "DisruptionTarget"


def disrupted(status: Obj, reason: str, message: str, at: str) -> None:
    """Write into a pod's status that it is taken away, in place."""
    condition = {"type": DISRUPTION, "status": "True", "reason": reason, "message": message, "lastTransitionTime": at}
    others = [item for item in status.get("conditions") or [] if item["type"] != DISRUPTION]
    status["conditions"] = [*others, condition]


def validate_policy(policy: Obj, path: str) -> Iterator[Cause]:
    """Yield what the rules of a policy lack, each with its path."""
    for position, rule in enumerate(policy.get("rules") or []):
        where = f"{path}.rules[{position}]"
        codes, conditions = rule.get("onExitCodes"), rule.get("onPodConditions")
        yield from _validate_choice(rule.get("action"), _ACTIONS, f"{where}.action")
        if (codes is None) == (not conditions):
            yield Cause(where, "Invalid value: specifying one of OnExitCodes and OnPodConditions is required")
        if codes is not None:
            yield from _validate_choice(codes.get("operator"), ("In", "NotIn"), f"{where}.onExitCodes.operator")
            if not codes.get("values"):
                message = "Invalid value: at least one value is required"
                yield Cause(f"{where}.onExitCodes.values", message)
            if codes.get("operator") == "In" and 0 in (codes.get("values") or ()):
                place = f"{where}.onExitCodes.values[{codes['values'].index(0)}]"
                yield Cause(place, "Invalid value: 0: must not be 0 for the In operator")
        for number, condition in enumerate(conditions or []):
            if not condition.get("type"):
                yield Cause(f"{where}.onPodConditions[{number}].type", "Required value", "FieldValueRequired")


def _validate_choice(value: str | None, supported: tuple[str, ...], path: str) -> Iterator[Cause]:
    if not value:
        yield Cause(path, f"Required value: valid values: {', '.join(supported)}", "FieldValueRequired")
    elif value not in supported:
        told = ", ".join(f'"{each}"' for each in supported)
        yield Cause(path, f'Unsupported value: "{value}": supported values: {told}', "FieldValueNotSupported")


def action_of(policy: Obj | None, status: Obj) -> Action:
    """Return what a failed pod's status means under a policy; None counts every failure."""
    for rule in (policy or {}).get("rules") or []:
        if _fits(rule, status):
            action = rule["action"]
            return action if action in ("Ignore", "FailIndex", "FailJob") else "Count"
    return "Count"


def _fits(rule: Obj, status: Obj) -> bool:
    patterns = rule.get("onPodConditions") or []
    found = {(item["type"], item["status"]) for item in status.get("conditions") or []}
    if any((pattern["type"], pattern.get("status", "True")) in found for pattern in patterns):
        return True
    wanted = rule.get("onExitCodes")
    if not wanted:
        return False
    name, values = wanted.get("containerName"), set(wanted.get("values") or ())
    for container in status.get("containerStatuses") or []:
        ended = (container.get("state") or {}).get("terminated")
        if not ended or not ended["exitCode"] or (name and container["name"] != name):
            continue
        if (ended["exitCode"] in values) == (wanted.get("operator") == "In"):
            return True
    return False
