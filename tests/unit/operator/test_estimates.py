"""What a task is expected to take."""

from __future__ import annotations

import math
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from tests.unit.operator.objects import DONE, T0, stage, workflow, workflow_fact_of

from fermata.operator.estimates import Estimates, family_of
from fermata.operator.facts import WorkflowFact, meta_of
from fermata.operator.resources import StageSpec
from fermata.operator.times import render
from fermata.policy import earlier_runs as known
from fermata.policy.earlier_runs import UNKNOWN_S
from fermata.policy.rows import peek
from fermata.policy.wording import counted


def _finished(
    name: str, run_s: float, tasks: int = 1, cap: int = 1, end_s: float = T0, slots: int = 1,
    task_s: float | None = None, **fields: Any,
) -> WorkflowFact:  # fmt: skip
    row = {
        "name": "a",
        "state": "Succeeded",
        "tasks": tasks,
        "parallelism": cap,
        "runSeconds": run_s,
        "taskSeconds": task_s,  # versions before did not write it
        "completionTime": render(end_s),
    }
    return workflow_fact_of(name, stage("a", slots=slots), status={**DONE, "stages": [row]}, **fields)


def _stage(**fields: Any) -> StageSpec:
    return StageSpec.model_validate(stage("a") | {"estimateSeconds": None} | fields)


def test_what_the_user_says_comes_first() -> None:
    assert Estimates().of(meta_of(workflow("w", stage("a"))), _stage(estimateSeconds=7))[:2] == (7.0, "estimateSeconds")


def test_then_the_family_then_its_class_then_the_pool_then_a_guess() -> None:
    estimates, meta = Estimates(), meta_of(workflow("etl-4", stage("a")))
    assert estimates.of(meta, _stage())[:2] == (UNKNOWN_S, "a guess, as nothing has finished in the pool yet")
    estimates.learn_all(_finished("wide", 90.0, slots=4))
    assert estimates.of(meta, _stage())[:2] == (90.0, "mean of 1 stage in the pool")
    estimates.learn_all(_finished("narrow", 20.0))
    estimates.learn_all(_finished("other", 40.0))
    assert estimates.of(meta, _stage())[:2] == (30.0, "mean of 2 stages of 1 slot in the pool")
    for number, run_s in enumerate((4.0, 5.0, 90.0)):
        estimates.learn_all(_finished(f"etl-{number}", run_s))
    assert estimates.of(meta, _stage()) == (5.0, "median of 3 earlier runs", (4.5, 47.5))  # one slow run moves nothing


def test_an_estimate_follows_what_is_learned_later() -> None:
    estimates, etl, new = Estimates(), meta_of(workflow("etl-9", stage("a"))), meta_of(workflow("new", stage("a")))
    for number, (run_s, of_family, of_class) in enumerate(((4.0, 4.0, 4.0), (8.0, 6.0, 6.0), (90.0, 8.0, 34.0))):
        estimates.learn_all(_finished(f"etl-{number}", run_s))
        assert (estimates.of(etl, _stage()).seconds, estimates.of(new, _stage()).seconds) == (of_family, of_class)
        of_pool = f"mean of {counted(number + 1, 'stage')} in the pool"
        assert estimates.of(new, _stage(slots=4))[:2] == (of_class, of_pool)


def test_two_runs_have_quartiles_and_one_has_none() -> None:
    estimates, meta = Estimates(), meta_of(workflow("etl-9", stage("a")))
    spreads = []
    for number, run_s in enumerate((4.0, 8.0)):
        estimates.learn_all(_finished(f"etl-{number}", run_s))
        spreads.append(estimates.of(meta, _stage()).quartiles)
    assert spreads == [None, (5.0, 7.0)]


def test_what_took_no_time_is_expected_to_take_next_to_none() -> None:
    estimates = Estimates()
    estimates.learn_all(_finished("etl-1", 30.0, task_s=0.0))
    assert estimates.of(meta_of(workflow("etl-2", stage("a"))), _stage()).seconds == 0.001
    assert estimates.of(meta_of(workflow("new", stage("a"))), _stage()).seconds == 0.001


def test_a_class_remembers_the_stages_of_a_workflow_each_and_the_latest_five_hundred() -> None:
    estimates, new = Estimates(), meta_of(workflow("new", stage("a")))
    meta = meta_of(workflow("w", stage("a")))
    estimates.learn(meta, "early", 1, 1000.0, T0)
    estimates.learn(meta, "later", 1, 500.0, T0 + 1.0)
    assert estimates.of(new, _stage())[:2] == (750.0, "mean of 2 stages of 1 slot in the pool")
    for number in range(499):
        estimates.learn(meta_of(workflow(f"w{number}-x", stage("a"))), "a", 1, 0.0, T0 + 2.0 + number)
    assert estimates.of(new, _stage())[:2] == (1.0, "mean of 500 stages of 1 slot in the pool")


