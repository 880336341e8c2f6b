"""Proximal policy optimisation of a window agent: a softmax over a decision's rows, and a value of what they share.

Source: Schulman et al., "Proximal Policy Optimization Algorithms", 2017.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from fermata.sim.hpc.window import FEATURES, FWD_ROW, HIDDEN, OF_JOB
from fermata.sim.trace import FloatArray
from fermata.training.hpc.runs import Networks
from fermata.training.hpc.window_config import WindowConfig
from fermata.training.hpc.window_rollouts import Batch, estimate_advantages, without_arrivals

SingleArray = NDArray[np.float32]
IntArray = NDArray[np.int64]

_MAX_NORM = 0.5  # of a gradient
_VALUE_UNITS = 32
_LEAST_SPREAD = 1e-3


class WindowNetwork(nn.Module):  # type: ignore[misc] # torch is not followed by mypy
    """`[rows, FEATURES] -> [rows]`, each row alone: two hidden layers of rectified units."""

    def __init__(self) -> None:
        super().__init__()
        first, second = HIDDEN
        self.layers = nn.Sequential(
            nn.Linear(FEATURES, first), nn.ReLU(), nn.Linear(first, second), nn.ReLU(), nn.Linear(second, 1)
        )

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the score of every row."""
        return torch.squeeze(self.layers(rows), 1)

    def begin(self, fwd_bias: float) -> None:
        """Make all jobs about equally likely, and Fwd as much more as `fwd_bias` says."""
        first, second, last = (self.layers[place] for place in (0, 2, 4))
        with torch.no_grad():
            last.weight.mul_(0.1)
            for layer in (first, second):
                layer.weight[0].zero_()
                layer.bias[0] = 0.0
            first.weight[0, FWD_ROW] = second.weight[0, 0] = 1.0
            last.weight[0, 0] = fwd_bias

    def theta(self) -> SingleArray:
        """Return the weights in the order of `window.score`."""
        parts = [
            part for layer in self.layers[::2] for part in (layer.weight.detach().T.flatten(), layer.bias.detach())
        ]
        return np.array(torch.cat(parts).numpy(), dtype=np.float32)

    def load(self, theta: SingleArray) -> None:
        """Take weights as `theta` gives them."""
        flat = torch.from_numpy(theta)
        with torch.no_grad():
            for layer in self.layers[::2]:
                many, inputs = layer.weight.shape
                weights, bias, flat = torch.split(flat, (many * inputs, many, len(flat) - many * (inputs + 1)))
                layer.weight.copy_(weights.reshape(inputs, many).T)
                layer.bias.copy_(bias)


class Standard(NamedTuple):
    """Mean and standard deviation of every feature over the rows of jobs, `[FEATURES]` each; networks read units of it.

    Source: Andrychowicz et al., "What matters for on-policy deep actor-critic methods?", ICLR 2021, section 3.3.
    """

    mean: SingleArray
    scale: SingleArray

    @classmethod
    def of(cls, rows: SingleArray) -> Standard:
        """Measure rows, `[rows, FEATURES]`; what marks Fwd, or does not vary, keeps its unit."""
        jobs = rows[rows[:, FWD_ROW] == 0.0]
        mean, scale = jobs.mean(axis=0, dtype=np.float64), jobs.std(axis=0, dtype=np.float64)
        varied = (scale > _LEAST_SPREAD) & (np.arange(FEATURES) != FWD_ROW)
        return cls(np.where(varied, mean, 0.0).astype(np.float32), np.where(varied, scale, 1.0).astype(np.float32))

    def apply(self, rows: SingleArray) -> SingleArray:
        """Return rows in standard units."""
        return (rows - self.mean) / self.scale

    def fold(self, theta: SingleArray) -> SingleArray:
        """Return the weights that do with rows what `theta` does with them in standard units."""
        folded, first = theta.copy(), HIDDEN[0]
        weights = folded[: FEATURES * first].reshape(FEATURES, first)
        weights /= self.scale[:, None]
        folded[FEATURES * first : (FEATURES + 1) * first] -= self.mean @ weights
        return folded


