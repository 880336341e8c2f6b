"""What the API server does not let through, or not widen, and pods that cannot run: the rest of the pool goes on."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.unit.operator.objects import T0, stage, workflow
from tests.virtual_cluster import VirtualCluster

from fermata.operator import reasons

Raw = dict[str, Any]


def _run(cluster: VirtualCluster, arrivals: dict[str, tuple[float, Raw]], until_s: float) -> dict[str, float]:
    """Submit workflows of one stage at their times and return when those ended that did by a time; all from T0."""
    made = [
        (T0 + at_s, {**workflow(name, row, arrival_s=T0 + at_s), "status": {}})
        for name, (at_s, row) in arrivals.items()
    ]
    ended_s = asyncio.run(cluster.run(made, until_s=T0 + until_s))
    return {name: time_s - T0 for name, time_s in ended_s.items()}


def _cluster(executors: int, **took_s: float) -> VirtualCluster:
    lengths = {(name, "a"): seconds for name, seconds in took_s.items()}
    pool: Raw = {"policy": {"name": "fifo"}, "decisionDeadlineSeconds": 60, "giveBack": "Task"}
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


def test_a_pod_that_was_let_through_and_does_not_get_ready_is_told_of() -> None:
    cluster = _cluster(1, stuck=500.0)
    cluster.ready = 0
    _run(cluster, {"stuck": (0.0, stage("a", tasks=2))}, 100.0)
    assert _row(cluster, "stuck")["reason"] == reasons.NO_POD_READY


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
