"""What a scenario is: a recipe for jobs with its parameters, and the cluster it is meant for.

A scenario names an experiment so that two people mean the same one: the same name and seed give the same episode on
any machine. It knows nothing of policies beyond the name of the one that others are compared with.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, ClassVar, Protocol, Self, TypeVar

import numpy as np

from fermata.policy.errors import InputError
from fermata.sim.trace import MAX_EXECUTORS, Trace
from fermata.sim.trace_jobs import joined

MAX_JOBS = 10_000_000  # of an episode: some 10 GB
_LEAST, _MOST = 1e-12, 1e12  # of any parameter but 0: beyond them, sums of times are no longer what was meant
_AMOUNT = f"from {_LEAST:g} to {_MOST:g}, or 0"
_OWN_FIELDS = ("executors", "jobs", "warm")


class Recipe(Protocol):
    """A frozen dataclass of parameters that draws episodes; its docstring tells how, in words.

    A field with `given` in its metadata is no parameter: it is what the recipe works on.
    """

    __dataclass_fields__: ClassVar[dict[str, Any]]

    def draw(self, rng: np.random.Generator, jobs: int, executors: int) -> Trace:
        """Draw one episode of (about) `jobs` jobs for a cluster of `executors`."""
        ...


@dataclass(frozen=True)
class Scenario:
    """A named workload.

    Args:
        name: what the command line calls it.
        executors: how many the episode is meant for; recipes that are given a load use it.
        jobs: how many arrive.
        warm: jobs, by arrival, that every mean leaves out.
        base: name of the policy that others are compared with, seed by seed.
        recipe: draws the jobs.
        estimates: makes what the scheduler believes wrong, given the jobs and the seed; None: it knows the durations,
            or what the recipe says it believes.
        then: draws the later half of the jobs, if another one does.
    """

    name: str
    executors: int
    jobs: int
    warm: int
    base: str
    recipe: Recipe
    estimates: Callable[[Trace, int], Trace] | None = None
    then: Recipe | None = None

    def generate(self, seed: int) -> Trace:
        """The episode of a seed, 0 or more; the same on every machine and at every call.

        Raises:
            InputError: the seed is below 0, a parameter makes no sense, or no job is drawn.
        """
        if seed < 0:
            raise InputError(f"a seed must be 0 or more, not {seed}")
        later = 0 if self.then is None else self.jobs // 2
        trace = self.recipe.draw(np.random.default_rng(seed), self.jobs - later, self.executors)
        if self.then is not None and later > 0:
            trace = joined(trace, self.then.draw(np.random.default_rng([seed, later]), later, self.executors))
        if not trace.jobs:  # a recipe may draw about as many as it is asked for
            raise InputError(f"{self.name}: seed {seed} draws no job; expected jobs above {self.jobs}")
        return trace if self.estimates is None else self.estimates(trace, seed)

    @property
    def parameters(self) -> dict[str, Any]:
        """The recipe's parameters by name."""
        return {name: getattr(self.recipe, name) for name in _parameters(self.recipe)}

    @property
    def description(self) -> str:
        """How episodes are drawn, in words."""
        return inspect.getdoc(type(self.recipe)) or ""

    def drifting(self, **changes: Any) -> Self:
        """The same scenario in which parameters of the recipe change in the middle of an episode.

        Raises:
            InputError: the recipe has no such parameter, or a value makes no sense.
        """
        for key in changes:
            if key in _OWN_FIELDS:
                raise InputError(f"{key} is one of the whole episode; expected a parameter of the jobs")
        return dataclasses.replace(self, then=self.with_(**changes).recipe)

    def with_(self, **changes: Any) -> Self:
        """The same scenario with other parameters: its own (`executors`, `jobs`, `warm`) or the recipe's.

        A part of a parameter is named with a dot, as in `with_(**{"arrivals.burst_factor": 5.0})`.
        A load stays what it is when the number of executors changes: the arrivals become faster or slower.

        Raises:
            InputError: no such parameter, or a value that makes no sense.

        >>> from fermata.sim.scenarios import SCENARIOS
        >>> SCENARIOS["express_k2"].with_(executors=8, load=0.9, jobs=100).generate(1).jobs
        100
        """
        own = {key: value for key, value in changes.items() if key in _OWN_FIELDS}
        others = {key: value for key, value in changes.items() if key not in _OWN_FIELDS}
        recipe = _with_parameters(self.recipe, others, f"scenario {self.name!r}", _OWN_FIELDS)
        for key, least in (("executors", 1), ("jobs", 1), ("warm", 0)):
            value = own.get(key, least)
            if type(value) is not int or value < least:
                raise InputError(f"{key} must be a whole number of at least {least}, not {value!r}")
        for key, most in (("executors", MAX_EXECUTORS), ("jobs", MAX_JOBS)):
            if own.get(key, 1) > most:
                raise InputError(f"{key} must be at most {most:,}, not {own[key]}")
        return dataclasses.replace(self, recipe=recipe, **own)


