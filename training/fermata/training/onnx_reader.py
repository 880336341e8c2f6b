"""A model's file as arrays for the compiled simulator: the way back from what `fermata export-onnx` wrote."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from fermata.policy.errors import InputError, ModelError
from fermata.policy.features import SEVERAL, SIZE, WIDE
from fermata.policy.learned import ACTIONS, EXPERTS, Network, forward
from fermata.policy.onnx_policy import INPUT, OnnxPolicy
from fermata.policy.registry import LEARNED, shipped_model
from fermata.training.compiled import side_by_side

FloatArray = NDArray[np.float64]

_LAYERS = 3
_TOLERANCE = 1e-3  # mean JCTs: the file computes in single precision
_MOST_MEMBERS = 8


def model_path(spec: str) -> Path:
    """Return the file of a model: its path, or that of one that ships with Fermata, by name.

    Raises:
        InputError: it is neither.
    """
    if spec in LEARNED:
        return shipped_model(spec)
    if not spec.endswith(".onnx"):
        raise InputError(f"no model {spec!r}; expected default, eager, or the path of an .onnx file of its kind")
    return Path(spec)


def read_network(path: Path) -> Network:
    """Return the network in a file of the shipped model's kind.

    Raises:
        ModelError: it cannot be loaded, or is built otherwise than an export of this version.
    """
    policy = OnnxPolicy.load(path)
    graph = onnx.load(path).graph
    arrays = {each.name: numpy_helper.to_array(each).astype(np.float64) for each in graph.initializer}
    first: list[FloatArray] = []
    scales: list[FloatArray] = []
    layers: list[tuple[FloatArray, FloatArray]] = []
    for node in graph.node:
        known = [arrays[name] for name in node.input if name in arrays]
        if node.op_type == "Sub" and node.input[0] == INPUT:
            first.append(known[0])
        elif node.op_type == "Div" and known:
            scales.append(known[0])
        elif node.op_type == "Gemm" and len(layers) < _LAYERS * len(EXPERTS):
            turned = any(each.name == "transB" and each.i for each in node.attribute)
            weight = known[0].T if turned else known[0]
            layers.append((weight, known[1] if len(known) > 1 else np.zeros(weight.shape[1])))
    if not len(first) == len(scales) == len(EXPERTS) == len(layers) // _LAYERS:
        raise ModelError(f"{path}: expected {len(EXPERTS)} experts of {_LAYERS} layers, as this version exports them")
    experts = [
        (first[i], scales[i], *(array for layer in layers[_LAYERS * i : _LAYERS * (i + 1)] for array in layer))
        for i in range(len(EXPERTS))
    ]
    network = side_by_side(experts, policy.margin, [_members(each[4]) for each in experts])
    _check(network, policy, path)
    return network


def _members(weight2: FloatArray) -> int:
    """Return of how many networks side by side a second layer [inputs, outputs] is."""
    inner, outer = weight2.shape
    for members in range(_MOST_MEMBERS, 1, -1):
        if inner % members or outer % members:
            continue
        apart = np.kron(np.eye(members), np.ones((inner // members, outer // members)))
        if not weight2[apart == 0.0].any():
            return members
    return 1


def _check(network: Network, policy: OnnxPolicy, path: Path) -> None:
    """Raise a ModelError unless both answer alike on random rows, of every expert."""
    rows = np.random.default_rng(0).normal(0.5, 0.5, (30, SIZE)).clip(0.0).astype(np.float32)
    rows[:20, WIDE], rows[:10, SEVERAL] = 0.0, 0.0
    expected = policy.costs(rows)
    for row, costs in zip(rows.astype(np.float64), expected, strict=True):
        forward(network, row)
        if not np.allclose(network.costs[: len(ACTIONS)], costs, rtol=_TOLERANCE, atol=_TOLERANCE):
            raise ModelError(f"{path}: is built otherwise than this version exports its models")
