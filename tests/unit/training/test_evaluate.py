"""Scores of a policy, seed by seed, and what an interrupt leaves of them."""

from __future__ import annotations

import json
import sys
from dataclasses import replace

import numpy as np
import pytest
from tests.shared_data import require_shared
from typer.testing import CliRunner

from fermata.cli.evaluate import app
from fermata.cli.main import run
from fermata.cli.tables import scores_table, show
from fermata.policy.errors import InputError
from fermata.policy.guardrails import Guardrails
from fermata.policy.registry import load
from fermata.sim.generate.estimates import read_noise
from fermata.sim.generate.weights import read_weights
from fermata.sim.metrics import mean_ci95
from fermata.sim.simulate import simulate
from fermata.sim.spark.experiment import run_tpch_seed, tpch_setting
from fermata.sim.spark.settings import spark_setting
from fermata.training.card import score_lines
from fermata.training.evaluate import Conditions, evaluate, names_of, read_corrections

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


def test_a_table_shows_whole_figures_whatever_the_width(capsys: pytest.CaptureFixture[str]) -> None:
    (score,) = evaluate("sjf", ["norm50"], SEEDS[:2])
    large = replace(score, scenario="a name [as] long as some", avg_jct_s=1234567.89, ci95_s=654321.09)
    large = replace(large, vs_base_pct=-1234.5, p99_vs_base_pct=21234.5, max_vs_base_pct=54321.5, held_s_per_job=9876.5)
    show(scores_table("runs/[best].onnx", [large]))
    shown = capsys.readouterr().out
    assert "runs/[best].onnx" in shown
    for figure in (large.scenario, "1234567.89 ± 654321.09", "-1234.50", "+21234.5", "+54321.5", "9876.50"):
        assert figure in shown
    assert "…" not in shown


def test_a_policy_against_itself_changes_nothing() -> None:
    (score,) = evaluate("sjf", ["norm50"], SEEDS[:2])
    assert (score.base, score.vs_base_pct, score.vs_base_ci95) == ("sjf", 0.0, 0.0)
    assert score.avg_jct_s == score.base_jct_s > 0.0


def test_a_scenario_that_is_named_twice_is_played_once() -> None:
    assert names_of("express_k2, pairs_k1_30,express_k2") == ["express_k2", "pairs_k1_30"]


def test_all_scenarios_may_stand_among_others() -> None:
    assert len(names_of("all")) > 10
    assert "fig1" not in names_of("all")  # nothing in it is random
    assert sorted(names_of("fig1, all,express_k2,tpch_a")) == sorted([*names_of("all"), "fig1", "tpch_a"])


def test_conditions_hold_for_policy_and_base() -> None:
    noisy = Conditions(jobs=600, parameters=(("load", 0.5),), noise=read_noise("class-flips=0.3"))
    (same,) = evaluate("sjf", ["norm200"], SEEDS, conditions=noisy)
    (known,) = evaluate("sjf", ["norm200"], SEEDS, conditions=replace(noisy, noise=None))
    (busier,) = evaluate("sjf", ["norm200"], SEEDS, conditions=Conditions(jobs=600))
    assert same.vs_base_pct == 0.0
    assert same.avg_jct_s > known.avg_jct_s > 0.0
    assert known.avg_jct_s < busier.avg_jct_s
    hold = "sjf-hold:split=50,tau=100"
    (capped,) = evaluate(hold, ["norm200"], SEEDS, conditions=Conditions(jobs=600, limits=Guardrails(0.0, 0.0)))
    assert capped.held_s_per_job == 0.0
    with pytest.raises(InputError, match="nonsense"):
        evaluate("sjf", ["norm200"], SEEDS, conditions=Conditions(parameters=(("nonsense", 1),)))


def test_who_gets_corrected_estimates_can_be_said() -> None:
    noisy = Conditions(jobs=800, noise=read_noise("lognormal=0.7"))
    alone, nobody, all_ = (
        evaluate("default", ["dag_wide"], SEEDS, conditions=replace(noisy, corrections=each))[0]
        for each in ("policy", "none", "all")
    )
    assert alone.avg_jct_s == all_.avg_jct_s < nobody.avg_jct_s
    assert alone.base_jct_s == nobody.base_jct_s != all_.base_jct_s
    with pytest.raises(InputError, match="--corrections: expected policy, all, none, got 'both'"):
        read_corrections("both")


