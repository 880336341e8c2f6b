"""A Job's successPolicy: which of its indexes have to succeed for all of it to be done.

Pure. Source: `k8s.io/kubernetes/pkg/controller/job/success_policy.go` and `pkg/apis/batch/validation`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from fermata.sim.kube.controllers.indexes import parse_indexes
from fermata.sim.kube.errors import Cause, required

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fermata.sim.kube.resources import Obj

_MOST_RULES = 20
_NUMBER = re.compile(r"\+?[0-9]{1,10}")


def rule_met(policy: Obj | None, succeeded: set[int]) -> int | None:
    """Return the number of the first rule that the indexes that have succeeded meet, or None.

    None meet a rule whose text names none, whatever its count.

    >>> rule_met({"rules": [{"succeededIndexes": "0-1"}, {"succeededIndexes": "1-3", "succeededCount": 2}]}, {1, 3})
    1
    """
    if not succeeded:
        return None
    for number, rule in enumerate((policy or {}).get("rules") or []):
        text, count = rule.get("succeededIndexes"), rule.get("succeededCount")
        wanted = succeeded if text is None else parse_indexes(text)
        if wanted and len(wanted & succeeded) >= (len(wanted) if count is None else count):
            return number
    return None


def validate_success_policy(policy: Obj, completions: int, path: str) -> Iterator[Cause]:
    """Yield what the rules of a policy lack, each with its path; `completions` are those of the Job."""
    rules = policy.get("rules") or []
    if not rules:
        yield required(f"{path}.rules", "at least one rules must be specified when the successPolicy is specified")
    if len(rules) > _MOST_RULES:
        message = f"Too many: {len(rules)}: must have at most {_MOST_RULES} items"
        yield Cause(f"{path}.rules", message, "FieldValueTooMany")
    for number, rule in enumerate(rules):
        yield from _validate_rule(rule, completions, f"{path}.rules[{number}]")


def _validate_rule(rule: Obj, completions: int, where: str) -> Iterator[Cause]:
    text, count = rule.get("succeededIndexes"), rule.get("succeededCount")
    if text is None and count is None:
        yield required(where, "at least one of succeededCount or succeededIndexes must be specified")
    most, of_what = completions, "the number of specified completions"
    if text is not None:
        trouble = _trouble(text, completions)
        if trouble:
            yield Cause(
                f"{where}.succeededIndexes", f'Invalid value: "{text}": error parsing succeededIndexes: {trouble}'
            )
            return
        most, of_what = len(parse_indexes(text)), "the number of indexes in the specified succeededIndexes field"
    if count is not None and not 0 <= count <= most:
        bound = f"less than or equal to {most} ({of_what})" if count > most else "greater than or equal to 0"
        yield Cause(f"{where}.succeededCount", f"Invalid value: {count}: must be {bound}")


def _trouble(text: str, completions: int) -> str:
    """Return why a text names no indexes of so many, in growing order; empty if it does."""
    last = -1
    for part in text.split(",") if text else ():
        bounds = part.split("-")
        if len(bounds) > 2:
            rule = "the requirement that an index interval can have at most two parts separated by '-'"
            return f'the fragment "{part}" violates {rule}'
        for bound in bounds:
            if not _NUMBER.fullmatch(bound):
                return f'cannot convert string to integer for index: "{bound}"'
            if int(bound) >= completions:
                return f'too large index: "{bound}"'
            if int(bound) <= last:
                return f"non-increasing order, previous: {last}, current: {int(bound)}"
            last = int(bound)
    return ""
