"""A learned policy from a file, whatever kind of network is in it: its schema says."""

from __future__ import annotations

from pathlib import Path

from fermata.policy.allocation_policy import INPUT as ALLOCATION_INPUT
from fermata.policy.allocation_policy import AllocationPolicy, CombinedPolicy, is_combined
from fermata.policy.graph_policy import GraphPolicy
from fermata.policy.graph_state import GraphState
from fermata.policy.onnx_file import open_onnx
from fermata.policy.onnx_policy import OnnxPolicy
from fermata.policy.queue_policy import INPUT as QUEUE_INPUT
from fermata.policy.queue_policy import QueuePolicy

Model = OnnxPolicy | GraphPolicy | QueuePolicy | AllocationPolicy


def load_model(path: str | Path, sha256: str | None = None) -> Model:
    """Read a model, check its digest, schema, inputs and outputs, and run it once.

    Raises:
        ModelError: the file is missing, too large, not the one that was asked for, not a model for this version, or
            fails its dry run.
    """
    file = open_onnx(path, sha256)
    if set(file.inputs) == set(GraphState._fields):
        return GraphPolicy.of_file(file)
    if set(file.inputs) == {QUEUE_INPUT}:
        return QueuePolicy.of_file(file)
    if set(file.inputs) == {ALLOCATION_INPUT}:
        return AllocationPolicy.of_file(file)
    return (CombinedPolicy if is_combined(file) else OnnxPolicy).of_file(file)
