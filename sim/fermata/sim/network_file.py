"""A model's file as arrays for the compiled simulator: the way back from what `fermata export-onnx` wrote.

ONNX Runtime takes longer to be asked than the network takes to answer, so who simulates many decisions wants it here.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from fermata.policy.errors import InputError, ModelError
from fermata.policy.features import SEVERAL, SIZE, WIDE
from fermata.policy.learned import ACTIONS, EXPERTS, Network, forward, reach_of
from fermata.policy.onnx_policy import INPUT, OnnxPolicy
from fermata.policy.registry import LEARNED, shipped_model
from fermata.sim.networks import side_by_side
from fermata.sim.trace import FloatArray

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
    otherwise = ModelError(f"model {policy.name!r} is built otherwise than this version exports its models")
    experts = _experts(onnx.load_model_from_string(policy.content).graph)
    if len(experts) != len(EXPERTS) or not all(map(_fit, experts)):
        raise otherwise
    doubles = [tuple(array.astype(np.float64) for array in expert) for expert in experts]
    members = [_members(expert[4]) for expert in doubles]
    network = side_by_side(doubles, policy.margin, members, reach_of(policy.taught_executors), policy.slot_weights)
    if not _answers_alike(network, policy):
        raise otherwise
    return network


def _experts(graph: Any) -> list[tuple[NDArray[Any], ...]]:
    """Return the constants of the first experts of a graph as `side_by_side` takes them, or whatever stands there."""
    stored = {each.name: each for each in graph.initializer}
    means: list[NDArray[Any]] = []
    scales: list[NDArray[Any]] = []
    layers: list[NDArray[Any]] = []
    for node in graph.node:
        known = [numpy_helper.to_array(stored[name]) for name in node.input if name in stored]
        if node.op_type == "Sub" and node.input[0] == INPUT:
            means += known[:1]
        elif node.op_type == "Div":
            scales += known[:1]
        elif node.op_type == "Gemm" and known and known[0].ndim == 2:
            turned = any(each.name == "transB" and each.i for each in node.attribute)
            weight = known[0].T if turned else known[0]
            # The exporter leaves out a bias of zeros.
            layers += [weight, known[1] if len(known) > 1 else np.zeros(weight.shape[1], weight.dtype)]
    some, each = zip(means, scales, strict=False), 2 * _LAYERS
    return [(mean, scale, *layers[each * i : each * (i + 1)]) for i, (mean, scale) in enumerate(some)]


def _fit(expert: tuple[NDArray[Any], ...]) -> bool:
    """Return whether constants are those of an expert: mean, scale, and the weights and biases of three layers."""
    shapes = [array.shape for array in expert]
    if len(shapes) != 2 + 2 * _LAYERS or any(array.dtype != np.float32 for array in expert):
        return False
    widths = [SIZE, *(shape[-1] if shape else 0 for shape in shapes[3::2])]
    layers = [shape for pair in pairwise(widths) for shape in (pair, pair[1:])]
    return shapes == [(SIZE,), (SIZE,), *layers] and widths[-1] == len(ACTIONS) - 1


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


def _answers_alike(network: Network, policy: OnnxPolicy) -> bool:
    """Return whether both answer alike on random rows of every expert, near and far from what was taught."""
    rows = np.random.default_rng(0).normal(0.5, 0.5, (60, SIZE)).clip(0.0)
    rows[::2] *= 10.0
    rows[:40, WIDE], rows[:20, SEVERAL] = 0.0, 0.0
    single = rows.astype(np.float32)
    answers = []
    for row in single.astype(np.float64):
        forward(network, row)
        answers.append(network.costs[: len(ACTIONS)].copy())
    return np.allclose(answers, policy.costs(single), rtol=TOLERANCE, atol=TOLERANCE)
