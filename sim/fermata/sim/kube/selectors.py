"""Label and field selectors, as Kubernetes writes them in a query.

Parses once, matches many; knows mappings of strings and no stored object.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fermata.sim.kube.errors import bad_request
from fermata.sim.kube.names import wrong_key, wrong_value

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_SET = re.compile(r"^(?P<key>[^\s!=<>(),]+)\s+(?P<op>in|notin)\s*\(\s*(?P<values>[^()]*)\)$")
_EQUAL = re.compile(r"^(?P<key>[^\s!=<>(),]+)\s*(?P<op>==|=|!=)\s*(?P<value>[^\s!=<>(),]*)$")
_ORDER = re.compile(r"^(?P<key>[^\s!=<>(),]+)\s*(?P<op>[<>])\s*(?P<value>-?\d+)$")
_EXISTS = re.compile(r"^(?P<absent>!?)\s*(?P<key>[^\s!=<>(),]+)$")
# A comma inside parentheses separates values, not requirements.
_COMMA = re.compile(r",(?![^(]*\))")


@dataclass(frozen=True, slots=True)
class LabelRequirement:
    """One term: the label's value is among `values`, or not; with `values` None the label is there, or not.

    With a bound, the value is a number above or below it.
    """

    key: str
    values: frozenset[str] | None
    positive: bool
    above: int | None = None
    below: int | None = None

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether these labels satisfy the term; an absent label satisfies a negative one."""
        value = labels.get(self.key)
        if self.above is not None or self.below is not None:
            return _between(value, self.above, self.below)
        if self.values is None:
            return (value is not None) == self.positive
        return (value in self.values) == self.positive


def _between(value: str | None, above: int | None, below: int | None) -> bool:
    try:
        found = int(value or "")
    except ValueError:
        return False
    return (above is None or found > above) and (below is None or found < below)


LabelSelector = tuple[LabelRequirement, ...]


def parse_labels(text: str) -> LabelSelector:
    """Parse a label selector, equality-based or set-based.

    Raises:
        ApiError: 400 when a term cannot be understood.

    >>> [r.matches({"a": "1"}) for r in parse_labels("a in (1, 2),b!=3,!c")]
    [True, True, True]
    """
    return tuple(_label_term(term.strip()) for term in _COMMA.split(text)) if text.strip() else ()


def _label_term(term: str) -> LabelRequirement:
    if not term:  # before, between or after commas, where it must not be taken for everything
        raise bad_request("found ',', expected: !, identifier, or 'end of string'")
    requirement = _parsed_term(term)
    told = {"<nil>": (requirement.key, wrong_key(requirement.key))}
    for position, value in enumerate(sorted(requirement.values or ())):
        told[f"values[{position}][{requirement.key}]"] = value, wrong_value(value)
    for where, (text, wrong) in told.items():
        if wrong:
            raise bad_request(f'unable to parse requirement: {where}: Invalid value: "{text}": {wrong}')
    return requirement


def _parsed_term(term: str) -> LabelRequirement:
    if found := _SET.match(term):
        values = frozenset(value.strip() for value in found["values"].split(","))
        return LabelRequirement(found["key"], values, found["op"] == "in")
    if found := _EQUAL.match(term):
        return LabelRequirement(found["key"], frozenset([found["value"]]), found["op"] != "!=")
    if found := _ORDER.match(term):
        bound = {"above" if found["op"] == ">" else "below": int(found["value"])}
        return LabelRequirement(found["key"], None, True, **bound)
    if found := _EXISTS.match(term):
        return LabelRequirement(found["key"], None, not found["absent"])
    raise bad_request(f"unable to parse requirement: {term!r}")


def match_labels(selector: LabelSelector, labels: Mapping[str, str]) -> bool:
    """Return whether the labels satisfy every term."""
    return all(requirement.matches(labels) for requirement in selector)


def selects(selector: Mapping[str, Any] | None, labels: Mapping[str, str] | None) -> bool:
    """Return whether an object's LabelSelector (`matchLabels`, `matchExpressions`) selects these labels.

    An empty selector selects everything, an absent one nothing.

    >>> selects({"matchLabels": {"a": "1"}}, {"a": "1", "b": "2"}), selects({}, {}), selects(None, {})
    (True, True, False)
    """
    if selector is None:
        return False
    terms = [
        LabelRequirement(key, frozenset([value]), True) for key, value in (selector.get("matchLabels") or {}).items()
    ]
    for item in selector.get("matchExpressions") or ():
        values = None if item["operator"] in ("Exists", "DoesNotExist") else frozenset(item.get("values") or ())
        terms.append(LabelRequirement(item["key"], values, item["operator"] in ("In", "Exists")))
    return match_labels(tuple(terms), labels or {})


@dataclass(frozen=True, slots=True)
class FieldRequirement:
    """One term: the field at `path` equals `value`, or not. An absent field counts as empty."""

    path: str
    value: str
    positive: bool


FieldSelector = tuple[FieldRequirement, ...]


def parse_fields(text: str, supported: Sequence[str]) -> FieldSelector:
    """Parse a field selector.

    Args:
        text: such as `status.phase!=Failed,spec.nodeName=n1`.
        supported: the paths that may be named.

    Raises:
        ApiError: 400 when a term cannot be understood or names another field.
    """
    terms: list[FieldRequirement] = []
    for term in text.split(","):
        if not term.strip():
            continue
        found = re.match(r"^\s*(?P<path>[^=!]+?)\s*(?P<op>==|=|!=)\s*(?P<value>.*?)\s*$", term)
        if not found:
            raise bad_request(f"invalid selector: {term!r}; can't understand it")
        if found["path"] not in supported:
            raise bad_request(f"field label not supported: {found['path']}")
        terms.append(FieldRequirement(found["path"], found["value"], found["op"] != "!="))
    return tuple(terms)
