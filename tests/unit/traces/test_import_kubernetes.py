"""Jobs, Argo Workflows and runs of Tekton, as kubectl prints them, one rule at a time."""

from __future__ import annotations

import base64
import contextlib
import gzip
import json
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fermata.policy.earlier_runs import UNKNOWN_S
from fermata.policy.errors import InputError
from fermata.sim.importers import Imported, ImportOptions
from fermata.sim.importers.base import DEFAULTS, AsItRan
from fermata.sim.importers.kubernetes import read_kubernetes
from fermata.sim.importers.runs import NO_PODS, most_at_once
from fermata.sim.trace_builder import specs_of

Obj = dict[str, Any]
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
JOB, ARGO = ("batch/v1", "Job"), ("argoproj.io/v1alpha1", "Workflow")
KEPT = ImportOptions(keep_incomplete=True)


def at(second: float) -> str:
    return (BEGIN + timedelta(seconds=second)).strftime("%Y-%m-%dT%H:%M:%SZ")


def meta(name: str, created: float, owner: tuple[tuple[str, str], str] | None = None, **more: Any) -> Obj:
    """Metadata of an object whose uid is its name unless `more` says so; an owner is kind and name, and controls it."""
    owners = []
    if owner is not None:
        (version, kind), of = owner
        owners = [{"apiVersion": version, "kind": kind, "name": of, "uid": of, "controller": True}]
    return {
        "uid": name,
        "name": name,
        "namespace": "team",
        "creationTimestamp": at(created),
        "ownerReferences": owners,
    } | more


def job(name: str, created: float, succeeded: int = 1, end: float | None = None, **more: Any) -> Obj:
    """A Job that completed, `more` of its metadata."""
    status: Obj = {"conditions": [{"type": "Complete", "status": "True"}], "succeeded": succeeded}
    if end is not None:
        status |= {"startTime": at(created), "completionTime": at(end)}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta(name, created, **more), "status": status}


def pod(name: str, owner: tuple[tuple[str, str], str], start: float, end: float, phase: str = "Succeeded") -> Obj:
    terminated = {"state": {"terminated": {"exitCode": 0, "startedAt": at(start + 1), "finishedAt": at(end)}}}
    status = {"phase": phase, "startTime": at(start), "containerStatuses": [terminated]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta(name, start - 1, owner), "status": status}


def ran(name: str, created: float, start: float, end: float, **more: Any) -> list[Obj]:
    """A Job and the one pod of it."""
    return [job(name, created, end=end, **more), pod(f"{name}-p", (JOB, name), start, end)]


def imported(tmp_path: Path, items: list[Obj], options: ImportOptions = DEFAULTS) -> Imported:
    file = tmp_path / "objects.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}, indent=2))
    return read_kubernetes(file, options)


def stages(found: Imported, index: int = 0) -> dict[str, tuple[list[float], list[str]]]:
    return {spec.name: (list(spec.durations_s), sorted(spec.depends_on)) for spec in specs_of(found.trace, index)}


def test_a_job_takes_what_its_pods_took_on_their_nodes(tmp_path: Path) -> None:
    wide = [job("wide", 10, succeeded=2, end=50), pod("w1", (JOB, "wide"), 20, 50), pod("w2", (JOB, "wide"), 12, 22)]
    found = imported(tmp_path, [*ran("late", 31, 40, 45), *wide])
    assert list(found.trace.job_ids) == ["team/wide", "team/late"]
    assert found.trace.job_arrival_s.tolist() == [0.0, 21.0]
    assert (stages(found), stages(found, 1)) == ({"main": ([10.0, 30.0], [])}, {"main": ([5.0], [])})
    assert found.trace.stage_slots.tolist() == [1, 1]
    assert (found.as_it_ran, found.skipped) == (AsItRan(mean_jct_s=(40 + 14) / 2, at_once=2), {})


def test_a_pod_runs_until_its_last_container_ends(tmp_path: Path) -> None:
    two = pod("p", (JOB, "a"), 5, 20)
    ended = two["status"]["containerStatuses"][0]
    sidecar = {"state": {"terminated": {"finishedAt": at(31)}}}
    two["status"] |= {"containerStatuses": [ended, {"state": {"running": {"startedAt": at(6)}}}]}
    two["status"] |= {"initContainerStatuses": [sidecar]}
    assert stages(imported(tmp_path, [job("a", 0), two]))["main"][0] == [26.0]


