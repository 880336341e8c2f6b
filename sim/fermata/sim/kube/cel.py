"""`x-kubernetes-validations`: the CEL rules of a schema, compiled once and evaluated where a value changed.

Evaluation is `cel-python`'s; this module brings the schema's types, `oldSelf`, messages and the functions that
Kubernetes adds to CEL. Optional types (`?.`, `optionalOldSelf`) and the URL, IP and quantity libraries are not there:
a rule that uses them is refused when its definition is created.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import celpy
from celpy import celtypes
from celpy.celparser import CELParseError
from celpy.evaluation import CELEvalError

from fermata.sim.kube.errors import Cause
from fermata.sim.kube.schema import ABSENT, Schema, correlated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_ESCAPES = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}
_KEYWORDS = frozenset(
    [
        "true",
        "false",
        "null",
        "in",
        "as",
        "break",
        "const",
        "continue",
        "else",
        "for",
        "function",
        "if",
        "import",
        "let",
        "loop",
        "package",
        "namespace",
        "return",
        "var",
        "void",
        "while",
    ]
)


class RuleError(ValueError):
    """A rule that is no CEL; the message says where it stands in the schema."""


@dataclass(frozen=True, slots=True)
class _Rule:
    text: str
    program: celpy.Runner
    message: str
    message_program: celpy.Runner | None
    reason: str
    field_path: str
    is_transition: bool


@dataclass(slots=True)
class Rules:
    """The rules at one place of a schema and those below it.

    Args:
        schema: the schema at this place.
        rules: the rules that see this place's value as `self`.
        properties: places below by field name; only those that hold rules.
        items: the place of a list's elements or a map's values, where it holds rules.
    """

    schema: Schema
    rules: list[_Rule] = field(default_factory=list)
    properties: dict[str, Rules] = field(default_factory=dict)
    items: Rules | None = None

    def check(self, value: Any, old: Any = ABSENT, path: str = "") -> Iterator[Cause]:
        """Yield the rules that a value breaks.

        Args:
            value: what to check; its types are those of the schema.
            old: the value that it replaces. Transition rules need one; other rules skip an equal one.
            path: the field that holds the value.
        """
        if value is None:
            return
        unchanged = old is not ABSENT and old == value
        due = [rule for rule in self.rules if (old is not ABSENT if rule.is_transition else not unchanged)]
        if due:
            context = {"self": to_cel(value, self.schema)}
            if old is not ABSENT:
                context["oldSelf"] = to_cel(old, self.schema)
            for rule in due:
                yield from _broken(rule, context, self.schema.get("type", "object"), path)
        if isinstance(value, dict):
            before = old if isinstance(old, dict) else {}
            for key, item in value.items():
                below = self.properties.get(key, self.items)
                if below is not None:
                    yield from below.check(item, before.get(key, ABSENT), f"{path}.{key}" if path else key)
        elif isinstance(value, list) and self.items is not None:
            for position, item in enumerate(value):
                before_item = correlated(self.schema, old, item, position)
                yield from self.items.check(item, before_item, f"{path}[{position}]")

    def __bool__(self) -> bool:
        return bool(self.rules or self.properties or self.items)


def compile_rules(schema: Schema, path: str = "") -> Rules:
    """Compile every rule of a schema.

    Raises:
        RuleError: for a rule that cannot be compiled.
    """
    rules = Rules(schema)
    for position, spec in enumerate(schema.get("x-kubernetes-validations") or ()):
        rules.rules.append(_compile(spec, f"{path}.x-kubernetes-validations[{position}]"))
    for key, below in (schema.get("properties") or {}).items():
        compiled = compile_rules(below, f"{path}.properties[{key}]")
        if compiled:
            rules.properties[key] = compiled
    for keyword in ("items", "additionalProperties"):
        if isinstance(schema.get(keyword), dict):
            compiled = compile_rules(schema[keyword], f"{path}.{keyword}")
            rules.items = compiled if compiled else rules.items
    return rules


def _compile(spec: dict[str, Any], path: str) -> _Rule:
    text = str(spec.get("rule", ""))
    expression = spec.get("messageExpression")
    return _Rule(
        text=text,
        program=_program(text, f"{path}.rule"),
        message=str(spec.get("message") or f"failed rule: {text}").strip(),
        message_program=_program(str(expression), f"{path}.messageExpression") if expression else None,
        reason=str(spec.get("reason") or "FieldValueInvalid"),
        field_path=str(spec.get("fieldPath") or ""),
        is_transition=bool(re.search(r"\boldSelf\b", text)),
    )


def _program(text: str, path: str) -> celpy.Runner:
    try:
        return _compiled(text)
    except CELParseError as error:
        raise RuleError(f"{path}: compilation failed: {text}: {str(error).splitlines()[0]}") from error


@lru_cache(maxsize=1024)
def _compiled(text: str) -> celpy.Runner:
    # The transpiling runner is faster and wrong: it cannot evaluate `has(self.a) && !has(self.b)`.
    environment = celpy.Environment(runner_class=celpy.InterpretedRunner)
    return environment.program(environment.compile(text), functions=_FUNCTIONS)


def _broken(rule: _Rule, context: dict[str, Any], kind: str, path: str) -> Iterator[Cause]:
    where = f"{path}{rule.field_path}".lstrip(".") or "<nil>"
    try:
        if rule.program.evaluate(context):
            return
        message = rule.message
        if rule.message_program is not None:
            message = str(rule.message_program.evaluate(context))
    except CELEvalError as error:
        why = error.args[0] if error.args else error
        yield Cause(where, f'Invalid value: "{kind}": {why} evaluating rule: {rule.message}')
        return
    prefix = {
        "FieldValueRequired": "Required value",
        "FieldValueForbidden": "Forbidden",
        "FieldValueDuplicate": f'Duplicate value: "{kind}"',
    }.get(rule.reason, "Invalid value")
    yield Cause(where, f"{prefix}: {message}", rule.reason)


def to_cel(value: Any, schema: Schema) -> Any:
    """Turn JSON into CEL values of the types that the schema names, field names escaped as Kubernetes does."""
    if value is None:
        return None
    if isinstance(value, bool):
        return celtypes.BoolType(value)
    if isinstance(value, (int, float)):
        whole = isinstance(value, int) and schema.get("type") != "number"
        return celtypes.IntType(int(value)) if whole or schema.get("type") == "integer" else celtypes.DoubleType(value)
    if isinstance(value, str):
        kind = {"date-time": celtypes.TimestampType, "duration": celtypes.DurationType}.get(schema.get("format") or "")
        return celtypes.StringType(value) if kind is None else kind(value)
    if isinstance(value, list):
        items = schema.get("items") or {}
        return celtypes.ListType([to_cel(item, items) for item in value])
    properties, additional = schema.get("properties") or {}, schema.get("additionalProperties")
    rest = additional if isinstance(additional, dict) else {}
    return celtypes.MapType(
        {
            celtypes.StringType(_escape(key) if key in properties else key): to_cel(item, properties.get(key, rest))
            for key, item in value.items()
        }
    )


def _escape(name: str) -> str:
    if name in _KEYWORDS:
        return f"__{name}__"
    if name.isidentifier() and "__" not in name:
        return name
    return re.sub("__|[./-]", lambda found: _ESCAPES[found[0]], name)


def _text(function: Callable[..., str]) -> Callable[..., celtypes.StringType]:
    return lambda *args: celtypes.StringType(function(*args))


def _is_sorted(items: Any) -> celtypes.BoolType:
    return celtypes.BoolType(all(a <= b for a, b in pairwise(items)))


def _find(text: str, pattern: str) -> str:
    found = re.search(pattern, text)
    return found[0] if found else ""


#: What Kubernetes adds to CEL: strings, lists and regular expressions.
#: Source: https://kubernetes.io/docs/reference/using-api/cel/
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "isSorted": _is_sorted,
    "sum": lambda items: sum(items[1:], items[0]) if items else celtypes.IntType(0),
    "min": min,
    "max": max,
    "indexOf": lambda text, part: celtypes.IntType(
        text.find(part) if isinstance(text, str) else text.index(part) if part in text else -1
    ),
    "lastIndexOf": lambda text, part: celtypes.IntType(text.rfind(part)),
    "lowerAscii": _text(lambda text: text.lower()),
    "upperAscii": _text(lambda text: text.upper()),
    "replace": _text(lambda text, old, new, *count: str.replace(text, old, new, *map(int, count))),
    "split": lambda text, by, *count: celtypes.ListType(
        [celtypes.StringType(part) for part in str.split(text, by, *(int(n) - 1 for n in count))]
    ),
    "join": _text(lambda items, *by: (by[0] if by else "").join(items)),
    "substring": _text(lambda text, start, *end: str(text)[int(start) : int(end[0]) if end else None]),
    "trim": _text(lambda text: text.strip()),
    "find": _text(_find),
    "findAll": lambda text, pattern: celtypes.ListType(
        [celtypes.StringType(found[0]) for found in re.finditer(pattern, text)]
    ),
}
