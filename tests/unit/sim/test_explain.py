"""What a model learned, where it is known: linear models whose weights a test has set, and the shipped one at work."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.models import linear_model

from fermata.cli.main import run
from fermata.policy.action import WAIT, any_startable
from fermata.policy.decide import Step
from fermata.policy.errors import InputError
from fermata.policy.features import FEATURES, ORDER, SIZE, candidates
from fermata.policy.guardrails import Guardrails
from fermata.policy.heuristics.kernel import choose_eager
from fermata.policy.learned import ACTIONS, WAIT_FOR_EVENT, action_of, pick_in_use
from fermata.policy.onnx_policy import OnnxPolicy
from fermata.policy.reason import GROUPS
from fermata.policy.registry import load
from fermata.policy.several_slots import best_stage, read_choices, several_slots
from fermata.policy.slot_features import NAMES
from fermata.policy.slot_scores import SHIPPED
from fermata.policy.slot_weights import WIDTHS
from fermata.policy.state import ClusterState
from fermata.sim.engine import DECIDE, advance, apply
from fermata.sim.experiment import figures_of
from fermata.sim.explain import Explanation, States, Workload, collect, explain
from fermata.sim.explain.chapter import chapter_of
from fermata.sim.explain.dependence import Curve, a_long_is_the_head, dependence, with_longs, with_next
from fermata.sim.explain.distributions import Distribution, cumulative, distance, distributions
from fermata.sim.explain.explanation import Behaviour
from fermata.sim.explain.figures import LINEAR, behaviour, dependence_on_next, permutation, where_it_holds
from fermata.sim.explain.importance import Importance, permuted
from fermata.sim.explain.scored import chosen, scores
from fermata.sim.explain.states import interval
from fermata.sim.generate.estimates import read_noise
from fermata.sim.learned_loop import next_decision
from fermata.sim.metrics import Interval
from fermata.sim.report import Report, render
from fermata.sim.report.drawing import LIGHT
from fermata.sim.scenarios import scenario
from fermata.sim.simulate import simulate
from fermata.sim.trace import Trace
from fermata.sim.world import new_world, tables_of

SHORT, NEXT, LONGS = "share of arrivals under half a unit", "next completion / unit", "waiting jobs up to 2 units"
EXPRESS = scenario("express_k2").with_(jobs=600, warm=50)
WORKLOADS = [
    Workload(each.name, each.executors, each.generate, each.warm)
    for each in (EXPRESS, scenario("dag_pods").with_(jobs=200, warm=20))
]


def default() -> OnnxPolicy:
    policy = load("default")
    assert isinstance(policy, OnnxPolicy)
    return policy


def fermata(*arguments: str) -> int:
    """Run `fermata policy explain` in this process and return its exit code."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["fermata", "policy", "explain", *arguments])
        try:
            run()
        except SystemExit as stopped:
            return int(stopped.code or 0)
    return 0


@pytest.fixture(scope="module")
def states() -> States:
    return collect(default(), WORKLOADS, [3, 4], Guardrails(), 300)


@pytest.fixture(scope="module")
def found() -> Explanation:
    return explain(default(), WORKLOADS, [3, 4], most=200, top=2)


def test_episodes_and_decisions_are_those_of_the_simulator() -> None:
    policy, taken = default(), Counter[str]()

    def see(_: ClusterState, steps: tuple[Step, ...]) -> None:
        taken.update("wait" if math.isfinite(step.action.until_s) else "start" for step in steps)

    mine = collect(policy, WORKLOADS[:1], [3], Guardrails(), 100)
    episode = simulate(EXPRESS.generate(3), EXPRESS.executors, policy, observer=see)
    assert mine.outcomes[0][0].avg_jct_s == figures_of(episode, EXPRESS.warm)["avg_jct_s"]
    head, alternative, wait = mine.taken[0, 0].tolist()
    assert head + alternative == taken["start"] == 600
    assert wait >= taken["wait"] > 0
    assert (len(mine.rows), mine.picked.shape, mine.costs.shape) == (100, (100,), (100, 3))


