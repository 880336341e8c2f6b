"""From a trained network to one ONNX file, checked before it is written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from fermata.policy import onnx_file, queue_policy
from fermata.policy.queue_features import FEATURES
from fermata.sim.hpc import models, window, window_models
from fermata.sim.hpc.models import InspectorModel, load_model
from fermata.sim.hpc.queue_models import QueueModel, load_queue_model
from fermata.sim.hpc.window_models import WindowModel, load_window_model
from fermata.training.files import draft_of
from fermata.training.hpc.network import QueueNetwork, perceptron
from fermata.training.hpc.window_ppo import WindowNetwork
from fermata.training.onnx_writer import onnx_of


def export_inspector(model: InspectorModel, out: Path) -> None:
    """Write an inspector as ONNX; `load_model` has compared its graph with its weights when it appears.

    Raises:
        ModelError: the file would not answer as the weights do.
    """
    network = perceptron(model.features, 2)
    torch.nn.utils.vector_to_parameters(torch.from_numpy(model.theta).float(), network.parameters())
    names = (models.INPUT, models.OUTPUT)
    _export(network, model.features, names, (models.KEY, model.metadata()), load_model, out)


def export_queue_model(model: QueueModel, out: Path) -> None:
    """Write a policy over the queue as ONNX, checked likewise.

    Raises:
        ModelError: the file would not answer as the weights do.
    """
    network = QueueNetwork(model.theta)
    names = (queue_policy.INPUT, queue_policy.OUTPUT)
    _export(network, FEATURES, names, (onnx_file.KEY, model.metadata()), load_queue_model, out)


def export_window_model(model: WindowModel, out: Path) -> None:
    """Write a window agent as ONNX, checked likewise.

    Raises:
        ModelError: the file would not answer as the weights do.
    """
    network = WindowNetwork()
    network.load(model.theta)
    names = (window_models.INPUT, window_models.OUTPUT)
    _export(network, window.FEATURES, names, (window_models.KEY, model.metadata()), load_window_model, out)


def _export(
    network: nn.Module,
    features: int,
    names: tuple[str, str],
    metadata: tuple[str, str],
    check: Callable[[str], object],
    out: Path,
) -> None:
    rows = {0: torch.export.Dim("rows", min=1)}
    example = (torch.zeros(2, features),)
    content = onnx_of(network, example, names[:1], names[1:], (rows,), metadata)
    with draft_of(out, content) as draft:
        check(str(draft))
