"""A torch network as the content of an ONNX file: what every export shares."""

from __future__ import annotations

import logging
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from torch import nn

from fermata.policy.errors import FermataError

TOLERANCE = 1e-5  # of a number, absolute and relative


class ParityError(FermataError):
    """The exported file does not answer as the network does."""


def difference_from_torch(got: NDArray[np.floating[Any]], expected: torch.Tensor, where: str = "") -> float:
    """Return the largest difference of what ONNX Runtime answers from what torch does.

    A difference is over 1 plus the number: absolute for small numbers, relative for large ones.

    Raises:
        ParityError: it is above TOLERANCE, or no number.
    """
    truth = expected.double().numpy()
    difference = np.abs(got - truth) / (1.0 + np.abs(truth))
    if not (difference <= TOLERANCE).all():
        raise ParityError(
            f"the exported model differs from torch by {difference.max():.3g}{where}, allowed {TOLERANCE:g}"
        )
    return float(difference.max())


@contextmanager
def _quietly() -> Iterator[None]:
    """Leave out what torch's exporter says of packages that nothing here needs, and of its own later versions."""
    packages = logging.getLogger("torch.onnx._internal.exporter._registration")
    level = packages.level
    packages.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            yield
    finally:
        packages.setLevel(level)


def onnx_of(
    network: nn.Module,
    example: tuple[torch.Tensor, ...],
    inputs: Sequence[str],
    outputs: Sequence[str],
    dynamic_shapes: tuple[dict[int, Any], ...],
    metadata: tuple[str, str],
) -> bytes:
    """Return the content of a file that holds a network and says about itself what `metadata` (key, text) says.

    Args:
        network: put into evaluation mode.
        example: one tensor an input.
        inputs: their names.
        outputs: names.
        dynamic_shapes: the open dimensions of each input, as `torch.export` takes them.
        metadata: a property of the file.
    """
    network.eval()
    with tempfile.TemporaryDirectory() as folder, _quietly():
        draft = Path(folder) / "draft.onnx"
        torch.onnx.export(
            network,
            example,
            str(draft),
            input_names=list(inputs),
            output_names=list(outputs),
            dynamic_shapes=dynamic_shapes,
            dynamo=True,
            external_data=False,
            verbose=False,
        )
        model = onnx.load(str(draft))
    # Names of the exporter's source files have no place in a shipped file.
    for node in model.graph.node:
        del node.metadata_props[:]
    for value in model.graph.value_info:
        del value.metadata_props[:]
    del model.metadata_props[:]
    entry = model.metadata_props.add()
    entry.key, entry.value = metadata
    model.producer_name, model.producer_version = "fermata", version("fermata")
    onnx.checker.check_model(model)
    content: bytes = model.SerializeToString(deterministic=True)
    return content