def test_attempts_that_failed_are_no_tasks_and_an_index_is_one(tmp_path: Path) -> None:
    pods = [pod("a", (JOB, "j"), 0, 5, "Failed"), pod("b", (JOB, "j"), 6, 9), pod("c", (JOB, "j"), 7, 20)]
    for each in pods:
        each["metadata"]["annotations"] = {"batch.kubernetes.io/job-completion-index": "0"}
    other = pod("d", (JOB, "j"), 0, 8)
    other["metadata"]["annotations"] = {"batch.kubernetes.io/job-completion-index": "1"}
    assert stages(imported(tmp_path, [job("j", 0, succeeded=2), *pods, other]))["main"][0] == [8.0, 3.0]


def test_what_is_no_job_of_a_trace_is_left_out_with_the_reason(tmp_path: Path) -> None:
    failed, running, none, silent = job("failed", 0), job("running", 0), job("none", 0, succeeded=0), job("silent", 0)
    del silent["status"]["succeeded"]
    failed["status"]["conditions"] = [
        {"type": "Complete", "status": "False"},
        {"type": "FailureTarget", "status": "True"},
        {"type": "Failed", "status": "True"},
    ]
    running["status"]["conditions"] = [{"type": "Suspended", "status": "True"}]
    stage = job("ours", 0, owner=(("fermata.dev/v1alpha1", "Workflow"), "w"))
    of_argo = job("of-argo", 0, owner=(ARGO, "w"))
    found = imported(tmp_path, [*ran("a", 0, 1, 2), failed, running, none, silent, stage, of_argo, job("gone", 0)])
    assert list(found.trace.job_ids) == ["team/a"]
    assert found.skipped == {
        "failed": 1,
        "has not ended": 1,
        "no pod of it succeeded": 2,
        "a stage of a Workflow of Fermata; `fermata trace export --from-cluster` has those": 1,
        "a Job that an Argo Workflow made": 1,
        NO_PODS: 1,
    }


def test_pods_that_are_gone_may_be_filled_in(tmp_path: Path) -> None:
    some = [job("some", 0, succeeded=3, end=50), pod("p", (JOB, "some"), 1, 8), pod("q", (JOB, "some"), 1, 4)]
    waves = job("waves", 1, succeeded=5, end=31) | {"spec": {"parallelism": 2}}
    timeless = [job("timeless", 2), job("endless", 2, end=9), job("beginless", 2, end=9)]
    del timeless[1]["status"]["completionTime"], timeless[2]["status"]["startTime"]
    found = imported(tmp_path, [*some, waves, *timeless], KEPT)
    assert [stages(found, index)["main"][0] for index in (0, 1)] == [[3.0, 7.0, 5.0], [10.0] * 5]
    assert found.skipped == {"neither its pods nor its own times are known": 3}


def test_estimates_are_what_had_ended_when_a_job_arrived(tmp_path: Path) -> None:
    of_cron = (("batch/v1", "CronJob"), "nightly")
    runs = [
        *ran("etl-1", 0, 0, 10),
        *ran("etl-2", 5, 5, 45),  # nothing has ended yet
        *ran("etl-3", 10, 60, 80),  # the first has, at this very second
        *ran("etl-4", 45, 100, 101),
        *ran("other", 46, 100, 101),  # nothing of its family: the mean of all
        *ran("a", 200, 200, 202, owner=of_cron),
        *ran("b", 300, 300, 302, owner=of_cron),
        *ran("c", 400, 400, 402, labels={"fermata.dev/family": "etl"}),
    ]
    known = imported(tmp_path, runs).trace.stage_estimate_s.tolist()
    assert known == [UNKNOWN_S, UNKNOWN_S, 10.0, 25.0, 25.0, pytest.approx(72 / 5), 2.0, pytest.approx(15.0)]
    exact = imported(tmp_path, runs, ImportOptions(exact_estimates=True)).trace
    assert exact.stage_estimate_s.tolist() == exact.task_duration_s.tolist()


