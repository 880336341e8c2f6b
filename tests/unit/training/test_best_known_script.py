"""The yardsticks of `scripts/best_known.py`: what it tunes is the best that it tried, and optima are no worse."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from tests.scripts import script

from fermata.policy.registry import load
from fermata.sim.scenarios import scenario
from fermata.sim.scenarios.two_sizes import TwoSizes

best_known = script("best_known")
FEW = replace(scenario("express_k2"), jobs=600, warm=50)


def test_of_the_rules_that_it_draws_it_takes_the_best() -> None:
    base, seeds = load("sjf"), range(3)
    traces = [FEW.generate(seed) for seed in seeds]
    sizes = best_known.Sizes(10.0, 200.0)
    rng = np.random.default_rng(0)
    drawn = [best_known.drawn_rule(rng, sizes) for _ in range(12)]
    base_s = best_known.means_s(FEW, traces, base)
    values = [float((best_known.means_s(FEW, traces, load(rule.spec)) / base_s).mean()) for rule in drawn]
    assert len(set(values)) > 6
    assert best_known.tuned_rule(FEW, base, seeds, 12, 0) == drawn[int(np.argmin(values))]
    better = best_known.tuned_rule(FEW, base, seeds, 12, 12)
    assert (best_known.means_s(FEW, traces, load(better.spec)) / base_s).mean() <= min(values)


def test_a_rule_near_another_keeps_most_of_it() -> None:
    rng, sizes = np.random.default_rng(1), best_known.Sizes(10.0, 200.0)
    rule = best_known.drawn_rule(rng, sizes)
    near = best_known.moved_rule(rng, sizes, rule)
    assert 1 <= sum(a != b for a, b in zip(rule, near, strict=True)) <= 3
    assert abs(near.tau - rule.tau) <= 0.2 * 0.6 * 200.0


def test_the_optimum_is_below_the_best_that_never_idles_and_that_below_shortest_first() -> None:
    small = replace(FEW, executors=2, recipe=TwoSizes(load=0.7, long_share=0.1, long_s=100.0), jobs=3000)
    row = best_known.row_of(small, range(10, 14), 8, 4, 100_000)
    means = {kind: float(change.mean()) for kind, change in row.change_pct.items()}
    assert means["optimum"] < means["never idle"] < 0.0
    assert means["optimum"] < means["rule"] + 0.5
    assert means["optimum"] < means["model"] + 0.5
    table = best_known.table_of([row])
    assert f"{means['optimum']:+.2f} ± " in table
    assert row.rule in table


def test_too_many_states_leave_the_optimum_out() -> None:
    row = best_known.row_of(FEW, range(2), 2, 0, 1000)
    assert row.change_pct.keys() == {"model", "rule"}
    assert best_known.table_of([row]).splitlines()[2].endswith("|  |  |")
