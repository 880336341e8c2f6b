"""Models of ConfigMaps: what is said of one that cannot be used."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import pytest

from fermata.operator.builtin import UnusablePolicyError
from fermata.operator.model import load_policy
from fermata.operator.resources import PolicySource


class _Cluster:
    def __init__(self, binary_data: dict[str, str]) -> None:
        self._data = binary_data

    async def get_config_map(self, _namespace: str, _name: str) -> dict[str, Any]:
        return {"binaryData": self._data}


@pytest.mark.parametrize(
    ("data", "told"),
    [
        ({}, "not under binaryData"),
        ({"mine.onnx": "!"}, "not base64"),
        (
            {"mine.onnx": base64.b64encode(b"other").decode()},
            "sha256 is d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a",
        ),
    ],
)
def test_what_is_wrong_with_a_model_is_told_of_where_people_put_it(data: dict[str, str], told: str) -> None:
    key = {"namespace": "fermata", "name": "models", "key": "mine.onnx"}
    source = PolicySource.model_validate({"model": {"configMap": key, "sha256": "0" * 64}})
    cluster: Any = _Cluster(data)
    with pytest.raises(UnusablePolicyError) as refused:
        asyncio.run(load_policy(source, cluster))
    assert refused.value.message.startswith(f"ConfigMap fermata/models, key mine.onnx: {told}")