@pytest.mark.parametrize("change", [{"state": "Failed"}, {"runSeconds": None}, {"completionTime": None}])
def test_a_stage_that_did_not_run_to_its_end_teaches_nothing(change: dict[str, Any]) -> None:
    estimates = Estimates()
    row = {"name": "a", "state": "Succeeded", "tasks": 1, "runSeconds": 3.0, "completionTime": render(T0), **change}
    estimates.learn_all(workflow_fact_of("etl-1", stage("a"), status={**DONE, "stages": [row]}))
    assert estimates.of(meta_of(workflow("etl-2", stage("a"))), _stage()).seconds == UNKNOWN_S


def _jobs(estimates: Estimates) -> list[tuple[float, float, float]]:
    """What is known of workflows that have ended, executor-seconds: as given, as corrected, and as they took."""
    jobs = (peek(estimates._correction.jobs, at) for at in range(int(peek(estimates._correction.lessons).jobs)))
    return [(float(each.given_s), float(each.corrected_s), float(each.took_s)) for each in jobs]


def test_the_order_of_workflows_goes_by_the_work_of_their_stages_that_were_given_estimates() -> None:
    estimates = Estimates()
    ended = _finished("w", 30.0, tasks=5, slots=4, task_s=30.0)
    for _ in range(2):  # and only once
        estimates.learn_all(ended)
    assert _jobs(estimates) == [(5 * 4 * 10.0, 5 * 4 * 10.0, 5 * 4 * 30.0)]


def test_a_workflow_that_failed_or_is_gone_says_nothing_of_the_order() -> None:
    estimates = Estimates()
    told = {"tasks": 1, "runSeconds": 3.0, "completionTime": render(T0)}
    rows = [told | {"name": "a", "state": "Succeeded"}, told | {"name": "b", "state": "Failed"}]
    estimates.learn_all(workflow_fact_of("w", stage("a"), stage("b"), status={**DONE, "stages": rows}))
    gone = _finished("gone", 30.0)
    estimates.learn(gone.meta, "a", 1, 30.0, T0, 10.0)
    estimates.forget(gone.meta.uid)
    estimates.learn_all(gone)
    assert _jobs(estimates) == []


def test_all_are_looked_at_again_where_twice_as_many_are_known_or_corrections_begin() -> None:
    estimates, seen = Estimates(), []
    estimates.corrects = True
    for number in range(8):
        estimates.learn_all(_finished(f"w{number}-x", 20.0, end_s=T0 + number))
        seen.append(estimates.ripeness)
    assert seen == [(known, False) for known in (1, 2, 2, 3, 3, 3, 3, 4)]
    assert _taught(estimates, 60).ripeness == (6, True)


def test_what_was_dropped_of_many_that_ended_at_once_is_not_new() -> None:
    estimates = Estimates()
    metas = [meta_of(workflow(f"etl-{number}", stage("a"))) for number in range(30)]
    assert [estimates.learn(meta, "a", 1, 5.0, T0) for meta in metas] == [True] * 30
    assert not any(estimates.learn(meta, "a", 1, 5.0, T0) for meta in metas for _ in range(2))


def test_waves_are_counted_and_a_stage_teaches_once() -> None:
    estimates, meta = Estimates(), meta_of(workflow("etl-9", stage("a")))
    for _ in range(3):
        estimates.learn_all(_finished("etl-1", 30.0, tasks=5, cap=2))
    estimates.learn_all(_finished("etl-2", 20.0))
    assert estimates.of(meta, _stage()).seconds == pytest.approx(15.0)  # of 10 and 20


def test_a_stage_that_was_widened_teaches_what_its_tasks_took() -> None:
    estimates, meta = Estimates(), meta_of(workflow("fam-2", stage("a")))
    # 24 tasks of 1 s, twelve of them one after another: the last cap says nothing of these.
    estimates.learn_all(_finished("fam-1", 12.57, tasks=24, cap=13, task_s=1.048))
    assert estimates.of(meta, _stage()).seconds == 1.048
    assert estimates.trust == (0.0, 0.0)


def test_the_latest_runs_count_whatever_order_they_are_read_in() -> None:
    meta = meta_of(workflow("etl-9", stage("a")))
    runs = [_finished(f"etl-{i}", 1.0, end_s=T0 + i) for i in range(20)]
    runs += [_finished(f"etl-{i}", 9.0, end_s=T0 + i) for i in range(20, 40)]
    for order in (runs, runs[::-1], [*runs[1::2], *runs[::2]]):
        estimates = Estimates()
        for run in [*order, *order]:
            estimates.learn_all(run)
        assert estimates.of(meta, _stage())[:2] == (9.0, "median of 20 earlier runs")