@pytest.mark.parametrize(
    ("name", "changes", "noise", "weights", "waits"),
    [
        pytest.param("pairs_k1_30", {}, None, None, 50, id="idle pools"),
        pytest.param("k8s_cron", {}, None, None, 5, id="batches"),
        pytest.param("express_k2", {}, "lognormal=0.8", None, -1, id="missed estimates"),
        pytest.param("dag_pods", {}, "lognormal=0.8", None, -1, id="missed estimates of DAGs"),
        pytest.param(
            "express_k2_80", {"executors": 16, "load": 0.9, "long_share": 0.2, "jobs": 600}, None, None, 5, id="throngs"
        ),
        pytest.param("express_k2_80", {}, None, (1.0, 1.0, 1.0, 8.0), 5, id="weights"),
    ],
)
def test_what_it_does_is_what_it_did(
    name: str, changes: dict[str, float], noise: str | None, weights: tuple[float, ...] | None, waits: int
) -> None:
    chosen = scenario(name).with_(**{"jobs": 200, "warm": 0} | changes)
    chosen = replace(chosen, estimates=None if noise is None else read_noise(noise))
    policy = default()

    def draw(seed: int) -> Trace:
        trace = chosen.generate(seed)
        weight = np.random.default_rng(seed).choice(weights or (1.0,), trace.jobs)
        return replace(trace, job_weight=weight)

    world = new_world(tables_of(draw(3), chosen.executors), chosen.executors, corrects=True)
    taken, x, waited = np.zeros(len(ACTIONS), int), np.zeros(SIZE, np.float32), True
    while next_decision(world, ORDER, waited, x) == DECIDE:
        choice, costs = candidates(world.board, ORDER), policy.costs(x[np.newaxis])[0]
        picked = int(pick_in_use(world.board, choice, costs, policy.margin))
        taken[picked] += 1
        apply(world, *action_of(world.board, choice, picked))
        waited = picked == WAIT_FOR_EVENT
    mine = collect(policy, [Workload(name, chosen.executors, draw)], [3], Guardrails(), 10_000)
    assert mine.taken[0, 0].tolist() == taken.tolist()
    assert np.bincount(mine.picked, minlength=len(ACTIONS)).tolist() == taken.tolist()
    assert taken[WAIT_FOR_EVENT] > waits


def wide(seed: int) -> Trace:
    """Jobs of which every other takes one executor, and the others two or four, of four."""
    trace = EXPRESS.generate(seed)
    slots = np.array([1, 2, 1, 4], np.int32)[np.arange(trace.stages) % 4]
    return replace(trace, stage_slots=slots, job_arrival_s=trace.job_arrival_s * 1.3)


def test_where_tasks_take_several_executors_what_it_does_is_told_as_it_did_it() -> None:
    policy, waits = default(), 0

    def see(_: ClusterState, steps: tuple[Step, ...]) -> None:
        nonlocal waits
        waits += any(step.action.kind == WAIT for step in steps)

    mine = collect(policy, [Workload("wide", 4, wide)], [3], Guardrails(), 10_000)
    episode = simulate(wide(3), 4, policy, observer=see)
    assert mine.outcomes[0][0].avg_jct_s == figures_of(episode, 0)["avg_jct_s"]
    assert mine.taken[0, 0].tolist() == [600 - mine.taken[0, 0, 1], mine.taken[0, 0, 1], waits]
    assert waits > 50
    assert np.bincount(mine.picked, minlength=len(ACTIONS)).tolist() == mine.taken[0, 0].tolist()
    assert mine.scored.mean() > 0.5
    assert (mine.held & mine.scored).sum() > 50


def test_scores_are_those_of_the_policy() -> None:
    world = new_world(tables_of(wide(3), 4), 4, corrects=True)
    seen, rows = 0, np.zeros((WIDTHS, len(NAMES)))
    while seen < 200 and advance(world) == DECIDE:
        while any_startable(world.board) and several_slots(world.board):
            own = rows[: read_choices(world.board, rows)]
            assert best_stage(world.board)[1] == pytest.approx(scores(own, SHIPPED).max(), rel=1e-9, abs=1e-9)
            seen += 1
            apply(world, *choose_eager(world.board, ORDER))
        while any_startable(world.board):
            apply(world, *choose_eager(world.board, ORDER))
    assert seen == 200


def test_of_each_state_the_best_stage_is_chosen_or_none() -> None:
    of_stages = np.array([1.0, 3.0, -1.0, -2.0, 0.0, -1.0, -0.5, 2.0, 2.0])
    many, runs = np.array([2, 2, 1, 2, 2]), np.array([True, True, True, False, True])
    assert chosen(of_stages, many, runs).tolist() == [1, -1, -1, 6, 7]


