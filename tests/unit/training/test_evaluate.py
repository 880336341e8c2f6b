"""Scores of a policy, seed by seed, and what an interrupt leaves of them."""

from __future__ import annotations

import pytest

from fermata.training.evaluate import evaluate

NAMES, SEEDS = ["norm50", "norm200"], [2000, 2001, 2002]


def test_an_interrupt_leaves_the_scores_of_what_is_done() -> None:
    whole = evaluate("sjf", NAMES, SEEDS)
    assert [(score.scenario, score.seeds) for score in whole] == [("norm50", 3), ("norm200", 3)]

    def after(most: int) -> list[tuple[str, int]]:
        def on_done(done: int, total: int) -> None:
            assert total == 6
            if done == most:
                raise KeyboardInterrupt

        return [(score.scenario, score.seeds) for score in evaluate("sjf", NAMES, SEEDS, on_done=on_done)]

    assert after(2) == [("norm50", 2)]
    assert after(4) == [("norm50", 3)]
    assert after(5) == [("norm50", 3), ("norm200", 2)]
    with pytest.raises(KeyboardInterrupt):
        after(1)


def test_a_policy_against_itself_changes_nothing() -> None:
    (score,) = evaluate("sjf", ["norm50"], SEEDS[:2])
    assert (score.base, score.vs_base_pct, score.vs_base_ci95) == ("sjf", 0.0, 0.0)
    assert score.avg_jct_s == score.base_jct_s > 0.0
