"""Structural schemas and CEL rules on small values, and their invariants on generated ones."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fermata.sim.kube.cel import RuleError, compile_rules
from fermata.sim.kube.schema import ABSENT, prune, set_defaults, validate


def reasons(value: Any, schema: dict[str, Any], old: Any = ABSENT) -> list[str]:
    return [cause.reason.removeprefix("FieldValue") for cause in validate(value, schema, "f", old)]


@pytest.mark.parametrize(
    ("value", "schema", "expected"),
    [
        (1, {"type": "integer"}, []),
        (1.0, {"type": "integer"}, []),
        (1.5, {"type": "integer"}, ["TypeInvalid"]),
        (True, {"type": "integer"}, ["TypeInvalid"]),
        (1, {"type": "boolean"}, ["TypeInvalid"]),
        (None, {"type": "string"}, ["TypeInvalid"]),
        (None, {"type": "string", "nullable": True}, []),
        ("5%", {"x-kubernetes-int-or-string": True}, []),
        (2.5, {"x-kubernetes-int-or-string": True}, ["TypeInvalid"]),
        (5, {"type": "integer", "minimum": 5, "exclusiveMinimum": True}, ["Invalid"]),
        (2**31, {"type": "integer", "format": "int32"}, ["Invalid"]),
        (7, {"type": "integer", "multipleOf": 3}, ["Invalid"]),
        ("2026-01-01T00:00:00Z", {"type": "string", "format": "date-time"}, []),
        ("yesterday", {"type": "string", "format": "date-time"}, ["Invalid"]),
        ("x", {"type": "string", "format": "unheard-of"}, []),
        ("abc", {"type": "string", "pattern": "b"}, []),
        ("abc", {"type": "string", "pattern": "^b"}, ["Invalid"]),
        ({"a": 1, "b": 1}, {"type": "object", "maxProperties": 1}, ["TooMany"]),
        ({}, {"type": "object", "minProperties": 1}, ["Invalid"]),
        ([{"k": 1}, {"k": 1, "v": 2}], {"type": "array", "x-kubernetes-list-type": "map",
                                        "x-kubernetes-list-map-keys": ["k"]}, ["Duplicate"]),
        ("a", {"type": "string", "enum": ["b"], "maxLength": 0}, ["NotSupported", "TooLong"]),
        (3, {"anyOf": [{"maximum": 1}, {"minimum": 5}]}, ["Invalid"]),
        (3, {"oneOf": [{"maximum": 5}, {"minimum": 1}]}, ["Invalid"]),
        (3, {"allOf": [{"maximum": 1}, {"minimum": 5}]}, ["Invalid", "Invalid"]),
        (3, {"not": {"minimum": 1}}, ["Invalid"]),
    ],
)  # fmt: skip
def test_validation(value: Any, schema: dict[str, Any], expected: list[str]) -> None:
    assert reasons(value, schema) == expected


def test_what_did_not_change_is_not_validated_again() -> None:
    schema = {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
              "items": {"type": "object", "properties": {"k": {"type": "string"}, "v": {"maximum": 5}}}}  # fmt: skip
    old = [{"k": "a", "v": 9}]
    assert reasons([{"k": "b", "v": 1}, {"k": "a", "v": 9}], schema, old) == []
    assert reasons([{"k": "a", "v": 8}], schema, old) == ["Invalid"]


def test_pruning_keeps_the_envelope_and_embedded_objects() -> None:
    schema = {
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "properties": {
                    "open": {"type": "object", "additionalProperties": {"type": "string"}},
                    "pod": {"type": "object", "x-kubernetes-embedded-resource": True,
                            "x-kubernetes-preserve-unknown-fields": True},
                },
            }
        },
    }  # fmt: skip
    value = {
        "kind": "K",
        "metadata": {"x": 1},
        "spec": {"no": 1, "open": {"a": "b"}, "pod": {"kind": "P", "s": 1}},
        "z": 1,
    }
    assert sorted(prune(value, schema)) == ["spec.no", "z"]
    assert value == {"kind": "K", "metadata": {"x": 1}, "spec": {"open": {"a": "b"}, "pod": {"kind": "P", "s": 1}}}


def test_defaults_reach_into_defaults() -> None:
    inner = {"type": "object", "default": {}, "properties": {"n": {"type": "integer", "default": 3}}}
    value: dict[str, Any] = {"items": [{}, {"a": None}]}
    set_defaults(value, {"properties": {"items": {"items": {"properties": {"a": inner}}}}})
    assert value == {"items": [{"a": {"n": 3}}, {"a": {"n": 3}}]}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text("ab", max_size=3),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.sampled_from("abc"), below, max_size=3),
    max_leaves=8,
)
SCHEMA = {
    "type": "object",
    "required": ["a"],
    "properties": {
        "a": {"type": "array", "maxItems": 2, "items": {"type": "integer", "minimum": 0}},
        "b": {"type": "object", "properties": {"a": {"type": "string", "default": "x"}}},
    },
}


@given(JSON)
def test_any_value_is_judged_and_none_is_altered(value: Any) -> None:
    before = copy.deepcopy(value)
    causes = list(validate(value, SCHEMA))
    assert value == before
    assert all(cause.message and cause.reason.startswith("FieldValue") for cause in causes)
    assert list(validate(value, SCHEMA, "", copy.deepcopy(value))) == []


@given(JSON)
def test_pruning_and_defaulting_twice_is_once(value: Any) -> None:
    prune(value, SCHEMA)
    set_defaults(value, SCHEMA)
    again = copy.deepcopy(value)
    assert prune(again, SCHEMA) == []
    set_defaults(again, SCHEMA)
    assert again == value


def broken(rule: str, value: Any, old: Any = ABSENT, schema: dict[str, Any] | None = None, **spec: str) -> list[str]:
    rules = compile_rules({"type": "integer", **(schema or {}), "x-kubernetes-validations": [{"rule": rule, **spec}]})
    return [cause.message for cause in rules.check(value, old)]


@pytest.mark.parametrize(
    ("rule", "value"),
    [
        ("self.all(s, s.needs.all(n, self.exists(t, t.name == n)))",
         [{"name": "a", "needs": []}, {"name": "b", "needs": ["a"]}]),
        ("has(self.a) && !has(self.b)", {"a": 1}),
        ("self.filter(x, x > 1).map(x, x * 2) == [4, 6]", [1, 2, 3]),
        ("size(self) == 2 && self.exists_one(x, x == 'b')", ["a", "b"]),
        ("self.matches('^a+$') && self.startsWith('a') && self.endsWith('a')", "aaa"),
        ("self.split(',').map(x, x.trim()).join('+') == 'a+b'", "a, b"),
        ("self.isSorted() && self.sum() == 6 && self.max() == 3 && self.indexOf(2) == 1", [1, 2, 3]),
        ("self.lowerAscii().find('b+') == 'bb' && self.substring(1) == 'BB'", "aBB"),
        ("'k' in self && self['k'] == 'v'", {"k": "v"}),
        ("self.x__dash__y == 1 && self.__namespace__ == 2", {"x-y": 1, "namespace": 2}),
    ],
)  # fmt: skip
def test_rules_that_hold(rule: str, value: Any) -> None:
    schema = {"properties": {"x-y": {"type": "integer"}, "namespace": {"type": "integer"}}}
    assert broken(rule, value, schema=schema) == []


def test_rules_that_do_not() -> None:
    assert broken("self > 3", 2, message="too small") == ["Invalid value: too small"]
    assert broken("self > 3", 2, messageExpression="'got ' + string(self)") == ["Invalid value: got 2"]
    assert broken("self.a == 1", {}) != []
    assert broken("self", True, reason="FieldValueForbidden") == []
    assert broken("self", False, reason="FieldValueForbidden", message="no") == ["Forbidden: no"]


def test_transition_rules_need_an_old_value_and_others_a_change() -> None:
    assert broken("self >= oldSelf", 1) == []
    assert broken("self >= oldSelf", 1, 2) != []
    assert broken("self > 5", 1, 1) == []
    assert broken("self > 5", 1, 2) != []


def test_rules_that_are_none() -> None:
    with pytest.raises(RuleError, match="compilation failed"):
        compile_rules({"x-kubernetes-validations": [{"rule": "self <"}]})
