"""The Job of a stage: what it says, and that it is started at most once."""

from __future__ import annotations

import asyncio
import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.operator.objects import T0, job, stage, workflow_fact_of

from fermata.operator import names, reasons
from fermata.operator.connection import ClusterError
from fermata.operator.estimates import Estimates
from fermata.operator.facts import job_fact
from fermata.operator.jobs import RefusedError, build_job, start, widen
from fermata.operator.lanes import Lanes
from fermata.operator.progress import WorkflowView
from fermata.operator.times import render
from fermata.operator.view import view


def _view(*stages: dict[str, Any]) -> WorkflowView:
    fact = workflow_fact_of("etl", *stages)
    assert fact.spec is not None
    return view(fact, fact.spec, {}, {}, {}, Estimates(), T0)


def test_a_job_says_what_the_stage_says() -> None:
    seen = _view(stage("load", tasks=5, retries=2, activeDeadlineSeconds=60))
    job = build_job(seen, seen.stages[0], 3, start_s=T0 + 4, held_s=1.5, policy="sjf")
    assert job["spec"] == {
        "completionMode": "Indexed",
        "completions": 5,
        "parallelism": 3,
        "backoffLimit": 2,
        "podReplacementPolicy": "Failed",
        "activeDeadlineSeconds": 60,
        "podFailurePolicy": {
            "rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]
        },
        "template": {
            "metadata": {"labels": job["metadata"]["labels"], "annotations": {names.ANNOTATION_SLOTS: "1"}},
            "spec": {"containers": [{"name": "main", "image": "busybox"}], "restartPolicy": "Never"},
        },
    }
    (owner,) = job["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("Workflow", "uid-etl", True)
    assert job["metadata"]["annotations"][names.ANNOTATION_START] == render(T0 + 4)
    assert float(job["metadata"]["annotations"][names.ANNOTATION_HELD]) == 1.5


def test_the_users_template_is_kept_and_not_shared() -> None:
    template = {
        "metadata": {"labels": {"team": "x"}, "annotations": {"a": "b"}},
        "spec": {"restartPolicy": "OnFailure", "containers": [{"name": "c", "env": [{"name": "E", "value": "1"}]}]},
    }
    seen = _view(stage("a", template=template))
    made = build_job(seen, seen.stages[0], 1, start_s=T0, held_s=0, policy="sjf")["spec"]["template"]
    assert made["metadata"]["annotations"] == {"a": "b", names.ANNOTATION_SLOTS: "1"}
    assert made["metadata"]["labels"]["team"] == "x"
    assert made["spec"] == template["spec"]
    assert template["metadata"] == {"labels": {"team": "x"}, "annotations": {"a": "b"}}


def test_labels_and_annotations_of_the_workflow_are_passed_on() -> None:
    theirs = {names.ANNOTATION_RELEASE: "*", "kubectl.kubernetes.io/last-applied": "{}", "helm.sh/hook": "post-install"}
    annotations = {"cost-centre": "7", **theirs}
    template = {"metadata": {"labels": {"team": "own"}}, "spec": {"containers": [{"name": "c"}]}}
    labels = {"team": "all", "fermata.dev/family": "night", names.LABEL_STAGE: "forged"}
    labels |= {"job-name": "parent", "batch.kubernetes.io/controller-uid": "parent's"}  # of a Job that submitted it
    fact = workflow_fact_of("etl", stage("a", template=template), labels=labels, annotations=annotations)
    assert fact.spec is not None
    seen = view(fact, fact.spec, {}, {}, {}, Estimates(), T0)
    job = build_job(seen, seen.stages[0], 1, start_s=T0, held_s=0, policy="sjf")
    assert job["metadata"]["labels"] == {
        "team": "all", "fermata.dev/family": "night",
        names.LABEL_POOL: "pool", names.LABEL_WORKFLOW: "etl", names.LABEL_STAGE: "a",
    }  # fmt: skip
    assert job["spec"]["template"]["metadata"]["labels"] == job["metadata"]["labels"] | {"team": "own"}
    assert job["spec"]["template"]["metadata"]["annotations"] == {names.ANNOTATION_SLOTS: "1"}
    kept = job["metadata"]["annotations"]
    assert kept["cost-centre"] == "7"
    assert not theirs.keys() & kept.keys()


@given(
    st.text(string.ascii_lowercase + string.digits + "-.", min_size=1, max_size=253),
    st.text(string.ascii_lowercase + string.digits + "-", min_size=1, max_size=63),
)
def test_job_names_are_short_distinct_and_labels(workflow: str, stage_name: str) -> None:
    name = names.job_name("a" + workflow, "uid", stage_name)
    assert len(f"{name}-99999") <= 63
    assert set(name) <= set(string.ascii_lowercase + string.digits + "-")
    assert name != names.job_name("a" + workflow, "another uid", stage_name)
    assert name != names.job_name("a" + workflow, "uid", stage_name + "x")
    assert len(names.label_value("a" + workflow)) <= 63


class _Server:
    """An API server that answers a creation with what it was told to."""

    def __init__(self, answer: ClusterError | None, existing: dict[str, Any] | None = None) -> None:
        self.answer, self.existing = answer, existing

    async def create_job(self, job: dict[str, Any]) -> dict[str, Any]:
        if self.answer is not None:
            raise self.answer
        return job

    async def get_job(self, _namespace: str, _name: str) -> dict[str, Any]:
        assert self.existing is not None
        return self.existing


def _start(server: _Server) -> dict[str, Any]:
    seen = _view(stage("a"))
    job = build_job(seen, seen.stages[0], 1, start_s=T0, held_s=0, policy="sjf")
    return asyncio.run(start(server, job))  # type: ignore[arg-type]


EXISTS = ClusterError(409, "AlreadyExists", "it exists")


def _orphan(**labels: str) -> dict[str, Any]:
    """Return the Job of a stage without its owner, with some labels of others."""
    raw = job("etl", "a")
    meta = raw["metadata"] | {"labels": raw["metadata"]["labels"] | labels, "ownerReferences": []}
    return raw | {"metadata": meta}


@pytest.mark.parametrize("existing", [job("etl", "a"), _orphan()])
def test_a_job_of_ours_that_exists_is_the_same_start(existing: dict[str, Any]) -> None:
    assert _start(_Server(EXISTS, existing)) is existing


FOREIGN = [
    job("another", "a"),
    job("etl", "b"),
    _orphan(**{names.LABEL_WORKFLOW: "another"}),
    _orphan(**{names.LABEL_STAGE: "b"}),
    {"metadata": {"name": "x"}},
]


@pytest.mark.parametrize("foreign", FOREIGN)
def test_a_job_of_somebody_else_is_a_refusal(foreign: dict[str, Any]) -> None:
    with pytest.raises(RefusedError) as caught:
        _start(_Server(EXISTS, foreign))
    assert caught.value.refusal.reason == reasons.JOB_NAME_TAKEN


def test_an_invalid_job_is_a_refusal_and_an_outage_is_not() -> None:
    with pytest.raises(RefusedError) as caught:
        _start(_Server(ClusterError(422, "Invalid", "bad image")))
    assert caught.value.refusal == (reasons.JOB_REJECTED, "bad image")
    for status in (0, 403, 429, 500, 503):
        with pytest.raises(ClusterError):
            _start(_Server(ClusterError(status, "", "")))


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (400, 'admission webhook "policy.example.com" denied the request: images come from our registry'),
        (
            422,
            "jobs.batch \"etl-a\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no\nno",
        ),
    ],
)
def test_what_admission_says_no_to_is_tried_again(status: int, message: str) -> None:
    with pytest.raises(ClusterError):
        _start(_Server(ClusterError(status, "Invalid", message)))


