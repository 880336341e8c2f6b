"""A fork that is given the episode's own future must end as the episode does."""

import numpy as np
import pytest

from fermata.policy.features import ORDER, SIZE
from fermata.policy.registry import load
from fermata.sim.engine import DECIDE, advance
from fermata.sim.scenarios import SCENARIOS
from fermata.sim.simulate import simulate
from fermata.sim.world import ARRIVED, NOW, new_world, tables_of
from fermata.training.collect import empty_network
from fermata.training.fork import new_fork, splice, window_of
from fermata.training.teacher import NO_LIMITS, Base, _act, _look, _take

JOBS = 520


def _finish(tables, world, base):
    if not _take(tables, world, -1, base, NO_LIMITS):
        _act(tables, world, base, NO_LIMITS)
    while advance(tables, world) == DECIDE:
        _act(tables, world, base, NO_LIMITS)


@pytest.mark.parametrize("name", ["express_k2", "dag_wide"])
def test_a_fork_with_its_own_future_ends_as_the_episode(name: str) -> None:
    scenario = SCENARIOS[name].with_(jobs=JOBS)
    trace, executors = scenario.generate(3), scenario.executors
    policy = load("sjf-hold:tau=20")
    whole = simulate(trace, executors, policy)
    tables = tables_of(trace, executors)
    world = new_world(tables, executors)
    base = Base(False, policy.rule, ORDER, empty_network())
    fork = new_fork(tables, executors, 2 * JOBS, 4 * trace.stages, 4 * trace.tasks, 4 * len(trace.parent) + 10)
    compared = 0
    while advance(tables, world) == DECIDE:
        while True:
            head, _, _ = _look(tables, world, ORDER, np.zeros(SIZE))
            if head < 0:
                break
            arrived = int(world.counter[ARRIVED])
            # The library's first gap counts from now, so only at an arrival is its future exactly this one's.
            at_arrival = world.clock[NOW] == tables.job_arrival_s[arrived - 1]
            if at_arrival and 405 < arrived < JOBS - 10 and arrived % 9 == 0:
                window = window_of(tables, world)
                cut = splice(fork, tables, world, window, tables, arrived, JOBS - arrived)
                assert cut is not None
                _finish(cut, fork.world, base)
                ends = fork.world.job_completion_s[: JOBS - window.job0]
                np.testing.assert_allclose(ends, whole.job_completion_s[window.job0 :], rtol=0, atol=1e-6)
                compared += 1
            if _take(tables, world, -1, base, NO_LIMITS):
                break
    assert compared >= 5
    np.testing.assert_array_equal(world.job_completion_s, whole.job_completion_s)


def test_a_fork_that_is_too_small_says_so() -> None:
    scenario = SCENARIOS["express_k2"].with_(jobs=100)
    tables = tables_of(scenario.generate(1), scenario.executors)
    world = new_world(tables, scenario.executors)
    advance(tables, world)
    fork = new_fork(tables, scenario.executors, 20, 20, 20, 1)
    assert splice(fork, tables, world, window_of(tables, world), tables, 1, 50) is None
