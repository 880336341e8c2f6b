"""A trace of one's own: parted by time, pinned, and judged on what nothing was made from."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from fermata.cli.main import app, run
from fermata.policy.errors import InputError
from fermata.policy.features import FEATURES, SEVERAL
from fermata.policy.learned import WAIT_FOR_EVENT
from fermata.policy.registry import load
from fermata.sim.metrics import mean_ci95
from fermata.sim.scenarios import scenario
from fermata.sim.scenarios.blocks import TraceBlocks, offered_load
from fermata.sim.trace_builder import one_stage_trace
from fermata.sim.trace_io import write_trace
from fermata.training.card import score_lines
from fermata.training.choose import held_out_cases, judge
from fermata.training.collect import Unit, label_unit
from fermata.training.config import Fit, OwnTrace, TrainConfig, read_config, shipped_configs
from fermata.training.evaluate import Conditions, evaluate
from fermata.training.files import claim
from fermata.training.graph.config import GraphConfig, read_any
from fermata.training.own import (
    SHARES,
    as_scenario,
    check_learns,
    check_teaches,
    draw_own,
    only_for,
    own_trace,
    part_of,
    shares_of,
    with_kind,
)
from fermata.training.play import log_ratio
from fermata.training.workloads import draw


def written(folder: Path, name: str = "express_k2", jobs: int = 400) -> Path:
    path = folder / f"{name}.jsonl"
    write_trace(scenario(name).with_(jobs=jobs, warm=0).generate(5), path)
    return path


@pytest.fixture
def own(tmp_path: Path) -> OwnTrace:
    return own_trace(str(written(tmp_path)), (2, 2))


def smoke_on(own: OwnTrace) -> TrainConfig:
    config = read_config("smoke")
    return config.model_copy(update={"workloads": config.workloads.model_copy(update={"own": own})})


def sources(monkeypatch: pytest.MonkeyPatch, *modules: str) -> list[str]:
    """What the scenarios that these modules draw from now on are called."""
    names: list[str] = []

    def noted(*args: object) -> object:
        drawn = draw(*args)  # type: ignore[arg-type]
        names.append(drawn.name)
        return drawn

    for module in modules:
        monkeypatch.setattr(f"fermata.training.{module}.draw", noted)
    return names


@pytest.mark.parametrize(("jobs", "parts"), [(400, [200, 80, 120]), (403, [202, 80, 121])])
def test_parts_follow_each_other_in_time(tmp_path: Path, jobs: int, parts: list[int]) -> None:
    own = own_trace(str(written(tmp_path, jobs=jobs)), (2, 2))
    whole = part_of(own, "all")
    ids = [part_of(own, part).job_ids for part in ("teach", "choose", "test")]
    assert [each for part in ids for each in part] == whole.job_ids
    assert [len(each) for each in ids] == parts
    assert set(SHARES) == {"teach", "choose", "test", "all"}


@pytest.mark.parametrize("part", ["teach", "choose"])
def test_episodes_are_of_their_part_and_around_its_load(own: OwnTrace, part: str) -> None:
    loads = []
    for seed in range(30):
        drawn = draw_own(np.random.default_rng(seed), own, 300, part)
        assert drawn.executors == 2
        recipe = drawn.recipe
        assert isinstance(recipe, TraceBlocks)
        assert recipe.trace.job_ids == part_of(own, part).job_ids
        loads.append(recipe.load / offered_load(recipe.trace, 2))
    assert 0.8 <= min(loads) < 0.85
    assert 1.15 < max(loads) <= 1.2


def test_executors_are_drawn_from_their_range(tmp_path: Path) -> None:
    wide = own_trace(str(written(tmp_path)), (2, 4))
    drawn = {draw_own(np.random.default_rng(seed), wide, 10, "teach").executors for seed in range(40)}
    assert drawn == {2, 3, 4}


@pytest.mark.parametrize(("name", "kind"), [("express_k2", 0), ("dag_pods", 1), ("dag_wide", 2)])
def test_a_trace_teaches_the_kind_that_its_jobs_are_of(name: str, kind: int, tmp_path: Path) -> None:
    assert own_trace(str(written(tmp_path, name)), (4, 4)).kind == kind


@pytest.mark.parametrize(("kind", "name"), [(0, "own"), (1, "random"), (2, "random")])
def test_what_decides_jobs_of_another_kind_is_taught_on_random_ones(own: OwnTrace, kind: int, name: str) -> None:
    ranges = smoke_on(own).workloads
    assert draw(np.random.default_rng(1), only_for(ranges, kind), 20).name.partition("-")[0] == name
    without = ranges.model_copy(update={"own": None})
    assert only_for(without, kind) == without


def test_another_file_is_not_taken_for_the_trace(own: OwnTrace, tmp_path: Path) -> None:
    changed = written(tmp_path, jobs=401)
    with pytest.raises(InputError, match=r"express_k2.jsonl: is not the trace that this run began with"):
        part_of(own_trace(str(changed), (2, 2)).model_copy(update={"sha256": own.sha256[::-1]}), "all")


def test_a_trace_that_is_wrong_is_told_by_the_name_that_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bad.jsonl").write_text("{}\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"^bad\.jsonl:1: "):
        own_trace("bad.jsonl", (2, 2))


def test_the_least_trace_that_can_be_parted_is_judged_on_five_blocks(tmp_path: Path) -> None:
    least = as_scenario(own_trace(str(written(tmp_path, jobs=200)), (2, 4)), "test")
    assert (least.jobs, least.warm, least.executors, least.parameters["block"]) == (60, 6, 2, 12)
    assert as_scenario(own_trace(str(written(tmp_path, jobs=600)), (2, 2)), "all").parameters["block"] == 100
    few = written(tmp_path, jobs=199)
    told = "expected 200 jobs or more, not 199: fewer are too few to judge by"
    with pytest.raises(InputError, match=rf"^{re.escape(str(few))}: {told} \(`fermata compare --trace` .*\)$"):
        own_trace(str(few), (2, 2))


def test_the_digest_goes_by_what_is_in_the_file_not_by_where_it_is(own: OwnTrace) -> None:
    config = smoke_on(own)
    assert smoke_on(own.model_copy(update={"path": "/elsewhere"})).digest == config.digest
    assert smoke_on(own.model_copy(update={"sha256": "0"})).digest != config.digest
    assert read_config("smoke").digest != config.digest


def test_a_run_says_that_its_trace_is_another_one(own: OwnTrace, tmp_path: Path) -> None:
    claim(tmp_path, smoke_on(own), lambda noted: True)
    (tmp_path / "network-0.pt").touch()
    claim(tmp_path, smoke_on(own.model_copy(update={"path": "/elsewhere"})), lambda noted: True)
    other = own.model_copy(update={"path": "/elsewhere", "sha256": "0"})
    with pytest.raises(InputError, match=r"another configuration \(workloads\.own\.sha256 is not the same\)"):
        claim(tmp_path, smoke_on(other), lambda noted: True)


def test_digests_of_runs_without_a_trace_are_what_they_were() -> None:
    # As the shipped model's metadata has it: a run that was begun before can be gone on with.
    assert read_any("default").digest == load("default").metadata["config_digest"]
    assert len({read_any(name).digest for name in shipped_configs()}) == len(shipped_configs())


def test_labels_and_choices_are_of_the_trace(own: OwnTrace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = smoke_on(own)
    names = sources(monkeypatch, "collect", "choose")
    label_unit(config, Unit(0, 0), None, tmp_path)
    cases = held_out_cases(config)
    assert names == ["own"] * (1 + config.fit.cases)
    assert {case.kind for case in cases} == {0}


def test_a_trace_of_dags_teaches_what_decides_dags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch", reason="needs the [training] extra")
    from fermata.training import search_episodes, threshold
    from fermata.training.network import CostNetwork

    config = smoke_on(own_trace(str(written(tmp_path, "dag_pods")), (4, 4)))
    names = sources(monkeypatch, "collect", "search_episodes")
    with np.load(label_unit(config, Unit(0, 0), None, tmp_path)) as file:
        assert (file["x"][:, SEVERAL] == 0.0).all()
    pods, wide = (threshold.Task(config, which, CostNetwork((4, 4))) for which in search_episodes.SEARCHED)
    assert (pods.generations, wide.generations) == (2, 0)
    search_episodes.numbered_case.cache_clear()
    assert {search_episodes.numbered_case(config, pods.which, number).executors for number in range(8)} == {4}
    assert names[1:] == ["own"] * 8


def test_where_tasks_take_several_executors_a_network_has_nothing_to_learn(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="needs the [training] extra")
    from fermata.training.train import train

    trace = scenario("express_k2").with_(jobs=400, warm=0).generate(5)
    write_trace(replace(trace, stage_slots=np.full(trace.stages, 2, np.int32)), tmp_path / "two.jsonl")
    config = smoke_on(own_trace(str(tmp_path / "two.jsonl"), (2, 2)))
    with np.load(label_unit(config, Unit(0, 0), None, tmp_path)) as file:
        assert file["x"].shape == (0, len(FEATURES))
    with pytest.raises(InputError, match=r"run: there was no decision to learn from: .* \(own-slots learns of these\)"):
        train(config, tmp_path / "run")


def rewritten(path: Path, change: Callable[[list[dict[str, Any]]], None]) -> str:
    """Change the jobs of a trace's file, and return its path."""
    jobs = [json.loads(line) for line in path.read_text().splitlines()]
    change(jobs)
    path.write_text("".join(json.dumps(job) + "\n" for job in jobs))
    return str(path)