def test_where_jobs_have_weights_the_mean_by_weight_is_told_too(capsys: pytest.CaptureFixture[str]) -> None:
    weights = read_weights("any=4")
    (score,) = evaluate("fifo", ["norm200"], SEEDS[:2], conditions=Conditions(jobs=300, weights=weights))
    of, changes = Conditions(jobs=300).scenario("norm200"), []
    for seed in SEEDS[:2]:
        trace = weights(of.generate(seed), seed)
        fifo, sjf = (simulate(trace, of.executors, load(name)).job_jct_s[of.warm :] for name in ("fifo", "sjf"))
        by_weight = trace.job_weight[of.warm :]
        changes.append(100.0 * ((fifo * by_weight).sum() / (sjf * by_weight).sum() - 1.0))
    assert score.weighted_vs_base_pct == pytest.approx(np.mean(changes))
    assert score.weighted_vs_base_ci95 == pytest.approx(mean_ci95(changes).ci95)
    show(scores_table("fifo", [score]))
    shown = capsys.readouterr().out
    assert "by weight %" in shown
    assert f"{score.weighted_vs_base_pct:+.2f} ± {score.weighted_vs_base_ci95:.2f}" in shown
    (alike,) = evaluate("fifo", ["norm200"], SEEDS[:2], conditions=Conditions(jobs=300))
    assert (alike.weighted_vs_base_pct, alike.weighted_vs_base_ci95) == (None, None)
    show(scores_table("fifo", [alike]))
    assert "weight" not in capsys.readouterr().out


def test_stages_can_keep_their_executors_under_policy_and_base() -> None:
    (score,) = evaluate("sjf", ["dag_wide"], SEEDS[:2], conditions=Conditions(jobs=300, sticky=True))
    of = Conditions(jobs=300).scenario("dag_wide")

    def mean_s(policy: str, *, sticky: bool) -> float:
        runs = [simulate(of.generate(seed), of.executors, load(policy), sticky=sticky) for seed in SEEDS[:2]]
        return float(np.mean([run.job_jct_s[of.warm :].mean() for run in runs]))

    for policy, told_s in (("sjf", score.avg_jct_s), ("srwf", score.base_jct_s)):
        assert told_s == pytest.approx(mean_s(policy, sticky=True))
        assert told_s != pytest.approx(mean_s(policy, sticky=False))


def test_a_tpch_setting_is_scored_against_fair_sharing() -> None:
    folder = str(require_shared("data", "tpch"))
    (score,) = evaluate("srwf-work-share", ["tpch_e1"], SEEDS[:2], conditions=Conditions(tpch_dir=folder))

    def means(name: str) -> np.ndarray:
        of = spark_setting("tpch_e1")
        setting = tpch_setting(of, name, None, 0, Guardrails())
        runs = [run_tpch_seed(seed, folder, of, setting) for seed in SEEDS[:2]]
        return np.array([each.episode.job_jct_s.mean() for each in runs])

    own, fair = means("srwf-work-share"), means("spark-fair")
    assert (score.base, score.avg_jct_s) == ("spark-fair", pytest.approx(own.mean()))
    assert score.vs_base_pct == pytest.approx(100.0 * np.mean(own / fair - 1.0))


def test_a_tpch_setting_changes_as_it_is_told() -> None:
    folder = str(require_shared("data", "tpch"))
    changed = (("moving_delay_s", 8.0), ("executors", 20), ("ahead", False), ("jobs", 12))
    conditions = Conditions(jobs=50, parameters=changed, tpch_dir=folder)
    (score,) = evaluate("srwf", ["tpch_e1"], SEEDS[:2], conditions=conditions)
    of = spark_setting("tpch_e1").with_(**dict(changed))
    runs = [run_tpch_seed(seed, folder, of, tpch_setting(of, "srwf", None, 0, Guardrails())) for seed in SEEDS[:2]]
    assert [(each.episode.trace.jobs, each.episode.executors) for each in runs] == [(12, 20)] * 2
    assert score.avg_jct_s == pytest.approx(np.mean([each.episode.job_jct_s.mean() for each in runs]))
    (faster,) = evaluate("srwf", ["tpch_e1"], SEEDS[:2], conditions=replace(conditions, parameters=changed[1:]))
    assert faster.avg_jct_s < 0.97 * score.avg_jct_s


def test_another_policy_can_be_the_base() -> None:
    conditions = Conditions(jobs=300, against="fifo")
    (score,) = evaluate("sjf", ["express_k2"], SEEDS, conditions=conditions)
    (swapped,) = evaluate("fifo", ["express_k2"], SEEDS, conditions=replace(conditions, against="sjf"))
    assert (score.base, swapped.base) == ("fifo", "sjf")
    assert score.vs_base_pct < -5.0 < 5.0 < swapped.vs_base_pct
    assert (score.base_jct_s, score.avg_jct_s) == (swapped.avg_jct_s, swapped.base_jct_s)
    with pytest.raises(InputError, match="no-such"):
        evaluate("sjf", ["express_k2"], SEEDS, conditions=replace(conditions, against="no-such"))