def test_the_choices_between_widths_depend_on_what_is_read_of_stages() -> None:
    found = explain(default(), [Workload("wide", 4, wide), WORKLOADS[0]], [3, 4], most=200, top=0)
    assert found.scored == tuple(sorted(found.scored, key=lambda each: -each.changed.mean))
    assert {each.name for each in found.scored} == set(NAMES[:-1])
    assert 0.02 < found.scored[0].changed.mean <= 1.0
    same = next(each for each in found.scored if each.name == "log executors")
    assert same.changed == (0.0, 0.0)  # it is, throughout
    chapter = chapter_of(found)
    assert "scores" in [drawing.name for drawing in chapter.drawings]
    assert len(chapter.tables[2].rows) == len(NAMES) - 1
    assert any(f"In {found.states.scored.sum()} states a task in sight" in note for note in chapter.notes)
    assert found.as_dict()["scored_states"] == found.states.scored.sum()
    assert len(found.as_dict()["scored"]) == len(NAMES) - 1
    assert not a_long_is_the_head(found.states)[found.states.scored].any()


def test_the_sample_is_even(states: States) -> None:
    assert np.bincount(states.workload * 2 + states.seed).tolist() == [300] * 4
    taken = states.taken.sum(axis=1) / states.taken.sum(axis=(1, 2))[:, np.newaxis]
    for number in range(2):
        kept = np.bincount(states.picked[states.workload == number], minlength=3) / 600
        assert kept == pytest.approx(taken[number], abs=0.05)
    again = collect(default(), WORKLOADS, [3, 4], Guardrails(), 300)
    assert (again.rows == states.rows).all()


def test_permutation_finds_the_only_feature_that_a_model_reads(tmp_path: Path) -> None:
    policy = linear_model(tmp_path / "m.onnx", {SHORT: 1.0}, at_zero=-0.5)
    own = collect(policy, WORKLOADS, [3, 4], Guardrails(), 200)
    assert own.held.any()
    for each in permuted(policy, own):
        reads = each.name in (SHORT, "recent arrivals")
        assert (each.changed.mean > 0.01) == (each.shift.mean > 0.01) == reads, each
        assert reads or each.changed.mean == each.shift.mean == 0.0


def test_knowing_what_it_does_not_read_is_worth_nothing(tmp_path: Path) -> None:
    policy = linear_model(tmp_path / "m.onnx", {SHORT: 1.0}, at_zero=-0.5)
    told = explain(policy, WORKLOADS[:1], [3], most=100, top=1)
    assert told.features[0].name == SHORT
    assert told.features[0].jct_percent is not None
    assert abs(told.features[0].jct_percent.mean) > 0.1
    for each in told.groups:
        assert each.jct_percent is not None
        assert (each.jct_percent.mean == 0.0) == (each.name != "recent arrivals")
    assert all(each.jct_percent is None for each in told.features[1:])


