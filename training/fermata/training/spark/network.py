"""The network of an allocation in torch, for the export alone: a search needs no gradients."""

from __future__ import annotations

import torch
from torch import nn

from fermata.policy.allocation import ANSWERS, FULL, HIDDEN, LAYER, LINEAR, SIZE, FloatArray


class AllocationNetwork(nn.Module):  # type: ignore[misc] # torch is not followed by mypy
    """`[rows, SIZE] -> [rows, ANSWERS]`, each row alone: a linear path plus a layer of rectified units.

    Args:
        theta: weights as `fermata.policy.allocation` has them.
    """

    def __init__(self, theta: FloatArray) -> None:
        super().__init__()
        self.direct = nn.Linear(SIZE, ANSWERS)
        self.layer = nn.Linear(SIZE, HIDDEN)
        self.out = nn.Linear(HIDDEN, ANSWERS, bias=False)
        flat = torch.from_numpy(theta).float()
        direct = flat[:LINEAR].reshape(SIZE + 1, ANSWERS)
        layer = flat[LINEAR:LAYER].reshape(SIZE + 1, HIDDEN)
        with torch.no_grad():
            self.direct.weight.copy_(direct[:SIZE].T)
            self.direct.bias.copy_(direct[SIZE])
            self.layer.weight.copy_(layer[:SIZE].T)
            self.layer.bias.copy_(layer[SIZE])
            self.out.weight.copy_(flat[LAYER:FULL].reshape(HIDDEN, ANSWERS).T)

    def forward(self, options: torch.Tensor) -> torch.Tensor:
        """Return score and logarithm of the cap of every row."""
        return self.direct(options) + self.out(torch.relu(self.layer(options)))
