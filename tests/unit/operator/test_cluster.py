"""What the operator makes of an API server's answers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from fermata.operator.access import namespace
from fermata.operator.cluster import Cluster, ClusterError


class _Answer:
    status, headers = 404, dict[str, str]()

    async def read(self) -> bytes:
        return b"404 page not found\n"

    @property
    def response(self) -> _Answer:
        return self

    def close(self) -> None:
        pass


class _Client:
    async def param_serialize(self, method: str, path: str, **_: Any) -> tuple[Any, ...]:
        return method, path, {}, None, None

    async def call_api(self, *_: Any, **__: Any) -> _Answer:
        return _Answer()


def test_an_answer_that_is_no_object_is_told_as_the_text_that_it_is() -> None:
    client: Any = _Client()

    async def watch() -> None:
        async for _ in Cluster(client).watch("workflows", "1"):
            pass

    for asked in (Cluster(client).get("/apis/fermata.dev/v1alpha1/workflows"), watch()):
        with pytest.raises(ClusterError, match=r"^404: 404 page not found$"):
            asyncio.run(asked)


def test_the_namespace_is_that_of_the_context_as_it_is_for_kubectl(tmp_path: Path) -> None:
    file = tmp_path / "kubeconfig"
    cluster = "clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]\nusers: [{name: u, user: {}}]\n"
    for context, expected in (("", "default"), (", namespace: team", "team")):
        contexts = f"contexts: [{{name: x, context: {{cluster: c, user: u{context}}}}}]\ncurrent-context: x\n"
        file.write_text(f"apiVersion: v1\nkind: Config\n{cluster}{contexts}", encoding="utf-8")
        assert namespace(str(file)) == expected
