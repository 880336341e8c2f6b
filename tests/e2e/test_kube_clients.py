"""The official Python client, its asynchronous part and kopf, unchanged, against the embedded control plane."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import textwrap
import threading
from typing import TYPE_CHECKING, Any

import pytest
from tests.e2e.test_kube_conformance import WIDGET_CRD, Plain, eventually, job, pod, widget
from tests.kube_fixtures import LocalKube, local_kube

from fermata.sim.importers.kubernetes import read_kubernetes
from fermata.sim.kube import ControlPlane, Options
from fermata.sim.kube.client import Client
from fermata.sim.kube.controllers.jobs import JobController
from fermata.sim.kube.controllers.kubelet import Kubelet
from fermata.sim.kube.controllers.scheduler import Scheduler
from fermata.sim.kube.errors import ApiError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["local_kube"]
pytestmark = pytest.mark.e2e
kubernetes = pytest.importorskip("kubernetes")
OVER = ("Succeeded", "Failed")


@pytest.fixture
def official(local_kube: LocalKube) -> Any:
    configuration = kubernetes.client.Configuration()
    kubernetes.config.load_kube_config(str(local_kube.kubeconfig), client_configuration=configuration)
    with kubernetes.client.ApiClient(configuration) as client:
        yield client


def test_official_client(official: Any) -> None:
    core = kubernetes.client.CoreV1Api(official)
    assert "default" in {item.metadata.name for item in core.list_namespace().items}
    core.create_namespaced_pod("default", pod("p", {"fermata.dev/sim-seconds": "0.05"}))
    phases = []
    watch = kubernetes.watch.Watch()
    for event in watch.stream(core.list_namespaced_pod, "default", timeout_seconds=20):
        phases.append(event["object"].status.phase)
        if phases[-1] == "Succeeded":
            watch.stop()
    assert phases[-2:] == ["Running", "Succeeded"]
    with pytest.raises(kubernetes.client.ApiException) as refused:
        core.read_namespaced_pod("none", "default")
    assert (refused.value.status, refused.value.reason) == (404, "Not Found")


def test_official_client_and_custom_objects(official: Any) -> None:
    extensions = kubernetes.client.ApiextensionsV1Api(official)
    extensions.create_custom_resource_definition(WIDGET_CRD)
    objects = kubernetes.client.CustomObjectsApi(official)
    where = ("conformance.fermata.dev", "v1", "default", "widgets")
    objects.create_namespaced_custom_object(*where, widget("w"))
    objects.patch_namespaced_custom_object_status(*where, "w", {"status": {"count": 3}})
    assert objects.get_namespaced_custom_object(*where, "w")["status"] == {"count": 3}
    batch = kubernetes.client.BatchV1Api(official)
    template = {"metadata": {"annotations": {"fermata.dev/sim-seconds": "0"}}, "spec": pod("x")["spec"]}
    batch.create_namespaced_job("default", {"metadata": {"name": "j"}, "spec": {"template": template}})
    eventually(lambda: batch.read_namespaced_job("j", "default").status.succeeded == 1)


def test_jobs_that_ran_become_a_trace(official: Any, tmp_path: Path) -> None:
    """By lists as the API answers them, which name the kind of their items once."""
    batch, core = kubernetes.client.BatchV1Api(official), kubernetes.client.CoreV1Api(official)
    for name in ("etl-1", "etl-2"):
        batch.create_namespaced_job("default", job(name, {"fermata.dev/sim-seconds": "1.2"}))
        eventually(lambda name=name: batch.read_namespaced_job(name, "default").status.completion_time)
    lists = [batch.list_namespaced_job("default"), core.list_namespaced_pod("default")]
    file = tmp_path / "lists.json"
    file.write_text("\n".join(json.dumps(official.sanitize_for_serialization(each)) for each in lists))
    trace = read_kubernetes(file).trace
    assert list(trace.job_ids) == ["default/etl-1", "default/etl-2"]
    assert (trace.task_duration_s >= 1.0).all()
    assert trace.stage_estimate_s[1] == trace.task_duration_s[0]  # of the family's first run


def test_asynchronous_client(local_kube: LocalKube) -> None:
    aio = pytest.importorskip("kubernetes.aio")

    async def names() -> set[str]:
        configuration = aio.client.Configuration()
        await aio.config.load_kube_config(str(local_kube.kubeconfig), client_configuration=configuration)
        async with aio.client.ApiClient(configuration) as client:
            return {item.metadata.name for item in (await aio.client.CoreV1Api(client).list_node()).items}

    assert asyncio.run(names()) == {"local-1"}


OPERATOR = """
import kopf

