"""What the API server does not let through, or not widen, and pods that cannot run: the rest of the pool goes on."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.unit.operator.objects import T0, stage, template, workflow
from tests.virtual_cluster import VirtualCluster

from fermata.operator import names, reasons
from fermata.operator.connection import ClusterError
from fermata.operator.times import render
from fermata.policy.action import START, WAIT, Action
from fermata.policy.state import ClusterState

Raw = dict[str, Any]


def _run(cluster: VirtualCluster, arrivals: dict[str, tuple[float, Raw]], until_s: float) -> dict[str, float]:
    """Submit workflows of one stage at their times and return when those ended that did by a time; all from T0."""
    made = [_workflow(name, at_s, row) for name, (at_s, row) in arrivals.items()]
    ended_s = asyncio.run(cluster.run(made, until_s=T0 + until_s))
    return {name: time_s - T0 for name, time_s in ended_s.items()}


def _workflow(name: str, at_s: float, row: Raw) -> tuple[float, Raw]:
    return T0 + at_s, {**workflow(name, row, arrival_s=T0 + at_s), "status": {}}


def _cluster(executors: int, policy: str = "fifo", **took_s: float) -> VirtualCluster:
    lengths = {(name, "a"): seconds for name, seconds in took_s.items()}
    pool: Raw = {"policy": {"name": policy}, "decisionDeadlineSeconds": 60, "giveBack": "Task"}
    return VirtualCluster(T0, lengths, slow=False, executors=executors, **pool)


def _row(cluster: VirtualCluster, name: str) -> Raw:
    return dict(cluster.objects[f"uid-{name}"]["status"]["stages"][0])


def test_pods_that_may_not_be_let_through_leave_their_executors_to_others_and_are_tried_again() -> None:
    cluster = _cluster(2, wide=5.0, other=5.0)
    cluster.shut_s["wide"] = T0 + 20.0
    arrivals = {"wide": (0.0, stage("a", tasks=4)), "other": (1.0, stage("a", tasks=4))}
    ended_s = _run(cluster, arrivals, 15.0)
    assert ended_s == {"other": pytest.approx(11.0, abs=0.3)}
    assert _row(cluster, "wide")["reason"] == reasons.CHANGE_RETRYING
    assert "you may not" in _row(cluster, "wide")["message"]

    cluster = _cluster(2, wide=5.0, other=5.0)
    cluster.shut_s["wide"] = T0 + 20.0
    assert _run(cluster, arrivals, 600.0)["wide"] < 20.0 + 30.0 + 10.5, "after the longest time between two tries"


def test_a_stage_that_may_not_be_widened_goes_on_with_as_many_tasks_as_it_has() -> None:
    cluster = _cluster(2, first=5.0, wide=10.0)
    cluster.forbids = True
    ended_s = _run(cluster, {"first": (0.0, stage("a")), "wide": (1.0, stage("a", tasks=3))}, 600.0)
    assert ended_s["wide"] == pytest.approx(31.0, abs=0.01)


def test_a_stage_is_widened_when_more_executors_are_free_and_asks_for_nothing_when_its_pods_are_there() -> None:
    cluster = _cluster(2, first=5.0, wide=10.0)
    ended_s = _run(cluster, {"first": (0.0, stage("a")), "wide": (1.0, stage("a", tasks=4))}, 600.0)
    assert ended_s["wide"] == pytest.approx(25.0), "two at once from the end of the first workflow on"
    assert cluster.patched_s == [T0 + 5.0]


def test_a_stage_that_is_given_fewer_executors_than_its_job_may_have_pods_lets_through_no_more_than_that() -> None:
    cluster = _cluster(3, "sjf", first=5.0, wide=10.0, short=100.0)
    one = stage("a", estimateSeconds=1)
    _run(cluster, {"first": (0.0, one), "wide": (1.0, stage("a", tasks=9)), "short": (8.0, one)}, 14.0)
    assert (len(cluster.running), cluster.most) == (3, 3)


def test_a_pod_that_was_let_through_and_does_not_get_ready_is_told_of() -> None:
    cluster = _cluster(1, stuck=500.0)
    cluster.ready = 0
    _run(cluster, {"stuck": (0.0, stage("a", tasks=2))}, 100.0)
    assert _row(cluster, "stuck")["reason"] == reasons.NO_POD_READY


@pytest.mark.parametrize(("pods", "reason"), [(0, reasons.NO_POD_READY), (1, reasons.PODS_NOT_READY)])
def test_a_stage_that_has_executors_for_more_pods_than_it_may_have_says_so(pods: int, reason: str) -> None:
    cluster = _cluster(3, few=500.0)
    cluster.quota["few"] = cluster.ready = pods
    _run(cluster, {"few": (0.0, stage("a", tasks=2))}, 59.0)
    assert _row(cluster, "few")["reason"] == ""
    _run(cluster, {}, 100.0)
    row = _row(cluster, "few")
    assert (row["reason"], row["active"]) == (reason, 2)


def test_a_job_that_another_operator_made_and_let_pods_of_through_is_given_no_turn_twice() -> None:
    cluster = _cluster(3, wide=5.0)
    cluster.denied_s = []  # nothing is told of it
    _run(cluster, {"wide": (0.0, stage("a", tasks=9))}, 1.0)
    cluster.start_operator()
    for known in (cluster.store.jobs, cluster.store.workflow_jobs, cluster.store.busy_jobs):
        known.clear()  # its watch has not come so far
    asyncio.run(cluster._settle())
    assert [job.occupied for job in cluster.store.jobs.values()] == [3]


@pytest.mark.parametrize("reason", ["Conflict", "NotFound"])
def test_a_pod_that_has_changed_or_is_gone_is_no_trouble_and_its_turn_is_for_what_comes_next(reason: str) -> None:
    cluster = _cluster(1, wide=5.0)
    cluster.shut_s["wide"], cluster.shut_for = T0 + 1.0, reason
    _run(cluster, {"wide": (0.0, stage("a", tasks=2))}, 0.5)
    assert (cluster.store.jobs["wide-a-4c3201c067"].occupied, _row(cluster, "wide")["reason"]) == (1, "")
    cluster.now_s = T0 + 2.0
    for name in list(cluster.pods):
        cluster._show(name)
    asyncio.run(cluster._settle())
    assert len(cluster.running) == 1


def test_while_a_job_makes_no_pods_for_tasks_that_failed_others_have_their_executors() -> None:
    cluster = _cluster(2, wide=5.0, other=5.0)
    cluster.fails["wide"], cluster.backoff_s = 2, 40.0
    ended_s = _run(cluster, {"wide": (0.0, stage("a", tasks=3)), "other": (1.0, stage("a", tasks=4))}, 600.0)
    assert ended_s == {"other": pytest.approx(15.0), "wide": pytest.approx(55.0)}


class _Pauses:
    """Starts what it may, one task at a time, but nothing from the second second to the fifteenth."""

    name = "pauses"

    def choose(self, state: ClusterState) -> Action:
        if T0 + 1.0 <= state.now_s < T0 + 15.0:
            return Action(WAIT, until_s=T0 + 15.0)
        index = int(state.ready_stages[0])
        return Action(START, index, int(state.stage_running[index]) + 1)


def test_a_stage_that_has_begun_is_held_while_it_is_the_turn_of_none_of_its_tasks_and_executors_are_free() -> None:
    told = []
    for until_s in (14.0, 16.0):
        cluster = _cluster(2, wide=5.0, other=100.0)
        asyncio.run(cluster._settle())  # it loads the policy of the pool, and ours takes its place
        cluster.reconciler._seat._policy = _Pauses()
        arrivals = {"other": (0.0, stage("a", estimateSeconds=9)), "wide": (0.0, stage("a", tasks=2))}
        _run(cluster, arrivals, until_s)
        told.append((len(cluster.running), _row(cluster, "wide"), cluster.objects["uid-wide"]["status"]))
    (running, row, status), (running_then, row_then, status_then) = told
    assert (running, row["reason"], status["heldSince"]) == (1, reasons.HELD_BY_POLICY, render(T0 + 5.0))
    assert (running_then, row_then["heldSeconds"]) == (2, pytest.approx(10.0))
    assert (status_then["heldSeconds"], status_then["gapSeconds"]) == (10.0, 10.0), "nothing of it ran meanwhile"


def test_what_a_stage_was_held_between_its_tasks_is_told_though_no_status_could_be_written_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = _cluster(2, wide=5.0, other=100.0)
    asyncio.run(cluster._settle())
    cluster.reconciler._seat._policy = _Pauses()
    write = cluster.patch_workflow_status

    async def fail_meanwhile(*args: Any) -> Raw:
        if T0 + 4.0 <= cluster.now_s < T0 + 22.0:
            raise ClusterError(500, "", "a bad moment")
        return await write(*args)

    monkeypatch.setattr(cluster, "patch_workflow_status", fail_meanwhile)
    _run(cluster, {"other": (0.0, stage("a", estimateSeconds=9)), "wide": (0.0, stage("a", tasks=2))}, 60.0)
    status, row = cluster.objects["uid-wide"]["status"], _row(cluster, "wide")
    assert (row["state"], status["heldSeconds"]) == ("Succeeded", 10.0)
    assert (row["heldSeconds"], row.get("heldSince")) == (10.0, None)


def test_a_workflow_that_is_suspended_between_its_tasks_says_that_and_not_that_it_waits() -> None:
    cluster, made = _cluster(1, wide=5.0), [_workflow("wide", 0.0, stage("a", tasks=2))]
    edits = [(T0 + 1.0, lambda: cluster.edit("uid-wide", suspend=True))]
    asyncio.run(cluster.run(made, until_s=T0 + 8.0, edits=edits))
    told = {row["type"]: (row["status"], row["reason"]) for row in cluster.objects["uid-wide"]["status"]["conditions"]}
    assert told[reasons.RUNNING] == ("False", reasons.SUSPENDED)
    assert told[reasons.SUCCEEDED] == ("Unknown", reasons.SUSPENDED)
    assert _row(cluster, "wide")["reason"] == reasons.SUSPENDED
    edits = [(T0 + 10.0, lambda: cluster.edit("uid-wide", suspend=False))]
    assert asyncio.run(cluster.run([], edits=edits)) == {"wide": pytest.approx(T0 + 15.0)}


def test_what_waited_for_its_turn_until_a_deadline_waited_no_longer_though_that_is_seen_late() -> None:
    cluster = _cluster(1, "sjf", wide=5.0, other=100.0)
    other = (T0 + 1.0, {**workflow("other", stage("a"), arrival_s=T0 + 1.0, priority=1000), "status": {}})

    def pass_its_deadline() -> None:
        (job,) = (raw for raw in cluster.objects.values() if raw["metadata"]["name"].startswith("wide-a"))
        cluster._end_pods(job["metadata"]["uid"])
        failed = {
            "type": "Failed",
            "status": "True",
            "reason": "DeadlineExceeded",
            "lastTransitionTime": render(T0 + 9),
        }
        cluster.put(job["metadata"]["uid"], {**job, "status": job["status"] | {"active": 0, "conditions": [failed]}})
        cluster.restart()

    made = [_workflow("wide", 0.0, stage("a", tasks=4)), other]
    asyncio.run(cluster.run(made, until_s=T0 + 41.0, edits=[(T0 + 40.0, pass_its_deadline)]))
    status = cluster.objects["uid-wide"]["status"]
    assert status["jctSeconds"] == 9.5, "stamped with the second"
    assert (status["gapSeconds"], status["runSeconds"], status["waitSeconds"]) == (4.5, 5.0, 4.5)


def _begin(cluster: VirtualCluster, row: Raw) -> float:
    """Submit a workflow of one stage now, and return when the operator comes back."""
    cluster.store.put("workflows", cluster.put("uid-wide", workflow("wide", row)))
    return asyncio.run(cluster._settle())


def test_a_pod_of_which_nobody_says_whether_it_was_let_through_keeps_its_turn_and_is_asked_for_less_and_less_often(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cluster, asked_s = _cluster(1, wide=5.0, other=5.0), list[float]()

    async def lose(*_: Any) -> Raw:
        asked_s.append(cluster.now_s - T0)
        raise ClusterError(0, "ServerDisconnectedError", f"the answer to {len(asked_s)}")

    with monkeypatch.context() as patch:
        patch.setattr(cluster, "patch_pod", lose)
        _run(cluster, {"wide": (0.0, stage("a", tasks=2)), "other": (1.0, stage("a"))}, 10.0)
    assert asked_s == pytest.approx([0.0, 0.25, 0.75, 1.75, 3.75, 7.75])
    assert len(cluster.jobs) == 1, "its executor is not free"
    assert _row(cluster, "wide")["reason"] == reasons.CHANGE_RETRYING
    assert _row(cluster, "wide")["message"].endswith("the answer to 6")
    said = "not let through its gate, again in 0.25 s: ServerDisconnectedError: the answer to 1"
    assert caplog.records[0].getMessage() == f"pod default/{next(iter(cluster.pods))}: {said}"
    cluster.now_s = T0 + 16.0
    asyncio.run(cluster._settle())
    assert (len(cluster.running), _row(cluster, "wide")["reason"]) == (1, "")


@pytest.mark.parametrize("done", [False, True])
def test_a_pod_whose_workflow_is_suspended_before_anybody_knows_whether_it_was_let_through_is_not_let_through_then(
    monkeypatch: pytest.MonkeyPatch, done: bool
) -> None:
    cluster, unread = _cluster(1, wide=5.0, other=5.0), [ClusterError(429, "TooManyRequests", "later")]
    let_through, find = cluster.patch_pod, cluster.find_pod

    async def lose(namespace: str, name: str, patch: Raw) -> Raw:
        if done:
            with monkeypatch.context() as untold:
                untold.setattr(cluster.store, "put", lambda *_: None)
                await let_through(namespace, name, patch)
        raise ClusterError(500, "InternalError", "failed calling webhook")

    async def look(namespace: str, name: str) -> Raw | None:
        if unread:
            raise unread.pop()
        return await find(namespace, name)

    monkeypatch.setattr(cluster, "find_pod", look)
    with monkeypatch.context() as patch:
        patch.setattr(cluster, "patch_pod", lose)
        _begin(cluster, stage("a", tasks=2))
    cluster.edit("uid-wide", suspend=True)
    cluster.now_s += 0.25
    cluster.store.put("workflows", cluster.put("uid-other", workflow("other", stage("a"))))
    asyncio.run(cluster._settle())
    assert len(cluster.jobs) == 1, "its executor is not free while nobody knows"
    cluster.now_s += 0.5
    assert asyncio.run(cluster._settle()) <= cluster.now_s, "others may have its executor"
    asyncio.run(cluster._settle())
    assert [name.partition("-")[0] for _, name in cluster.running] == ["wide" if done else "other"]
    assert _row(cluster, "wide")["reason"] == ("" if done else reasons.SUSPENDED)
    cluster.edit("uid-wide", suspend=False)
    assert set(_run(cluster, {}, 60.0)) == {"wide", "other"}


def test_a_pod_that_was_let_through_though_nobody_answered_is_not_told_to_stay_at_its_gate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = _cluster(2, wide=50.0)
    let_through = cluster.patch_pod

    async def lose_last(namespace: str, name: str, patch: Raw) -> Raw:
        made = await let_through(namespace, name, patch)
        if len(cluster.running) == 2:
            raise ClusterError(0, "ServerDisconnectedError", "the answer was lost")
        return made

    monkeypatch.setattr(cluster, "patch_pod", lose_last)
    _run(cluster, {"wide": (0.0, stage("a", tasks=2))}, 10.0)
    assert (len(cluster.running), _row(cluster, "wide")["reason"]) == (2, "")


def test_one_pod_that_may_not_be_let_through_takes_no_turn_from_another(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, occupied = _cluster(2, wide=5.0), list[int]()
    let_through = cluster.patch_pod

    async def refuse_first(namespace: str, name: str, patch: Raw) -> Raw:
        if name.endswith("-0"):
            raise ClusterError(403, "Forbidden", "not this one")
        await asyncio.sleep(0.001)
        occupied.append(next(iter(cluster.store.jobs.values())).occupied)
        return await let_through(namespace, name, patch)

    monkeypatch.setattr(cluster, "patch_pod", refuse_first)
    _begin(cluster, stage("a", tasks=2))
    assert (occupied, len(cluster.running)) == ([1], 1)


def test_a_pod_keeps_the_gates_of_others_and_nothing_is_done_to_another_one_of_its_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster, asked = _cluster(1, wide=5.0), list[Raw]()
    let_through = cluster.patch_pod

    async def ask(namespace: str, name: str, patch: Raw) -> Raw:
        pod = cluster.pods[name]
        assert [gate["name"] for gate in pod["spec"]["schedulingGates"]] == ["example.com/theirs", names.GATE]
        asked.append(patch)
        meta = {key: pod["metadata"][key] for key in ("uid", "resourceVersion")}
        assert patch == {"metadata": meta, "spec": {"schedulingGates": [{"name": "example.com/theirs"}]}}
        return await let_through(namespace, name, patch)

    monkeypatch.setattr(cluster, "patch_pod", ask)
    theirs = template()
    theirs["spec"]["schedulingGates"] = [{"name": "example.com/theirs"}]
    _begin(cluster, stage("a", tasks=2, template=theirs))
    assert len(asked) == 1


def test_an_operator_that_others_have_taken_over_from_since_it_decided_lets_no_pod_through(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = _cluster(1, wide=5.0)
    create = cluster.create_job

    async def freeze(job: Raw) -> Raw:
        cluster.leads = False
        return await create(job)

    monkeypatch.setattr(cluster, "create_job", freeze)
    assert _begin(cluster, stage("a", tasks=2)) <= cluster.now_s, "it may lead again"
    assert (len(cluster.pods), cluster.running) == (1, [])
    cluster.leads = True
    asyncio.run(cluster._settle())
    assert len(cluster.running) == 1


def test_a_pod_that_may_not_be_let_through_when_its_workflow_has_gone_is_neither_told_of_nor_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = _cluster(1, wide=5.0)

    async def go_first(*_: Any) -> Raw:
        for uid in list(cluster.store.jobs):
            cluster.store.remove("jobs", uid)
        cluster.store.remove("workflows", "uid-wide")
        await cluster.reconciler._observer.observe(cluster.now_s)
        raise ClusterError(403, "Forbidden", "you may not")

    monkeypatch.setattr(cluster, "patch_pod", go_first)
    _begin(cluster, stage("a", tasks=2))
    assert not caplog.records
    assert not list(cluster.reconciler._applier.retries_s(0.0)), "nobody would ever drop it"


def test_a_stage_whose_pool_became_too_small_for_its_next_task_says_so_and_goes_on_once_it_is_large_enough() -> None:
    cluster, made = _cluster(2, wide=5.0), [_workflow("wide", 0.0, stage("a", tasks=2, slots=2))]
    edits = [(T0 + 2.0, lambda: cluster.edit("p", executors=1)), (T0 + 10.0, cluster.restart)]
    asyncio.run(cluster.run(made, until_s=T0 + 20.0, edits=edits))
    status = cluster.objects["uid-wide"]["status"]
    accepted = next(row for row in status["conditions"] if row["type"] == reasons.ACCEPTED)
    assert (accepted["status"], accepted["reason"]) == ("False", reasons.TOO_MANY_SLOTS)
    assert "needs 2 executors a task, the pool has 1" in accepted["message"]
    cluster.start_operator()
    edits = [(T0 + 30.0, lambda: cluster.edit("p", executors=2))]
    assert asyncio.run(cluster.run([], edits=edits)) == {"wide": pytest.approx(T0 + 35.0)}


def test_the_last_task_of_a_stage_needs_no_room_in_its_pool_any_more() -> None:
    cluster, made = _cluster(4, wide=5.0), [_workflow("wide", 0.0, stage("a", tasks=2, slots=2))]
    edits = [(T0 + 2.0, lambda: cluster.edit("p", executors=1)), (T0 + 3.0, cluster.restart)]
    assert asyncio.run(cluster.run(made, edits=edits)) == {"wide": pytest.approx(T0 + 5.0)}
    told = {row["reason"] for row in cluster.objects["uid-wide"]["status"]["conditions"]}
    assert reasons.TOO_MANY_SLOTS not in told


@pytest.mark.parametrize(
    ("uid", "stops", "goes_on", "left"),
    [
        ("uid-wide", {"suspend": True}, {"suspend": False}, 0),
        ("uid-wide", {"parallelism": 1}, {"parallelism": None}, 1),
        ("p", {"namespaceSelector": {"matchLabels": {"team": "other"}}}, {"namespaceSelector": None}, 0),
        ("p", {"executors": 1}, {"executors": 2}, 1),
    ],
)
def test_a_turn_whose_pod_is_not_made_before_its_workflow_is_stopped_or_may_have_fewer_is_taken_back(
    monkeypatch: pytest.MonkeyPatch, uid: str, stops: Raw, goes_on: Raw, left: int
) -> None:
    cluster = _cluster(3, wide=5.0)
    fill = cluster._fill
    monkeypatch.setattr(cluster, "_fill", lambda job: cluster.put(job["metadata"]["uid"], job))  # no quota for pods
    _begin(cluster, stage("a", tasks=2))
    (job,) = cluster.store.jobs
    assert cluster.store.jobs[job].occupied == 2
    cluster.edit(uid, **stops)
    asyncio.run(cluster._settle())
    assert cluster.store.jobs[job].occupied == left, "others may have its executors"
    cluster.store.put("jobs", fill(cluster.objects[job]))
    asyncio.run(cluster._settle())
    assert (len(cluster.pods), len(cluster.running)) == (2, left)
    cluster.edit(uid, **goes_on)
    asyncio.run(cluster._settle())
    assert len(cluster.running) == 2
