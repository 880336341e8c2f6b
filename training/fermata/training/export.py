"""From a training run to one ONNX file that the operator can load, checked against torch before it is written."""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fermata.policy.features import FEATURES, SCHEMA, SEVERAL, SIZE, WIDE
from fermata.policy.learned import BOUND, EXPERTS
from fermata.policy.onnx_file import KEY
from fermata.policy.onnx_policy import ACTION_SPACE, INPUT, OUTPUT, TAUGHT_EXECUTORS, OnnxPolicy
from fermata.training.config import TrainConfig
from fermata.training.files import draft_of
from fermata.training.network import CostNetwork
from fermata.training.onnx_writer import TOLERANCE, difference_from_torch, onnx_of

__all__ = ["TOLERANCE", "envelope_of", "export_onnx", "metadata_of", "parity"]


def metadata_of(config: TrainConfig, scores: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return what a model file says about itself."""
    return {
        "schema": SCHEMA,
        "features": list(FEATURES),
        "action_space": ACTION_SPACE,
        "margin": config.exported_margin,
        TAUGHT_EXECUTORS: config.workloads.most_executors,
        "config": config.name,
        "config_digest": config.digest,
        "seed": config.seed,
        "version": version("fermata"),
        "scores": scores or {},
    }


def export_onnx(network: CostNetwork, metadata: dict[str, Any], out: Path) -> float:
    """Write the network as ONNX with its metadata and return its largest difference from torch.

    Raises:
        ParityError: ONNX Runtime's answers differ from torch's by more than TOLERANCE.
    """
    means = [expert.mean.double().tolist() for expert in network.experts]
    metadata = {**metadata, "envelope": envelope_of(network), "typical": means}
    rows = {0: torch.export.Dim("decisions", min=1)}
    text = json.dumps(metadata, sort_keys=True)
    content = onnx_of(network, (torch.zeros(2, SIZE),), [INPUT], [OUTPUT], (rows,), (KEY, text))
    with draft_of(out, content) as draft:
        return parity(network, OnnxPolicy.load(draft))


def envelope_of(network: CostNetwork) -> dict[str, list[float]]:
    """Return the range of each feature outside of which the network is not to be asked: what any expert was taught.

    From BOUND times its scale on an expert is made to prefer the head. Heavy-tailed features, such as the load by
    recent arrivals, get as far as that in some percent of the decisions of a stream just like those it was taught, so
    it takes twice as much for the operator to leave a state to the pool's fallback, and say so.
    """
    taught = [each for each in network.experts if each.taught] or list(network.experts)
    mean = torch.stack([each.mean for each in taught]).double()
    reach = 2.0 * BOUND * torch.stack([each.scale for each in taught]).double()
    return {"low": (mean - reach).amin(0).tolist(), "high": (mean + reach).amax(0).tolist()}


def _states(network: CostNetwork, which: int, rows: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """Draw random features [rows, SIZE] about as an expert was taught them, and that are its to answer."""
    expert = network.experts[which]
    x = expert.mean.numpy() + expert.scale.numpy() * 3.0 * rng.standard_normal((rows, SIZE))
    x[:, SEVERAL], x[:, WIDE] = which > 0, which > 1
    return np.asarray(x, np.float32)


def parity(network: CostNetwork, policy: OnnxPolicy, rows: int = 4096, seed: int = 0) -> float:
    """Return the largest `difference_from_torch` of the costs, in mean JCTs, on random features of each kind.

    Raises:
        ParityError: it is above TOLERANCE.
    """
    rng = np.random.default_rng(seed)
    x = np.concatenate([_states(network, which, rows, rng) for which in range(len(EXPERTS))])
    with torch.no_grad():
        expected = network(torch.from_numpy(x))
    return difference_from_torch(policy.answers(x), expected)
