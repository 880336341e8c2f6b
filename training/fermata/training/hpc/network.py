"""The inspector's networks: 32-16-8 with ReLU, for the policy and for the value."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from fermata.sim.hpc.inspect import HIDDEN


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
    parts = [parameter.detach().reshape(-1) for parameter in network.parameters()]
    return np.asarray(torch.cat(parts).double().numpy())
