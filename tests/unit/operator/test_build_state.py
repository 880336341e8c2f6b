"""From objects to the arrays that a policy decides on, worked by hand and in general."""

from __future__ import annotations

import cProfile
import heapq
import math
import pstats
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.episodes import any_legal_action
from tests.unit.operator.objects import T0, job_fact_of, stage, workflow_fact_of

from fermata.operator.build_state import Arrival, HoldTimes, Keys, Rows, build_state, dag_of
from fermata.operator.estimates import Estimates
from fermata.operator.past import present_job
from fermata.operator.plan import plan
from fermata.operator.pods import PodFact, pod_fact
from fermata.operator.progress import WorkflowView
from fermata.operator.resources import MAX_EXECUTORS, MAX_TASKS
from fermata.operator.times import render
from fermata.operator.view import view
from fermata.policy import registry
from fermata.policy.action import HOLD, START, WAIT, Action
from fermata.policy.decide import Policy, Step, decide
from fermata.policy.guardrails import Guardrails
from fermata.policy.state import IDLE, ClusterState

NOW = T0 + 20


def _view(name: str, *stages: dict[str, Any], jobs: dict[str, Any] | None = None, **fields: Any) -> WorkflowView:
    fact = workflow_fact_of(name, *stages, now_s=NOW, **fields)
    assert fact.spec is not None
    facts = {key: job_fact_of(name, key, NOW, **values) for key, values in (jobs or {}).items()}
    return view(fact, fact.spec, facts, {}, {}, Estimates(), NOW)


def _build(views: list[WorkflowView], executors: int = 4, **changes: Any) -> tuple[ClusterState, Keys]:
    values: dict[str, Any] = {"pods": {}, "stage_holds": {}, "workflow_held_s": {}, "arrivals": [], "now_s": NOW}
    return build_state(views, executors, **(values | changes))


def test_an_empty_pool_is_all_free() -> None:
    state, keys = _build([])
    assert (state.free, state.executors, len(state.ready_stages)) == (4, 4, 0)
    assert keys == Keys((), ())
    assert sorted(state.free_executors) == [0, 1, 2, 3]


def test_jobs_stand_in_the_order_of_priority_then_arrival_then_uid() -> None:
    same = T0 + 1.25
    views = [
        _view("late", stage("a"), arrival_s=T0 + 5.25),
        _view("b-plain", stage("a"), arrival_s=same),
        _view("a-plain", stage("a"), arrival_s=same),
        _view("urgent", stage("a"), arrival_s=T0 + 9.25, priority=10),
    ]
    state, keys = _build(views)
    assert keys.jobs == ("uid-urgent", "uid-a-plain", "uid-b-plain", "uid-late")
    assert list(state.job_arrival_s) == [T0 + 9.25, same, same, T0 + 5.25]
    assert list(state.job_weight) == [2.0, 1.0, 1.0, 1.0]


def test_priority_decides_between_equals_and_not_between_others() -> None:
    equals = [_view("early", stage("a")), _view("urgent", stage("a"), arrival_s=T0 + 5.25, priority=1)]
    state, keys = _build(equals, executors=1)
    assert keys.stages[registry.load("sjf").choose(state).stage] == ("uid-urgent", "a")
    others = [_view("short", stage("a", estimateSeconds=5)), _view("urgent", stage("a"), priority=1)]
    state, keys = _build(others, executors=1)
    assert keys.stages[registry.load("sjf").choose(state).stage] == ("uid-short", "a")


@pytest.mark.parametrize("early_s", [T0 + 1.25, T0 + 5.25])
def test_last_come_first_served_prefers_nobody_for_a_low_priority(early_s: float) -> None:
    views = [_view("a-early", stage("a"), arrival_s=early_s)]
    views += [_view("urgent", stage("a"), arrival_s=T0 + 5.25, priority=1)]
    state, keys = _build(views, executors=1)
    assert keys.stages[registry.load("lcfs").choose(state).stage] == ("uid-urgent", "a")


