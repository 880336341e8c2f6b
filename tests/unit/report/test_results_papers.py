"""The page in the papers' terms: what its tables say follows from what was measured."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from tests.scripts import script


@pytest.fixture(scope="module")
def papers() -> ModuleType:
    pytest.importorskip("matplotlib", reason="needs the [report] extra")
    return script("results_papers")


def test_a_table_of_the_ablation_has_both_intervals_and_what_was_held(papers: ModuleType) -> None:
    cell = {"variant": "(1,1)", "scenario": "syn_60", "change_pct": -1.5, "ci95_training": 0.25, "ci95_episodes": 0.5}
    effect = {"part": "both", "scenario": "syn_60", "change_pct": 2.0, "ci95_training": 1.0, "ci95_episodes": 0.75}
    found = {
        "config": "graph-paper",
        "cells": [cell | {"training_seeds": 5, "held_s": 0.125}],
        "effects": [effect],
    }
    text = "\n".join(papers.ablation(found))
    assert "`graph-paper`, 5 training seeds:" in text
    assert "| (1,1) | -1.50 ± 0.25 / 0.50; held 0.12 s |" in text
    assert "| both | +2.00 ± 1.00 / 0.75 |" in text
    found["effects"] = [effect | {"ci95_training": None}]
    assert "| both | +2.00 ± \N{EN DASH} / 0.75 |" in papers.ablation(found)


def test_means_have_intervals_over_seeds(papers: ModuleType) -> None:
    assert papers.plusminus(np.array([1.0, 3.0])) == "2.0 ± 12.7"


def test_a_drawing_is_saved_and_shown(papers: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(papers, "DOCS", tmp_path)
    line = {"sjf": [1.0, 2.0]}
    shown = papers.picture(papers.lines_of("two", "Two points", line, line, ("x", "y"), log="x"))
    assert shown[0] == "![Two points](papers/two.svg)"
    assert (tmp_path / "papers" / "two.svg").read_text().count("<svg") == 1
    assert "$" not in (tmp_path / "papers" / "two.svg").read_text()  # powers would be formulas
    assert not list((tmp_path / "papers").glob("*.png"))
