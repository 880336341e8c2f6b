"""Comparisons in parts: which episodes there are, what is kept of each, and what any number of them says."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from fermata.policy.errors import InputError
from fermata.policy.registry import load
from fermata.sim.compare.episodes import mean_jct_bound
from fermata.sim.compare.outcome import Comparison
from fermata.sim.compare.run import Point, Sample, Unit, Workload, run_unit, run_units, units_of
from fermata.sim.compare.sources import LOADS, RATIOS, ScenarioSource, TraceSource, Variation, arrivals_per_s
from fermata.sim.experiment import Setting
from fermata.sim.report.holds import HoldEffect
from fermata.sim.report.numbers import ClassRow, above_bound_percent, class_rows
from fermata.sim.scenarios import scenario
from fermata.sim.simulate import simulate
from fermata.sim.trace_builder import StageSpec, TraceBuilder, one_stage_trace

SETTINGS = [Setting(name, 2, warm=2) for name in ("sjf", "sjf-hold:tau=60,split=30")]
SMALL = scenario("express_k2").with_(jobs=30, warm=2)
SOURCE = ScenarioSource(SMALL)


def _workload(seeds: list[int], loads: int = 0, ratios: int = 0, sweep_seeds: int = 0) -> Workload:
    kinds = {"load": loads, "ratio": ratios}
    of = {"load": (SOURCE, 1), "ratio": (ScenarioSource(SMALL.with_(jobs=20)), 9)}
    points = [Variation(kind, float(at), *of[kind]) for kind, count in kinds.items() for at in range(count)]
    return Workload(SOURCE, SETTINGS, seeds, points, sweep_seeds)


def _in_short(units: list[Unit]) -> list[tuple[int, int | None, int]]:
    return [(unit.workload, unit.variation, unit.seed) for unit in units]


def test_seeds_come_before_sweeps_and_no_workload_waits_for_another() -> None:
    units = units_of([_workload([4, 5, 6], loads=2, sweep_seeds=2), _workload([7])], 1)
    samples = [(0, None, 4), (1, None, 7), (0, None, 5), (0, None, 6)]
    assert _in_short(units) == [*samples, (0, 0, 4), (0, 0, 5), (0, 1, 4), (0, 1, 5)]
    assert [unit.detailed for unit in units] == [True, True] + [False] * 6, "what is drawn is of each one's first seed"
    assert [unit.settings[0].warm for unit in units] == [2] * 4 + [1] * 4, "the episodes of a sweep are shorter"
    assert {unit.base for unit in units} == {1}
    (_, *points) = units_of([_workload([4], ratios=2, sweep_seeds=1)], 0)
    assert [unit.settings[0].warm for unit in points] == [2, 2]


def test_any_number_of_finished_episodes_is_a_comparison() -> None:
    workloads = [_workload([4, 5], loads=2, sweep_seeds=1), _workload([6, 7])]
    comparison, told = Comparison(workloads, 0), []
    with pytest.raises(InputError, match="no episode is done"):
        comparison.sections()
    for unit, result in run_units(units_of(workloads, 0), 1):
        comparison.add(unit, result)
        sections = comparison.sections()
        told.append([(section.units, [sweep.kind for sweep in section.sweeps]) for section in sections])
        for run in sections[0].runs:
            assert len(run.schedules) == len(sections[0].units)
    assert told == [
        [(["4"], [])],
        [(["4"], []), (["6"], [])],
        [(["4", "5"], []), (["6"], [])],
        [(["4", "5"], []), (["6", "7"], [])],
        [(["4", "5"], []), (["6", "7"], [])],  # a point is no curve
        [(["4", "5"], ["load"]), (["6", "7"], [])],
    ]
    (sweep,) = comparison.sections()[0].sweeps
    points = comparison.points
    assert sweep.value.tolist() == [0.0, 1.0]
    assert sweep.arrivals_per_s.tolist() == [points[0, index][0].arrivals_per_s for index in (0, 1)]
    for place, name in enumerate(comparison.names):
        assert sweep.jct_s[name].tolist() == [[points[0, index][0].jct_s[place]] for index in (0, 1)]
        assert sweep.held_s[name].tolist() == [[points[0, index][0].held_s[place]] for index in (0, 1)]


def test_a_point_of_a_sweep_counts_once_all_its_seeds_are_done() -> None:
    workload = _workload([4, 5], loads=3, sweep_seeds=2)
    comparison = Comparison([workload], 0)
    for number, unit in enumerate(units_of([workload], 0)[:-1]):
        point = Point(unit.seed, 0.5, [1.0 * number, 2.0], [0.0, 0.5])
        comparison.add(unit, run_unit(unit) if unit.variation is None else point)
    (sweep,) = comparison.sections()[0].sweeps
    assert sweep.value.tolist() == [0.0, 1.0]
    assert sweep.jct_s["sjf"].tolist() == [[2.0, 3.0], [4.0, 5.0]]


def test_a_sweep_has_no_more_seeds_than_its_workload() -> None:
    workload = _workload([4], loads=2, sweep_seeds=3)
    comparison = Comparison([workload], 0)
    for unit, result in run_units(units_of([workload], 0), 1):
        comparison.add(unit, result)
    (sweep,) = comparison.sections()[0].sweeps
    assert sweep.held_s["sjf"].shape == (2, 1)


def test_a_point_has_the_means_of_the_jobs_that_count() -> None:
    (unit, point_unit, *_) = units_of([_workload([4], loads=2, sweep_seeds=1)], 0)
    sample, point = run_unit(unit._replace(settings=point_unit.settings)), run_unit(point_unit)
    assert isinstance(sample, Sample)
    assert isinstance(point, Point)
    assert (point.seed, point.arrivals_per_s) == (4, arrivals_per_s(SMALL.generate(4)))
    assert point.jct_s == pytest.approx([each.jct_s[1:].mean() for each in sample.schedules])
    assert point.held_s == pytest.approx([each.held_s[1:].mean() for each in sample.schedules])
    assert point.held_s[1] > point.held_s[0] == 0.0


def test_what_the_points_of_a_sweep_are_is_told_in_words() -> None:
    trace = TraceSource("t", SMALL.generate(4), 2)
    varied = Workload(trace, SETTINGS, [0], list(trace.variations())[:2], 1, seeded=False)
    workloads = [_workload([4, 5], loads=2, ratios=2, sweep_seeds=2), varied]
    comparison = Comparison(workloads, 0)
    for unit, result in run_units(units_of(workloads, 0), 1):
        comparison.add(unit, result)
    assert [[(sweep.kind, sweep.note) for sweep in section.sweeps] for section in comparison.sections()] == [
        [
            ("load", "30 jobs and 2 seeds a point."),
            ("ratio", "The load is the same throughout; 20 jobs and 2 seeds a point."),
        ],
        [("load", "The trace with its arrivals further apart or closer together.")],
    ]


def test_what_a_sample_keeps_is_what_is_drawn_of_it_and_compared() -> None:
    units = units_of([_workload([4])], 0)
    detailed, other = (run_unit(unit._replace(detailed=how)) for unit in units for how in (True, False))
    assert isinstance(detailed, Sample)
    assert isinstance(other, Sample)
    assert [len(each.tasks.start_s) for each in detailed.schedules] == [30, 30]
    assert [len(each.tasks.start_s) for each in other.schedules] == [0, 0]
    assert [len(each.holds.start_s) > 0 for each in detailed.schedules] == [False, True]
    assert [len(each.holds.start_s) > 0 for each in other.schedules] == [False, False]
    assert [each.warm for each in other.schedules] == [2, 2]
    assert [found.count > 0 for found in detailed.holds] == [False, True], "the base is compared with nothing"
    assert other.holds == detailed.holds
    assert detailed.bound is not None
    assert other.bound == detailed.bound


def test_there_is_no_bound_where_nobody_knows_what_really_happens() -> None:
    known, unknown = (replace(SOURCE, known_durations=knows) for knows in (True, False))
    for sources, has_bound in (((known, known), True), ((known, unknown), False), ((unknown, unknown), False)):
        comparison = Comparison([_workload([4, 5])], 0)
        for unit, source in zip(units_of(comparison.workloads, 0), sources, strict=True):
            comparison.add(unit, run_unit(unit._replace(source=source)))
        (section,) = comparison.sections()
        assert (section.bound is not None) == has_bound
        (numbers,) = comparison.as_dict().values()
        assert (numbers["bound"] is not None) == has_bound
        assert ["above_bound_pct" in row for row in numbers["policies"].values()] == [has_bound] * 2


@pytest.mark.parametrize(
    ("loads", "ratios", "sweep_seeds", "missing"),
    [(2, 2, 1, []), (2, 0, 1, ["size ratio"]), (0, 2, 1, ["load"]), (0, 0, 1, ["load", "size ratio"]), (0, 0, 0, [])],
)
def test_a_sweep_that_was_asked_for_and_makes_no_sense_is_not_left_out_in_silence(
    loads: int, ratios: int, sweep_seeds: int, missing: list[str]
) -> None:
    workload = _workload([4], loads, ratios, sweep_seeds)
    comparison = Comparison([workload], 0)
    (unit, *_) = units_of([workload], 0)
    comparison.add(unit, run_unit(unit))
    (section,) = comparison.sections()
    assert [f"against {what} needs" in note or f"against {what} " in note for what, note in
            zip(missing, section.notes, strict=True)] == [True] * len(missing)  # fmt: skip


@pytest.mark.parametrize(
    ("lengths_s", "warm", "told"),
    [
        ([[0.0, 3.0]], 0, ""),
        ([[0.0, 0.0], [0.0, 3.0]], 0, ""),
        ([[3.0, 0.0]], 0, ""),
        ([[0.0, 0.0], [0.0, 0.0]], 0, "no job of t takes any time"),
        ([[3.0, 0.0]], 1, "no job of t after the warm-up takes any time"),
    ],
)
def test_jobs_are_compared_where_one_that_counts_takes_any_time(
    lengths_s: list[list[float]], warm: int, told: str
) -> None:
    sources = [TraceSource("t", one_stage_trace([0.0, 100.0], each), 2) for each in lengths_s]
    workload = Workload(sources[0], [Setting("sjf", 2, warm=warm)], list(range(len(sources))))
    comparison = Comparison([workload], 0)
    for unit, source in zip(units_of([workload], 0), sources, strict=True):
        comparison.add(unit, run_unit(unit._replace(source=source)))
    if not told:
        assert len(comparison.sections()) == 1
        return
    with pytest.raises(InputError, match=f"^{told}: nothing to compare"):
        comparison.sections()


def test_workloads_are_told_in_their_order_whichever_was_done_first() -> None:
    sources = [TraceSource(f"of {jobs}", one_stage_trace([0.0] * jobs, [3.0] * jobs), 1) for jobs in (1, 2)]
    workloads = [Workload(source, [Setting("sjf", 1)], [0]) for source in sources]
    comparison = Comparison(workloads, 0)
    for unit in reversed(units_of(workloads, 0)):
        comparison.add(unit, run_unit(unit))
    assert [section.name for section in comparison.sections()] == ["of 1", "of 2"]
    numbers = comparison.as_dict()
    assert [(name, each["policies"]["sjf"]["avg_jct_s"]) for name, each in numbers.items()] == [
        ("of 1", 3),
        ("of 2", 4.5),
    ]


def test_the_jobs_of_a_workload_are_told_in_words() -> None:
    traces = [one_stage_trace([0.0] * jobs, [3.0] * jobs) for jobs in (1, 3)]
    workload = Workload(TraceSource("t", traces[0], 2), [Setting("sjf", 2)], [0, 1])
    comparison = Comparison([workload], 0)
    for unit, trace in zip(units_of([workload], 0), traces, strict=True):
        comparison.add(unit, run_unit(unit._replace(source=TraceSource("t", trace, 2))))
    (section,) = comparison.sections()
    assert (section.name, section.units) == ("t", ["0", "1"])
    assert section.lead == "1 to 3 jobs on 2 executors; 2 seeds, the same for every policy."
    comparison.workloads = [replace(workload, seeded=False)]
    assert comparison.sections()[0].units == ["", ""]
    comparison = Comparison([_workload([4])], 0)
    comparison.add(units_of(comparison.workloads, 0)[0], run_unit(units_of(comparison.workloads, 0)[0]))
    lead = comparison.sections()[0].lead
    assert lead.startswith("30 jobs on 2 executors; the first 2 of which are left out of all means. ")


def test_a_scenario_is_varied_by_the_parameters_that_it_has() -> None:
    points = list(ScenarioSource(scenario("express_k2")).variations(4))
    assert [(each.kind, each.value) for each in points] == [
        *(("load", value) for value in LOADS), *(("ratio", value) for value in RATIOS),
    ]  # fmt: skip
    assert {each.most_warm for each in points} == {150}
    for each in points:
        assert isinstance(each.source, ScenarioSource)
        varied = each.source.scenario
        assert (varied.jobs, varied.warm) == (1500, 150)
        if each.kind == "load":
            assert (varied.parameters["load"], varied.executors) == (each.value, 4)
        else:
            sizes = varied.parameters
            assert sizes["long_s"] == each.value * sizes["short_s"] == each.value * 10.0
    few = ScenarioSource(SMALL)
    assert {(each.most_warm, each.source.scenario.warm) for each in few.variations(2)} == {(3, 2)}
    assert [each.kind for each in ScenarioSource(scenario("fig1")).variations(1)] == ["ratio"] * len(RATIOS)
    assert [each.kind for each in ScenarioSource(scenario("dag_pods")).variations(2)] == ["load"] * len(LOADS)
    by_the_clock = ScenarioSource(scenario("k8s_cron"))  # 4 pods of 30 s in 300 s: a load of 0.4 of one executor
    for executors, loads in ((1, LOADS[1:]), (2, LOADS)):
        found = [each.value for each in by_the_clock.variations(executors) if each.kind == "load"]
        assert tuple(found) == loads


def test_a_rate_of_arrivals_is_known_where_they_do_not_come_at_once() -> None:
    assert arrivals_per_s(one_stage_trace([5.0, 5.25, 5.5], [1.0] * 3)) == 4.0
    assert math.isnan(arrivals_per_s(one_stage_trace([5.0, 5.0], [1.0] * 2)))


@pytest.mark.parametrize(("arrival_s", "length_s"), [([5.0, 5.0], [1.0, 2.0]), ([5.0, 6.0], [0.0, 0.0])])
def test_a_trace_that_has_no_load_has_no_other_one(arrival_s: list[float], length_s: list[float]) -> None:
    assert list(TraceSource("t", one_stage_trace(arrival_s, length_s), 1).variations()) == []


@pytest.mark.parametrize(
    ("jobs", "executors", "bound_s"),
    [
        ([[StageSpec("a", [2.0]), StageSpec("b", [3.0], ["a"])]], 4, 5.0),  # a chain, on however many
        ([[StageSpec("a", [2.0] * 6)]], 2, 6.0),
        ([[StageSpec("a", [2.0])], [StageSpec("a", [2.0], slots=2)]], 2, 2.0),
        ([[StageSpec("a", [2.0])], [StageSpec("a", [8.0], serial_fraction=0.5)]], 4, (2.0 + 5.0) / 2),
    ],
)
def test_a_bound_holds_for_jobs_of_any_kind(jobs: list[list[StageSpec]], executors: int, bound_s: float) -> None:
    builder = TraceBuilder()
    for number, stages in enumerate(jobs):
        builder.add_job(f"j{number}", 0.0, stages)
    found = mean_jct_bound(builder.finish(), executors)
    assert found == ("pooled SRPT, and critical paths", pytest.approx(bound_s))


def test_a_bound_is_the_best_where_every_job_is_one_task() -> None:
    found = mean_jct_bound(one_stage_trace([0.0, 0.0], [0.25, 0.5]), 1)
    assert found == ("mean busy times of jobs that cannot be preempted", pytest.approx(0.5))


@pytest.mark.parametrize(
    ("length_s", "bound_s"), [([4.0, 0.0], 2.0), ([0.25, 0.0, 0.5], 1.0 / 3.0), ([0.0, 0.0], None)]
)
def test_jobs_without_work_take_nothing_from_the_others(length_s: list[float], bound_s: float | None) -> None:
    trace = one_stage_trace([0.0] * len(length_s), length_s)
    found = mean_jct_bound(trace, 1)
    assert (found and found[1]) == (bound_s and pytest.approx(bound_s))
    assert float(simulate(trace, 1, load("sjf")).job_jct_s.mean()) >= (bound_s or 0.0)


def test_all_seeds_count_in_the_numbers() -> None:
    workload = _workload([4, 5])
    comparison = Comparison([workload], 1)
    for unit, result in run_units(units_of([workload], 1), 1):
        comparison.add(unit, result)
    (numbers,) = comparison.as_dict().values()
    assert (numbers["base"], numbers["executors"], numbers["seeds"]) == (SETTINGS[1].policy, 2, [4, 5])
    sjf, holds = (numbers["policies"][setting.policy] for setting in SETTINGS)
    assert "against_base" not in holds
    change = sjf["against_base"]
    assert (change["over"], change["values"]) == ("seed", 2)
    assert change["seconds"]["mean"] == pytest.approx(sjf["avg_jct_s"] - holds["avg_jct_s"])
    assert None not in change["seconds"].values(), "two seeds have an interval"
    assert sjf["holds"]["count"] == holds["holds"]["count"] == 0, "the one holds nothing, the other is the base"
    comparison.base = 0
    comparison.samples = {0: [run_unit(unit) for unit in units_of([workload], 0)]}  # type: ignore[misc]
    (numbers,) = comparison.as_dict().values()
    found = numbers["policies"][SETTINGS[1].policy]
    effects = found["holds"]["worst"] + found["holds"]["best"]
    assert found["holds"]["count"] >= len(effects) > 0
    assert all({*HoldEffect._fields, "net_s"} == row.keys() for row in effects)
    assert sum(row["jobs"] for row in found["classes"].values()) == 2 * (30 - 2), "of both seeds those that count"
    assert all(set(row) == {*ClassRow._fields} - {"label", "run"} for row in found["classes"].values())
    assert np.isfinite(numbers["bound"]["mean_jct_s"])


def test_the_numbers_are_those_of_the_page() -> None:
    workload = _workload([4, 5], loads=2, ratios=3, sweep_seeds=2)
    comparison = Comparison([workload], 0)
    for unit, result in run_units(units_of([workload], 0), 1):
        comparison.add(unit, result)
    (section,) = comparison.sections()
    (numbers,) = comparison.as_dict().values()
    assert [len(sweep.value) for sweep in section.sweeps] == [2, 3]
    assert numbers["sweeps"] == {
        sweep.kind: {
            "value": sweep.value.tolist(),
            "arrivals_per_s": sweep.arrivals_per_s.tolist(),
            "avg_jct_s": {name: rows.tolist() for name, rows in sweep.jct_s.items()},
            "avg_held_s": {name: rows.tolist() for name, rows in sweep.held_s.items()},
        }
        for sweep in section.sweeps
    }
    bounds = [each.bound for each in comparison.samples[0] if each.bound is not None]
    (kind,) = {kind for kind, _ in bounds}
    assert numbers["bound"] == {"kind": kind, "mean_jct_s": pytest.approx((bounds[0][1] + bounds[1][1]) / 2)}
    assert section.bound is not None
    for run in section.runs:
        row = numbers["policies"][run.name]
        assert row["above_bound_pct"] == above_bound_percent(run, section.bound.mean_s)
        classes = [each for each in class_rows(section.runs, section.runs[0]) if each.run == run.name]
        assert list(row["classes"]) == [each.label for each in classes]
        assert [each["avg_jct_s"] for each in row["classes"].values()] == [each.avg_jct_s for each in classes]
