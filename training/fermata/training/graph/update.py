"""REINFORCE and PPO: how decisions change the network.

Both read a choice as its parts, a stage or a wait, then a cap and a delay, so the logarithm of its probability is a
sum. REINFORCE weighs it with the advantage over other rollouts of the same arrivals and takes one step an iteration;
PPO takes several clipped ones, with the same advantages or with those that a critic estimates.

Sources: Mao et al. 2019 (Decima), section 5.3; J. Schulman et al., Proximal Policy Optimization Algorithms, 2017.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fermata.policy.graph_actions import WAIT_CHOICE
from fermata.policy.graph_state import part
from fermata.training.graph.config import GraphConfig
from fermata.training.graph.network import Answer, GraphNetwork, tensors
from fermata.training.graph.rollouts import Decisions

Floats = NDArray[np.float64]


class Told(NamedTuple):
    """What an update was like, for people."""

    entropy: float
    waits: float  # share of the decisions
    cost: float  # mean cost to go: jobs in the system for each executor
    gradient_norm: float  # before it was scaled down
    kl: float  # from the old policy to the new one, PPO only
    value_loss: float


class _Judged(NamedTuple):
    log_prob: Tensor  # [d] of what was chosen
    entropy: Tensor  # [d]
    value: Tensor  # [d]


def _log_choices(answer: Answer, state: Tensor) -> tuple[Tensor, Tensor]:
    """Return the log-probabilities of each startable stage [c] and of waiting [s]."""
    highest = answer.wait.detach().scatter_reduce(0, state, answer.stage.detach(), "amax")
    weight = torch.exp(answer.wait - highest)
    weight = weight.index_add(0, state, torch.exp(answer.stage - highest[state]))
    total = highest + torch.log(weight)
    return answer.stage - total[state], answer.wait - total


def _entropy(log_prob: Tensor) -> Tensor:
    return -(log_prob.exp() * log_prob).sum(dim=-1)


class Chosen(NamedTuple):
    """Neighbouring decisions where the network is."""

    arrays: tuple[Tensor, ...]  # the states; see `tensors`
    row: Tensor  # [d], and so on; see `Decisions`
    option: Tensor
    delay: Tensor


def judge(network: GraphNetwork, chosen: Chosen) -> _Judged:
    """Return log-probabilities and entropies of decisions, and the critic's values."""
    arrays, row, option, delay = chosen
    answer, value = network.evaluate(*arrays)
    state = arrays[5][arrays[1][arrays[7]]]
    log_stage, log_wait = _log_choices(answer, state)
    log_option, log_delay = answer.option.log_softmax(dim=1), answer.delay.log_softmax(dim=1)
    started = row != WAIT_CHOICE
    at = row.clamp(min=0)
    parts = log_stage[at] + log_option[at, option] + log_delay[at, delay]
    own = log_stage.exp() * (_entropy(log_option) + _entropy(log_delay) - log_stage)
    entropy = (-(log_wait.exp() * log_wait)).index_add(0, state, own)
    return _Judged(torch.where(started, parts, log_wait), entropy, value)


def _slice(decisions: Decisions, first: int, end: int, device: torch.device) -> Chosen:
    graph, choices = part(decisions.graph, first, end)
    row = decisions.row[first:end]
    row = np.where(row == WAIT_CHOICE, WAIT_CHOICE, row - choices)
    columns = row, decisions.option[first:end], decisions.delay[first:end]
    return Chosen(tensors(graph, device), *(torch.from_numpy(column).to(device) for column in columns))


def _normal(advantage: Floats, counts: NDArray[np.bool_]) -> Floats:
    """Return advantages of spread 1 over the decisions that count, 0 elsewhere; their mean is left alone."""
    spread = float(advantage[counts].std()) if counts.any() else 1.0
    scaled: Floats = np.where(counts, advantage / max(spread, 1e-9), 0.0)
    return scaled


def reinforce(
    network: GraphNetwork, optimiser: torch.optim.Optimizer, decisions: Decisions, config: GraphConfig, iteration: int
) -> Told:
    """Take one step up the policy gradient."""
    device = network.device
    advantage = torch.from_numpy(_normal(decisions.advantage, decisions.counts)).float().to(device)
    counts = torch.from_numpy(decisions.counts).float().to(device)
    bonus = config.between(config.update.entropy, iteration)
    total, states = max(float(decisions.counts.sum()), 1.0), len(decisions.row)
    entropy = 0.0
    optimiser.zero_grad()
    for first in range(0, states, config.update.batch):
        end = min(first + config.update.batch, states)
        judged = judge(network, _slice(decisions, first, end, device))
        gain = judged.log_prob * advantage[first:end] + bonus * judged.entropy * counts[first:end]
        (-gain.sum() / total).backward()
        entropy += float((judged.entropy.detach() * counts[first:end]).sum()) / total
    norm = torch.nn.utils.clip_grad_norm_(network.parameters(), config.update.gradient_norm)
    optimiser.step()
    return Told(entropy, *_facts(decisions), float(norm), 0.0, 0.0)