@kopf.on.create("conformance.fermata.dev", "v1", "widgets")
async def made(spec, patch, body, **_):
    patch.status["count"] = spec["size"]
    kopf.info(body, reason="Seen", message="a widget")

@kopf.on.event("v1", "pods")
async def pods(name, event, memo, **_):
    print("POD", event["type"], name, flush=True)
"""


def test_kopf(local_kube: LocalKube, tmp_path: Path) -> None:
    pytest.importorskip("kopf")
    (tmp_path / "handlers.py").write_text(textwrap.dedent(OPERATOR), encoding="utf-8")

    async def drive() -> None:
        async with Client(local_kube.url) as client:
            await client.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", WIDGET_CRD)
            command = [sys.executable, "-m", "kopf", "run", "handlers.py", "-A", "--standalone", "--verbose"]
            environment = {**os.environ, "KUBECONFIG": str(local_kube.kubeconfig)}
            with (tmp_path / "log").open("wb") as log:
                operator = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=log, stderr=log)
            try:
                path = "/apis/conformance.fermata.dev/v1/namespaces/default/widgets"
                await client.create(path, widget("w", size=7))
                await client.create("/api/v1/namespaces/default/pods", pod("p"))
                await until(client, f"{path}/w", lambda found: found.get("status", {}).get("count") == 7)
                seen = lambda found: any(item["reason"] == "Seen" for item in found["items"])  # noqa: E731
                await until(client, "/api/v1/namespaces/default/events", seen)
                log_has = lambda _: "POD" in (tmp_path / "log").read_text(encoding="utf-8")  # noqa: E731
                await until(client, "/version", log_has)
            finally:
                operator.terminate()
                operator.wait(30)

    asyncio.run(drive())


async def until(client: Client, path: str, holds: Any) -> None:
    for _ in range(600):
        if holds(await client.get(path)):
            return
        await asyncio.sleep(0.05)
    pytest.fail(f"{path} did not come about")


def test_watches_of_the_past_are_told_so() -> None:
    """With a short history, a client that comes back late is answered 410 and lists again."""

    async def code() -> int:
        async with ControlPlane(Options(history=8, controllers=False)) as plane, Client(plane.url) as client:
            path = "/api/v1/namespaces/default/configmaps"
            first = await client.create(path, {"metadata": {"name": "a"}})
            for number in range(20):
                await client.patch(f"{path}/a", {"data": {"n": str(number)}})
            with pytest.raises(ApiError) as told:
                await anext(client.watch(path, first["metadata"]["resourceVersion"], {}))
            return told.value.code

    assert asyncio.run(code()) == 410


def test_local_commands_run_and_their_output_is_served() -> None:
    async def drive() -> tuple[str, dict[str, Any]]:
        async with ControlPlane(Options(allow_local_commands=True)) as plane, Client(plane.url) as client:
            template = pod("x")["spec"]
            script = "import os; print('index', os.environ['JOB_COMPLETION_INDEX'], os.environ['WHO'])"
            template["containers"] = [
                {
                    "name": "main",
                    "image": "none:1",
                    "command": [sys.executable, "-c", script],
                    "env": [{"name": "WHO", "value": "me"}],
                }
            ]
            spec = {
                "completions": 1,
                "completionMode": "Indexed",
                "template": {"metadata": {"annotations": {"fermata.dev/run-local": "true"}}, "spec": template},
            }
            jobs = "/apis/batch/v1/namespaces/default/jobs"
            await client.create(jobs, {"metadata": {"name": "j"}, "spec": spec})
            await until(client, f"{jobs}/j", lambda found: found["status"].get("succeeded") == 1)
            found = (await client.get("/api/v1/namespaces/default/pods"))["items"][0]
            text = (await client.get(f"/api/v1/namespaces/default/pods/{found['metadata']['name']}/log"))["text"]
            return text, found

    text, found = asyncio.run(drive())
    assert text == "index 0 me\n"
    assert found["status"]["phase"] == "Succeeded"


def test_dollars_in_a_local_command_are_as_in_a_cluster_and_what_is_not_known_here_is_told() -> None:
    async def drive() -> tuple[str, list[str]]:
        async with ControlPlane(Options(allow_local_commands=True)) as plane, Client(plane.url) as client:
            pods = "/api/v1/namespaces/default/pods"
            sources: list[dict[str, Any]] = [
                {"env": [{"name": "G", "value": "hi"}, {"name": "REF", "value": "$(G)-$$(G)-$(my-none)"}]},
                {"env": [{"name": "C", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}}]},
                {"envFrom": [{"configMapRef": {"name": "c"}}]},
            ]
            told = []
            for number, source in enumerate(sources):
                manifest = pod(f"p{number}", {"fermata.dev/run-local": "true"})
                manifest["spec"]["containers"][0] |= source | {"command": ["sh", "-c", 'echo "$REF" $$(echo $(G))']}
                await client.create(pods, manifest)
                await until(client, f"{pods}/p{number}", lambda found: found["status"]["phase"] in OVER)
                (status,) = (await client.get(f"{pods}/p{number}"))["status"]["containerStatuses"]
                told.append(status["state"]["terminated"].get("message", ""))
            return (await client.get(f"{pods}/p0/log"))["text"], told

    text, told = asyncio.run(drive())
    assert text == "hi-$(G)-$(my-none) hi\n"
    assert told == ["", *(f"a local run does not know variables of {kind}" for kind in ("configMapKeyRef", "envFrom"))]


def test_a_deletion_that_fails_is_left_and_the_next_ones_are_carried_out() -> None:
    async def drive() -> None:
        async with ControlPlane(Options(controllers=False)) as plane, Client(plane.url) as client:
            space, maps = "/api/v1/namespaces/default", "/api/v1/namespaces/default/configmaps"
            owner = {"apiVersion": "v1", "kind": "Node", "name": "gone", "uid": "nope"}
            await client.patch(space, {"metadata": {"ownerReferences": [owner]}})
            for name in ("a", "b"):
                await client.create(maps, {"metadata": {"name": name}})
            uid = (await client.get(f"{maps}/a"))["metadata"]["uid"]
            mine = {"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": uid}
            await client.patch(f"{maps}/b", {"metadata": {"ownerReferences": [mine]}})
            await client.delete(f"{maps}/a")
            async with asyncio.timeout(30):
                while len((await client.get(maps))["items"]) > 1:
                    await asyncio.sleep(0.01)

    asyncio.run(drive())


def test_a_definition_whose_column_cannot_be_read_is_refused(official: Any) -> None:
    extensions = kubernetes.client.ApiextensionsV1Api(official)
    bad = json.loads(json.dumps(WIDGET_CRD))
    bad["spec"]["versions"][0]["additionalPrinterColumns"][0]["jsonPath"] = "spec.size"
    with pytest.raises(kubernetes.client.ApiException) as refused:
        extensions.create_custom_resource_definition(bad)
    assert refused.value.status == 422
    assert "additionalPrinterColumns[0].jsonPath" in refused.value.body


def test_what_a_local_command_leaves_goes_with_its_pod(tmp_path: Path) -> None:
    async def drive() -> list[str]:
        kube = ControlPlane(Options(allow_local_commands=True), folder=tmp_path)
        async with kube as plane, Client(plane.url) as client:
            pods, left = "/api/v1/namespaces/default/pods", []
            # The first has ended when it is deleted; the second runs, and goes before its process does.
            for phase, then, options in (("Succeeded", "", {}), ("Running", "sleep 300", {"gracePeriodSeconds": 0})):
                manifest = pod("a", {"fermata.dev/run-local": "true"})
                manifest["spec"]["containers"][0]["command"] = ["sh", "-c", f"echo told; touch made; {then}"]
                await client.create(pods, manifest)
                await until(client, f"{pods}/a", lambda found, phase=phase: found["status"]["phase"] == phase)
                async with asyncio.timeout(30):
                    while not (tmp_path / "pods/default/a/made").exists():
                        await asyncio.sleep(0.01)
                assert (await client.get(f"{pods}/a/log"))["text"] == "told\n", "of this pod alone"
                await client.delete(f"{pods}/a", **options)
                async with asyncio.timeout(30):
                    while left := sorted(found.name for found in (tmp_path / "pods/default").iterdir()):
                        await asyncio.sleep(0.01)
            return left

    assert asyncio.run(drive()) == []


def test_of_failures_that_are_simulated_nothing_is_kept_once_their_pods_are_gone() -> None:
    async def drive() -> tuple[int, int]:
        async with ControlPlane(Options(controllers=False)) as plane, Client(plane.url) as client:
            kubelet = Kubelet(client, {"node": 4})
            parts = (JobController(client, backoff_s=0.01), Scheduler(client), kubelet)
            running = [asyncio.create_task(part.run()) for part in parts]
            jobs, pods = "/apis/batch/v1/namespaces/default/jobs", "/api/v1/namespaces/default/pods"
            annotations = {"fermata.dev/sim-seconds": "0.01", "fermata.dev/sim-failures": "1"}
            spec = {"completions": 2, "parallelism": 2, "completionMode": "Indexed", "backoffLimit": 2}
            await client.create(jobs, job("j", annotations, **spec))
            await until(client, f"{jobs}/j", lambda found: found["status"].get("succeeded") == 2)
            assert (await client.get(f"{jobs}/j"))["status"]["failed"] == 2
            kept = len(kubelet._failures)
            await client.delete(f"{jobs}/j", propagationPolicy="Background")
            await until(client, pods, lambda found: not found["items"])
            async with asyncio.timeout(30):
                while kubelet._pods.cache:  # it is told a little later
                    await asyncio.sleep(0.01)
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            return kept, len(kubelet._failures)

    assert asyncio.run(drive()) == (1, 0)


def test_a_command_that_is_simulated_without_leave_to_run_it_says_so() -> None:
    async def drive() -> list[Any]:
        async with ControlPlane(Options(time_scale=100.0)) as plane, Client(plane.url) as client:
            pods, events = (f"/api/v1/namespaces/default/{kind}" for kind in ("pods", "events"))
            for name, annotations in (("told", {"fermata.dev/run-local": "true"}), ("plain", {})):
                await client.create(pods, pod(name, annotations))
                await until(client, f"{pods}/{name}", lambda found: found["status"]["phase"] == "Succeeded")
            found = (await client.get(events))["items"]
            return [event for event in found if event["type"] == "Warning"]

    (event,) = asyncio.run(drive())
    assert (event["involvedObject"]["name"], event["reason"]) == ("told", "CommandNotRun")
    assert "its command is not run" in event["message"]
    assert "--allow-local-commands" in event["message"]


def test_a_local_command_ends_with_its_pod_and_with_the_plane() -> None:
    async def drive() -> list[int]:
        script = "import os, subprocess, sys; print(os.getpid(), flush=True); subprocess.run(['sleep', '300'])"
        pids = []
        async with ControlPlane(Options(allow_local_commands=True)) as plane, Client(plane.url) as client:
            pods = "/api/v1/namespaces/default/pods"
            for name in ("a", "b"):
                manifest = pod(name, {"fermata.dev/run-local": "true"})
                manifest["spec"]["containers"][0]["command"] = [sys.executable, "-c", script]
                await client.create(pods, manifest)
                await until(client, f"{pods}/{name}", lambda found: found["status"]["phase"] == "Running")
                while not (text := (await client.get(f"{pods}/{name}/log"))["text"]).strip().isdigit():
                    await asyncio.sleep(0.05)
                pids.append(int(text))
            await client.delete(f"{pods}/a")
            while alive(pids[0]):
                await asyncio.sleep(0.02)
        return [pid for pid in pids if alive(pid)]

    assert asyncio.run(drive()) == []


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_many_writers_lose_no_update(local_kube: LocalKube) -> None:
    """Optimistic concurrency: every increment that was answered 200 is in the result."""
    api = Plain(local_kube.url, None)
    path = "/api/v1/namespaces/default/configmaps"
    api("POST", path, {"metadata": {"name": "a"}, "data": {"n": "0"}})

    def add() -> None:
        done = 0
        while done < 10:
            found = api("GET", f"{path}/a").obj
            found["data"]["n"] = str(int(found["data"]["n"]) + 1)
            done += api("PUT", f"{path}/a", found).code == 200

    writers = [threading.Thread(target=add) for _ in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert api("GET", f"{path}/a")["data"]["n"] == "40"