def test_rows_kept_from_an_earlier_state_change_nothing_but_the_work() -> None:
    cache: dict[str, Rows] = {}
    first = [_view("a", stage("x"), stage("y", "x")), _view("b", stage("x", tasks=3))]
    _build(first, cache=cache)
    kept = dict(cache)
    started = _view("b", stage("x", tasks=3), jobs={"x": {"tasks": 3, "parallelism": 2, "start_s": T0 + 1}})
    holds = {("uid-a", "x"): HoldTimes(4.0, NOW + 9), ("uid-gone", "x"): HoldTimes(1.0)}
    changes: dict[str, Any] = {
        "stage_holds": holds, "paused": {("uid-b", "x"), ("uid-gone", "x")}, "workflow_held_s": {"uid-a": 4.0},
    }  # fmt: skip
    cached, keys = _build([first[0], started], cache=cache, **changes)
    afresh, same = _build([first[0], started], **changes)
    assert keys == same
    for name, values in cached._asdict().items():
        np.testing.assert_array_equal(values, getattr(afresh, name), err_msg=name)
    assert cache["uid-a"] is kept["uid-a"]
    assert cache["uid-b"] is not kept["uid-b"]
    assert list(cached.stage_held_s) == [4.0, 0.0, 0.0]
    assert list(cached.job_held_s) == [4.0, 0.0]
    assert list(cached.ready_stages) == [0]
    _build([first[0]], **changes)  # what is held or paused of a workflow that is gone does no harm


def test_jobs_that_somebody_changed_beyond_all_bounds_take_no_more_executors_than_the_largest_pool_has() -> None:
    # To list what they claim, a hundred thousand tasks of a hundred thousand executors each, no memory would do.
    wide = {"tasks": 2**31 - 1, "parallelism": 2**31 - 1, "annotations": {"fermata.dev/slots": "100000"}}
    views = [_view(name, stage("a"), jobs={"a": wide}) for name in ("v", "w")]
    state, _ = _build([*views, _view("x", stage("a"))])
    assert (state.free, state.executors) == (0, MAX_EXECUTORS)
    assert list(state.stage_running * state.stage_slots) == list(state.job_running) == [MAX_EXECUTORS, MAX_EXECUTORS, 0]
    assert list(state.stage_pending) == [MAX_TASKS - 1, MAX_TASKS - 1, 1]


@pytest.mark.parametrize("how", [{"suspended": True}, {"outcome": "FailureTarget"}])
def test_a_stage_whose_job_is_suspended_or_about_to_fail_is_not_widened(how: dict[str, Any]) -> None:
    state, keys = _build([_view("w", stage("a", tasks=5), stage("b"), jobs={"a": {"tasks": 5, **how}})])
    assert (state.free, list(state.stage_running)) == (4, [0, 0])
    assert [keys.stages[i] for i in state.ready_stages] == [("uid-w", "b")]


def test_a_running_stage_holds_its_parallelism_until_its_tail() -> None:
    # 5 tasks of 10 s, 2 at once since T0, one done: of 4 left 2 run and 2 come after.
    running = _view("w", stage("a", tasks=5, slots=2), jobs={"a": {"tasks": 5, "parallelism": 2, "succeeded": 1}})
    pods: dict[str, dict[str, PodFact]] = {"job-w-a": {}}
    for index, start_s in enumerate((T0 + 12.25, T0 + 15.25)):
        raw = {"metadata": {"uid": str(index)}, "status": {"phase": "Running", "startTime": render(start_s)}}
        pods["job-w-a"][str(index)] = pod_fact(raw, NOW)
    state, _ = _build([running], executors=5, pods=pods)
    assert (state.free, list(state.stage_running), list(state.stage_pending)) == (1, [2], [2])
    assert list(state.executor_stage) == [0, 0, 0, 0, IDLE]
    # Each running task ends 10 s after its pod began, and then its Job puts one more 10 s task in its place.
    assert list(state.executor_free_at_s[:4]) == [T0 + 32.25, T0 + 32.25, T0 + 35.25, T0 + 35.25]
    assert state.executor_free_at_s[4] == -math.inf
    assert list(state.job_running) == [4]
    assert list(state.job_remaining_work_s) == [80.0]  # 4 tasks of 2 executors for 10 s


