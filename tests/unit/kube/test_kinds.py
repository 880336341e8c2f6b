"""Kinds, pods of Jobs, runs and tables on objects worked out by hand."""

from __future__ import annotations

import asyncio
import copy
import gc
import random
from typing import Any

import pytest

from fermata.sim.kube import metadata
from fermata.sim.kube.builtin_types import clean
from fermata.sim.kube.clock import stamp
from fermata.sim.kube.controllers.jobs import JobController
from fermata.sim.kube.controllers.pods import new_pod
from fermata.sim.kube.controllers.runtime import PlanError, environment_of, plan_of
from fermata.sim.kube.errors import ApiError
from fermata.sim.kube.kinds.job import JobKind
from fermata.sim.kube.resources import Resources
from fermata.sim.kube.table import BUILTIN_COLUMNS, custom_columns, table

RESOURCES = Resources()


POD = {"restartPolicy": "Never", "containers": [{"name": "a", "image": "b"}]}


def job(**spec: Any) -> dict[str, Any]:
    template = {"spec": dict(POD)}
    made = {"metadata": {"name": "j", "namespace": "n", "uid": "u"}, "spec": {"template": template, **spec}}
    JobKind().prepare_create(made)
    return made


def fields(new: dict[str, Any], old: dict[str, Any] | None = None) -> list[str]:
    return [cause.field for cause in JobKind().validate(new, old)]


def test_seeded_random_numbers_give_no_uid_twice() -> None:
    uids = set()
    for _ in range(2):
        random.seed(0)
        meta: dict[str, Any] = {"generateName": "a-"}
        metadata.start(meta)
        uids |= {meta["uid"], meta["name"]}
    assert len(uids) == 4


def test_job_defaults() -> None:
    spec = job()["spec"]
    assert (spec["completions"], spec["parallelism"], spec["backoffLimit"]) == (1, 1, 6)
    assert "completions" not in job(parallelism=3)["spec"]


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"parallelism": -1}, "spec.parallelism"),
        ({"completionMode": "Sorted"}, "spec.completionMode"),
        ({"completionMode": "Indexed", "parallelism": 2}, "spec.completions"),
        ({"template": {"spec": {"containers": []}}}, "spec.template.spec.containers"),
        (
            {"template": {"metadata": {"labels": {"job-name": "other"}}, "spec": POD}},
            "spec.template.metadata.labels[job-name]",
        ),
    ],
)
def test_wrong_jobs(spec: dict[str, Any], field: str) -> None:
    assert field in fields(job(**spec))


def test_what_may_change_in_a_job() -> None:
    old = job(completionMode="Indexed", completions=3, parallelism=3)
    for change, refused in (
        ({"parallelism": 5}, []),
        ({"suspend": True}, []),
        ({"completions": 4}, ["spec.completions"]),
        ({"completions": 4, "parallelism": 4}, []),
        ({"completionMode": "NonIndexed"}, ["spec.completionMode"]),
    ):
        new = copy.deepcopy(old)
        new["spec"].update(change)
        assert fields(new, old) == refused, change


def test_a_suspended_job_that_has_not_started_may_be_steered() -> None:
    old = job(suspend=True)
    new = copy.deepcopy(old)
    new["spec"]["template"]["spec"]["nodeSelector"] = {"a": "b"}
    assert fields(new, old) == []
    assert fields(new, {**old, "status": {"startTime": "2026-01-01T00:00:00Z"}}) == ["spec.template"]


def test_the_pods_of_a_job() -> None:
    made = job(completionMode="Indexed", completions=2)
    made["spec"]["template"]["spec"]["containers"].append(
        {"name": "own", "image": "b", "env": [{"name": "JOB_COMPLETION_INDEX", "value": "x"}]}
    )
    before = copy.deepcopy(made)
    pod = new_pod(made, 1)
    assert made == before
    assert pod["metadata"]["generateName"] == "j-1-"
    assert pod["metadata"]["annotations"] == {"batch.kubernetes.io/job-completion-index": "1"}
    assert [len(container["env"]) for container in pod["spec"]["containers"]] == [1, 1]
    pod["metadata"].update(name="j-1-x", uid="u")
    assert environment_of(pod)["JOB_COMPLETION_INDEX"] == "1"
    assert "annotations" not in new_pod(job(), None)["metadata"]


