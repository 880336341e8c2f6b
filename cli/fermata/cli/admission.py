"""What is wrong with an object of our group, by the operator and by an API server with the schemas of `deploy/crds`.

Also by what it says of the fields and types of pod templates, when it is given their Jobs. The API server's part is the
embedded control plane's: pydantic, which reads specs for the operator, takes "5" for 5. Knows no rules between fields;
those are among the operator's own.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from fermata.operator import reasons
from fermata.operator.crds import manifests
from fermata.operator.names import POOL
from fermata.operator.validate import Problem, object_problems
from fermata.sim.kube import metadata, names, schema
from fermata.sim.kube.builtin_types import clean_metadata, clean_template, release

_UNKNOWN = "unknown field"
_PART = re.compile(r"\[(\d+)\]|([^.\[\]]+)")
_MISTYPED = re.compile(r"into field (\S+) of type")


def problems(raw: Any) -> list[Problem]:
    """Return all that is wrong with an object as a user wrote it; [] if nothing is."""
    content = _without_nulls(raw)
    found = object_problems(content)
    if _schema(content) is None:
        return found
    more = refusals(content)
    if content["kind"] == POOL:
        from fermata.operator.builtin import policy_problems  # to know all policies takes as long as all else

        more += policy_problems(content.get("spec"))
    # Of one value two may say the same, each in its own words.
    known = {problem.path for problem in found}
    return found + [problem for problem in more if problem.path not in known]


def refusals(raw: Mapping[str, Any]) -> list[Problem]:
    """Return why an API server would not store an object of our group; [] if it would."""
    content = copy.deepcopy(dict(raw))
    structure = _schemas()[content["kind"]]
    schema.drop_nulls(content, structure)
    unknown = schema.prune(content, structure)
    content.pop("status", None)  # which a server drops, too
    schema.set_defaults(content, structure)
    found = list(schema.validate(content, structure))
    told = [(cause.field, cause.message) for cause in found]
    if isinstance(meta := content.get("metadata"), dict):
        strange, wrong = clean_metadata(meta)
        unknown += strange
        if not meta.get("name") and isinstance(prefix := meta.get("generateName"), str):
            meta["name"] = f"{prefix[:58]}{metadata.suffix()}"
        if field := _MISTYPED.search(wrong):
            told.append((field[1], wrong))
        else:
            causes = metadata.validate(meta, wrong_name=names.wrong_subdomain, any_finalizer=True, old=None)
            told += [(cause.field, cause.message) for cause in causes]
        if wrong := _wrong_namespace(content["kind"], meta.get("namespace")):
            told.append(("metadata.namespace", f'Invalid value: "{meta["namespace"]}": {wrong}'))
    told = [*((field, _UNKNOWN) for field in unknown), *told]
    known = {field for field, _ in told}
    told += [(field, message) for field, message in _misfits(content) if field not in known]
    return [_problem(field, message) for field, message in told]


def _wrong_namespace(kind: str, namespace: Any) -> str:
    """Return what is wrong with the name of an object's namespace; a pool has none, so kubectl leaves it out."""
    return names.wrong_label(namespace) if kind != POOL and isinstance(namespace, str) and namespace else ""


def _misfits(content: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield where and why an API server would not take the Job of a stage, of whose pods our schemas know little."""
    spec = content.get("spec")
    stages = spec.get("stages") if isinstance(spec, dict) else None
    for index, stage in enumerate(stages if isinstance(stages, list) else []):
        template = stage.get("template") if isinstance(stage, dict) else None
        if isinstance(template, dict):
            unknown, wrong = clean_template(template, f"spec.stages[{index}].template")
            told = f"{_UNKNOWN} in Kubernetes {release()}; a newer cluster may know it"
            yield from ((field, told) for field in unknown)
            if field := _MISTYPED.search(wrong):
                yield field[1], wrong


def _without_nulls(raw: Any) -> Any:
    """Return an object without the nulls that an API server takes for nothing, or for an empty text in metadata."""
    if (structure := _schema(raw)) is None:
        return raw
    content = copy.deepcopy(dict(raw))
    schema.drop_nulls(content, structure)
    meta = content.get("metadata")
    for key in ("labels", "annotations"):
        if isinstance(meta, dict) and isinstance(meta.get(key), dict):
            meta[key] = {name: "" if value is None else value for name, value in meta[key].items()}
    return content


def _schema(raw: Any) -> dict[str, Any] | None:
    """Return the schema of an object's kind; None if it is no object, or of no kind of ours."""
    kind = raw.get("kind") if isinstance(raw, Mapping) else None
    return _schemas().get(kind) if isinstance(kind, str) else None


@cache
def _schemas() -> dict[str, dict[str, Any]]:
    """Return the schema of each kind."""
    return {
        manifest["spec"]["names"]["kind"]: manifest["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        for manifest in manifests()
    }


def _problem(field: str, message: str) -> Problem:
    return Problem(reasons.INVALID_SPEC, f"{field}: {message}", tuple(_parts(field)))


def _parts(field: str) -> Iterator[str | int]:
    """Yield the parts of a path as the API writes it; a key with dots falls apart, which only costs its line.

    >>> list(_parts("spec.stages[0].name"))
    ['spec', 'stages', 0, 'name']
    """
    for index, name in _PART.findall(field):
        yield int(index) if index else name
