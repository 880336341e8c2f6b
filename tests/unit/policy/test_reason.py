"""The reason for a hold: what the model weighed in that state, and nothing where there is no such reason."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from tests.models import linear_model

from fermata.policy.action import WAIT
from fermata.policy.decide import Step
from fermata.policy.errors import ModelError
from fermata.policy.features import FEATURES, SEVERAL, SIZE, WIDE
from fermata.policy.heuristics.sjf import SJF
from fermata.policy.learned import START_ALTERNATIVE, START_HEAD
from fermata.policy.reason import GROUPS, reason_of, typical, words_for_wait
from fermata.policy.registry import load
from fermata.policy.state import ClusterState
from fermata.sim.scenarios import scenario
from fermata.sim.simulate import simulate

SHORT = "share of arrivals under half a unit"
NEXT = "next completion / unit"
DUE = "arrivals of under half a unit due before the next completion"
TYPICAL = {"typical": [np.linspace(low, low + 0.1, SIZE).tolist() for low in (0.0, 0.2, 0.4)]}


def test_every_feature_is_in_one_group() -> None:
    assert Counter(name for group in GROUPS for name in group.features) == Counter(FEATURES)
    assert sorted(column for group in GROUPS for column in group.columns) == list(range(SIZE))


def test_a_linear_model_owes_each_group_its_weights(tmp_path: Path) -> None:
    policy = linear_model(tmp_path / "m.onnx", {SHORT: 0.5, NEXT: -0.25}, at_zero=0.1, metadata=TYPICAL)
    usual = np.array(TYPICAL["typical"][0], np.float32)
    row = usual.copy()
    row[[SEVERAL, WIDE]] = 0.0
    row[FEATURES.index(SHORT)] = 0.8
    row[FEATURES.index(NEXT)] = np.log1p(1.5)
    found = reason_of(policy, row)
    adds = dict(found.arguments)
    assert found.saves == pytest.approx(0.1 + 0.5 * 0.8 - 0.25 * np.log1p(1.5), abs=1e-6)
    assert adds.pop("recent arrivals") == pytest.approx(0.5 * (0.8 - usual[FEATURES.index(SHORT)]), abs=1e-6)
    assert adds.pop("completions") == pytest.approx(-0.25 * (np.log1p(1.5) - usual[FEATURES.index(NEXT)]), abs=1e-6)
    assert list(adds.values()) == pytest.approx([0.0] * 7, abs=1e-6)
    assert found.arguments[0][0] == "recent arrivals"
    assert found.words == ("80% of recent arrivals are under half its length",)


@pytest.mark.parametrize(
    ("number", "said", "verb"),
    [(0.2, "hardly any job", "is"), (1.2, "about one job", "is"), (4.3, "about 4 jobs", "are")],
)
def test_a_reason_says_what_is_due(tmp_path: Path, number: float, said: str, verb: str) -> None:
    policy = linear_model(tmp_path / "m.onnx", {DUE: 1.0}, metadata=TYPICAL)
    row = np.array(TYPICAL["typical"][0], np.float32)
    row[[SEVERAL, WIDE]] = 0.0
    row[FEATURES.index(DUE)] = np.log1p(number)
    assert reason_of(policy, row).words == (
        f"{said} of under half its length {verb} due before the next executor frees",
    )


def test_typical_is_what_the_expert_for_a_state_was_taught(tmp_path: Path) -> None:
    policy, row = linear_model(tmp_path / "m.onnx", {SHORT: 1.0}, metadata=TYPICAL), np.zeros(SIZE, np.float32)
    assert typical(policy, row) == pytest.approx(TYPICAL["typical"][0])
    row[SEVERAL] = 0.1
    assert typical(policy, row) == pytest.approx(TYPICAL["typical"][1])
    row[WIDE] = 0.1
    assert typical(policy, row) == pytest.approx(TYPICAL["typical"][2])
    for foreign in (
        {},
        {"typical": [[0.0], [1.0]]},
        {"typical": 3},
        {"typical": [1, 2, 3]},
        {"typical": [["x"] * SIZE] * 3},
    ):
        with pytest.raises(ModelError, match=f"what is typical of its {SIZE} features"):
            typical(linear_model(tmp_path / "m.onnx", {SHORT: 1.0}, metadata=foreign), row)


def test_starting_the_head_needs_no_reason(tmp_path: Path) -> None:
    policy = linear_model(tmp_path / "m.onnx", {SHORT: 1.0}, metadata=TYPICAL)
    for action in (START_HEAD, 3):
        with pytest.raises(ValueError, match="other than starting the head"):
            reason_of(policy, np.zeros(SIZE, np.float32), action)
    assert reason_of(policy, np.zeros(SIZE, np.float32), START_ALTERNATIVE).saves == -1.0  # bounded


class Broken:
    """A model that decides and then fails."""

    name, metadata = "broken", {}

    def costs(self, rows: object) -> object:
        raise ModelError("no")


def test_words_stand_with_the_holds_of_a_model_and_with_nothing_else() -> None:
    policy, seen = load("default"), Counter[tuple[bool, bool]]()

    def see(state: ClusterState, steps: tuple[Step, ...]) -> None:
        text = words_for_wait(policy, state, steps)
        seen[steps[-1].action.kind == WAIT, bool(text)] += 1
        assert not text or text.startswith("waiting looks ")
        assert words_for_wait(SJF, state, steps) == words_for_wait(Broken(), state, steps) == ""
        assert words_for_wait(None, state, steps) == words_for_wait(policy, state, ()) == ""

    express = scenario("express_k2").with_(jobs=400, warm=0)
    simulate(express.generate(3), express.executors, policy, observer=see)
    assert seen[True, True] > 5
    assert seen[False, False] > 100
    assert len(seen) == 2
