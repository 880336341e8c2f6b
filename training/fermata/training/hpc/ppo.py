"""Proximal policy optimisation with a clipped ratio, whole batches, and a stop when the policy has moved enough.

Source: Schulman et al., "Proximal Policy Optimization Algorithms", 2017; loop and stopping rule after OpenAI's
Spinning Up, which SchedInspector uses.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from fermata.training.hpc.config import InspectorConfig
from fermata.training.hpc.network import perceptron
from fermata.training.hpc.rollouts import Batch
from fermata.training.hpc.runs import Networks

KL_MARGIN = 1.5


class Learner:
    """Policy and value networks with their optimisers.

    Args:
        config: see `InspectorConfig`.
    """

    def __init__(self, config: InspectorConfig) -> None:
        torch.manual_seed(config.seed)
        self.config = config
        self.policy = perceptron(config.features, 2)
        self.value = perceptron(config.features, 1)
        with torch.no_grad():
            last_bias = list(self.policy.parameters())[-1]
            last_bias[0] += config.accept_bias
        self._policy_steps = torch.optim.Adam(self.policy.parameters(), lr=config.policy_rate)
        self._value_steps = torch.optim.Adam(self.value.parameters(), lr=config.value_rate)

    def networks(self) -> Networks:
        """Return all that updates change."""
        return Networks(self.policy, self.value, self._policy_steps, self._value_steps)

    def update(self, batch: Batch) -> dict[str, float]:
        """Improve both networks on one batch; returns losses, the divergence and the entropy."""
        seen = torch.from_numpy(batch.seen)
        acted = torch.from_numpy(batch.acted)
        old = torch.from_numpy(batch.log_chance)
        with torch.no_grad():
            values = self.value(seen).squeeze(1).numpy()
        advantages, returns = estimate_advantages(values, batch, self.config.gae_lambda)
        normal = torch.from_numpy((advantages - advantages.mean()) / (advantages.std() + 1e-8))
        told = self._improve_policy(seen, acted, old, normal)
        goal = torch.from_numpy(returns)
        loss = torch.zeros(())
        for _ in range(self.config.value_steps):
            self._value_steps.zero_grad()
            loss = ((self.value(seen).squeeze(1) - goal) ** 2).mean()
            loss.backward()  # type: ignore[no-untyped-call, unused-ignore]
            self._value_steps.step()
        return told | {"value_loss": float(loss.detach())}

    def _improve_policy(
        self, seen: torch.Tensor, acted: torch.Tensor, old: torch.Tensor, advantages: torch.Tensor
    ) -> dict[str, float]:
        config, told = self.config, {"steps": 0.0, "kl": 0.0, "entropy": 0.0}
        for step in range(config.policy_steps):
            logs = torch.log_softmax(self.policy(seen), dim=1)
            chance = logs.gather(1, acted.unsqueeze(1)).squeeze(1)
            ratio = torch.exp(chance - old)
            bounded = torch.clamp(ratio, 1.0 - config.clip, 1.0 + config.clip)
            entropy = -(logs.exp() * logs).sum(1).mean()
            kl = float((old - chance).mean().detach())
            told = {"steps": float(step), "kl": kl, "entropy": float(entropy.detach())}
            if kl > KL_MARGIN * config.target_kl:
                break
            loss = -torch.minimum(ratio * advantages, bounded * advantages).mean() - config.entropy * entropy
            self._policy_steps.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call, unused-ignore]
            self._policy_steps.step()
        return told


def estimate_advantages(
    values: NDArray[np.float32], batch: Batch, gae_lambda: float
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return generalised advantages and returns of every decision, `[decisions]` each.

    With a discount of 1 and a reward at the end only, the return of every decision is its trajectory's reward.
    Source: Schulman et al., "High-dimensional continuous control using generalized advantage estimation", 2016.
    """
    advantages = np.empty_like(values)
    returns = np.empty_like(values)
    first = 0
    for end, reward in zip(batch.ends, batch.rewards, strict=True):
        returns[first:end] = reward
        carried, following = 0.0, float(reward)
        for step in range(end - 1, first - 1, -1):
            carried = following - float(values[step]) + gae_lambda * carried
            advantages[step] = carried
            following = float(values[step])
        first = end
    return advantages, returns
