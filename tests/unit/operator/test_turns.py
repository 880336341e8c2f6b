"""Whose turn it is in a gated Job: what its pods hold, what is owed to them, and who is let through next."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.operator.objects import T0, job, stage, workflow, workflow_fact_of

from fermata.operator import names
from fermata.operator.build_state import build_state
from fermata.operator.estimates import Estimates
from fermata.operator.facts import JobFact
from fermata.operator.jobs import build_job
from fermata.operator.progress import WorkflowView
from fermata.operator.store import Store
from fermata.operator.times import render
from fermata.operator.view import view

GATES = [{"name": "example.com/theirs"}, {"name": names.GATE}]
Raw = dict[str, Any]


def _job(version: int, *, tasks: int = 5, active: int = 2, parallelism: int = 5, failed: int = 0, **fields: Any) -> Raw:
    raw = job("w", "a", tasks=tasks, parallelism=parallelism, version=str(version), **fields)
    raw["spec"]["template"] = {"spec": {"schedulingGates": GATES}}
    raw["status"] |= {"active": active, "failed": failed}
    return raw


def _pod(index: int, version: int, *gates: Raw, start_s: float | None = None) -> Raw:
    labels = {names.LABEL_POOL: "pool", names.LABEL_STAGE: "a"}
    return {
        "metadata": {
            "uid": f"pod-{index}", "name": f"pod-{index}", "namespace": "default", "resourceVersion": str(version),
            "labels": labels, "annotations": {names.ANNOTATION_INDEX: str(index)},
            "ownerReferences": [{"uid": "job-w-a", "controller": True}],
        },
        "spec": {"schedulingGates": list(gates)},
        "status": {"phase": "Pending"} | ({} if start_s is None else {"startTime": render(start_s)}),
    }  # fmt: skip


class _Pool:
    """The facts of a pool, and its clock."""

    def __init__(self) -> None:
        self.now_s, self.woken = T0, 0
        self.store = Store(lambda: self.now_s, self._wake)
        self.store.put("workflows", workflow("w", stage("a", tasks=5)))
        self.store.put("jobs", _job(2, active=0))

    def _wake(self, _pool: str) -> None:
        self.woken += 1

    @property
    def job(self) -> JobFact:
        return self.store.jobs["job-w-a"]

    @property
    def due(self) -> list[str]:
        return [pod.meta.name for _, pod in self.store.due_turns("pool")]

    def view(self) -> WorkflowView:
        fact = self.store.workflows["uid-w"]
        assert fact.spec is not None
        return view(fact, fact.spec, {"a": self.job}, {}, {}, Estimates(), self.now_s)


def test_a_pod_at_its_gate_holds_nothing_and_one_that_was_let_through_does() -> None:
    pool = _Pool()
    pool.store.give_turns("job-w-a", 1)
    assert (pool.job.occupied, pool.due) == (1, []), "its pods are being made"
    for index in (1, 0):
        pool.store.put("pods", _pod(index, 3, *GATES))
    assert (pool.job.occupied, pool.due) == (1, ["pod-0"])
    pool.store.put("pods", _pod(0, 4, GATES[0]))
    assert (pool.job.occupied, pool.due) == (1, []), "whose other gate it is, it has its turn"
    assert pool.store.busy_jobs["pool"]
    woken = pool.woken
    pool.store.remove("pods", "pod-0")
    assert (pool.job.occupied, pool.woken) == (0, woken + 1), "somebody else may have its executor"
    assert not pool.store.busy_jobs["pool"]


def test_what_is_owed_is_never_more_than_there_are_tasks_and_nothing_to_a_job_that_begins_no_more() -> None:
    pool = _Pool()
    pool.store.put("pods", _pod(0, 3))
    pool.store.give_turns("job-w-a", 9)
    assert pool.job.occupied == 5
    pool.store.put("jobs", _job(4, succeeded=3))
    assert pool.job.occupied == 2
    pool.store.put("jobs", _job(5, succeeded=3, suspended=True))
    assert pool.job.occupied == 1
    pool.store.put("jobs", _job(6, succeeded=3))
    assert pool.job.occupied == 1, "what it was owed is given away by now"
    pool.store.give_turns("job-w-a", 1)
    assert pool.job.occupied == 2
    pool.store.put("jobs", _job(7, succeeded=3, parallelism=1))
    assert pool.job.occupied == 1, "there will be no pod for it"


def test_a_task_that_has_ended_is_not_given_a_turn_before_its_job_says_so() -> None:
    pool = _Pool()
    for index in (0, 1):
        pool.store.put("pods", _pod(index, 3))
    pool.store.put("jobs", _job(4, succeeded=2))
    assert (pool.view().stages[0].occupied, pool.view().stages[0].pending) == (2, 1)
    pool.store.remove("pods", "pod-0")
    assert (pool.view().stages[0].occupied, pool.view().stages[0].pending) == (1, 1)


def test_executors_of_last_tasks_wait_with_their_job_for_what_comes_next() -> None:
    pool = _Pool()
    pool.store.put("pods", _pod(4, 3))
    pool.store.put("jobs", _job(4, succeeded=4, active=1))
    pool.store.remove("pods", "pod-4")
    assert (pool.job.occupied, pool.view().stages[0].rests) == (1, False)
    raw = _job(5, succeeded=4, active=0)
    raw["status"]["uncountedTerminatedPods"] = {"succeeded": ["pod-4"]}
    pool.store.put("jobs", raw)
    assert (pool.job.occupied, pool.view().stages[0].rests) == (1, False), "a Job says it in three steps"
    pool.store.put("jobs", _job(6, succeeded=5, active=0))
    assert (pool.job.occupied, pool.view().stages[0].rests) == (0, False), "no task of it waits for a turn"
    pool.store.put("jobs", _job(7, succeeded=5, active=0, outcome="Complete"))
    assert pool.job.occupied == 0


def test_a_pod_that_is_deleted_at_its_gate_has_no_turn_and_neither_has_one_that_is_not_made_yet() -> None:
    pool = _Pool()
    pool.store.put("jobs", _job(3, succeeded=4, active=1))
    pool.store.put("pods", _pod(4, 4, *GATES))
    pool.store.give_turns("job-w-a", 1)
    assert pool.job.occupied == 1
    gone = _pod(4, 5, *GATES)
    gone["metadata"]["deletionTimestamp"] = render(T0)
    pool.store.put("pods", gone)
    pool.store.give_turns("job-w-a", 1)
    assert (pool.job.occupied, pool.view().stages[0].pending, pool.due) == (0, 0, [])
    pool.store.remove("pods", "pod-4")
    pool.store.put("jobs", _job(6, succeeded=4, active=0, failed=1))
    assert (pool.job.occupied, pool.view().stages[0].pending) == (0, 0)
    again = _pod(5, 7, *GATES)
    pool.store.put("pods", again)
    pool.store.put("jobs", _job(8, succeeded=4, active=1, failed=1))
    assert (pool.view().stages[0].pending, pool.view().stages[0].to_do) == (1, 1)


def test_turns_are_added_up_and_each_pod_that_is_let_through_takes_one() -> None:
    pool = _Pool()
    pool.store.give_turns("job-w-a", -1)
    pool.store.give_turns("job-w-a", 1)
    assert pool.job.occupied == 1, "what is taken back and was not owed is no debt"
    pool.store.give_turns("job-w-a", 2)
    for index in range(4):
        pool.store.put("pods", _pod(index, 3, *GATES))
    assert (pool.job.occupied, pool.due) == (3, ["pod-0", "pod-1", "pod-2"])
    pool.store.put("pods", _pod(0, 4))
    assert (pool.job.occupied, pool.due) == (3, ["pod-1", "pod-2"])
    gone = _pod(1, 5, *GATES)
    gone["metadata"]["deletionTimestamp"] = render(T0)
    pool.store.put("pods", gone)
    assert (pool.job.occupied, pool.due) == (3, ["pod-2", "pod-3"]), "there are as many others"


def test_what_runs_keeps_its_executors_where_a_job_is_narrowed_and_widened_again_gives_no_turns() -> None:
    pool = _Pool()
    pool.store.give_turns("job-w-a", 4)
    pool.store.put("jobs", _job(3, parallelism=2))
    assert pool.job.occupied == 2
    pool.store.put("jobs", _job(4, parallelism=5))
    assert pool.job.occupied == 2, "the others are given away by now"
    for index in (0, 1, 2):
        pool.store.put("pods", _pod(index, 5))
    pool.store.put("jobs", _job(6, parallelism=1))
    assert pool.job.occupied == 3


@pytest.mark.parametrize(("active", "pods"), [(5, 0), (0, 5), (5, 5)])
def test_a_job_that_has_failed_before_has_its_turns_once_its_pods_are_made_whoever_says_so_first(
    active: int, pods: int
) -> None:
    pool = _Pool()
    for index in range(pods):
        pool.store.put("pods", _pod(index, 3, *GATES))
    pool.store.put("jobs", _job(4, failed=1, active=active))
    pool.store.give_turns("job-w-a", 2)
    assert (pool.job.occupied, pool.job.absent) == (2, 0)


def test_no_task_is_to_be_started_where_the_last_ones_are_not_counted_yet_and_a_pod_of_them_is_still_seen() -> None:
    pool = _Pool()
    pool.store.put("pods", _pod(0, 3))
    raw = _job(4, active=0, succeeded=3, failed=1)
    raw["status"]["uncountedTerminatedPods"] = {"succeeded": ["pod-0", "pod-1"]}
    pool.store.put("jobs", raw)
    assert (pool.job.absent, pool.view().stages[0].pending) == (0, 0)


def test_tasks_that_fit_into_no_parallelism_yet_are_not_absent() -> None:
    pool = _Pool()
    for index in (0, 1):
        pool.store.put("pods", _pod(index, 3, *GATES))
    for version, active in ((4, 0), (5, 2)):
        pool.store.put("jobs", _job(version, failed=1, active=active, parallelism=2))
        assert (pool.job.absent, pool.view().stages[0].pending) == (0, 5)


def test_of_a_job_that_makes_no_pods_after_a_failure_those_that_there_are_have_their_turn_and_no_more() -> None:
    pool = _Pool()
    pool.store.put("pods", _pod(1, 3))
    for index in (2, 3):
        pool.store.put("pods", _pod(index, 3, *GATES))
    pool.store.give_turns("job-w-a", 1)
    raw = _job(4, failed=1, active=4, tasks=9, parallelism=9, succeeded=1)
    raw["status"]["uncountedTerminatedPods"] = {"succeeded": ["pod-0"]}
    pool.store.put("jobs", raw)
    assert (pool.job.let_in, pool.job.owed, pool.due) == (1, 1, ["pod-2"])
    assert pool.job.unsettled == 2, "one that is not counted, and one whose pod has ended"
    assert pool.job.absent == 8 - 1 - 2 - 2
    pool.store.give_turns("job-w-a", 5)
    assert (pool.job.owed, pool.due) == (2, ["pod-2", "pod-3"])
    pool.store.put("jobs", _job(5, failed=1, active=4, tasks=9, parallelism=9, succeeded=1, suspended=True))
    assert pool.job.absent == 0, "it makes none because it may not"


def test_pods_that_were_let_through_and_lack_that_are_ready_are_counted_from_the_first_time_on() -> None:
    pool = _Pool()

    def say(version: int, ready: int, **fields: Any) -> None:
        raw = _job(version, **fields)
        raw["status"]["ready"] = ready
        pool.store.put("jobs", raw)

    say(3, 0)
    pool.store.put("pods", _pod(0, 4, *GATES))
    assert pool.job.idle_s == math.inf, "it waits at its gate"
    pool.store.put("pods", _pod(0, 5))
    assert pool.job.idle_s == T0
    pool.now_s += 50.0
    pool.store.put("pods", _pod(1, 6, *GATES))
    assert pool.job.idle_s == T0
    say(7, 1)
    assert pool.job.idle_s == math.inf, "as many as were let through are ready"
    pool.store.put("pods", _pod(1, 8))
    assert pool.job.idle_s == T0 + 50.0
    say(9, 1, succeeded=4)
    assert pool.job.idle_s == math.inf, "only one task is left, whatever pods are not gone yet"
    say(10, 0, suspended=True)
    assert pool.job.idle_s == math.inf, "it is to have none"


def test_nothing_is_kept_of_a_gated_job_that_is_gone() -> None:
    pool = _Pool()
    for index in (0, 1):
        pool.store.put("pods", _pod(index, 3, *GATES[: 2 * index], start_s=T0))
    pool.store.remove("pods", "pod-0")
    pool.store.give_turns("job-w-a", 2)
    assert all(vars(pool.store.turns).values())
    pool.store.remove("jobs", "job-w-a")
    pool.store.put("pods", _pod(1, 4))
    assert not any(vars(pool.store.turns).values())


def test_no_pod_of_a_workflow_that_is_gone_is_let_through_though_its_job_is_still_there() -> None:
    pool = _Pool()
    for index in (0, 1, 2):
        pool.store.put("pods", _pod(index, 3, *GATES))
    pool.store.give_turns("job-w-a", 2)
    pool.store.put("pods", _pod(0, 4))
    pool.store.remove("workflows", "uid-w")
    assert (pool.job.occupied, pool.due) == (1, []), "what was let through keeps its executor until it ends"


def test_a_tasks_length_is_what_its_pods_took_and_not_how_long_they_waited() -> None:
    pool = _Pool()
    for index, start_s in enumerate((T0, T0 + 100.0)):
        pool.now_s = start_s
        pool.store.put("pods", _pod(index, 3 + index, start_s=start_s))
        pool.now_s += 8.0 + 4.0 * index
        pool.store.remove("pods", f"pod-{index}")
    pool.store.put("pods", _pod(2, 9, *GATES))
    pool.store.remove("pods", "pod-2")
    pool.store.put("jobs", _job(10, succeeded=5, active=0, outcome="Complete"))
    assert pool.view().stages[0].took_s(112.0) == pytest.approx(10.0)
    for index, start_s in ((3, pool.now_s + 9.0), (4, pool.now_s - 0.5)):  # another machine's clock says when it began
        pool.store.put("pods", _pod(index, 11 + index, start_s=start_s))
        pool.store.remove("pods", f"pod-{index}")
    assert pool.view().stages[0].took_s(112.0) == pytest.approx((8.0 + 12.0 + 0.0 + 0.5) / 4)
    later = _Pool()
    expected = {names.ANNOTATION_ESTIMATE: "7.5"}
    later.store.put("jobs", _job(10, succeeded=5, active=0, outcome="Complete", annotations=expected))
    (seen,) = later.view().stages
    assert (seen.took_s(112.0), seen.took_s(4.0)) == (7.5, 4.0), (
        "an operator that has seen no pod of it knows no better"
    )


def test_only_pods_that_succeed_tell_how_long_a_task_takes() -> None:
    pool = _Pool()
    for index in range(4):
        pool.store.put("pods", _pod(index, 3, start_s=T0))
    pool.now_s = T0 + 2.0
    failed, evicted = _pod(0, 4, start_s=T0), _pod(1, 5, start_s=T0)
    failed["status"]["phase"] = "Failed"
    evicted["metadata"]["deletionTimestamp"] = render(pool.now_s)
    pool.store.put("pods", failed)
    pool.store.put("pods", evicted)
    pool.store.remove("pods", "pod-1")
    assert pool.job.task_s is None
    pool.now_s = T0 + 8.0
    pool.store.retain("pods", ["pod-3"], "9")
    assert pool.job.task_s is None, "pod-2 has ended while nobody looked"
    pool.store.remove("pods", "pod-3")
    assert pool.job.task_s == 8.0


def test_a_pod_that_failed_is_not_brought_back_by_an_answer_that_says_how_it_was() -> None:
    pool = _Pool()
    pool.store.put("pods", _pod(0, 3, *GATES))
    pool.store.give_turns("job-w-a", 1)
    failed = _pod(0, 6, start_s=T0)
    failed["status"]["phase"] = "Failed"
    pool.store.put("pods", failed)
    pool.store.put("pods", {**failed, "metadata": {**failed["metadata"], "resourceVersion": "7"}})  # it is tidied up
    occupied = pool.job.occupied
    pool.store.put_own("pods", _pod(0, 5))  # the answer to the patch that let it through
    assert (pool.job.let_in, pool.job.occupied) == (0, occupied)


def test_a_task_took_no_longer_than_its_stage_though_its_end_is_heard_late() -> None:
    pool = _Pool()
    pool.store.put("pods", _pod(0, 3, start_s=T0))
    pool.now_s = T0 + 60.0
    pool.store.remove("pods", "pod-0")
    pool.store.put("jobs", _job(4, succeeded=5, active=0, outcome="Complete"))
    assert pool.view().stages[0].took_s(5.0) == 5.0


def test_a_stage_whose_last_pod_is_seen_no_more_says_that_it_does_not_get_on() -> None:
    pool = _Pool()
    pool.store.put("pods", _pod(4, 3, *GATES))
    pool.store.put("jobs", _job(4, active=1, succeeded=4) | {"status": {"active": 1, "ready": 0, "succeeded": 4}})
    pool.now_s = T0 + 5.0
    pool.store.remove("pods", "pod-4")  # somebody took the label that it is found by
    assert pool.job.occupied == 1
    told = [pool.job.amiss(T0 + after_s) for after_s in (5.0, 64.0, 65.0)]
    pool.now_s = T0 + 30.0
    pool.store.put("jobs", _job(5, active=1, succeeded=4) | {"status": {"active": 1, "ready": 0, "succeeded": 4}})
    assert [*told, pool.job.amiss(T0 + 66.0)] == ["", "", "NoPodReady", "NoPodReady"]


def test_executors_of_a_gated_stage_are_expected_back_after_each_task() -> None:
    pool = _Pool()
    for index, gates in enumerate(((), (), GATES)):
        pool.store.put("pods", _pod(index, 3, *gates, start_s=T0 if index == 0 else None))
    pool.now_s = T0 + 4.0
    state, _ = build_state([pool.view()], 3, pool.store.job_pods, {}, {}, [], pool.now_s)
    assert (state.free, list(state.stage_running), list(state.stage_pending)) == (1, [2], [3])
    assert list(state.executor_free_at_s[:2]) == [T0 + 10.0, T0 + 14.0]
    assert list(state.ready_stages) == [0]


STEPS = st.sampled_from(["gone", "ended", "at gate", "deleted at gate", "begun", "deleted"])


@given(st.lists(st.tuples(st.integers(0, 3), STEPS)))
def test_whatever_pods_have_been_through_a_job_is_told_of_as_by_those_that_there_are(
    steps: list[tuple[int, str]],
) -> None:
    pool, present, over = _Pool(), dict[int, Raw](), set[int]()
    for version, (index, step) in enumerate(steps, 3):
        if index in over:  # what has ended never runs again
            continue
        if step in ("gone", "ended"):
            before = present.pop(index, None)
            if step == "gone":
                pool.store.remove("pods", f"pod-{index}", version=str(version))
            elif before is not None:
                over.add(index)
                pod = _pod(index, version)
                pool.store.put("pods", pod | {"status": {"phase": "Succeeded"}})
            continue
        pod = present[index] = _pod(index, version, *(GATES if "at gate" in step else []))
        if "deleted" in step:
            pod["metadata"]["deletionTimestamp"] = render(T0)
        pool.store.put("pods", pod)
    fresh = _Pool()
    for pod in present.values():
        fresh.store.put("pods", pod)
    assert _told(pool, len(steps) + 3) == _told(fresh, len(steps) + 3)


def _told(pool: _Pool, version: int) -> tuple[int, int, int, list[int]]:
    """Return what a pool is told of its Job's pods, and of those that outlive it."""
    pool.store.put("jobs", _job(version, active=4, failed=1))
    job = pool.job
    pool.store.remove("jobs", "job-w-a")
    return job.let_in, job.absent, job.unsettled, [number for _, number in pool.store.pool_leaving("pool")]


