"""A long episode tells how far it is, and what Ctrl-C leaves of it is true."""

from __future__ import annotations

import numpy as np
import pytest
from tests.episodes import Python, log_of, random_trace

from fermata.policy.decide import Policy
from fermata.policy.registry import load
from fermata.sim.experiment import Setting, run_trace
from fermata.sim.scenarios import scenario
from fermata.sim.simulate import Episode, Interrupted, Progress, simulate
from fermata.sim.trace import Trace

TRACE = scenario("dag_pods").with_(jobs=400).generate(3)
EXECUTORS = scenario("dag_pods").executors
POLICIES = ["srwf", "default", "asked"]


def policy_of(name: str) -> Policy:
    """Each of the three ways in which an episode is run: in the compiled loop, with a network, through `decide`."""
    return Python(load("srwf").choose, "asked") if name == "asked" else load(name)


@pytest.fixture(autouse=True)
def _short_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fermata.sim.simulate.SLICE_EVENTS", 37)


def cut_at(share: float) -> Progress:
    """Ctrl-C as soon as this share of the jobs is done."""

    def progress(done: float) -> None:
        if done >= share:
            raise KeyboardInterrupt

    return progress


@pytest.mark.parametrize("name", POLICIES)
def test_progress_only_rises_and_changes_nothing(name: str) -> None:
    told: list[float] = []
    watched = simulate(TRACE, EXECUTORS, policy_of(name), progress=told.append)
    assert len(told) > 5
    assert told == sorted(told)
    assert 0.0 <= told[0] < 0.2
    assert 0.8 < told[-1] <= 1.0
    np.testing.assert_equal(log_of(watched), log_of(simulate(TRACE, EXECUTORS, policy_of(name))))


@pytest.mark.parametrize("events", [1, 2, 1000, 10**12])
def test_the_length_of_slices_changes_nothing(events: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(4):
        trace, policy = random_trace(seed, 3), load("sjf-hold:tau=1,split=6")
        expected = log_of(simulate(trace, 3, policy))
        monkeypatch.setattr("fermata.sim.simulate.SLICE_EVENTS", events)
        np.testing.assert_equal(log_of(simulate(trace, 3, policy)), expected)


def assert_part_of(part: Episode, whole: Episode) -> None:
    """Every job of the part is as it is in the whole, and none that was done by then is missing."""
    at = [list(whole.trace.job_ids).index(job) for job in part.trace.job_ids]
    for name in ("job_start_s", "job_completion_s", "job_held_s", "job_run_s", "job_critical_path_s", "job_failed"):
        np.testing.assert_array_equal(getattr(part, name), getattr(whole, name)[at], err_msg=name)
    stages = np.isin(whole.trace.stage_job, at)
    tasks = np.repeat(stages, np.diff(whole.trace.task_ptr))
    for name in ("stage_ready_s", "stage_held_s", "stage_width"):
        np.testing.assert_array_equal(getattr(part, name), getattr(whole, name)[stages], err_msg=name)
    for name in ("task_start_s", "task_end_s", "task_executor"):
        np.testing.assert_array_equal(getattr(part, name), getattr(whole, name)[tasks], err_msg=name)
    assert part.trace.tasks == tasks.sum() == len(part.task_end_s)
    last_s = part.job_completion_s.max()
    assert (np.sort(whole.job_completion_s)[: part.trace.jobs] <= last_s).all()


def interrupted(trace: Trace, name: str, share: float) -> Interrupted:
    with pytest.raises(KeyboardInterrupt) as caught:
        simulate(trace, EXECUTORS, policy_of(name), progress=cut_at(share))
    assert isinstance(caught.value, Interrupted)
    return caught.value


@pytest.mark.parametrize("name", POLICIES)
def test_an_interrupt_leaves_the_jobs_that_are_done(name: str) -> None:
    cut = interrupted(TRACE, name, 0.5)
    assert cut.jobs == 400
    assert 200 <= cut.episode.trace.jobs < 400
    assert_part_of(cut.episode, simulate(TRACE, EXECUTORS, policy_of(name)))


def test_an_interrupt_before_a_job_is_done_leaves_nothing() -> None:
    with pytest.raises(KeyboardInterrupt) as caught:
        simulate(TRACE, EXECUTORS, policy_of("asked"), progress=cut_at(0.0))
    assert not isinstance(caught.value, Interrupted)


@pytest.mark.parametrize(("warm", "told"), [(50, True), (399, False)])
def test_figures_are_of_the_jobs_after_the_warm_up(warm: int, told: bool) -> None:
    with pytest.raises(Interrupted) as caught:
        run_trace(TRACE, Setting("srwf", EXECUTORS, warm), progress=cut_at(0.5))
    figures, episode = caught.value.figures, caught.value.episode
    if not told:
        assert figures is None
        return
    assert figures is not None
    assert figures["jobs"] == episode.trace.jobs - warm
    assert figures["avg_jct_s"] == pytest.approx(episode.job_jct_s[warm:].mean())
    assert 0.0 < figures["utilization"] <= 1.0
