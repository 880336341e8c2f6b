"""What the operator makes of an API server's answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from fermata.operator.access import namespace
from fermata.operator.cluster import Cluster, ClusterError

_JOB = {"metadata": {"namespace": "default", "name": "a"}}


class _Answer:
    headers: ClassVar[dict[str, str]] = {}

    def __init__(self, status: int, content: bytes) -> None:
        self.status, self._content = status, content

    async def read(self) -> bytes:
        return self._content

    async def iter_any(self) -> AsyncIterator[bytes]:
        yield self._content

    @property
    def response(self) -> _Answer:
        return self

    @property
    def content(self) -> _Answer:
        return self

    def close(self) -> None:
        pass


class _Client:
    def __init__(self, status: int, content: bytes) -> None:
        self._answer = _Answer(status, content)

    async def param_serialize(self, method: str, path: str, **_: Any) -> tuple[Any, ...]:
        return method, path, {}, None, None

    async def call_api(self, *_: Any, **__: Any) -> _Answer:
        return self._answer


def test_an_answer_that_is_no_object_is_told_as_the_text_that_it_is() -> None:
    client: Any = _Client(404, b"404 page not found\n")

    async def watch() -> None:
        async for _ in Cluster(client).watch("workflows", "1"):
            pass

    for asked in (Cluster(client).get("/apis/fermata.dev/v1alpha1/workflows"), watch()):
        with pytest.raises(ClusterError, match=r"^404: 404 page not found$"):
            asyncio.run(asked)


@pytest.mark.parametrize(
    "content",
    [
        b"<html>\n<h1>Log in</h1></html>\n",
        b'{"kind": "WorkflowList", "metadata": {"resour\n',
        b'{"error": "log in"}\n',
        b"[]\n",
    ],
)
def test_a_success_that_no_api_server_tells_is_none(content: bytes) -> None:
    client: Any = _Client(200, content)

    async def watch() -> None:
        async for change in Cluster(client).watch("workflows", "1"):
            pytest.fail(f"{change} is no change")

    for asked in (Cluster(client).list_all("workflows"), Cluster(client).create_job(_JOB), watch()):
        with pytest.raises(ClusterError, match=r"^UnreadableAnswer: ") as told:
            asyncio.run(asked)
        assert told.value.is_unsure, "a Job may have been created"


def test_the_namespace_is_that_of_the_context_as_it_is_for_kubectl(tmp_path: Path) -> None:
    file = tmp_path / "kubeconfig"
    cluster = "clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]\nusers: [{name: u, user: {}}]\n"
    for context, expected in (("", "default"), (", namespace: team", "team")):
        contexts = f"contexts: [{{name: x, context: {{cluster: c, user: u{context}}}}}]\ncurrent-context: x\n"
        file.write_text(f"apiVersion: v1\nkind: Config\n{cluster}{contexts}", encoding="utf-8")
        assert namespace(str(file)) == expected