class WindowLearner:
    """Policy and value networks with their optimisers.

    Args:
        config: see `WindowConfig`.
        standard: units of the features.
    """

    def __init__(self, config: WindowConfig, standard: Standard) -> None:
        torch.manual_seed(config.seed)
        self.config, self.standard = config, standard
        self.policy = WindowNetwork()
        self.policy.begin(config.fwd_bias)
        self.value = nn.Sequential(
            nn.Linear(FEATURES - OF_JOB, _VALUE_UNITS),
            nn.ReLU(),
            nn.Linear(_VALUE_UNITS, _VALUE_UNITS),
            nn.ReLU(),
            nn.Linear(_VALUE_UNITS, 1),
        )
        self._policy_steps = torch.optim.Adam(self.policy.parameters(), lr=config.policy_rate)
        self._value_steps = torch.optim.Adam(self.value.parameters(), lr=config.value_rate)
        self.scale = 0.0  # of returns, which the value network gives in units of it; set by the first batch
        self.random = np.random.default_rng(config.seed)

    def theta(self) -> SingleArray:
        """Return the policy's weights as `window.score` wants them."""
        return self.standard.fold(self.policy.theta())

    def networks(self) -> Networks:
        """Return what updates change, but for `scale` and `random`."""
        return Networks(self.policy, self.value, self._policy_steps, self._value_steps)

    def update(self, batch: Batch, left: float) -> dict[str, float]:
        """Improve both networks on one batch; returns the divergence, the entropy and what the values explain.

        Args:
            batch: what the policy of now did.
            left: share of the training that is left, 0 to 1; the policy's rate falls with it, to a tenth.
        """
        config = self.config
        for group in self._policy_steps.param_groups:
            group["lr"] = config.policy_rate * (0.1 + 0.9 * left)
        first_rows = np.cumsum(batch.sizes) - batch.sizes
        batch = replace(batch, rows=self.standard.apply(batch.rows))
        states = torch.from_numpy(batch.rows[first_rows, OF_JOB:])
        with torch.no_grad():
            values = self.value(states).squeeze(1).double().numpy() * self.scale
        advantages = estimate_advantages(values, batch, config.horizon_s, config.trace_s)
        returns = values + advantages
        self.scale = self.scale or float(returns.std()) + 1e-12
        gains = without_arrivals(advantages, batch, config.copies)
        gains = (gains - gains.mean()) / (gains.std() + 1e-8)
        told = self._improve(batch, first_rows, gains, states, torch.from_numpy(returns / self.scale).float())
        return told | {"explained": 1.0 - float(advantages.var() / (returns.var() + 1e-12))}

    def _improve(
        self, batch: Batch, first_rows: IntArray, gains: FloatArray, states: torch.Tensor, goals: torch.Tensor
    ) -> dict[str, float]:
        config, told = self.config, {"kl": 0.0, "entropy": 0.0}
        steps = min(config.minibatches, len(batch.sizes))  # a step on no decision would have no gradient but NaN
        for _ in range(config.epochs):
            moved = []
            for chosen in np.array_split(self.random.permutation(len(batch.sizes)), steps):
                moved.append(self._policy_step(batch, first_rows, gains, chosen))
                loss = ((self.value(states[chosen]).squeeze(1) - goals[chosen]) ** 2).mean()
                self._value_steps.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call, unused-ignore]
                self._value_steps.step()
            kl, entropy = np.mean(moved, axis=0)
            told = {"kl": float(kl), "entropy": float(entropy)}
            if kl > config.target_kl:
                break
        return told

    def _policy_step(
        self, batch: Batch, first_rows: IntArray, gains: FloatArray, chosen: IntArray
    ) -> tuple[float, float]:
        """Take one step on the chosen decisions; returns the divergence and the entropy before it."""
        config, sizes = self.config, batch.sizes[chosen]
        firsts = np.cumsum(sizes) - sizes  # of each decision's rows among those taken
        places = np.arange(sizes.sum()) + np.repeat(first_rows[chosen] - firsts, sizes)
        owner = torch.from_numpy(np.repeat(np.arange(len(chosen)), sizes))
        scores = self.policy(torch.from_numpy(batch.rows[places]))
        logs = scores - log_sum(scores, owner, len(chosen))[owner]
        chance = logs[torch.from_numpy(firsts + batch.acted[chosen])]
        old = torch.from_numpy(batch.log_chance[chosen])
        gain = torch.from_numpy(gains[chosen]).float()
        ratio = torch.exp(chance - old)
        bounded = torch.clamp(ratio, 1.0 - config.clip, 1.0 + config.clip)
        entropy = -(logs.exp() * logs).sum() / len(chosen)
        loss = -torch.minimum(ratio * gain, bounded * gain).mean() - config.entropy * entropy
        self._policy_steps.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call, unused-ignore]
        nn.utils.clip_grad_norm_(self.policy.parameters(), _MAX_NORM)
        self._policy_steps.step()
        return float((old - chance).mean().detach()), float(entropy.detach())


def log_sum(scores: torch.Tensor, owner: torch.Tensor, decisions: int) -> torch.Tensor:
    """Return the logarithm of the sum of exponentials of each decision's scores, `[decisions]`.

    Args:
        scores: `[rows]`.
        owner: `[rows]` the decision that each belongs to.
        decisions: how many there are, each with a row.
    """
    highest = torch.full((decisions,), -torch.inf).scatter_reduce(0, owner, scores.detach(), "amax")
    total = torch.zeros(decisions).scatter_add(0, owner, torch.exp(scores - highest[owner]))
    return highest + torch.log(total)
