"""The networks: 32-16-8 with ReLU for inspectors and their values; one layer and a direct path for the whole queue."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from fermata.policy.queue_features import FEATURES
from fermata.sim.hpc.inspect import HIDDEN
from fermata.sim.hpc.scoring import HIDDEN_UNITS


def perceptron(features: int, outputs: int) -> nn.Sequential:
    """Return `[batch, features] -> [batch, outputs]` through the hidden layers of the paper."""
    layers: list[nn.Module] = []
    before = features
    for width in HIDDEN:
        layers += [nn.Linear(before, width), nn.ReLU()]
        before = width
    return nn.Sequential(*layers, nn.Linear(before, outputs))


def theta_of(network: nn.Sequential) -> NDArray[np.float64]:
    """Return weights and biases as the kernel wants them: layer by layer, weights row by row, then biases."""
    return np.asarray(nn.utils.parameters_to_vector(network.parameters()).detach().double().numpy())


class QueueNetwork(nn.Module):  # type: ignore[misc] # torch is not followed by mypy
    """`[jobs, FEATURES] -> [jobs]`, each row alone: a linear path plus a layer of rectified units.

    Args:
        theta: weights as `scoring.Scorer` has them.
    """

    def __init__(self, theta: NDArray[np.float64]) -> None:
        super().__init__()
        self.direct = nn.Linear(FEATURES, 1)
        self.layer = nn.Linear(FEATURES, HIDDEN_UNITS)
        self.out = nn.Linear(HIDDEN_UNITS, 1, bias=False)
        flat = torch.from_numpy(theta).float()
        sizes = (FEATURES, 1, FEATURES * HIDDEN_UNITS, HIDDEN_UNITS, HIDDEN_UNITS)
        direct, constant, weights, biases, out = torch.split(flat, sizes)
        with torch.no_grad():
            self.direct.weight.copy_(direct[None, :])
            self.direct.bias.copy_(constant)
            self.layer.weight.copy_(weights.reshape(FEATURES, HIDDEN_UNITS).T)
            self.layer.bias.copy_(biases)
            self.out.weight.copy_(out[None, :])

    def forward(self, jobs: torch.Tensor) -> torch.Tensor:
        """Return the score of every job."""
        scores = self.direct(jobs) + self.out(torch.relu(self.layer(jobs)))
        return torch.squeeze(scores, 1)
