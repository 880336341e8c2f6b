"""The examples in docstrings are true."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = [ROOT / room for room in ("policy", "sim", "training", "operator", "cli")]
WITH_EXAMPLES = {
    ".".join(file.relative_to(room).with_suffix("").parts): room.name
    for room in ROOMS
    for file in sorted(room.rglob("*.py"))
    if ">>> " in file.read_text(encoding="utf-8")
}


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_examples(name: str) -> None:
    if WITH_EXAMPLES[name] == "training":
        pytest.importorskip("torch")
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted > 0
    assert result.failed == 0
