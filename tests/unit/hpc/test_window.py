"""Deep Back-Filling's window, its cycle of decisions and its file, on handfuls of jobs."""

from __future__ import annotations

import numpy as np
import pytest
from tests.windows import log_of, random_theta, theta_of

from fermata.policy.errors import InputError, ModelError
from fermata.sim.hpc import JobLog, Rules, Start, policy, simulate
from fermata.sim.hpc.inspect import ARGMAX, PICKS, REJECT_IF_BLOCKED, SAMPLE, rule_inspector, seed_sampling
from fermata.sim.hpc.lublin import generate
from fermata.sim.hpc.orders import order
from fermata.sim.hpc.policies import Policy
from fermata.sim.hpc.window import (
    FEATURE_NAMES,
    FWD_ROW,
    STALE,
    WAITED,
    Agent,
    SingleArray,
    compose,
    new_agent,
    run_windowed,
)
from fermata.sim.hpc.window_models import WindowModel, load_window_model, shortest_first
from fermata.sim.hpc.world import RECORDED, WAITING, World, config_of, jobs_of, new_world

FREE_CHOICE = Rules(start=Start.SKIP)


def run(log: JobLog, agent: Agent) -> World:
    arrival = order("fcfs")
    world = new_world(len(log), 1, log.machine_cores)
    assert run_windowed(jobs_of(log, arrival, FREE_CHOICE), config_of(log, arrival, FREE_CHOICE), world, agent)
    return world


def starts(log: JobLog, head: int, tail: int, theta: SingleArray) -> list[float]:
    return simulate(log, order("fcfs"), FREE_CHOICE, None, WindowModel(head, tail, theta)).start_s.tolist()


@pytest.mark.parametrize(
    ("waiting", "head", "tail", "seen"),
    [
        (7, 2, 3, [0, 1, 4, 5, 6]),
        (7, 5, 0, [0, 1, 2, 3, 4]),
        (4, 2, 3, [0, 1, 2, 3]),  # all of a short queue, nobody twice
        (1, 2, 3, [0]),
        (0, 2, 3, []),
    ],
)
def test_a_window_is_the_head_and_the_tail_of_the_queue(waiting: int, head: int, tail: int, seen: list[int]) -> None:
    world, agent = new_world(8, 1, 4), new_agent(head, tail, random_theta(0), ARGMAX)
    world.queue[:waiting] = np.arange(waiting)[::-1]  # job 0 came first
    world.counts[WAITING] = waiting
    many = compose(world, agent)
    assert [world.queue[place] for place in agent.slots[:many]] == seen


# One core of four is free for a thousand seconds, and two wide jobs stand before two narrow ones.
BEHIND = log_of((0, 1000, 3), (1, 10, 2), (2, 10, 2), (3, 5, 1), (4, 7, 1))


def test_what_is_not_in_the_window_is_not_started_and_a_tail_shows_it() -> None:
    shortest = theta_of(log_estimate=-10.0)
    # The head's window shows the narrow ones only when a wide one has started, at 1000; then they come first.
    assert starts(BEHIND, 2, 0, shortest) == [0, 1000, 1007, 1000, 1000]
    assert starts(BEHIND, 1, 1, shortest) == [0, 1000, 1000, 3, 8]


def test_a_machine_of_one_core_has_numbers_for_features() -> None:
    agent = new_agent(2, 1, random_theta(0), ARGMAX)
    run(log_of((0, 10, 1), (1, 5, 1), (2, 7, 1), machine=1), agent)
    assert np.isfinite(agent.seen).all()


def test_time_with_a_stale_window_is_counted() -> None:
    for head, tail, stale in ((2, 0, 1000 - 3), (1, 1, 0)):
        agent = new_agent(head, tail, theta_of(), ARGMAX)
        run(BEHIND, agent)
        assert agent.spent[STALE] == stale