@given(
    begun_s=st.lists(st.floats(0.0, 40.0), min_size=1, max_size=6),
    pending=st.integers(0, 40),
    length_s=st.integers(1, 30),
)
def test_tasks_that_wait_go_to_the_executor_that_frees_first(begun_s: list[float], pending: int, length_s: int) -> None:
    width, tasks = len(begun_s), len(begun_s) + pending
    now_s = T0 + 45.0
    one = stage("a", tasks=tasks, parallelism=width, estimateSeconds=length_s)
    running = _view("w", one, jobs={"a": {"tasks": tasks, "parallelism": width}})
    raws = [{"metadata": {"uid": str(i)}, "status": {"phase": "Running"}} for i in range(width)]
    pods = {
        raw["metadata"]["uid"]: replace(pod_fact(raw, now_s), start_s=T0 + start_s)
        for raw, start_s in zip(raws, begun_s, strict=True)
    }
    state, _ = _build([running], executors=width, pods={"job-w-a": pods}, now_s=now_s)
    lanes = [T0 + start_s + length_s for start_s in begun_s]
    heapq.heapify(lanes)
    for _ in range(pending):
        heapq.heapreplace(lanes, max(lanes[0], now_s) + length_s)
    np.testing.assert_allclose(state.executor_free_at_s, sorted(lanes), rtol=0.0, atol=1e-3)


def test_a_stage_of_very_many_tasks_takes_no_longer_to_look_at() -> None:
    calls = []
    for tasks in (10, 100_000):
        running = _view("w", stage("a", tasks=tasks, parallelism=1), jobs={"a": {"tasks": tasks, "parallelism": 1}})
        profile = cProfile.Profile()
        profile.runcall(_build, [running])
        calls.append(pstats.Stats(profile).total_calls)  # type: ignore[attr-defined]
    assert calls[1] <= calls[0] + 10


def test_a_shrunk_pool_counts_what_is_held_and_gives_nothing() -> None:
    running = _view("w", stage("a", tasks=3), jobs={"a": {"tasks": 3, "parallelism": 3}})
    state, _ = _build([running], executors=1)
    assert (state.executors, state.free) == (3, 0)


def test_workflows_of_which_nothing_runs_and_nothing_may_start_are_no_queue() -> None:
    views = [
        _view("suspended", stage("a"), suspend=True),
        _view("paused", stage("a"), stage("b", "a"), jobs={"a": {"suspended": True}}),
        _view("running", stage("a"), stage("b"), jobs={"a": {"start_s": T0 + 1}}, suspend=True),
        _view("ready", stage("a"), stage("b", "a")),
    ]
    state, keys = _build(views)
    assert keys.jobs == ("uid-ready", "uid-running")
    assert [keys.stages[i] for i in state.ready_stages] == [("uid-ready", "a")]
    assert list(dag_of(views, keys).child) == [1]


def test_what_a_failure_keeps_from_ever_starting_is_no_work_left() -> None:
    stages = (stage("a"), stage("b", "a", estimateSeconds=900), stage("c", "b", estimateSeconds=900), stage("d"))
    seen = _view("w", *stages, jobs={"a": {"outcome": "Failed"}}, onFailure="Finish")
    state, keys = _build([seen])
    assert [keys.stages[i] for i in state.ready_stages] == [("uid-w", "d")]
    assert list(state.job_remaining_work_s) == [10.0]
    assert list(state.stage_pending) == [0, 0, 0, 1]
    assert [part.name for part in present_job(seen, NOW).stages] == ["a", "d"]


def test_workflows_that_wait_for_no_executors_do_not_keep_a_model_from_holding() -> None:
    busy = _view("busy", stage("a", estimateSeconds=200), jobs={"a": {}})
    long = _view("long", stage("a", estimateSeconds=200), arrival_s=NOW - 1)
    suspended = [_view(f"s{number}", stage("a"), suspend=True) for number in range(12)]
    paused = [_view(f"p{number}", stage("a")) for number in range(12)]
    # Nine of ten that came were short.
    arrivals = [Arrival(NOW - 20.0 * (400 - number), 10.0 if number % 10 else 200.0) for number in range(400)]
    for views in ([busy, long], [busy, long, *suspended], [busy, long, *paused]):
        state, _ = _build(
            views, executors=2, arrivals=arrivals, paused={(f"uid-p{number}", "a") for number in range(12)}
        )
        (step,) = decide(state, registry.load("default"), Guardrails(), registry.load("sjf"))
        assert step.action.kind == WAIT


