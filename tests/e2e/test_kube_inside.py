"""The client of the control plane's own controllers: the same answers, refusals and faults as over HTTP."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from tests.e2e.test_kube_conformance import job, pod

from fermata.sim.kube import ControlPlane, Options
from fermata.sim.kube.client import Client
from fermata.sim.kube.errors import ApiError
from fermata.sim.kube.faults import Fault
from fermata.sim.kube.inside import InsideClient
from fermata.sim.kube.patch import STRATEGIC_PATCH

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.e2e
PODS, JOBS = "/api/v1/namespaces/default/pods", "/apis/batch/v1/namespaces/default/jobs"
UNEQUAL = ("uid", "resourceVersion", "name", "Timestamp", "lastTransitionTime")


def without_what_differs(value: Any) -> Any:
    """Return an answer without names, uids and versions."""
    if isinstance(value, dict):
        kept = {key: item for key, item in value.items() if not key.endswith(UNEQUAL)}
        return {key: without_what_differs(item) for key, item in kept.items()}
    return [without_what_differs(item) for item in value] if isinstance(value, list) else value


async def told(client: Client, name: str) -> list[Any]:
    """Do every kind of write, right and wrong, and return what each was answered."""
    steps: list[tuple[str, str, Any, str]] = [
        ("POST", PODS, pod(name, schedulerName="nobody"), ""),
        ("POST", PODS, pod(name), ""),
        ("POST", PODS, {"metadata": {"name": f"{name}-none"}, "spec": {}}, ""),
        ("POST", JOBS, job(name, suspend=True), ""),
        ("PATCH", f"{PODS}/{name}/status", {"status": {"phase": "Running"}}, STRATEGIC_PATCH),
        ("PATCH", f"{PODS}/{name}", {"metadata": {"labels": {"a": "b"}}}, "application/merge-patch+json"),
        ("PATCH", f"{PODS}/{name}", {"spec": {"hostname": "other"}}, "application/merge-patch+json"),
        ("POST", f"{PODS}/{name}/binding", {"metadata": {"name": name}, "target": {"name": "n"}}, ""),
        ("POST", f"{PODS}/{name}/binding", {"metadata": {"name": name}, "target": {"name": "n"}}, ""),
        ("DELETE", f"{PODS}/{name}", {"preconditions": {"uid": "another"}}, ""),
        ("DELETE", f"{PODS}/{name}", {"gracePeriodSeconds": 0}, ""),
        ("DELETE", f"{PODS}/{name}", None, ""),
        ("DELETE", f"{JOBS}/{name}", {"propagationPolicy": "Background"}, ""),
    ]
    answers: list[Any] = []
    for method, path, body, kind in steps:
        try:
            answer = await client.request(method, path, body, content_type=kind or "application/json")
        except ApiError as error:
            answers.append((error.code, error.reason))
        else:
            answers.append(without_what_differs(answer))
    return answers


def test_it_is_told_what_a_client_over_http_is_told(tmp_path: Path) -> None:
    asyncio.run(compare(tmp_path))


async def compare(tmp_path: Path) -> None:
    async with ControlPlane(Options(controllers=False), folder=tmp_path) as plane:
        async with Client(plane.url) as plain:
            expected = await told(plain, "plain")
        async with InsideClient(plane.url, plane.server, lambda: True) as inside:
            assert await told(inside, "inside") == expected
        assert {code for code, _ in (item for item in expected if isinstance(item, tuple))} == {404, 409, 422}


def test_faults_meet_it(tmp_path: Path) -> None:
    asyncio.run(hurt(tmp_path))


async def hurt(tmp_path: Path) -> None:
    async with ControlPlane(Options(controllers=False), folder=tmp_path) as plane:
        up = True
        async with InsideClient(plane.url, plane.server, lambda: up) as inside:
            plane.server.faults.add(Fault(status=500, times=1))
            with pytest.raises(ApiError, match="injected"):
                await inside.create(PODS, pod("a"))
            for lost in ("before", "after"):
                plane.server.faults.add(Fault(lost=lost, times=1))
                with pytest.raises(aiohttp.ClientError):
                    await inside.create(PODS, pod(lost))
            up = False
            with pytest.raises(aiohttp.ClientConnectionError):
                await inside.create(PODS, pod("b"))
            names = [item["metadata"]["name"] for item in (await inside.get(PODS))["items"]]
        assert names == ["after"]
