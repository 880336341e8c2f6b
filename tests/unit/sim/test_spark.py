"""The Spark model on tiny workloads with answers worked by hand, and its invariants on TPC-H-like ones."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.spark_workloads import VARIED, workload

from fermata.policy.action import WAIT, Action, IllegalActionError
from fermata.policy.errors import InputError
from fermata.policy.registry import load
from fermata.policy.state import ClusterState
from fermata.sim.spark.episode import SparkWorkload, peer_episode, policy_episode
from fermata.sim.spark.experiment import episode_of
from fermata.sim.spark.peers import PEERS
from fermata.sim.spark.waves import below, grid_of, lists_of
from fermata.sim.spark.world import NONE

LOWEST = np.zeros(1, np.uint32)


class TestDurations:
    def test_one_executor_runs_fresh_then_later_then_first(self) -> None:
        # Travel 2, fresh 9, rest 2; then the other stage's first task: 5, rest 2.
        jobs = workload([(0.0, [(2, []), (2, [])])])
        _, world = peer_episode(jobs, jobs.waves(1, LOWEST), "decima-fair")
        assert world.task_start_ms.tolist() == [2000, 11000, 13000, 18000]
        assert world.task_end_ms.tolist() == [11000, 13000, 18000, 20000]

    def test_who_waited_for_a_decision_is_fresh_in_the_successor(self) -> None:
        jobs = workload([(0.0, [(2, []), (2, [])])])
        _, world = peer_episode(jobs, jobs.waves(1, LOWEST), "spark-fair")
        assert world.task_end_ms.tolist() == [11000, 13000, 22000, 24000]

    def test_who_unlocks_a_stage_has_idled_in_its_job(self) -> None:
        jobs = workload([(0.0, [(2, []), (2, [0])])])
        _, world = peer_episode(jobs, jobs.waves(1, LOWEST), "decima-fair")
        assert world.task_end_ms.tolist() == [11000, 13000, 22000, 24000]

    def test_an_executor_travels_to_another_job(self) -> None:
        jobs = workload([(0.0, [(1, [])]), (1.0, [(1, [])])])
        _, world = peer_episode(jobs, jobs.waves(1, LOWEST), "decima-fifo")
        assert world.job_completion_ms.tolist() == [11000, 11000 + 2000 + 9000]

    def test_without_a_fresh_duration_a_first_one_warms_up(self) -> None:
        jobs = workload([(0.0, [(1, [])])], ({5: []}, {5: [5000]}, {5: []}))
        _, world = peer_episode(jobs, jobs.waves(1, LOWEST), "decima-fair")
        assert world.job_completion_ms.tolist() == [2000 + 5000 + 1000]

    def test_a_stage_without_durations_is_refused(self) -> None:
        with pytest.raises(InputError, match="stage 0 has no measured duration"):
            lists_of([({5: []}, {5: []}, {5: [1]})], 1000)

    def test_grid_lies_between_measured_counts(self) -> None:
        grid = grid_of(120)
        assert grid[3].tolist() == [0, 0, 0]
        assert grid[5].tolist() == [0, 0, 0]
        assert grid[7].tolist() == [0, 5, 2]
        assert grid[10].tolist() == [1, 0, 0]
        assert grid[49].tolist() == [3, 10, 9]
        assert grid[120].tolist() == [7, 0, 0]

    @given(seed=st.integers(0, 2**32 - 1), bounds=st.lists(st.integers(1, 1000), min_size=1, max_size=20))
    @settings(max_examples=25, deadline=None)
    def test_numbers_are_those_of_numpys_random_state(self, seed: int, bounds: list[int]) -> None:
        words = np.random.RandomState(seed).randint(0, 2**32, 4000, np.uint32)
        expected = np.random.RandomState(seed)
        at = 0
        for bound in bounds:
            number, at = below(words, at, bound)
            assert number == expected.randint(bound)


@st.composite
def workloads(draw: st.DrawFn) -> SparkWorkload:
    """Up to five jobs of up to five stages, each depending on some before it."""
    jobs = []
    arrival_s = 0.0
    for _ in range(draw(st.integers(1, 5))):
        stages = []
        for index in range(draw(st.integers(1, 5))):
            parents = draw(st.sets(st.integers(0, index - 1))) if index else set()
            stages.append((draw(st.integers(1, 12)), sorted(parents)))
        jobs.append((arrival_s, stages))
        arrival_s += draw(st.integers(0, 30))
    return workload(jobs, VARIED)


class Never:
    """A policy that starts nothing."""

    name = "never"

    def choose(self, state: ClusterState) -> Action:
        return Action(WAIT)


def test_waiting_for_ever_is_an_error() -> None:
    jobs = workload([(0.0, [(2, [])])])
    with pytest.raises(IllegalActionError, match="'never' waits at 0 s although nothing runs"):
        policy_episode(jobs, jobs.waves(2, seed=1), Never())


@pytest.mark.parametrize(("ahead", "start_s"), [(True, [2.0, 11.0, 11.0, 20.0]), (False, [2.0, 11.0, 20.0, 22.0])])
def test_who_is_kept_for_the_next_stage_need_not_come_again(ahead: bool, start_s: list[float]) -> None:
    jobs = workload([(0.0, [(1, []), (3, [0])])])
    _, world = policy_episode(jobs, jobs.waves(2, seed=1), load("srwf"), ahead=ahead)
    assert (world.task_start_ms / 1000.0).tolist() == start_s


# Where nothing is done ahead they may leave jobs unfinished. Decima's FIFO gives a job its executors once, and those
# that find nothing to begin then are gone. The other's fair share may send all executors of a stage to idle, busy ones
# included, and what becomes runnable in their job before they end has nobody left.
STRANDING = ("decima-fifo", "spark-fair")


@given(jobs=workloads(), executors=st.integers(1, 12), seed=st.integers(0, 99), ahead=st.booleans())
@pytest.mark.parametrize("policy", [*PEERS, "srwf", "srwf-work-share", "srwf-equal-share", "fifo"])
@settings(max_examples=40, deadline=None)
def test_invariants(policy: str, jobs: SparkWorkload, executors: int, seed: int, ahead: bool) -> None:
    waves = jobs.waves(executors, seed=seed)

    def run() -> tuple[object, object]:
        if policy in PEERS:
            return peer_episode(jobs, waves, policy, ahead=ahead)
        return policy_episode(jobs, waves, load(policy), ahead=ahead)

    _, world = run()
    finished = bool((world.job_completion_ms != NONE).all())
    assume(finished or ahead or policy not in STRANDING)
    assert finished
    trace = jobs.trace
    episode = episode_of(trace, executors, world)
    assert (world.task_end_ms != NONE).all()
    # No executor runs two tasks at once, and it needs the moving delay to another job.
    task_job = np.repeat(trace.stage_job, np.diff(trace.task_ptr))
    for executor in range(executors):
        mine = np.flatnonzero(world.task_executor == executor)
        mine = mine[np.lexsort((world.task_end_ms[mine], world.task_start_ms[mine]))]
        free_ms = world.task_end_ms[mine][:-1] + np.where(np.diff(task_job[mine]) != 0, 2000, 0)
        assert (world.task_start_ms[mine][1:] >= free_ms).all()
    # No task before the parents of its stage have ended, and no job before it arrives.
    first_s = np.minimum.reduceat(episode.task_start_s, trace.task_ptr[:-1])
    assert (first_s >= episode.stage_ready_s).all()
    assert (episode.job_run_s <= episode.job_jct_s + 1e-9).all()
    assert (episode.job_wait_s >= 0.0).all()
    assert math.isclose(episode.busy_s, (world.task_end_ms - world.task_start_ms).sum() / 1000.0, rel_tol=1e-9)
    _, again = run()
    assert (again.task_start_ms == world.task_start_ms).all()
    assert (again.task_executor == world.task_executor).all()