def _pods_spec(**given: Any) -> Raw:
    """Return the spec of the pods of a gated Job, by what its user gave."""
    fact = workflow_fact_of("etl", stage("a", tasks=2, template={"spec": given}))
    assert fact.spec is not None
    seen = view(fact, fact.spec, {}, {}, {}, Estimates(), T0)
    made = build_job(seen, seen.stages[0], 2, start_s=T0, held_s=0.0, policy="sjf", gated=True)
    assert fact.spec.stages[0].template["spec"] == given, "what the user gave is left as it is"
    return dict(made["spec"]["template"]["spec"])


def test_a_gated_job_keeps_the_gates_that_its_user_gave_it() -> None:
    assert _pods_spec(schedulingGates=GATES[:1])["schedulingGates"] == GATES
    assert _pods_spec(schedulingGates=GATES)["schedulingGates"] == GATES, "no gate may be there twice"


def test_pods_that_name_their_node_get_no_gate_with_which_an_api_server_refuses_them() -> None:
    assert "schedulingGates" not in _pods_spec(nodeName="node-1")


@pytest.mark.parametrize("given", ["nonsense", {"name": "a"}, ["a"]])
def test_gates_that_are_none_are_passed_on_for_the_api_server_to_refuse(given: Any) -> None:
    made = _pods_spec(schedulingGates=given)["schedulingGates"]
    assert made == (given if not isinstance(given, list) else [*given, {"name": names.GATE}])
