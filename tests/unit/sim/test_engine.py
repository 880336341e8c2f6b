"""Episodes small enough to be worked out on paper."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.episodes import Python, assert_consistent, one_stage_jobs, stage, startable_stages, trace_of

from fermata.policy.action import HOLD, START, WAIT, Action, IllegalActionError
from fermata.policy.errors import InputError
from fermata.policy.guardrails import AGED, CAPPED, IDLE_POOL, Guardrails
from fermata.policy.registry import load
from fermata.policy.state import ClusterState
from fermata.sim.engine import DECIDE, STUCK, advance
from fermata.sim.simulate import Episode, StuckError, simulate
from fermata.sim.trace import Trace
from fermata.sim.trace_builder import StageSpec
from fermata.sim.world import new_world, tables_of


def run(trace: Trace, executors: int, policy: str = "fifo", *, sticky: bool = False) -> Episode:
    episode = simulate(trace, executors, load(policy), sticky=sticky)
    assert_consistent(episode)
    return episode


def first_come(state: ClusterState) -> Action:
    chosen = startable_stages(state)[0]
    return Action(START, chosen, int(state.stage_running[chosen]) + 1)


FIGURE_ONE = one_stage_jobs((0.0, 20.0), (2.0, 4.0))


def test_figure_one_first_in_first_out() -> None:
    episode = run(FIGURE_ONE, 1)
    assert episode.job_completion_s.tolist() == [20.0, 24.0]
    assert episode.job_jct_s.mean() == 21.0
    assert episode.job_wait_s.tolist() == [0.0, 18.0]
    assert (episode.events, episode.decisions) == (4, 2)


def test_figure_one_with_the_long_job_held_for_its_follower() -> None:
    episode = run(FIGURE_ONE, 1, "hold-follower:delay=4")
    assert episode.job_completion_s.tolist() == [26.0, 6.0]
    assert episode.job_jct_s.mean() == 15.0
    # The long one is held for 2 s, then waits while the short one runs.
    assert episode.job_held_s.tolist() == [2.0, 0.0]
    assert episode.job_wait_s.tolist() == [4.0, 0.0]
    assert episode.job_run_s.tolist() == [20.0, 4.0]


def test_a_hold_whose_follower_does_not_come_ends_at_its_delay() -> None:
    episode = run(one_stage_jobs((1.0, 20.0), (30.0, 4.0)), 1, "hold-follower:delay=4")
    assert episode.job_start_s.tolist() == [5.0, 30.0]
    assert episode.job_held_s.tolist() == [4.0, 0.0]


def test_a_job_of_a_given_short_size_is_not_held_for_a_follower() -> None:
    episode = run(one_stage_jobs((1.0, 20.0), (50.0, 30.0)), 1, "hold-follower:delay=4,split=25")
    assert episode.job_start_s.tolist() == [1.0, 54.0]


def test_a_diamond_waits_for_its_last_parent() -> None:
    #   a(2) -> b(5), c(1) -> d(3) on two executors: 2 + 5 + 3
    job = [stage("a", 2), stage("b", 5, "a"), stage("c", 1, "a"), stage("d", 3, "b", "c")]
    episode = run(trace_of((0.0, job)), 2)
    assert episode.task_start_s.tolist() == [0.0, 2.0, 2.0, 7.0]
    assert episode.stage_ready_s.tolist() == [0.0, 2.0, 2.0, 7.0]
    assert episode.job_jct_s.tolist() == [10.0]
    assert episode.job_run_s.tolist() == [10.0]
    assert episode.busy_s == 11.0


def test_a_diamond_on_one_executor_takes_the_longer_path_first() -> None:
    # c comes first in the file, but b has the longer path to the end.
    job = [stage("a", 2), stage("c", 1, "a"), stage("b", 5, "a"), stage("d", 3, "b", "c")]
    episode = run(trace_of((0.0, job)), 1)
    assert episode.task_start_s.tolist() == [0.0, 7.0, 2.0, 8.0]
    assert episode.job_jct_s.tolist() == [11.0]


def test_a_task_of_several_slots_waits_until_they_are_free_together() -> None:
    jobs = trace_of((0.0, [stage("a", 4)]), (0.0, [stage("b", 3, slots=2)]), (1.0, [stage("c", 2)]))
    episode = run(jobs, 2)
    # At 0 one executor is left for j1, which needs two; j2 takes it at 1 and j1 starts at 4.
    assert episode.job_start_s.tolist() == [0.0, 4.0, 1.0]
    assert episode.job_wait_s.tolist() == [0.0, 4.0, 0.0]
    assert episode.job_held_s.tolist() == [0.0, 0.0, 0.0]
    assert episode.busy_s == 4.0 + 6.0 + 2.0


def test_tasks_of_several_slots_start_together_as_far_as_they_fit() -> None:
    episode = run(trace_of((0.0, [stage("a", [3, 5, 2], slots=2)])), 5)
    assert episode.task_start_s.tolist() == [0.0, 0.0, 3.0]
    # The first task takes the executors of lowest number that the list gives out, and none is in two tasks.
    assert len(set(episode.task_executor[:2].tolist())) == 2


def test_a_moldable_stage_takes_what_is_free_and_keeps_it() -> None:
    # 12 s of work, a quarter of it serial: 3 executors take 3 + 9 / 3 = 6 s.
    moldable = StageSpec("m", [12.0], serial_fraction=0.25)
    jobs = trace_of((0.0, [stage("a", 4)]), (0.0, [moldable]), (1.0, [stage("c", 1)]))
    episode = run(jobs, 4)
    assert episode.stage_width.tolist() == [1, 3, 1]
    assert episode.job_completion_s.tolist() == [4.0, 6.0, 5.0]
    assert episode.busy_s == 4.0 + 18.0 + 1.0


def test_a_moldable_stage_takes_no_more_than_its_cap() -> None:
    moldable = StageSpec("m", [12.0], serial_fraction=0.25)
    two = Python(lambda state: Action(START, startable_stages(state)[0], 2))
    episode = simulate(trace_of((0.0, [moldable])), 4, two)
    assert episode.stage_width.tolist() == [2]
    assert episode.job_completion_s.tolist() == [3.0 + 4.5]
    more = Python(lambda state: Action(START, 1, 4) if state.free == 3 else Action(START, 0, 1))
    episode = simulate(trace_of((0.0, [stage("a", 9)]), (0.0, [moldable])), 4, more)
    assert episode.stage_width.tolist() == [1, 3]  # the cap asked for 4
    assert_consistent(episode)


def test_a_sticky_stage_keeps_its_executors_until_its_tasks_run_out() -> None:
    # Three tasks of 2 s on two executors; at 1 a job of 1 s arrives, which SJF prefers as soon as something is free.
    jobs = trace_of((0.0, [stage("a", 2, tasks=3)]), (1.0, [stage("b", 1)]))
    assert run(jobs, 2, "sjf").task_start_s.tolist() == [0.0, 0.0, 2.0, 2.0]
    jobs = trace_of((0.0, [stage("a", 2, tasks=4)]), (1.0, [stage("b", 1)]))
    assert run(jobs, 2, "sjf").task_start_s.tolist() == [0.0, 0.0, 2.0, 3.0, 2.0]
    assert run(jobs, 2, "sjf", sticky=True).task_start_s.tolist() == [0.0, 0.0, 2.0, 2.0, 4.0]


def test_sticky_executors_are_expected_back_after_the_tasks_to_come() -> None:
    # At 13 the first task of `a` overruns its 10 s, as does the third, on the executor of the second. The fourth is
    # expected on that of the first: from then on. A moldable stage has no more than its task.
    jobs = trace_of(
        (0.0, [stage("b", 12.5)]),
        (0.0, [stage("a", [20, 2, 20, 5])._replace(estimate_s=10.0)]),
        (0.0, [stage("m", 40.0)._replace(serial_fraction=0.5)]),
        (13.0, [stage("c", 1.0)]),
    )
    told: dict[float, list[float]] = {}

    def note(state: ClusterState, steps: object) -> None:
        told[state.now_s] = sorted(state.executor_free_at_s.tolist())

    simulate(jobs, 5, load("fifo"), sticky=True, caps=np.array([1, 2, 5, 1], np.int32), observer=note)
    assert told[13.0] == [-math.inf, 12.0, 23.0, 30.0, 30.0]


def test_a_sticky_stage_goes_on_within_the_cap_that_it_was_given() -> None:
    jobs = trace_of((0.0, [stage("a", 2, tasks=3)]), (0.0, [stage("b", 3)]))
    one_at_a_time = Python(first_come)
    episode = simulate(jobs, 1, one_at_a_time, sticky=True)
    assert (episode.task_start_s.tolist(), episode.decisions) == ([0.0, 2.0, 4.0, 6.0], 2)
    assert simulate(jobs, 1, one_at_a_time).decisions == 4


def test_a_stage_with_a_cap_runs_no_more_tasks_at_once() -> None:
    jobs = trace_of((0.0, [stage("a", 2, tasks=4)]), (0.0, [stage("b", 3)]))
    caps = np.array([2, 1], np.int32)
    for policy in (load("fifo"), Python(first_come), load("default")):
        for sticky in (False, True):
            episode = simulate(jobs, 4, policy, sticky=sticky, caps=caps)
            assert episode.task_start_s.tolist() == [0.0, 0.0, 2.0, 2.0, 0.0]


def test_everything_at_one_instant_happens_before_the_decision() -> None:
    # At 5 both executors become free and j2, j3 arrive; the shortest two of the three that wait start at once.
    jobs = one_stage_jobs((0.0, 5.0), (0.0, 5.0), (1.0, 9.0), (5.0, 2.0), (5.0, 3.0))
    episode = run(jobs, 2, "sjf")
    assert episode.job_start_s.tolist() == [0.0, 0.0, 7.0, 5.0, 5.0]
    assert episode.decisions == 5


def test_tasks_that_end_together_end_in_the_order_in_which_they_started() -> None:
    # All seven end at 10, and whose end comes last gives the executor that is taken first.
    seven = [(float(i), 10.0 - i) for i in range(7)]
    episode = run(one_stage_jobs(*seven, *[(20.0, 1.0)] * 7), 7)
    assert episode.task_executor[7:].tolist() == episode.task_executor[6::-1].tolist()


def test_jobs_that_arrive_together_keep_the_order_of_the_file() -> None:
    jobs = one_stage_jobs((3.0, 1.0), (3.0, 1.0), (3.0, 1.0))
    assert run(jobs, 1, "sjf").job_start_s.tolist() == [3.0, 4.0, 5.0]
    assert run(jobs, 1, "fifo").job_start_s.tolist() == [3.0, 4.0, 5.0]


def test_tasks_of_no_duration_pass_through_at_once() -> None:
    job = [stage("a", 0, tasks=5), stage("b", 0, "a"), stage("c", 3, "b")]
    episode = run(trace_of((1.0, job), (1.0, [stage("z", 0)])), 1)
    assert episode.task_start_s.tolist() == [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 4.0]
    assert episode.job_jct_s.tolist() == [3.0, 3.0]
    assert episode.job_run_s.tolist() == [3.0, 0.0]


def test_a_job_of_nothing_takes_no_time() -> None:
    episode = run(one_stage_jobs((7.0, 0.0)), 1)
    assert episode.job_jct_s.tolist() == [0.0]
    assert episode.job_start_s.tolist() == [7.0]


def test_remaining_work_counts_what_runs_and_job_size_does_not_change() -> None:
    # Two executors; j0: 3 tasks of 4 s. At 4 its remaining work is 4, less than j1's 6; SJF still sees 12.
    jobs = trace_of((0.0, [stage("a", 4, tasks=3)]), (1.0, [stage("b", 6)]), (1.0, [stage("c", 6)]))
    assert run(jobs, 2, "srwf").task_start_s.tolist() == [0.0, 0.0, 4.0, 4.0, 8.0]
    assert run(jobs, 2, "sjf").task_start_s.tolist() == [0.0, 0.0, 10.0, 4.0, 4.0]


def test_last_come_first_served() -> None:
    jobs = one_stage_jobs((0.0, 5.0), (1.0, 1.0), (2.0, 3.0))
    assert run(jobs, 1, "lcfs").job_start_s.tolist() == [0.0, 8.0, 5.0]


def test_fair_sharing_gives_one_task_at_a_time_to_whoever_holds_least() -> None:
    jobs = trace_of((0.0, [stage("a", 4, tasks=4)]), (0.0, [stage("b", 6, tasks=2)]))
    # Two executors each at 0; at 4 j0 holds none and gets both back, and nothing of j1 is left to start.
    assert run(jobs, 4, "fair").task_start_s.tolist() == [0.0, 0.0, 4.0, 4.0, 0.0, 0.0]
    # On three the third goes to the earlier job; so does the second of the two that it gives back at 4.
    assert run(jobs, 3, "fair").task_start_s.tolist() == [0.0, 0.0, 4.0, 4.0, 0.0, 6.0]
    # On two they have one each, and each takes its own again.
    assert run(jobs, 2, "fair").task_start_s.tolist() == [0.0, 4.0, 8.0, 12.0, 0.0, 6.0]


def test_packing_starts_the_widest_tasks_that_fit() -> None:
    jobs = trace_of((0.0, [stage("a", 2)]), (0.0, [stage("b", 3, slots=3)]), (0.0, [stage("c", 4, slots=2)]))
    assert run(jobs, 4, "packing").job_start_s.tolist() == [0.0, 0.0, 3.0]
    assert run(jobs, 4, "fifo").job_start_s.tolist() == [0.0, 0.0, 3.0]
    assert run(jobs, 3, "packing").job_start_s.tolist() == [3.0, 0.0, 3.0]
    assert run(jobs, 3, "fifo").job_start_s.tolist() == [0.0, 4.0, 0.0]


def test_estimates_order_jobs_and_durations_happen() -> None:
    jobs = trace_of(
        (0.0, [stage("run", 1)]),
        (0.0, [StageSpec("a", [2.0], estimate_s=9.0)]),
        (0.0, [StageSpec("b", [8.0], estimate_s=3.0)]),
    )
    assert run(jobs, 1, "sjf").job_start_s.tolist() == [0.0, 9.0, 1.0]


def test_the_last_executor_is_held_while_the_next_completion_is_far() -> None:
    # At 0 the first long job takes one of two executors; the next completion is 100 s away, so the second long one
    # is held until a short one has come and gone at 7, and again until 50, when the completion is near enough.
    jobs = one_stage_jobs((0.0, 100.0), (1.0, 100.0), (5.0, 2.0))
    episode = run(jobs, 2, "sjf-hold:split=10,tau=50")
    assert episode.job_start_s.tolist() == [0.0, 50.0, 5.0]
    assert episode.job_held_s.tolist() == [0.0, 47.0, 0.0]
    assert episode.job_wait_s.tolist() == [0.0, 2.0, 0.0]


@pytest.mark.parametrize(
    ("limits", "second_s"),
    [(Guardrails(), 5.0), (Guardrails(max_hold_s=1.5), 4.5), (Guardrails(max_wait_s=4.0), 4.0)],
)
def test_a_stage_that_has_begun_is_held_between_its_tasks(limits: Guardrails, second_s: float) -> None:
    def rest_until_five(state: ClusterState) -> Action:
        return Action(WAIT, until_s=5.0) if 0.0 < state.now_s < 5.0 else Action(START, 0, 1)

    episode = simulate(trace_of((0.0, [stage("a", 3, tasks=2)])), 1, Python(rest_until_five), limits=limits)
    assert episode.task_start_s.tolist() == [0.0, second_s]
    assert episode.job_run_s.tolist() == [6.0]
    assert episode.job_held_s.tolist() == episode.stage_held_s.tolist() == [second_s - 3.0]
    assert episode.job_wait_s.tolist() == [0.0]


def test_a_long_job_goes_first_when_another_executor_frees_soon() -> None:
    jobs = one_stage_jobs((0.0, 30.0), (0.0, 22.0), (20.0, 100.0), (20.0, 5.0))
    assert run(jobs, 2, "sjf").job_start_s.tolist()[2:] == [27.0, 22.0]
    # At 22 one executor is free, and the other one follows at 30: within theta.
    assert run(jobs, 2, "sjf-switch:split=10,theta=8").job_start_s.tolist()[2:] == [22.0, 30.0]
    assert run(jobs, 2, "sjf-switch:split=10,theta=7").job_start_s.tolist()[2:] == [27.0, 22.0]


def hold_first_until(until_s: float) -> Python:
    def answer(state: ClusterState) -> Action:
        if 0 in startable_stages(state) and state.now_s < until_s and math.isinf(state.stage_hold_until_s[0]):
            return Action(HOLD, 0, until_s=until_s)
        return first_come(state)

    return Python(answer)


def test_a_committed_hold_lets_others_pass_and_ends_at_its_time() -> None:
    episode = simulate(one_stage_jobs((0.0, 4.0), (1.0, 2.0)), 1, hold_first_until(2.5))
    assert_consistent(episode)
    assert episode.job_start_s.tolist() == [3.0, 1.0]  # at 2.5 the other one runs
    assert episode.job_held_s.tolist() == [1.0, 0.0]
    assert episode.job_wait_s.tolist() == [2.0, 0.0]
    alone = simulate(one_stage_jobs((0.0, 4.0)), 1, hold_first_until(2.5))
    assert alone.job_start_s.tolist() == [2.5]
    assert alone.job_held_s.tolist() == [2.5]


def test_a_held_stage_cannot_be_started() -> None:
    def answer(state: ClusterState) -> Action:
        return Action(HOLD, 0, until_s=5.0) if startable_stages(state) == [0, 1] else Action(START, 0, 1)

    with pytest.raises(IllegalActionError, match="the stage is held until a committed time"):
        simulate(one_stage_jobs((0.0, 4.0), (0.0, 2.0)), 1, Python(answer))


def test_a_wait_ends_with_the_next_event_whatever_it_is() -> None:
    seen: list[float] = []

    def answer(state: ClusterState) -> Action:
        seen.append(state.now_s)
        return Action(WAIT, until_s=10.0) if state.now_s < 10.0 else first_come(state)

    episode = simulate(one_stage_jobs((0.0, 1.0), (4.0, 1.0)), 1, Python(answer))
    assert seen == [0.0, 4.0, 10.0, 11.0]
    assert episode.job_held_s.tolist() == [10.0, 6.0]
    assert episode.job_wait_s.tolist() == [0.0, 1.0]


def test_held_is_counted_for_a_job_only_while_none_of_its_tasks_runs() -> None:
    # Two stages side by side; the second is left alone for 3 s while the first runs, then for 2 s more.
    def answer(state: ClusterState) -> Action:
        if state.now_s < 5.0 and startable_stages(state) == [1]:
            return Action(WAIT, until_s=5.0)
        return first_come(state)

    episode = simulate(trace_of((0.0, [stage("a", 3), stage("b", 4)])), 2, Python(answer))
    assert_consistent(episode)
    assert episode.stage_held_s.tolist() == [0.0, 5.0]
    assert episode.job_held_s.tolist() == [2.0]
    assert episode.job_run_s.tolist() == [7.0]
    assert episode.job_wait_s.tolist() == [0.0]


def test_waiting_for_nothing_is_illegal_and_would_be_noticed() -> None:
    silent = Python(lambda state: Action(WAIT))
    with pytest.raises(IllegalActionError, match="nothing runs, so the wait needs a wake-up time"):
        simulate(one_stage_jobs((0.0, 1.0)), 1, silent, fallback=silent)
    tables = tables_of(one_stage_jobs((0.0, 1.0)), 1)
    world = new_world(tables, 1)
    assert [advance(world), advance(world)] == [DECIDE, STUCK]


def test_an_idle_pool_that_waits_for_nothing_asks_the_fallback() -> None:
    steps = []
    episode = simulate(
        one_stage_jobs((0.0, 5.0), (1.0, 2.0)),
        1,
        Python(lambda state: Action(WAIT)),
        observer=lambda _, taken: steps.extend(taken),
    )
    assert episode.job_start_s.tolist() == [0.0, 5.0]
    assert [step.override for step in steps] == [IDLE_POOL, IDLE_POOL]


def test_a_timed_wait_of_an_idle_pool_can_be_forbidden() -> None:
    patient = Python(lambda state: Action(WAIT, until_s=state.now_s + 3.0) if state.now_s < 3.0 else first_come(state))
    jobs = one_stage_jobs((0.0, 5.0))
    assert simulate(jobs, 1, patient).job_start_s.tolist() == [3.0]
    assert simulate(jobs, 1, patient, limits=Guardrails(hold_when_idle=False)).job_start_s.tolist() == [0.0]


def test_no_stage_is_held_longer_than_its_cap() -> None:
    jobs = one_stage_jobs((0.0, 100.0), (1.0, 100.0), (5.0, 2.0))
    overrides = []
    policy = load("sjf-hold:split=10,tau=50")
    episode = simulate(
        jobs,
        2,
        policy,
        limits=Guardrails(max_hold_s=6.0),
        observer=lambda _, steps: overrides.extend((step.override, step.action.kind) for step in steps),
    )
    # Held from 1 to 5, waits while the short job runs, held from 7 to 9.
    assert episode.job_start_s.tolist() == [0.0, 9.0, 5.0]
    assert episode.job_held_s.tolist() == [0.0, 6.0, 0.0]
    assert overrides == [(0, START), (CAPPED, WAIT), (0, START), (CAPPED, WAIT), (AGED, START)]
    np.testing.assert_array_equal(
        simulate(jobs, 2, policy, limits=Guardrails(max_hold_s=6.0)).job_start_s, episode.job_start_s
    )


def test_no_stage_is_held_beyond_its_age_cap() -> None:
    jobs = one_stage_jobs((0.0, 100.0), (1.0, 100.0), (5.0, 2.0))
    policy = load("sjf-hold:split=10,tau=50")
    assert simulate(jobs, 2, policy, limits=Guardrails(max_wait_s=3.0)).job_start_s.tolist() == [0.0, 4.0, 100.0]
    # Over age while the short job runs: it starts as soon as an executor is free.
    assert simulate(jobs, 2, policy, limits=Guardrails(max_wait_s=5.5)).job_start_s.tolist() == [0.0, 7.0, 5.0]


def test_a_hold_needs_a_time() -> None:
    def answer(state: ClusterState) -> Action:
        return Action(HOLD, startable_stages(state)[0], until_s=math.nan)

    with pytest.raises(IllegalActionError, match="the wake-up time is not in the future, or is NaN"):
        simulate(one_stage_jobs((0.0, 1.0)), 1, Python(answer))


def test_a_task_that_can_never_fit_is_refused() -> None:
    with pytest.raises(InputError, match="job 'j1', stage 'b': a task needs 3 slots, but the pool has 2 executors"):
        simulate(trace_of((0.0, [stage("a", 1)]), (0.0, [stage("b", 1, slots=3)])), 2, load("fifo"))
    with pytest.raises(InputError, match="expected at least 1 executor, got 0"):
        simulate(one_stage_jobs((0.0, 1.0)), 0, load("fifo"))


def test_a_policy_that_only_lets_time_pass_is_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fermata.sim.simulate.MOST_IDLE_WAITS", 50)

    def start_at(start_s: float) -> Python:
        return Python(lambda s: first_come(s) if s.now_s >= start_s else Action(WAIT, until_s=s.now_s + 1.0))

    jobs = one_stage_jobs((0.0, 4.0), (100.0, 4.0))
    # An arrival is worth waiting for.
    with pytest.raises(StuckError, match=r"left 2 jobs unfinished at 150 s: it waits.*; --max-hold or --max-wait"):
        simulate(jobs, 2, start_at(math.inf))
    assert simulate(jobs, 2, start_at(140.0)).job_start_s.tolist() == [140.0, 140.0]
