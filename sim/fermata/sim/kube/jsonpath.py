r"""The JSONPath of printer columns: fields, quoted keys, positions, wildcards and equality filters.

>>> read(parse(".a[?(@.type=='X')].b"), {"a": [{"type": "X", "b": 1}, {"type": "Y", "b": 2}]})
[1]
>>> read(parse(".metadata.annotations.x\\.dev/y"), {"metadata": {"annotations": {"x.dev/y": "z"}}})
['z']
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_TOKEN = re.compile(
    r"""\.?\[\?\(\s*@\.(?P<filter>[\w.\\/-]+)\s*(?P<op>==|!=)\s*(?P<value>"[^"]*"|'[^']*'|[^\s)]+)\s*\)\]
    |\.?\[(?P<quoted>"[^"]*"|'[^']*')\]
    |\.?\[(?P<all>\*)\]|\.(?P<any>\*)
    |\.?\[(?P<index>-?\d+)\]
    |\.(?P<field>(?:\\.|[^.\[\\])+)""",
    re.VERBOSE,
)


def parse(text: str) -> list[Callable[[Any], Iterable[Any]]]:
    """Turn a path into steps.

    Raises:
        ValueError: for a path that uses anything else.
    """
    text = text.strip().removeprefix("{").removesuffix("}").removeprefix("$")
    steps: list[Callable[[Any], Iterable[Any]]] = []
    position = 0
    while position < len(text):
        found = _TOKEN.match(text, position)
        if not found:
            raise ValueError(f"unsupported JSONPath at {text[position:]!r} in {text!r}")
        steps.append(_step(found))
        position = found.end()
    return steps


def _step(found: re.Match[str]) -> Callable[[Any], Iterable[Any]]:
    if found["field"]:
        return _field(re.sub(r"\\(.)", r"\1", found["field"]))
    if found["quoted"]:
        return _field(found["quoted"][1:-1])
    if found["index"]:
        position = int(found["index"])
        return lambda value: (
            [value[position]] if isinstance(value, list) and -len(value) <= position < len(value) else []
        )
    if found["filter"]:
        path, wanted, equal = found["filter"].split("."), _literal(found["value"]), found["op"] == "=="

        def matching(value: Any) -> Iterator[Any]:
            for item in value if isinstance(value, list) else ():
                at: Any = item
                for part in path:
                    at = at.get(part) if isinstance(at, dict) else None
                if (at == wanted) == equal:
                    yield item

        return matching
    return lambda value: value if isinstance(value, list) else value.values() if isinstance(value, dict) else []


def _field(name: str) -> Callable[[Any], Iterable[Any]]:
    return lambda value: [value[name]] if isinstance(value, dict) and name in value else []


def _literal(text: str) -> Any:
    if text[0] in "\"'":
        return text[1:-1]
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def read(steps: list[Callable[[Any], Iterable[Any]]], value: Any) -> list[Any]:
    """Return every value that the path leads to."""
    values: list[Any] = [value]
    for step in steps:
        values = [below for item in values for below in step(item)]
    return values
