"""A Job's podFailurePolicy: what the failure of one pod means for the Job.

Pure. On exit codes and on pod conditions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from fermata.sim.kube.errors import Cause, required, unsupported

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fermata.sim.kube.resources import Obj

Action = Literal["Ignore", "Count", "FailIndex", "FailJob"]


class Judgement(NamedTuple):
    """What a pod's failure means, and the rule that says so in words."""

    action: Action
    message: str = ""


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
                yield required(f"{where}.onPodConditions[{number}].type")


def _validate_choice(value: str | None, supported: tuple[str, ...], path: str) -> Iterator[Cause]:
    if not value:
        yield required(path, f"valid values: {', '.join(supported)}")
    elif value not in supported:
        yield unsupported(path, value, supported)


def judge(policy: Obj | None, status: Obj, pod: str) -> Judgement:
    """Return what a failed pod's status means under a policy; None counts every failure.

    `pod` is its namespace and name, as in `default/a`.
    """
    for number, rule in enumerate((policy or {}).get("rules") or []):
        fits = _fits(rule, status, pod)
        if fits:
            return Judgement(rule["action"], f"{fits} matching {rule['action']} rule at index {number}")
    return Judgement("Count")


def _fits(rule: Obj, status: Obj, pod: str) -> str:
    """Return what of a pod a rule is about, or nothing."""
    patterns = rule.get("onPodConditions") or []
    found = {(item["type"], item["status"]) for item in status.get("conditions") or []}
    for pattern in patterns:
        if (pattern["type"], pattern.get("status", "True")) in found:
            return f"Pod {pod} has condition {pattern['type']}"
    wanted = rule.get("onExitCodes")
    if not wanted:
        return ""
    name, values = wanted.get("containerName"), set(wanted.get("values") or ())
    for container in status.get("containerStatuses") or []:
        ended = (container.get("state") or {}).get("terminated")
        if not ended or not ended["exitCode"] or (name and container["name"] != name):
            continue
        if (ended["exitCode"] in values) == (wanted.get("operator") == "In"):
            return f"Container {container['name']} for pod {pod} failed with exit code {ended['exitCode']}"
    return ""