def test_a_name_that_was_used_again_is_another_job(tmp_path: Path) -> None:
    again = ran("a", 100, 101, 102, uid="second")
    again[1]["metadata"] |= meta("a-p", 100, (JOB, "second"), uid="p2")
    elsewhere = ran("a", 200, 201, 209, namespace="else", uid="third")
    elsewhere[1]["metadata"] |= meta("a-p", 200, (JOB, "third"), uid="p3")
    found = imported(tmp_path, [*again, *ran("a", 0, 1, 5), *elsewhere])
    assert list(found.trace.job_ids) == ["team/a", "team/a/second", "else/a"]
    assert list(imported(tmp_path, ran("a", 0, 1, 5) + again, ImportOptions(limit=1)).trace.job_ids) == ["team/a"]


def test_documents_may_come_one_after_another_and_objects_again(tmp_path: Path) -> None:
    """As `kubectl get --watch` prints them, and `cat` of what it printed of Jobs and of pods."""
    whole, its = ran("a", 0, 1, 5)
    begun = {**whole, "status": {}}
    pending = {**its, "status": {"phase": "Pending"}}
    answer = {"apiVersion": "batch/v1", "kind": "JobList", "items": [{"metadata": whole["metadata"]}]}
    event = {"type": "DELETED", "object": its}
    bookmark = {"type": "BOOKMARK", "object": {"apiVersion": "v1", "kind": "Pod", "metadata": {}}}
    documents = [bookmark, pending, begun, answer, whole, begun, event, pending, {"kind": "Node", "apiVersion": "v1"}]
    file = tmp_path / "watched.json"
    file.write_text("\n".join(json.dumps(each, indent=2) for each in documents) + "\n")
    assert stages(read_kubernetes(file))["main"][0] == [4.0]


@pytest.mark.parametrize(
    ("text", "told", "line"),
    [
        ("apiVersion: v1\nkind: List\n", "broken JSON: .*; expected what `kubectl get -o json` prints", 1),
        ('{"kind": "List",\n\n"items": [}', "broken JSON", 3),
        ("", "no Job, Argo Workflow or Tekton run in it; expected what `kubectl get jobs,pods -o json` prints", None),
        ("[1]", "no Job, Argo Workflow or Tekton run in it", None),
        ("\n\n" + json.dumps(job("a", 0) | {"status": {"succeeded": "x"}}), "Job team/a: status.succeeded: .*", 3),
        ('{"apiVersion": "v1", "kind": "Pod"}', r"Pod without a name: metadata: Field required", 1),
        (json.dumps(job("a", 0, creationTimestamp="2026-01-01T00:00:00")), "Job team/a: metadata.creationTime.*", 1),
    ],
)
def test_what_kubectl_does_not_print_is_refused(tmp_path: Path, text: str, told: str, line: int | None) -> None:
    file = tmp_path / "objects.json"
    file.write_text(text)
    with pytest.raises(InputError, match=told) as caught:
        read_kubernetes(file)
    assert caught.value.line == line


def node(name: str, kind: str, *children: str, start: float = 0, end: float = 0, phase: str = "Succeeded") -> Obj:
    """A node of an Argo Workflow, whose id is its name."""
    times = {"startedAt": at(start), "finishedAt": at(end) if end else None}
    return {"id": name, "name": name, "type": kind, "phase": phase, "children": list(children)} | times


def argo(name: str, nodes: list[Obj], phase: str = "Succeeded", **more: Any) -> Obj:
    status = {"phase": phase, "nodes": {each["id"]: each for each in nodes}}
    return {"apiVersion": ARGO[0], "kind": "Workflow", "metadata": meta(name, 0, **more), "status": status}


def argo_pod(workflow: str, of: str, start: float, end: float) -> Obj:
    made = pod(f"{of}-pod", (ARGO, workflow), start, end)
    made["metadata"]["annotations"] = {"workflows.argoproj.io/node-name": of}
    return made


