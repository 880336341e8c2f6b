"""A training run of a graph policy, in a folder that can be resumed at any time.

The folder holds the configuration, a checkpoint (weights and optimiser, nothing that can run), the best network by the
held-out episodes once the run is over, and TensorBoard's logs. What an iteration does follows from the checkpoint and
its number, and files appear whole or not at all, so a run that was killed ends with the same network as one that was
not.
"""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from rich.console import Console
from rich.progress import Progress

from fermata.policy.graph_actions import NO_IDLING
from fermata.policy.graph_state import join
from fermata.training.curves import Curves
from fermata.training.device import CPU, announce, chosen
from fermata.training.files import (
    CONFIG_FILE,
    claim,
    locked,
    noted_by,
    put_moments,
    put_weights,
    read_note,
    read_weights,
    unfinished,
    unfitting,
    write_weights,
)
from fermata.training.graph.config import GraphConfig
from fermata.training.graph.network import GraphNetwork
from fermata.training.graph.rollouts import Decisions, HeldOut, Unit, run_unit, score_held_out, weights_of
from fermata.training.graph.update import METHODS, Told
from fermata.training.graph.workers import Workers, workers
from fermata.training.progress import shown

CHECKPOINT_FILE, NETWORK_FILE = "checkpoint.pt", "network.pt"
_HELD_OUT_UNIT = 8  # episodes that are played side by side
ours = noted_by(*METHODS)


class Progressed(NamedTuple):
    """A run between two iterations."""

    iteration: int  # the next one
    network: GraphNetwork
    optimiser: torch.optim.Adam
    best: dict[str, torch.Tensor]  # weights
    best_score: float  # cost over the base policy's, held-out mean
    looks: int  # since the best

    @classmethod
    def begin(cls, config: GraphConfig, device: torch.device) -> Progressed:
        """Return a run before its first iteration."""
        torch.manual_seed(config.seed)
        network = GraphNetwork(config.network).to(device)
        return cls(0, network, _optimiser(network, config), copy.deepcopy(network.state_dict()), math.inf, 0)


def _optimiser(network: GraphNetwork, config: GraphConfig) -> torch.optim.Optimizer:
    together = network.device.type != CPU  # a step is a few launches on a GPU, not one for each array of weights
    return torch.optim.Adam(network.parameters(), lr=config.update.learning_rate[0], fused=False, foreach=together)


def _save_checkpoint(run: Path, at: Progressed) -> None:
    content = at._asdict() | {"network": at.network.state_dict(), "optimiser": at.optimiser.state_dict()}
    write_weights(run / CHECKPOINT_FILE, content)


def _load_checkpoint(run: Path, config: GraphConfig, device: torch.device) -> Progressed:
    """Return the run as it was when its checkpoint was written, or before its first iteration."""
    path = run / CHECKPOINT_FILE
    at = Progressed.begin(config, device)
    if not path.exists():
        return at
    content = read_weights(path)
    if not isinstance(content, dict) or content.keys() != set(Progressed._fields):
        raise unfitting(path)
    kinds = [type(content[name]) for name in ("iteration", "best_score", "looks")]
    if kinds != [int, float, int] or not 0 < content["iteration"] <= config.iterations:
        raise unfitting(path)
    put_weights(copy.deepcopy(at.network), content["best"], path)
    put_weights(at.network, content.pop("network"), path)
    put_moments(at.optimiser, content.pop("optimiser"), path)
    return at._replace(**content)


def _joined(parts: list[Decisions]) -> Decisions:
    """Return the decisions of several units under each other."""
    choices = np.cumsum([0, *(len(part.graph.choice_stage) for part in parts[:-1])])
    rows = np.cumsum([0, *(len(part.row) for part in parts[:-1])])
    moved = [
        part._replace(
            row=np.where(part.row < 0, part.row, part.row + choice),
            following=np.where(part.following < 0, -1, part.following + row),
        )
        for part, choice, row in zip(parts, choices, rows, strict=True)
    ]
    graph = join([part.graph for part in moved])
    others = {name: np.concatenate([getattr(part, name) for part in moved]) for name in Decisions._fields[1:]}
    return Decisions(graph, **others)


def _iterate(config: GraphConfig, at: Progressed, who: Workers) -> tuple[Progressed, Told]:
    """Gather the experience of one iteration and learn from it."""
    weights = weights_of(at.network)
    numbers, together = range(config.rollouts.sequences), config.rollouts.together
    units = [Unit(config, at.iteration, tuple(numbers[i : i + together]), weights) for i in numbers[::together]]
    decisions = _joined(who.map(run_unit, units))
    if at.iteration == 0:
        at.network.normalise(decisions.graph)
        # The first decisions were made without it, so they say where the inputs lie and nothing else.
        decisions = _joined(who.map(run_unit, [_with(unit, weights_of(at.network)) for unit in units]))
    for group in at.optimiser.param_groups:
        group["lr"] = config.between(config.update.learning_rate, at.iteration)
    told = METHODS[config.method](at.network, at.optimiser, decisions, config, at.iteration)
    return at._replace(iteration=at.iteration + 1), told


