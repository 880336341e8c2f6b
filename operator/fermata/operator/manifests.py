"""Manifests as people write them, with the line on which each value stands, so that a problem can be pointed at.

YAML of several documents, JSON, and Kubernetes' lists, all read as kubectl reads them. Reads text, judges nothing.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from math import inf
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import yaml

from fermata.operator.names import GROUP, POOL, WORKFLOW
from fermata.operator.validate import Problem, object_problems
from fermata.policy.errors import InputError

STANDARD_INPUT = Path("<stdin>")  # the name by which errors mention it
_MAX_BYTES = 16 * 1024 * 1024
_MOST_REPEATED = 400_000  # values that aliases may stand for; kubectl's parser begins to refuse there, too
_ENDLESS = -1
_MOST_DIGITS = 308  # with more, a whole number is none that JSON could hold
# What YAML makes dates and bytes of, JSON has no types for: as for kubectl, they are text.
_TEXTS = ("tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:binary")
_MERGE, _WHOLE = "tag:yaml.org,2002:merge", "tag:yaml.org,2002:int"
_PathKey = tuple[str | int, ...]


class _Loader(yaml.SafeLoader):
    """YAML 1.1 as kubectl's parser reads its plain scalars, which is not as PyYAML does.

    Source: `resolve.go` of go-yaml v2.
    """

    bool_values: ClassVar = {**yaml.SafeLoader.bool_values, "y": True, "n": False}
    # No timestamps, and no numbers to the base of 60: both are text.
    yaml_implicit_resolvers = {}  # noqa: RUF012 - PyYAML declares it of instances


for _tag, _pattern, _first in (
    ("bool", r"[yYnN]|yes|Yes|YES|no|No|NO|true|True|TRUE|false|False|FALSE|on|On|ON|off|Off|OFF", "yYnNtTfFoO"),
    ("null", r"|~|null|Null|NULL", ("", "~", "n", "N")),
    ("merge", r"<<", "<"),
    ("int", r"[-+]?(0b[01_]+|0o?[0-7_]+|0x[0-9a-fA-F_]+|0|[1-9][0-9_]*)", "-+0123456789"),
    ("float", r"[-+]?(\.[0-9]+|[0-9][0-9_]*(\.[0-9_]*)?)([eE][-+]?[0-9]+)?|\.(nan|NaN|NAN)", "-+.0123456789"),
    ("float", r"[-+]?\.(inf|Inf|INF)", "-+."),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"^(?:{_pattern})$"), list(_first))


class Document(NamedTuple):
    """One object of a manifest, and the line of each path in it, from 1."""

    content: Any
    lines: Mapping[_PathKey, int]

    def line_of(self, path: _PathKey) -> int:
        """Return the line of a path, or of the nearest part of the object that is there."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)

    @property
    def ours(self) -> bool:
        """Whether it claims to be of this project's API group."""
        if not isinstance(self.content, Mapping):
            return True  # not an object of anybody: somebody has to say so
        if "apiVersion" not in self.content:
            return True
        group = str(self.content["apiVersion"]).rpartition("/")[0]
        if self.content.get("kind") == WORKFLOW:  # others have Workflows, too: no group, or nearly ours, is a slip
            return not group or bool(get_close_matches(group, [GROUP]))
        return group == GROUP or self.content.get("kind") == POOL


def read(file: Path) -> list[Document]:
    """Return the objects of a manifest; of `STANDARD_INPUT`, those that are written to this process.

    Raises:
        InputError: it cannot be read, is not YAML or JSON, or holds none.
    """
    documents = documents_of(file)
    if not documents:
        raise InputError("no object in it; expected a Workflow or an ExecutorPool", file=file, line=1)
    return documents


def documents_of(file: Path) -> list[Document]:
    """Return what a file holds, which may be nothing.

    Raises:
        InputError: it cannot be read, or is not YAML or JSON.
    """
    text = _text_of(file)
    try:
        if file.suffix == ".json":
            _check_json(text, file)
        return [document for node in _nodes(text, file) for document in _objects(node, file)]
    except RecursionError as error:
        raise InputError("nested too deeply", file=file) from error


def _text_of(file: Path) -> str:
    try:
        if file == STANDARD_INPUT:
            raw = sys.stdin.buffer.read(_MAX_BYTES + 1)
        else:
            with file.open("rb") as opened:
                raw = opened.read(_MAX_BYTES + 1)
        if len(raw) > _MAX_BYTES:
            raise InputError(f"too large; expected at most {_MAX_BYTES} bytes", file=file)
        return raw.decode()
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", file=file) from error
    except UnicodeDecodeError as error:
        raise InputError(f"not UTF-8 at byte {error.start}", file=file) from error


def check(document: Document, file: Path, judge: Callable[[Any], list[Problem]] = object_problems) -> list[InputError]:
    """Return what is wrong with one object, as errors that name file and line; [] if nothing is."""
    return [_error(problem, document, file) for problem in judge(document.content)]


def _error(problem: Problem, document: Document, file: Path) -> InputError:
    return InputError(f"{problem.reason}: {problem.message}", file=file, line=document.line_of(problem.path))


def _check_json(text: str, file: Path) -> None:
    """JSON is YAML, but a parser for JSON says better what is wrong with it."""
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"broken JSON: {error.msg}", file=file, line=error.lineno) from error


