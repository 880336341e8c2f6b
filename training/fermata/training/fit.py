"""Fitting the network to the teacher's labels: least squares, early stopping on held-out scenarios.

A Huber loss was tried by others and is biased against waiting: what waiting saves is rare and large. What may be
weighted is whole scenarios, by how far off their labels are: that says nothing of which action they are for.
"""

from __future__ import annotations

import copy
import math
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, CancelledError, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray

from fermata.policy.errors import InputError
from fermata.policy.features import SEVERAL, WIDE
from fermata.training.config import Fit
from fermata.training.network import CostNetwork, Expert

OnEpoch = Callable[[int, int, float, float], None]  # told expert, epoch, training loss and held-out loss
_SEEDING = threading.Lock()  # torch draws weights from one generator for all threads


@dataclass(frozen=True)
class Labels:
    """Labelled decisions of many scenarios.

    Features [n, SIZE], costs [n, 3] (NaN: illegal), scenario [n], and how much each decision counts [n] (None: alike).
    """

    x: NDArray[np.float64]
    y: NDArray[np.float64]
    scenario: NDArray[np.int64]
    weight: NDArray[np.float64] | None = None

    def where(self, mask: NDArray[np.bool_]) -> Labels:
        """Return some of the decisions, by a mask [n]."""
        weight = None if self.weight is None else self.weight[mask]
        return Labels(self.x[mask], self.y[mask], self.scenario[mask], weight)


