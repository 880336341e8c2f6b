"""How many executors a task takes, where an executor is so much of a resource: `trace import kubernetes --executor`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.unit.traces.test_cli_trace import fermata
from tests.unit.traces.test_import_kubernetes import (
    JOB,
    KEPT,
    NODES,
    PIPELINE,
    STEPS,
    TASKS,
    Obj,
    argo,
    imported,
    job,
    pipeline,
    pod,
    pods_of,
    ran,
    stages,
    steps,
)

from fermata.policy.errors import InputError
from fermata.sim.importers import ImportOptions
from fermata.sim.importers.base import AsItRan
from fermata.sim.importers.executor_size import ExecutorSize
from fermata.sim.importers.kubernetes import read_kubernetes
from fermata.sim.kube.pod_requests import PodSpec

GPU = "nvidia.com/gpu"
BY_GPU = ImportOptions(executor=ExecutorSize(GPU, 1))


def asking(objects: list[Obj], **requests: str | float) -> list[Obj]:
    """Objects whose pods have one container that requests so much, `gpu` of GPUs."""
    named = {GPU if name == "gpu" else name: amount for name, amount in requests.items()}
    for each in objects:
        if each["kind"] == "Pod":
            each["spec"] = {"containers": [{"name": "main", "resources": {"requests": named}}]}
    return objects


def slots(items: list[Obj], tmp_path: Path, options: ImportOptions) -> dict[str, int]:
    trace = imported(tmp_path, items, options).trace
    names = [name for at in range(trace.jobs) for name in stages(imported(tmp_path, items, options), at)]
    return dict(zip(names, trace.stage_slots.tolist(), strict=True))


def test_a_task_takes_as_many_executors_as_its_pod_requests(tmp_path: Path) -> None:
    wide = [
        job("wide", 0, succeeded=3),
        *asking([pod("w", (JOB, "wide"), 0, 9)], gpu="4"),
        *asking([pod("v", (JOB, "wide"), 0, 9)], gpu=8),  # the most is what each task is taken to need
        *asking([pod("u", (JOB, "wide"), 5, 9, "Failed")], gpu=64),
        pod("s", (JOB, "wide"), 12, 19),
    ]
    items = [*wide, *asking(ran("one", 1, 8, 9), gpu=1, cpu="96"), *asking(ran("none", 2, 3, 4), cpu="64")]
    found = imported(tmp_path, items, BY_GPU)
    assert list(zip(found.trace.job_ids, found.trace.stage_slots, strict=True)) == [("team/wide", 8), ("team/one", 1)]
    assert found.skipped == {f"no pod of it requests any {GPU}": 1}
    assert found.as_it_ran == AsItRan(
        mean_jct_s=(19 + 8) / 2, at_once=64 + 8 + 4 + 1, executors=True, devices={GPU: 64}
    )
    by_cpu = imported(tmp_path, items, ImportOptions(executor=ExecutorSize("cpu", 40)))
    assert list(zip(by_cpu.trace.job_ids, by_cpu.trace.stage_slots, strict=True)) == [("team/one", 3), ("team/none", 2)]
    everything = imported(tmp_path, items)
    assert everything.trace.stage_slots.tolist() == [1, 1, 1]
    assert everything.as_it_ran is not None
    assert everything.as_it_ran.devices == {GPU: 64}


def test_what_ran_at_one_time_is_what_the_jobs_of_the_trace_took(tmp_path: Path) -> None:
    parts = [pod(name, (JOB, "mixed"), 0, 9) for name in "abc"]  # which request no GPU, and take one executor each
    mixed = [job("mixed", 0, succeeded=4), *parts, *asking([pod("d", (JOB, "mixed"), 0, 9)], gpu=2)]
    wide = asking([job("wide", 1, succeeded=1), pod("w", (JOB, "wide"), 1, 9)], gpu=16)
    for limit, at_once in ((None, 3 + 2 + 16), (1, 3 + 2)):
        options = ImportOptions(executor=BY_GPU.executor, limit=limit)
        assert (imported(tmp_path, [*mixed, *wide], options).as_it_ran or AsItRan(0.0, 0)).at_once == at_once


def test_pods_that_are_gone_requested_what_their_template_says(tmp_path: Path) -> None:
    gone = job("gone", 0, succeeded=2, end=30)
    limited = {"containers": [{"resources": {"limits": {GPU: "2"}}}]}  # the API server makes a request of it in pods
    gone["spec"] = {"parallelism": 2, "template": {"spec": limited}}
    options = ImportOptions(keep_incomplete=True, executor=BY_GPU.executor)
    assert imported(tmp_path, [gone], options).trace.stage_slots.tolist() == [2]
    with pytest.raises(InputError, match=r"no usable jobs \(1 skipped: no pod of it requests any amd.com/gpu\)"):
        imported(tmp_path, [gone], ImportOptions(keep_incomplete=True, executor=ExecutorSize("amd.com/gpu", 1)))


def test_steps_of_argo_and_tekton_take_what_their_pods_request(tmp_path: Path) -> None:
    pods = pods_of("w", NODES)
    three = next(each for each in pods if "w.sub[1].three" in each["metadata"]["annotations"].values())
    asking([three], gpu=3)
    found = slots([argo("w", NODES), *pods], tmp_path, BY_GPU)
    assert {name for name, many in found.items() if many > 1} == {"sub[1].three"}
    assert found["sub[1].three"] == 3
    its = steps("p", *STEPS)
    asking([each for each in its if each["metadata"]["name"].startswith("p-test-20")], gpu=2)
    asking([each for each in its if each["metadata"]["name"].startswith("p-test-21")], gpu=5)
    found = slots([pipeline("p", PIPELINE, TASKS), *its], tmp_path, BY_GPU)
    assert found == {"clone": 1, "test": 5, "build": 1, "push": 1, "report": 1}
    alone = steps("elsewhere", ("clone", 5, 6))
    del alone[0]["metadata"]["ownerReferences"], alone[0]["metadata"]["labels"]
    assert slots(asking(alone, gpu=7), tmp_path, BY_GPU) == {"main": 7}


def test_what_is_expected_of_something_new_is_what_others_of_its_size_took(tmp_path: Path) -> None:
    items = [
        *asking(ran("small", 0, 1, 11), gpu=1),
        *asking(ran("large", 0, 1, 101), gpu=8),
        *asking(ran("new", 200, 201, 202), gpu=8),
    ]
    assert imported(tmp_path, items, BY_GPU).trace.stage_estimate_s.tolist()[2] == 100.0
    assert imported(tmp_path, items).trace.stage_estimate_s.tolist()[2] == 55.0


CPU_2, CPU_HALF = ({"resources": {"requests": {"cpu": amount}}} for amount in ("2", "500m"))
SIDECAR = CPU_HALF | {"restartPolicy": "Always"}


@pytest.mark.parametrize(
    ("spec", "cores"),
    [
        ({"containers": [CPU_2, CPU_HALF, {}]}, 2.5),
        ({"containers": [CPU_HALF], "initContainers": [CPU_2, CPU_2]}, 2.0),  # one after the other
        ({"containers": [CPU_2], "initContainers": [SIDECAR, SIDECAR]}, 3.0),
        ({"containers": [CPU_HALF], "initContainers": [SIDECAR, CPU_2]}, 2.5),  # begins beside the sidecar
        ({"containers": [CPU_HALF], "initContainers": [CPU_2, SIDECAR]}, 2.0),  # is over before the sidecar begins
        ({"containers": [CPU_2], "overhead": {"cpu": "250m"}}, 2.25),
        ({"containers": [CPU_2], "resources": {"requests": {"cpu": 4}}, "overhead": {"cpu": "250m"}}, 4.25),
        ({"containers": [{"resources": {"limits": {"cpu": "3"}, "requests": {"memory": "1Gi"}}}]}, 3.0),
        ({"containers": None}, None),
    ],
)
def test_containers_side_by_side_request_together(spec: Obj, cores: float | None) -> None:
    assert PodSpec.model_validate(spec).requests.get("cpu") == cores


@pytest.mark.parametrize(("requested", "size", "expected"), [("300m", "100m", 3), (0.1, "7", 1), ("12Gi", "4G", 4)])
def test_executors_are_rounded_up_and_a_third_three_times_is_one(
    requested: str | float, size: str, expected: int, tmp_path: Path
) -> None:
    executor = ExecutorSize.parse(f"cpu={size}", "--executor")
    found = imported(tmp_path, asking(ran("a", 0, 1, 2), cpu=requested), ImportOptions(executor=executor))
    assert found.trace.stage_slots.tolist() == [expected]


def test_no_machine_has_so_many_executors(tmp_path: Path) -> None:
    huge = asking(ran("a", 0, 1, 2), memory=1e300)
    with pytest.raises(InputError, match="'main': slots must be between 1 and 2147483647, not 2147483648"):
        imported(tmp_path, huge, ImportOptions(executor=ExecutorSize.parse("memory=1n", "--executor")))


@pytest.mark.parametrize("amount", ["much", "NaN", "Infinity", "[]"])
def test_a_request_that_is_no_quantity_is_refused(tmp_path: Path, amount: str) -> None:
    file = tmp_path / "pods.json"
    text = json.dumps({"kind": "List", "items": asking(ran("a", 0, 1, 2), gpu="AMOUNT")})
    file.write_text(text.replace('"AMOUNT"', amount if amount[0] in "NI[" else f'"{amount}"'))
    with pytest.raises(InputError, match=r"Pod team/a-p: spec.containers.0.resources.requests.nvidia.com/gpu: "):
        read_kubernetes(file, KEPT)


@pytest.mark.parametrize("text", ["", GPU, f"{GPU}=", "=1", "cpu=0", "cpu=-1", "cpu=1x", "cpu=0.1n", "cpu=1e999"])
def test_what_is_no_size_of_an_executor_is_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "objects.json"
    file.write_text(json.dumps({"kind": "List", "items": ran("a", 0, 1, 2)}))
    done = fermata("import", "kubernetes", str(file), "--out", str(tmp_path / "t.jsonl"), "--executor", text)
    assert done.returncode == 2
    told = f"--executor expects RESOURCE=QUANTITY, as nvidia.com/gpu=1 or memory=4Gi, not {text!r}"
    assert told in done.stderr


def test_the_command_line_says_which_devices_tasks_request(tmp_path: Path) -> None:
    file = tmp_path / "objects.json"
    both = [*asking(ran("a", 0, 1, 5), gpu=8), *asking(ran("b", 1, 2, 4), gpu=1)]
    file.write_text(json.dumps({"kind": "List", "items": both}))
    command = ("import", "kubernetes", str(file), "--out", str(tmp_path / "t.jsonl"))
    told = fermata(*command).stderr
    assert f"at most 2 tasks ran at one time\na task requests up to 8 of {GPU}: " in told
    assert f"if these are what is short, use --executor {GPU}=1\n" in told
    assert fermata(*command, "--executor", f"{GPU}=1").stderr.endswith("they took at most 9 executors at one time\n")
    refused = fermata(*command, "--executor", f"{GPU}=1", "--one-slot")
    assert (refused.returncode, "--executor and --one-slot" in refused.stderr) == (2, True)
    other = fermata("import", "jsonl", str(file), "--out", str(tmp_path / "t.jsonl"), "--executor", f"{GPU}=1")
    assert "--executor does not apply to jsonl" in other.stderr