def _facts(decisions: Decisions) -> tuple[float, float]:
    return float((decisions.row == WAIT_CHOICE).mean()), float(decisions.cost.mean())


def generalised_advantages(decisions: Decisions, value: Floats, gae_lambda: float) -> tuple[Floats, Floats]:
    """Return advantages and the values that the critic should have had, [d] each.

    Rewards are what the cost to go falls by between two decisions, values its negative, discounts what the fading
    leaves over that time.

    Source: J. Schulman et al., High-Dimensional Continuous Control Using Generalized Advantage Estimation, 2016.
    """
    cost, kept = decisions.cost, decisions.kept
    advantage = np.zeros(len(cost))
    for i in range(len(cost) - 1, -1, -1):
        after = decisions.following[i]
        if after < 0:
            advantage[i] = -cost[i] - value[i]
            continue
        reward = kept[i] * cost[after] - cost[i]
        advantage[i] = reward + kept[i] * (value[after] + gae_lambda * advantage[after]) - value[i]
    return advantage, advantage + value


def ppo(
    network: GraphNetwork, optimiser: torch.optim.Optimizer, decisions: Decisions, config: GraphConfig, iteration: int
) -> Told:
    """Take clipped steps on minibatches of neighbouring decisions, until the policy has moved far enough."""
    update, states, device = config.update, len(decisions.row), network.device
    random = np.random.default_rng([config.seed, iteration, 3])
    bounds = [(first, min(first + _CHUNK, states)) for first in range(0, states, _CHUNK)]
    slices = [_slice(decisions, *each, device) for each in bounds]
    with torch.no_grad():
        before = [judge(network, each) for each in slices]
    value = torch.cat([each.value for each in before]).double().cpu().numpy()
    raw, returns = generalised_advantages(decisions, value, update.gae_lambda)
    if update.advantages == "sequence":
        raw = decisions.advantage
    elif decisions.counts.any():
        raw = raw - raw[decisions.counts].mean()
    scaled = _normal(raw, decisions.counts)
    advantage, target, counts = (
        torch.from_numpy(each).float().to(device) for each in (scaled, returns, decisions.counts)
    )
    bonus = config.between(update.entropy, iteration)
    told: list[tuple[float, float, float, float]] = []
    for _ in range(update.epochs):
        for chosen in np.array_split(random.permutation(len(slices)), min(update.minibatches, len(slices))):
            total = max(float(sum(decisions.counts[slice(*bounds[i])].sum() for i in chosen)), 1.0)
            optimiser.zero_grad()
            sums = torch.zeros(3, dtype=torch.float64, device=device)  # of entropy, divergence and the values' errors
            for i in chosen.tolist():
                at = slice(*bounds[i])
                judged = judge(network, slices[i])
                change = judged.log_prob - before[i].log_prob
                ratio = change.exp()
                clipped = ratio.clamp(1.0 - update.clip, 1.0 + update.clip)
                gain = torch.minimum(ratio * advantage[at], clipped * advantage[at])
                gain = gain + bonus * judged.entropy * counts[at]
                error = ((judged.value - target[at]) ** 2 * counts[at]).sum()
                ((-gain.sum() + update.value * error) / total).backward()
                with torch.no_grad():
                    moved = (ratio - 1.0 - change) * counts[at]
                    sums += torch.stack([(judged.entropy * counts[at]).sum(), moved.sum(), error]).double() / total
            norm = torch.nn.utils.clip_grad_norm_(network.parameters(), update.gradient_norm)
            optimiser.step()
            entropy, kl, loss_of_value = sums.cpu().tolist()
            told.append((entropy, float(norm), kl, loss_of_value))
        if told[-1][2] > update.target_kl:
            break
    entropy, norm_of, kl, loss_of_value = told[-1]
    return Told(entropy, *_facts(decisions), norm_of, kl, loss_of_value)


_CHUNK = 512  # neighbouring decisions that stay together
METHODS = {"reinforce": reinforce, "ppo": ppo}