def test_jobs_that_come_only_after_the_first_half_are_no_kind_to_teach(tmp_path: Path) -> None:
    def widen(jobs: list[dict[str, Any]]) -> None:
        jobs[-1]["stages"][0]["tasks"] = 2

    own = own_trace(rewritten(written(tmp_path), widen), (2, 2))
    assert part_of(own, "all").tasks > part_of(own, "all").stages
    assert own.kind == 0


def _of_kinds(tmp_path: Path, every: int, seconds: float, **stage: int) -> OwnTrace:
    """A trace of short single tasks, of which one in so many is something else, far apart: nobody waits."""

    def change(jobs: list[dict[str, Any]]) -> None:
        for number, job in enumerate(jobs):
            job["arrival_s"] = 10.0 * number
            job["stages"] = [{"name": "a", "duration_s": 1.0}]
            if number % every == 0:
                job["stages"] = [{"name": "a", "duration_s": seconds, **stage}]

    return own_trace(rewritten(written(tmp_path), change), (8, 8))


@pytest.mark.parametrize(("seconds", "kind", "share"), [(1.0, 0, 0.1), (45.0, 0, 0.5 - 0.1 / 2), (65.0, 2, 0.7)])
def test_a_trace_teaches_the_kind_that_is_in_sight_most_often(
    seconds: float, kind: int, share: float, tmp_path: Path
) -> None:
    own = _of_kinds(tmp_path, 10, seconds, tasks=2)
    assert with_kind(own, shares_of(own)).kind == kind
    assert shares_of(own) == pytest.approx([1.0 - share, 0.0, share, 0.0], abs=0.051)