@pytest.mark.parametrize(
    ("fields", "refused"),
    [
        (("spec.parallelism", "metadata.labels"), False),
        (("spec.parallelism", "spec.template.spec.containers[0].image"), True),
        (("metadata.annotations",), True),
    ],
)
def test_a_job_that_is_invalid_where_no_workflow_has_a_say_is_tried_again(
    fields: tuple[str, ...], refused: bool
) -> None:
    with pytest.raises(RefusedError if refused else ClusterError):
        _start(_Server(ClusterError(422, "Invalid", "admission has made nonsense of it", fields)))


@pytest.mark.parametrize("status", [400, 413, 422])
def test_a_refusal_that_is_not_the_api_servers_own_is_tried_again(status: int) -> None:
    page = "<html><body><h1>400 Bad request</h1>Your browser sent an invalid request.</body></html>"
    with pytest.raises(ClusterError):
        _start(_Server(ClusterError(status, "", page)))


class _Patched:
    """An API server with one Job, which it merges patches into."""

    def __init__(self, raw: dict[str, Any]) -> None:
        self.raw = raw

    async def patch_job(self, _namespace: str, _name: str, patch: dict[str, Any]) -> dict[str, Any]:
        self.raw["spec"] |= patch["spec"]
        self.raw["metadata"]["annotations"] |= patch["metadata"]["annotations"]
        return self.raw

    def widen(self, cap: int, now_s: float) -> None:
        """Widen it as an operator does that knows nothing but what is there."""
        fact = workflow_fact_of("etl", stage("a", tasks=24))
        assert fact.spec is not None
        seen = view(fact, fact.spec, {"a": job_fact(self.raw, now_s)}, {}, {}, Estimates(), now_s)
        asyncio.run(widen(self, seen.stages[0], cap, now_s))  # type: ignore[arg-type]


def test_a_job_remembers_since_when_it_has_been_widened() -> None:
    server = _Patched(job("etl", "a", tasks=24))
    server.widen(4, T0 + 3)
    server.widen(13, T0 + 11.5)
    server.widen(9, T0 + 12)  # it never shrinks
    assert server.raw["spec"]["parallelism"] == 13
    assert job_fact(server.raw, T0 + 13).lanes == (Lanes(0.0, 1), Lanes(3.0, 3), Lanes(11.5, 9))