def test_a_restarted_operator_learns_the_same() -> None:
    meta = meta_of(workflow("etl-9", stage("a")))
    runs = [_finished(f"etl-{i}", run_s, end_s=T0 + i) for i, run_s in enumerate((3.0, 8.0, 5.0, 4.0))]
    answers = set()
    for order in permutations(runs):
        estimates = Estimates()
        for run in order:
            estimates.learn_all(run)
        answers.add(estimates.of(meta, _stage()))
    assert len(answers) == 1


def test_families_that_are_never_used_again_are_forgotten_one_day(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known, "_REMEMBERED_STAGES", 3)
    estimates = Estimates()
    for name in ("etl-1", "x-once", "y-once", "etl-2", "z-once", "u-once"):
        estimates.learn_all(_finished(name, 9.0 if name.startswith("etl") else 1.0))
    assert estimates.of(meta_of(workflow("etl-3", stage("a"))), _stage())[:2] == (9.0, "median of 2 earlier runs")
    assert (
        estimates.of(meta_of(workflow("x-once", stage("a"))), _stage()).source
        == "mean of 6 stages of 1 slot in the pool"
    )


def test_a_finished_stage_teaches_before_its_workflow_has_finished() -> None:
    estimates = Estimates()
    row = {"name": "a", "state": "Succeeded", "runSeconds": 3.0, "completionTime": render(T0)}
    running = {"name": "b", "state": "Running", "runSeconds": 1.0}
    estimates.learn_all(workflow_fact_of("etl-1", stage("a"), stage("b"), status={"stages": [row, running]}))
    assert estimates.of(meta_of(workflow("etl-2", stage("a"))), _stage()).source == "median of 1 earlier run"
    assert estimates.of(meta_of(workflow("etl-2", stage("b"))), _stage(name="b")).source.startswith("mean")


@pytest.mark.parametrize(
    ("name", "labels", "family"),
    [
        ("etl-20261", {}, "etl"),
        ("etl-x7k2p", {}, "etl"),
        ("etl", {}, "etl"),
        # Words: these are not two runs of one workflow.
        ("resize-small", {}, "resize-small"),
        ("resize-large", {}, "resize-large"),
        ("report-daily", {}, "report-daily"),
        ("etl-1", {"fermata.dev/family": "night"}, "night"),
    ],
)
def test_families(name: str, labels: dict[str, str], family: str) -> None:
    assert family_of(meta_of(workflow(name, stage("a"), labels=labels))) == family


def _given(estimates: Estimates, seconds: int) -> tuple[float, str]:
    return estimates.of(meta_of(workflow("new", stage("a"))), _stage(estimateSeconds=seconds))[:2]


def _taught(estimates: Estimates, runs: int) -> Estimates:
    """Stages whose users say half of what they take."""
    for number in range(runs):
        estimates.learn_all(_finished(f"w{number}-x", 20.0, end_s=T0 + number))
    return estimates


def test_what_users_say_is_corrected_by_what_stages_took_if_the_policy_wants_it() -> None:
    estimates = Estimates()
    estimates.corrects = True
    (row,) = _finished("w", 20.0).spec.stages  # type: ignore[union-attr]
    said = int(row.estimate_seconds or 0)
    assert _given(_taught(estimates, 39), said) == (said, "estimateSeconds")
    seconds, source = _given(_taught(estimates, 60), said)
    assert seconds == pytest.approx(20.0, rel=0.05)
    assert source == f"estimateSeconds {said}, corrected by what such stages took"
    estimates.corrects = False
    assert _given(estimates, said) == (said, "estimateSeconds")


@pytest.mark.parametrize("whole", [False, True], ids=["each stage a workflow", "whole"])
def test_what_users_say_is_left_alone_where_corrected_it_would_order_workflows_worse(whole: bool) -> None:
    """Six workflows of 12 stages of 20 s, of each of which one is taken for one of 280 s, to one that has two of those.

    Of a stage that is given 280 s it is right to expect less, and wrong of the workflow that has two.
    """
    many, few = [(280, 20.0), *[(20, 20.0)] * 11], [(280, 280.0)] * 2
    estimates = Estimates()
    estimates.corrects = True

    def end(name: str, number: int, given: list[tuple[int, float]]) -> None:
        stages = [stage(f"s{at}") | {"estimateSeconds": given_s} for at, (given_s, _) in enumerate(given)]
        told = {"state": "Succeeded", "tasks": 1, "completionTime": render(T0 + number)}
        rows = [told | {"name": f"s{at}", "runSeconds": run_s} for at, (_, run_s) in enumerate(given)]
        estimates.learn_all(workflow_fact_of(name, *stages, status={**DONE, "stages": rows}))

    for number, is_few in enumerate((np.random.default_rng(1).random(140) < 1.0 / 7.0).tolist()):
        given = few if is_few else many
        for part, some in enumerate([given] if whole else [[each] for each in given]):
            end(f"w{number}p{part}-x", number, some)
    seconds, source = _given(estimates, 280)
    assert (source == "estimateSeconds") == whole
    assert (seconds == 280.0) == whole