def _misses(costs: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the squared misses [n, 3] of the legal actions but the first, 0 elsewhere; and which those are, [n, 3]."""
    asked = ~torch.isnan(y)
    asked[:, 0] = False
    # What is illegal has to go before it is squared: nothing times NaN is a NaN gradient.
    return ((costs - y.nan_to_num()) * asked) ** 2, asked


def _loss(costs: torch.Tensor, y: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Weighted mean squared miss."""
    misses, asked = _misses(costs, y)
    return (weight[:, None] * misses).sum() / asked.sum()


def weighed(
    labels: Labels,
    config: Fit,
    seed: int,
    on_epoch: OnEpoch | None = None,
    device: torch.device | None = None,
) -> Labels:
    """Return labels that count by how sure their scenario's are, with a mean weight of 1.

    By how much labels are off, by the chance of the futures that they are from, differs by orders of magnitude between
    scenarios, and in least squares that treat all alike the worst drown the rest. So there are two steps: what a fit
    without weights misses in a scenario says how sure its labels are, and the weight of each is 1 over the mean square
    of that, plus `config.floor`.

    Args:
        labels: of all rounds.
        config: sizes and steps; without a floor all labels count alike, as where there is none.
        seed: of that fit, and the rest, as of `fit`.
        on_epoch: as of `fit`.
        device: as of `fit`.
    """
    if config.floor is None or not len(labels.x):
        return labels
    network = fit(labels, config, seed, on_epoch, device)
    with torch.no_grad():
        costs = network(torch.from_numpy(labels.x).float())
        misses, asked = (each.numpy() for each in _misses(costs, torch.from_numpy(labels.y).float()))
    scenario = labels.scenario[np.nonzero(asked)[0]]
    size = int(labels.scenario.max()) + 1
    miss = np.bincount(scenario, misses[asked], size) / np.maximum(np.bincount(scenario, minlength=size), 1)
    weight = (1.0 / (miss + config.floor))[labels.scenario]
    return replace(labels, weight=weight / weight.mean())


def fit(
    labels: Labels,
    config: Fit,
    seed: int,
    on_epoch: OnEpoch | None = None,
    device: torch.device | None = None,
) -> CostNetwork:
    """Return a network each of whose experts was fitted to its part of the labels.

    The same labels, seed and device give the same one. An expert without labels stays one that starts the head.

    Args:
        labels: of all rounds.
        config: sizes and steps.
        seed: of the weights, the batches and the split.
        on_epoch: told expert, epoch, training loss and held-out loss.
        device: where it is fitted, by default the processor; what is returned is always there.
    """
    torch.set_num_threads(1)  # of this fit: the layers are small, and threads would cost more than they bring
    with _SEEDING:
        torch.manual_seed(seed)  # also of an expert that stays untaught
        network = CostNetwork(config.hidden)
    several, wide = labels.x[:, SEVERAL] > 0.0, labels.x[:, WIDE] > 0.0
    for index, mine in enumerate((~several & ~wide, several & ~wide, wide)):
        part = labels.where(mine)
        if len(np.unique(part.scenario)) > 1:
            told = None if on_epoch is None else partial(on_epoch, index)
            network.experts[index] = fit_expert(part, config, seed, told, device=device)
    return network


def fit_each(
    labels: Labels,
    config: Fit,
    watched: Sequence[tuple[int, OnEpoch]],
    device: torch.device | None = None,
    at_once: int = 1,
) -> list[CostNetwork]:
    """Return the networks that `fit` returns for several seeds, some of them fitted at a time.

    In threads, because torch computes without Python's lock and all read the same labels. An error or an interrupt ends
    those that go on after their present epoch.

    Args:
        labels: of all rounds.
        config: sizes and steps.
        watched: the seeds, and what is told of each fit.
        device: as of `fit`.
        at_once: how many; changes nothing but the time.
    """
    if at_once == 1:
        return [fit(labels, config, seed, on_epoch, device) for seed, on_epoch in watched]
    over = threading.Event()

    def one(seed: int, on_epoch: OnEpoch) -> CostNetwork:
        def told(expert: int, epoch: int, train_loss: float, held_loss: float) -> None:
            if over.is_set():
                raise CancelledError
            on_epoch(expert, epoch, train_loss, held_loss)

        return fit(labels, config, seed, told, device)

    with ThreadPoolExecutor(at_once) as pool:
        fits = [pool.submit(one, seed, on_epoch) for seed, on_epoch in watched]
        try:
            for ended in wait(fits, return_when=FIRST_EXCEPTION).done:
                ended.result()  # what went wrong, if something did, and not what that ended
        finally:
            over.set()
            pool.shutdown(cancel_futures=True)
    return [each.result() for each in fits]


def fit_expert(
    labels: Labels,
    config: Fit,
    seed: int,
    on_epoch: Callable[[int, float, float], None] | None = None,
    *,
    device: torch.device | None,
) -> Expert:
    """Return the expert with the lowest loss on held-out scenarios; see `fit`.

    Raises:
        InputError: the fit diverged, so that no epoch had a loss.
    """
    rng = np.random.default_rng(seed)
    x = torch.from_numpy(labels.x).float().to(device)
    y = torch.from_numpy(labels.y).float().to(device)
    weight = (torch.ones(len(x)) if labels.weight is None else torch.from_numpy(labels.weight).float()).to(device)
    scenarios = np.unique(labels.scenario)
    apart = rng.permutation(scenarios)[: min(max(1, round(config.held_out * len(scenarios))), len(scenarios) - 1)]
    is_held = torch.from_numpy(np.isin(labels.scenario, apart)).to(device)
    train, held = (torch.nonzero(each).squeeze(1) for each in (~is_held, is_held))
    with _SEEDING:
        torch.manual_seed(seed)
        expert = Expert(config.hidden)
    expert.to(device)
    expert.normalise(x[train])
    inputs = (*expert.normal(x), y, weight)  # the first two once, not for each step

    def loss_on(rows: torch.Tensor) -> torch.Tensor:
        bounded, beyond, y, weight = (each.index_select(0, rows) for each in inputs)
        return _loss(expert.costs(bounded, beyond), y, weight)

    optimiser = torch.optim.AdamW(
        expert.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay, fused=False
    )
    steps = math.ceil(len(train) / config.batch) * config.epochs
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    best, best_loss, since = copy.deepcopy(expert), math.inf, 0
    for epoch in range(config.epochs):
        expert.train()
        total = 0.0
        order = train[torch.from_numpy(rng.permutation(len(train))).to(device)]
        for start in range(0, len(order), config.batch):
            rows = order[start : start + config.batch]
            optimiser.zero_grad()
            loss = loss_on(rows)
            loss.backward()
            optimiser.step()
            schedule.step()
            total += float(loss.detach()) * len(rows)
        expert.eval()
        with torch.no_grad():
            held_loss = float(loss_on(held))
        if on_epoch is not None:
            on_epoch(epoch, total / len(order), held_loss)
        since += 1
        if held_loss < best_loss:
            best, best_loss, since = copy.deepcopy(expert), held_loss, 0
        if since >= config.patience:
            break
    if math.isinf(best_loss):
        raise InputError("the fit has diverged: expected a smaller fit.learning_rate or fit.weight_decay")
    best.cpu()
    return best
