"""What the operator makes of an API server's answers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

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