@pytest.mark.parametrize(("failed", "left_s", "kind"), [(0, 0.0, START), (2, 200.0, WAIT)])
def test_a_task_that_failed_and_waits_to_be_tried_again_takes_its_whole_time_yet(
    failed: int, left_s: float, kind: int
) -> None:
    # Its Job has no pod until a back-off is over, and began as long ago as a task takes.
    tried = _view("tried", stage("a", estimateSeconds=200), jobs={"a": {"start_s": NOW - 200, "failed": failed}})
    long = _view("long", stage("a", estimateSeconds=200), arrival_s=NOW - 1)
    arrivals = [Arrival(NOW - 20.0 * (400 - number), 10.0 if number % 10 else 200.0) for number in range(400)]
    state, _ = _build([tried, long], executors=2, arrivals=arrivals)
    assert state.executor_free_at_s[0] - NOW == left_s
    (step,) = decide(state, registry.load("default"), Guardrails(), registry.load("sjf"))
    assert step.action.kind == kind, "no executor is about to be free for the short ones that come"


def test_holds_and_arrivals_are_passed_on() -> None:
    state, _ = _build(
        [_view("w", stage("a"))],
        stage_holds={("uid-w", "a"): HoldTimes(3.0, NOW + 5)},
        workflow_held_s={"uid-w": 2.5},
        arrivals=[Arrival(T0, 5.0), Arrival(T0 + 1, 7.0, 4.0)],
    )
    assert (state.stage_held_s[0], state.stage_hold_until_s[0], state.job_held_s[0]) == (3.0, NOW + 5, 2.5)
    assert (list(state.recent_work_s), list(state.recent_weight)) == ([5.0, 7.0], [1.0, 4.0])


def test_a_workflows_own_parallelism_bounds_each_stage() -> None:
    stages = (stage("a", tasks=4), stage("b", tasks=4))
    seen = _view("w", *stages, jobs={"a": {"tasks": 4, "parallelism": 2}}, parallelism=3)
    state, _ = _build([seen], executors=8)
    assert list(state.stage_max_cap) == [3, 1]


def test_a_plan_cuts_starts_to_the_workflows_parallelism() -> None:
    seen = _view("w", stage("a", tasks=4), stage("b", tasks=4), parallelism=5)
    _, keys = _build([seen], executors=8)
    starts = (Action(START, 0, 4), Action(START, 1, 4))
    made = plan(tuple(Step(action, action) for action in starts), keys, {"uid-w": seen}, 8)
    assert made.starts == {("uid-w", "a"): 4, ("uid-w", "b"): 1}
    assert made.cut


def test_a_plan_keeps_holds_and_the_wake_up() -> None:
    seen = _view("w", stage("a"), stage("b"))
    _, keys = _build([seen])
    actions = (Action(HOLD, 0, 0, NOW + 4), Action(WAIT, -1, 0, NOW + 2))
    made = plan(tuple(Step(action, action) for action in actions), keys, {"uid-w": seen}, 8)
    assert (made.starts, made.holds, made.wake_s) == ({}, {("uid-w", "a"): NOW + 4}, NOW + 2)


@st.composite
def _pools(draw: st.DrawFn) -> tuple[list[WorkflowView], int]:
    executors = draw(st.integers(1, 6))
    views = []
    for number in range(draw(st.integers(0, 5))):
        stages, jobs = [], {}
        for index in range(draw(st.integers(1, 4))):
            tasks, name = draw(st.integers(1, 5)), f"s{index}"
            parents = draw(st.sets(st.sampled_from([f"s{i}" for i in range(index)]))) if index else set()
            slots, limit = draw(st.integers(1, executors)), draw(st.none() | st.integers(1, 5))
            stages.append(stage(name, *sorted(parents), tasks=tasks, slots=slots, parallelism=limit))
            done = parents <= {key for key, value in jobs.items() if value.get("outcome") == "Complete"}
            choice = draw(st.sampled_from(["none", "running", "complete", "failed"])) if done else "none"
            if choice == "running":
                jobs[name] = {"tasks": tasks, "parallelism": draw(st.integers(1, tasks)), "succeeded": 0}
            elif choice != "none":
                outcome = "Complete" if choice == "complete" else "Failed"
                jobs[name] = {"tasks": tasks, "outcome": outcome, "end_s": T0 + 9.5, "succeeded": tasks}
        fields: dict[str, Any] = {"arrival_s": T0 + draw(st.integers(0, 9)), "suspend": draw(st.booleans())}
        fields["parallelism"] = draw(st.none() | st.integers(1, 6))
        views.append(_view(f"w{number}", *stages, jobs=jobs, **fields))
    return views, executors


