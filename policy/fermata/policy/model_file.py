"""A learned policy from a file, whatever kind of network is in it: its schema says."""

from __future__ import annotations

from pathlib import Path

from fermata.policy.allocation_policy import INPUT as ALLOCATION_INPUT
from fermata.policy.allocation_policy import AllocationPolicy, CombinedPolicy, is_combined
from fermata.policy.errors import ModelError
from fermata.policy.graph_policy import GraphPolicy
from fermata.policy.graph_state import GraphState
from fermata.policy.onnx_file import OnnxFile, open_onnx
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
    try:
        return _kind_of(file).of_file(file)
    except ModelError as error:
        if str(error).startswith(f"{file.path}:"):
            raise
        # What fails in the dry run names the policy, as it does in use; here it is the file that is looked for.
        raise ModelError(f"{file.path}: {error}") from error


def _kind_of(file: OnnxFile) -> type[Model]:
    if set(file.inputs) == set(GraphState._fields):
        return GraphPolicy
    if set(file.inputs) == {QUEUE_INPUT}:
        return QueuePolicy
    if set(file.inputs) == {ALLOCATION_INPUT}:
        return AllocationPolicy
    return CombinedPolicy if is_combined(file) else OnnxPolicy
