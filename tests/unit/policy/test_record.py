"""Recorded decisions read back to the same bits, and replay to the same actions."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.episodes import any_legal_action, first_state, one_stage_jobs, random_trace, states_of

from fermata.policy.action import WAIT, Action
from fermata.policy.dag import Dag
from fermata.policy.decide import Step, decide
from fermata.policy.errors import InputError
from fermata.policy.guardrails import CAPPED, Guardrails
from fermata.policy.record import Record, dumps, loads, replay
from fermata.policy.registry import load
from fermata.policy.state import ClusterState


def record_of(state: ClusterState, steps: tuple[Step, ...] = (), limits: Guardrails = Guardrails()) -> Record:  # noqa: B008
    return Record(state, steps, "some policy", limits, {"jobs": ["ä", 'with "quotes"'], "stages": []})


def assert_same_bits(one: Record, other: Record) -> None:
    assert one._replace(state=other.state) == other
    for name, left, right in zip(one.state._fields, one.state, other.state, strict=True):
        left, right = np.asarray(left), np.asarray(right)
        assert left.tobytes() == right.tobytes(), name
        assert left.dtype == right.dtype, name
        assert left.shape == right.shape, name


@pytest.mark.parametrize("seed", range(8))
def test_states_of_an_episode_come_back(seed: int) -> None:
    for state in states_of(random_trace(seed, 4), 4, any_legal_action(seed)):
        steps = decide(state, load("sjf-hold:tau=1,split=5"), Guardrails(max_hold_s=3.0), load("sjf"))
        record = record_of(state, steps, Guardrails(max_hold_s=3.0))
        line = dumps(record)
        assert "\n" not in line
        assert_same_bits(loads(line), record)
        assert dumps(loads(line)) == line


@settings(max_examples=200, deadline=None)
@given(st.lists(st.floats(allow_nan=False), min_size=2, max_size=2), st.floats(), st.floats(allow_nan=False))
def test_any_number_comes_back(values: list[float], until_s: float, hold_s: float) -> None:
    state = first_state(one_stage_jobs((0.0, 1.0), (0.0, 2.0)), 2)
    state = state._replace(now_s=values[0], stage_hold_until_s=np.array(values))
    back = loads(
        dumps(record_of(state, (Step(Action(WAIT, until_s=until_s), Action(WAIT), CAPPED),), Guardrails(hold_s)))
    )
    assert back.state.now_s == values[0]
    assert back.state.stage_hold_until_s.tobytes() == np.array(values).tobytes()
    returned_s = back.steps[0].action.until_s
    assert returned_s == until_s or (math.isnan(returned_s) and math.isnan(until_s))
    assert back.limits.max_hold_s == hold_s


def test_infinities_and_nan_are_words_so_that_any_json_reader_accepts_them() -> None:
    state = first_state(one_stage_jobs((0.0, 1.0)), 1)
    raw = json.loads(dumps(record_of(state)), parse_constant=lambda word: pytest.fail(word))
    assert raw["state"]["executor_free_at_s"] == ["-inf"]
    assert raw["state"]["stage_serial_fraction"] == ["nan"]
    assert raw["limits"] == ["inf", "inf", True]


def test_numpy_scalars_in_steps_are_written_as_numbers() -> None:
    state = first_state(one_stage_jobs((0.0, 1.0)), 1)
    action = Action(np.int64(2), np.int32(-1), np.int64(0), np.float64(math.inf))  # type: ignore[arg-type]
    assert loads(dumps(record_of(state, (Step(action, action),)))).steps[0].action == Action(WAIT)


@pytest.mark.parametrize("policy", ["fifo", "sjf", "srwf", "sjf-hold:tau=1,split=5", "sjf-switch:theta=3,split=5"])
def test_a_policy_answers_a_record_as_it_answered_the_state(policy: str) -> None:
    limits = Guardrails(max_hold_s=4.0)
    for state in states_of(random_trace(3, 3), 3, load("srwf")):
        steps = decide(state, load(policy), limits, load("sjf"))
        assert replay(loads(dumps(record_of(state, steps, limits))), load(policy), load("sjf")) == steps


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "not a recorded decision"),
        ("[]", "not a recorded decision"),
        ("{}", "not a recorded decision: expected schema 'fermata.record/1', as --record writes it"),
        ('{"schema": "fermata.record/99"}', "expected a record of schema 'fermata.record/1', got 'fermata.record/99'"),
    ],
)
def test_what_is_not_a_record(line: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        loads(line)


def test_edges_come_back_and_lines_of_before_have_none() -> None:
    state = first_state(one_stage_jobs((0.0, 1.0), (0.0, 2.0)), 2)
    record = record_of(state)
    assert "edges" not in json.loads(dumps(record))
    assert loads(dumps(record)).edges is None
    for edges in ((), ((0, 1),)):
        assert loads(dumps(record._replace(edges=edges))).edges == edges
    dag = Dag.of_parents(np.array([0, 0, 1, 3]), np.array([0, 1, 0], np.int32))
    again = Dag.of_edges(3, dag.edges)
    assert [each.tolist() for each in again] == [each.tolist() for each in dag]


@pytest.mark.parametrize("edges", [[[0, 2]], [[-1, 0]], [[0]], [0], "ab", [[0, "x"]]])
def test_edges_between_stages_that_are_not_there_are_refused(edges: object) -> None:
    raw = json.loads(dumps(record_of(first_state(one_stage_jobs((0.0, 1.0), (0.0, 2.0)), 2))))
    with pytest.raises(InputError, match="not a recorded decision"):
        loads(json.dumps(raw | {"edges": edges}))


@pytest.mark.parametrize("key", ["state", "steps", "limits", "policy", "labels"])
def test_a_record_with_a_part_missing_is_refused(key: str) -> None:
    raw = json.loads(dumps(record_of(first_state(one_stage_jobs((0.0, 1.0)), 1))))
    del raw[key]
    with pytest.raises(InputError, match=f"not a recorded decision: KeyError: '{key}'"):
        loads(json.dumps(raw))


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("ready_stages", [100_000_000, 1], r"ready_stages: expected 0 to 1"),
        ("ready_stages", [1, 1], "ready_stages: an index is there twice"),
        ("active_jobs", [-1, 0], "active_jobs: expected 0 to 1"),
        ("executor_job", [2, -1], "executor_job: expected -1 to 1"),
        ("free_executors", [0, 0], "free_executors are not those whose executor_stage is -1"),
        ("stage_slots", [0, 1], "stage_slots: expected numbers above 0"),
        ("stage_slots", [1], "stage_slots has 1 entries, expected 2"),
        ("stage_pending", [1, 1e12], "stage_pending: expected whole numbers of 32 bits"),
        ("stage_pending", ["nan", 1], "stage_pending: expected whole numbers of 32 bits"),
        ("job_width", ["nan", 1.0], "job_width: expected finite numbers of 0 or more"),
        ("job_weight", [-1.0, 1.0], "job_weight: expected numbers above 0"),
        ("recent_work_s", [], "recent_arrival_s, recent_work_s and recent_weight"),
        ("recent_weight", [1.0], "recent_arrival_s, recent_work_s and recent_weight"),
        ("recent_weight", [0.0, 1.0], "recent_weight: expected numbers above 0"),
        ("free", 7, "free is 7, but free_executors names 2"),
        ("free", 1e999, "OverflowError"),
    ],
)
def test_a_state_that_cannot_be_is_refused(name: str, value: object, told: str) -> None:
    raw = json.loads(dumps(record_of(first_state(one_stage_jobs((0.0, 1.0), (0.0, 2.0)), 2))))
    raw["state"][name] = value
    with pytest.raises(InputError, match=f"not a recorded decision: .*{told}"):
        loads(json.dumps(raw))


def test_busy_executors_are_due_at_a_time() -> None:
    states = states_of(one_stage_jobs((0.0, 5.0), (1.0, 2.0)), 2, load("sjf"))
    raw = json.loads(dumps(record_of(next(state for state in states if state.free == 1))))
    raw["state"]["executor_free_at_s"] = ["-inf", "-inf"]
    with pytest.raises(InputError, match="executor_free_at_s: expected finite numbers for what is busy"):
        loads(json.dumps(raw))
