"""Specs as this operator reads them from an API server, whose CRDs may be of another version than itself.

A field that it does not know is left out: CRDs are upgraded first, and fill in the defaults of what the next version
brings. Nothing else of a spec is forgiven. Knows nothing of manifests, which are read strictly (`validate.py`).
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError

M = TypeVar("M", bound=BaseModel)


class ReadSpec(NamedTuple, Generic[M]):
    """A spec, or None and the problem in one line; and which fields of it this version does not know."""

    spec: M | None
    problem: str = ""
    unknown: tuple[str, ...] = ()


def read_spec(model: type[M], body: Any) -> ReadSpec[M]:
    """Return a spec as the model reads it, without the fields that it does not have."""
    try:
        return ReadSpec(model.model_validate(body))
    except ValidationError as error:
        rows = error.errors(include_url=False, include_input=False)
    wrong = next((row for row in rows if row["type"] != "extra_forbidden"), None)
    if wrong is not None:
        where = ".".join(str(part) for part in ("spec", *wrong["loc"]))
        return ReadSpec(None, f"{where}: {wrong['msg']}")
    for row in rows:
        body = _without(body, row["loc"])
    unknown = sorted({_field(row["loc"]) for row in rows})
    return ReadSpec(model.model_validate(body), unknown=tuple(unknown))


def _without(body: Any, path: Sequence[int | str]) -> Any:
    """Return a body without what stands at a path; only what is on the way there is copied."""
    first, *rest = path
    body = copy.copy(body)
    if rest:
        body[first] = _without(body[first], rest)
    else:
        del body[first]
    return body


def _field(path: Sequence[int | str]) -> str:
    """Return which field stands at a path, whatever its place in a list.

    >>> _field(("stages", 3, "weight"))
    'spec.stages[].weight'
    """
    return "spec" + "".join("[]" if isinstance(part, int) else f".{part}" for part in path)
