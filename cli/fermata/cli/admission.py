"""What an API server refuses before any operator sees it, by the schemas that it is given in `deploy/crds`.

The check is the embedded control plane's: pydantic, which reads specs for the operator, takes "5" for 5. Knows no
rules between fields; those are among the operator's own.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from fermata.operator import reasons
from fermata.operator.crds import manifests
from fermata.operator.validate import Problem
from fermata.sim.kube import metadata, schema

_PART = re.compile(r"\[(\d+)\]|([^.\[\]]+)")


def refusals(raw: Mapping[str, Any]) -> list[Problem]:
    """Return why an API server would not store an object of our group; [] if it would.

    Args:
        raw: an object in which the operator finds nothing wrong.
    """
    content = copy.deepcopy(dict(raw))
    content.pop("status", None)  # which a server drops, too
    structure, meta = _schemas()[content["kind"]], content["metadata"]
    if not meta.get("name"):
        meta["name"] = f"{meta['generateName'][:58]}{metadata.suffix()}"
    schema.drop_nulls(content, structure)
    problems = [_problem(field, "unknown field") for field in schema.prune(content, structure)]
    schema.set_defaults(content, structure)
    causes = [*metadata.validate(meta, path_name=False, any_finalizer=True, old=None)]
    causes += schema.validate(content, structure)
    return problems + [_problem(cause.field, cause.message) for cause in causes]


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
