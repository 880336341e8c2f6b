"""The network in torch: costs of the three actions from the features of a decision."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from fermata.policy.features import SEVERAL, SIZE, WIDE
from fermata.policy.learned import ACTIONS, BOUND, EXPERTS, PENALTY, Network
from fermata.sim.networks import side_by_side

_LEAST = 1e-3  # spread of a feature that does not vary


class Expert(nn.Module):  # type: ignore[misc] # torch is not followed by mypy
    """Normalise, two hidden layers with ReLU, and a cost for each action but the first, which costs 0 by definition.

    One that was not taught anything is far from home everywhere, and starts the head.
    """

    def __init__(self, hidden: tuple[int, int], members: int = 1) -> None:
        super().__init__()
        self.members = members  # networks side by side, whose units share no weights
        self.register_buffer("mean", torch.full((SIZE,), -1.0))
        self.register_buffer("scale", torch.full((SIZE,), _LEAST))
        self.layers = nn.Sequential(
            nn.Linear(SIZE, hidden[0]),
            nn.ReLU(),
            nn.Linear(hidden[0], hidden[1]),
            nn.ReLU(),
            nn.Linear(hidden[1], len(ACTIONS) - 1),
        )

    @property
    def taught(self) -> bool:
        """Whether it has seen anything."""
        return bool((self.scale > _LEAST).any())

    def normalise(self, x: Tensor) -> None:
        """Take the mean and the spread of the inputs from data, [n, SIZE]."""
        spread = x.std(0) if len(x) > 1 else torch.zeros_like(x[0])  # of one state torch would say NaN
        self.mean, self.scale = x.mean(0), spread.clamp_min(_LEAST)

    def forward(self, features: Tensor) -> Tensor:
        """Return costs [n, 3] in mean JCTs for features [n, SIZE]."""
        return self.costs(*self.normal(features))

    def normal(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Return features in their scales and bounded, [n, SIZE], and by how much they were beyond that, [n, 1]."""
        normal = (features - self.mean) / self.scale
        bounded = normal.clamp(-BOUND, BOUND)
        return bounded, (normal - bounded).abs().sum(dim=1, keepdim=True)

    def costs(self, bounded: Tensor, beyond: Tensor) -> Tensor:
        """Return costs [n, 3] in mean JCTs from what `normal` returns."""
        others = self.layers(bounded) + PENALTY * beyond
        return torch.cat([torch.zeros_like(others[:, :1]), others], dim=1)


def mean_of(experts: Sequence[Expert]) -> Expert:
    """Return one expert whose costs are the means of those of experts of one size: all of them side by side.

    Its inputs are normalised by the widest of their scales, so it is not far from home where none of them was.
    """
    first, second = (len(experts[0].layers[index].bias) for index in (0, 2))
    count = len(experts)
    mean = Expert((count * first, count * second), count)
    mean.mean = torch.stack([each.mean for each in experts]).mean(0)
    mean.scale = torch.stack([each.scale for each in experts]).amax(0)
    into, between, out = (mean.layers[index] for index in (0, 2, 4))
    with torch.no_grad():
        for parameter in mean.parameters():
            parameter.zero_()
        for k, each in enumerate(experts):
            rows, columns = slice(k * second, (k + 1) * second), slice(k * first, (k + 1) * first)
            own_into, own_between, own_out = (each.layers[index] for index in (0, 2, 4))
            shift = (mean.mean - each.mean) / each.scale
            into.weight[columns] = own_into.weight * (mean.scale / each.scale)
            into.bias[columns] = own_into.bias + own_into.weight @ shift
            between.weight[rows, columns], between.bias[rows] = own_between.weight, own_between.bias
            out.weight[:, rows] = own_out.weight / count
            out.bias += own_out.bias / count
    return mean


class CostNetwork(nn.Module):  # type: ignore[misc]
    """The experts of `fermata.policy.learned`, which may differ in size."""

    def __init__(self, hidden: tuple[int, int]) -> None:
        super().__init__()
        self.experts = nn.ModuleList(Expert(hidden) for _ in EXPERTS)

    def forward(self, features: Tensor) -> Tensor:
        """Return costs [n, 3] in mean JCTs for features [n, SIZE]."""
        single, dags, wide = (expert(features) for expert in self.experts)
        several, has_wide = (features[:, index : index + 1] > 0.0 for index in (SEVERAL, WIDE))
        return torch.where(has_wide, wide, torch.where(several, dags, single))

    def compiled(self, margin: float) -> Network:
        """Return the same network as arrays for the compiled simulator."""
        arrays = [_arrays(expert) for expert in self.experts]
        return side_by_side(arrays, float(margin), [expert.members for expert in self.experts])


def _arrays(expert: Expert) -> tuple[np.ndarray, ...]:
    """Return the first eight fields of `Network`, of one expert, without the output of the head."""

    def weights(index: int) -> tuple[np.ndarray, np.ndarray]:
        layer = expert.layers[index]
        return layer.weight.detach().double().numpy().T, layer.bias.detach().double().numpy()

    return (expert.mean.double().numpy(), expert.scale.double().numpy(), *weights(0), *weights(2), *weights(4))
