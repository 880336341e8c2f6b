"""The simulator corrects estimates for policies that want it: what jobs say then, and what it is worth."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from fermata.policy.correction import corrected_s, learn, new_correction, pays
from fermata.policy.decide import Policy, Step, corrects_estimates
from fermata.policy.graph import job_shape, path_lengths
from fermata.policy.guardrails import NO_LIMITS
from fermata.policy.heuristics.srwf import SRWF
from fermata.policy.registry import load
from fermata.policy.rows import column, listed, peek
from fermata.policy.state import ClusterState
from fermata.sim.engine import DONE
from fermata.sim.failures import Failures
from fermata.sim.generate.estimates import Noise, lognormal_noise
from fermata.sim.scenarios import SCENARIOS, JobClass, Scenario
from fermata.sim.scenarios.layered import LayeredDags
from fermata.sim.simulate import Episode, run_rule, simulate
from fermata.sim.trace import Trace
from fermata.sim.trace_builder import StageSpec, TraceBuilder
from fermata.sim.world import World, new_world, tables_of


def _noisy(name: str, seed: int, sigma: float = 0.7, **changes: int) -> tuple[Trace, Scenario]:
    some = SCENARIOS[name].with_(**changes)
    return lognormal_noise(some.generate(seed), sigma, seed), some


def _same(one: Episode, two: Episode) -> None:
    np.testing.assert_array_equal(one.task_start_s, two.task_start_s)
    np.testing.assert_array_equal(one.job_completion_s, two.job_completion_s)


def test_heuristics_get_estimates_as_they_are() -> None:
    trace, some = _noisy("dag_wide", 3, jobs=400)
    srwf = load("srwf")
    assert not corrects_estimates(srwf)
    _same(simulate(trace, some.executors, srwf), simulate(trace, some.executors, srwf, corrects=False))
    corrected = simulate(trace, some.executors, srwf, corrects=True)
    assert (corrected.job_completion_s != simulate(trace, some.executors, srwf).job_completion_s).any()


def test_learned_policies_get_them_corrected_and_save_much_by_it() -> None:
    default = load("default")
    assert corrects_estimates(default)
    ratios = []
    for seed in range(5000, 5004):
        trace, some = _noisy("express_k2", seed, jobs=2000)
        as_it_is = simulate(trace, some.executors, default, corrects=False).job_jct_s[200:].mean()
        ratios.append(simulate(trace, some.executors, default).job_jct_s[200:].mean() / as_it_is)
    assert max(ratios) < 1.0
    assert np.mean(ratios) < 0.95


def test_what_puts_stages_right_and_jobs_in_a_wrong_order_is_left_alone() -> None:
    """Short jobs of many stages, some of which are taken for long ones, and long jobs of few."""
    many = JobClass(0.88, stages=(4, 9), tasks=(1, 1), median_task_s=21.0, stage_sigma=0.06, task_sigma=0.05)
    few = JobClass(0.12, stages=(1, 3), tasks=(1, 3), median_task_s=280.0, stage_sigma=0.26, task_sigma=0.08)
    some = Scenario("mixed-up", 3, 900, 90, "SRWF", LayeredDags(0.6, (many, few)), Noise("class-flips", 0.235))
    default, ratios = load("default"), []
    for seed in range(5000, 5004):
        trace = some.generate(seed)
        episodes = [simulate(trace, some.executors, default, corrects=each) for each in (True, False)]
        corrected_s, given_s = (episode.job_jct_s[some.warm :].mean() for episode in episodes)
        ratios.append(corrected_s / given_s)
    assert np.mean(ratios) < 1.03


@pytest.mark.parametrize("name", ["express_k2", "dag_pods", "dag_wide"])
def test_where_estimates_are_as_good_as_they_can_be_nothing_changes(name: str) -> None:
    some, default = SCENARIOS[name].with_(jobs=600), load("default")
    trace = some.generate(5000)
    _same(simulate(trace, some.executors, default), simulate(trace, some.executors, default, corrects=False))


@pytest.mark.parametrize("name", ["k8s_poisson", "dag_wide"])
def test_an_observed_episode_is_the_same_as_a_compiled_one(name: str) -> None:
    trace, some = _noisy(name, 5001, jobs=300)
    default = load("default")
    seen = simulate(trace, some.executors, default, observer=lambda _state, _steps: None)
    _same(seen, simulate(trace, some.executors, default))


def _states(trace: Trace, executors: int, policy: Policy) -> tuple[list[ClusterState], Episode]:
    states: list[ClusterState] = []

    def keep(state: ClusterState, _steps: tuple[Step, ...]) -> None:
        states.append(state._replace(**{
            name: np.array(value) for name, value in state._asdict().items() if isinstance(value, np.ndarray)
        }))  # fmt: skip

    return states, simulate(trace, executors, policy, corrects=True, observer=keep)


def test_estimates_are_those_of_the_lessons_up_to_a_jobs_arrival() -> None:
    trace, some = _noisy("dag_pods", 5002, jobs=400)
    states, episode = _states(trace, some.executors, load("srwf"))
    # The same lessons, in the order in which stages ended: one task each.
    past, expected_s = new_correction(), trace.stage_estimate_s.copy()
    ends = np.argsort(episode.task_end_s, kind="stable")
    learned = corrected = 0
    for job, arrival_s in enumerate(trace.job_arrival_s):
        while learned < len(ends) and episode.task_end_s[ends[learned]] <= arrival_s:
            task = ends[learned]
            learn(past, trace.stage_estimate_s[task], episode.task_end_s[task] - episode.task_start_s[task])
            learned += 1
        if pays(past):
            corrected += 1
            for stage in range(*trace.job_stage_ptr[job : job + 2]):
                expected_s[stage] = corrected_s(past, trace.stage_estimate_s[stage])
    assert corrected > 200
    np.testing.assert_allclose(states[-1].stage_estimate_s, expected_s[: len(states[-1].stage_estimate_s)], rtol=1e-9)


@pytest.mark.parametrize("name", ["dag_wide", "dag_tasks"])
def test_what_follows_from_estimates_follows_from_the_corrected_ones(name: str) -> None:
    trace, some = _noisy(name, 5003, jobs=200)
    trace = replace(trace, stage_slots=(1 + np.arange(trace.stages) % 2).astype(trace.stage_slots.dtype))
    states, _ = _states(trace, some.executors, load("srwf"))
    state = states[-1]
    jobs, stages = len(state.job_arrival_s), len(state.stage_job)
    assert (state.stage_estimate_s != trace.stage_estimate_s[:stages]).mean() > 0.5
    pointer = trace.parent_ptr[: stages + 1]
    path_s, _ = path_lengths(pointer, trace.parent[: pointer[-1]], state.stage_estimate_s)
    work_s = np.diff(trace.task_ptr)[:stages] * trace.stage_slots[:stages] * state.stage_estimate_s
    of_job_s, critical_s, width = job_shape(trace.job_stage_ptr[: jobs + 1], work_s, path_s)
    np.testing.assert_allclose(state.stage_path_s, path_s, rtol=1e-9)
    np.testing.assert_allclose(state.job_work_s, of_job_s, rtol=1e-9)
    np.testing.assert_allclose(state.job_critical_path_s, critical_s, rtol=1e-9)
    np.testing.assert_allclose(state.job_width, width, rtol=1e-9)
    np.testing.assert_allclose(state.recent_work_s, of_job_s[-len(state.recent_work_s) :], rtol=1e-9)
    for each in states[:: len(states) // 50]:
        _check_what_is_left(each)


def _check_what_is_left(state: ClusterState) -> None:
    left = (state.stage_pending + state.stage_running) * state.stage_slots * state.stage_estimate_s
    left_s = np.bincount(state.stage_job, left, len(state.job_arrival_s))
    np.testing.assert_allclose(state.job_remaining_work_s[state.active_jobs], left_s[state.active_jobs], rtol=1e-6)


def test_jobs_with_moldable_stages_or_stages_that_take_no_time_keep_what_they_were_given() -> None:
    builder = TraceBuilder()
    for number in range(60):
        builder.add_job(f"j{number}", 10.0 * number, [StageSpec("a", [3.0], estimate_s=1.0)])
    nothing = [StageSpec("a", [0.0], estimate_s=0.0), StageSpec("b", [3.0], ["a"], estimate_s=1.0)]
    builder.add_job("nothing", 700.0, nothing)
    builder.add_job("nothing-last", 705.0, [nothing[1]._replace(depends_on=[]), nothing[0]._replace(depends_on=["b"])])
    builder.add_job("moldable", 710.0, [StageSpec("a", [3.0], estimate_s=1.0, serial_fraction=0.5)])
    builder.add_job("plain", 720.0, [StageSpec("a", [3.0], estimate_s=1.0)])
    states, _ = _states(builder.finish(), 1, load("srwf"))
    assert states[-1].job_work_s[-4:].tolist() == pytest.approx([1.0, 1.0, 1.0, 3.0], rel=0.01)


def test_a_job_with_a_stage_that_takes_next_to_no_time_keeps_what_it_was_given() -> None:
    builder = TraceBuilder()
    for number in range(60):
        builder.add_job(f"j{number}", 4e6 * number, [StageSpec("a", [3e6], estimate_s=1e6)])
    tiny = [StageSpec("b", [3e6], ["a"], estimate_s=1e6), StageSpec("a", [1.0], estimate_s=1e-11)]
    builder.add_job("tiny", 3e8, tiny)
    builder.add_job("plain", 4e8, [StageSpec("a", [3e6], estimate_s=1e6)])
    states, _ = _states(builder.finish(), 1, load("srwf"))
    state = states[-1]
    assert state.stage_path_s[-1] == pytest.approx(3e6, rel=0.01)
    assert state.stage_path_s[-3:-1].tolist() == [1e6, 1e6], "a path is never shorter than one below it"


def _played(trace: Trace, executors: int, **tables: Any) -> World:
    """Play an episode whose policy gets estimates corrected, and return what is known at its end."""
    world = new_world(tables_of(trace, executors, **tables), executors, corrects=True)
    assert run_rule(world, SRWF.rule, NO_LIMITS) == DONE
    return world


def test_stages_are_kept_in_the_order_of_their_corrected_paths() -> None:
    trace, some = _noisy("dag_wide", 5003, jobs=200)
    world = _played(trace, some.executors)
    path_s, order = column(world.board.stages, "path_s"), np.array(listed(world.by_path, trace.stages))
    for first, end in pairwise(trace.job_stage_ptr.tolist()):
        assert sorted(order[first:end]) == list(range(first, end))
        assert (np.diff(path_s[order[first:end]]) <= 0.0).all()
    assert (order != tables_of(trace, some.executors).stage_order).any()


def test_what_a_job_teaches_by_hand() -> None:
    builder = TraceBuilder()
    wide = StageSpec("a", [3.0, 5.0], slots=2, estimate_s=1.0)
    builder.add_job("one", 0.0, [wide, StageSpec("b", [6.0], ["a"], estimate_s=1.0)])
    correction = _played(builder.finish(), 4).correction
    expected_s = (0.3 + 4.0) / 1.3  # of the second stage, after the mean of the first one's tasks
    job = peek(correction.jobs)
    assert (job.given_s, job.took_s) == (2 * 2 * 1.0 + 1.0, 2 * (3.0 + 5.0) + 6.0)
    assert job.corrected_s == pytest.approx(2 * 2 * 1.0 + expected_s)
    assert peek(correction.lessons).given_error == pytest.approx((math.log(4.0) + math.log(6.0)) / 2.0)


@pytest.mark.parametrize(
    ("changes", "mute", "lessons"),
    [({}, None, 1), ({"serial_fraction": 0.5}, None, 0), ({"estimate_s": 0.0}, None, 0), ({}, [False, True], 1)],
)
def test_what_teaches_nothing_of_the_order_of_jobs(changes: Any, mute: list[bool] | None, lessons: int) -> None:
    builder = TraceBuilder()
    stages = [StageSpec("a", [3.0], estimate_s=1.0)._replace(**changes)]
    if mute is not None:
        stages.append(StageSpec("b", [3.0], estimate_s=1.0))
    builder.add_job("one", 0.0, stages)
    row = peek(_played(builder.finish(), 1, mute=None if mute is None else np.array(mute)).correction.lessons)
    assert (row.seen, row.jobs) == (lessons, int(not changes and mute is None))


def test_a_job_that_fails_teaches_what_its_stages_took_and_nothing_of_the_order() -> None:
    builder = TraceBuilder()
    for number in range(40):
        stages = [StageSpec("a", [3.0], estimate_s=1.0), StageSpec("b", [3.0], ["a"], estimate_s=1.0)]
        builder.add_job(f"j{number}", 0.0, stages)
    world = _played(builder.finish(), 1, failures=Failures(0.5, retries=0, seed=1))
    failed = column(world.job_progress, "failed")
    row = peek(world.correction.lessons)
    assert row.jobs == np.sum(failed == 0)
    assert row.seen > 2 * row.jobs, "the first stage of some that failed"


def test_jobs_that_fail_teach_nothing() -> None:
    trace, some = _noisy("express_k2", 5004, jobs=300)
    failures = Failures(0.999, retries=0, seed=1)
    default = load("default")
    one = simulate(trace, some.executors, default, failures=failures)
    _same(one, simulate(trace, some.executors, default, failures=failures, corrects=False))


def test_the_trace_is_left_as_it_was() -> None:
    trace, some = _noisy("express_k2", 5005, jobs=300)
    before = replace(trace, stage_estimate_s=trace.stage_estimate_s.copy())
    simulate(trace, some.executors, load("default"))
    np.testing.assert_array_equal(trace.stage_estimate_s, before.stage_estimate_s)
