"""One table of what `make bench` measured, with a calibration that makes two machines comparable."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

Row = tuple[str, float, dict[str, Any]]
_STEPS = 2_000_000
_ROWS = pytest.StashKey[list[Row]]()


@pytest.fixture(autouse=True)
def _noted(request: pytest.FixtureRequest) -> Iterator[None]:
    """Keep each benchmark's best time and what it says of itself for the table."""
    used = request.getfixturevalue("benchmark") if "benchmark" in request.fixturenames else None
    yield
    if used is not None and used.stats:
        rows = request.config.stash.setdefault(_ROWS, [])
        rows.append((request.node.name, float(used.stats.stats.min), dict(used.extra_info)))


def python_loop(steps: int) -> int:
    """Do what takes as long each time, but for the machine."""
    total = 0
    for step in range(steps):
        total += step
    return total


@pytest.fixture
def fixed_work() -> Callable[[], int]:
    """Return about half a millisecond of what takes as long each time: to measure beside what a tail is asked of."""
    return partial(python_loop, 15_000)


def calibration() -> tuple[float, float]:
    """Return how many million steps of a plain Python loop, and how many passes over 8 MB, this core does a second."""
    numbers = np.ones(1_000_000)
    best = [float("inf")] * 2
    for _ in range(5):
        for at, work in enumerate((partial(python_loop, _STEPS), numbers.sum)):
            began = time.process_time()
            work()
            best[at] = min(best[at], time.process_time() - began)
    return _STEPS / 1e6 / best[0], 1.0 / max(best[1], 1e-9)


def _written(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int | float) else str(value)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print the table."""
    rows = config.stash.get(_ROWS, [])
    if not rows:
        return
    loops, passes = calibration()
    terminalreporter.section("what was measured")
    terminalreporter.line(
        f"calibration: {loops:.1f} M steps of a Python loop and {passes:,.0f} sums over 8 MB a second"
    )
    width = max(len(name) for name, _, _ in rows)
    for name, least_s, told in rows:
        more = ", ".join(f"{key} {_written(value)}" for key, value in told.items())
        terminalreporter.line(f"{name:<{width}}  {least_s * 1000.0:12.3f} ms  {more}")
