"""The network in torch: costs of the three actions from the features of a decision."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from fermata.policy.features import SIZE
from fermata.policy.learned import ACTIONS, BOUND, PENALTY, Network, network_of


class CostNetwork(nn.Module):  # type: ignore[misc] # torch is not followed by mypy
    """Normalise, two hidden layers with ReLU, and a cost for each action but the first, which costs 0 by definition."""

    def __init__(self, hidden: tuple[int, int]) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(SIZE))
        self.register_buffer("scale", torch.ones(SIZE))
        self.layers = nn.Sequential(
            nn.Linear(SIZE, hidden[0]),
            nn.ReLU(),
            nn.Linear(hidden[0], hidden[1]),
            nn.ReLU(),
            nn.Linear(hidden[1], len(ACTIONS) - 1),
        )

    def normalise(self, x: Tensor) -> None:
        """Take the mean and the spread of the inputs from data, [n, SIZE]."""
        self.mean = x.mean(0)
        self.scale = x.std(0).clamp_min(1e-3)

    def forward(self, features: Tensor) -> Tensor:
        """Return costs [n, 3] in mean JCTs for features [n, SIZE]."""
        normal = (features - self.mean) / self.scale
        bounded = normal.clamp(-BOUND, BOUND)
        beyond = (normal - bounded).abs().sum(dim=1, keepdim=True)
        others = self.layers(bounded) + PENALTY * beyond
        return torch.cat([torch.zeros_like(others[:, :1]), others], dim=1)

    def compiled(self, margin: float) -> Network:
        """Return the same network as arrays for the compiled simulator."""

        def weights(index: int) -> tuple[np.ndarray, np.ndarray]:
            layer = self.layers[index]
            weight = layer.weight.detach().double().numpy().T
            return np.ascontiguousarray(weight), layer.bias.detach().double().numpy().copy()

        weight3, bias3 = weights(4)
        first = np.zeros((weight3.shape[0], 1))
        layers = (
            self.mean.double().numpy().copy(),
            self.scale.double().numpy().copy(),
            *weights(0),
            *weights(2),
            np.ascontiguousarray(np.hstack([first, weight3])),
            np.concatenate([[0.0], bias3]),
        )
        return network_of(layers, float(margin))