# What Argo makes of a DAG with a fan-out whose tasks are tried again, a step that is a DAG itself, and exit handlers.
NODES = [
    node("w", "DAG", "w.get", end=99),
    node("w.get", "Pod", "w.each", "w.skipped", end=9),
    node("w.skipped", "Skipped", "w.sub", phase="Skipped"),
    node("w.each", "TaskGroup", "w.each(0:a)", "w.each(1:b.c)"),
    node("w.each(0:a)", "Retry", "w.each(0:a)(0)", "w.each(0:a)(1)"),
    node("w.each(0:a)(0)", "Pod", end=19, phase="Failed"),
    node("w.each(0:a)(1)", "Pod", "w.sub", end=29),
    node("w.each(1:b.c)", "Retry", "w.each(1:b.c)(0)", "w.each(1:b.c).onExit"),
    node("w.each(1:b.c)(0)", "Pod", "w.sub", end=28),
    node("w.each(1:b.c).onExit", "Pod", end=30),
    node("w.sub", "Steps", "w.sub[0]"),
    node("w.sub[0]", "StepGroup", "w.sub[0].one", "w.sub[0].two(0:x)"),
    node("w.sub[0].one", "Pod", "w.sub[1]", end=40),
    node("w.sub[0].two(0:x)", "DAG", "w.sub[0].two(0:x).deep"),
    node("w.sub[0].two(0:x).deep", "Pod", "w.sub[1]", end=41),
    node("w.sub[1]", "StepGroup", "w.sub[1].three"),
    node("w.sub[1].three", "Pod", "w.sub[1].three.main", end=50),
    node("w.sub[1].three.main", "Container", end=50),
    node("w.onExit", "Pod", end=60),
]
SHAPE = {
    "get": [],
    "each(0:a)(1)": ["get"],  # what comes after it is not what comes after the other
    "each(1:b.c)(0)": ["get"],
    "each(1:b.c).onExit": ["each(1:b.c)(0)", "get"],
    "sub[0].one": ["each(0:a)(1)", "each(1:b.c)(0)", "get"],
    "sub[0].two(0:x).deep": ["each(0:a)(1)", "each(1:b.c)(0)", "get"],
    "sub[1].three": ["sub[0].one", "sub[0].two(0:x).deep"],
    "onExit": ["each(1:b.c).onExit", "sub[1].three"],
}


def shape(found: Imported) -> dict[str, list[str]]:
    return {name: depends_on for name, (_, depends_on) in stages(found).items()}


def pods_of(workflow: str, nodes: Iterable[Obj]) -> list[Obj]:
    """The pods of a Workflow, each five seconds on its node."""
    ends = {each["name"]: each["finishedAt"] for each in nodes if each["type"] == "Pod"}
    seconds = {name: (datetime.fromisoformat(end) - BEGIN).total_seconds() for name, end in ends.items()}
    return [argo_pod(workflow, name, end - 5, end) for name, end in seconds.items()]


def test_an_argo_workflow_is_the_dag_of_its_pods(tmp_path: Path) -> None:
    found = imported(tmp_path, [argo("w", NODES), *pods_of("w", NODES)])
    assert shape(found) == SHAPE
    assert set(found.trace.task_duration_s.tolist()) == {5.0}  # the nodes' own times begin with the Workflow's
    assert (list(found.trace.job_ids), found.as_it_ran) == (["team/w"], AsItRan(60.0, 3))


def test_pods_of_a_fan_out_are_one_stage(tmp_path: Path) -> None:
    items = [node(f"w[0].each({index}:x)", "Pod", "w[1]", end=10 + index) for index in range(3)]
    nodes = [
        node("w", "Steps", "w[0]"),
        node("w[0]", "StepGroup", *(each["id"] for each in items)),
        *items,
        node("w[1]", "StepGroup", "w[1].end"),
        node("w[1].end", "Pod", end=30),
    ]
    found = imported(tmp_path, [argo("w", nodes), *pods_of("w", nodes)])
    assert stages(found) == {"[0].each": ([5.0, 5.0, 5.0], []), "[1].end": ([5.0], ["[0].each"])}


def test_a_workflow_of_one_pod_and_one_of_a_fan_out_alone(tmp_path: Path) -> None:
    alone = argo("one", [node("one", "Pod", end=9)])
    items = [node(f"w.each({index})", "Pod", end=end) for index, end in enumerate((40, 30, 35))]
    wide = argo("w", [node("w", "TaskGroup", *(each["id"] for each in items)), *items], creationTimestamp=at(10))
    pods = [argo_pod("w", "w.each(0)", 20, 40), argo_pod("w", "w.each(1)", 29, 30), argo_pod("w", "w.each(2)", 25, 35)]
    stranger = pod("stranger", (ARGO, "w"), 0, 90)  # of a Workflow's, but of none of its steps
    found = imported(tmp_path, [alone, *pods_of("one", alone["status"]["nodes"].values()), wide, stranger, *pods])
    assert stages(found) == {"main": ([5.0], [])}
    assert stages(found, 1) == {"each": ([20.0, 10.0, 1.0], [])}  # as they began
    assert found.as_it_ran
    assert found.as_it_ran.mean_jct_s == (9 + 30) / 2


