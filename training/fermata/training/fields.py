"""What configurations are made of: sections in which every key is known and every number bounded, and kinds of numbers.

None of it changes what a valid configuration says, nor its digest.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Annotated, Any, TypeVar, get_args, get_origin

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from fermata.sim.scenarios.base import MAX_JOBS
from fermata.sim.trace import MAX_EXECUTORS

N = TypeVar("N", int, float)
LEAST, MOST = 1e-12, 1e10  # of a number but 0, whatever its sign: beyond, their products are soon none any more
_MOST_SHOWN = 80  # characters of what was given
# What several kinds of configurations say of the same field.
SEED = "Of all that is drawn."
PROCESSES = "Worker processes, by default one a core; does not change the result."


class Section(BaseModel):
    """A part of a configuration."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _no_truth_for_a_number(cls, given: Any, info: ValidationInfo) -> Any:
        # To Python yes is a 1: `epochs: yes` would train for one epoch.
        values = given if isinstance(given, list | tuple) else (given,)
        truth = next((value for value in values if isinstance(value, bool)), None)
        if truth is not None and cls.model_fields[str(info.field_name)].annotation is not bool:
            raise ValueError(f"expected neither true nor false, got {truth}")
        return given

    @field_validator("*", mode="before")
    @classmethod
    def _a_list_where_one_belongs(cls, given: Any, info: ValidationInfo) -> Any:
        kind = cls.model_fields[str(info.field_name)].annotation
        if get_origin(kind) is not tuple:
            return given
        is_list, entries = isinstance(given, list | tuple), get_args(kind)
        size = None if Ellipsis in entries else len(entries)
        if is_list and size in (None, len(given)):
            return given
        got = f"one of {len(given)}" if is_list else f"{given!r:.{_MOST_SHOWN}}"
        raise ValueError(f"expected a list{'' if size is None else f' of {size} in brackets'}, got {got}")

    @field_validator("*", mode="after")
    @classmethod
    def _no_size_beyond_arithmetic(cls, given: Any) -> Any:
        for value in given if isinstance(given, tuple) else (given,):
            if isinstance(value, int | float) and value != 0 and not LEAST <= abs(value) <= MOST:
                raise ValueError(f"expected 0, or {LEAST:g} to {MOST:g} in size, got {value!r:.{_MOST_SHOWN}}")
        return given


class Whole(Section, ABC):
    """The configuration of a whole run; everything that it learns follows from this and the version of the code."""

    @property
    @abstractmethod
    def digest(self) -> str:
        """Sha256 over everything that changes the result."""


def _rising(ends: tuple[N, N]) -> tuple[N, N]:
    """Refuse a range whose end lies before its beginning."""
    if ends[1] < ends[0]:
        raise ValueError(f"expected the lower end first, got {ends[0]:g} and {ends[1]:g}")
    return ends


Positive = Annotated[float, Field(gt=0)]
Rate = Annotated[float, Field(gt=0, le=1)]  # of learning: what Adam moves a weight by
Bias = Annotated[float, Field(ge=-1e6, le=1e6)]  # of an output: beyond, single precision holds nothing beside it
Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1, le=MAX_JOBS)]  # of jobs, states and what else there is one by one
Width = Annotated[int, Field(ge=1, le=4096)]  # of a layer
_Part = Annotated[float, Field(gt=0, le=1)]
_Executors = Annotated[int, Field(ge=1, le=MAX_EXECUTORS)]
SEEDS = 2**32
Seed = Annotated[int, Field(ge=0, lt=SEEDS)]
Range = Annotated[tuple[Positive, Positive], AfterValidator(_rising)]
Shares = Annotated[tuple[_Part, _Part], AfterValidator(_rising)]
Counts = Annotated[tuple[Count, Count], AfterValidator(_rising)]
Pools = Annotated[tuple[_Executors, _Executors], AfterValidator(_rising)]
