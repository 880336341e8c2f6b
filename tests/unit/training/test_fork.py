"""A fork that is given the episode's own future must end as the episode does."""

from dataclasses import replace

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
    trace = replace(trace, job_weight=1.0 + np.arange(JOBS) % 3)
    policy = load("sjf-hold:tau=20")
    whole = simulate(trace, executors, policy, corrects=corrects)
    tables = tables_of(trace, executors)
    world, library = new_world(tables, executors, corrects=corrects), new_world(tables, executors)
    base = Base(False, policy.rule, ORDER, eager())
    fork = new_fork(executors, Room(2 * JOBS, 4 * trace.stages, 4 * trace.tasks, 4 * len(trace.parent) + 10))
    disorders: list[float] = []
    while advance(world) == DECIDE:
        while look(world, ORDER, np.zeros(SIZE)):
            arrived = int(peek(world.clock).arrived)
            since_s = float(peek(world.board.pool).now_s - tables.job_arrival_s[arrived - 1])
            if 405 < arrived < JOBS - 10 and arrived % 9 == 0:
                assert splice(fork, world, library, arrived, JOBS - arrived, since_s)
                kept = int(peek(fork.world.clock).arrived)
                old = [*listed(fork.kept, kept), *range(arrived, JOBS)]
                assert column(fork.world.job_progress, "position", kept).tolist() == list(range(kept))
                _finish(fork.world, base)
                ends = column(fork.world.job_progress, "completion_s", len(old))
                np.testing.assert_allclose(ends, whole.job_completion_s[old], rtol=0, atol=1e-6)
                pool = peek(fork.world.board.pool)
                recent = slice(int(pool.recent_begin), int(pool.recent_end))
                arrivals_s, weights = (np.array(fork.world.board.recent_arrival_s), fork.world.board.recent_weight)
                last = JOBS - (recent.stop - recent.start)
                np.testing.assert_allclose(arrivals_s[recent], trace.job_arrival_s[last:], rtol=0, atol=1e-6)
                assert np.array(weights)[recent].tolist() == trace.job_weight[last:].tolist()
                disorders.append(float(peek(fork.world.correction.lessons).given_disorder))
            if _take(world, -1, base):
                break
    assert len(disorders) >= 5
    assert disorders == pytest.approx([float(peek(world.correction.lessons).given_disorder)] * len(disorders))
    np.testing.assert_array_equal(column(world.job_progress, "completion_s"), whole.job_completion_s)


@pytest.mark.parametrize("lacks", [None, *Room._fields])
def test_a_fork_has_room_for_what_is_counted_and_not_for_one_more(lacks: str | None) -> None:
    scenario = SCENARIOS["dag_wide"].with_(jobs=100)
    trace = scenario.generate(1)
    tables = tables_of(trace, scenario.executors)
    world, library = new_world(tables, scenario.executors), new_world(tables, scenario.executors)
    while peek(world.board.pool).active < 3:  # nothing is started
        assert advance(world) == DECIDE
    stages = int(trace.job_stage_ptr[21])
    room = Room(21, stages, int(trace.task_ptr[stages]), int(trace.parent_ptr[stages]))
    if lacks is not None:
        room = room._replace(**{lacks: getattr(room, lacks) - 1})
    assert splice(new_fork(scenario.executors, room), world, library, 3, 18, 0.0) == (lacks is None)
    assert not splice(new_fork(scenario.executors, room._replace(jobs=2)), world, library, 3, 18, 0.0)


def test_a_fork_that_is_too_small_says_so() -> None:
    scenario = SCENARIOS["express_k2"].with_(jobs=100)
    tables = tables_of(scenario.generate(1), scenario.executors)
    world, library = new_world(tables, scenario.executors), new_world(tables, scenario.executors)
    advance(world)
    assert not splice(new_fork(scenario.executors, Room(20, 20, 20, 1)), world, library, 1, 50, 0.0)
    assert splice(new_fork(scenario.executors, Room(60, 60, 60, 1)), world, library, 1, 50, 0.0)