def test_plans() -> None:
    def plan(index: str | None, **annotations: str) -> tuple[float, int]:
        given = {f"fermata.dev/sim-{key.replace('_', '-')}": value for key, value in annotations.items()}
        if index is not None:
            given["batch.kubernetes.io/job-completion-index"] = index
        found = plan_of({"metadata": {"annotations": given}}, 4.0)
        return found.seconds, found.code

    assert plan(None) == (4.0, 0)
    assert plan("1", seconds="1,2.5", exit_code="0,3,0") == (2.5, 3)
    assert plan("9", seconds="1,2.5") == (2.5, 0)
    for wrong in ("x", "-1", "nan", "inf", ""):
        with pytest.raises(PlanError, match="expected a number"):
            plan(None, seconds=wrong)


def test_variables_refer_to_the_pod_and_to_each_other() -> None:
    env = [
        {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "LABEL", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['x/y']"}}},
        {"name": "BOTH", "value": "$(NAME)-$(LABEL)-$(NONE)"},
    ]
    meta = {"name": "p", "namespace": "n", "uid": "u", "labels": {"x/y": "z"}}
    found = environment_of({"metadata": meta, "spec": {"containers": [{"name": "a", "env": env}]}})
    assert found["BOTH"] == "p-z-$(NONE)"


def test_cleaning_finds_what_is_unknown_and_what_is_mistyped() -> None:
    pods = RESOURCES.core("pods")
    pod = {
        "kind": "Pod",
        "metadata": {"name": "p", "labels": None, "odd": 1},
        "spec": {"containers": [{"name": "a", "imge": "x", "env": None}], "nodeSelector": {"any": "thing"}},
    }
    assert sorted(clean(pods, pod)) == ["metadata.odd", "spec.containers[0].imge"]
    assert pod["metadata"] == {"name": "p"}
    assert pod["spec"]["containers"] == [{"name": "a"}]
    for wrong in ({"containers": {}}, {"hostNetwork": "yes"}, {"containers": [{"args": [1]}]}, {"priority": True}):
        with pytest.raises(ApiError, match="cannot unmarshal") as refused:
            clean(pods, {"metadata": {}, "spec": wrong})
        assert refused.value.code == 400


def test_tables() -> None:
    columns = custom_columns([{"name": "N", "type": "integer", "jsonPath": ".spec.n"},
                              {"name": "All", "type": "string", "jsonPath": ".spec.l[*].k"},
                              {"name": "Seen", "type": "date", "jsonPath": ".spec.at"}])  # fmt: skip
    spec = {"n": 2, "l": [{"k": "a"}, {"k": "b"}], "at": stamp()}
    made = table(columns, [{"metadata": {"name": "x"}, "spec": spec}, {"metadata": {"name": "y"}}], {}, whole=False)
    assert [row["cells"] for row in made["rows"]] == [["x", 2, "a,b", "0s"], ["y", None, None, None]]
    assert made["rows"][0]["object"]["kind"] == "PartialObjectMetadata"
    pod = {
        "metadata": {"name": "p", "creationTimestamp": stamp()},
        "spec": {"containers": [{}, {}]},
        "status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "reason": "SchedulingGated"}]},
    }
    assert [column.cell(pod) for column in BUILTIN_COLUMNS["", "pods"]][:4] == ["p", "0/2", "SchedulingGated", "0"]


def test_of_several_writes_that_fail_the_first_is_told_and_no_other_is_left(caplog: pytest.LogCaptureFixture) -> None:
    async def refused(number: int) -> None:
        raise ApiError(409, "Conflict", f"write {number}")

    async def main() -> None:
        controller = JobController(None)  # type: ignore[arg-type]
        with pytest.raises(ApiError, match="write 0"):
            await controller.write_all([refused(0), refused(1)])
        gc.collect()

    asyncio.run(main())
    assert not caplog.records