def _with(unit: Unit, weights: dict[str, Any]) -> Unit:
    return Unit(unit.config, unit.iteration, unit.numbers, weights)


def _look(config: GraphConfig, at: Progressed, who: Workers) -> tuple[Progressed, float]:
    """Score the network on the held-out episodes at each margin, and keep the best one if there was none so good."""
    numbers = range(config.selection.episodes)
    groups = [tuple(numbers[i : i + _HELD_OUT_UNIT]) for i in range(0, len(numbers), _HELD_OUT_UNIT)]
    leaning = []
    for margin in config.selection.margins if config.network.space.kind != NO_IDLING else (0.0,):
        leaning.append(copy.deepcopy(at.network))
        leaning[-1].lean(margin)
    units = [HeldOut(config, group, weights_of(network)) for network in leaning for group in groups]
    told = np.array([float(np.sum(scores)) for scores in who.map(score_held_out, units)])
    scores = told.reshape(len(leaning), len(groups)).sum(axis=1) / len(numbers)
    first, score = int(np.argmin(scores)), float(scores.min())
    if score < at.best_score:
        return at._replace(best=leaning[first].state_dict(), best_score=score, looks=0), score
    return at._replace(looks=at.looks + 1), score


def train(
    config: GraphConfig, run: Path, console: Console | None = None, ray: str | None = None, device: str = CPU
) -> GraphNetwork:
    """Run, or go on with, a training run and return its best network.

    Args:
        config: what to do.
        run: folder of the run; created if it is not there.
        console: where progress is shown; standard error by default.
        ray: address of a Ray cluster that gathers the experience; by default processes of this machine do.
        device: where the network learns; see `fermata.training.device.chosen`.

    Raises:
        InputError: `run` holds a run of another configuration or a damaged file, another process is at work there, no
            Ray cluster answers, or there is no such device.
    """
    torch.set_num_threads(1)  # another number may round differently
    learns_on = chosen(device)
    with locked(run):
        claim(run, config, ours)
        if not (run / NETWORK_FILE).exists():
            _train(config, run, console or Console(stderr=True), ray, learns_on)
        return read_run(run)[1]


def _train(config: GraphConfig, run: Path, console: Console, ray: str | None, learns_on: torch.device) -> None:
    at = _load_checkpoint(run, config, learns_on)
    # What is logged of an iteration is at the step that it leads to: of those up to the checkpoint nothing is lost.
    log = Curves(run, purge_step=at.iteration + 1)
    with workers(config.processes, ray) as who, shown(console) as progress:
        announce(learns_on, progress.console)
        at = _to_the_end(config, at, who, run, progress, log)
    write_weights(run / NETWORK_FILE, at.best)


def _to_the_end(
    config: GraphConfig, at: Progressed, who: Workers, run: Path, progress: Progress, log: Curves
) -> Progressed:
    """Iterate until the last iteration, or until the held-out episodes do not get cheaper any more."""
    task = progress.add_task(f"{config.name}: {config.method}", total=config.iterations, completed=at.iteration)
    while at.iteration < config.iterations and at.looks < config.selection.patience:
        at, told = _iterate(config, at, who)
        for name, value in told._asdict().items():
            log.add_scalar(f"training/{name}", value, at.iteration)
        # The first look is at what the training begins with.
        if at.iteration == 1 or at.iteration % config.selection.every == 0 or at.iteration == config.iterations:
            at, score = _look(config, at, who)
            log.add_scalar("held_out/cost_over_base", score, at.iteration)
            best = f"best {100.0 * (at.best_score - 1.0):+.1f}%"
            progress.update(task, description=f"{config.name}: {100.0 * (score - 1.0):+.1f}% of base, {best}")
        if at.iteration % config.checkpoint_every == 0 or at.iteration == config.iterations:
            _save_checkpoint(run, at)
        progress.update(task, completed=at.iteration)
    return at


def read_run(run: Path) -> tuple[GraphConfig, GraphNetwork]:
    """Return the configuration and the best network of a finished run.

    Raises:
        InputError: there is no finished run in this folder, or a file of it is damaged.
    """
    config = read_note(run / CONFIG_FILE, GraphConfig)
    path = run / NETWORK_FILE
    if not path.exists():
        raise unfinished(run)
    network = GraphNetwork(config.network)
    put_weights(network, read_weights(path), path)
    return config, network.eval()