def _nodes(text: str, file: Path) -> Iterator[yaml.Node]:
    try:
        for node in yaml.compose_all(text, Loader=_Loader):
            if node is not None:
                yield node
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else None
        raise InputError(f"broken YAML: {error.problem or error.context}", file=file, line=line) from error
    except yaml.YAMLError as error:
        raise InputError(f"broken YAML: {error}", file=file) from error


def _objects(node: yaml.Node, file: Path) -> Iterator[Document]:
    _check_aliases(node, file)
    lines: dict[_PathKey, int] = {}
    content = _value(node, (), lines, file)
    if _is_list(content):
        for index, item in enumerate(content["items"]):
            head: _PathKey = ("items", index)
            named = _named(item, content)
            yield Document(named, {path[2:]: line for path, line in lines.items() if path[:2] == head})
    elif content is not None:
        yield Document(content, lines)


def _is_list(content: Any) -> bool:
    if not isinstance(content, Mapping) or not isinstance(content.get("items"), list):
        return False
    return str(content.get("kind")).endswith("List")


def _named(item: Any, listed: Mapping[str, Any]) -> Any:
    """Return an item of a list with its kind, which in a list of one kind it need not say."""
    if isinstance(item, Mapping) and not item.get("apiVersion") and not item.get("kind"):
        return {**item, "apiVersion": listed.get("apiVersion"), "kind": str(listed["kind"]).removesuffix("List")}
    return item


def _check_aliases(node: yaml.Node, file: Path) -> None:
    """Refuse aliases that stand for more than anybody could write out: a few lines of them can mean billions of values.

    Raises:
        InputError: they do, or one contains itself.
    """
    sizes: dict[yaml.Node, int] = {}
    if _size(node, sizes, file) - len(sizes) > _MOST_REPEATED:
        told = f"aliases that stand for more than {_MOST_REPEATED:,} values"
        raise InputError(told, file=file, line=node.start_mark.line + 1)


def _size(node: yaml.Node, sizes: dict[yaml.Node, int], file: Path) -> int:
    """Return how many values a node is, itself and all below it, with aliases written out; note it of each of them."""
    if node not in sizes:
        sizes[node] = _ENDLESS  # until it is known
        sizes[node] = 1 + sum(_size(each, sizes, file) for each in _below(node))
    elif sizes[node] == _ENDLESS:
        raise InputError("an alias that contains itself", file=file, line=node.start_mark.line + 1)
    return sizes[node]


def _below(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [each for pair in node.value for each in pair]
    return node.value if isinstance(node, yaml.SequenceNode) else []


def _value(node: yaml.Node, path: _PathKey, lines: dict[_PathKey, int], file: Path) -> Any:
    """Return the plain value of a node and note the line of everything in it."""
    lines.setdefault(path, node.start_mark.line + 1)
    if isinstance(node, yaml.SequenceNode):
        return [_value(item, (*path, index), lines, file) for index, item in enumerate(node.value)]
    if isinstance(node, yaml.MappingNode):
        return _mapping(node, path, lines, file)
    return _scalar(node, file)


def _mapping(node: yaml.MappingNode, path: _PathKey, lines: dict[_PathKey, int], file: Path) -> dict[str, Any]:
    mapping: dict[str, Any] = {}
    given = set()
    for key_node, value_node in node.value:
        line = key_node.start_mark.line + 1
        if key_node.tag == _MERGE:
            for merged in _merged(value_node, file):
                mapping |= _value(merged, path, lines, file)
            continue
        key = _key(key_node, file)
        if key in given:
            raise InputError(f"the key {key!r} is given twice", file=file, line=line)
        given.add(key)
        lines[*path, key] = line
        mapping[key] = _value(value_node, (*path, key), lines, file)
    return mapping


def _merged(node: yaml.Node, file: Path) -> list[yaml.Node]:
    """Return the mappings that `<<` takes in, the first of several last: as for kubectl, what is written later wins."""
    nodes = list(reversed(node.value)) if isinstance(node, yaml.SequenceNode) else [node]
    if not all(isinstance(each, yaml.MappingNode) for each in nodes):
        raise InputError("<<: expected a mapping, or a list of them", file=file, line=node.start_mark.line + 1)
    return nodes


def _key(node: yaml.Node, file: Path) -> str:
    """Return a key as JSON has it: text."""
    key = _scalar(node, file)
    return key if isinstance(key, str) else json.dumps(key, default=str)


def _scalar(node: yaml.Node, file: Path) -> Any:
    if node.tag in _TEXTS or (node.tag == _WHOLE and len(node.value) > _MOST_DIGITS):
        return node.value
    loader = _Loader("")
    try:
        value = loader.construct_object(node, deep=True)
        if isinstance(value, str):
            return _joined(value)
        # What no number can hold is text: a commit such as 12e4567.
        return node.value if value in (inf, -inf) and "inf" not in node.value.lower() else value
    except (yaml.YAMLError, ValueError) as error:
        line = node.start_mark.line + 1
        raise InputError(
            f"a value that cannot be read: {getattr(error, 'problem', error)}", file=file, line=line
        ) from error
    finally:
        loader.dispose()


def _joined(text: str) -> str:
    """Return a text with characters for surrogate pairs, as which JSON may spell those beyond 16 bits.

    Raises:
        ValueError: it has half of a pair.
    """
    if text.isascii():
        return text
    try:
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError as error:
        raise ValueError("half of a surrogate pair, which is no character") from error
