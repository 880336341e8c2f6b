"""The figures of the README: what they show is what the simulator and the shipped model say today."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="needs the [report] extra")

from tests.scripts import script


@pytest.fixture(scope="module")
def figures() -> ModuleType:
    return script("figures")


def _texts(svg: Path) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]+)</text>", svg.read_text(encoding="utf-8"))


def test_the_checked_in_figures_are_current(figures: ModuleType, tmp_path: Path) -> None:
    written = figures.main(tmp_path)
    assert [path.name for path in written] == ["hold.svg", "scores.svg"]
    for path in written:
        told = _texts(path)
        assert len(told) > 10
        assert _texts(figures.OUT / path.name) == told, f"{path.name} is not current: python scripts/figures.py"
    assert not list(tmp_path.glob("*.png"))


def test_the_hold_is_what_the_page_says(figures: ModuleType) -> None:
    used, kept = figures.schedules().values()
    long = np.array([job.startswith("long") for job in used.job_ids])
    assert used.jct_s.tolist() == [40.0, 40.0, 40.0, 37.0, 34.0, 28.0, 24.0]
    assert kept.jct_s.tolist() == [40.0, 70.0, 4.0, 4.0, 4.0, 4.0, 4.0]
    assert used.wait_s.max() == 36.0
    assert (used.jct_s - kept.jct_s)[~long].sum() == 143.0
    assert kept.held_s.sum() == 10.0


def test_an_interval_has_no_negative_zero(figures: ModuleType) -> None:
    assert figures.interval(-0.04, 0.149) == "0.0 ± 0.1"
    assert figures.interval(-17.92, 0.69) == "\N{MINUS SIGN}17.9 ± 0.7"
    assert figures.interval(0.06, 0.0) == "+0.1 ± 0.0"
