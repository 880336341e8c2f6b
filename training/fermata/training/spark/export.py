"""From a run to ONNX: a file of its own, or beside the shipped model's network in one file."""

from __future__ import annotations

import json
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import numpy_helper

from fermata.policy.allocation import FEATURES, SCHEMA, SIZE, FloatArray
from fermata.policy.allocation_policy import INPUT, OUTPUT, PART, TOLERANCE, AllocationPolicy, CombinedPolicy
from fermata.policy.errors import ModelError
from fermata.policy.onnx_file import KEY, open_onnx
from fermata.policy.onnx_policy import OnnxPolicy
from fermata.policy.weights import packed
from fermata.training.files import draft_of
from fermata.training.onnx_writer import onnx_of
from fermata.training.spark.config import AllocationConfig
from fermata.training.spark.network import AllocationNetwork

__all__ = ["TOLERANCE", "combine", "export_beside", "export_onnx", "metadata_of"]

_PREFIX = "allocation_"  # of names in a combined graph


def metadata_of(config: AllocationConfig, scores: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return what a model file says about itself, its weights apart."""
    return {
        "schema": SCHEMA,
        "features": list(FEATURES),
        "action_space": config.action_space,
        "inputs": config.inputs,
        "method": config.method,
        "config": config.name,
        "config_digest": config.digest,
        "seed": config.seed,
        "version": version("fermata"),
        "scores": scores or {},
    }


def export_onnx(theta: FloatArray, metadata: dict[str, Any], out: Path) -> float:
    """Write weights as ONNX with their metadata and return the graph's largest difference from them.

    Raises:
        ModelError: the graph's answers differ from the weights' by more than TOLERANCE.
    """
    text = json.dumps({**metadata, "theta": packed(theta)}, sort_keys=True)
    rows = {0: torch.export.Dim("rows", min=1)}
    content = onnx_of(AllocationNetwork(theta), (torch.zeros(2, SIZE),), [INPUT], [OUTPUT], (rows,), (KEY, text))
    with draft_of(out, content) as draft:
        return AllocationPolicy.of_file(open_onnx(draft)).compare(out.name)


def export_beside(theta: FloatArray, metadata: dict[str, Any], model: Path, out: Path) -> float:
    """Write weights beside the network of `model`, one file for both, or nothing; returns what `export_onnx` does.

    Raises:
        ModelError: as `export_onnx` and `combine`.
    """
    with tempfile.TemporaryDirectory(prefix="fermata-") as folder:
        alone = Path(folder) / "allocation.onnx"
        difference = export_onnx(theta, metadata, alone)
        combine(model, alone, out)
    return difference


def combine(model: Path, allocation: Path, out: Path) -> None:
    """Write one file that holds the network of `model` and beside it that of `allocation`; what it held is replaced.

    Neither network changes: each is asked by its own input. The options have a default, so that who asks only about
    holding need not know of them.

    Raises:
        ModelError: a file cannot be used, or is of another kind.
    """
    hold, file = OnnxPolicy.load(model), open_onnx(allocation)
    said = AllocationPolicy.of_file(file).metadata
    whole, part = onnx.load(str(model)), onnx.load(str(allocation))
    if INPUT in {each.name for each in whole.graph.input}:
        raise ModelError(f"{model}: holds an allocation already; expected the file that fermata export-onnx wrote")
    del whole.metadata_props[:], part.metadata_props[:]
    renamed = onnx.compose.add_prefix(part, _PREFIX, rename_inputs=False, rename_outputs=False)
    whole.ir_version = renamed.ir_version = max(whole.ir_version, renamed.ir_version)
    # Both are matrix products and rectifiers, which did not change; merging would list one operator set twice, which
    # some readers of ONNX refuse.
    del renamed.opset_import[:]
    whole = onnx.compose.merge_models(whole, renamed, io_map=[])
    whole.graph.initializer.append(numpy_helper.from_array(np.zeros((1, SIZE), np.float32), INPUT))
    entry = whole.metadata_props.add()
    entry.key, entry.value = KEY, json.dumps({**hold.metadata, PART: dict(said)}, sort_keys=True)
    whole.producer_name, whole.producer_version = "fermata", version("fermata")
    onnx.checker.check_model(whole)
    with draft_of(out, whole.SerializeToString(deterministic=True)) as draft:
        CombinedPolicy.of_file(open_onnx(draft))
