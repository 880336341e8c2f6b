"""What `fermata policy info` says fits a screen, and `--json` says all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.models import linear_model
from typer.testing import CliRunner

from fermata.cli.policy import app
from fermata.policy.registry import HEURISTICS, load

SCORE = {
    "scenario": "norm50", "base": "sjf", "seeds": 3, "avg_jct_s": 37.22, "ci95_s": 0.8, "base_jct_s": 37.3,
    "vs_base_pct": -0.11, "vs_base_ci95": 0.23, "p99_vs_base_pct": 4.7, "max_vs_base_pct": 0.0, "held_s_per_job": 0.1,
}  # fmt: skip


def told(*arguments: str) -> str:
    done = CliRunner().invoke(app, ["info", *arguments])
    assert done.exit_code == 0, done.output
    return done.stdout


def test_the_shipped_model_fits_a_screen() -> None:
    lines = told("default").splitlines()
    assert max(map(len, lines)) <= 130
    assert "features: 53 (--json shows them)" in lines
    assert sum(" ± " in line for line in lines) == 14  # a row for each scenario
    everything = json.loads(told("default", "--json"))
    assert len(everything["features"]) == 53
    assert "theta" not in everything["allocation"]


@pytest.mark.parametrize(("policy", "line"), [("sjf", "parameters: none"), ("sjf-cp", "kind: heuristic")])
def test_a_heuristic_says_what_it_is(policy: str, line: str) -> None:
    assert line in told(policy).splitlines()


def test_a_heuristic_says_what_its_parameters_are() -> None:
    lines = told("sjf-hold:split=100").splitlines()
    assert any(line.startswith("  split=100: executor-seconds of work from which a job is long; 0: ") for line in lines)
    assert "  tau=60: hold while the next completion is further away than so many seconds" in lines
    assert "  max_longs=1000000: hold only while fewer long jobs wait" in lines
    assert json.loads(told("sjf-hold", "--json"))["parameters"]["theta"]["value"] == "-inf"


@pytest.mark.parametrize("name", sorted(HEURISTICS))
def test_what_is_told_of_parameters_may_be_written_and_changes_nothing(name: str) -> None:
    settings = HEURISTICS[name].settings()
    assert settings.keys() == HEURISTICS[name].parameters.keys()
    written = ",".join(f"{key}={setting['value']}" for key, setting in settings.items())
    assert load(f"{name}:{written}" if written else name).rule == HEURISTICS[name].rule  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("scores", "rows"),
    [
        ({"seeds": [1, 2, 3], "scenarios": {"norm50": SCORE}}, 1),
        ({"scenarios": {"x": {"mean": 3}}}, 0),
        ({"scenarios": {"norm50": SCORE | {"vs_base_pct": "good"}}}, 0),
        ({}, 0),
        ([], 0),
    ],
)
def test_scores_are_a_table_if_they_are_ours(scores: object, rows: int, tmp_path: Path) -> None:
    linear_model(tmp_path / "m.onnx", {}, metadata={"scores": scores})
    assert told(str(tmp_path / "m.onnx")).count("-0.11 ± 0.23") == rows
