"""A fork that is given the episode's own future must end as the episode does."""

import numpy as np
import pytest

from fermata.policy.features import ORDER, SIZE
from fermata.policy.registry import load
from fermata.policy.rows import column, listed, peek
from fermata.sim.engine import DECIDE, advance
from fermata.sim.generate.estimates import lognormal_noise
from fermata.sim.networks import eager
from fermata.sim.scenarios import SCENARIOS
from fermata.sim.simulate import simulate
from fermata.sim.world import World, new_world, tables_of
from fermata.training.fork import Room, new_fork, splice
from fermata.training.teacher import Base, _take, act, look

JOBS = 520


def _finish(world: World, base: Base) -> None:
    if not _take(world, -1, base):
        act(world, base)
    while advance(world) == DECIDE:
        act(world, base)


@pytest.mark.parametrize("corrects", [False, True])
@pytest.mark.parametrize("name", ["express_k2", "dag_wide"])
def test_a_fork_with_its_own_future_ends_as_the_episode(name: str, corrects: bool) -> None:
    scenario = SCENARIOS[name].with_(jobs=JOBS)
    trace, executors = lognormal_noise(scenario.generate(3), 0.7, 3), scenario.executors
    policy = load("sjf-hold:tau=20")
    whole = simulate(trace, executors, policy, corrects=corrects)
    tables = tables_of(trace, executors)
    world, library = new_world(tables, executors, corrects=corrects), new_world(tables, executors)
    base = Base(False, policy.rule, ORDER, eager())
    fork = new_fork(executors, Room(2 * JOBS, 4 * trace.stages, 4 * trace.tasks, 4 * len(trace.parent) + 10))
    compared = 0
    while advance(world) == DECIDE:
        while look(world, ORDER, np.zeros(SIZE)):
            arrived = int(peek(world.clock).arrived)
            since_s = float(peek(world.board.pool).now_s - tables.job_arrival_s[arrived - 1])
            if 405 < arrived < JOBS - 10 and arrived % 9 == 0:
                assert splice(fork, world, library, arrived, JOBS - arrived, since_s)
                kept = int(peek(fork.world.clock).arrived)
                old = [*listed(fork.kept, kept), *range(arrived, JOBS)]
                _finish(fork.world, base)
                ends = column(fork.world.job_progress, "completion_s", len(old))
                np.testing.assert_allclose(ends, whole.job_completion_s[old], rtol=0, atol=1e-6)
                compared += 1
            if _take(world, -1, base):
                break
    assert compared >= 5
    np.testing.assert_array_equal(column(world.job_progress, "completion_s"), whole.job_completion_s)


def test_a_fork_that_is_too_small_says_so() -> None:
    scenario = SCENARIOS["express_k2"].with_(jobs=100)
    tables = tables_of(scenario.generate(1), scenario.executors)
    world, library = new_world(tables, scenario.executors), new_world(tables, scenario.executors)
    advance(world)
    assert not splice(new_fork(scenario.executors, Room(20, 20, 20, 1)), world, library, 1, 50, 0.0)
    assert splice(new_fork(scenario.executors, Room(60, 60, 60, 1)), world, library, 1, 50, 0.0)