def test_pods_of_argo_that_are_gone_may_have_run_since_they_were_made(tmp_path: Path) -> None:
    nodes = [node("w", "DAG", "w.a"), node("w.a", "Pod", "w.b", start=3, end=10), node("w.b", "Pod", start=10, end=12)]
    objects = [argo("w", nodes), argo_pod("w", "w.b", 11, 12), *ran("other", 0, 0, 1)]
    assert imported(tmp_path, objects).skipped == {NO_PODS: 1}
    assert stages(imported(tmp_path, objects, KEPT), 1) == {"a": ([7.0], []), "b": ([1.0], ["a"])}
    nodes[1] |= {"startedAt": None}
    assert stages(imported(tmp_path, [argo("w", nodes), *objects[1:]], KEPT), 1)["a"] == ([0.0], [])
    nodes[1] |= {"startedAt": at(3), "finishedAt": None}
    assert imported(tmp_path, [argo("w", nodes), *objects[1:]], KEPT).skipped == {NO_PODS: 1}


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"phase": "Running"}, "has not ended"),
        ({"phase": "Error"}, "failed"),
        ({"nodes": {}}, "no pod of it succeeded"),
        ({"nodes": None, "offloadNodeStatusVersion": "fnv:1"}, "Argo keeps what it consists of in a database"),
        ({"nodes": None, "compressedNodes": "KLUv/Q=="}, "what it consists of is compressed by another way than gzip"),
        ({"nodes": None, "compressedNodes": "x"}, "what it consists of is compressed by another way than gzip"),
    ],
)
def test_argo_workflows_that_say_nothing_are_left_out(tmp_path: Path, changed: Obj, reason: str) -> None:
    workflow = argo("w", [node("w", "Pod", end=5)])
    workflow["status"] |= changed
    objects = [workflow, argo_pod("w", "w", 1, 5), *ran("other", 0, 0, 1)]
    assert imported(tmp_path, objects).skipped == {reason: 1}


def test_nodes_may_be_compressed(tmp_path: Path) -> None:
    workflow = argo("w", NODES)
    nodes = json.dumps(workflow["status"].pop("nodes")).encode()
    workflow["status"]["compressedNodes"] = base64.b64encode(gzip.compress(nodes)).decode()
    assert shape(imported(tmp_path, [workflow, *pods_of("w", NODES)])) == SHAPE


def test_a_workflow_that_waited_for_no_pod_is_kept_only_where_that_was_asked(tmp_path: Path) -> None:
    nodes = [node("w", "Steps", "w[0]"), node("w[0]", "Suspend", "w[1]", end=90), node("w[1]", "Pod", end=99)]
    objects = [argo("w", nodes), *pods_of("w", nodes), *ran("other", 1, 1, 2)]
    assert imported(tmp_path, objects).skipped == {"waited for something that is no pod": 1}
    assert stages(imported(tmp_path, objects, KEPT)) == {"[1]": ([5.0], [])}
    nodes[1] |= {"finishedAt": nodes[1]["startedAt"]}  # for no time at all
    assert imported(tmp_path, [argo("w", nodes), *objects[1:]]).skipped == {}


def test_a_step_that_began_anew_took_what_its_last_pod_did(tmp_path: Path) -> None:
    first, second = argo_pod("w", "w", 1, 3), argo_pod("w", "w", 5, 9)
    first["status"]["phase"], second["metadata"]["uid"] = "Failed", "second"
    nodes = [node("w", "Pod", end=9)]
    for pods in ([first, second], [second, first]):
        assert stages(imported(tmp_path, [argo("w", nodes), *pods])) == {"main": ([4.0], [])}
    assert stages(imported(tmp_path, [argo("w", nodes), first])) == {"main": ([2.0], [])}


