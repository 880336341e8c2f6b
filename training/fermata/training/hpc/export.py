"""From a trained inspector to one ONNX file, checked before it is written."""

from __future__ import annotations

import tempfile
from importlib.metadata import version
from pathlib import Path

import onnx
import torch

from fermata.sim.hpc.models import INPUT, KEY, OUTPUT, InspectorModel, load_model
from fermata.training.hpc.network import perceptron


def export_inspector(model: InspectorModel, out: Path) -> None:
    """Write an inspector as ONNX; `load_model` has compared its graph with its weights when it appears.

    Raises:
        ModelError: the file would not answer as the weights do.
    """
    network = perceptron(model.features, 2)
    flat = torch.from_numpy(model.theta).float()
    torch.nn.utils.vector_to_parameters(flat, network.parameters())
    network.eval()
    with tempfile.TemporaryDirectory() as folder:
        draft = Path(folder) / "inspector.onnx"
        torch.onnx.export(
            network,
            (torch.zeros(2, model.features),),
            str(draft),
            input_names=[INPUT],
            output_names=[OUTPUT],
            dynamic_shapes=({0: torch.export.Dim("decisions", min=1)},),
            dynamo=True,
            external_data=False,
            verbose=False,
        )
        exported = onnx.load(str(draft))
        # Names of the exporter's source files have no place in a shipped file.
        for node in exported.graph.node:
            del node.metadata_props[:]
        for value in exported.graph.value_info:
            del value.metadata_props[:]
        del exported.metadata_props[:]
        entry = exported.metadata_props.add()
        entry.key, entry.value = KEY, model.metadata()
        exported.producer_name, exported.producer_version = "fermata", version("fermata")
        onnx.checker.check_model(exported)
        draft.write_bytes(exported.SerializeToString(deterministic=True))
        load_model(draft)
        partial = out.with_name(out.name + ".partial")
        partial.write_bytes(draft.read_bytes())
    partial.replace(out)