def test_where_tasks_of_several_executors_are_in_sight_scores_decide_whatever_else_is(tmp_path: Path) -> None:
    own = _of_kinds(tmp_path, 10, 65.0, tasks=2, slots=2)
    assert shares_of(own) == pytest.approx([0.3, 0.0, 0.0, 0.7])
    assert with_kind(own, shares_of(own)).kind == 0
    own = _of_kinds(tmp_path, 1, 65.0, tasks=2, slots=2)
    assert with_kind(own, shares_of(own)).kind == 2, "there is nothing else"


def test_who_decides_is_looked_at_for_all_sizes_of_the_pool(tmp_path: Path) -> None:
    small, large, both = (
        shares_of(_of_kinds(tmp_path, 10, 45.0, tasks=4).model_copy(update={"executors": pools}))
        for pools in ((1, 1), (8, 8), (1, 8))
    )
    assert small[2] > both[2] > large[2] > 0.0


@pytest.mark.parametrize(("seconds", "config"), [(1.0, "own"), (65.0, "own-slots")])
def test_scores_are_learned_where_they_decide_most_often_and_a_mixture_is_told(
    seconds: float, config: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch", reason="needs the [training] extra")
    asked: list[str] = []
    for module in ("train", "slots.train"):
        monkeypatch.setattr(f"fermata.training.{module}.train", lambda config, *_, **__: asked.append(config.name))
    own = _of_kinds(tmp_path, 10, seconds, slots=2)
    done = CliRunner().invoke(app, ["train", "--trace", own.path, "--executors", "8", "--out", str(tmp_path / "run")])
    assert (done.exit_code, asked) == (0, [config]), done.output
    mixture = "in sight when jobs come: single tasks 90.0%, tasks of several executors 10.0%"
    assert (f"{own.path}: {mixture}; learned from the trace: single tasks\n" in done.stderr) == (config == "own")


def test_a_trace_in_which_dags_come_later_still_chooses_what_it_teaches(tmp_path: Path) -> None:
    def later(jobs: list[dict[str, Any]]) -> None:
        for job in jobs[200::5]:
            job["stages"].append({"name": "then", "depends_on": [job["stages"][0]["name"]], "duration_s": 10.0})

    own = own_trace(rewritten(written(tmp_path), later), (2, 2))
    chosen = part_of(own, "choose")
    assert chosen.stages > chosen.jobs
    assert {case.kind for case in held_out_cases(smoke_on(own))} == {own.kind} == {0}


def test_a_search_begins_where_jobs_of_its_kind_are_too_rare_to_be_met(own: OwnTrace, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="needs the [training] extra")
    from fermata.training import threshold
    from fermata.training.network import CostNetwork

    config = smoke_on(own.model_copy(update={"kind": 2}))
    begun = threshold._begin(threshold.Task(config, 2, CostNetwork((4, 4))))
    assert all(np.isfinite(array).all() for array in begun)


def at_once(jobs: list[dict[str, Any]]) -> None:
    for job in jobs:
        job["arrival_s"] = 0.0


def without_work(jobs: list[dict[str, Any]]) -> None:
    for job in jobs[:200]:
        job["stages"][0]["duration_s"] = 0.0


def without_work_later(jobs: list[dict[str, Any]]) -> None:
    for job in jobs[200:280]:
        job["stages"][0]["duration_s"] = 0.0


@pytest.mark.parametrize(
    ("change", "where"), [(at_once, "0% to 50%"), (without_work, "0% to 50%"), (without_work_later, "50% to 70%")]
)
def test_a_part_that_makes_no_load_is_told_before_anything_is_begun(
    change: Callable[[list[dict[str, Any]]], None],
    where: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("torch", reason="needs the [training] extra")
    path = rewritten(written(tmp_path), change)
    arguments = ["train", "--trace", path, "--executors", "2", "--out", str(tmp_path / "run")]
    code, text = told(arguments, monkeypatch, capsys)
    expected = f"from {where} of the jobs they come all at once or take no time: no load to teach at"
    assert (code, text) == (2, f"fermata: {path}: {expected}\n")
    assert not (tmp_path / "run").exists()


def test_a_trace_whose_name_is_no_text_is_judged_on_and_not_taught(own: OwnTrace) -> None:
    odd = Path(own.path).rename(Path(own.path).with_name("\udcff.jsonl"))  # one byte, 0xff, as Python spells it
    named = own_trace(str(odd), (2, 2))
    assert as_scenario(named, "test").jobs == 120
    with pytest.raises(InputError, match="expected a name that is UTF-8 text"):
        check_teaches(named)


@pytest.mark.parametrize(
    ("name", "kind", "learns"),
    [("quick", 0, True), ("quick", 1, False), ("default", 1, False), ("default", 2, True), ("own", 1, True)],
)
def test_a_configuration_learns_of_dags_only_by_a_search_for_a_rule_for_their_kind(
    own: OwnTrace, name: str, kind: int, learns: bool
) -> None:
    config = read_config(name)
    config = config.model_copy(
        update={"workloads": config.workloads.model_copy(update={"own": own.model_copy(update={"kind": kind})})}
    )
    if learns:
        check_learns(config)
    else:
        with pytest.raises(InputError, match=f"'{name}' searches for no rule for"):
            check_learns(config)


def test_a_graph_policy_is_chosen_on_another_part_than_it_is_taught_on(own: OwnTrace) -> None:
    pytest.importorskip("torch", reason="needs the [training] extra")
    from fermata.training.graph.rollouts import _HELD_OUT, drawn_scenario

    config = read_any("graph-smoke")
    assert isinstance(config, GraphConfig)
    config = config.model_copy(update={"workloads": config.workloads.model_copy(update={"own": own})})
    for number, part in ((0, "teach"), (_HELD_OUT, "choose")):
        drawn, _ = drawn_scenario(config, 0, number, 20)
        assert isinstance(drawn.recipe, TraceBlocks)
        assert drawn.recipe.trace.job_ids == part_of(own, part).job_ids


def test_an_episode_in_which_no_job_takes_any_time_is_as_long_as_under_the_base(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="needs the [training] extra")
    import torch

    from fermata.sim.networks import eager
    from fermata.training.graph.network import GraphNetwork
    from fermata.training.graph.rollouts import HeldOut, score_held_out, weights_of
    from fermata.training.network import CostNetwork

    # Of the 200 jobs to choose by one takes any time, so every other block of 100 has none; and nobody ever waits.
    path, arrival_s = tmp_path / "idle.jsonl", np.arange(1000) * 100.0
    duration_s = np.where(np.arange(1000) % 250 == 0, 9.0, 0.0)
    write_trace(one_stage_trace(arrival_s, duration_s, estimate_s=np.full(1000, 9.0)), path)
    config = smoke_on(own_trace(str(path), (2, 2)))
    cases = held_out_cases(config.model_copy(update={"fit": Fit(cases=8, case_jobs=100)}))
    assert {case.base_jct_s for case in cases} == {0.0, 0.09}
    assert judge(eager(), cases) == (0.0, 0.0, 0.0)
    waiting = CostNetwork((4, 4))
    with torch.no_grad():
        for parameter in waiting.experts[0].parameters():
            parameter.zero_()
        waiting.experts[0].scale[:] = 1e9  # no state is strange to it
        waiting.experts[0].layers[-1].bias[WAIT_FOR_EVENT - 1] = -1.0
    ratios = {case.base_jct_s: log_ratio(waiting.compiled(0.0), case) for case in cases}
    assert ratios[0.0] == 0.0 < ratios[0.09]
    graph = read_any("graph-smoke")
    assert isinstance(graph, GraphConfig)
    graph = graph.model_copy(update={"workloads": config.workloads})
    weights = weights_of(GraphNetwork(graph.network))
    assert score_held_out(HeldOut(graph, tuple(range(8)), weights)) == [1.0] * 8


def test_a_score_is_of_the_part_that_nothing_was_made_from(own: OwnTrace) -> None:
    conditions = Conditions(own=own)
    assert as_scenario(own, "test").jobs == 120
    (score,) = evaluate("fifo", ["own"], range(4), conditions=conditions)
    (more,) = evaluate("fifo", ["own"], range(16), conditions=conditions)
    assert (score.base, score.scenario) == ("srwf", "own")
    assert score.vs_base_pct > 1.0
    # Of one trace more resamples do not know more: the interval does not shrink towards nothing.
    assert more.vs_base_ci95 > 0.3 * score.vs_base_ci95
    (same,) = evaluate("srwf", ["own"], range(2), conditions=conditions)
    assert (same.vs_base_pct, same.vs_base_ci95) == (0.0, 0.0)


def test_scores_on_a_trace_say_of_which_one_and_of_which_pool(own: OwnTrace) -> None:
    asked = ["evaluate", "fifo", "--trace", own.path, "--executors", "3", "--seeds", "1-2", "--jobs", "1", "--json"]
    scores = json.loads(CliRunner().invoke(app, asked).stdout)
    assert scores["trace"] == {"executors": 3, "sha256": own.sha256}
    assert "conditions" not in scores
    assert f", on 3 executors (trace sha256 `{own.sha256[:16]}`)," in score_lines(scores)[0]


@pytest.mark.parametrize("jobs", [None, 30, 600])
def test_an_interval_says_what_the_trace_knows_however_short_it_is_and_however_long_its_episodes(
    tmp_path: Path, jobs: int | None
) -> None:
    # Nobody waits, so the JCTs are the durations: independent, and their mean has the error of the textbook.
    duration_s = np.random.default_rng(3).exponential(10.0, 200)
    path = tmp_path / "apart.jsonl"
    write_trace(one_stage_trace(np.arange(200) * 1000.0, duration_s), path)
    conditions = Conditions(jobs=jobs, own=own_trace(str(path), (1, 1)))
    (score,) = evaluate("fifo", ["own"], range(40), conditions=conditions)
    judged_s = duration_s[140:]
    assert score.ci95_s == pytest.approx(mean_ci95(judged_s).ci95, rel=0.35)


def test_what_is_drawn_from_is_no_parameter(own: OwnTrace) -> None:
    chosen = as_scenario(own, "test").with_(load=0.5, block=20, jobs=30)
    assert chosen.parameters == {"load": 0.5, "block": 20}
    with pytest.raises(InputError, match="has no parameter 'trace'"):
        chosen.with_(trace=3)


def told(arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    monkeypatch.setattr(sys, "argv", ["fermata", *arguments])
    with pytest.raises(SystemExit) as exit_:
        run()
    out, err = capsys.readouterr()
    return int(exit_.value.code or 0), out + err


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["evaluate", "srwf", "--trace", "TRACE"], "--trace needs --executors"),
        (["evaluate", "srwf", "--executors", "2"], "--executors is of a --trace"),
        (["evaluate", "srwf", "--trace", "TRACE", "--executors", "0"], "--executors: expected 1 to 100,000, got 0"),
        (["evaluate", "srwf", "--trace", "TRACE", "--executors", "2", "--part", "x"], "expected test or all, got 'x'"),
        (["evaluate", "srwf", "--trace", "TRACE", "--executors", "2", "--scenarios", "all"], "expected one of them"),
        (["evaluate", "srwf", "--trace", "/no/such", "--executors", "2"], "/no/such: cannot read it: No such file"),
        (["evaluate", "srwf", "--trace", "", "--executors", "2"], "expected the name of a file, got ''"),
        (["evaluate", "srwf", "--trace", "-", "--executors", "2"], "expected a file"),
        (["evaluate", "srwf", "--trace", "PIPE", "--executors", "2"], "PIPE: expected a file: a trace is read more"),
        (["evaluate", "srwf", "--trace", "FEW", "--executors", "2"], "200 jobs or more, not 20: fewer are too few"),
        (["evaluate", "srwf", "--trace", "NOTHING", "--executors", "2"], "NOTHING: no job takes any time"),
        (["train", "--out", "r", "--trace", "TRACE"], "--trace needs --executors"),
        (["train", "--out", "r", "--executors", "2"], "--executors is of a --trace"),
        (["train", "--out", "r", "--trace", "", "--executors", "2"], "expected the name of a file, got ''"),
        (["train", "--out", "r", "--trace", "TRACE", "--executors", "3-2"], "--executors: 2 is below 3"),
        (["train", "--out", "r", "--trace", "TRACE", "--executors", "a"], "expected a number or A-B, got 'a'"),
        (
            ["train", "--out", "r", "--trace", "TRACE", "--executors", "2", "--config", "graph-pods"],
            "jobs of its own",
        ),
        (
            ["train", "--out", "r", "--trace", "DAGS", "--executors", "4", "--config", "default"],
            "DAGS: 'default' searches for no rule for DAGs of single tasks (search.generations), so it would learn",
        ),
        (["train", "--out", "r", "--trace", "DAGS", "--executors", "4", "--config", "quick"], "--config own does"),
        (
            ["train", "--out", "r", "--trace", "SLOTS", "--executors", "1-4"],
            "SLOTS: job 'j0', stage 's0': a task needs 3 slots, but the pool has 1",
        ),
    ],
)
def test_what_does_not_go_together_is_told(
    arguments: list[str],
    expected: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if arguments[0] == "train":
        pytest.importorskip("torch", reason="needs the [training] extra")
    monkeypatch.chdir(tmp_path)
    trace = scenario("express_k2").with_(jobs=300, warm=0).generate(5)
    write_trace(replace(trace, stage_slots=np.full(trace.stages, 3, np.int32)), "SLOTS")
    write_trace(trace, "TRACE")
    os.mkfifo("PIPE")
    write_trace(scenario("express_k2").with_(jobs=20, warm=0).generate(5), "FEW")
    write_trace(scenario("dag_pods").with_(jobs=300, warm=0).generate(5), "DAGS")
    write_trace(replace(trace, task_duration_s=np.zeros(trace.tasks)), "NOTHING")
    code, text = told(arguments, monkeypatch, capsys)
    assert code == 2
    assert expected in text
    assert text.count("\n") == 1
    assert not Path("r").exists()


@pytest.mark.parametrize(("part", "jobs"), [([], "last 30% of its jobs"), (["--part", "all"], "all jobs of the trace")])
def test_a_table_says_which_jobs_of_the_trace_it_is_of(
    tmp_path: Path, part: list[str], jobs: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--trace", str(written(tmp_path)), "--executors", "2", "--seeds", "0-1", "--jobs", "1", *part]
    code, text = told(["evaluate", "fifo", *options], monkeypatch, capsys)
    assert (code, text.splitlines()[0]) == (0, f"fifo: average JCT against the base, 2 seeds, 95% intervals, {jobs}")


def test_the_command_prints_a_score(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = written(tmp_path)
    arguments = [
        "evaluate",
        "sjf",
        "--trace",
        str(trace),
        "--executors",
        "2",
        "--seeds",
        "0-2",
        "--jobs",
        "1",
        "--json",
    ]
    monkeypatch.setattr(sys, "argv", ["fermata", *arguments])
    with pytest.raises(SystemExit) as exit_:
        run()
    assert not exit_.value.code
    scores = json.loads(capsys.readouterr().out)["scenarios"]
    assert scores["express_k2.jsonl"]["vs_base_pct"] == 0.0