_Parameters = TypeVar("_Parameters", bound=Recipe)


def _parameters(owner: Recipe) -> list[str]:
    return [name for name, each in owner.__dataclass_fields__.items() if not each.metadata.get("given")]


def _with_parameters(
    owner: _Parameters, changes: Mapping[str, Any], whose: str, beside: Iterable[str] = ()
) -> _Parameters:
    """A copy of a dataclass with fields changed; `a.b` is field `b` of the dataclass in field `a`.

    All at once: as many shares as sizes may follow from two changes. What could be changed `beside` its fields is only
    told of.
    """
    known = _parameters(owner)
    values: dict[str, Any] = {}
    parts: dict[str, dict[str, Any]] = {}
    for path, value in changes.items():
        key, dot, rest = path.partition(".")
        if key not in known:
            told = [*beside, *known]
            close = get_close_matches(key, told, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"it has: {', '.join(told)}"
            raise InputError(f"{whose} has no parameter {key!r}; {hint}")
        if dot:
            parts.setdefault(key, {})[rest] = value
        else:
            values[key] = _checked(owner, key, value, whose)
    for key, within in parts.items():
        old = values.get(key, getattr(owner, key))
        if not dataclasses.is_dataclass(old):
            raise InputError(f"parameter {key!r} of {whose} has no parts")
        values[key] = _with_parameters(old, within, f"{key!r} of {whose}")  # type: ignore[type-var]
    return dataclasses.replace(owner, **values)


def _checked(owner: Recipe, key: str, value: Any, whose: str) -> Any:
    """Return a value for a field of a dataclass, or raise InputError if it makes no sense there."""
    old = getattr(owner, key)
    if dataclasses.is_dataclass(old):
        if not dataclasses.is_dataclass(value):
            parts = ", ".join(f"{key}.{part}" for part in old.__dataclass_fields__)
            raise InputError(f"parameter {key!r} of {whose} is set in parts: {parts}")
    else:
        expected = _expected(str(owner.__dataclass_fields__[key].type), old, value)
        if expected is not None:
            raise InputError(f"parameter {key!r} of {whose} must be {expected}, not {value!r}")
    return value


def _expected(declared: str, old: Any, value: Any) -> str | None:
    """Return what a parameter must be that is declared so and was `old`, or None if the new value is such a one."""
    if declared.startswith("tuple[float"):
        fits, what = isinstance(value, tuple) and all(map(_is_amount, value or [None])), f"a list of numbers {_AMOUNT}"
    elif isinstance(old, tuple):
        kind = type(old[0])
        fits = isinstance(value, tuple) and all(isinstance(each, kind) for each in value or [None])
        what = f"a list of {kind.__name__}"
    elif declared == "int":
        fits, what = isinstance(value, int) and _is_amount(value), f"a whole number {_AMOUNT}"
    else:
        fits, what = _is_amount(value) or (value is None and "None" in declared), f"a number {_AMOUNT}"
    return None if fits else what


def _is_amount(value: Any) -> bool:
    """Tell whether a value can be one of a parameter: all are times, rates, shares, spreads or counts."""
    return isinstance(value, int | float) and not isinstance(value, bool) and (value == 0 or _LEAST <= value <= _MOST)


def mean_gap_s(mean_work_s: float, load: float, executors: int) -> float:
    """Mean time between arrivals that keeps the share `load` of the executors busy.

    Raises:
        InputError: the load is not above 0.
    """
    if not load > 0.0:
        raise InputError(f"load must be above 0, not {load!r}")
    return mean_work_s / load / executors


def check_sigma(what: str, sigma: float) -> None:
    """Refuse a spread of a logarithm outside [0, 10]; at 10 the mean of a lognormal is e^50 medians."""
    if not 0.0 <= sigma <= 10.0:
        raise InputError(f"{what} must be in [0, 10], not {sigma!r}")


def check_share(what: str, share: float) -> None:
    """Refuse a share outside [0, 1]."""
    if not 0.0 <= share <= 1.0:
        raise InputError(f"{what} must be in [0, 1], not {share!r}")
