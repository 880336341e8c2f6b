"""Models that a test makes itself: costs that are linear in the features, in a real ONNX file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fermata.policy.features import FEATURES, SCHEMA, SIZE
from fermata.policy.learned import ACTIONS, START_ALTERNATIVE, WAIT_FOR_EVENT
from fermata.policy.onnx_policy import INPUT, OUTPUT, OnnxPolicy


def linear_model(
    path: Path, saves: Mapping[str, float], at_zero: float = 0.0, metadata: Mapping[str, Any] | None = None
) -> OnnxPolicy:
    """A model to which waiting saves `at_zero` plus the sum of these features times these weights, in mean JCTs.

    It never starts the alternative.
    """
    onnx = pytest.importorskip("onnx", reason="needs onnx, of the [sim] extra")
    weight, bias = np.zeros((SIZE, len(ACTIONS)), np.float32), np.zeros(len(ACTIONS), np.float32)
    for name, value in saves.items():
        weight[FEATURES.index(name), WAIT_FOR_EVENT] = -value
    bias[[START_ALTERNATIVE, WAIT_FOR_EVENT]] = 1e3, -at_zero
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        [helper.make_node("Gemm", [INPUT, "weight", "bias"], [OUTPUT])],
        "costs",
        [helper.make_tensor_value_info(INPUT, kind, ("decisions", SIZE))],
        [helper.make_tensor_value_info(OUTPUT, kind, None)],
        [onnx.numpy_helper.from_array(weight, "weight"), onnx.numpy_helper.from_array(bias, "bias")],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    told = {"schema": SCHEMA, "margin": 0.0, **(metadata or {})}
    helper.set_model_props(made, {"fermata": json.dumps(told)})
    path.write_bytes(made.SerializeToString())
    return OnnxPolicy.load(path)