def test_what_a_cache_answered_had_no_pod(tmp_path: Path) -> None:
    nodes = [node("w", "DAG", "w.a"), node("w.a", "Pod", "w.b", end=10), node("w.b", "Pod", "w.c", end=11)]
    nodes += [node("w.c", "Pod", end=20)]
    nodes[1]["memoizationStatus"], nodes[2]["memoizationStatus"] = {"hit": False, "key": "k"}, {"hit": True}
    pods = pods_of("w", [nodes[1], nodes[3]])
    assert stages(imported(tmp_path, [argo("w", nodes), *pods])) == {"a": ([5.0], []), "c": ([5.0], ["a"])}


@pytest.mark.parametrize(("begins", "fits"), [(5, True), (4, False)])
def test_a_step_beside_one_that_it_depends_on_is_no_stage(tmp_path: Path, begins: int, *, fits: bool) -> None:
    nodes = [node("w", "DAG", "w.a"), node("w.a", "Pod", "w.b", end=10), node("w.b", "Pod", end=20)]
    objects = [argo("w", nodes), argo_pod("w", "w.a", 1, 10), argo_pod("w", "w.b", begins, 20), *ran("other", 0, 0, 1)]
    reason = "a step of it ran beside one that it depends on, as beside a daemon"
    assert imported(tmp_path, objects).skipped == ({} if fits else {reason: 1})
    assert imported(tmp_path, objects, KEPT).skipped == {}


def test_the_same_step_of_other_runs_says_what_to_expect(tmp_path: Path) -> None:
    def run(name: str, created: int, **more: Any) -> list[Obj]:
        nodes = [node(name, "DAG", f"{name}.a"), node(f"{name}.a", "Pod", end=created + 20)]
        return [argo(name, nodes, creationTimestamp=at(created), **more), *pods_of(name, nodes)]

    labelled = {"workflows.argoproj.io/cron-workflow": "nightly"}
    referred = run("x", 400)
    referred[0]["spec"] = {"workflowTemplateRef": {"name": "nightly"}}
    objects = [*run("etl-1", 0), *run("etl-x7k2p", 100), *run("n1", 200, labels=labelled), *referred]
    objects += ran("long", 30, 31, 91)
    known = imported(tmp_path, objects).trace.stage_estimate_s.tolist()
    assert known == [UNKNOWN_S, 5.0, 5.0, pytest.approx(70 / 3), 5.0]


@st.composite
def _graphs(draw: st.DrawFn) -> tuple[dict[int, set[int]], list[Obj]]:
    """A DAG by the parents of each pod, and nodes of Argo's with others between them."""
    parents = {
        at: set(draw(st.lists(st.integers(0, at - 1), max_size=3))) if at else set()
        for at in range(draw(st.integers(1, 6)))
    }
    children: dict[str, list[str]] = {"w": [f"w.p{at}" for at in parents if not parents[at]]}
    kinds = {"w": "DAG"} | {f"w.p{at}": "Pod" for at in parents}
    for at, above in parents.items():
        for parent in above:
            ahead = f"w.p{parent}"
            for hop in range(draw(st.integers(0, 2))):
                between = f"{ahead}-{hop}-{at}"
                kinds[between] = draw(st.sampled_from(["TaskGroup", "Retry", "StepGroup", "Skipped", "Steps"]))
                children.setdefault(ahead, []).append(between)
                ahead = between
            children.setdefault(ahead, []).append(f"w.p{at}")
    return parents, [node(name, kind, *children.get(name, ()), end=9) for name, kind in kinds.items()]


@given(_graphs())
def test_pods_depend_on_each_other_whatever_lies_between(tmp_path_factory: pytest.TempPathFactory, drawn: Any) -> None:
    parents, nodes = drawn
    found = imported(tmp_path_factory.mktemp("argo"), [argo("w", nodes), *pods_of("w", nodes)])
    assert shape(found) == {f"p{at}": sorted(f"p{one}" for one in above) for at, above in parents.items()}


TEKTON, TASK_RUN = ("tekton.dev/v1", "PipelineRun"), ("tekton.dev/v1", "TaskRun")


def pipeline(name: str, spec: Obj, children: list[str], status: str = "True", **more: Any) -> Obj:
    """A PipelineRun, `children` the tasks of its TaskRuns."""
    told: Obj = {"conditions": [{"type": "Succeeded", "status": status}], "pipelineSpec": spec}
    told["childReferences"] = [
        {"kind": "TaskRun", "name": f"{name}-{one}", "pipelineTaskName": one} for one in children
    ]
    return {"apiVersion": TEKTON[0], "kind": "PipelineRun", "metadata": meta(name, 0, **more), "status": told}


