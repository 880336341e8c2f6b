"""The numbers under a report, by hand and against the engine's own accounts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.unit.report.test_report import BASE, OTHER, schedule

from fermata.policy.errors import InputError
from fermata.policy.registry import load
from fermata.sim.compare.episodes import mean_jct_bound, schedule_of
from fermata.sim.experiment import figures_of as episode_figures
from fermata.sim.report import Run, difference, effects_of, figures_of, held_intervals, only, summary_of
from fermata.sim.report.holds import BEST, WORST, HoldEffect, HoldSummary
from fermata.sim.report.numbers import above_bound_percent, class_bounds, class_rows, paired
from fermata.sim.report.schedule import Holds, Schedule, Tasks, step_integral, step_means
from fermata.sim.report.spans import assign_executors
from fermata.sim.report.timelines import Window, busiest_window
from fermata.sim.scenarios import scenario
from fermata.sim.simulate import simulate
from fermata.sim.trace_builder import StageSpec, TraceBuilder


def test_differences_are_paired_by_name_whatever_the_order() -> None:
    shuffled = schedule([1.0, 4.0, 3.0], ids=["j1", "j0", "new"])
    found = difference(Run("x", [shuffled]), BASE)
    assert found.jct_s.tolist() == [2.0, -3.0]
    found = difference(OTHER, BASE)
    assert found.jct_s.tolist() == [-1.0, 1.0, -3.0]
    assert (found.seconds.mean, found.units, found.unit) == (-1.0, 3, "job")
    # Student's 97.5% quantile of 2 degrees of freedom times 2 / sqrt(3).
    assert found.seconds.t95 == pytest.approx(4.3026527 * 2.0 / 3.0**0.5)
    assert found.percent.mean == pytest.approx(-25.0)
    with pytest.raises(InputError, match="no job in common"):
        difference(Run("x", [schedule([1.0], ids=["z"])]), BASE)


def test_jobs_that_are_not_counted_keep_their_executors() -> None:
    whole = replace(schedule([2.0, 4.0, 6.0], [0.0, 1.0, 2.0]), ideal_s=np.array([1.0, 2.0, 3.0]))
    found = only(whole, [False, True, True])
    assert (list(found.job_ids), found.jct_s.tolist()) == (["j1", "j2"], [4.0, 6.0])
    assert found.ideal_s is not None
    assert found.ideal_s.tolist() == [2.0, 3.0]
    assert found.tasks.job.tolist() == [-1, 0, 1]
    assert found.holds.job.tolist() == [0, 1]
    assert only(found, [False, True]).tasks.job.tolist() == [-1, -1, 0]
    assert np.isnan(figures_of(found)["utilization"])
    assert only(whole, [True] * 3) is whole
    with pytest.raises(InputError, match="none of 3 jobs"):
        only(whole, [False] * 3)


def test_several_seeds_are_the_units_and_long_single_runs_are_cut_into_batches() -> None:
    base = Run("base", [schedule([2.0, 2.0]), schedule([4.0, 4.0])])
    ours = Run("ours", [schedule([1.0, 2.0]), schedule([4.0, 1.0])])
    found = difference(ours, base)
    assert (found.units, found.unit) == (2, "seed")
    assert found.seconds.mean == pytest.approx((-0.5 - 1.5) / 2.0)
    assert found.percent.mean == pytest.approx((-25.0 - 37.5) / 2.0)
    jct_s = np.random.default_rng(5).exponential(3.0, 600).tolist()
    long = difference(Run("ours", [schedule(jct_s)]), Run("base", [schedule([3.0] * 600)]))
    assert (long.units, long.unit) == (20, "batch of 30 jobs")


def test_jobs_that_share_a_queue_are_cut_into_batches_of_two_or_three() -> None:
    # Busy stretches of ten jobs that gain or lose together: as 59 independent values they would seem to say much more.
    change_s = np.repeat(np.random.default_rng(8).normal(0.0, 10.0, 6), 10)[:59]
    base = Run("base", [schedule([100.0] * 59)])
    found = difference(Run("ours", [schedule((100.0 + change_s).tolist())]), base)
    assert (found.units, found.unit) == (20, "batch of 2 jobs")
    assert found.seconds.mean == pytest.approx(change_s.mean())
    assert found.percent.mean == pytest.approx(change_s.mean())
    as_jobs = paired(change_s.tolist()).t95
    assert found.seconds.t95 > 1.4 * as_jobs


def test_the_interval_over_batches_is_that_of_their_means() -> None:
    means_s = np.random.default_rng(2).gamma(0.5, 9.0, 20)
    base = Run("base", [schedule([100.0] * 60)])
    found = difference(Run("ours", [schedule((100.0 + np.repeat(means_s, 3)).tolist())]), base)
    assert found.seconds == pytest.approx(paired(means_s))
    assert found.percent == pytest.approx(paired(means_s))


def test_the_mean_of_batches_that_differ_by_a_job_is_that_of_the_jobs() -> None:
    change_s = np.r_[np.zeros(209), np.full(10, 100.0)]  # the last batch is the shortest
    found = difference(Run("ours", [schedule((100.0 + change_s).tolist())]), Run("base", [schedule([100.0] * 219)]))
    assert found.seconds.mean == pytest.approx(1000.0 / 219)


def test_jobs_within_a_hundredth_of_the_mean_are_neither_faster_nor_slower() -> None:
    base = Run("base", [schedule([100.0] * 5)])
    found = difference(Run("ours", [schedule([100.0, 100.9, 99.1, 101.1, 50.0])]), base)
    assert (found.faster, found.slower) == (0.2, 0.2)
    assert found.seconds.mean == pytest.approx((0.9 - 0.9 + 1.1 - 50.0) / 5.0)  # which they count in


def test_the_bootstrap_covers_the_mean_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(11)
    hits = {"t": 0, "bootstrap": 0}
    for _ in range(200):
        mean, t95, low, high = paired(rng.normal(1.0, 2.0, 20))
        hits["t"] += abs(mean - 1.0) <= t95
        hits["bootstrap"] += low <= 1.0 <= high
    assert 180 <= hits["bootstrap"] <= hits["t"] <= 199  # percentiles are a little narrow for 20 values


def test_a_warm_up_is_left_out_of_figures_and_differences() -> None:
    warm = [Run(run.name, [replace(run.schedules[0], warm=1)]) for run in (OTHER, BASE)]
    assert difference(*warm).jct_s.tolist() == [1.0, -3.0]
    assert figures_of(warm[0].schedules[0])["avg_jct_s"] == 4.0
    assert figures_of(warm[0].schedules[0])["avg_held_s"] == 1.0


def test_step_functions() -> None:
    start_s, end_s = np.array([0.0, 1.0, 1.0]), np.array([4.0, 2.0, 3.0])
    assert step_means(start_s, end_s, np.array([1.0, 2.0, 1.0]), np.array([0.0, 2.0, 4.0])).tolist() == [2.5, 1.5]
    assert step_integral(np.empty(0), np.empty(0), np.array([1.0])).tolist() == [0.0]


def test_a_stage_is_held_while_enough_executors_are_free() -> None:
    tasks = Tasks(np.array([0.0, 2.0]), np.array([3.0, 4.0]), np.zeros(2, np.int32), np.ones(2, np.int32))
    # The third one starts as soon as it is ready, the last one as soon as both executors are free.
    ready_s, start_s = np.array([0.0, 0.0, 5.0, 0.0]), np.array([6.0, 6.0, 5.0, 4.0])
    found = held_intervals(tasks, 2, ready_s, start_s, np.array([1, 2, 1, 2]))
    spans = list(zip(found.stage.tolist(), found.start_s.tolist(), found.end_s.tolist(), strict=True))
    assert spans == [(0, 0.0, 2.0), (0, 3.0, 6.0), (1, 4.0, 6.0)]


@pytest.mark.parametrize(
    ("name", "policy"),
    [
        ("express_k2", "sjf-hold:tau=60"),
        ("dag_pods", "sjf-hold:tau=100"),
        ("dag_wide", "sjf-hold:tau=20"),  # of stages that had begun, too
        ("dag_wide", "srwf"),
    ],
)
def test_holds_read_off_a_schedule_are_those_that_the_engine_counted(name: str, policy: str) -> None:
    chosen = scenario(name).with_(jobs=120, warm=0)
    episode = simulate(chosen.generate(3), chosen.executors, load(policy))
    told = schedule_of(episode)
    by_job = np.zeros(episode.trace.jobs)
    np.add.at(by_job, told.holds.job, told.holds.end_s - told.holds.start_s)
    counted = np.zeros(episode.trace.jobs)
    np.add.at(counted, episode.trace.stage_job, episode.stage_held_s)
    np.testing.assert_allclose(by_job, counted, atol=1e-6)
    assert policy == "srwf" or counted.sum() > 0.0


def test_a_schedule_has_the_figures_of_its_episode() -> None:
    chosen = scenario("dag_pods").with_(jobs=80, warm=9)
    episode = simulate(chosen.generate(4), chosen.executors, load("sjf-hold:tau=100"))
    expected, found = episode_figures(episode, 9), figures_of(schedule_of(episode, 9))
    for name in expected.keys() - {"decisions", "events"}:
        assert found[name] == pytest.approx(expected[name]), name
    assert found["avg_wait_s"] + found["avg_held_s"] + found["avg_run_s"] == pytest.approx(found["avg_jct_s"])


def test_what_a_hold_cost_and_who_overtook() -> None:
    # One executor: the long job waits for the short one that comes at 2, and both gain or lose against FIFO.
    builder = TraceBuilder()
    builder.add_job("long", 0.0, [StageSpec("run", [20.0])])
    builder.add_job("short", 2.0, [StageSpec("run", [4.0])])
    trace = builder.finish()
    held, base = (schedule_of(simulate(trace, 1, load(name))) for name in ("hold-follower:delay=4", "fifo"))
    (effect,) = effects_of(held, base, "7")
    assert held.jct_s.tolist() == [26.0, 4.0]
    assert base.jct_s.tolist() == [20.0, 22.0]
    # It is for the short job that the long one was held, and until 6 the executor is not free for it.
    assert effect == HoldEffect("7", "long", "run", 20.0, 0.0, 2.0, 2.0, 6.0, 1, -18.0)
    assert effect.net_s == -12.0


def schedule_with_holds(tasks: list[tuple[float, float, int]], holds: list[tuple[float, float]]) -> Schedule:
    """Return a schedule of two executors from (start, end, job), with holds of one stage of job 0; all arrive at 0."""
    start_s, end_s, job = (np.array(column) for column in zip(*tasks, strict=True))
    first_s = np.array([start_s[job == each].min() for each in range(job.max() + 1)])
    last_s = np.array([end_s[job == each].max() for each in range(job.max() + 1)])
    zeros = np.zeros(len(first_s))
    columns = [zeros, first_s, last_s, zeros, last_s - first_s, zeros]
    ran = Tasks(start_s, end_s, job.astype(np.int32), np.ones(len(job), np.int32))
    held = Holds(*map(np.array, zip(*holds, strict=True)), np.zeros(len(holds), np.int32), ["s"] * len(holds))
    return Schedule(2, [f"j{each}" for each in range(len(first_s))], *columns, tasks=ran, holds=held)


@pytest.mark.parametrize(
    ("tasks", "holds", "overtook"),
    [
        # Job 1 takes an executor at 2, so that too few are free; held again from 4, passed by job 2 at 5; on at 6.
        ([(6.0, 9.0, 0), (2.0, 4.0, 1), (5.0, 6.0, 2), (6.0, 7.0, 3)], [(0.0, 2.0), (4.0, 5.0)], 2),
        # It runs from 2 to 4, when job 1 starts, too; held again from 4 to 6, when it goes on; job 2 starts at 5.
        ([(2.0, 4.0, 0), (6.0, 9.0, 0), (3.0, 9.0, 1), (5.0, 6.0, 2)], [(0.0, 2.0), (4.0, 6.0)], 1),
        # Another stage of the job starts while this one is held: the job does not overtake itself.
        ([(1.0, 9.0, 0), (4.0, 9.0, 0), (3.0, 4.0, 1)], [(0.0, 4.0)], 1),
        # It also starts between two holds of this one, of which neither is over.
        ([(2.0, 9.0, 0), (4.0, 9.0, 0), (3.0, 4.0, 1)], [(0.0, 1.0), (1.5, 3.0)], 1),
        # What became of the stage is not known.
        ([(0.0, 1.0, 0), (3.0, 4.0, 1), (4.0, 5.0, 2)], [(2.0, 4.0)], 1),
    ],
)
def test_who_starts_while_a_stage_runs_has_not_overtaken_it(
    tasks: list[tuple[float, float, int]], holds: list[tuple[float, float]], overtook: int
) -> None:
    schedule = schedule_with_holds(tasks, holds)
    base = replace(schedule, completion_s=schedule.completion_s + 1.0)
    (effect,) = effects_of(schedule, base)
    assert (effect.overtook, effect.others_change_s) == (overtook, -1.0 * overtook)
    assert effect.held_s == sum(end - start for start, end in holds)
    assert (effect.from_s, effect.until_s) == (holds[0][0], holds[-1][1])


def test_a_hold_of_a_job_that_only_one_schedule_has_or_counts_has_no_effect() -> None:
    held = schedule([2.0, 4.0, 6.0], [0.0, 1.0, 2.0])
    base = schedule([2.0, 4.0], ids=["j0", "j1"])
    assert [effect.job for effect in effects_of(held, base)] == ["j1"]
    assert [effect.job for effect in effects_of(only(held, [True, False, True]), held)] == ["j2"]


def test_summaries_add_up_and_keep_the_extremes() -> None:
    effects = [HoldEffect("1", f"j{n}", "s", 1.0, float(n), n + 1.0, 1.0, float(n - 20), 0, 0.0) for n in range(60)]
    whole, halves = summary_of(effects), summary_of(effects[:25]) + summary_of(effects[25:])
    assert whole == halves == sum([whole], HoldSummary())
    assert (whole.count, whole.held_s, whole.paid) == (60, 60.0, 20)
    assert [each.net_s for each in whole.worst] == [float(n) for n in range(39, 39 - WORST, -1)]
    assert [each.net_s for each in whole.best] == [float(n) for n in range(-20, -20 + BEST)]
    few = summary_of(effects[18:23])
    assert ([each.net_s for each in few.worst], [each.net_s for each in few.best]) == ([2.0, 1.0], [-2.0, -1.0])


def test_classes_are_sizes_or_shares() -> None:
    assert class_bounds(np.array([10.0, 200.0, 10.0])) == [("10 s", 10.0), ("200 s", 200.0)]
    alike = class_bounds(np.array([86_400.0, 1_234_567.25, 1_234_567.75]))
    assert [label for label, _ in alike] == ["86,400 s", "1,234,567 s", "1,234,568 s"]
    assert [label for label, _ in class_bounds(np.arange(1.0, 5.0))] == ["1 s", "2 s", "3 s", "4 s"]
    assert class_bounds(np.arange(1.0, 6.0))[0] == ("smallest 60%, to 3 s", 3.0)
    assert class_bounds(np.r_[np.ones(16), 2.0, 3.0, 4.0, 5.0]) == [
        ("smallest 80%, to 1 s", 1.0),
        ("next 10%, to 3 s", 3.0),
        ("largest 10%, to 5 s", 5.0),
    ]
    labels = [label for label, _ in class_bounds(np.arange(1.0, 1001.0))]
    assert labels == [
        "smallest 50%, to 500 s",
        "next 40%, to 900 s",
        "next 9%, to 990 s",
        "largest 1%, to 1,000 s",
    ]
    assert class_bounds(np.arange(20_000.0, 20_005.0))[0] == ("smallest 60%, to 20,002 s", 20_002.0)
    assert [label for label, _ in class_bounds(np.array([0.5, 86_400_000.25]))] == ["0.5 s", "86,400,000 s"]
    rows = class_rows([BASE, OTHER], BASE)
    assert [(row.run, row.jobs, row.avg_jct_s, row.percent) for row in rows] == [
        ("sjf", 3, 4.0, 0.0),
        ("learned", 3, 3.0, -25.0),
    ]


def test_every_job_is_in_one_class() -> None:
    chosen = scenario("k8s_poisson").with_(jobs=300, warm=10)
    episode = simulate(chosen.generate(1), chosen.executors, load("sjf"))
    run = Run("sjf", [schedule_of(episode, 10)])
    assert sum(row.jobs for row in class_rows([run], run)) == 290


def test_classes_are_those_of_the_base_and_the_last_takes_what_is_larger_still() -> None:
    base, ours, few = (
        Run(name, [replace(schedule(jct_s), work_s=np.array(work_s))])
        for name, jct_s, work_s in (
            ("sjf", [2.0, 4.0], [1.0, 9.0]),
            ("ours", [1.0, 3.0, 5.0], [1.0, 9.0, 10.0]),
            ("few", [6.0], [9.0]),
        )
    )
    rows = [(row.label, row.run, row.jobs, row.percent, row.max_jct_s) for row in class_rows([base, ours, few], base)]
    assert rows == [
        ("1 s", "sjf", 1, 0.0, 2.0),
        ("1 s", "ours", 1, -50.0, 1.0),
        ("9 s", "sjf", 1, 0.0, 4.0),
        ("9 s", "ours", 2, 0.0, 5.0),
        ("9 s", "few", 1, 50.0, 6.0),
    ]


@pytest.mark.parametrize("name", ["express_k2", "dag_pods", "mold_80", "dag_wide"])
def test_no_policy_is_below_the_bound(name: str) -> None:
    chosen = scenario(name).with_(jobs=200, warm=0)
    trace = chosen.generate(2)
    bound = mean_jct_bound(trace, chosen.executors)
    assert bound is not None
    for policy in ("sjf", "srwf", "sjf-hold:tau=60"):
        run = Run(policy, [schedule_of(simulate(trace, chosen.executors, load(policy)))])
        assert above_bound_percent(run, np.array([bound[1]])) >= 0.0


def test_tasks_take_the_first_free_executor_and_holds_the_rest() -> None:
    tasks = [(0.0, 2.0, "a"), (0.5, 1.0, "b"), (1.0, 3.0, "c"), (1.999, 2.5, "d")]
    spans = assign_executors(tasks, [(2.0, 2.75), (2.5, 4.0)], 2)
    runs = [(span.job, span.executor, span.start_s) for span in spans if span.kind == "run"]
    # d starts by its clock a moment before a has ended: it waits for it rather than overlap.
    assert runs == [("a", 0, 0.0), ("b", 1, 0.5), ("c", 1, 1.0), ("d", 0, 2.0)]
    holds = [(span.executor, span.start_s, span.end_s) for span in spans if span.kind == "hold"]
    assert holds == [(0, 2.5, 4.0), (1, 3.0, 4.0)]


def test_the_chart_shows_the_part_with_the_most_holds() -> None:
    quiet = schedule([1.0] * 1000, executors=1)
    assert busiest_window([("a", quiet)], tasks_a_lane=2000) == Window(0.0, 1000.0)
    held = schedule([1.0] * 1000, [0.9 * (700 <= n < 740) for n in range(1000)], executors=1)
    window = busiest_window([("a", quiet), ("b", held)], tasks_a_lane=50)
    assert window.start_s <= 700.5
    assert window.end_s >= 738.0
    assert window.end_s - window.start_s == pytest.approx(50.0, rel=0.01)


def test_a_schedule_that_cannot_be_is_refused() -> None:
    with pytest.raises(InputError, match="arrays of that length"):
        replace(BASE.schedules[0], run_s=np.ones(2))
    with pytest.raises(InputError, match="a schedule of 2 jobs needs arrays of that length"):
        replace(BASE.schedules[0], job_ids=["j0", "j1"])
    with pytest.raises(InputError, match="in order of arrival"):
        replace(BASE.schedules[0], arrival_s=np.array([2.0, 1.0, 0.0]))
    with pytest.raises(InputError, match="a warm-up of 3 jobs leaves none of 3"):
        replace(BASE.schedules[0], warm=3)