def test_what_was_learned_is_not_corrected_again() -> None:
    estimates = _taught(Estimates(), 60)
    estimates.corrects = True
    of_family = estimates.of(meta_of(workflow("w3-x", stage("a"))), _stage())
    assert of_family[:2] == (20.0, "median of 1 earlier run")


def test_a_stage_of_which_nobody_said_anything_teaches_no_correction() -> None:
    estimates = Estimates()
    estimates.corrects = True
    for number in range(60):
        row = {"name": "a", "state": "Succeeded", "tasks": 1, "runSeconds": 20.0, "completionTime": render(T0 + number)}
        spec = stage("a") | {"estimateSeconds": None}
        estimates.learn_all(workflow_fact_of(f"w{number}-x", spec, status={**DONE, "stages": [row]}))
    assert _given(estimates, 7) == (7.0, "estimateSeconds")


def test_trust_begins_high_and_falls_with_what_was_off() -> None:
    estimates = Estimates()
    assert estimates.trust == (0.0, 0.0)
    estimates.measure(30.0, 3.0)  # one task of eleven, the ten that every pool begins with included
    assert estimates.trust == pytest.approx((math.log(10.0) / 11.0, 1.0 / 11.0))
    estimates.measure(30.0, 3.0)
    assert estimates.trust == pytest.approx((2.0 * math.log(10.0) / 12.0, 2.0 / 12.0))
    for _ in range(300):
        estimates.measure(30.0, 3.0)
    assert estimates.trust == pytest.approx((math.log(10.0), 1.0), rel=0.1)


def _measured(run_s: float, estimate_s: float | None, source: str, end_s: float = T0, tasks: int = 1) -> WorkflowFact:
    """A finished workflow whose status tells what had been expected of its stage, all tasks of which ran at once."""
    row = {
        "name": "a",
        "state": "Succeeded",
        "tasks": tasks,
        "parallelism": tasks,
        "runSeconds": run_s,
        "completionTime": render(end_s),
        "estimateSeconds": estimate_s,
        "estimateSource": source,
    }
    return workflow_fact_of(f"etl-{end_s - T0:.0f}", stage("a"), status={**DONE, "stages": [row]})


@pytest.mark.parametrize(
    ("estimate_s", "source", "factor"),
    [
        (UNKNOWN_S, "a guess, as nothing has finished in the pool yet", 1.0),  # nobody was wrong
        (UNKNOWN_S, "estimateSeconds", 10.0),  # somebody did say so
        (UNKNOWN_S, "estimateSeconds 30, corrected by what such stages took", 10.0),
        (6.0, "median of 3 earlier runs", 100.0),
        (None, "", 1.0),
    ],
)
def test_how_far_off_an_estimate_was_is_told_by_one_that_somebody_made(
    estimate_s: float | None, source: str, factor: float
) -> None:
    estimates = Estimates()
    for _ in range(2):  # and only once
        estimates.learn_all(_measured(10.0 * UNKNOWN_S, estimate_s, source))
    assert estimates.trust == pytest.approx((math.log(factor) / 11.0, (factor > 3.0) / 11.0))


def test_a_stage_says_as_much_of_estimates_as_it_has_tasks() -> None:
    estimates = Estimates()
    estimates.learn_all(_measured(60.0, 6.0, "estimateSeconds", tasks=30))
    assert estimates.trust == pytest.approx((0.75 * math.log(10.0), 0.75)), "30 tasks of 40"
    estimates.learn_all(_measured(60.0, 6.0, "estimateSeconds", T0 + 1.0, tasks=0))  # as somebody wrote
    assert estimates.trust == pytest.approx((31.0 / 41.0 * math.log(10.0), 31.0 / 41.0)), "of one"


def test_a_run_older_than_all_that_are_remembered_is_no_news() -> None:
    estimates = Estimates()
    for number in range(1, 21):
        estimates.learn_all(_measured(6.0, 6.0, "estimateSeconds", T0 + number))
    estimates.learn_all(_measured(600.0, 6.0, "estimateSeconds", T0))
    assert estimates.trust == (0.0, 0.0)
    estimates.learn_all(_measured(600.0, 6.0, "estimateSeconds", T0 + 21))
    assert estimates.trust != (0.0, 0.0)