def test_the_dependence_of_a_linear_model_has_its_signs_and_its_threshold(
    tmp_path: Path, states: States, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nothing is held in a crowd, whatever a model says; here it is the model's own threshold that is looked for.
    for bound in ("CROWD", "MOST"):
        monkeypatch.setattr(f"fermata.sim.explain.states.{bound}", math.inf)
    policy = linear_model(tmp_path / "m.onnx", {NEXT: 1.0, LONGS: -0.1}, at_zero=-0.1)
    curves = dependence(policy, states)
    assert curves.states == a_long_is_the_head(states).sum() > 20
    for each in curves.on_next:
        shares, saves = [point.mean for point in each.held], [point.mean for point in each.saves]
        assert np.diff(saves).min() > 0.0
        expected = [float(np.log1p(at) - 0.1 * np.log1p(each.fixed) > 0.1) for at in each.at]
        assert shares == pytest.approx(expected)
    for each in curves.on_longs:
        assert np.diff([point.mean for point in each.saves]).max() < 0.0
        assert np.diff([point.mean for point in each.held]).max() <= 0.0


@pytest.mark.parametrize(("move", "name"), [(with_next, NEXT), (with_longs, LONGS)])
def test_what_is_moved_to_where_it_is_stays(
    states: States, move: Callable[[np.ndarray, float], np.ndarray], name: str
) -> None:
    rows = states.rows[a_long_is_the_head(states)]
    own = np.expm1(rows[:, FEATURES.index(name)].astype(float))
    moved = np.concatenate([move(row[np.newaxis], at) for row, at in zip(rows, own, strict=True)])
    kept = own > 1e-3  # at 0 nothing says how often something arrives before it
    assert moved[kept] == pytest.approx(rows[kept], abs=2e-3)
    assert move(rows, 3) != pytest.approx(rows, abs=1e-2)


def test_distributions_put_the_most_telling_feature_first(tmp_path: Path) -> None:
    assert distance(np.array([1.0, 2.0]), np.array([1.0, 2.0])) == 0.0
    assert distance(np.array([1.0, 2.0]), np.array([3.0])) == 1.0
    at, share = cumulative(np.array([1.0, 1.0, 2.0, 5.0]))
    assert (at.tolist(), share.tolist()) == ([1.0, 1.0, 2.0, 5.0], [0.5, 0.5, 0.75, 1.0])
    policy = linear_model(tmp_path / "m.onnx", {SHORT: 1.0}, at_zero=-0.5)
    own = collect(policy, WORKLOADS, [3], Guardrails(), 300)
    ordered = distributions(own)
    assert SHORT in [each.name for each in ordered[:8]]
    shares = next(each for each in ordered if each.name == SHORT)
    assert shares.held.min() > 0.5 > shares.every.min()
    assert sorted(each.name for each in ordered) == sorted(FEATURES)


def test_a_feature_that_is_the_same_in_every_held_state_is_a_line() -> None:
    same = Distribution("free share", np.array([0.0, 0.0, 0.5, 0.5]), np.array([0.5, 0.5]), 0.5)
    (axes,) = where_it_holds([same]).draw(LIGHT).axes
    drawn = {str(line.get_label()): np.transpose(line.get_data()).tolist() for line in axes.get_lines()}
    assert drawn["where it holds"][0] == [0.5, 0.0], "from nothing"
    assert drawn["where it holds"][-1] == [0.5, 1.0], "to all of them"
    assert drawn["all states"][:2] == [[0.0, 0.0], [0.0, 0.5]]


def test_an_axis_of_shares_ends_with_all_of_them() -> None:
    of_two_seeds = Importance("free share", (1,), False, Interval(0.3, 1.5), Interval(0.1, 0.1))
    (axes,) = permutation([of_two_seeds]).draw(LIGHT).axes
    assert axes.get_xlim() == (0.0, 100.0)


@pytest.mark.parametrize(("fixed", "told"), [((1.0, 2.0), True), ((math.nan,), False)])
def test_a_caption_tells_of_the_waiting_longs_where_they_were_varied(fixed: tuple[float, ...], told: bool) -> None:
    share = (Interval(0.5, 0.1),)
    drawing = dependence_on_next([Curve(each, np.array([0.1]), share, ()) for each in fixed])
    assert ("by the number of jobs of the head's size" in drawing.caption) is told
    assert ("by the number of jobs of the head's size" in drawing.label) is told


def test_a_model_that_never_holds(tmp_path: Path) -> None:
    told = explain(linear_model(tmp_path / "m.onnx", {}, at_zero=-1.0), WORKLOADS[:1], [3], most=50, top=0)
    assert told.distributions == ()
    page = render(Report("Never", "", [], chapters=[chapter_of(told)]))
    assert "It waited in none of these states" in page
    assert "No decision changes where a single feature is dealt out anew" in page
    assert "What the decisions depend on" not in page, "a chart of nothing but zeros names the largest of them"
    assert "One seed: there are no intervals." in page
    of_a_trace = render(Report("Never", "", [], chapters=[chapter_of(told, seeded=False)]))
    assert "One schedule: there are no intervals." in of_a_trace
    assert "seed" not in of_a_trace.lower(), "a trace is what it is"
    numbers = told.as_dict()
    assert numbers["scenarios"]["express_k2"]["actions"]["wait"] == {"mean": 0.0, "ci95": None}
    assert json.loads(json.dumps(numbers, allow_nan=False)) == numbers


def test_intervals_are_over_seeds() -> None:
    assert interval(np.array([[1.0, 3.0], [3.0, 5.0]])).mean == 3.0
    assert interval(np.array([[1.0, 3.0], [3.0, 5.0]])).ci95 == pytest.approx(12.706, abs=1e-3)
    assert interval(np.array([[1.0, 3.0], [3.0, np.nan]])).mean == 2.0
    assert math.isnan(interval(np.array([[1.0]])).ci95)


def test_guardrails_hold_here_too(tmp_path: Path) -> None:
    policy = linear_model(tmp_path / "m.onnx", {}, at_zero=1.0)  # always waits while something runs
    held_s = [
        collect(policy, WORKLOADS[:1], [3], Guardrails(max_hold_s=most_s), 10).outcomes[0][0].avg_held_s
        for most_s in (1.0, math.inf)
    ]
    assert held_s[0] <= 1.0 + 1e-9 < held_s[1]


def test_nothing_to_explain_from() -> None:
    with pytest.raises(InputError, match="at least one workload"):
        explain(default(), [], [1])
    with pytest.raises(InputError, match="leaves none of 600 jobs"):
        explain(default(), [Workload("w", 2, EXPRESS.generate, 600)], [1])
    with pytest.raises(InputError, match="at least 1 executor, got 0"):
        explain(default(), [Workload("w", 0, EXPRESS.generate)], [1])


def test_the_chapter_has_all_drawings_and_every_feature(found: Explanation) -> None:
    chapter = chapter_of(found)
    names = [drawing.name for drawing in chapter.drawings]
    assert names == [
        "importance", "worth", "hold-next-completion", "hold-longs", "saving-next-completion", "actions",
        "where-it-holds",
    ]  # fmt: skip
    assert len(chapter.tables[1].rows) == SIZE + len(GROUPS)
    assert sum(bool(row[3]) for row in chapter.tables[1].rows) == 2 + len(GROUPS)
    page = render(Report("Fermata", "", [], chapters=[chapter]))
    assert page.count("<svg role") == len(names)
    assert "head&#39;s task / unit" in page
    assert "a unit its job&#39;s remaining work" in page


@pytest.mark.parametrize(
    ("name", "value", "label"),
    [
        ("arrivals like the head that one of under half a unit follows, share", 1.0, "1.0"),
        ("error of recent estimates", 0.4, "0.4"),
        ("log free executors", math.log(2.0), "2"),
        ("waiting jobs", math.log1p(3.0), "3"),
    ],
)
def test_an_axis_says_what_was_counted_and_not_what_the_model_reads_of_it(name: str, value: float, label: str) -> None:
    assert name in FEATURES
    values = np.linspace(0.0, 2.0 * value, 50)
    figure = where_it_holds([Distribution(name, values, values, 0.0)]).draw(LIGHT)
    figure.draw_without_rendering()
    axes = figure.axes[0]
    found = {tick.get_text(): at for tick, at in zip(axes.get_xticklabels(), axes.get_xticks(), strict=True)}
    assert found.get(label, found.get(f"{value:.2f}")) == pytest.approx(value), found


@pytest.mark.filterwarnings("error")  # "axes sizes collapsed to zero"
@pytest.mark.parametrize("name", ["b\udcff.jsonl", "x" * 250])
def test_a_trace_may_be_called_anything(name: str) -> None:
    third = Interval(1.0 / 3.0, 0.0)
    figure = behaviour([Behaviour(name, 3, (third, third, third), third, third)]).draw(LIGHT)
    figure.draw_without_rendering()
    assert figure.axes[0].get_position().width > 0.4


def test_shares_are_drawn_as_they_are() -> None:
    assert {name for name in FEATURES if "share" in name.split()} <= LINEAR <= set(FEATURES)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["sjf"], "'sjf' is a rule, not a model"),
        (["none.onnx"], "none.onnx: cannot be read"),
        (["default", "--scenario", "expres"], "no scenario 'expres'"),
        (["default", "--seeds", "4-3"], "3 is below 4"),
        (["default", "--top", "-1"], "--top: expected 0 or more, got -1"),
        (["default", "--states", "0"], "--states: expected 1 to 100,000, got 0"),
        (["default", "--max-hold", "nan"], "--max-hold: expected 0 s or more"),
        (["default", "--out", "/nowhere/r.html"], "no such folder"),
        (["default", "--out", "/"], "is a folder"),
        (["default", "--out", "-"], "standard output has the figures"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fermata(*arguments) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert complaint in lines[0]


def test_the_command_prints_numbers_and_writes_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "r.html"
    arguments = ["default", "--scenario", "dag_pods", "--seeds", "3", "--top", "0", "--states", "50"]
    assert fermata(*arguments, "--out", str(out), "--json") == 0
    numbers = json.loads(capsys.readouterr().out)
    assert (numbers["model"], numbers["states"], numbers["report"]) == ("default", 50, str(out))
    assert numbers["sha256"] == default().digest
    page = out.read_text()
    assert numbers["sha256"] in page
    assert "Seed 3; each workload" in page
    assert "95% intervals" not in page, "of one seed there are none"
    assert fermata(*arguments) == 0
    text = capsys.readouterr().out
    assert "what the decisions depend on" in text
    assert "dag_pods" in text
