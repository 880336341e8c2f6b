"""The examples in the docstrings of traces, scenarios and metrics are true."""

from __future__ import annotations

import doctest
import importlib

import pytest


@pytest.mark.parametrize(
    "module",
    ["json_values", "metrics", "report.numbers", "trace_stats", "scenarios.base", "importers.alibaba"],
)
def test_docstring_examples(module: str) -> None:
    result = doctest.testmod(importlib.import_module(f"fermata.sim.{module}"))
    assert result.attempted > 0
    assert result.failed == 0
