"""Policies by name: what is accepted, and what a wrong name or parameter is told."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.episodes import first_state, one_stage_jobs, stage, trace_of

from fermata.policy.action import START, WAIT, Action
from fermata.policy.decide import decide
from fermata.policy.errors import InputError, ModelError
from fermata.policy.guardrails import NO_LIMITS
from fermata.policy.heuristics.base import Heuristic
from fermata.policy.heuristics.kernel import NEVER
from fermata.policy.queue_policy import QueuePolicy
from fermata.policy.registry import HEURISTICS, LEARNED, load, names


def heuristic(spec: str) -> Heuristic:
    loaded = load(spec)
    assert isinstance(loaded, Heuristic)
    return loaded


def test_every_built_in_has_a_name_a_summary_and_settable_parameters() -> None:
    assert names() == sorted([*HEURISTICS, *LEARNED])
    for name, policy in HEURISTICS.items():
        assert policy.name == name
        assert policy.summary
        for parameter, field in policy.parameters.items():
            changed = heuristic(f"{name}:{parameter}=3")
            assert getattr(changed.rule, field) == 3
            assert changed.rule._replace(**{field: getattr(policy.rule, field)}) == policy.rule
            assert changed.name == f"{name}:{parameter}=3"


def test_policies_over_the_queue_are_built_in() -> None:
    names_of_queues = [name for name in LEARNED if name.startswith("queue-")]
    assert len(names_of_queues) >= 4
    for name in names_of_queues:
        loaded = load(name)
        assert isinstance(loaded, QueuePolicy)
        assert loaded.name == name, "a recorded decision replays by it"
    with pytest.raises(InputError, match=r"no policy 'queue'; expected one of .*queue-swift"):
        load("queue")


def test_parameters_keep_the_type_of_their_field() -> None:
    rule = heuristic("sjf-hold:split=100,last=2,tau=80,tau_per_long=1e1,max_longs=4,theta=40,theta_per_short=.5").rule
    assert (rule.split_s, rule.last, rule.tau_s, rule.tau_per_long_s) == (100.0, 2, 80.0, 10.0)
    assert (rule.max_longs, rule.theta_s, rule.theta_per_short_s) == (4, 40.0, 0.5)
    assert isinstance(rule.last, int)
    assert isinstance(rule.tau_s, float)


def test_a_name_without_parameters_is_the_built_in_itself() -> None:
    assert load("sjf") is HEURISTICS["sjf"]
    assert load("sjf:") is HEURISTICS["sjf"]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("", "no policy ''; expected one of "),
        ("default:tau=1", "policy 'default' is a model, which has no parameters; got 'default:tau=1'"),
        ("SJF", "no policy 'SJF'; expected one of default, fair, fifo, "),
        ("sjf-hold:tau", "policy 'sjf-hold': expected parameter=number, got 'tau'"),
        ("sjf-hold:tau=", "expected parameter=number, got 'tau='"),
        ("sjf-hold:tau=x", "expected parameter=number, got 'tau=x'"),
        ("sjf-hold:tau=nan", "expected parameter=number, got 'tau=nan'"),
        ("sjf-hold:tau=1,split=30, tau=1", "policy 'sjf-hold': 'tau' is there twice"),
        ("sjf-hold:tau=1,", "expected parameter=number, got ''"),
        ("sjf-hold:delay=1", "policy 'sjf-hold' has no parameter 'delay'; it has: last, max_longs, split, tau, "),
        ("fifo:tau=1", "policy 'fifo' has no parameter 'tau'; it has: none"),
        ("sjf-hold:last=1.5", "policy 'sjf-hold': parameter 'last' is a whole number, got 1.5"),
        ("sjf-hold:max_longs=inf", "policy 'sjf-hold': parameter 'max_longs' is a whole number, got inf"),
        ("sjf-hold:last=1e300", "policy 'sjf-hold': parameter 'last' is from -1e+09 to 1e+09, got 1e+300"),
        ("weighted-fair:alpha=-400", "policy 'weighted-fair': parameter 'alpha' is from -5 to 5, got -400"),
    ],
)
def test_what_cannot_be_loaded(spec: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        load(spec)
    assert message in str(error.value)
    assert error.value.exit_code == 2


def test_a_path_is_a_model(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"missing\.onnx: cannot be read"):
        load(tmp_path / "missing.onnx")


def test_the_eager_form_is_the_same_order_without_the_hold() -> None:
    for policy in HEURISTICS.values():
        eager = policy.eager()
        assert eager.rule == policy.rule._replace(hold=NEVER)
        assert eager.choose(first_state(one_stage_jobs((0.0, 3.0)), 1)) == Action(START, 0, 1)


@pytest.mark.parametrize("spec", ["srwf-work-share:spare=0,grain=60", "srwf-equal-share:spare=0"])
def test_shares_without_holds_leave_no_executor_idle_on_purpose(spec: str) -> None:
    policy = heuristic(spec)
    state = first_state(trace_of((0.0, [stage(name, 9.0) for name in "abc"]), (0.0, [stage("a", 9.0)])), 4)
    asked, eager = (decide(state, one, NO_LIMITS, one) for one in (policy, policy.eager()))
    assert asked[-1].action.kind == WAIT
    assert [step.action.kind for step in eager] == [START] * 4


@pytest.mark.parametrize("spec", ["sjf", "sjf-hold:tau=1.2345678,split=2", "pair-committed", "srwf-work-share:spare=0"])
def test_the_name_of_a_policy_gives_that_policy_also_without_its_holds(spec: str) -> None:
    policy = load(spec)
    assert isinstance(policy, Heuristic)
    for one in (policy, policy.eager()):
        again = load(one.name)
        assert isinstance(again, Heuristic)
        assert (again.name, again.rule) == (one.name, one.rule)


@pytest.mark.parametrize("spec", ["lru", "lru without holds"])
def test_what_else_could_be_named_is_told_by_whoever_asks(spec: str) -> None:
    with pytest.raises(InputError, match=r"no policy 'lru'; .*, or a model of your own$"):
        load(spec, or_file="a model of your own")


def test_a_model_has_no_order_without_holds() -> None:
    with pytest.raises(InputError, match="only heuristics have an order without holds"):
        load("default without holds")
