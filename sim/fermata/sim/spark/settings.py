"""The settings that the published simulators of Spark were measured in, and variations of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any, Self

from fermata.policy.errors import InputError
from fermata.sim.trace import MAX_EXECUTORS


@dataclass(frozen=True)
class SparkSetting:
    """How queries are drawn, and what they run on.

    Args:
        name: what the command line calls it.
        sequence: whose way of drawing queries, see `fermata.sim.importers.tpch.SEQUENCES`.
        executors: size of the pool.
        jobs: how many queries arrive.
        gap_s: mean time between arrivals, seconds.
        moving_delay_s: how long an executor takes to another job, seconds.
        ahead: whether executors may be kept for, or sent to, a stage whose parents still run.
    """

    name: str
    sequence: str
    executors: int
    jobs: int
    gap_s: float = 25.0
    moving_delay_s: float = 2.0
    ahead: bool = True

    def with_(self, **changes: Any) -> Self:
        """Return the same setting with other parameters.

        Raises:
            InputError: no such parameter, or a value that makes no sense.

        >>> spark_setting("tpch_e1").with_(moving_delay_s=8).moving_delay_s
        8
        """
        for key, value in changes.items():
            if key not in _EXPECTED:
                close = get_close_matches(key, _EXPECTED, n=1)
                hint = f"did you mean {close[0]!r}?" if close else f"it has: {', '.join(_EXPECTED)}"
                raise InputError(f"scenario {self.name!r} has no parameter {key!r}; {hint}")
            kind, least, most = _EXPECTED[key]
            fits = type(value) is kind or (kind is float and type(value) is int)
            if not fits or not least <= value <= most:
                raise InputError(f"{key} of {self.name!r} must be {_told(kind, least, most)}, not {value!r}")
        return replace(self, **changes)


# What may be changed: its type, the least and the most; a query each millisecond for days is not what is meant.
_EXPECTED: dict[str, tuple[type, float, float]] = {
    "executors": (int, 1, MAX_EXECUTORS),
    "jobs": (int, 1, 100_000),
    "gap_s": (float, 0.001, 1e6),
    "moving_delay_s": (float, 0.0, 1e6),
    "ahead": (bool, False, True),
}


def _told(kind: type, least: float, most: float) -> str:
    if kind is bool:
        return "true or false"
    return f"a {'whole number' if kind is int else 'number'} from {least:g} to {most:,.0f}"


# Decima's paper calls its busy cluster of 50 executors A; C is a small and overloaded one. E1 and E2 are the same for
# its successor. Queries arrive every 25 s on average.
SETTINGS = {
    each.name: each
    for each in (
        SparkSetting("tpch_a", "decima", 50, 201),
        SparkSetting("tpch_c", "decima", 10, 50),
        SparkSetting("tpch_e1", "spark", 10, 50),
        SparkSetting("tpch_e2", "spark", 50, 200),
    )
}


def spark_setting(name: str) -> SparkSetting:
    """Return the setting of this name.

    Raises:
        InputError: there is none; the message lists all names.
    """
    try:
        return SETTINGS[name]
    except KeyError:
        raise InputError(f"no TPC-H setting {name!r}; there are: {', '.join(SETTINGS)}") from None
