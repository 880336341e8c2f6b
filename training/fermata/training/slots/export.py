"""From a run to ONNX: a model as it is, but for its scores for tasks of several executors."""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from fermata.policy.errors import ModelError
from fermata.policy.model_file import load_model
from fermata.policy.onnx_file import KEY
from fermata.policy.onnx_policy import OnnxPolicy
from fermata.policy.slot_scores import PART, SCHEMA
from fermata.policy.weights import packed
from fermata.training.files import draft_of
from fermata.training.slots.config import ScoresConfig

__all__ = ["export_beside", "metadata_of"]


def metadata_of(config: ScoresConfig, scores: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return what a model file says about its scores, their weights apart."""
    own = config.workloads.own
    return {
        "schema": SCHEMA,
        "method": config.method,
        "config": config.name,
        "config_digest": config.digest,
        "trace_sha256": None if own is None else own.sha256,
        "seed": config.seed,
        "version": version("fermata"),
        "scores": scores or {},
    }


def export_beside(weights: NDArray[np.float64], metadata: dict[str, Any], model: Path, out: Path) -> None:
    """Write `model` once more, or nothing, with these weights in the place of its scores; its networks do not change.

    Args:
        weights: [WEIGHTS]
        metadata: what is said about them.
        model: a file of the shipped model's kind.
        out: the file to write.

    Raises:
        ModelError: the model cannot be used, or is of another kind.
    """
    loaded = load_model(model)
    if not isinstance(loaded, OnnxPolicy):
        raise ModelError(f"{model}: has no scores for tasks of several executors; expected a model as default is one")
    whole = onnx.load(str(model))
    del whole.metadata_props[:]
    entry = whole.metadata_props.add()
    said = {**loaded.metadata, PART: {**metadata, "theta": packed(weights)}}
    entry.key, entry.value = KEY, json.dumps(said, sort_keys=True)
    with draft_of(out, whole.SerializeToString(deterministic=True)) as draft:
        load_model(draft)
