"""Where networks learn: a GPU if there is one, else the processor. Episodes are always played by processor cores.

The same seed gives the same weights on the same device. Devices round differently, so another one gives others.
"""

from __future__ import annotations

import os

import torch
from rich.console import Console

from fermata.policy.errors import InputError

CPU = "cpu"
_EXPECTED = "expected auto, cpu, cuda, or cuda:N"


def chosen(name: str) -> torch.device:
    """Return the device of a name, ready to give the same numbers each time.

    Args:
        name: `auto` (a GPU if there is one), `cpu`, `cuda`, or `cuda:N`. GPUs of AMD are `cuda` to torch, too.

    Raises:
        InputError: no such device.
    """
    if name == CPU or (name == "auto" and not torch.cuda.is_available()):
        return torch.device(CPU)
    try:
        device = torch.device("cuda" if name == "auto" else name)
    except RuntimeError as error:
        raise InputError(f"--device {name}: no device has this name; {_EXPECTED}") from error
    if device.type != "cuda":
        raise InputError(f"--device {name}: networks are not trained on such devices; {_EXPECTED}")
    found = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if (device.index or 0) >= found:
        raise InputError(f"--device {name}: torch {torch.__version__} finds {found} GPUs here; {_EXPECTED}")
    # Sums of matrix products and of gathered rows are else taken in whatever order they come.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    return device


def announce(device: torch.device, console: Console) -> None:
    """Say which GPU is used, if one is."""
    if device.type == "cuda":
        console.print(f"learning on {torch.cuda.get_device_name(device)}; --device cpu does without it")