def task_run(name: str, start: float, end: float, of: tuple[str, str] | None = None, status: str = "True") -> list[Obj]:
    """A TaskRun, five seconds of which it waited for a node, and its pod; `of` are its PipelineRun and its task."""
    owner, labels = ((TEKTON, of[0]), {"tekton.dev/pipelineTask": of[1]}) if of else (None, {"tekton.dev/task": "lint"})
    told = {"startTime": at(start - 5), "completionTime": at(end)}
    told |= {"conditions": [{"type": "Succeeded", "status": status}]}
    run = {"apiVersion": TASK_RUN[0], "kind": "TaskRun", "metadata": meta(name, start - 5, owner, labels=labels)}
    return [run | {"status": told}, pod(f"{name}-pod", (TASK_RUN, name), start, end)]


def steps(run: str, *tasks: tuple[str, float, float]) -> list[Obj]:
    return [each for task, start, end in tasks for each in task_run(f"{run}-{task}-{start}", start, end, (run, task))]


PIPELINE = {
    "tasks": [
        {"name": "clone"},
        {"name": "skipped", "runAfter": ["clone"], "when": [{"input": "x", "operator": "in", "values": ["y"]}]},
        {"name": "test", "runAfter": ["skipped"], "matrix": {"params": [{"name": "v", "value": ["1", "2"]}]}},
        {"name": "build", "params": [{"name": "at", "value": "v-$(tasks.clone.results.commit)"}]},
        {"name": "push", "runAfter": ["test"], "params": [{"name": "i", "value": "$(tasks.build.results.image[0])"}]},
    ],
    "finally": [{"name": "report", "params": [{"name": "s", "value": "$(tasks.clone.status)"}]}],
}
TASKS = ["clone", "test", "test", "build", "push", "report"]
STEPS = (("clone", 9, 19), ("test", 20, 24), ("test", 21, 28), ("build", 20, 50), ("push", 55, 56), ("report", 60, 62))


def test_a_pipeline_run_is_the_dag_of_its_tasks(tmp_path: Path) -> None:
    found = imported(tmp_path, [pipeline("p", PIPELINE, TASKS), *steps("p", *STEPS)])
    assert stages(found) == {
        "clone": ([10.0], []),
        "test": ([4.0, 7.0], ["clone"]),  # after what was skipped: after what that came after
        "build": ([30.0], ["clone"]),
        "push": ([1.0], ["build", "test"]),
        "report": ([2.0], ["push"]),
    }
    assert (list(found.trace.job_ids), found.skipped, found.as_it_ran) == (["team/p"], {}, AsItRan(62.0, 3))


def test_a_task_run_of_its_own_is_a_job_and_tried_again_is_one(tmp_path: Path) -> None:
    run, its = task_run("alone", 10, 16)
    found = imported(tmp_path, [run, pod("first", (TASK_RUN, "alone"), 1, 9, "Failed"), its])
    assert (list(found.trace.job_ids), stages(found)) == (["team/alone"], {"main": ([6.0], [])})
    assert stages(imported(tmp_path, [run], KEPT)) == {"main": ([11.0], [])}
    for time in ("startTime", "completionTime"):
        timeless = run | {"status": {key: value for key, value in run["status"].items() if key != time}}
        assert imported(tmp_path, [timeless, *ran("other", 0, 0, 1)], KEPT).skipped == {NO_PODS: 1}
    made = run | {"metadata": meta("alone", 5, (("triggers.tekton.dev/v1", "EventListener"), "l"))}
    assert stages(imported(tmp_path, [made, its])) == {"main": ([6.0], [])}
    twice = [run, its, pod("late", (TASK_RUN, "alone"), 20, 23)]
    assert stages(imported(tmp_path, twice)) == {"main": ([3.0], [])}
    two = imported(tmp_path, [run, its, *task_run("again", 30, 31)])
    assert two.trace.stage_estimate_s.tolist() == [UNKNOWN_S, 6.0]  # by the task's label


