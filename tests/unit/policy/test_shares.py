"""Shares of the pool: what the capped rules choose, worked by hand."""

from __future__ import annotations

from itertools import pairwise

from fermata.policy.heuristics.base import Heuristic
from fermata.policy.heuristics.kernel import BY_REMAINING_WORK, EQUAL_SHARE, WORK_SHARE, Rule
from fermata.sim.simulate import simulate
from fermata.sim.trace_builder import StageSpec, TraceBuilder


def starts(rule: Rule, executors: int, jobs: list[tuple[int, float]], gap_s: float = 0.0) -> list[list[float]]:
    """Start times of each job's tasks; jobs of (tasks, duration) that arrive `gap_s` apart."""
    builder = TraceBuilder()
    for number, (tasks, duration_s) in enumerate(jobs):
        builder.add_job(f"j{number}", number * gap_s, [StageSpec("a", [duration_s] * tasks)])
    trace = builder.finish()
    episode = simulate(trace, executors, Heuristic("test", "", rule))
    return [sorted(episode.task_start_s[a:b].tolist()) for a, b in pairwise(trace.task_ptr)]


def test_work_share_gives_one_executor_per_grain_and_the_rest_to_others() -> None:
    # At a grain of 10 s the first job's 20 s of work get 2 executors; the second's 40 s get the other two.
    rule = Rule(order=BY_REMAINING_WORK, fill=WORK_SHARE, grain_s=10.0)
    first, second = starts(rule, 4, [(4, 5.0), (4, 10.0)])
    assert first == [0.0, 0.0, 5.0, 10.0]  # at 5 s 10 s of work are left: one executor
    assert second[:3] == [0.0, 0.0, 5.0]


def test_spare_executors_go_to_the_first_job() -> None:
    capped = Rule(order=BY_REMAINING_WORK, fill=WORK_SHARE, grain_s=20.0)
    assert starts(capped, 4, [(4, 5.0)]) == [[0.0, 5.0, 10.0, 15.0]]
    assert starts(capped._replace(spare=1), 4, [(4, 5.0)]) == [[0.0] * 4]


def test_equal_share_divides_the_pool() -> None:
    rule = Rule(order=BY_REMAINING_WORK, fill=EQUAL_SHARE)
    assert [each.count(0.0) for each in starts(rule, 4, [(4, 5.0), (4, 6.0)])] == [2, 2]
    # Three quarters of the pool for one job, where an equal share were less.
    assert [each.count(0.0) for each in starts(rule._replace(share=0.75), 4, [(4, 5.0), (4, 6.0)])] == [3, 1]


def test_an_executor_stays_with_its_job_within_the_cap() -> None:
    # A short job arrives at 1 s; at 4 s the one executor frees from the long one.
    jobs = [(3, 4.0), (1, 2.0)]
    rule = Rule(order=BY_REMAINING_WORK, fill=EQUAL_SHARE)
    assert starts(rule, 1, jobs, 1.0) == [[0.0, 6.0, 10.0], [4.0]]
    assert starts(rule._replace(keep=1), 1, jobs, 1.0) == [[0.0, 4.0, 8.0], [12.0]]