@settings(max_examples=150, deadline=None)
@given(
    _pools(),
    st.sampled_from(["fifo", "sjf", "srwf", "sjf-hold:tau=1,split=20"]).map(registry.load)
    | st.integers(0, 99).map(any_legal_action),
)
def test_every_pool_makes_a_state_in_which_policies_decide_legally_and_no_plan_has_more_than_is_free(
    pool: tuple[list[WorkflowView], int], policy: Policy
) -> None:
    views, executors = pool
    state, keys = _build(views, executors)
    assert state.free == len(state.free_executors) == int(np.sum(state.executor_stage == IDLE))
    assert state.executors >= executors
    for job, uid in enumerate(keys.jobs):
        held = int(np.sum(state.executor_job == job))
        assert held == state.job_running[job], uid
    for index in state.ready_stages:
        assert state.stage_pending[index] > 0
        assert state.stage_ready_s[index] <= NOW
    before = {name: np.copy(value) for name, value in state._asdict().items()}
    steps = decide(state, policy, Guardrails(hold_when_idle=False), registry.load("sjf"))
    for name, value in state._asdict().items():
        np.testing.assert_array_equal(value, before[name])
    made = plan(steps, keys, {view.fact.meta.uid: view for view in views}, state.free)
    used = sum(
        (cap - int(state.stage_running[keys.stages.index(key)])) * int(state.stage_slots[keys.stages.index(key)])
        for key, cap in made.starts.items()
    )
    assert used <= state.free
    for view_ in views:
        running = sum(stage.occupied for stage in view_.stages)
        more = sum(
            cap - next(s.occupied for s in view_.stages if s.spec.name == name)
            for (uid, name), cap in made.starts.items()
            if uid == view_.fact.meta.uid
        )
        if view_.spec.parallelism is not None and more:
            assert running + more <= view_.spec.parallelism
        assert not (view_.spec.suspend and more)


def test_the_same_objects_in_any_order_make_the_same_state() -> None:
    views = [_view(f"w{i}", stage("a"), arrival_s=T0 + i % 2) for i in range(5)]
    first, _ = _build(views)
    second, _ = _build(views[::-1])
    for name, value in first._asdict().items():
        np.testing.assert_array_equal(value, getattr(second, name))


@pytest.mark.parametrize("executors", [1, 3])
def test_a_stage_without_pods_is_expected_to_end_after_its_estimate(executors: int) -> None:
    seen = _view("w", stage("a"), jobs={"a": {"start_s": NOW - 4}})
    state, _ = _build([seen], executors=executors)
    assert state.executor_free_at_s[0] == NOW + 6


@pytest.mark.parametrize("failed", [0, 1])
@pytest.mark.parametrize(("idle_s", "left_s"), [(59.0, 10.0), (60.0, -64.0)])
def test_a_task_that_has_not_begun_for_long_is_late_and_not_about_to_begin(
    failed: int, idle_s: float, left_s: float
) -> None:
    # Its pod waits for a node, or is to be made again: whoever waits for its end must not wait for ever.
    fact = workflow_fact_of("w", stage("a"), now_s=NOW)
    assert fact.spec is not None
    made = replace(job_fact_of("w", "a", NOW, start_s=NOW - 74, failed=failed), ready=0, idle_s=NOW - idle_s)
    seen = view(fact, fact.spec, {"a": made}, {}, {}, Estimates(), NOW)
    pending = pod_fact({"metadata": {"uid": "p"}, "status": {"phase": "Pending"}}, NOW)
    state, _ = _build([seen], pods={} if failed else {made.meta.uid: {"p": pending}})
    assert state.executor_free_at_s[0] - NOW == left_s


def test_the_edges_of_a_state_are_those_of_its_workflows_in_the_order_of_its_stages() -> None:
    views = [
        _view("late", stage("b", "a"), stage("a"), arrival_s=T0 + 5.25),
        _view("early", stage("x"), stage("y", "x"), stage("z", "x", "y")),
    ]
    _, keys = _build(views)
    dag = dag_of(views, keys)
    edges = {
        (keys.stages[parent], keys.stages[child])
        for parent in range(len(keys.stages))
        for child in dag.child[dag.child_ptr[parent] : dag.child_ptr[parent + 1]].tolist()
    }
    late, early = "uid-late", "uid-early"
    assert edges == {
        ((late, "a"), (late, "b")),
        ((early, "x"), (early, "y")),
        ((early, "x"), (early, "z")),
        ((early, "y"), (early, "z")),
    }
    assert len(dag_of([], Keys((), ())).child) == 0