@pytest.mark.parametrize("spec", [{"tasks": [{"name": "a"}]}, {"finally": [{"name": "a"}]}, None])
def test_a_pipeline_may_have_tasks_alone_or_say_nothing_of_them(tmp_path: Path, spec: Obj | None) -> None:
    matrix = [("a", 30, 31), ("a", 20, 60), ("a", 25, 33)]
    run = pipeline("p", {}, ["a", "a", "a"])
    run["status"]["pipelineSpec"] = spec
    found = imported(tmp_path, [run, *steps("p", *matrix)])
    assert stages(found) == {"a": ([40.0, 8.0, 1.0], [])}  # as they began
    assert found.as_it_ran == AsItRan(60.0, 3)


def test_what_is_no_whole_run_of_tekton_is_left_out(tmp_path: Path) -> None:
    nested = pipeline("nested", PIPELINE, [])
    nested["status"]["childReferences"] = [{"kind": "CustomRun", "name": "n", "pipelineTaskName": "x"}]
    childless = pipeline("childless", PIPELINE, [])
    del childless["status"]["childReferences"]
    unlabelled = task_run("unlabelled", 5, 6, ("gone", "clone"))
    del unlabelled[0]["metadata"]["labels"]
    objects = [
        *task_run("ok", 5, 6),
        *unlabelled,
        pipeline("running", PIPELINE, [], status="Unknown"),
        pipeline("failed", PIPELINE, [], status="False"),
        pipeline("empty", PIPELINE, []),
        childless,
        pipeline("gone", PIPELINE, ["clone"]),
        nested,
        pipeline("within", PIPELINE, [], owner=(TEKTON, "other")),
        *steps("elsewhere", ("clone", 5, 6)),
        *task_run("cancelled", 5, 6, status="False"),
        task_run("podless", 5, 6)[0],
    ]
    assert imported(tmp_path, objects).skipped == {
        "has not ended": 1,
        "failed": 2,
        "no pod of it succeeded": 2,
        NO_PODS: 2,
        "waited for something that is no pod": 1,
        "a part of a PipelineRun": 2,
    }


def _places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return where there is something in a JSON value: keys and indices, from the outside in."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at, *(place for key, each in inner for place in _places(each, (*at, key)))]


def sized(name: str, spec: Obj) -> list[Obj]:
    """A Job and its pod, whose spec both have."""
    whole, its = ran(name, 0, 1, 5)
    return [whole | {"spec": {"template": {"spec": spec}}}, its | {"spec": spec}]


ASKED = {"requests": {"nvidia.com/gpu": "2"}, "limits": {"cpu": 0.5}}
WHOLE = {
    "kind": "List",
    "items": [
        *ran("a", 0, 1, 5),
        argo("w", NODES),
        *pods_of("w", NODES),
        pipeline("p", PIPELINE, TASKS),
        *steps("p", *STEPS),
        *sized("b", {"containers": [{"resources": ASKED}], "initContainers": [{"restartPolicy": "Always"}]}),
        *sized("c", {"containers": [{}], "resources": {"requests": {"cpu": "1"}}, "overhead": {"cpu": "2m"}}),
    ],
}
ODD = st.sampled_from(
    [
        None,
        True,
        -1,
        1e300,
        "",
        "x",
        "2026-01-01T00:00:00Z",
        "0001-01-01T00:00:00Z",
        [],
        [None],
        {},
        {"a": 1},
        "\ud800",
        "é",
    ]
)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(_places(WHOLE)[1:]), ODD)
def test_whatever_a_field_holds_it_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, place: tuple[Any, ...], odd: Any
) -> None:
    changed = json.loads(json.dumps(WHOLE))
    inner = changed
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = odd
    file = tmp_path_factory.mktemp("odd") / "objects.json"
    file.write_text(json.dumps(changed))
    with contextlib.suppress(InputError):
        assert read_kubernetes(file).trace.jobs >= 1


SPANS = st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 3)).map(
    lambda of: (min(of[:2]), max(of[:2]), of[2])
)


@given(st.lists(SPANS, max_size=8))
def test_the_most_at_once_are_those_of_some_instant(spans_s: list[tuple[float, float, int]]) -> None:
    halves = [half / 2 for half in range(20)]
    assert most_at_once(spans_s) == max(
        sum(many * (begin <= now < end) for begin, end, many in spans_s) for now in halves
    )