@pytest.mark.parametrize(
    ("conditions", "told"),
    [
        (Conditions(), "tpch_c needs --tpch-dir DIR"),
        (
            Conditions(limits=Guardrails(1.0), tpch_dir="x"),
            "tpch_c knows no later parameters",
        ),
        (Conditions(sticky=True, tpch_dir="x"), "limits on holding, weights, or --sticky"),
        (Conditions(weights=read_weights("any=2"), tpch_dir="x"), "limits on holding, weights, or --sticky"),
        (Conditions(parameters=(("gap", 3.0),), tpch_dir="x"), "no parameter 'gap'; did you mean 'gap_s'?"),
        (Conditions(parameters=(("ahead", 1),), tpch_dir="x"), "ahead of 'tpch_c' must be true or false, not 1"),
        (Conditions(jobs=10**15, tpch_dir="x"), "jobs of 'tpch_c' must be a whole number from 1 to 100,000, not 10"),
        (Conditions(parameters=(("gap_s", float("nan")),), tpch_dir="x"), "gap_s of 'tpch_c' must be a number from"),
        (Conditions(tpch_dir="/no/such"), "/no/such"),
    ],
)
def test_what_does_not_apply_to_tpch_is_told(conditions: Conditions, told: str) -> None:
    with pytest.raises(InputError, match=told):
        evaluate("srwf-work-share", ["tpch_c"], SEEDS[:2], conditions=conditions)


def test_a_mix_that_drifts_is_the_first_one_until_the_middle() -> None:
    drifting = Conditions(jobs=600, later=(("long_s", 1000.0),))
    chosen = drifting.scenario("express_k2")
    trace, early = chosen.generate(3), chosen.recipe.draw(np.random.default_rng(3), 300, chosen.executors)
    np.testing.assert_array_equal(trace.job_arrival_s[:300], early.job_arrival_s)
    assert set(trace.stage_estimate_s[:300]) == {10.0, 200.0}
    assert set(trace.stage_estimate_s[300:]) == {10.0, 1000.0}
    (score,) = evaluate("sjf", ["express_k2"], SEEDS, conditions=drifting)
    assert score.vs_base_pct == 0.0
    with pytest.raises(InputError, match="executors is one of the whole episode"):
        evaluate("sjf", ["norm200"], SEEDS, conditions=Conditions(later=(("executors", 3),)))


def test_a_warm_up_of_all_jobs_is_told() -> None:
    with pytest.raises(InputError, match=r"^norm50: a warm-up of 30 jobs leaves none of 30$"):
        evaluate("sjf", ["norm50"], SEEDS, conditions=Conditions(jobs=30, parameters=(("warm", 30),)))


@pytest.mark.parametrize("command", ["evaluate sjf", "policy headroom eager"])
def test_a_scenario_without_a_name_is_not_all_of_them(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if command.startswith("policy"):
        pytest.importorskip("torch", reason="needs the [training] extra")
    monkeypatch.setattr(sys, "argv", ["fermata", *command.split(), "--scenarios", ""])
    with pytest.raises(SystemExit) as exit_:
        run()
    assert exit_.value.code == 2
    err = capsys.readouterr().err
    assert err.startswith("fermata: no scenario ''; there are: fig1, pairs_k1_30, ")
    assert err.count("\n") == 1


@pytest.mark.parametrize("option", ["--set", "--later"])
def test_a_value_that_is_no_number_names_the_option(
    option: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["fermata", "evaluate", "sjf", "--scenarios", "norm50", option, "long_s=x"])
    with pytest.raises(SystemExit) as exit_:
        run()
    assert exit_.value.code == 2
    assert capsys.readouterr().err == f"fermata: {option} expects key=number or key=[numbers], not 'long_s=x'\n"


def test_scores_under_other_conditions_say_so_wherever_they_are_kept() -> None:
    few = ["fifo", "--scenarios", "norm50", "--seeds", "1-2", "--jobs", "1", "--json"]
    others = ["--episode-jobs", "200", "--set", "executors=2", "--set", "load=0.5", "--noise", "exact"]
    others += ["--max-hold", "5", "--weights", "any=2"]
    plain, changed = (json.loads(CliRunner().invoke(app, [*few, *more]).stdout) for more in ([], others))
    assert "conditions" not in plain
    assert score_lines(plain)[0].endswith(" of each scenario, seeds 1-2,")
    told = {
        "episode_jobs": 200,
        "set": ["executors=2", "load=0.5"],
        "weights": "any=2",
        "noise": "exact",
        "max_hold": 5.0,
    }
    assert changed["conditions"] == told
    words = "episode_jobs 200; set executors=2, load=0.5; weights any=2; noise exact; max_hold 5.0"
    assert score_lines(changed)[0].endswith(f", seeds 1-2, under other conditions: {words},")
