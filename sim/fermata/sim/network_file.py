"""A model's file as arrays for the compiled simulator: the way back from what `fermata export-onnx` wrote.

ONNX Runtime takes longer to be asked than the network takes to answer, so who simulates many decisions wants it here.
"""

from __future__ import annotations

from functools import lru_cache
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
from fermata.sim.networks import side_by_side

FloatArray = NDArray[np.float64]

_LAYERS = 3
TOLERANCE = 1e-5  # of a cost, over 1 plus the cost: the file computes in single precision
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
    return _network_of(OnnxPolicy.load(path))


@lru_cache(maxsize=16)
def twin_of(policy: OnnxPolicy) -> Network | None:
    """Return the network that a policy runs, or None if it is built otherwise than an export of this version."""
    try:
        return _network_of(policy)
    except ModelError:
        return None


def _network_of(policy: OnnxPolicy) -> Network:
    graph = onnx.load_model_from_string(policy.content).graph
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
        raise ModelError(
            f"model {policy.name!r}: expected {len(EXPERTS)} experts of {_LAYERS} layers, as this version exports them"
        )
    experts = [
        (first[i], scales[i], *(array for layer in layers[_LAYERS * i : _LAYERS * (i + 1)] for array in layer))
        for i in range(len(EXPERTS))
    ]
    network = side_by_side(experts, policy.margin, [_members(each[4]) for each in experts])
    _check(network, policy)
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


def _check(network: Network, policy: OnnxPolicy) -> None:
    """Raise a ModelError unless both answer alike on random rows of every expert, near and far from what was taught."""
    rows = np.random.default_rng(0).normal(0.5, 0.5, (60, SIZE)).clip(0.0)
    rows[::2] *= 10.0
    rows[:40, WIDE], rows[:20, SEVERAL] = 0.0, 0.0
    single = rows.astype(np.float32)
    expected = policy.costs(single)
    for row, costs in zip(single.astype(np.float64), expected, strict=True):
        forward(network, row)
        if not np.allclose(network.costs[: len(ACTIONS)], costs, rtol=TOLERANCE, atol=TOLERANCE):
            raise ModelError(f"model {policy.name!r} is built otherwise than this version exports its models")
