"""The policy over the whole queue: what it can express, that it may wait, and what ships."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.episodes import expect_the_steps_of_decide
from tests.windows import log_of

from fermata.policy.action import START, WAIT, Action
from fermata.policy.board import board_of, state_of
from fermata.policy.errors import InputError
from fermata.policy.guardrails import Guardrails
from fermata.policy.onnx_file import Session
from fermata.policy.queue_features import FEATURE_NAMES, FEATURES, INTERVAL_S, choices_of
from fermata.policy.queue_policy import QueuePolicy
from fermata.policy.registry import load
from fermata.policy.state import ClusterState
from fermata.policy.transition import take
from fermata.sim.hpc import JobLog, Rules, Start, policy, simulate
from fermata.sim.hpc.estimates import with_estimates
from fermata.sim.hpc.experiment import draw_sequences, pooled, run_sequences
from fermata.sim.hpc.inspect import PICKS, REJECT_IF_BLOCKED, rule_inspector
from fermata.sim.hpc.lublin import generate
from fermata.sim.hpc.metrics import bounded_slowdowns
from fermata.sim.hpc.orders import order
from fermata.sim.hpc.queue_models import QueueModel
from fermata.sim.hpc.scoring import LONGEST_IDLE_S, PARAMETERS
from fermata.sim.scenarios import scenario
from fermata.sim.simulate import simulate as simulate_dag
from fermata.sim.trace import Trace
from fermata.sim.trace_builder import one_stage_trace

PLACE = {name: number for number, name in enumerate(FEATURE_NAMES)}
FRONT = ("swift", "busy", "prompt", "even", "patient")
FREE_CHOICE = Rules(start=Start.SKIP)


def theta_of(constant: float, **direct: float) -> np.ndarray:
    theta = np.zeros(PARAMETERS)
    theta[FEATURES] = constant
    for name, weight in direct.items():
        theta[PLACE[name]] = weight
    return theta


def starts(log: JobLog, theta: np.ndarray, name: str = "sjf") -> np.ndarray:
    return simulate(log, order(name), FREE_CHOICE, None, QueueModel(theta)).start_s


@pytest.mark.parametrize(("name", "delays_head"), [("sjf/skip", 0.0), ("sjf+easy/skip", -100.0)], ids=["skip", "easy"])
def test_weights_exist_that_are_the_classical_schedulers(name: str, delays_head: float) -> None:
    log, classical = generate(400, 3, load=1.1), policy(name)
    ours = starts(log, theta_of(50.0, log_estimate=-1.0, delays_head=delays_head))
    np.testing.assert_array_equal(ours, simulate(log, classical.order, classical.rules).start_s)


def test_waiting_is_an_action_and_an_idle_machine_bounds_it() -> None:
    log = log_of((0, 10, 1), (5, 20, 1), (200_000, 30, 1))
    never = starts(log, theta_of(-1.0))
    # Asked at every event and interval, and when it has been idle for long enough; idle again from the end of the
    # first. Nothing follows the last one, so it starts at once.
    assert never.tolist() == [LONGEST_IDLE_S, LONGEST_IDLE_S + 10 + LONGEST_IDLE_S, 200_000]
    late = starts(log_of((0, 10, 1), (LONGEST_IDLE_S - 5, 20, 1), (200_000, 30, 1)), theta_of(-1.0))
    assert late[0] == LONGEST_IDLE_S, "an arrival in the last interval does not begin another one"


def test_a_job_is_held_while_it_would_leave_too_little_free() -> None:
    log = log_of((0, 100, 1), (1, 9000, 3), (50, 5, 1), (500, 5, 4))
    # The long one needs a fifth of the machine free besides, which it has when the first one ends. The last one leaves
    # nothing, ever; but nothing runs and nothing more will come.
    held = starts(log, theta_of(0.0, free_after=10.0, log_estimate=-2.5))
    assert held.tolist() == [0, 100, 50, 9100]


def test_the_order_in_which_jobs_are_listed_does_not_matter() -> None:
    drawn = generate(120, 5, load=1.2)
    together = np.floor(drawn.submit_s / 20_000) * 20_000  # bursts of many jobs
    distinct = drawn.runtime_s + np.linspace(0.0, 0.5, len(drawn))  # no ties in the order, nor in the scores
    log = replace(drawn, submit_s=together, runtime_s=distinct, estimate_s=distinct)
    theta = theta_of(1.0) + np.random.default_rng(1).normal(0.0, 1.0, PARAMETERS)
    places = np.lexsort((np.random.default_rng(2).random(len(log)), together))
    shuffled = replace(
        log,
        ids=log.ids[places],
        runtime_s=log.runtime_s[places],
        estimate_s=log.estimate_s[places],
        cores=log.cores[places],
    )
    ours, theirs = starts(log, theta, "saf"), starts(shuffled, theta, "saf")
    assert (places != np.arange(len(log))).sum() > 50
    np.testing.assert_array_equal(ours[places], theirs)


def test_a_machine_of_one_core_is_scheduled() -> None:
    log = log_of((0, 100, 1), (10, 5, 1), (20, 50, 1), (20, 5, 1), machine=1)
    chosen = policy("queue-prompt")
    began = simulate(log, chosen.order, chosen.rules, None, chosen.model).start_s
    assert began.tolist() == [0, 100, 110, 105]


def test_no_inspector_beside_it() -> None:
    log, chosen = generate(20, 1), policy("queue-prompt")
    with pytest.raises(InputError, match="expected no inspector beside it"):
        simulate(log, chosen.order, chosen.rules, rule_inspector(PICKS, REJECT_IF_BLOCKED), chosen.model)


def test_what_ships_beats_saf_easy_on_fresh_jobs_and_its_settings_are_a_front() -> None:
    log = generate(12_000, 4711, load=1.06)
    sequences = draw_sequences(log, 40, 256, 9, part="all")
    base = pooled(run_sequences(log, policy("saf+easy/skip"), sequences))[0]
    found = [pooled(run_sequences(log, policy(f"queue-{each}"), sequences))[0] for each in FRONT]
    slowdowns, waits = [each["bsld"] for each in found], [each["wait_s"] for each in found]
    swift, busy, prompt = (FRONT.index(each) for each in ("swift", "busy", "prompt"))
    assert found[busy]["utilization"] > base["utilization"] - 0.01
    assert found[busy]["utilization"] > found[prompt]["utilization"]
    assert slowdowns[prompt] < 0.5 * base["bsld"]
    assert waits[prompt] < 1.1 * base["wait_s"]
    assert waits[swift] < base["wait_s"]
    assert slowdowns == sorted(slowdowns, reverse=True)
    assert waits == sorted(waits)


def test_what_ships_for_typed_estimates_beats_saf_easy_under_them() -> None:
    log = with_estimates(generate(12_000, 4711, load=1.06), "accuracy", 5)
    sequences = draw_sequences(log, 40, 256, 9, part="all")
    base, found = (pooled(run_sequences(log, policy(name), sequences))[0] for name in ("saf+easy/skip", "queue-robust"))
    assert found["bsld"] < 0.8 * base["bsld"]
    assert found["wait_s"] < 1.05 * base["wait_s"]


def test_the_file_that_ships_schedules_multi_slot_tasks_of_a_cluster() -> None:
    log = generate(300, 21, machine_cores=64, load=1.2)
    trace = one_stage_trace(log.submit_s, log.runtime_s + 1.0, slots=log.cores)
    slowdowns = []
    for chosen in (load("queue-prompt"), load("sjf")):
        wait = simulate_dag(trace, 64, chosen).job_start_s - log.submit_s
        assert wait.min() >= 0.0
        slowdowns.append(bounded_slowdowns(wait, log.runtime_s).mean())
    assert slowdowns[0] < slowdowns[1]


@pytest.mark.parametrize("limits", [Guardrails(max_hold_s=900.0), Guardrails(max_wait_s=3000.0, hold_when_idle=False)])
@pytest.mark.parametrize(("name", "jobs"), [("rigid", 200), ("k8s_cron", 120), ("dag_wide", 40), ("mold_80", 60)])
def test_the_simulator_asks_about_its_own_state_and_takes_the_steps_of_decide(
    name: str, jobs: int, limits: Guardrails, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "rigid":
        log = generate(jobs, 21, machine_cores=64, load=1.2)
        trace, executors = one_stage_trace(log.submit_s, log.runtime_s + 1.0, slots=log.cores), 64
    else:
        some = scenario(name).with_(jobs=jobs)
        trace, executors = some.generate(4), some.executors
    expect_the_steps_of_decide(trace, executors, load("queue-patient"), monkeypatch, limits)


def test_a_cluster_that_holds_everything_asks_again_in_ten_minutes() -> None:
    trace = one_stage_trace([0.0, 10.0, 20.0], [50.0, 60.0, 70.0], slots=np.array([3, 2, 4]))
    states = decisions_of(trace, 4)
    choices = choices_of(states[0])
    assert choices.stages.tolist() == [0]
    row = dict(zip(FEATURE_NAMES, choices.rows[0].tolist(), strict=True))
    assert row["cores"] == 0.75
    assert row["free_after"] == row["free_at_end"] == 0.25
    assert row["free_in_1min"] == 1.0, "it takes 50 s"
    assert row["log_waiting"] == pytest.approx(np.log(2.0) / 6.0)
    assert row["head_cores"] == 0.0, "nobody is blocked"
    policy_file = load("queue-prompt")
    assert isinstance(policy_file, QueuePolicy)
    held = replace(policy_file, session=_Below(policy_file.session))
    assert held.choose(states[0]) == Action(WAIT, until_s=INTERVAL_S)


def test_tasks_that_begin_together_and_are_as_long_end_together_however_the_clock_rounds() -> None:
    # The first of two as long begins, and a short one waits for the whole pool: the second one does not delay it.
    begun_s = 1.76e9 + 0.1
    for length_s in np.random.default_rng(1).uniform(10.0, 60.0, 20):
        duration_s = np.array([length_s, length_s, length_s / 9.0])
        trace = one_stage_trace(np.full(3, begun_s), duration_s, slots=np.array([3, 3, 8]))
        board = board_of(decisions_of(trace, 8)[0])
        take(board, Action(START, 0, 1))
        row = dict(zip(FEATURE_NAMES, choices_of(state_of(board)).rows[0].tolist(), strict=True))
        assert row["head_cores"] == 1.0
        assert (row["delays_head"], row["free_at_end"]) == (0.0, 5 / 8)
        # The engine of rigid jobs sees it, too: started is what leaves three quarters free at its end.
        log = log_of((begun_s, length_s, 1), (begun_s, length_s, 1))
        assert starts(log, theta_of(-6.0, free_at_end=10.0)).tolist() == [begun_s, begun_s]


def test_a_stage_that_its_own_parallelism_keeps_is_not_the_head_that_others_delay() -> None:
    # 5 of 8 executors run the first of four tasks that go one by one; the next stage needs all 8 for a minute, and the
    # last one 3 for longer. Of the four, none waits for executors.
    trace = one_stage_trace(np.zeros(3), [10.0, 60.0, 1000.0], slots=np.array([5, 8, 3]))
    board = board_of(decisions_of(trace, 8)[0])
    take(board, Action(START, 0, 1))
    one_by_one = state_of(board)._replace(
        stage_pending=np.array([3, 1, 1], np.int32), ready_stages=np.array([0, 1, 2], np.int32)
    )
    for most, expected in ((1, (1.0, 1.0)), (4, (0.0, 5 / 8))):  # where it may grow, it waits for 5 more
        state = one_by_one._replace(stage_max_cap=np.array([most, 1, 1], np.int32))
        choices = choices_of(state)
        row = dict(zip(FEATURE_NAMES, choices.rows[0].tolist(), strict=True))
        assert choices.stages.tolist() == [2]
        assert (row["delays_head"], row["head_cores"]) == expected


class _Below:
    """A network whose scores are below zero, otherwise the one that it is given."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def run(self, outputs: list[str], inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
        return [-np.abs(each) - 1.0 for each in self._session.run(outputs, inputs)]


def decisions_of(trace: Trace, executors: int) -> list[ClusterState]:
    """The states in which shortest first was asked."""
    states: list[ClusterState] = []
    simulate_dag(trace, executors, load("sjf"), observer=lambda state, steps: states.append(copied(state)))
    return states


def copied(state: ClusterState) -> ClusterState:
    return ClusterState(*(each.copy() if isinstance(each, np.ndarray) else each for each in state))
