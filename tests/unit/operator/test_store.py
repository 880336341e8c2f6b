"""The operator's picture of the cluster: the newest version stays, whatever order events come in."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.operator.objects import DONE, T0, job, stage, template, workflow

from fermata.operator.store import Store
from fermata.operator.times import render


def _store() -> tuple[Store, list[str]]:
    woken: list[str] = []
    return Store(lambda: T0, woken.append), woken


def _busy(store: Store, pool: str = "pool") -> list[str]:
    return sorted(fact.stage for fact in store.busy_jobs[pool].values())


def _version(raw: dict[str, Any], version: int, **spec: Any) -> dict[str, Any]:
    raw["metadata"] |= {"resourceVersion": str(version), "generation": version}
    raw["spec"] |= spec
    return raw


def _pool(version: int, executors: int, uid: str = "p") -> dict[str, Any]:
    meta = {"name": "pool", "uid": uid, "resourceVersion": str(version), "generation": version}
    return {"metadata": meta, "spec": {"executors": executors}}


def _namespace(version: int, team: str, uid: str = "n") -> dict[str, Any]:
    return {"metadata": {"name": "default", "uid": uid, "resourceVersion": str(version), "labels": {"team": team}}}


@given(st.permutations([1, 2, 3, 10]))
def test_the_newest_version_stays(order: list[int]) -> None:
    store, _ = _store()
    for version in order:
        store.put("workflows", _version(workflow("w", stage("a")), version, priority=version))
        store.put("executorpools", _pool(version, version))
        store.put("jobs", job("w", "a", version=str(version), tasks=20, parallelism=version))
        store.put("namespaces", _namespace(version, f"team-{version}"))
    workflow_ = store.workflows["uid-w"].spec
    pool = store.pools["pool"].spec
    assert workflow_ is not None
    assert pool is not None
    assert (workflow_.priority, pool.executors, store.jobs["job-w-a"].parallelism) == (10, 10, 10)
    assert store.namespaces["default"].meta.labels == {"team": "team-10"}


def test_labels_of_a_namespace_that_are_older_than_what_is_known_touch_nothing() -> None:
    store, woken = _store()
    selecting = _pool(1, 2)
    selecting["spec"]["namespaceSelector"] = {"matchLabels": {"team": "new"}}
    store.put("executorpools", selecting)
    for version, team, wakes in ((5, "new", 2), (4, "old", 2), (6, "new", 2), (7, "newer", 3)):
        store.put("namespaces", _namespace(version, team))
        assert woken == ["pool"] * wakes
    store.retain("namespaces", store.put_all("namespaces", []), version="6")
    assert set(store.namespaces) == {"default"}, "it is newer than the list"
    store.retain("namespaces", store.put_all("namespaces", []), version="8")
    assert store.namespaces == {}


def test_a_change_wakes_its_pool_and_marks_its_workflow_but_an_echo_does_not() -> None:
    store, woken = _store()
    store.put("workflows", workflow("w", stage("a")))
    store.put("jobs", job("w", "a"))
    assert (woken, store.touched["pool"]) == (["pool", "pool"], {"uid-w"})
    store.touched.clear()
    store.put("workflows", workflow("w", stage("a")))
    store.put("jobs", job("w", "a"))
    assert woken == ["pool", "pool"]
    assert not store.touched


def test_an_answer_to_a_write_of_ours_is_taken_without_a_call() -> None:
    store, woken = _store()
    store.put_own("jobs", job("w", "a"))
    assert woken == []
    assert store.touched["pool"] == {"uid-w"}
    assert _busy(store) == ["a"]


def test_only_jobs_that_hold_executors_are_listed() -> None:
    store, _ = _store()
    store.put("jobs", job("w", "late", start_s=T0 + 5))
    store.put("jobs", job("w", "early", start_s=T0 + 1))
    store.put("jobs", job("w", "done", start_s=T0, outcome="Complete", succeeded=1))
    assert _busy(store) == ["early", "late"]
    store.put("jobs", job("w", "early", start_s=T0 + 1, outcome="Complete", succeeded=1, version="2"))
    store.remove("jobs", "job-w-late")
    assert _busy(store) == []


def test_pods_of_a_job_that_is_deleted_before_them_count_until_they_have_ended_unless_it_has_ended() -> None:
    store, woken = _store()
    store.put("workflows", workflow("w", stage("a")))
    store.put("jobs", job("w", "a", tasks=2))
    for name in ("first", "second"):
        store.put("pods", _pod(name, "Running"))
    store.remove("workflows", "uid-w")
    store.remove("jobs", "job-w-a")
    assert _busy(store) == []
    assert [(fact.stage, pods) for fact, pods in store.pool_leaving("pool")] == [("a", 2)]
    assert not list(store.pool_leaving("another"))
    assert store.knows("pool")
    woken.clear()
    store.put("pods", _pod("first", "Failed", version=2))
    assert [pods for _, pods in store.pool_leaving("pool")] == [1]
    store.remove("pods", "second")
    assert woken == ["pool"] * 2
    assert not list(store.pool_leaving("pool"))
    assert not store.knows("pool")
    assert not store.job_pods
    store.put("jobs", job("w", "b", outcome="Complete", succeeded=1))
    store.put("pods", _pod("third", "Running", owner="job-w-b"))
    store.remove("jobs", "job-w-b")
    assert not store.leaving, "it had ended, and said so of its pods"


@pytest.mark.parametrize("comes_back", [False, True])
def test_a_pod_of_which_is_told_after_its_job_has_gone_counts_until_it_has_ended(comes_back: bool) -> None:
    store, woken = _store()
    store.put("jobs", job("w", "a"))
    store.remove("jobs", "job-w-a", version="2")
    woken.clear()
    store.put("pods", _pod("first", "Running"))
    store.put("pods", _pod("others", "Running", owner="another"))
    assert [(fact.stage, pods) for fact, pods in store.pool_leaving("pool")] == [("a", 1)]
    assert woken == ["pool"]
    if comes_back:  # it had lacked the label that it is selected by
        store.put("jobs", job("w", "a", version="3"))
        assert not store.leaving
    store.remove("pods", "first")
    assert not store.leaving


def test_pods_that_lose_their_owner_count_for_it_until_they_have_ended() -> None:
    store, _ = _store()
    store.put("jobs", job("w", "a"))
    store.put("pods", _pod("first", "Running"))
    store.remove("jobs", "job-w-a")
    orphan = _pod("first", "Running", version=2)
    del orphan["metadata"]["ownerReferences"]
    store.put("pods", orphan)
    assert [pods for _, pods in store.pool_leaving("pool")] == [1]
    store.remove("pods", "first")
    assert not store.knows("pool")
    assert not store.job_pods


@pytest.mark.parametrize("shown", ["", "running", "finished", "copied"])
def test_pods_that_are_deleted_after_a_job_that_was_never_seen_count_until_they_have_ended(shown: str) -> None:
    store, woken = _store()
    store.put("pods", _pod("stays", "Running", owner="another"))
    store.put("pods", _pod("alone", "Running", owner="", ends=True))
    assert not store.leaving, "who knows whose they are"
    store.put("pods", _pod("first", "Running", ends=True))
    store.put("pods", _pod("second", "Pending", ends=True))
    assert [(fact.slots, pods) for fact, pods in store.pool_leaving("pool")] == [(3, 2)]
    assert woken == ["pool"]
    if shown:
        store.put("workflows", workflow("w", stage("a"), status=DONE if shown == "finished" else {}))
        raw = job("w", "a", outcome="Complete" if shown == "finished" else "")
        store.put("jobs", {**raw, "metadata": raw["metadata"] | ({"name": "copy"} if shown == "copied" else {})})
        assert not store.leaving, "pods are listed before Jobs"
    for name in ("first", "second", "alone", "stays"):
        store.remove("pods", name)
    assert not store.leaving
    assert not store.job_pods


def _pod(name: str, phase: str, version: int = 1, owner: str = "job-w-a", *, ends: bool = False) -> dict[str, Any]:
    owners = [{"uid": owner, "controller": True}] if owner else []
    labels, annotations = {"fermata.dev/pool": "pool", "fermata.dev/stage": "a"}, {"fermata.dev/slots": "3"}
    meta = {"name": name, "uid": name, "resourceVersion": str(version), "ownerReferences": owners}
    meta |= {"labels": labels, "annotations": annotations} | ({"deletionTimestamp": render(T0)} if ends else {})
    return {"metadata": meta, "status": {"phase": phase}}


@pytest.mark.parametrize("change", [{"name": "copy"}, {"ownerReferences": []}, {"namespace": "another"}])
def test_a_job_that_only_looks_like_one_of_ours_counts_for_nothing(change: dict[str, Any]) -> None:
    store, _ = _store()
    store.put("workflows", workflow("w", stage("a")))
    store.put("jobs", job("w", "a", outcome="Complete"))
    copy = job("w", "a")
    copy["metadata"] |= {"uid": "copy", **change}
    store.put("jobs", copy)
    assert _busy(store) == []
    store.remove("jobs", "copy")
    assert store.workflow_jobs["uid-w"]["a"].outcome == "Complete"


@pytest.mark.parametrize("change", [{"labels": {"fermata.dev/pool": "another"}}, {"ownerReferences": []}])
def test_a_job_stays_whose_it_is_whatever_becomes_of_its_labels_and_owner(change: dict[str, Any]) -> None:
    store, _ = _store()
    store.put("jobs", job("w", "a"))
    edited = job("w", "a", version="2")
    edited["metadata"] |= change
    store.put("jobs", edited)
    assert _busy(store) == ["a"]
    store.remove("jobs", "job-w-a")
    assert (_busy(store), _busy(store, "another"), dict(store.workflow_jobs)) == ([], [], {})


def test_a_job_whose_label_names_another_pool_counts_in_the_pool_of_its_workflow() -> None:
    store, woken = _store()  # an operator that was started after the label was changed
    store.put("workflows", workflow("w", stage("a")))
    labelled = job("w", "a")
    labelled["metadata"]["labels"]["fermata.dev/pool"] = "another"
    store.put("jobs", labelled)
    assert (_busy(store), _busy(store, "another")) == (["a"], [])
    assert set(woken) == {"pool"}, "who waits for its end is not told"


def test_a_list_removes_what_it_lacks_unless_that_is_newer() -> None:
    store, _ = _store()
    store.put("jobs", job("w", "gone", version="5"))
    store.put("jobs", job("w", "kept", version="6"))
    store.put("jobs", job("w", "newer", version="12"))
    store.retain("jobs", store.put_all("jobs", [job("w", "kept", version="6")]), version="10")
    assert set(store.workflow_jobs["uid-w"]) == {"kept", "newer"}


def test_what_is_deleted_is_not_brought_back_by_a_late_answer() -> None:
    store, _ = _store()
    store.put("workflows", workflow("w", stage("a")))
    store.put("jobs", job("w", "a"))
    store.remove("jobs", "job-w-a")
    store.remove("workflows", "uid-w")
    store.put_own("workflows", _version(workflow("w", stage("a")), 7))
    store.put_own("jobs", job("w", "a", version="8"))
    assert (store.workflows, store.jobs, _busy(store)) == ({}, {}, [])


def test_what_was_made_again_under_its_name_outlasts_late_news_of_its_predecessor() -> None:
    store, _ = _store()
    again = job("w", "a", version="13")
    again["metadata"]["uid"] = "again"
    store.put("executorpools", _pool(11, 4, uid="again"))
    store.put("namespaces", _namespace(12, "new", uid="again"))
    store.put("jobs", job("w", "a"))
    store.put("jobs", again)
    store.put("executorpools", _pool(7, 2))
    assert store.pools["pool"].meta.uid == "again", "an answer to a write of ours came late"
    store.remove("executorpools", "p", "pool")
    store.remove("namespaces", "n", "default")
    store.remove("jobs", "job-w-a")
    assert store.pools["pool"].meta.uid == "again"
    assert store.namespaces["default"].meta.labels == {"team": "new"}
    assert store.workflow_jobs["uid-w"]["a"].meta.uid == "again"
    store.remove("executorpools", "again", "pool")
    store.remove("namespaces", "again", "default")
    assert (store.pools, store.namespaces) == ({}, {})


def test_what_a_control_plane_that_was_begun_anew_says_is_newer_whatever_its_versions() -> None:
    store, _ = _store()
    before, after = _pool(900, 2), _pool(3, 4, uid="again")
    before["metadata"]["creationTimestamp"] = "2027-01-15T08:00:00Z"
    after["metadata"]["creationTimestamp"] = "2027-01-15T09:00:00Z"
    for raw in (before, after, before):
        store.put("executorpools", raw)
    assert store.pools["pool"].meta.uid == "again"


def test_what_a_selector_leaves_out_for_a_while_comes_back_and_what_is_deleted_does_not() -> None:
    store, woken = _store()
    for version, left_out_at in (("1", "5"), ("9", "12")):
        store.put("jobs", job("w", "a", version=version))
        assert _busy(store) == ["a"]
        store.remove("jobs", "job-w-a", version=left_out_at)
        store.put_own("jobs", job("w", "a", version=str(int(left_out_at) - 1)))
        assert (store.jobs, _busy(store)) == ({}, []), "a write of ours was answered late"
    store.put("jobs", job("w", "a", version="20"))
    store.retain("jobs", store.put_all("jobs", []), version="30")
    store.put_own("jobs", job("w", "a", version="29"))
    assert store.jobs == {}
    store.put("jobs", job("w", "a", version="31"))
    assert woken == ["pool"] * 7
    unlabelled = job("w", "a", version="33")
    del unlabelled["metadata"]["labels"]["fermata.dev/pool"]
    store.remove("jobs", "job-w-a", version="32")
    store.put_own("jobs", unlabelled)
    assert store.jobs == {}, "what no watch shows would never change again"


def test_a_pool_that_changes_touches_its_unfinished_workflows() -> None:
    store, woken = _store()
    store.put("workflows", workflow("open", stage("a")))
    store.put("workflows", workflow("done", stage("a"), status=DONE))
    store.touched.clear()
    store.put("executorpools", _pool(1, 2))
    assert store.touched["pool"] == {"uid-open"}
    store.touched.clear()
    before = len(woken)
    status_only = _pool(2, 2)
    status_only["metadata"]["generation"] = 1
    store.put("executorpools", status_only)
    assert len(woken) == before


def test_a_pool_whose_status_somebody_takes_away_is_looked_at() -> None:
    store, woken = _store()
    ready = {"type": "Ready", "status": "True", "reason": "Open", "lastTransitionTime": render(T0)}
    for version, (conditions, calls) in enumerate([([ready], 1), ([ready], 1), ([], 2), ([], 2)], 1):
        raw = _pool(version, 2)
        raw["metadata"]["generation"] = 1
        store.put("executorpools", {**raw, "status": {"conditions": conditions}})
        assert len(woken) == calls


def test_a_finished_workflow_keeps_no_templates() -> None:
    store, _ = _store()
    store.put("workflows", workflow("done", stage("a"), status=DONE))
    spec = store.workflows["uid-done"].spec
    assert spec is not None
    assert spec.stages[0].template == {}


def test_of_a_finished_workflow_only_jobs_that_hold_executors_are_kept() -> None:
    store, _ = _store()
    store.put("jobs", job("done", "a", outcome="Complete", succeeded=1))
    store.put("jobs", job("done", "b"))
    store.put("workflows", workflow("done", stage("a"), stage("b"), status=DONE))
    assert set(store.jobs) == {"job-done-b"}
    store.put("jobs", job("done", "c", outcome="Failed"))
    store.put("jobs", job("done", "b", outcome="Failed", version="2"))
    assert (store.jobs, dict(store.workflow_jobs), _busy(store)) == ({}, {}, [])


@pytest.mark.parametrize("end", ["finished", "deleted"])
def test_a_job_that_is_deleted_when_it_has_ended_is_known_for_as_long_as_its_workflow_goes_on(end: str) -> None:
    store, _ = _store()
    store.put("workflows", workflow("w", stage("a"), stage("b", "a")))
    store.put("jobs", job("w", "a", outcome="Complete", succeeded=1))
    store.remove("jobs", "job-w-a")
    assert store.workflow_jobs["uid-w"]["a"].outcome == "Complete"
    if end == "finished":
        store.put("workflows", _version(workflow("w", stage("a"), stage("b", "a"), status=DONE), 7))
    else:
        store.remove("workflows", "uid-w")
    assert (store.jobs, dict(store.workflow_jobs)) == ({}, {})


def test_nothing_is_left_of_a_pool_and_of_a_job_whose_objects_are_gone() -> None:
    store, _ = _store()
    store.put("executorpools", _pool(1, 2))
    store.put("workflows", workflow("w", stage("a")))
    store.put("jobs", job("w", "a"))
    owner = [{"uid": "job-w-a", "controller": True}]
    meta = {"uid": "pod", "name": "pod", "namespace": "default", "resourceVersion": "1", "ownerReferences": owner}
    store.put("pods", {"metadata": meta, "status": {"phase": "Running"}})
    for kind, uid, name in (("executorpools", "p", "pool"), ("workflows", "uid-w", "w"), ("pods", "pod", "pod")):
        assert store.knows("pool")
        store.remove(kind, uid, name)  # type: ignore[arg-type]
    assert store.knows("pool"), "its Job still holds executors"
    store.remove("jobs", "job-w-a")
    assert not store.knows("pool")
    store.forget("pool")
    assert (dict(store.job_pods), dict(store.workflow_jobs)) == ({}, {})
    assert (dict(store.pool_workflows), dict(store.busy_jobs), dict(store.touched)) == ({}, {}, {})


def test_a_finished_workflow_is_small_and_says_the_same() -> None:
    store, _ = _store()
    raw = workflow("done", stage("a", tasks=3, estimateSeconds=7), status=DONE)
    store.put("workflows", raw)
    fact = store.workflows["uid-done"]
    assert fact.finished
    assert fact.status == type(fact.status).model_validate(raw["status"])
    assert fact.spec is not None
    assert (fact.spec.stages[0].tasks, fact.spec.stages[0].estimate_seconds) == (3, 7)


def test_nonsense_becomes_a_problem_and_not_an_error() -> None:
    store, _ = _store()
    for number, body in enumerate([None, [], "text", {"stages": 3}, {"poolName": "pool", "stages": [{"name": 5}]}]):
        meta = {"uid": str(number), "name": "w", "namespace": "default", "resourceVersion": "1"}
        store.put("workflows", {"metadata": meta, "spec": body, "status": {"stages": "nonsense"}})
        fact = store.workflows[str(number)]
        assert fact.spec is None
        assert fact.problem


def test_fields_that_only_newer_crds_know_are_ignored_and_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    store, _ = _store()
    with caplog.at_level("WARNING", logger="fermata.operator.store"):
        for number in range(3):
            raw = workflow(f"w{number}", stage("a", weight=1), stage("b", "a", weight=2, tasks=7), note="")
            store.put("workflows", raw)
            assert raw["spec"]["stages"][0]["weight"] == 1, "what it was given is not its own"
            pool = _pool(number + 1, 2)
            pool["spec"] |= {"reserve": 0, "policy": {"name": "sjf", "seed": 1}}
            store.put("executorpools", pool)
    known, kept = store.workflows["uid-w2"], store.pools["pool"]
    assert known.spec is not None
    assert [(row.name, row.tasks, row.depends_on) for row in known.spec.stages] == [("a", 1, []), ("b", 7, ["a"])]
    assert known.spec.stages[1].template == template()
    assert kept.spec is not None
    assert (kept.spec.executors, kept.spec.policy.name) == (2, "sjf")
    told = [record.getMessage().partition(": unknown")[0] for record in caplog.records]
    assert told == [
        "Workflow: spec.note",
        "Workflow: spec.stages[].weight",
        "ExecutorPool: spec.policy.seed",
        "ExecutorPool: spec.reserve",
    ]


def test_a_value_that_cannot_be_read_is_a_problem_also_beside_fields_that_are_not_known() -> None:
    store, _ = _store()
    store.put("workflows", workflow("w", stage("a", tasks="many", weight=1), note=""))
    fact = store.workflows["uid-w"]
    assert (fact.spec, fact.problem.partition(": ")[0]) == (None, "spec.stages.0.tasks")