def test_at_one_instant_the_window_is_filled_up_and_the_agent_asked_again() -> None:
    # A window of one sees the second job only when the first has started, and so on: all start in one cycle.
    log = log_of((0, 10, 1), (0, 10, 1), (0, 10, 1), (0, 10, 1), (0, 10, 1))
    assert starts(log, 1, 0, theta_of()) == [0, 0, 0, 0, 10]


def test_fwd_ends_the_cycle_until_something_happens() -> None:
    log = log_of((0, 100, 1), (10, 30, 1), (50, 5, 1))
    # Nothing but Fwd, except when nothing runs and nothing more is to come: then it is not offered.
    assert starts(log, 4, 0, theta_of(fwd=1000.0)) == [50, 150, 180]
    # Fwd is better than a job of more than about a minute, until that stands alone.
    picky = theta_of(fwd=-10.0 * np.log1p(60.0) / 12.0, log_estimate=-10.0)
    assert starts(log, 4, 0, picky) == [55, 10, 50]


def test_rows_are_offered_for_what_fits_and_for_fwd_only() -> None:
    agent = new_agent(3, 1, theta_of(log_estimate=-10.0), ARGMAX, record=20)
    world = run(BEHIND, agent)
    many = int(world.counts[RECORDED])
    sizes, rows = agent.sizes[:many], agent.rows[: agent.filled[0]]
    assert sizes.sum() == len(rows)
    assert (rows[:, FWD_ROW].reshape(-1)[np.cumsum(sizes) - 1] == 1.0).all()
    assert rows[:, FWD_ROW].sum() == many
    jobs = rows[rows[:, FWD_ROW] == 0.0]
    assert (jobs[:, FEATURE_NAMES.index("free_after")] >= 0.0).all()
    # At 3 the narrow job is the only one that fits, beside Fwd: three quarters of the machine are in use, for 997 s.
    assert agent.marks[1, 0] == 3.0
    assert sizes[1] == 2
    said = dict(zip(FEATURE_NAMES, rows[sizes[0]].tolist(), strict=True))
    assert said["eta"] == 0.75
    assert said["sigma"] == pytest.approx(np.log1p(997 * 3 / 4) / 12.0)
    assert said["log_unseen"] == 0.0
    assert said["fitting"] == pytest.approx(1 / 3)
    assert said["free_at_end"] == 0.0
    assert said["free_in_10min"] == 0.25
    assert said["free_in_1h"] == 1.0


def test_what_is_recorded_adds_up_to_what_was_waited() -> None:
    log = generate(150, 4, load=1.1)
    agent = new_agent(3, 3, random_theta(2), SAMPLE, record=450)
    seed_sampling(5)
    world = run(log, agent)
    assert agent.spent[WAITED] == pytest.approx((world.start - log.submit_s).sum())
    many = int(world.counts[RECORDED])
    assert (np.diff(agent.marks[:many], axis=0) >= 0.0).all()
    assert ((agent.acted[:many] >= 0) & (agent.acted[:many] < agent.sizes[:many])).all()
    assert (agent.log_chance[:many] <= 0.0).all()


def test_a_window_over_everything_is_the_shortest_first_scheduler() -> None:
    log, classical = generate(400, 3, load=1.1), policy("sjf/skip")
    expected = simulate(log, classical.order, classical.rules).start_s
    found = starts(log, 400, 0, shortest_first(400, 0).theta)
    assert np.mean(found) == pytest.approx(expected.mean(), rel=1e-3)  # ties go to another job there


def test_an_agent_takes_no_inspector_beside_it() -> None:
    chosen = Policy("window", order("fcfs"), FREE_CHOICE, WindowModel(2, 2, random_theta(1)))
    with pytest.raises(InputError, match="expected no inspector beside it"):
        simulate(BEHIND, chosen.order, chosen.rules, rule_inspector(PICKS, REJECT_IF_BLOCKED), chosen.model)


def test_a_file_that_is_missing_is_named() -> None:
    with pytest.raises(ModelError, match=r"nowhere\.onnx"):
        load_window_model("nowhere.onnx")
